//! What a statement names: whether it is about the catalog, and whether about more.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{DataType as SqlType, Expr, ObjectName, Query, TableFactor, Visit, Visitor};

use super::functions;
use super::tables::{INFORMATION_SCHEMA, PG_CATALOG, is_table};
use super::types::Kind;
use crate::engine::output_names::folded;

/// Calls that other queries have too: they alone make no query one about the catalog.
const ELSEWHERE: &[&str] = &["now", "current_timestamp"];

#[derive(Debug, Default)]
pub struct Mentions {
    /// Names after WITH, which hide tables.
    with: BTreeSet<String>,
    /// Tables in FROM, without functions.
    relations: Vec<Vec<String>>,
    /// Whether a function in FROM is none of those of catalog queries.
    calls_other_relations: bool,
    /// Functions about the catalog.
    pub functions: BTreeSet<String>,
    /// Whether it casts to a type whose values are names of objects.
    casts_to_name: bool,
    /// Whether a function is called by its name in `pg_catalog`.
    pub has_qualified_call: bool,
}

impl Mentions {
    pub fn of(statement: &impl Visit) -> Self {
        let mut mentions = Self::default();
        let _ = statement.visit(&mut mentions);
        mentions
    }

    /// Whether it reads a table of the catalog.
    pub fn has_catalog_table(&self) -> bool {
        self.relations.iter().any(|name| catalog_table(name).is_some() && !self.is_hidden(name))
    }

    pub fn is_about_catalog_alone(&self) -> bool {
        let names_it = self.has_catalog_table() || !self.functions.is_empty() || self.casts_to_name;
        let only_it = self.relations.iter().all(|name| self.is_hidden(name) || catalog_table(name).is_some());
        names_it && only_it && !self.calls_other_relations
    }

    /// Whether WITH has a query of the name.
    fn is_hidden(&self, name: &[String]) -> bool {
        matches!(name, [only] if self.with.contains(only))
    }
}

/// Schema and name of the catalog table that a name may mean: whether there is one, and no other table of the name, only what there is tells.
pub fn catalog_table(name: &[String]) -> Option<(&'static str, &str)> {
    match name {
        [table] if table.starts_with("pg_") => Some((PG_CATALOG, table)),
        [.., schema, table] if schema == PG_CATALOG => Some((PG_CATALOG, table)),
        [.., schema, table] if schema == INFORMATION_SCHEMA && is_table(INFORMATION_SCHEMA, table) => Some((INFORMATION_SCHEMA, table)),
        _ => None,
    }
}

/// The parts of a name, folded; empty if a part is no identifier.
pub fn parts_of(name: &ObjectName) -> Vec<String> {
    name.0.iter().map(|part| part.as_ident().map(folded)).collect::<Option<_>>().unwrap_or_default()
}

impl Visitor for Mentions {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.with.extend(query.with.iter().flat_map(|with| &with.cte_tables).map(|table| folded(&table.alias.name)));
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        match factor {
            TableFactor::Table { name, args: None, .. } => self.relations.push(parts_of(name)),
            TableFactor::Table { name, args: Some(_), .. } | TableFactor::Function { name, .. } => {
                let function = parts_of(name).pop().unwrap_or_default();
                self.calls_other_relations |= !functions::all().any(|known| known.name == function);
                self.note_function(function);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        match expression {
            Expr::Function(call) => {
                let mut parts = parts_of(&call.name);
                self.note_function(parts.pop().unwrap_or_default());
                self.has_qualified_call |= parts.last().is_some_and(|schema| schema == PG_CATALOG);
            }
            Expr::Cast { data_type, .. } => self.casts_to_name |= names_object(data_type),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

impl Mentions {
    fn note_function(&mut self, name: String) {
        if functions::is_about_catalog(&name) && !ELSEWHERE.contains(&name.as_str()) {
            self.functions.insert(name);
        }
    }
}

fn names_object(sql_type: &SqlType) -> bool {
    match sql_type {
        SqlType::Regclass => true,
        SqlType::Custom(name, _) => parts_of(name).last().and_then(|name| Kind::named(name)).is_some_and(Kind::names_object),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use rolloutdb_sql::Statement;

    use super::*;

    fn is_alone(text: &str) -> bool {
        match rolloutdb_sql::parse(text).expect("SQL").pop() {
            Some(Statement::Query(query)) => Mentions::of(&query).is_about_catalog_alone(),
            other => panic!("{other:?} is no query"),
        }
    }

    #[test]
    fn only_queries_about_the_catalog_alone_are_run_here() {
        for text in [
            "SELECT * FROM pg_class",
            "select 1 from information_schema.tables t join pg_catalog.pg_namespace n on true",
            "SELECT 't'::regclass",
            "WITH wiki AS (SELECT oid FROM pg_class) SELECT * FROM wiki, unnest(ARRAY[1]) AS u",
            "SELECT current_schema(), version()",
        ] {
            assert!(is_alone(text), "{text}");
        }
        for text in [
            "SELECT * FROM wiki WHERE title = 'pg_class'",
            "SELECT 1 -- pg_class",
            "SELECT now()",
            "SELECT current_user, pg_catalog.set_config('jit', 'off', false)",
            "SELECT * FROM wiki JOIN pg_class ON true",
            "SELECT pg_size_pretty(sum(length(contents))) FROM wiki",
            "SELECT * FROM vector_search(wiki, '[1]'), pg_class",
        ] {
            assert!(!is_alone(text), "{text}");
        }
    }
}
