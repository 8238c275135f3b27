//! What every database has in schema `rollout`: the prompts, the metrics of trainings, and views over models, agents and indexes.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use arrow::array::{
    AsArray, BooleanArray, Float64Array, Int64Array, ListBuilder, RecordBatch, StringArray, StringBuilder, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use async_trait::async_trait;
use datafusion::catalog::{Session as PlannerSession, TableProvider};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::prelude::SessionContext;
use futures::future::BoxFuture;
use rolloutdb_catalogs::{BackfillInfo, Catalog, GraphPlace, IndexInfo, Table, system};

use super::AgentRegistry;
use super::activity::{ACTIVITY_VIEW, Activity};
use super::database::Shared;
use super::index_builds::{IndexBuilds, PROGRESS_VIEW};
use super::jobs::Jobs;
use super::privileges::Access;
use super::progress_views::PROGRESS_VIEWS;
use super::retrieval_cache::RetrievalCache;
use super::session::WeakSession;
use super::task_history::TaskHistory;
use super::{model_views, privileges, remote_models, secrets};
use crate::agent::{PromptRow, builtin_prompts};
use crate::error::{Error, Result};

/// Makes the system tables that are missing, fills `rollout.prompts`, and shows the views.
pub async fn install(shared: &Shared) -> Result<()> {
    let catalog = &shared.catalog;
    catalog.create_system_tables().await?;
    fill_prompts(catalog).await?;
    let (registry, agents) = (Arc::clone(&shared.registry), shared.agents.clone());
    let (builds, runtime) = (Arc::clone(&shared.index_builds), Arc::clone(&shared.models));
    let (granted, roles, named_secrets) = (shared.privileges.clone(), shared.roles.clone(), shared.secrets.clone());
    let retrievals = Arc::clone(&shared.retrievals);
    let views = [
        ("retrieval_cache", View::new(RetrievalCache::schema(), move |_| ready(retrievals.rows()))),
        ("builtin_prompts", View::new(prompts_schema(), |_| ready(builtin_prompts_batch()))),
        (PROGRESS_VIEW, View::new(IndexBuilds::schema(), move |_| ready(builds.rows()))),
        ("models", View::new(model_views::models_schema(), move |reader| ready(model_views::models(&registry, reader.as_ref())))),
        ("loaded_models", View::new(model_views::loaded_schema(), move |_| ready(model_views::loaded_models(&runtime)))),
        ("agents", View::new(agents_schema(), move |_| ready(agents_batch(&agents)))),
        ("privileges", View::new(privileges::schema(), move |_| ready(privileges::rows(&granted, &roles.superuser())))),
        ("secrets", View::new(secrets::schema(), move |_| ready(named_secrets.rows()))),
        ("table_versions", View::of_catalog(catalog, versions_schema(), versions)),
        ("torn_versions", View::of_catalog(catalog, torn_schema(), torn_versions)),
        ("backfills", View::of_catalog(catalog, backfills_schema(), backfills)),
        ("tables_in_memory", View::of_catalog(catalog, in_memory_schema(), in_memory)),
        ("indexes", View::of_catalog(catalog, indexes_schema(), indexes)),
    ];
    for (name, view) in views.into_iter().chain(activity_views(shared)) {
        catalog.register_virtual(system::SYSTEM_SCHEMA, name, Arc::new(view))?;
    }
    Ok(())
}

