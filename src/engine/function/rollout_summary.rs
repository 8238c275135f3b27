//! `rollout_summary(table [, protocol])`: what a run of GENERATE ROLLOUTS found and what it cost, a row for each run in the table.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::error::DataFusionError;
use datafusion::prelude::SessionContext;
use rolloutdb_catalogs::{Table, system};

use super::formats::formats;
use crate::agent::protocol::protocol;
use crate::engine::apply::arguments::{Arguments, Parameter};
use crate::engine::apply::planner::{Bound, TableFunction};
use crate::engine::apply::{Applied, ApplyFunction};
use crate::engine::statement::{protocol_of, simulations_of};
use crate::error::{Error, Result};

const NAME: &str = "rollout_summary";

const COLUMNS: [&str; 14] = [
    "run",
    "question_id",
    "parent_id",
    "depth",
    "state",
    "response",
    "answer",
    "visit_count",
    "outcome_reward",
    "is_terminal",
    "prompt_tokens",
    "cached_tokens",
    "generated_tokens",
    "latency_ms",
];

/// What a row tells. `simulations`: of the roots. `trajectories`: nodes that end one, of which there is one for equal ones.
/// `well_formed_rate`: of steps, by the rule of the protocol, NULL where that is not known; `answered_rate`: of trajectories; `solved_rate`: of
/// questions, those with a trajectory whose answer is right.
/// `cost`: of what has a price, NULL where nothing has, and where a server did not say what a step took. `exhausted`: trees with nothing left to search before they had the simulations that were asked
/// for; NULL where that is not known.
const FIELDS: [(&str, DataType); 19] = [
    ("run", DataType::Utf8),
    ("questions", DataType::Int64),
    ("nodes", DataType::Int64),
    ("simulations", DataType::Int64),
    ("trajectories", DataType::Int64),
    ("well_formed_rate", DataType::Float64),
    ("answered_rate", DataType::Float64),
    ("solved_rate", DataType::Float64),
    ("mean_depth", DataType::Float64),
    ("max_depth", DataType::Int32),
    ("mean_reward", DataType::Float64),
    ("mean_best_reward", DataType::Float64),
    ("prompt_tokens", DataType::Int64),
    ("cached_tokens", DataType::Int64),
    ("generated_tokens", DataType::Int64),
    ("cache_hit_rate", DataType::Float64),
    ("latency_ms", DataType::Float64),
    ("cost", DataType::Float64),
    ("exhausted", DataType::Int64),
];

/// A column that tables of earlier versions do not have.
const COST: &str = "cost";

/// One column for each of [`FIELDS`], in their order.
fn query(protocol: Option<&str>, simulations: Option<u64>, has_cost: bool) -> String {
    let is_well_formed = match protocol {
        // The name of a known protocol has no quote in it.
        Some(name) => format!("CASE WHEN steps_well_formed('{name}', state, response) THEN 1.0 ELSE 0.0 END"),
        None => "CAST(NULL AS double)".to_owned(),
    };
    // A step whose server counted no tokens has a price that nobody knows, and so has the run.
    let cost = match has_cost {
        true => format!("CASE WHEN bool_or({COST} IS NULL AND parent_id IS NOT NULL AND prompt_tokens = 0) THEN NULL ELSE sum({COST}) END"),
        false => "CAST(NULL AS double)".to_owned(),
    };
    let exhausted = match simulations {
        Some(asked) => format!("count(*) FILTER (WHERE simulations < {asked})"),
        None => "CAST(NULL AS bigint)".to_owned(),
    };
    QUERY.replace("{exhausted}", &exhausted).replace("{is_well_formed}", &is_well_formed).replace("{cost}", &cost)
}

const QUERY: &str = "
    WITH questions AS (
        SELECT run, question_id, max(CASE WHEN parent_id IS NULL THEN visit_count END) AS simulations, max(outcome_reward) AS best
        FROM nodes GROUP BY run, question_id
    ), by_question AS (
        SELECT run, count(*) AS questions, sum(simulations) AS simulations, {exhausted} AS exhausted, avg(coalesce(best, 0.0)) AS mean_best_reward,
            avg(CASE WHEN best >= 1.0 THEN 1.0 ELSE 0.0 END) AS solved_rate
        FROM questions GROUP BY run
    ), by_node AS (
        SELECT run, count(*) AS nodes,
            count(*) FILTER (WHERE is_terminal AND parent_id IS NOT NULL) AS trajectories,
            avg({is_well_formed}) FILTER (WHERE parent_id IS NOT NULL) AS well_formed_rate,
            avg(CASE WHEN answer IS NULL THEN 0.0 ELSE 1.0 END) FILTER (WHERE is_terminal AND parent_id IS NOT NULL) AS answered_rate,
            avg(depth) FILTER (WHERE is_terminal AND parent_id IS NOT NULL) AS mean_depth,
            max(depth) AS max_depth, avg(outcome_reward) AS mean_reward,
            sum(CAST(prompt_tokens AS bigint)) AS prompt_tokens, sum(CAST(cached_tokens AS bigint)) AS cached_tokens,
            sum(CAST(generated_tokens AS bigint)) AS generated_tokens, sum(latency_ms) AS latency_ms,
            {cost} AS cost
        FROM nodes GROUP BY run
    )
    SELECT n.run, q.questions, n.nodes, q.simulations, n.trajectories, n.well_formed_rate, n.answered_rate, q.solved_rate, n.mean_depth,
        n.max_depth, n.mean_reward, q.mean_best_reward, n.prompt_tokens, n.cached_tokens, n.generated_tokens,
        CAST(n.cached_tokens AS double) / nullif(n.prompt_tokens, 0) AS cache_hit_rate, n.latency_ms, n.cost, q.exhausted
    FROM by_node n JOIN by_question q ON n.run = q.run ORDER BY n.run";

