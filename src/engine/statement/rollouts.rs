//! GENERATE ROLLOUTS: one search tree per question, appended to a table of nodes.
//!
//! Trees are committed in groups of whole questions, every second. A cancelled statement commits what is finished; a kill loses the trees in
//! flight and those of the last second. The same statement goes on where it stopped: questions that the table holds are not searched again.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use arrow::array::{Array, AsArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::prelude::{SessionContext, col};
use futures::{StreamExt, TryStreamExt};
use rolloutdb_catalogs::{Table, system};
use rolloutdb_sql::{GenerateRollouts, Privilege};
use serde_json::{Value as Json, json};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use tokio_util::task::TaskTracker;

use super::{arrow, rows, table_name};
use crate::agent::{Agent, AgentOptions, Question, SearchOptions, SearchTree, search_many};
use crate::engine::planning::{plan_query, require_columns};
use crate::engine::privileges::Object;
use crate::engine::progress::{Progress, Work};
use crate::engine::session::{Response, Session};
use crate::engine::{binding, options};
use crate::error::{Error, Result};

const STATEMENT: &str = "GENERATE ROLLOUTS";

/// Finished trees wait about so long for their commit.
const COMMIT_INTERVAL: Duration = Duration::from_secs(1);

/// The table's property that says how its trees were made.
const RUN_PROPERTY: &str = "run";

/// What the statement gives: counts, and the mean outcome of the trees' best answers.
pub fn summary_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("table_name", DataType::Utf8, false),
        Field::new("questions", DataType::Int64, false),
        Field::new("skipped", DataType::Int64, false),
        Field::new("nodes", DataType::Int64, false),
        Field::new("failed", DataType::Int64, false),
        Field::new("seconds", DataType::Float64, false),
    ]))
}

pub async fn execute(session: &Session, generate: &GenerateRollouts, parameters: &[ScalarValue]) -> Result<Response> {
    let started = Instant::now();
    let mut search = SearchOptions::default();
    for (name, value) in generate.options.iter() {
        search.set(name, &options::value(name, value)?)?;
    }
    let shared = &session.database().shared;
    let _job = shared.model_jobs.claim(STATEMENT)?;
    let options = shared.agents.get(&generate.agent)?.options;
    let questions = questions(session, generate, parameters).await?;
    let agent = binding::bind(&options, &shared.catalog, &shared.models).await?;
    let (schema, name) = table_name(&generate.into)?;
    let target = Target::claim(session, format!("{schema}.{name}"))?;
    let table = node_table(session, &schema, &name).await?;
    check_run(&table, &run_property(&agent, &options, &search)).await?;
    let done = finished_questions(&table).await?;
    let num_questions = questions.len();
    let todo: Vec<Question> = questions.into_iter().filter(|question| !done.contains(&question.id)).collect();
    let mut summary = Summary { table: name.clone(), skipped: num_questions - todo.len(), ..Summary::default() };
    if summary.skipped > 0 {
        session.notices().notice(format!("{} of {num_questions} questions are in {name} already and are skipped", summary.skipped));
    }
    let work = Work::Rollout { table: (schema, name.clone()), agent: generate.agent.clone() };
    let progress = Progress::of(session.notices(), work, format!("{STATEMENT} INTO {name}"), "questions", Some(todo.len() as u64));
    let trees = search_many(agent, futures::stream::iter(todo), search);
    let finished = FinishedTrees { table, batches: vec![], target: Arc::new(target), tasks: shared.tasks.clone() };
    collect(session, finished, &name, trees, &progress, &mut summary).await?;
    summary.seconds = started.elapsed().as_secs_f64();
    Ok(rows("GENERATE", summary.batch()?))
}

/// The table that a statement writes to; no other GENERATE ROLLOUTS does at the same time, which would search the same questions.
struct Target {
    name: String,
    session: Session,
}

