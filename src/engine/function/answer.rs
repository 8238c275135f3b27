//! `answer` and `answer_steps`: an agent on each row's question.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{Array, ArrayRef, AsArray, StringArray, UInt32Array};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, SchemaRef};
use async_trait::async_trait;
use datafusion::common::ScalarValue;
use datafusion::error::DataFusionError;
use futures::TryStreamExt;
use rolloutdb_catalogs::Catalog;
use tokio::sync::OnceCell;

use crate::agent::{self, Agent, AgentOptions, Trajectory};
use crate::engine::apply::arguments::{Arguments, Names, Parameter};
use crate::engine::apply::planner::{Bound, TableFunction};
use crate::engine::apply::{Applied, ApplyFunction, Asked, ModelUse};
use crate::engine::retrieval_cache::RetrievalCache;
use crate::engine::{AgentRegistry, binding};
use crate::error::{Error, Result};
use crate::models::Runtime;
use crate::value::Value;

/// Questions whose trajectories run at the same time; the model decodes their steps as one batch.
const CONCURRENCY: usize = 64;

/// Question, agent, and the agent's options that one call may change.
const PARAMETERS: &[Parameter] = &[
    Parameter::value("question", DataType::Utf8),
    Parameter::required_naming("agent", Names::Agent),
    Parameter::naming("policy", Names::Model),
    Parameter::naming("corpus", Names::Table),
    Parameter::constant("retriever", DataType::Utf8),
    Parameter::constant("k", DataType::Int64),
    Parameter::constant("prompts", DataType::Utf8),
    Parameter::constant("max_steps", DataType::Int64),
    Parameter::constant("max_tokens", DataType::Int64),
    Parameter::constant("temperature", DataType::Float64),
    Parameter::constant("top_p", DataType::Float64),
    Parameter::constant("seed", DataType::Int64),
    Parameter::constant("corpus_version", DataType::Utf8),
    Parameter::constant("protocol", DataType::Utf8),
    Parameter::constant("top_k", DataType::Int64),
    Parameter::constant("min_p", DataType::Float64),
    Parameter::constant("repetition_penalty", DataType::Float64),
];

pub fn functions(
    catalog: &Arc<Catalog>,
    models: &Arc<Runtime>,
    agents: &AgentRegistry,
    retrievals: &Arc<RetrievalCache>,
) -> Vec<Arc<dyn TableFunction>> {
    let function = |name, output| -> Arc<dyn TableFunction> {
        let (catalog, models, retrievals) = (Arc::clone(catalog), Arc::clone(models), Arc::clone(retrievals));
        Arc::new(AnswerFunction { name, output, catalog, models, agents: agents.clone(), retrievals })
    };
    vec![function("answer", Output::Answer), function("answer_steps", Output::Steps)]
}

#[derive(Debug, Clone, Copy)]
enum Output {
    Answer,
    Steps,
}

impl Output {
    fn schema(self) -> SchemaRef {
        match self {
            Self::Answer => agent::answer_schema(),
            Self::Steps => agent::answer_steps_schema(),
        }
    }
}

#[derive(Debug)]
struct AnswerFunction {
    name: &'static str,
    output: Output,
    catalog: Arc<Catalog>,
    models: Arc<Runtime>,
    agents: AgentRegistry,
    retrievals: Arc<RetrievalCache>,
}

impl TableFunction for AnswerFunction {
    fn name(&self) -> &'static str {
        self.name
    }

    fn parameters(&self) -> &'static [Parameter] {
        PARAMETERS
    }

    fn schema_of_any(&self) -> Option<SchemaRef> {
        Some(self.output.schema())
    }

    fn bind(&self, arguments: &Arguments) -> Result<Bound> {
        let agent = arguments.text("agent").unwrap_or_default().to_owned();
        let mut options = self.agents.get(&agent)?.options;
        let access = arguments.gate()?.access();
        access.require_agent(&agent, &options)?;
        // The agent's rights are for the version that it reads.
        if arguments.has("corpus_version") && !arguments.has("corpus") {
            access.require_named(Names::Table, &ScalarValue::from(options.corpus.as_str()))?;
        }
        // The version that the agent is held to is one of its own corpus.
        if arguments.has("corpus") {
            options.corpus_version = None;
        }
        for (name, value) in arguments.constants().filter(|(name, _)| *name != "agent") {
            options.set(name, &to_value(value)?)?;
        }
        Ok(Bound::Apply(Arc::new(AnswerCall {
            name: self.name,
            output: self.output,
            agent,
            options,
            catalog: Arc::clone(&self.catalog),
            models: Arc::clone(&self.models),
            retrievals: Arc::clone(&self.retrievals),
            num_answered: Arc::default(),
            bound: OnceCell::new(),
        })))
    }
}