pub fn function() -> Arc<dyn TableFunction> {
    Arc::new(RolloutSummary)
}

/// Refuses tables that have not these columns of a table of rollouts, with their types.
///
/// # Errors
/// [`Error::WrongType`] naming what is missing.
pub fn require_columns(function: &str, table: &Table, needed: &[&str]) -> Result<()> {
    let (found, nodes) = (&table.definition().schema, system::node_definition().schema);
    let type_in = |schema: &Schema, name: &str| schema.field_with_name(name).ok().map(|field| field.data_type().clone());
    let missing: Vec<&str> = needed.iter().copied().filter(|name| type_in(found, name) != type_in(&nodes, name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::WrongType {
        what: format!("table \"{}\" of {function}()", table.name()),
        found: format!("a table without the columns {}", missing.join(", ")),
        expected: "a table of rollouts, as GENERATE ROLLOUTS makes it".to_owned(),
    })
}

#[derive(Debug)]
struct RolloutSummary;

impl TableFunction for RolloutSummary {
    fn name(&self) -> &'static str {
        NAME
    }

    fn parameters(&self) -> &'static [Parameter] {
        const PARAMETERS: &[Parameter] = &[Parameter::table("nodes"), Parameter::constant("protocol", DataType::Utf8)];
        PARAMETERS
    }

    fn bind(&self, arguments: &Arguments) -> Result<Bound> {
        let table = Arc::clone(arguments.table("nodes")?);
        require_columns(NAME, &table, &COLUMNS)?;
        let protocol = match arguments.text("protocol") {
            Some(name) => Some(protocol(name)?.name()),
            None => protocol_of(&table).and_then(|name| protocol(&name).ok()).map(|protocol| protocol.name()),
        };
        let simulations = simulations_of(&table);
        Ok(Bound::Apply(Arc::new(SummaryCall { table, protocol, simulations })))
    }
}

#[derive(Debug)]
struct SummaryCall {
    table: Arc<Table>,
    /// Of the agent that took the steps; None if it is not known.
    protocol: Option<&'static str>,
    /// That each tree was to have; None if it is not known.
    simulations: Option<u64>,
}

#[async_trait]
impl ApplyFunction for SummaryCall {
    fn name(&self) -> &str {
        NAME
    }

    fn details(&self) -> String {
        self.table.name().to_owned()
    }

    fn schema(&self) -> SchemaRef {
        Arc::new(Schema::new(FIELDS.map(|(name, data_type)| Field::new(name, data_type, true)).to_vec()))
    }

    fn tables(&self) -> Option<Vec<Arc<Table>>> {
        Some(vec![Arc::clone(&self.table)])
    }

    /// The same rows for each input row of a LATERAL.
    async fn call(&self, _: Vec<ArrayRef>, num_rows: usize) -> Result<Applied> {
        let context = SessionContext::new();
        context.register_table("nodes", Arc::clone(&self.table) as _)?;
        rolloutdb_udfs::format_functions(&formats()).into_iter().for_each(|function| context.register_udf(function));
        let schema = self.schema();
        let mut rows = Vec::new();
        for batch in context
            .sql(&query(self.protocol, self.simulations, require_columns(NAME, &self.table, &[COST]).is_ok()))
            .await?
            .collect()
            .await?
        {
            let columns = batch.columns().iter().zip(schema.fields()).map(|(column, field)| cast(column, field.data_type()));
            let columns: Vec<ArrayRef> = columns.collect::<Result<_, _>>().map_err(DataFusionError::from)?;
            rows.push(RecordBatch::try_new(Arc::clone(&schema), columns).map_err(DataFusionError::from)?);
        }
        let once = concat_batches(&schema, &rows).map_err(DataFusionError::from)?;
        let batch = concat_batches(&schema, std::iter::repeat_n(&once, num_rows)).map_err(DataFusionError::from)?;
        let input_rows = (0..num_rows as u32).flat_map(|row| std::iter::repeat_n(row, once.num_rows()));
        Ok(Applied { batch, input_rows: UInt32Array::from_iter_values(input_rows) })
    }
}