impl Target {
    /// # Errors
    /// [`Error::InUse`] if another statement has it.
    fn claim(session: &Session, name: String) -> Result<Self> {
        let targets = &session.database().shared.rollout_targets;
        if !targets.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone()) {
            return Err(Error::InUse(format!("another {STATEMENT} is writing to {name}; wait for it, or use another table")));
        }
        Ok(Self { name, session: session.clone() })
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.session.database().shared.rollout_targets.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.name);
    }
}

/// Everything that shapes a tree, as JSON: the policy's version, the agent's options, the search's. Concurrency does not.
fn run_property(agent: &Agent, options: &AgentOptions, search: &SearchOptions) -> Json {
    let (policy, version) = agent.policy.reference();
    // A tag may move.
    let corpus_version = options.corpus_version.as_ref().map(|_| agent.retriever.corpus_version().to_string());
    let agent = AgentOptions { policy: format!("{policy}@{version}"), corpus_version, ..options.clone() };
    let search = SearchOptions { concurrency: 0, ..search.clone() };
    json!({ "agent": agent, "search": search })
}

/// A table holds trees made in one way: the options are kept with it by the first statement and compared by the next ones.
///
/// # Errors
/// [`Error::NotReady`] naming what differs.
async fn check_run(table: &Table, wanted: &Json) -> Result<()> {
    let Some(found) = table.property(RUN_PROPERTY).and_then(|text| serde_json::from_str::<Json>(text).ok()) else {
        return Ok(table.set_property(RUN_PROPERTY, &wanted.to_string()).await?);
    };
    let mut differences = Vec::new();
    for part in ["agent", "search"] {
        for (name, now) in wanted[part].as_object().into_iter().flatten() {
            if &found[part][name] != now {
                differences.push(format!("{name} = {} (now {now})", found[part][name]));
            }
        }
    }
    if differences.is_empty() {
        return Ok(());
    }
    Err(Error::NotReady(format!(
        "the rollouts in {} were made with {}; use another table, or the same options to go on",
        table.name(),
        differences.join(", ")
    )))
}

#[derive(Default)]
struct Summary {
    table: String,
    questions: usize,
    skipped: usize,
    nodes: usize,
    failed: usize,
    seconds: f64,
}

impl Summary {
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
            ],
        )
        .map_err(arrow)
    }
}

/// Commits trees while others are searched. A question that fails is reported and left out, to be tried again by the next run; the others go on.
async fn collect(
    session: &Session,
    mut finished: FinishedTrees,
    run: &str,
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
                continue;
            }
        };
        let Some((question, tree)) = next else { break };
        match tree {
            Ok(tree) => {
                let batch = tree.to_record_batch(run)?;
                summary.questions += 1;
                summary.nodes += batch.num_rows();
                finished.batches.push(batch);
            }
            Err(error @ Error::Cancelled(_)) => return Err(error),
            Err(error) => {
                summary.failed += 1;
                session.notices().warning(format!("question {}: {error}", question.id));
                last_error = Some(error);
            }
        }
        progress.update((summary.questions + summary.failed) as u64, &format!("{} nodes", summary.nodes));
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
    /// Held until the last commit is done.
    target: Arc<Target>,
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
        let (table, target) = (Arc::clone(&self.table), Arc::clone(&self.target));
        Some(self.tasks.spawn(async move {
            let stream = RecordBatchStreamAdapter::new(schema, futures::stream::iter(batches.into_iter().map(Ok)));
            table.append(Box::pin(stream)).await?;
            drop(target);
            Ok(())
        }))
    }
}

impl Drop for FinishedTrees {
    fn drop(&mut self) {
        // Outside a runtime there is nothing left that could write.
        if tokio::runtime::Handle::try_current().is_ok() {
            self.start_commit();
        }
    }
}

