//! Views: their queries take the place of their names before anything is planned, so that a statement reads one snapshot of all tables under them.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Query, Statement as SqlStatement, TableAlias, TableFactor, VisitMut, VisitorMut};
use rolloutdb_catalogs::Catalog;
use rolloutdb_sql::Statement;

use super::apply::planner::table_reference;
use crate::error::{Error, Result};

/// Views that read views that read views.
const NESTING_MAX: usize = 32;

/// Puts the queries of views in the place of their names.
///
/// # Errors
/// [`Error::NotSupported`] for views that read each other in a circle.
pub fn expand(catalog: &Catalog, statement: &mut SqlStatement) -> Result<()> {
    match statement.visit(&mut Expander { catalog, with: Vec::new(), nesting: Vec::new() }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct Expander<'a> {
    catalog: &'a Catalog,
    /// Names after WITH that hide views, of each query round the one that is visited.
    with: Vec<Vec<String>>,
    /// For each relation round the one that is visited: whether it was a view.
    nesting: Vec<bool>,
}

impl VisitorMut for Expander<'_> {
    type Break = Box<Error>;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        let names = query.with.iter().flat_map(|with| &with.cte_tables).map(|table| table.alias.name.value.to_lowercase());
        self.with.push(names.collect());
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<Self::Break> {
        self.with.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, relation: &mut TableFactor) -> ControlFlow<Self::Break> {
        let expanded = self.query_of(relation);
        self.nesting.push(matches!(expanded, Ok(Some(_))));
        if self.nesting.iter().filter(|is_view| **is_view).count() > NESTING_MAX {
            let message = format!("view {relation} reads itself, by way of other views");
            return ControlFlow::Break(Box::new(Error::NotSupported(message)));
        }
        match expanded {
            Ok(Some(expanded)) => *relation = expanded,
            Ok(None) => {}
            Err(error) => return ControlFlow::Break(Box::new(error)),
        }
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, _: &mut TableFactor) -> ControlFlow<Self::Break> {
        self.nesting.pop();
        ControlFlow::Continue(())
    }
}

impl Expander<'_> {
    /// `(query) AS name` for the name of a view.
    fn query_of(&self, relation: &TableFactor) -> Result<Option<TableFactor>> {
        let TableFactor::Table { name, alias, args: None, version: None, .. } = relation else { return Ok(None) };
        let Some((schema, view)) = table_reference(name) else { return Ok(None) };
        if name.0.len() == 1 && self.with.iter().flatten().any(|hidden| *hidden == view) {
            return Ok(None);
        }
        let Some(text) = self.catalog.view_query(&schema, &view) else { return Ok(None) };
        let Some(Statement::Query(subquery)) = rolloutdb_sql::parse(&text)?.pop() else {
            return Err(Error::Internal(format!("view {view} is not a query: {text}")));
        };
        let own_name = || TableAlias { explicit: true, name: super::statement::quoted(&view), columns: vec![], at: None };
        let alias = Some(alias.clone().unwrap_or_else(own_name));
        Ok(Some(TableFactor::Derived { lateral: false, subquery, alias, sample: None }))
    }
}
