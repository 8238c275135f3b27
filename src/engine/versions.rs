//! Time travel: `t VERSION AS OF 3`, `t VERSION AS OF 'release'` (a tag) and `t FOR SYSTEM_TIME AS OF '2026-01-01'` read a table as it was.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::catalog::TableProvider;
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast::{
    Expr as SqlExpr, Ident, ObjectName, Query, Statement as SqlStatement, TableAlias, TableFactor, TableVersion, VisitMut, VisitorMut,
};
use rolloutdb_catalogs::Table;

use super::apply::planner::table_reference;
use super::session::Session;
use super::statement::constant;
use crate::error::{Error, Result};

/// Opens each table that the statement reads as of a version or time, and names it in `named`; the statement reads it by that name.
///
/// # Errors
/// A version or time that is not there; anything but a constant for it.
pub async fn open(session: &Session, statement: &mut SqlStatement, named: &mut HashMap<String, Arc<dyn TableProvider>>) -> Result<()> {
    let mut found = Versioned(Vec::new());
    let _ = statement.visit(&mut found);
    for (number, (name, version)) in found.0.into_iter().enumerate() {
        let (schema, table) =
            table_reference(&name).ok_or_else(|| Error::NotSupported(format!("{name} as of a version is not supported")))?;
        named.insert(internal_name(number), Arc::new(table_at(session, &schema, &table, &version).await?));
    }
    Ok(())
}

/// A table as of a version or time.
///
/// # Errors
/// As [`open`].
pub async fn table_at(session: &Session, schema: &str, name: &str, version: &TableVersion) -> Result<Table> {
    let table = session.database().shared.catalog.table(schema, name).await?;
    at(session, &table, version).await
}

/// Whether a query reads a table as of a version, a tag or a time: a tag may move.
pub fn are_read(query: &Query) -> bool {
    let mut found = Versioned(Vec::new());
    let _ = query.clone().visit(&mut found);
    !found.0.is_empty()
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
