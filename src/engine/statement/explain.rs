//! EXPLAIN: the plan as one column `QUERY PLAN`, a line a row. Plain EXPLAIN runs no model.

use std::sync::Arc;

use arrow::array::{RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::execute_stream;
use rolloutdb_sql::{Explain, Statement};

use super::{arrow, drain, rows};
use crate::engine::nearest_neighbours::unused_indexes;
use crate::engine::planning::plan_query;
use crate::engine::session::{Description, Response, Session};
use crate::error::{Error, Result};

pub fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("QUERY PLAN", DataType::Utf8, false)]))
}

/// The parameters are those of the statement that is explained.
pub async fn describe(session: &Session, explain: &Explain) -> Result<Description> {
    let parameters = match explain.statement.as_ref() {
        Statement::Query(query) => super::query::describe(session, query).await?.parameters,
        _ => vec![],
    };
    Ok(Description { columns: schema(), parameters })
}

pub async fn execute(session: &Session, explain: &Explain, parameters: &[ScalarValue]) -> Result<Response> {
    if let Some(format) = explain.format.as_deref().filter(|format| *format != "text") {
        return Err(Error::NotSupported(format!("EXPLAIN (FORMAT {format}) is not supported yet; text is")));
    }
    let Statement::Query(query) = explain.statement.as_ref() else {
        return Err(Error::NotSupported(format!("EXPLAIN {} is not supported yet; EXPLAIN SELECT is", explain.statement.tag())));
    };
    let planned = plan_query(session, query, parameters).await?;
    let mut text = String::new();
    let optimized = planned.state.optimize(&planned.plan)?;
    if explain.verbose {
        text += &format!("{}\n\n", optimized.display_indent());
    }
    let plan = planned.state.create_physical_plan(&planned.plan).await?;
    if explain.analyze {
        drain(execute_stream(Arc::clone(&plan), planned.state.task_ctx())?).await?;
        text += &DisplayableExecutionPlan::with_metrics(plan.as_ref()).indent(explain.verbose).to_string();
    } else {
        text += &DisplayableExecutionPlan::new(plan.as_ref()).indent(explain.verbose).to_string();
    }
    text += &unused_indexes(&optimized).await?.join("\n");
    let lines = StringArray::from(text.trim_end().lines().collect::<Vec<_>>());
    Ok(rows("EXPLAIN", RecordBatch::try_new(schema(), vec![Arc::new(lines)]).map_err(arrow)?))
}