/// Sessions, what their statements have done so far, jobs, and what remote models were asked.
fn activity_views(shared: &Shared) -> Vec<(&'static str, View)> {
    let (activity, jobs, history) = (Arc::clone(&shared.activity), Arc::clone(&shared.jobs), Arc::clone(&shared.task_history));
    let (asked, kept) = (Arc::clone(&shared.remotes), Arc::clone(&shared.remotes));
    let mut views = vec![
        (ACTIVITY_VIEW, View::new(Activity::schema(), move |reader| ready(activity.rows(reader.as_ref())))),
        ("jobs", View::new(Jobs::schema(), move |reader| ready(jobs.rows(reader.as_ref())))),
        ("task_history", View::new(TaskHistory::schema(), move |reader| ready(history.rows(reader.as_ref())))),
        ("remote_models", View::new(remote_models::schema(), move |_| ready(remote_models::rows(&asked)))),
        (
            "remote_cache",
            View::new(remote_models::cache_schema(), move |_| {
                let kept = Arc::clone(&kept);
                Box::pin(async move { remote_models::cache_rows(&kept).await })
            }),
        ),
    ];
    for view in &PROGRESS_VIEWS {
        let activity = Arc::clone(&shared.activity);
        views.push((view.name, View::new(view.schema(), move |_| ready(view.rows(&activity)))));
    }
    views
}

/// Adds the prompts of the states that the table has none of: of all the first time, of new protocols and new states after an upgrade.
async fn fill_prompts(catalog: &Arc<Catalog>) -> Result<()> {
    let table = catalog.table(system::SYSTEM_SCHEMA, "prompts").await?;
    // A database opens with a damaged table of prompts; who reads it is told.
    let Ok(known) = states_with_prompts(&table).await else { return Ok(()) };
    let is_known = |row: &PromptRow| known.contains(&(row.protocol.clone(), row.state.clone()));
    let rows: Vec<PromptRow> = builtin_prompts().into_iter().filter(|row| !is_known(row)).collect();
    if rows.is_empty() {
        return Ok(());
    }
    let batch = prompts_batch(&rows, Arc::clone(&table.definition().schema))?;
    let stream = RecordBatchStreamAdapter::new(batch.schema(), futures::stream::iter([Ok(batch)]));
    table.append(Box::pin(stream)).await?;
    Ok(())
}

fn prompts_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![text("prompt_set"), text("protocol"), text("state"), text("template")]))
}

/// What `rollout.prompts` began with, for those who want it back.
fn builtin_prompts_batch() -> Result<RecordBatch> {
    prompts_batch(&builtin_prompts(), prompts_schema())
}

fn prompts_batch(rows: &[PromptRow], schema: SchemaRef) -> Result<RecordBatch> {
    let column = |read: fn(&PromptRow) -> &str| Arc::new(StringArray::from_iter_values(rows.iter().map(read)));
    let batch = RecordBatch::try_new(
        schema,
        vec![column(|row| &row.prompt_set), column(|row| &row.protocol), column(|row| &row.state), column(|row| &row.template)],
    );
    Ok(batch.map_err(DataFusionError::from)?)
}

/// Protocols with those of their states that have prompts.
async fn states_with_prompts(table: &Arc<Table>) -> Result<HashSet<(String, String)>> {
    if table.row_count().await? == 0 {
        return Ok(HashSet::new());
    }
    let states = SessionContext::new().read_table(Arc::clone(table) as _)?.select_columns(&["protocol", "state"])?;
    let mut known = HashSet::new();
    for batch in states.collect().await? {
        let (protocols, states) = (batch.column(0).as_string::<i32>(), batch.column(1).as_string::<i32>());
        known.extend(protocols.iter().zip(states).filter_map(|(protocol, state)| Some((protocol?.to_owned(), state?.to_owned()))));
    }
    Ok(known)
}

/// Makes the rows for a reader, whose rights decide what they show; `None`: nobody whom the view knows.
type Build = Box<dyn Fn(Option<Access>) -> BoxFuture<'static, Result<RecordBatch>> + Send + Sync>;

fn ready(batch: Result<RecordBatch>) -> BoxFuture<'static, Result<RecordBatch>> {
    Box::pin(std::future::ready(batch))
}

/// A read-only table whose rows are made when it is scanned.
struct View {
    schema: SchemaRef,
    build: Build,
}

impl View {
    fn new(schema: SchemaRef, build: impl Fn(Option<Access>) -> BoxFuture<'static, Result<RecordBatch>> + Send + Sync + 'static) -> Self {
        Self { schema, build: Box::new(build) }
    }

