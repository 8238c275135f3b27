//! Who names which version of which table: agents by number, runs and evaluations by what they read, models by what they were trained on.

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use datafusion::prelude::SessionContext;
use futures::TryStreamExt;
use rolloutdb_catalogs::{NamedLineage, Table};

use super::{Kind, Made, Record, Thing, in_force, of_model, shown_name};
use crate::engine::apply::planner::split_table_name;
use crate::engine::database::Shared;
use crate::engine::statement::run_property_of;
use crate::error::Result;

/// The versions of a table that something names, with those that do: `agent qa`.
pub type Named = BTreeMap<u64, BTreeSet<String>>;

/// All that is named in a database, at one moment.
#[derive(Debug, Default)]
pub struct Holds(Vec<Hold>);

#[derive(Debug)]
struct Hold {
    holder: String,
    table: HeldTable,
    version: u64,
}

#[derive(Debug, PartialEq)]
enum HeldTable {
    /// What it goes by over new names.
    Lasting(String),
    /// Schema and name, where nobody noted more.
    Named(String, String),
}

impl Holds {
    /// # Errors
    /// Of a model or a lineage that cannot be read: what it names is not known then.
    pub async fn of(shared: &Shared) -> Result<Self> {
        let mut holds = Self::default();
        holds.add_agents(shared);
        for model in shared.registry.list()? {
            let things = of_model(&shared.registry, &model);
            holds.add(&format!("model {}", model.reference()), &things);
        }
        for named in shared.catalog.lineages()? {
            holds.add_table(&named);
        }
        holds.add_earlier_runs(shared).await?;
        Ok(holds)
    }

    /// # Errors
    /// Of a lineage that cannot be read.
    pub fn on(&self, table: &Table) -> Result<Named> {
        let id = table.lineage()?.id;
        let by_name = HeldTable::Named(table.schema_name().to_owned(), table.name().to_owned());
        let mut named = Named::new();
        for hold in &self.0 {
            let is_meant = match &hold.table {
                HeldTable::Lasting(held) => Some(held) == id.as_ref(),
                named => *named == by_name,
            };
            if is_meant {
                named.entry(hold.version).or_default().insert(hold.holder.clone());
            }
        }
        Ok(named)
    }

    /// A tag needs no help: it keeps its version itself.
    fn add_agents(&mut self, shared: &Shared) {
        for agent in shared.agents.list() {
            let Some(version) = agent.options.corpus_version.as_ref().and_then(|version| version.parse().ok()) else { continue };
            let table = match agent.corpus_id {
                Some(id) => HeldTable::Lasting(id),
                None => by_name(&agent.options.corpus),
            };
            self.0.push(Hold { holder: format!("agent {}", agent.name), table, version });
        }
    }

    fn add_table(&mut self, NamedLineage { schema, table, lineage }: &NamedLineage) {
        for Record { made, stands_on, .. } in in_force(&lineage.records, u64::MAX).into_iter().filter(Record::holds) {
            let kind = if made == Made::Run { "run" } else { "table" };
            self.add(&format!("{kind} {}", shown_name(schema, table)), &stands_on);
        }
    }

    /// What is named directly: what that names in turn is held by itself.
    fn add(&mut self, holder: &str, things: &[Thing]) {
        for thing in things.iter().filter(|thing| thing.depth == 1 && thing.is_table()) {
            let Some(version) = thing.version else { continue };
            let table = thing.id.clone().map_or_else(|| by_name(&thing.name), HeldTable::Lasting);
            self.0.push(Hold { holder: holder.to_owned(), table, version });
        }
    }

    /// Runs that an earlier version of this program began: their rows say which versions they searched. One that cannot be read holds nothing.
    async fn add_earlier_runs(&mut self, shared: &Shared) -> Result<()> {
        for table in shared.catalog.readable_tables().await {
            let Some(property) = run_property_of(&table) else { continue };
            let is_noted = in_force(&table.lineage()?.records, u64::MAX).iter().any(|record| record.made == Made::Run);
            let Some(corpus) = property["agent"]["corpus"].as_str().filter(|_| !is_noted) else { continue };
            for version in searched_versions(&table).await.unwrap_or_default() {
                let holder = format!("{} {}", Kind::Run.name(), shown_name(table.schema_name(), table.name()));
                self.0.push(Hold { holder, table: by_name(corpus), version });
            }
        }
        Ok(())
    }
}

fn by_name(name: &str) -> HeldTable {
    let (schema, name) = split_table_name(name);
    HeldTable::Named(schema, name)
}

/// The versions of the corpus that the trees of a run were made with.
///
/// # Errors
/// Those of reading them.
pub async fn searched_versions(table: &Table) -> Result<BTreeSet<u64>> {
    let rows = SessionContext::new().read_table(std::sync::Arc::new(table.clone()))?.select_columns(&["corpus_version"])?;
    let batches: Vec<_> = rows.distinct()?.execute_stream().await?.try_collect().await?;
    let versions = batches.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().iter().flatten().collect::<Vec<_>>());
    Ok(versions.filter_map(|version| u64::try_from(version).ok()).collect())
}

/// `agent qa (3), run run1 (3), model better@1 (5)`: who names what, for messages.
pub fn holders(named: &Named, versions: &BTreeSet<u64>) -> String {
    let mut by_holder: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (version, holders) in named.iter().filter(|(version, _)| versions.contains(version)) {
        holders.iter().for_each(|holder| by_holder.entry(holder).or_default().push(version.to_string()));
    }
    let holders: Vec<String> = by_holder.iter().map(|(holder, versions)| format!("{holder} ({})", versions.join(", "))).collect();
    holders.join(", ")
}
