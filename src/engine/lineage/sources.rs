//! What a query reads: tables at their versions, files, agents, models.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::LogicalPlan;
use rolloutdb_catalogs::{Table, system};

use super::digests::Digests;
use super::{Kind, Thing, acting, add, named_table, of_policy};
use crate::engine::apply::{Apply, ApplyFunction};
use crate::engine::database::Shared;
use crate::engine::files::ReadFiles;
use crate::engine::privileges::relations::{named_model, stored_table};
use crate::error::Result;

/// Gathered of the plans of a statement, before they run.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    tables: Vec<Table>,
    files: Vec<ReadFiles>,
    /// Functions in FROM that rows come from.
    calls: Vec<Arc<dyn ApplyFunction>>,
    /// Names of models that expressions call.
    models: BTreeSet<String>,
}

impl Sources {
    /// # Errors
    /// Of a plan that cannot be walked.
    pub fn add(&mut self, plan: &LogicalPlan) -> Result<()> {
        plan.apply_with_subqueries(|node| {
            match node {
                LogicalPlan::TableScan(scan) => {
                    let provider = source_as_provider(&scan.source)?;
                    if let Some(files) = ReadFiles::of(&provider) {
                        self.files.push(files.clone());
                    } else if let Some(table) = stored_table(&provider) {
                        self.add_table(table);
                    } else if let Some(plan) = provider.get_logical_plan() {
                        self.add(&plan).map_err(datafusion::error::DataFusionError::from)?;
                    }
                }
                LogicalPlan::Extension(extension) => {
                    if let Some(apply) = extension.node.as_any().downcast_ref::<Apply>() {
                        apply.function.tables().iter().flatten().for_each(|table| self.add_table(table));
                        self.calls.extend(Some(&apply.function).filter(|function| function.is_source()).cloned());
                    }
                }
                // Thousands of constants, which are looked through for nothing.
                LogicalPlan::Values(_) => return Ok(TreeNodeRecursion::Continue),
                _ => {}
            }
            node.apply_expressions(|expression| {
                expression.apply(|inner| {
                    self.models.extend(named_model(inner));
                    Ok(TreeNodeRecursion::Continue)
                })
            })
        })?;
        Ok(())
    }

    fn add_table(&mut self, table: &Table) {
        let is_known = |known: &Table| known.identity() == table.identity() && known.version() == table.version();
        if table.schema_name() != system::SYSTEM_SCHEMA && !self.tables.iter().any(is_known) {
            self.tables.push(table.clone());
        }
    }

    /// Without a table that the statement writes to itself.
    #[must_use]
    pub fn without(mut self, target: &Table) -> Self {
        self.tables.retain(|table| table.identity() != target.identity());
        self
    }

    /// Whether nothing comes from anywhere.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty() && self.files.is_empty() && self.calls.is_empty()
    }

    /// Whether an agent or a search gives rows.
    pub fn is_evaluation(&self) -> bool {
        self.calls.iter().any(|call| call.retrieves())
    }

    pub fn files(&self) -> &[ReadFiles] {
        &self.files
    }

    /// All that was read, files with what is in them now: of those that have changed since, no digest.
    ///
    /// # Errors
    /// As [`Self::things`].
    pub async fn all_things(&self, shared: &Shared) -> Result<Vec<Thing>> {
        let mut things = Digests::begin(self.files.clone()).finish().await;
        add(&mut things, self.things(shared).await?);
        Ok(things)
    }

    /// All that was read but for files, and what it stands on in turn. What agents read is known when they have run.
    ///
    /// # Errors
    /// [`crate::error::Error::Catalog`] of a table whose lineage cannot be read.
    pub async fn things(&self, shared: &Shared) -> Result<Vec<Thing>> {
        let mut things = Vec::new();
        for table in &self.tables {
            add(&mut things, named_table(&shared.registry, table)?);
        }
        for call in &self.calls {
            let Some(agent) = call.agent() else { continue };
            match call.asked() {
                Some(asked) => add(&mut things, acting(shared, &asked, None).await?),
                None => add(&mut things, vec![Thing { depth: 1, ..Thing::new(Kind::Agent, agent) }]),
            }
        }
        for model in &self.models {
            add(&mut things, of_policy(&shared.registry, model));
        }
        Ok(things)
    }
}
