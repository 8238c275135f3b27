//! Time travel: `t VERSION AS OF 3`, `t VERSION AS OF 'release'` (a tag) and `t FOR SYSTEM_TIME AS OF '2026-01-01'` read a table as it was, and
//! `text_search(t, 'words', version => 3)` searches it.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::catalog::TableProvider;
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast::{
    Expr as SqlExpr, FunctionArg, FunctionArgExpr, Ident, ObjectName, Query, Statement as SqlStatement, TableAlias, TableFactor,
    TableVersion, Visit, VisitMut, Visitor, VisitorMut,
};
use rolloutdb_catalogs::Table;

use super::apply::arguments::{Names, ParameterKind, assign};
use super::apply::planner::{TableFunction, called_function, split_table_name, table_name, table_reference};
use super::parameter_values::ParameterValues;
use super::session::{DEFAULT_SCHEMA, Session};
use super::statement::constant;
use super::statement_catalog::OpenedTables;
use crate::error::{Error, Result};

/// The argument of a search that says which version of its table is searched.
pub const VERSION: &str = "version";

/// Opens each table that the statement reads as of a version or time, and names it in `named`; the statement reads it by that name. So it does the tables
/// that its searches are to search as of a version, which are returned. A version that is a parameter without a value stays as it is.
///
/// # Errors
/// A version or time that is not there; anything but a constant for it.
pub async fn open(
    session: &Session,
    statement: &mut SqlStatement,
    parameters: &ParameterValues,
    named: &mut HashMap<String, Arc<dyn TableProvider>>,
) -> Result<OpenedTables> {
    let mut found = Versioned(Vec::new());
    let _ = VisitMut::visit(statement, &mut found);
    for (number, (name, version)) in found.0.into_iter().enumerate() {
        let (schema, table) =
            table_reference(&name).ok_or_else(|| Error::NotSupported(format!("{name} as of a version is not supported")))?;
        named.insert(internal_name(number), Arc::new(table_at(session, &schema, &table, &version).await?));
    }
    let mut searches = Searches { functions: &session.database().shared.functions, parameters, found: Vec::new() };
    let _ = VisitMut::visit(statement, &mut searches);
    let mut searched = OpenedTables::new();
    for (number, (table, version)) in searches.found.into_iter().enumerate() {
        let (schema, name) = split_table_name(&table);
        let table = table_at(session, &schema, &name, &TableVersion::VersionAsOf(version)).await?;
        searched.insert((DEFAULT_SCHEMA.to_owned(), searched_name(number)), Arc::new(table));
    }
    Ok(searched)
}

/// A table as of a version or time.
///
/// # Errors
/// As [`open`].
pub async fn table_at(session: &Session, schema: &str, name: &str, version: &TableVersion) -> Result<Table> {
    let table = session.database().shared.catalog.table(schema, name).await?;
    at(session, &table, version).await
}

/// Whether a query reads or searches a table as of a version, a tag or a time: a tag may move.
pub fn are_read(query: &Query) -> bool {
    let mut found = Versioned(Vec::new());
    let _ = VisitMut::visit(&mut query.clone(), &mut found);
    !found.0.is_empty() || Visit::visit(query, &mut VersionArguments).is_break()
}

/// Stops at the first argument of that name.
struct VersionArguments;

impl Visitor for VersionArguments {
    type Break = ();

    fn pre_visit_table_factor(&mut self, relation: &TableFactor) -> ControlFlow<()> {
        let arguments = match relation {
            TableFactor::Table { args: Some(arguments), .. } => arguments.args.as_slice(),
            TableFactor::Function { args, .. } => args.as_slice(),
            _ => &[],
        };
        let is_version = |argument: &FunctionArg| match argument {
            FunctionArg::Named { name, .. } => name.value.eq_ignore_ascii_case(VERSION),
            FunctionArg::ExprNamed { name: SqlExpr::Identifier(name), .. } => name.value.eq_ignore_ascii_case(VERSION),
            _ => false,
        };
        if arguments.iter().any(is_version) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Takes the versions out of searches, and gives their tables names of this statement alone.
struct Searches<'a> {
    functions: &'a HashMap<&'static str, Arc<dyn TableFunction>>,
    parameters: &'a ParameterValues,
    /// Tables as the calls name them, and their versions.
    found: Vec<(String, SqlExpr)>,
}

impl VisitorMut for Searches<'_> {
    type Break = ();

