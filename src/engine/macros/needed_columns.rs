//! What a macro reads of its table, and what the table lacks of it: who calls the function never wrote the names in its query.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Query, Visit, Visitor};
use rolloutdb_catalogs::system;

use crate::engine::session::{CATALOG_NAME, Session};
use crate::error::{Error, Result, Unresolved};

/// A call that was replaced by its query.
pub struct Expanded {
    function: &'static str,
    schema: String,
    table: String,
    /// Columns of tables of rollouts that the query names, in the order of those tables.
    needed: Vec<String>,
}

impl Expanded {
    pub fn new(function: &'static str, (schema, table): (String, String), query: &Query) -> Self {
        let mut named = Named(BTreeSet::new());
        let _ = query.visit(&mut named);
        let columns = system::node_definition().schema;
        let needed = columns.fields().iter().map(|field| field.name().clone()).filter(|name| named.0.contains(name)).collect();
        Self { function, schema, table, needed }
    }
}

struct Named(BTreeSet<String>);

impl Visitor for Named {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Identifier(name) => {
                self.0.insert(name.value.clone());
            }
            Expr::CompoundIdentifier(parts) => self.0.extend(parts.last().map(|name| name.value.clone())),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// The error of a statement that could not be planned, or what one of its macros misses in its table.
pub async fn explained(session: &Session, error: Error, expanded: &[Expanded]) -> Error {
    for call in expanded {
        match missing(session, call).await {
            Ok(None) => {}
            Ok(Some(missing)) => return missing,
            // It says what the table itself says.
            Err(_) => return error,
        }
    }
    error
}

async fn missing(session: &Session, call: &Expanded) -> Result<Option<Error>> {
    let schema = session.context().catalog(CATALOG_NAME).and_then(|catalog| catalog.schema(&call.schema));
    let Some(schema) = schema else { return Ok(None) };
    let Some(table) = schema.table(&call.table).await? else { return Ok(None) };
    let found = table.schema();
    let missing: Vec<&str> = call.needed.iter().map(String::as_str).filter(|name| found.field_with_name(name).is_err()).collect();
    if missing.is_empty() {
        return Ok(None);
    }
    let quoted = missing.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
    let (function, table, needed) = (call.function, &call.table, call.needed.join(", "));
    let columns = if missing.len() == 1 { "column" } else { "columns" };
    let message = format!(
        "{function}() needs the {columns} {quoted}, which table \"{table}\" does not have; it reads a table of rollouts, as GENERATE ROLLOUTS makes it: {needed}"
    );
    Ok(Some(Error::Unresolved { kind: Unresolved::Column, message }))
}
