//! GENERATE ROLLOUTS: one search tree per question, appended to a table of nodes.
//!
//! Trees are committed in groups of whole questions, every second; a cancelled statement commits what is finished. What models have answered for the
//! others is kept beside the table ([`journal`]). So the same statement goes on where it stopped, after a kill too: questions that the table holds are
//! not searched again, and trees that were in flight go on at the nodes that they had.

mod corpus;
mod journal;
mod nodes;
mod questions;
mod run_property;
mod target;
#[cfg(test)]
mod tests;
mod valuer;

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;
use rolloutdb_catalogs::Table;
use rolloutdb_sql::GenerateRollouts;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use tokio_util::task::TaskTracker;

use super::{arrow, rows, table_name};
use crate::agent::{Journal, Question, Search, SearchCounts, SearchOptions, SearchTree, ValueSource};
use crate::engine::progress::{Progress, Work};
use crate::engine::session::{Response, Session};
use crate::engine::{binding, options};
use crate::error::{Error, Result};
use crate::value::Value;
use corpus::RunOf;
use journal::RunJournal;
pub use questions::{golden_answers, texts};
pub use run_property::{protocol_of, run_property_of, simulations_of};
pub use target::RolloutTargets;
use target::Target;
pub use valuer::process_reward_model;

const STATEMENT: &str = "GENERATE ROLLOUTS";

/// Finished trees wait about so long for their commit.
const COMMIT_INTERVAL: Duration = Duration::from_secs(1);

/// What the statement gives: what was done, how long it took, and how much of that was spent in the trees themselves, where no model computes.
pub fn summary_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("table_name", DataType::Utf8, false),
        Field::new("questions", DataType::Int64, false),
        Field::new("skipped", DataType::Int64, false),
        Field::new("nodes", DataType::Int64, false),
        Field::new("failed", DataType::Int64, false),
        Field::new("seconds", DataType::Float64, false),
        Field::new("tree_seconds", DataType::Float64, false),
    ]))
}

