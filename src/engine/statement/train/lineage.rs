//! Where a trained model comes from: kept with its version, and shown by DESCRIBE MODEL.

use std::collections::{BTreeMap, BTreeSet};

use datafusion::common::ScalarValue;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::LogicalPlan;
use rolloutdb_catalogs::Table;
use rolloutdb_sql::Train;
use serde_json::{Map, Value as Json, json};

use super::checkpoints::build;
use super::report::Outcome;
use super::run::Counts;
use super::task::Method;
use crate::engine::apply::Apply;
use crate::engine::database::Shared;
use crate::engine::lineage::{STANDS_ON, Sources, Thing, add, of_policy, statement_text};
use crate::engine::privileges::relations::stored_table;
use crate::error::Result;
use crate::models::ModelInfo;
use crate::training::Trained;

/// What queries read: the versions of tables, by `schema.table`, and all the rest.
#[derive(Debug, Clone, Default)]
pub struct TableVersions {
    versions: BTreeMap<String, BTreeSet<u64>>,
    pub sources: Sources,
}

impl TableVersions {
    /// # Errors
    /// Of a plan that cannot be walked.
    pub fn add(&mut self, plan: &LogicalPlan) -> Result<()> {
        self.sources.add(plan)?;
        plan.apply_with_subqueries(|node| {
            match node {
                LogicalPlan::TableScan(scan) => {
                    let provider = source_as_provider(&scan.source)?;
                    stored_table(&provider).into_iter().for_each(|table| self.add_table(table));
                }
                LogicalPlan::Extension(extension) => {
                    let searched = extension.node.as_any().downcast_ref::<Apply>().and_then(|apply| apply.function.tables());
                    searched.iter().flatten().for_each(|table| self.add_table(table));
                }
                _ => {}
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(())
    }

    fn add_table(&mut self, table: &Table) {
        self.versions.entry(format!("{}.{}", table.schema_name(), table.name())).or_default().insert(table.version());
    }

    /// A number for each table; a list of numbers where several versions were read.
    fn to_json(&self) -> Json {
        let versions = |versions: &BTreeSet<u64>| match versions.first() {
            Some(version) if versions.len() == 1 => json!(version),
            _ => json!(versions),
        };
        self.versions.iter().map(|(name, found)| (name.clone(), versions(found))).collect::<Map<_, _>>().into()
    }
}

/// Digits of the program's checksum that are shown.
const BUILD_DIGITS: usize = 16;

/// What a training was asked for, and over what.
pub struct Origin {
    statement: Json,
    tables: TableVersions,
}

impl Origin {
    pub fn new(train: &Train, base: &ModelInfo, method: &Method, tables: TableVersions) -> Self {
        Self::with_options(train, base, &method.in_force(), method.run().seed, tables)
    }

    /// As [`Self::new`], of a method whose options in force are these.
    pub fn with_options(train: &Train, base: &ModelInfo, options: &Json, seed: u64, tables: TableVersions) -> Self {
        let statement = json!({
            "statement": statement_text(train),
            "method": train.method.to_string(),
            "base": base.reference(),
            "options": options,
            "seed": seed,
            "rolloutdb_version": env!("CARGO_PKG_VERSION"),
        });
        Self { statement, tables }
    }

    /// With the values of `$1 ...` in the statement.
    #[must_use]
    pub fn bound(self, parameters: &[ScalarValue]) -> Self {
        if parameters.is_empty() {
            return self;
        }
        let values: Vec<String> = parameters.iter().map(ToString::to_string).collect();
        self.and("parameters", json!(values))
    }

    /// With all that the training stands on: the base, what its queries read, `more`.
    ///
    /// # Errors
    /// [`crate::error::Error::Catalog`] of a table whose lineage cannot be read.
    pub async fn standing(self, shared: &Shared, base: &ModelInfo, more: Vec<Thing>) -> Result<Self> {
        let mut things = of_policy(&shared.registry, &base.reference());
        add(&mut things, self.tables.sources.all_things(shared).await?);
        add(&mut things, more);
        Ok(self.and(STANDS_ON, json!(things)))
    }

    /// With something else that was asked for.
    #[must_use]
    pub fn and(mut self, name: &str, value: Json) -> Self {
        self.statement[name] = value;
        self
    }

    /// With what came of it.
    pub fn lineage(&self, counts: Counts, trained: &Trained, outcome: &Outcome, seconds: f64) -> Json {
        let mut lineage = self.statement.clone();
        let found = json!({
            // Known by now: the run asked for it on its thread.
            "build": build().get(..BUILD_DIGITS),
            "tables": self.tables.to_json(),
            "examples": counts.examples,
            "validation_examples": counts.validation_examples,
            "truncated": counts.truncated,
            "documents_truncated": counts.documents_truncated,
            "references_taken": counts.references_taken,
            "dropped": counts.dropped,
            "steps": outcome.steps,
            "final_loss": outcome.loss,
            "resumed_at": trained.resumed_at,
            "best_step": trained.best_step,
            "stopped_early": trained.stopped_early,
            "seconds": seconds,
            "run": outcome.run.as_ref().map(|run| &run.name),
            "warnings": (!outcome.warnings.is_empty()).then_some(&outcome.warnings),
        });
        if let (Json::Object(lineage), Json::Object(found)) = (&mut lineage, found) {
            lineage.extend(found.into_iter().filter(|(_, value)| !value.is_null()));
        }
        lineage
    }
}

/// What a run hangs on beside its examples: the name of the model too, so that two names never wait for each other. `created_at_ms`: a version that was dropped
/// and made anew is another.
pub fn identity(train: &Train, base: &ModelInfo, method: &Method) -> Json {
    identity_of(train, base, &method.in_force())
}

/// As [`identity`], of a method whose options in force are these.
pub fn identity_of(train: &Train, base: &ModelInfo, options: &Json) -> Json {
    json!({
        "method": train.method.to_string(),
        "model": train.model,
        "base": base.reference(),
        "created_at_ms": base.created_at_ms,
        "options": options,
    })
}