/// The rows of the query: `id`, `question`, `golden_answers` (text or text[]).
///
/// # Errors
/// [`Error::MissingColumn`]; [`Error::InvalidParameter`] for a NULL or repeated id.
async fn questions(session: &Session, generate: &GenerateRollouts, parameters: &[ScalarValue]) -> Result<Vec<Question>> {
    let planned = plan_query(session, &generate.query, parameters).await?;
    require_columns(STATEMENT, &planned.plan, &["id", "question", "golden_answers"])?;
    let batches: Vec<RecordBatch> = planned.stream().await?.try_collect().await?;
    let mut questions = Vec::new();
    let mut ids = HashSet::new();
    for batch in &batches {
        let ids_column = texts(batch, "id")?;
        let question_column = texts(batch, "question")?;
        let golds = golden_answers(batch)?;
        for (row, golden_answers) in golds.into_iter().enumerate() {
            let id =
                ids_column.is_valid(row).then(|| ids_column.value(row).to_owned()).ok_or_else(|| bad_id("NULL", "a value in each row"))?;
            if !ids.insert(id.clone()) {
                return Err(bad_id(&format!("'{id}' in two rows"), "another id for each question"));
            }
            let question = question_column.is_valid(row).then(|| question_column.value(row).to_owned());
            questions.push(Question { id, question, golden_answers });
        }
    }
    if questions.is_empty() {
        return Err(Error::NotReady("GENERATE ROLLOUTS needs at least one question; the query gives none".to_owned()));
    }
    Ok(questions)
}

fn bad_id(found: &str, expected: &str) -> Error {
    Error::InvalidParameter { name: "id of GENERATE ROLLOUTS".to_owned(), found: found.to_owned(), expected: expected.to_owned() }
}

fn texts(batch: &RecordBatch, name: &str) -> Result<StringArray> {
    let column = batch.column_by_name(name).ok_or_else(|| Error::Internal(format!("no column {name}")))?;
    Ok(cast(column, &DataType::Utf8).map_err(arrow)?.as_string::<i32>().clone())
}

fn golden_answers(batch: &RecordBatch) -> Result<Vec<Vec<String>>> {
    let column = batch.column_by_name("golden_answers").ok_or_else(|| Error::Internal("no column golden_answers".to_owned()))?;
    match column.data_type() {
        DataType::List(_) | DataType::LargeList(_) => {
            let target = DataType::List(Arc::new(Field::new("item", DataType::Utf8, true)));
            let lists = cast(column, &target).map_err(arrow)?;
            let lists = lists.as_list::<i32>();
            Ok((0..lists.len())
                .map(|row| {
                    if lists.is_null(row) {
                        vec![]
                    } else {
                        lists.value(row).as_string::<i32>().iter().flatten().map(str::to_owned).collect()
                    }
                })
                .collect())
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            let golds = texts(batch, "golden_answers")?;
            Ok(golds.iter().map(|gold| gold.map(str::to_owned).into_iter().collect()).collect())
        }
        other => Err(Error::WrongType {
            what: "golden_answers".to_owned(),
            found: crate::engine::typing::sql_type_name(other),
            expected: "text or text[]".to_owned(),
        }),
    }
}

/// The table of nodes, made if it does not exist.
///
/// # Errors
/// [`Error::WrongType`] if there is a table of that name with other columns.
async fn node_table(session: &Session, schema: &str, name: &str) -> Result<Arc<Table>> {
    let catalog = &session.database().shared.catalog;
    let nodes = system::node_definition();
    if !catalog.tables(schema)?.contains(&name.to_owned()) {
        let object = Object::table(schema, name);
        let _name = super::name::to_make(session, &object).await;
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
    if names(&table.definition().schema) != names(&nodes.schema) {
        return Err(Error::WrongType {
            what: format!("table {name}"),
            found: "a table of other columns".to_owned(),
            expected: "a table of rollout nodes, or a new name".to_owned(),
        });
    }
    Ok(table)
}

async fn finished_questions(table: &Arc<Table>) -> Result<HashSet<String>> {
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

    /// The agent makes the rows and the catalog describes the columns; neither knows the other.
    #[test]
    fn the_nodes_of_the_agent_fit_the_table_of_the_catalog() {
        let (table, rows) = (system::node_definition().schema, crate::agent::node_schema());
        let columns = |schema: &arrow::datatypes::Schema| -> Vec<_> {
            schema.fields().iter().map(|field| (field.name().clone(), field.data_type().clone())).collect()
        };
        assert_eq!(columns(&table), columns(&rows));
    }
}