pub async fn execute(session: &Session, generate: &GenerateRollouts, parameters: &[ScalarValue]) -> Result<Response> {
    let started = Instant::now();
    let given: Vec<_> = generate.options.iter().map(|(name, value)| Ok((name, options::value(name, value)?))).collect::<Result<_>>()?;
    let (own, given): (Vec<_>, Vec<_>) = given.into_iter().partition(|(name, _): &(&str, Value)| *name == corpus::CORPUS_CHANGED);
    let is_accepted = own.first().map(|(_, value)| corpus::is_accepted(value)).transpose()?.unwrap_or(false);
    let mut search_options = SearchOptions::of(given)?;
    let shared = &session.database().shared;
    let _job = shared.model_jobs.claim(STATEMENT)?;
    let options = shared.agents.get(&generate.agent)?.options;
    let (questions, read) = questions::questions(session, generate, parameters).await?;
    let (schema, name) = table_name(&generate.into)?;
    let run = shared.catalog.table(&schema, &name).await.ok();
    let held = Box::pin(corpus::held_to_its_version(session, run.as_ref(), &options, is_accepted)).await?;
    let agent = binding::bind(&held, &shared.catalog, &shared.models, &shared.retrievals).await?;
    let valuer = valuer::bind(session, &mut search_options).await?;
    let target = Target::claim(session, format!("{schema}.{name}")).await?;
    let table = nodes::node_table(session, &schema, &name).await?;
    nodes::check_method(&table, search_options.method)?;
    let property = run_property::run_property(&agent, &options, &search_options, &valuer);
    run_property::check_run(&table, &property).await?;
    let of = RunOf { name: &generate.agent, options: &held, search: &search_options, property: &property, questions: &read };
    Box::pin(corpus::note(session, &table, generate, &agent, of)).await?;
    let says_depth = generate.options.iter().any(|(name, _)| matches!(name, "max_depth" | "preset"));
    if says_depth && search_options.max_depth > options.max_steps {
        let (depth, steps) = (search_options.max_depth, options.max_steps);
        session.notices().notice(format!(
            "no trajectory has more than {steps} steps, the agent's max_steps, so that max_depth = {depth} is not reached"
        ));
    }
    let done = nodes::finished_questions(&table).await?;
    let num_questions = questions.len();
    let todo: Vec<Question> = questions.into_iter().filter(|question| !done.contains(&question.id)).collect();
    let mut summary = Summary { table: name.clone(), skipped: num_questions - todo.len(), ..Summary::default() };
    if summary.skipped > 0 {
        session.notices().notice(format!("{} of {num_questions} questions are in {name} already and are skipped", summary.skipped));
    }
    let journal = RunJournal::open(&table, &property, &todo, session.notices()).await;
    let (simulations, value) = (search_options.simulations as u64, search_options.value);
    let asked_through = journal.clone().map(|journal| Arc::new(journal) as Arc<dyn Journal>);
    let search = Search::new(agent, search_options, valuer).journaled(asked_through);
    let counters = search.counters();
    let work = Work::Rollout {
        table: (schema, name.clone()),
        agent: generate.agent.clone(),
        simulations_per_question: simulations,
        counters: Arc::clone(&counters),
    };
    let (before, total, what) = (summary.skipped as u64, num_questions as u64, format!("{STATEMENT} INTO {name}"));
    let progress = Progress::going_on(session.notices(), work, what, "questions", before, total);
    let trees = search.trees(futures::stream::iter(todo));
    let (target, tasks) = (Arc::new(target), shared.tasks.clone());
    let finished = FinishedTrees { table, batches: vec![], question_ids: vec![], target, journal: journal.clone(), tasks };
    let task = session.task();
    let calls = task.as_ref().map(|task| Arc::clone(task.calls())).unwrap_or_default();
    calls.scope(collect(session, finished, simulations, trees, &progress, &mut summary)).await?;
    if let Some(journal) = journal.filter(|_| summary.failed == 0) {
        journal.finish();
    }
    if let Some(task) = task {
        task.say_rows(summary.nodes);
    }
    let counts = counters.counts();
    summary.tree_seconds += counts.tree_nanoseconds as f64 / 1e9;
    warn_of_verdicts(session, value, counts);
    tell_exhausted(session, &summary, simulations);
    summary.seconds = started.elapsed().as_secs_f64();
    Ok(rows("GENERATE", summary.batch()?))
}

/// Values that are missing are no reason to fail, and are not passed over in silence.
fn warn_of_verdicts(session: &Session, value: ValueSource, SearchCounts { verdicts, unread_verdicts, .. }: SearchCounts) {
    if unread_verdicts == 0 {
        return;
    }
    let (what, advice) = match value {
        ValueSource::Prm => {
            ("steps are longer than the reward model can read", "lower max_tokens of the agent, or take a model that reads more")
        }
        _ => ("verdicts of the judge could not be read, twice each", "see judge_prompt, or take a larger judge"),
    };
    let message = format!("{unread_verdicts} of {verdicts} {what}; nodes without a value are taken for what their parents are; {advice}");
    session.notices().warning(message);
}

/// A tree with nothing left to search is no fault, but its budget was not what bounded it.
fn tell_exhausted(session: &Session, summary: &Summary, simulations: u64) {
    if summary.exhausted == 0 {
        return;
    }
    session.notices().notice(format!(
        "{} of {} trees were exhausted before their {simulations} simulations: every leaf of theirs ends a trajectory and was visited; more children, or a higher \
         temperature, leave more to search",
        summary.exhausted, summary.questions
    ));
}

#[derive(Default)]
struct Summary {
    table: String,
    questions: usize,
    skipped: usize,
    nodes: usize,
    failed: usize,
    /// Trees that had nothing left to search before their simulations were done.
    exhausted: usize,
    seconds: f64,
    /// Choosing leaves, adding nodes and values, and making rows of them.
    tree_seconds: f64,
}

impl Summary {
    fn show(&self, progress: &Progress) {
        progress.update((self.questions + self.failed) as u64, &format!("{} nodes", self.nodes));
    }

