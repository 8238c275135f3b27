//! What a statement names: whether it is about the catalog, and whether about more.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{ArrayElemTypeDef, DataType as SqlType, Expr, ObjectName, Query, TableFactor, Visit, Visitor};

use super::functions;
use super::tables::{INFORMATION_SCHEMA, PG_CATALOG, is_table};
use super::types::Kind;
use crate::engine::output_names::folded;

/// Calls that other queries have too: they alone make no query one about the catalog.
const ELSEWHERE: &[&str] = &["now", "current_timestamp"];

/// Functions that read neither tables nor what belongs to them: clients send them alone, and often.
const WITHOUT_RELATIONS: &[&str] = &[
    "version",
    "current_database",
    "current_catalog",
    "current_schema",
    "current_schemas",
    "format_type",
    "getdatabaseencoding",
    "inet_client_addr",
    "inet_client_port",
    "inet_server_addr",
    "inet_server_port",
    "oidvectortypes",
    "pg_advisory_unlock_all",
    "pg_char_to_encoding",
    "pg_conf_load_time",
    "pg_current_xact_id",
    "pg_encoding_to_char",
    "pg_get_keywords",
    "pg_get_userbyid",
    "pg_is_in_recovery",
    "pg_is_wal_replay_paused",
    "pg_my_temp_schema",
    "pg_postmaster_start_time",
    "pg_size_pretty",
    "pg_type_is_visible",
    "pg_typeof",
    "to_regtype",
    "txid_current",
];

/// The same of tables.
const TABLES_WITHOUT_RELATIONS: &[&str] = &[
    "pg_am",
    "pg_auth_members",
    "pg_authid",
    "pg_collation",
    "pg_cursors",
    "pg_database",
    "pg_enum",
    "pg_extension",
    "pg_namespace",
    "pg_opclass",
    "pg_proc",
    "pg_range",
    "pg_roles",
    "pg_settings",
    "pg_tablespace",
    "pg_timezone_names",
    "pg_type",
    "pg_user",
];

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
    /// Whether these may be tables.
    casts_to_relation: bool,
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

    /// Whether an answer takes a look at the tables that there are.
    pub fn reads_relations(&self) -> bool {
        let is_without = |name: &Vec<String>| {
            self.is_hidden(name) || matches!(catalog_table(name), Some((PG_CATALOG, table)) if TABLES_WITHOUT_RELATIONS.contains(&table))
        };
        let functions_read = self.functions.iter().any(|name| !WITHOUT_RELATIONS.contains(&name.as_str()));
        functions_read || self.casts_to_relation || !self.relations.iter().all(is_without)
    }

    /// Names of tables in FROM that are none of WITH.
    pub fn tables(&self) -> impl Iterator<Item = &[String]> {
        self.relations.iter().map(Vec::as_slice).filter(|name| !self.is_hidden(name))
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
            Expr::Cast { data_type, .. } => {
                let (named, may_be_type) = named_objects(data_type);
                self.casts_to_name |= named;
                self.casts_to_relation |= named && !may_be_type;
            }
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

/// Whether values of a type are names of objects, and whether these are types.
fn named_objects(sql_type: &SqlType) -> (bool, bool) {
    let kind = match sql_type {
        SqlType::Regclass => Some(Kind::RegClass),
        SqlType::Custom(name, _) => parts_of(name).last().and_then(|name| Kind::named(name)),
        SqlType::Array(ArrayElemTypeDef::SquareBracket(item, _) | ArrayElemTypeDef::AngleBracket(item)) => return named_objects(item),
        _ => None,
    };
    (kind.is_some_and(Kind::names_object), kind == Some(Kind::RegType))
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
    fn tables_are_read_for_queries_about_them() {
        let reads = |text: &str| match rolloutdb_sql::parse(text).expect("SQL").pop() {
            Some(Statement::Query(query)) => Mentions::of(&query).reads_relations(),
            other => panic!("{other:?} is no query"),
        };
        for text in [
            "SELECT version(), current_schema()",
            "SELECT t.oid, format_type(t.oid, NULL) FROM pg_catalog.pg_type t WHERE t.oid = 'vector'::regtype",
            "WITH pg_class AS (SELECT 1) SELECT * FROM pg_class, pg_settings",
        ] {
            assert!(!reads(text), "{text}");
        }
        for text in [
            "SELECT 'wiki'::regclass",
            "SELECT current_schema(), to_regclass('wiki')",
            "SELECT * FROM pg_type, pg_class",
            "SELECT * FROM information_schema.tables",
            "SELECT * FROM pg_stat_activity",
            "SELECT ARRAY['wiki']::regclass[]",
        ] {
            assert!(reads(text), "{text}");
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
