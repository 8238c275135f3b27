//! Which names of WITH hide tables, at each place of a statement: what reads or changes a text says where it is, and asks.

use datafusion::sql::sqlparser::ast::{Ident, ObjectName, Query, With};

/// Of each query round the one that is visited, outermost first.
#[derive(Debug, Default)]
pub struct WithNames(Vec<Scope>);

/// The names after WITH of one query: its body sees all, the query of one of them those before it, and after RECURSIVE itself.
#[derive(Debug)]
struct Scope {
    /// With the place in memory of its query, by which that is known when it is visited.
    names: Vec<(String, usize)>,
    visible: usize,
    is_recursive: bool,
}

impl Scope {
    fn of(with: Option<&With>) -> Self {
        let tables = with.into_iter().flat_map(|with| &with.cte_tables);
        let names = tables.map(|table| (folded(&table.alias.name), address(&table.query))).collect();
        Self { names, visible: 0, is_recursive: with.is_some_and(|with| with.recursive) }
    }

    fn position(&self, query: &Query) -> Option<usize> {
        self.names.iter().position(|(_, place)| *place == address(query))
    }
}

fn address(query: &Query) -> usize {
    std::ptr::from_ref(query).addr()
}

/// A name as the planner has it: letters beyond ASCII stay as they are.
pub fn folded(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_ascii_lowercase() }
}

impl WithNames {
    /// Before what is in a query is visited.
    pub fn enter(&mut self, query: &Query) {
        if let Some(outer) = self.0.last_mut().filter(|outer| outer.is_recursive)
            && let Some(position) = outer.position(query)
        {
            outer.visible = position + 1;
        }
        self.0.push(Scope::of(query.with.as_ref()));
    }

    /// Before a WITH that no query has is visited: that of a statement which writes. [`Self::leave_with`] ends it.
    pub fn enter_with(&mut self, with: Option<&With>) {
        self.0.push(Scope::of(with));
    }

    pub fn leave_with(&mut self) {
        self.0.pop();
    }

    /// After that: the next name's query sees this one's name, and after the last, the body sees them all.
    pub fn leave(&mut self, query: &Query) {
        self.0.pop();
        if let Some(outer) = self.0.last_mut()
            && let Some(position) = outer.position(query)
        {
            outer.visible = position + 1;
        }
    }

    /// Whether a relation of this name is a query of WITH here.
    pub fn hides(&self, name: &ObjectName) -> bool {
        let [part] = name.0.as_slice() else { return false };
        let Some(name) = part.as_ident().map(folded) else { return false };
        self.0.iter().any(|scope| scope.names[..scope.visible].iter().any(|(known, _)| *known == name))
    }
}