    /// Rows about the tables of the catalog. The catalog keeps its views: a strong reference to it in one of them would keep it, and its lock, for ever.
    fn of_catalog<F>(catalog: &Arc<Catalog>, schema: SchemaRef, rows: impl Fn(Arc<Catalog>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<RecordBatch>> + Send + 'static,
    {
        let catalog = Arc::downgrade(catalog);
        Self::new(schema, move |_| {
            let rows = catalog.upgrade().map(&rows);
            Box::pin(async move {
                match rows {
                    Some(rows) => rows.await,
                    None => Err(Error::Internal("the database is closed".to_owned())),
                }
            })
        })
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("schema", &self.schema).finish_non_exhaustive()
    }
}

#[async_trait]
impl TableProvider for View {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        state: &dyn PlannerSession,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let session = state.config().get_extension::<WeakSession>().and_then(|session| session.upgrade());
        let batch = (self.build)(session.map(|session| session.access())).await?;
        let plan = MemorySourceConfig::try_new_exec(&[vec![batch]], Arc::clone(&self.schema), projection.cloned())?;
        Ok(plan)
    }
}

pub(super) fn text(name: &str) -> Field {
    Field::new(name, DataType::Utf8, false)
}

pub(super) fn count(name: &str) -> Field {
    Field::new(name, DataType::Int64, false)
}

fn agents_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        text("name"),
        text("policy"),
        text("corpus"),
        Field::new("corpus_version", DataType::Utf8, true),
        text("retriever"),
        count("k"),
        text("protocol"),
        text("prompts"),
        count("max_steps"),
        count("max_tokens"),
        Field::new("temperature", DataType::Float64, false),
        Field::new("top_p", DataType::Float64, false),
        count("top_k"),
        Field::new("min_p", DataType::Float64, false),
        Field::new("repetition_penalty", DataType::Float64, false),
        count("seed"),
        count("created_at_ms"),
    ]))
}

fn agents_batch(agents: &AgentRegistry) -> Result<RecordBatch> {
    use super::AgentDefinition as Agent;
    let agents = agents.list();
    let texts = |read: fn(&Agent) -> &str| Arc::new(StringArray::from_iter_values(agents.iter().map(read)));
    let counts = |read: fn(&Agent) -> i64| Arc::new(Int64Array::from_iter_values(agents.iter().map(read)));
    let floats = |read: fn(&Agent) -> f64| Arc::new(Float64Array::from_iter_values(agents.iter().map(read)));
    let batch = RecordBatch::try_new(
        agents_schema(),
        vec![
            texts(|agent| &agent.name),
            texts(|agent| &agent.options.policy),
            texts(|agent| &agent.options.corpus),
            Arc::new(agents.iter().map(|agent| agent.options.corpus_version.as_deref()).collect::<StringArray>()),
            texts(|agent| agent.options.retriever.as_str()),
            counts(|agent| agent.options.k as i64),
            texts(|agent| &agent.options.protocol),
            texts(|agent| &agent.options.prompts),
            counts(|agent| agent.options.max_steps as i64),
            counts(|agent| agent.options.max_tokens as i64),
            floats(|agent| agent.options.temperature),
            floats(|agent| agent.options.top_p),
            counts(|agent| agent.options.top_k as i64),
            floats(|agent| agent.options.min_p),
            floats(|agent| agent.options.repetition_penalty),
            counts(|agent| agent.options.seed),
            counts(|agent| agent.created_at_ms),
        ],
    );
    Ok(batch.map_err(DataFusionError::from)?)
}

fn indexes_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        text("schema_name"),
        text("table_name"),
        text("name"),
        text("column_name"),
        text("method"),
        Field::new("metric", DataType::Utf8, true),
        text("options"),
        count("rows_indexed"),
        count("rows_unindexed"),
        count("bytes"),
        Field::new("graph", DataType::Utf8, true),
    ]))
}

fn in_memory_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![text("schema_name"), text("table_name"), count("version"), count("rows"), count("bytes")]))
}