fn to_value(value: &ScalarValue) -> Result<Value> {
    match value {
        ScalarValue::Utf8(Some(text)) => Ok(Value::Text(text.clone())),
        ScalarValue::Int64(Some(integer)) => Ok(Value::Int(*integer)),
        ScalarValue::Float64(Some(float)) => Ok(Value::Float(*float)),
        ScalarValue::Boolean(Some(boolean)) => Ok(Value::Bool(*boolean)),
        other => Err(Error::Internal(format!("unexpected constant {other}"))),
    }
}

struct AnswerCall {
    name: &'static str,
    output: Output,
    agent: String,
    options: AgentOptions,
    catalog: Arc<Catalog>,
    models: Arc<Runtime>,
    retrievals: Arc<RetrievalCache>,
    /// Questions that have their answer.
    num_answered: Arc<AtomicU64>,
    /// Opened by the first batch: the whole statement uses one version of the policy, the corpus and the prompts.
    bound: OnceCell<Agent>,
}

impl std::fmt::Debug for AnswerCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}({})", self.name, self.details())
    }
}

#[async_trait]
impl ApplyFunction for AnswerCall {
    fn name(&self) -> &str {
        self.name
    }

    fn details(&self) -> String {
        let AgentOptions { policy, corpus, corpus_version, k, max_steps, temperature, seed, .. } = &self.options;
        let version = corpus_version.as_ref().map(|version| format!("@{version}")).unwrap_or_default();
        format!(
            "agent={}, policy={policy}, corpus={corpus}{version}, k={k}, max_steps={max_steps}, temperature={temperature}, seed={seed}",
            self.agent
        )
    }

    fn schema(&self) -> SchemaRef {
        self.output.schema()
    }

    fn is_row_preserving(&self) -> bool {
        matches!(self.output, Output::Answer)
    }

    fn retrieves(&self) -> bool {
        true
    }

    fn agent(&self) -> Option<&str> {
        Some(&self.agent)
    }

    fn asked(&self) -> Option<Asked> {
        let bound = self.bound.get()?;
        let (policy, version) = bound.policy.reference();
        Some(Asked {
            agent: self.agent.clone(),
            options: self.options.clone(),
            policy: format!("{policy}@{version}"),
            corpus_version: bound.retriever.corpus_version(),
        })
    }

    fn model_use(&self) -> ModelUse {
        ModelUse::Often(Arc::clone(&self.num_answered))
    }

    async fn call(&self, arguments: Vec<ArrayRef>, _: usize) -> Result<Applied> {
        let bind = || binding::bind(&self.options, &self.catalog, &self.models, &self.retrievals);
        let agent = self.bound.get_or_try_init(bind).await?.clone();
        let questions = questions(arguments[0].as_string::<i32>());
        let answered = agent::answer_many(agent, futures::stream::iter(questions), CONCURRENCY).inspect_ok(|_| {
            self.num_answered.fetch_add(1, Ordering::Relaxed);
        });
        let trajectories: Vec<Trajectory> = answered.try_collect().await?;
        match self.output {
            Output::Answer => Ok(Applied::row_by_row(agent::answer_batch(&trajectories)?)),
            Output::Steps => steps(&trajectories),
        }
    }
}

/// (sampling key, question) of each row. The question is its own key, so that it gets the same answer in any table.
fn questions(texts: &StringArray) -> Vec<(String, Option<String>)> {
    (0..texts.len())
        .map(|row| {
            let text = texts.is_valid(row).then(|| texts.value(row).to_owned());
            (text.clone().unwrap_or_default(), text)
        })
        .collect()
}

fn steps(trajectories: &[Trajectory]) -> Result<Applied> {
    let batches = trajectories.iter().map(agent::answer_steps_batch).collect::<Result<Vec<_>>>()?;
    let rows = batches.iter().enumerate().flat_map(|(row, batch)| std::iter::repeat_n(row as u32, batch.num_rows()));
    let input_rows = UInt32Array::from_iter_values(rows);
    let batch = concat_batches(&agent::answer_steps_schema(), &batches).map_err(DataFusionError::from)?;
    Ok(Applied { batch, input_rows })
}
