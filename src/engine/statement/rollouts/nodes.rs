//! The table of nodes that GENERATE ROLLOUTS writes to.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Schema;
use datafusion::prelude::{SessionContext, col};
use rolloutdb_catalogs::{Table, system};
use rolloutdb_sql::Privilege;

use crate::agent::Method;
use crate::engine::privileges::Object;
use crate::engine::session::Session;
use crate::engine::statement::arrow;
use crate::error::{Error, Result};

/// Columns that nodes had from the start; those behind them came later, and tables of earlier versions go on without them.
const FIRST_COLUMNS: usize = 30;

/// The table of nodes, made if it does not exist.
///
/// # Errors
/// [`Error::WrongType`] if there is a table of that name with other columns.
pub async fn node_table(session: &Session, schema: &str, name: &str) -> Result<Arc<Table>> {
    let catalog = &session.database().shared.catalog;
    let nodes = system::node_definition();
    if !catalog.tables(schema)?.contains(&name.to_owned()) {
        let object = Object::table(schema, name);
        let _name = crate::engine::statement::name::to_make(session, &object).await;
        if !session.database().shared.knows(&object) {
            let table = catalog.create_table(schema, name, nodes, false).await?;
            session.own(object)?;
            return Ok(table);
        }
        // Another session was faster: it is as if the table had been there.
        session.access().require_table(schema, name, &[Privilege::Insert, Privilege::Select])?;
    }
    let table = catalog.table(schema, name).await?;
    let names = |schema: &Schema| schema.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>();
    let (found, known) = (names(&table.definition().schema), names(&nodes.schema));
    let mut later = known[FIRST_COLUMNS..].iter();
    // Those that came later may be missing, whichever they are.
    let are_later = |found: &[String]| found.iter().all(|name| later.any(|known| known == name));
    if !found.starts_with(&known[..FIRST_COLUMNS]) || !found.get(FIRST_COLUMNS..).is_some_and(are_later) {
        return Err(Error::WrongType {
            what: format!("table {name}"),
            found: "a table of other columns".to_owned(),
            expected: "a table of rollout nodes, or a new name".to_owned(),
        });
    }
    Ok(table)
}

/// Checks that the table has room for what the method finds out: a mark that has no column would be lost.
///
/// # Errors
/// [`Error::NotReady`] for the best of n in a table that an earlier version made.
pub fn check_method(table: &Table, method: Method) -> Result<()> {
    if method != Method::BestOfN || table.definition().schema.column_with_name("is_best").is_some() {
        return Ok(());
    }
    Err(Error::NotReady(format!(
        "the table {} was made by an earlier version and has no column is_best, in which method = 'best_of_n' marks nodes; use a new table, \
         or go on with method = 'sample', which 'best_of_n' was another name for",
        table.name()
    )))
}

/// The nodes of a tree with the columns of the table.
///
/// # Errors
/// None that can be caused: the table was opened by [`node_table`].
pub fn for_table(table: &Table, nodes: &RecordBatch) -> Result<RecordBatch> {
    let schema = nodes.schema();
    let columns = table.definition().schema.fields().iter().map(|field| schema.index_of(field.name()));
    nodes.project(&columns.collect::<Result<Vec<_>, _>>().map_err(arrow)?).map_err(arrow)
}

pub async fn finished_questions(table: &Arc<Table>) -> Result<HashSet<String>> {
    let context = SessionContext::new();
    let frame = context.read_table(Arc::clone(table) as _)?.filter(col("node_id").eq(datafusion::prelude::lit(0_i64)))?;
    let batches = frame.select_columns(&["question_id"])?.collect().await?;
    Ok(batches
        .iter()
        .flat_map(|batch| batch.column(0).as_string::<i32>().iter().flatten().map(str::to_owned).collect::<Vec<_>>())
        .collect())
}

#[cfg(test)]
mod tests {
    use rolloutdb_catalogs::system;

    use super::FIRST_COLUMNS;

    /// The agent makes the rows and the catalog describes the columns; neither knows the other.
    #[test]
    fn the_nodes_of_the_agent_fit_the_table_of_the_catalog() {
        let (table, rows) = (system::node_definition().schema, crate::agent::node_schema());
        let columns = |schema: &arrow::datatypes::Schema| -> Vec<_> {
            schema.fields().iter().map(|field| (field.name().clone(), field.data_type().clone())).collect()
        };
        assert_eq!(columns(&table), columns(&rows));
        let later: Vec<&String> = table.fields()[FIRST_COLUMNS..].iter().map(|field| field.name()).collect();
        assert_eq!(later, ["cost", "is_best", "prompt_ids", "token_mask"]);
    }
}
