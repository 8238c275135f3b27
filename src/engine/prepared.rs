//! Statements that are planned once and run often: the agent's inner loop asks thousands of times for the rows nearest to a vector, and making the
//! plan takes longer than running it.
//!
//! What is kept is the plan of a query that finds rows and shows them ([`KeptPlan`]): scans, nearest-neighbour scans and search functions. It serves as
//! long as the tables have the versions and the session the settings that it was made for. Every other statement is planned each time.

mod bound_parameter;
mod kept_plan;
mod made_vectors;
mod revalidation;

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::{FieldRef, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use datafusion::sql::sqlparser::ast::Query;
use futures::{FutureExt, Stream};
use rolloutdb_sql::Statement;

use super::declared_types;
use super::pg_catalog::is_catalog_query;
use super::session::{Description, Session};
use super::shown_text::{printed, shown_text};
use crate::error::Result;
use kept_plan::KeptPlan;
use revalidation::{Names, Shape};

/// A run up to this long may hold up what else its thread does.
pub const BRIEF: Duration = Duration::from_millis(10);

/// A statement with the plan that its runs share. Made by [`Session::prepare`].
#[derive(Debug)]
pub struct PreparedStatement {
    pub(super) statement: Statement,
    /// As it was before types of parameters were written into it; `None`: they were not.
    original: Option<Statement>,
    /// What a client has said of the types of its parameters.
    declared: Vec<Option<FieldRef>>,
    /// Its text as others may see it.
    shown: Arc<str>,
    /// As it is printed, from the first EXECUTE on.
    printed: OnceLock<Arc<str>>,
    description: Description,
    shape: Mutex<Shape>,
    plan: Arc<Mutex<Kept>>,
    /// Whether the last run of the kept plan took no longer than [`BRIEF`].
    brief: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
enum Kept {
    /// It has not run yet. Its first run is planned as any other: many statements run once.
    #[default]
    New,
    /// The next run makes a plan to keep.
    RunOnce,
    /// Planned each time.
    Unfit,
    Ready(Box<KeptPlan>),
    /// A run has the plan, or makes one; another one at the same time plans for itself.
    Lent,
}

impl PreparedStatement {
    pub(super) fn new(statement: Statement, description: Description) -> Self {
        let shown = Arc::from(statement.tag());
        Self {
            statement,
            original: None,
            declared: Vec::new(),
            shown,
            printed: OnceLock::new(),
            description,
            shape: Mutex::default(),
            plan: Arc::default(),
            brief: Arc::default(),
        }
    }

    /// The text that it was made from, for `pg_stat_activity`; without one its kind is shown.
    #[must_use]
    pub fn with_text(mut self, text: &str) -> Self {
        self.shown = Arc::from(shown_text(&self.statement, text));
        self
    }

    /// What it was, before something was written into it.
    pub(super) fn made_of(self, original: Statement) -> Self {
        Self { printed: OnceLock::from(Arc::from(printed(&original))), original: Some(original), ..self }
    }

    pub(super) fn shown(&self) -> &Arc<str> {
        &self.shown
    }

    /// The text of what EXECUTE runs, without the PREPARE around it. Printing takes longer than some runs, so it is done once.
    pub(super) fn printed(&self) -> &Arc<str> {
        self.printed.get_or_init(|| Arc::from(printed(&self.statement)))
    }

    #[must_use]
    pub fn statement(&self) -> &Statement {
        &self.statement
    }

    #[must_use]
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Whether a run with these parameters takes a few milliseconds, as the last one did: handing it to another thread and back would take longer.
    ///
    /// Only for a kept plan whose work does not hang on the values: a search, or a table's rows in their order.
    #[must_use]
    pub fn is_brief(&self, parameters: &[ScalarValue]) -> bool {
        let fits = |plan: &KeptPlan| plan.is_bounded && plan.takes(parameters) && plan.is_for(parameters);
        self.brief.load(Ordering::Relaxed)
            && !parameters.iter().any(ScalarValue::is_null)
            && matches!(&*lock(&self.plan), Kept::Ready(plan) if fits(plan))
    }

    /// The rows of the kept plan; `None` if there is none for these parameters.
    pub(super) async fn run(&self, session: &Session, parameters: &[ScalarValue]) -> Result<Option<SendableRecordBatchStream>> {
        let Statement::Query(query) = &self.statement else { return Ok(None) };
        // Filters with a NULL are planned otherwise.
        if parameters.iter().any(ScalarValue::is_null) {
            return Ok(None);
        }
        if is_catalog_query(query) {
            return Ok(None);
        }
        let Some(mut loan) = self.borrow() else { return Ok(None) };
        // A value of another type is planned for itself, and the plan stays for the next one.
        if matches!(&loan.kept, Kept::Ready(plan) if !plan.takes(parameters)) {
            return Ok(None);
        }
        let started = Instant::now();
        loan.fit(session, query, parameters).await?;
        let Kept::Ready(plan) = &loan.kept else { return Ok(None) };
        let rows = if plan.is_for(parameters) { plan.run(session, parameters).await? } else { None };
        // Until it has come to its end.
        self.brief.store(false, Ordering::Relaxed);
        let brief = Arc::clone(&self.brief);
        Ok(rows.map(|rows| Box::pin(Run { rows, started, brief, _loan: loan }) as SendableRecordBatchStream))
    }

    /// What is kept, out of the statement: until it is given back, no other run has it. `None`: this run plans for itself.
    fn borrow(&self) -> Option<Loan> {
        let mut home = lock(&self.plan);
        match std::mem::replace(&mut *home, Kept::Lent) {
            Kept::New => *home = Kept::RunOnce,
            Kept::Unfit => *home = Kept::Unfit,
            Kept::Lent => {}
            kept @ (Kept::RunOnce | Kept::Ready(_)) => return Some(Loan { kept, home: Arc::clone(&self.plan) }),
        }
        None
    }
}

impl Session {
    /// As [`Self::prepare`]; `types` are those that a client has said its parameters have, in their order. They decide the types of columns too.
    ///
    /// # Errors
    /// As [`Self::describe`].
    pub async fn prepare_declared(&self, parsed: Statement, types: &[Option<FieldRef>]) -> Result<PreparedStatement> {
        // Before it is described: what changes meanwhile is looked at when it runs.
        let now = Names::of(self);
        let prepared = match types.iter().any(Option::is_some) {
            true => declared_types::prepared(self, parsed, types, &|_| false).boxed().await?,
            false => {
                let description = self.describe(&parsed).await?;
                PreparedStatement::new(parsed, description)
            }
        };
        Ok(prepared.of_names(now, types))
    }
}

fn lock(plan: &Mutex<Kept>) -> std::sync::MutexGuard<'_, Kept> {
    plan.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is kept of a statement while a run has it; it goes back when the run ends, however it ends.
struct Loan {
    kept: Kept,
    home: Arc<Mutex<Kept>>,
}

impl Loan {
    /// Makes a plan if there is none, or one that no longer serves.
    async fn fit(&mut self, session: &Session, query: &Query, parameters: &[ScalarValue]) -> Result<()> {
        if let Kept::Ready(plan) = &self.kept
            && plan.serves(session, parameters).await?
        {
            return Ok(());
        }
        self.kept = match KeptPlan::make(session, query, parameters).await?.filter(|plan| plan.takes(parameters)) {
            Some(plan) => Kept::Ready(Box::new(plan)),
            None => Kept::Unfit,
        };
        Ok(())
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        *lock(&self.home) = std::mem::take(&mut self.kept);
    }
}

/// The rows of one run, which has the plan until it ends.
struct Run {
    rows: SendableRecordBatchStream,
    started: Instant,
    brief: Arc<AtomicBool>,
    _loan: Loan,
}

impl Stream for Run {
    type Item = DataFusionResult<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = self.rows.as_mut().poll_next(context);
        if matches!(polled, Poll::Ready(None)) {
            self.brief.store(self.started.elapsed() <= BRIEF, Ordering::Relaxed);
        }
        polled
    }
}

impl RecordBatchStream for Run {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::Int64Type;
    use futures::TryStreamExt;
    use rolloutdb_udfs::vector::vector_literal;

    use super::*;
    use crate::engine::{Database, Response};

    async fn run(session: &Session, prepared: &PreparedStatement, parameters: &[ScalarValue]) -> Result<()> {
        match session.execute_prepared(prepared, parameters.to_vec()).await? {
            Response::Rows { stream, .. } => stream.try_collect::<Vec<_>>().await.map(|_| ()).map_err(Into::into),
            Response::Done { .. } | Response::CopyIn(_) | Response::CopyOut(_) => Ok(()),
        }
    }

    /// Where the plan that is kept is in memory: another plan is elsewhere.
    fn kept(prepared: &PreparedStatement) -> Option<usize> {
        match &*lock(&prepared.plan) {
            Kept::Ready(plan) => Some(Arc::as_ptr(&plan.plan).addr()),
            _ => None,
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_execute_runs_is_printed_once() -> Result<()> {
        let data = tempfile::tempdir().expect("a temporary directory");
        let session = Database::open(data.path()).await?.session();
        let sql = async |text: &str| session.sql(text).await?.try_collect::<Vec<_>>().await.map(|_| ()).map_err(crate::Error::from);
        sql("PREPARE one AS select $1 + 1").await?;
        let prepared = session.named_statements().get("one")?.prepared.clone().expect("it is a statement");
        assert_eq!(prepared.printed.get(), None, "it may never run");
        sql("EXECUTE one(1)").await?;
        let first = prepared.printed.get().cloned().expect("it has run");
        sql("EXECUTE one(2)").await?;
        assert!(prepared.printed.get().is_some_and(|second| Arc::ptr_eq(second, &first)));
        assert_eq!(&*first, "SELECT $1 + 1");
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn retrievals_are_planned_at_the_second_run_and_after_writes() -> Result<()> {
        let data = tempfile::tempdir().expect("a temporary directory");
        let session = Database::open(data.path()).await?.session();
        let sql = async |text: &str| session.sql(text).await?.try_collect::<Vec<_>>().await.map(|_| ()).map_err(crate::Error::from);
        sql("CREATE TABLE t (id bigint PRIMARY KEY, words text, v vector(2))").await?;
        sql("INSERT INTO t VALUES (1, 'one', '[1,0]'), (2, 'two', '[0,1]')").await?;
        let prepare = async |text: &str| session.prepare(session.parse(text)?.remove(0)).await;
        let retrieval = prepare("SELECT id FROM t ORDER BY v <=> '[1,1]' LIMIT 1").await?;
        run(&session, &retrieval, &[]).await?;
        assert_eq!(kept(&retrieval), None, "a statement that runs once is planned once");
        assert!(!retrieval.is_brief(&[]), "no plan was kept");
        run(&session, &retrieval, &[]).await?;
        let first = kept(&retrieval);
        assert!(first.is_some());
        // One run of many takes a few milliseconds, however busy the machine is.
        for _ in 0..10_000 {
            run(&session, &retrieval, &[]).await?;
            if retrieval.is_brief(&[]) {
                break;
            }
        }
        assert_eq!(kept(&retrieval), first);
        assert!(retrieval.is_brief(&[]), "a search among two rows");
        assert!(!retrieval.is_brief(&[ScalarValue::from(1_i64)]), "a run that the plan does not serve");
        sql("INSERT INTO t VALUES (3, 'three', '[1,1]')").await?;
        run(&session, &retrieval, &[]).await?;
        assert!(kept(&retrieval).is_some_and(|second| Some(second) != first), "the table has another version");
        // Another session has settings of its own.
        let other = session.database().session();
        let third = kept(&retrieval);
        run(&other, &retrieval, &[]).await?;
        assert!(kept(&retrieval).is_some_and(|plan| Some(plan) != third), "it was made for another session");
        // A vector that a client sends without the column's dimension is one of the column.
        let by_vector = prepare("SELECT id FROM t ORDER BY v <-> $1::vector LIMIT 1").await?;
        for _ in 0..3 {
            run(&session, &by_vector, &[vector_literal(&[1.0, 1.0])]).await?;
        }
        assert!(kept(&by_vector).is_some());
        // What reads more than tables that are searched, or what a run decides.
        sql("ALTER TABLE t CREATE TAG release").await?;
        for text in [
            "SELECT count(*) FROM t",
            "SELECT now()",
            "SELECT id, now() FROM t ORDER BY v <=> '[1,1]' LIMIT 1",
            // The tag may move.
            "SELECT id FROM t VERSION AS OF 'release' ORDER BY v <=> '[1,1]' LIMIT 1",
        ] {
            let other = prepare(text).await?;
            for _ in 0..3 {
                run(&session, &other, &[]).await?;
            }
            assert!(matches!(&*lock(&other.plan), Kept::Unfit), "{text}");
        }
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn parameters_that_decide_the_plan_and_vectors_of_a_model_are_kept() -> Result<()> {
        let data = tempfile::tempdir().expect("a temporary directory");
        let session = Database::open(data.path()).await?.session();
        let sql = async |text: &str| session.sql(text).await?.try_collect::<Vec<_>>().await.map(|_| ()).map_err(crate::Error::from);
        let model = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/models/bert");
        sql(&format!("CREATE MODEL encoder FROM '{model}' WITH (task = 'embed')")).await?;
        sql("CREATE TABLE t (id bigint PRIMARY KEY, words text, v vector(64) GENERATED ALWAYS AS (embed('encoder', words)) STORED)")
            .await?;
        sql("INSERT INTO t (id, words) SELECT n, 'film ' || n FROM generate_series(1, 9) AS g (n)").await?;
        let long = |value: i64| ScalarValue::Int64(Some(value));
        let text = |value: &str| ScalarValue::from(value);
        let files = tempfile::tempdir().expect("a temporary directory");
        let path = files.path().join("a.csv");
        std::fs::write(&path, "a\n1\n").expect("a temporary file is writable");
        let file = session.parse(&format!("SELECT * FROM read_csv('{}', header => $1)", path.display()))?.remove(0);
        let refused = session.prepare(file).await.map(|_| ()).map_err(|error| error.to_string());
        assert!(refused.as_ref().is_err_and(|error| error.contains("a constant")), "its columns hang on it: {refused:?}");
        let cases = [
            ("SELECT id FROM t ORDER BY v <=> embed('encoder', $1) LIMIT 3", vec![text("film 7")], Some(vec![text("film 8")])),
            (
                "SELECT id FROM t ORDER BY v <=> embed('encoder', $1) LIMIT $2",
                vec![text("film 7"), long(3)],
                Some(vec![text("film 8"), long(3)]),
            ),
            ("SELECT id FROM vector_search(t, $1, k => $2)", vec![text("film 7"), long(3)], None),
            ("SELECT id FROM vector_search(t, $1, k => 3, filter => 'id < $2')", vec![text("film 7"), long(5)], None),
            ("SELECT id FROM vector_search(t, $1, k => 3, filter => $2)", vec![text("film 7"), text("id < 5")], None),
        ];
        for (query, parameters, others) in cases {
            let prepared = session.prepare(session.parse(query)?.remove(0)).await?;
            assert_eq!(prepared.description().parameters.len(), parameters.len(), "{query}");
            for parameters in [Some(&parameters), others.as_ref(), Some(&parameters), others.as_ref()].into_iter().flatten() {
                let found = ids(session.execute_prepared(&prepared, parameters.clone()).await?).await?;
                let planned = ids(session.execute(prepared.statement(), parameters.clone()).await?).await?;
                assert!(found == planned && found.len() == 3, "{query} {parameters:?}: {found:?}, {planned:?}");
            }
            assert!(kept(&prepared).is_some(), "{query}");
            if let [query_text, ScalarValue::Int64(_)] = parameters.as_slice() {
                // Another value of what decides the plan: it is planned for this run.
                let found = ids(session.execute_prepared(&prepared, vec![query_text.clone(), long(2)]).await?).await?;
                assert_eq!(found.len(), if query.contains("filter") { 1 } else { 2 }, "{query}");
            }
        }
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_kept_plan_ends_with_the_right_to_it() -> Result<()> {
        let data = tempfile::tempdir().expect("a temporary directory");
        let database = Database::open(data.path()).await?;
        let owner = database.session();
        let sql = async |text: &str| owner.sql(text).await?.try_collect::<Vec<_>>().await.map(|_| ()).map_err(crate::Error::from);
        sql("CREATE TABLE t (id bigint PRIMARY KEY, v vector(2)); INSERT INTO t VALUES (1, '[1,0]')").await?;
        sql("CREATE ROLE alice; GRANT SELECT ON t TO alice").await?;
        let session = database.session();
        session.set_user("alice");
        let retrieval = session.prepare(session.parse("SELECT id FROM t ORDER BY v <=> '[1,1]' LIMIT 1")?.remove(0)).await?;
        for _ in 0..3 {
            run(&session, &retrieval, &[]).await?;
        }
        assert!(kept(&retrieval).is_some());
        sql("REVOKE SELECT ON t FROM alice").await?;
        let refused = run(&session, &retrieval, &[]).await;
        assert!(matches!(refused, Err(crate::Error::InsufficientPrivilege(_))), "{refused:?}");
        // By another role's right, and by none again.
        sql("CREATE ROLE readers; GRANT SELECT ON t TO readers; GRANT readers TO alice").await?;
        run(&session, &retrieval, &[]).await?;
        sql("REVOKE readers FROM alice").await?;
        let refused = run(&session, &retrieval, &[]).await;
        assert!(matches!(refused, Err(crate::Error::InsufficientPrivilege(_))), "{refused:?}");
        Ok(())
    }

    async fn ids(response: Response) -> Result<Vec<i64>> {
        let Response::Rows { stream, .. } = response else { panic!("a query has rows") };
        let batches: Vec<RecordBatch> = stream.try_collect().await?;
        Ok(batches.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()).collect())
    }
}
