//! The queries after WITH that a place in a statement may name, for those who plan what stands there by itself.

use datafusion::sql::sqlparser::ast::{Cte, Query, With};

/// Of each query round the one that is visited, outermost first.
#[derive(Default)]
pub struct VisibleQueries(Vec<Scope>);

/// The queries of WITH of a query round what is visited.
struct Scope {
    with: Option<With>,
    /// Where they are in memory, by which they are known when they are visited.
    addresses: Vec<usize>,
    num_visible: usize,
}

fn address(query: &Query) -> usize {
    std::ptr::from_ref(query).addr()
}

impl VisibleQueries {
    /// Before what is in a query is visited.
    pub fn enter(&mut self, query: &Query) {
        let tables = query.with.as_ref().map_or(&[][..], |with| &with.cte_tables);
        let addresses = tables.iter().map(|table| address(&table.query)).collect();
        self.0.push(Scope { with: query.with.clone(), addresses, num_visible: 0 });
    }

    /// After its queries of WITH were visited, as they are by now, and before its body is looked at.
    pub fn see_all(&mut self, query: &Query) {
        if let Some(scope) = self.0.last_mut() {
            scope.with.clone_from(&query.with);
            scope.num_visible = scope.addresses.len();
        }
    }

    /// After all of it.
    pub fn leave(&mut self, query: &Query) {
        self.0.pop();
        if let Some(outer) = self.0.last_mut()
            && let Some(position) = outer.addresses.iter().position(|place| *place == address(query))
        {
            outer.num_visible = position + 1;
        }
    }

    /// Those that are seen here, as one WITH.
    pub fn with(&self) -> Option<With> {
        let visible =
            |scope: &Scope| scope.with.iter().flat_map(|with| with.cte_tables[..scope.num_visible].to_vec()).collect::<Vec<Cte>>();
        let cte_tables: Vec<Cte> = self.0.iter().flat_map(visible).collect();
        let first = self.0.iter().find_map(|scope| scope.with.as_ref()).filter(|_| !cte_tables.is_empty())?;
        let recursive = self.0.iter().any(|scope| scope.with.as_ref().is_some_and(|with| with.recursive));
        Some(With { cte_tables, recursive, ..first.clone() })
    }
}