    fn batch(&self) -> Result<RecordBatch> {
        let count = |value: usize| Arc::new(Int64Array::from(vec![value as i64]));
        RecordBatch::try_new(
            summary_schema(),
            vec![
                Arc::new(StringArray::from(vec![self.table.as_str()])),
                count(self.questions),
                count(self.skipped),
                count(self.nodes),
                count(self.failed),
                Arc::new(Float64Array::from(vec![self.seconds])),
                Arc::new(Float64Array::from(vec![self.tree_seconds])),
            ],
        )
        .map_err(arrow)
    }
}

/// Commits trees while others are searched. A question that fails is reported and left out, to be tried again by the next run; the others go on.
async fn collect(
    session: &Session,
    mut finished: FinishedTrees,
    simulations: u64,
    trees: impl futures::Stream<Item = (Question, Result<SearchTree>)>,
    progress: &Progress,
    summary: &mut Summary,
) -> Result<()> {
    let mut trees = std::pin::pin!(trees);
    let mut commits = tokio::time::interval(COMMIT_INTERVAL);
    commits.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last_error = None;
    loop {
        let next = tokio::select! {
            next = trees.next() => next,
            _ = commits.tick() => {
                finished.commit().await?;
                summary.show(progress);
                continue;
            }
        };
        let Some((question, tree)) = next else { break };
        match tree {
            Ok(tree) => {
                let started = Instant::now();
                let run = summary.table.clone();
                let batch = tree.to_record_batch(&run)?;
                summary.tree_seconds += started.elapsed().as_secs_f64();
                summary.questions += 1;
                summary.exhausted += usize::from(tree.is_exhausted() && tree.visit_count[0] < simulations);
                summary.nodes += batch.num_rows();
                finished.batches.push(nodes::for_table(&finished.table, &batch)?);
                finished.question_ids.push(question.id);
            }
            Err(error @ Error::Cancelled(_)) => return Err(error),
            Err(error) => {
                summary.failed += 1;
                session.notices().warning(format!("question {}: {error}", question.id));
                last_error = Some(error);
            }
        }
        summary.show(progress);
    }
    finished.commit().await?;
    match last_error {
        // Nothing worked: the statement failed, whatever the reason was.
        Some(error) if summary.questions == 0 => Err(error),
        _ => Ok(()),
    }
}

/// Trees that wait for their commit. Dropped with the statement, by an error or a cancel, they are committed all the same.
struct FinishedTrees {
    table: Arc<Table>,
    batches: Vec<RecordBatch>,
    /// Of `batches`.
    question_ids: Vec<String>,
    /// Held until the last commit is done.
    target: Arc<Target>,
    journal: Option<RunJournal>,
    tasks: TaskTracker,
}

impl FinishedTrees {
    async fn commit(&mut self) -> Result<()> {
        match self.start_commit() {
            Some(commit) => commit.await.map_err(|error| Error::Internal(error.to_string()))?,
            None => Ok(()),
        }
    }

    /// A task of its own, so that a cancelled statement does not cancel it.
    fn start_commit(&mut self) -> Option<JoinHandle<Result<()>>> {
        let batches = std::mem::take(&mut self.batches);
        let schema = batches.first()?.schema();
        let question_ids = std::mem::take(&mut self.question_ids);
        let (table, target, journal) = (Arc::clone(&self.table), Arc::clone(&self.target), self.journal.clone());
        Some(self.tasks.spawn(async move {
            let stream = RecordBatchStreamAdapter::new(schema, futures::stream::iter(batches.into_iter().map(Ok)));
            table.append(Box::pin(stream)).await?;
            if let Some(journal) = journal {
                journal.forget(&question_ids);
            }
            drop(target);
            Ok(())
        }))
    }
}

impl Drop for FinishedTrees {
    fn drop(&mut self) {
        self.target.end();
        // Outside a runtime there is nothing left that could write.
        if tokio::runtime::Handle::try_current().is_ok() {
            self.start_commit();
        }
    }
}
