//! EXPLAIN: the plan as one column `QUERY PLAN`, a line a row, or one value of JSON. Plain EXPLAIN runs no model and writes nothing;
//! EXPLAIN ANALYZE of a statement that writes runs it, as in PostgreSQL.

use std::sync::Arc;

use arrow::array::{RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::StreamExt;
use rolloutdb_sql::{Explain, Statement, Target};
use rolloutdb_udfs::TextType;
use serde_json::{Value, json};

use super::{arrow, change, drain, insert, not_supported, query, rows, table_name};
use crate::engine::background_planning::both_plans;
use crate::engine::nearest_neighbours::unused_indexes;
use crate::engine::planning::{KeptRun, Planned, Run, plan_query};
use crate::engine::session::{Description, Response, Session};
use crate::error::{Error, Result};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Text,
    Json,
}

/// What a statement does with the rows that its query finds: `Update` on the table.
struct Write {
    operation: &'static str,
    table: String,
    /// Of those written, if it has run.
    num_rows: Option<usize>,
}

/// A plan to show.
struct Explained {
    write: Option<Write>,
    optimized: LogicalPlan,
    plan: Arc<dyn ExecutionPlan>,
}

fn schema(format: Format) -> SchemaRef {
    const NAME: &str = "QUERY PLAN";
    Arc::new(Schema::new(vec![match format {
        Format::Text => Field::new(NAME, DataType::Utf8, false),
        Format::Json => TextType::Json.field(NAME, false),
    }]))
}

/// The parameters are those of the statement that is explained.
pub async fn describe(session: &Session, explain: &Explain) -> Result<Description> {
    let described = match explain.statement.as_ref() {
        Statement::Query(query) => Some(query::describe(session, query).await?),
        Statement::Insert(insert) => Some(Box::pin(insert::describe(session, insert)).await?),
        Statement::Update(update) => Some(Box::pin(change::update::describe(session, update)).await?),
        Statement::Delete(delete) => Some(Box::pin(change::delete::describe(session, delete)).await?),
        Statement::Merge(merge) => Some(Box::pin(change::merge::describe(session, merge)).await?),
        _ => None,
    };
    Ok(Description { columns: schema(format(explain)?), parameters: described.map_or_else(Vec::new, |described| described.parameters) })
}

pub async fn execute(session: &Session, explain: &Explain, parameters: &[ScalarValue]) -> Result<Response> {
    let format = format(explain)?;
    let Explained { write, optimized, plan } = match explain.analyze && operation_and_target(&explain.statement).is_some() {
        true => Box::pin(run_write(session, &explain.statement, parameters)).await?,
        false => Box::pin(planned(session, explain, parameters)).await?,
    };
    let notes = unused_indexes(&optimized).await?;
    let lines = match format {
        Format::Json => vec![json_text(plan.as_ref(), write, explain.analyze, notes)?],
        Format::Text => {
            let mut text = if explain.verbose { format!("{}\n\n", optimized.display_indent()) } else { String::new() };
            text += &displayable(plan.as_ref(), explain.analyze).indent(explain.verbose).to_string();
            text += &notes.join("\n");
            text_lines(&text, write)
        }
    };
    let batch = RecordBatch::try_new(schema(format), vec![Arc::new(StringArray::from(lines))]);
    Ok(rows("EXPLAIN", batch.map_err(arrow)?))
}

fn format(explain: &Explain) -> Result<Format> {
    match explain.format.as_deref() {
        None | Some("text") => Ok(Format::Text),
        Some("json") => Ok(Format::Json),
        Some(other) => Err(not_supported(&format!("EXPLAIN (FORMAT {other})"), "text and json are")),
    }
}

fn operation_and_target(statement: &Statement) -> Option<(&'static str, &Target)> {
    match statement {
        Statement::Insert(insert) => Some(("Insert", &insert.target)),
        Statement::Update(update) => Some(("Update", &update.target)),
        Statement::Delete(delete) => Some(("Delete", &delete.target)),
        Statement::Merge(merge) => Some(("Merge", &merge.target)),
        _ => None,
    }
}

/// Runs a statement that writes. The rows of its RETURNING are counted and dropped.
async fn run_write(session: &Session, statement: &Statement, parameters: &[ScalarValue]) -> Result<Explained> {
    let kept = KeptRun::default();
    let response = match statement {
        Statement::Insert(insert) => insert::execute(session, insert, parameters, Some(&kept)).await?,
        Statement::Update(update) => change::update::execute(session, update, parameters, Some(&kept)).await?,
        Statement::Delete(delete) => change::delete::execute(session, delete, parameters, Some(&kept)).await?,
        Statement::Merge(merge) => change::merge::execute(session, merge, parameters, Some(&kept)).await?,
        other => return Err(Error::Internal(format!("{} writes no rows", other.tag()))),
    };
    let num_rows = Some(num_rows(response).await?);
    let write = match operation_and_target(statement) {
        Some((operation, target)) => Some(Write { operation, table: table_name(&target.table)?.1, num_rows }),
        None => None,
    };
    let Run { optimized, plan } = kept.into_run().ok_or_else(|| Error::Internal("a statement has written without a plan".to_owned()))?;
    Ok(Explained { write, optimized, plan })
}

