//! Rows on their way into `rollout.prompts`: one that no agent and no judge could use ends the statement before anything is written.

use arrow::array::{Array, AsArray, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::TryStreamExt;
use rolloutdb_catalogs::system::SYSTEM_SCHEMA;
use rolloutdb_catalogs::{IS_REMOVED, Table};

use crate::agent::PromptRow;

const TABLE: &str = "prompts";

/// The rows that are to be written to a table, checked if it is that of prompts. Before the table's columns stand `num_leading` others.
pub fn checked(table: &Table, rows: SendableRecordBatchStream, num_leading: usize) -> SendableRecordBatchStream {
    if table.schema_name() != SYSTEM_SCHEMA || table.name() != TABLE {
        return rows;
    }
    let (schema, columns) = (rows.schema(), SchemaRef::clone(&table.definition().schema));
    let checked = rows.and_then(move |batch| std::future::ready(check(&batch, &columns, num_leading).map(|()| batch)));
    Box::pin(RecordBatchStreamAdapter::new(schema, checked))
}

fn check(batch: &RecordBatch, columns: &SchemaRef, num_leading: usize) -> DataFusionResult<()> {
    let column = |name: &str| -> DataFusionResult<StringArray> {
        let column = batch.column(num_leading + columns.index_of(name)?);
        Ok(cast(column, &DataType::Utf8)?.as_string::<i32>().clone())
    };
    let [sets, protocols, states, templates] = [column("prompt_set")?, column("protocol")?, column("state")?, column("template")?];
    let removed = batch.column_by_name(IS_REMOVED).filter(|_| num_leading > 0).and_then(|column| column.as_boolean_opt());
    let is_removed = |row: usize| removed.is_some_and(|removed| removed.is_valid(row) && removed.value(row));
    for row in (0..batch.num_rows()).filter(|row| !is_removed(*row)) {
        let text = |column: &StringArray| column.is_valid(row).then(|| column.value(row).to_owned());
        let texts = (text(&sets), text(&protocols), text(&states), text(&templates));
        // A value that is missing is the table's business.
        if let (Some(prompt_set), Some(protocol), Some(state), Some(template)) = texts {
            PromptRow { prompt_set, protocol, state, template }.check()?;
        }
    }
    Ok(())
}