/// The tables that searches keep in memory.
async fn in_memory(catalog: Arc<Catalog>) -> Result<RecordBatch> {
    let mut found = Vec::new();
    for table in catalog.all_tables().await? {
        if let Some(memory) = table.in_memory().await {
            found.push((table.schema_name().to_owned(), table.name().to_owned(), memory));
        }
    }
    let number = |read: &dyn Fn(&rolloutdb_catalogs::TableInMemory) -> u64| {
        Arc::new(Int64Array::from_iter_values(found.iter().map(|(_, _, memory)| i64::try_from(read(memory)).unwrap_or(i64::MAX))))
    };
    let batch = RecordBatch::try_new(
        in_memory_schema(),
        vec![
            Arc::new(StringArray::from_iter_values(found.iter().map(|(schema, _, _)| schema))),
            Arc::new(StringArray::from_iter_values(found.iter().map(|(_, table, _)| table))),
            number(&|memory| memory.version),
            number(&|memory| memory.num_rows as u64),
            number(&|memory| memory.bytes as u64),
        ],
    );
    Ok(batch.map_err(DataFusionError::from)?)
}

fn backfills_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        text("schema_name"),
        text("table_name"),
        text("column_name"),
        text("expression"),
        count("rows_done"),
        count("rows_total"),
        Field::new("running", DataType::Boolean, false),
        Field::new("rows_per_second", DataType::Float64, true),
        Field::new("seconds_left", DataType::Float64, true),
    ]))
}

/// New columns that are being filled, and those that can be taken up again.
async fn backfills(catalog: Arc<Catalog>) -> Result<RecordBatch> {
    let mut found = Vec::new();
    for table in catalog.all_tables().await? {
        for backfill in table.backfills().await? {
            found.push((table.schema_name().to_owned(), table.name().to_owned(), backfill));
        }
    }
    let texts =
        |read: &dyn Fn(&BackfillInfo) -> String| Arc::new(StringArray::from_iter_values(found.iter().map(|(_, _, info)| read(info))));
    let number = |read: &dyn Fn(&BackfillInfo) -> u64| {
        Arc::new(Int64Array::from_iter_values(found.iter().map(|(_, _, info)| i64::try_from(read(info)).unwrap_or(i64::MAX))))
    };
    let left = |info: &BackfillInfo| {
        let rate = info.rows_per_second.filter(|rate| *rate > 0.0)?;
        Some(info.rows_total.saturating_sub(info.rows_done) as f64 / rate)
    };
    let batch = RecordBatch::try_new(
        backfills_schema(),
        vec![
            Arc::new(StringArray::from_iter_values(found.iter().map(|(schema, _, _)| schema))),
            Arc::new(StringArray::from_iter_values(found.iter().map(|(_, table, _)| table))),
            texts(&|info| info.column.clone()),
            texts(&|info| info.expression.clone()),
            number(&|info| info.rows_done),
            number(&|info| info.rows_total),
            Arc::new(found.iter().map(|(_, _, info)| Some(info.is_running)).collect::<BooleanArray>()),
            Arc::new(found.iter().map(|(_, _, info)| info.rows_per_second).collect::<Float64Array>()),
            Arc::new(found.iter().map(|(_, _, info)| left(info)).collect::<Float64Array>()),
        ],
    );
    Ok(batch.map_err(DataFusionError::from)?)
}

fn torn_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![text("schema_name"), text("table_name"), count("version"), text("file"), count("bytes")]))
}

/// Every version whose manifest was torn, with the file that is kept.
async fn torn_versions(catalog: Arc<Catalog>) -> Result<RecordBatch> {
    let mut found = Vec::new();
    for table in catalog.all_tables().await? {
        for torn in table.torn_versions()? {
            found.push((table.schema_name().to_owned(), table.name().to_owned(), torn));
        }
    }
    let number = |read: &dyn Fn(&rolloutdb_catalogs::TornVersion) -> u64| {
        Arc::new(Int64Array::from_iter_values(found.iter().map(|(_, _, torn)| i64::try_from(read(torn)).unwrap_or(i64::MAX))))
    };
    let batch = RecordBatch::try_new(
        torn_schema(),
        vec![
            Arc::new(StringArray::from_iter_values(found.iter().map(|(schema, _, _)| schema))),
            Arc::new(StringArray::from_iter_values(found.iter().map(|(_, table, _)| table))),
            number(&|torn| torn.version),
            Arc::new(StringArray::from_iter_values(found.iter().map(|(_, _, torn)| torn.file.display().to_string()))),
            number(&|torn| torn.bytes),
        ],
    );
    Ok(batch.map_err(DataFusionError::from)?)
}