/// Of the rows that a statement has written.
async fn num_rows(response: Response) -> Result<usize> {
    match response {
        Response::Done { tag } => Ok(tag.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0)),
        Response::Rows { mut stream, .. } => {
            let mut count = 0;
            while let Some(batch) = stream.next().await {
                count += batch?.num_rows();
            }
            Ok(count)
        }
        Response::CopyIn(_) | Response::CopyOut(_) => Err(Error::Internal("COPY has no plan".to_owned())),
    }
}

/// The plan of a statement, which has run if it is a query to be analyzed.
async fn planned(session: &Session, explain: &Explain, parameters: &[ScalarValue]) -> Result<Explained> {
    let (write, planned) = plan(session, explain, parameters).await?;
    let (optimized, plan) = both_plans(&planned.state, &planned.plan).await?;
    if explain.analyze {
        drain(execute_stream(Arc::clone(&plan), planned.state.task_ctx())?).await?;
    }
    Ok(Explained { write, optimized, plan })
}

/// The query of a statement; of one that writes, the query that finds the rows, over the newest version of the table.
async fn plan(session: &Session, explain: &Explain, parameters: &[ScalarValue]) -> Result<(Option<Write>, Planned)> {
    let (operation, (table, planned)) = match explain.statement.as_ref() {
        Statement::Query(query) => return Ok((None, plan_query(session, query, parameters).await?)),
        Statement::Insert(insert) => ("Insert", insert::explained(session, insert, parameters).await?),
        Statement::Update(update) => ("Update", change::update::explained(session, update, parameters).await?),
        Statement::Delete(delete) => ("Delete", change::delete::explained(session, delete, parameters).await?),
        Statement::Merge(merge) => ("Merge", change::merge::explained(session, merge, parameters).await?),
        other => return Err(not_supported(&format!("EXPLAIN {}", other.tag()), "EXPLAIN of a SELECT, INSERT, UPDATE, DELETE or MERGE is")),
    };
    Ok((Some(Write { operation, table: table.name().to_owned(), num_rows: None }), planned))
}

fn displayable(plan: &dyn ExecutionPlan, analyze: bool) -> DisplayableExecutionPlan<'_> {
    if analyze { DisplayableExecutionPlan::with_metrics(plan) } else { DisplayableExecutionPlan::new(plan) }
}

/// The plan of a write stands below a line that names it.
fn text_lines(text: &str, write: Option<Write>) -> Vec<String> {
    let lines = text.trim_end().lines();
    match write {
        None => lines.map(str::to_owned).collect(),
        Some(Write { operation, table, num_rows }) => {
            let counted = num_rows.map_or_else(String::new, |num_rows| format!(" (actual rows={num_rows})"));
            std::iter::once(format!("{operation} on {table}{counted}")).chain(lines.map(|line| format!("  {line}"))).collect()
        }
    }
}

/// In PostgreSQL's form: an array of one object, whose `Plan` has its inputs as `Plans`.
fn json_text(plan: &dyn ExecutionPlan, write: Option<Write>, analyze: bool, notes: Vec<String>) -> Result<String> {
    let mut plan = json_node(plan, analyze);
    if let Some(Write { operation, table, num_rows }) = write {
        plan = json!({ "Node Type": "ModifyTable", "Operation": operation, "Relation Name": table, "Plans": [plan] });
        if let Some(num_rows) = num_rows {
            plan["Actual Rows"] = json!(num_rows);
        }
    }
    let mut explained = json!({ "Plan": plan });
    if !notes.is_empty() {
        explained["Notes"] = json!(notes);
    }
    let text = serde_json::to_string_pretty(&json!([explained]));
    text.map_err(|error| Error::Internal(format!("a plan is no JSON: {error}")))
}

fn json_node(plan: &dyn ExecutionPlan, analyze: bool) -> Value {
    let details = displayable(plan, analyze).one_line().to_string();
    let mut node = json!({ "Node Type": plan.name(), "Details": details.trim() });
    let inputs: Vec<Value> = plan.children().into_iter().map(|input| json_node(input.as_ref(), analyze)).collect();
    if !inputs.is_empty() {
        node["Plans"] = Value::Array(inputs);
    }
    node
}