    fn pre_visit_table_factor(&mut self, relation: &mut TableFactor) -> ControlFlow<()> {
        let Some((function, arguments)) = called_function(self.functions, relation) else { return ControlFlow::Continue(()) };
        let place = |expression: &SqlExpr| std::ptr::from_ref(expression).addr();
        // A call that is wrong is refused when it is planned.
        let assigned = assign(function.name(), function.parameters(), arguments).unwrap_or_default();
        let version = assigned.iter().find(|(parameter, _)| parameter.names == Names::Version);
        let table = assigned.iter().find(|(parameter, _)| parameter.kind == ParameterKind::Table);
        let (Some((_, version)), Some((_, table))) = (version, table) else { return ControlFlow::Continue(()) };
        let (Some(known), Some(name)) = (self.parameters.written_into(version), table_name(table)) else {
            return ControlFlow::Continue(());
        };
        let (version, table) = (place(version), place(table));
        let arguments = match relation {
            TableFactor::Table { args: Some(arguments), .. } => &mut arguments.args,
            TableFactor::Function { args, .. } => args,
            _ => return ControlFlow::Continue(()),
        };
        arguments.retain_mut(|argument| {
            let Some(expression) = value_of(argument) else { return true };
            if place(expression) == table {
                *expression = SqlExpr::Identifier(Ident::new(searched_name(self.found.len())));
            }
            place(expression) != version
        });
        self.found.push((name, known));
        ControlFlow::Continue(())
    }
}

fn value_of(argument: &mut FunctionArg) -> Option<&mut SqlExpr> {
    match argument {
        FunctionArg::Named { arg, .. } | FunctionArg::ExprNamed { arg, .. } | FunctionArg::Unnamed(arg) => match arg {
            FunctionArgExpr::Expr(expression) => Some(expression),
            _ => None,
        },
    }
}

fn searched_name(number: usize) -> String {
    format!("__searched_{number}")
}

struct Versioned(Vec<(ObjectName, TableVersion)>);

impl VisitorMut for Versioned {
    type Break = ();

    fn pre_visit_table_factor(&mut self, relation: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, alias, version, .. } = relation
            && let Some(taken) = version.take()
        {
            let last = name.0.last().and_then(|part| part.as_ident()).cloned();
            let own_name = || TableAlias { explicit: true, name: last.unwrap_or_else(|| Ident::new("t")), columns: vec![], at: None };
            alias.get_or_insert_with(own_name);
            let internal = ObjectName::from(vec![Ident::new(internal_name(self.0.len()))]);
            self.0.push((std::mem::replace(name, internal), taken));
        }
        ControlFlow::Continue(())
    }
}

fn internal_name(number: usize) -> String {
    format!("__version_{number}")
}

async fn at(session: &Session, table: &Table, version: &TableVersion) -> Result<Table> {
    match version {
        TableVersion::VersionAsOf(number) => {
            let value = constant(session, number).await?;
            if let Some(text) = value.try_as_str().flatten() {
                return named(table, text).await;
            }
            match value.cast_to(&DataType::UInt64) {
                Ok(ScalarValue::UInt64(Some(number))) => Ok(table.at_version(number).await?),
                _ => Err(invalid("VERSION AS OF", number, "a version number or a tag; rollout.table_versions lists them")),
            }
        }
        TableVersion::ForSystemTimeAsOf(time) | TableVersion::TimestampAsOf(time) => {
            let utc = DataType::Timestamp(datafusion::arrow::datatypes::TimeUnit::Microsecond, Some("+00:00".into()));
            let value = constant(session, time).await?.cast_to(&utc);
            match value {
                Ok(ScalarValue::TimestampMicrosecond(Some(micros), _)) => Ok(table.at_micros(micros).await?),
                _ => Err(invalid("FOR SYSTEM_TIME AS OF", time, "a timestamp, such as '2026-01-31 12:00:00'")),
            }
        }
        other => Err(Error::NotSupported(format!("{other} is not supported; VERSION AS OF and FOR SYSTEM_TIME AS OF are"))),
    }
}

/// The table at a version that is given as text: a tag, else the digits of a number.
///
/// # Errors
/// There is no such tag or version.
pub async fn named(table: &Table, version: &str) -> Result<Table> {
    match (table.at_tag(version).await, version.parse()) {
        (Err(rolloutdb_catalogs::Error::UnknownTag { .. }), Ok(number)) => Ok(table.at_version(number).await?),
        (found, _) => Ok(found?),
    }
}

fn invalid(name: &str, found: &SqlExpr, expected: &str) -> Error {
    Error::InvalidParameter { name: name.to_owned(), found: found.to_string(), expected: expected.to_owned() }
}