fn versions_schema() -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into()));
    let tags = Field::new("tags", DataType::new_list(DataType::Utf8, true), false);
    Arc::new(Schema::new(vec![text("schema_name"), text("table_name"), count("version"), Field::new("committed_at", time, false), tags]))
}

/// Every version that can be read again, of every table.
async fn versions(catalog: Arc<Catalog>) -> Result<RecordBatch> {
    let mut found = Vec::new();
    let mut tags = ListBuilder::new(StringBuilder::new());
    for table in catalog.all_tables().await? {
        let known = table.tags().await?;
        for version in table.versions().await? {
            let of_version = known.iter().filter(|tag| tag.version == version.version);
            tags.append_value(of_version.map(|tag| Some(&tag.name)));
            found.push((table.schema_name().to_owned(), table.name().to_owned(), version));
        }
    }
    let numbers = found.iter().map(|(_, _, version)| i64::try_from(version.version).unwrap_or(i64::MAX));
    let times = found.iter().map(|(_, _, version)| version.committed_micros);
    let batch = RecordBatch::try_new(
        versions_schema(),
        vec![
            Arc::new(StringArray::from_iter_values(found.iter().map(|(schema, _, _)| schema))),
            Arc::new(StringArray::from_iter_values(found.iter().map(|(_, table, _)| table))),
            Arc::new(Int64Array::from_iter_values(numbers)),
            Arc::new(TimestampMicrosecondArray::from_iter_values(times).with_timezone("+00:00")),
            Arc::new(tags.finish()),
        ],
    );
    Ok(batch.map_err(DataFusionError::from)?)
}

async fn indexes(catalog: Arc<Catalog>) -> Result<RecordBatch> {
    let mut found = Vec::new();
    for table in catalog.all_tables().await? {
        for index in table.indexes().await? {
            found.push((table.schema_name().to_owned(), table.name().to_owned(), index));
        }
    }
    let texts = |read: &dyn Fn(&(String, String, IndexInfo)) -> String| Arc::new(StringArray::from_iter_values(found.iter().map(read)));
    let counts = |read: fn(&IndexInfo) -> u64| {
        Arc::new(Int64Array::from_iter_values(found.iter().map(|(_, _, index)| i64::try_from(read(index)).unwrap_or(i64::MAX))))
    };
    let batch = RecordBatch::try_new(
        indexes_schema(),
        vec![
            texts(&|(schema, _, _)| schema.clone()),
            texts(&|(_, table, _)| table.clone()),
            texts(&|(_, _, index)| index.name.clone()),
            texts(&|(_, _, index)| index.column.clone()),
            texts(&|(_, _, index)| index.kind.name().to_owned()),
            Arc::new(found.iter().map(|(_, _, index)| index.metric.map(|metric| metric.name())).collect::<StringArray>()),
            texts(&|(_, _, index)| options_text(index)),
            counts(|index| index.rows_indexed),
            counts(|index| index.rows_unindexed),
            counts(|index| index.bytes),
            Arc::new(found.iter().map(|(_, _, index)| index.graph.map(graph_text)).collect::<StringArray>()),
        ],
    );
    Ok(batch.map_err(DataFusionError::from)?)
}

/// As they stand after WITH.
fn options_text(index: &IndexInfo) -> String {
    index.options.iter().map(|(name, value)| format!("{name} = {value}")).collect::<Vec<_>>().join(", ")
}

fn graph_text(place: GraphPlace) -> &'static str {
    match place {
        GraphPlace::Memory => "in memory",
        GraphPlace::File => "in its file",
    }
}
