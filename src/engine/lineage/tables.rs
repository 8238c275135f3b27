//! Tables, runs and agents with what they stand on.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr as SqlExpr, Value, Visit, Visitor};
use rolloutdb_catalogs::{Table, TableLineage};
use serde_json::Value as Json;

use super::{Kind, Made, Thing, add, deeper, in_force, of_policy, shown_name};
use crate::agent::AgentOptions;
use crate::engine::AgentDefinition;
use crate::engine::apply::Asked;
use crate::engine::apply::planner::split_table_name;
use crate::engine::database::Shared;
use crate::engine::statement::{expression, run_property_of};
use crate::engine::versions;
use crate::error::{Error, Result};
use crate::models::Registry;

/// A version of a table, then what its rows stand on.
///
/// # Errors
/// [`Error::Catalog`] if its lineage cannot be read.
pub fn of_table(registry: &Registry, table: &Table) -> Result<Vec<Thing>> {
    let TableLineage { id, records } = table.lineage()?;
    let records = in_force(&records, table.version());
    let run = records.iter().rev().find(|record| record.made == Made::Run);
    let before_records = if run.is_none() { run_property_of(table) } else { None };
    let kind = if run.is_some() || before_records.is_some() { Kind::Run } else { Kind::Table };
    let seed = |options: &Json| options["search"]["seed"].as_i64();
    let mut statements: Vec<&str> = records.iter().map(|record| record.statement.as_str()).filter(|text| !text.is_empty()).collect();
    statements.dedup();
    let mut things = vec![Thing {
        version: Some(table.version()),
        id,
        seed: run.and_then(|run| run.seed).or_else(|| before_records.as_ref().and_then(seed)),
        options: run.and_then(|run| run.options.clone()).or(before_records),
        statement: (!statements.is_empty()).then(|| statements.join(";\n")),
        ..Thing::new(kind, shown_name(table.schema_name(), table.name()))
    }];
    for record in records {
        add(&mut things, record.stands_on);
    }
    for model in pinned_models(table)? {
        add(&mut things, of_policy(registry, &model));
    }
    Ok(things)
}

/// The same, as what names the table has it: the table has a name that lasts then.
///
/// # Errors
/// As [`of_table`].
pub fn named_table(registry: &Registry, table: &Table) -> Result<Vec<Thing>> {
    let id = table.lasting_id()?;
    let mut things = of_table(registry, table)?;
    for thing in &mut things {
        match (thing.depth, thing.kind) {
            (0, _) => thing.id = Some(id.clone()),
            (_, Kind::File) => thing.via = thing.via.take().or_else(|| Some(id.clone())),
            _ => {}
        }
    }
    Ok(deeper(things))
}

/// A table by the name that an agent's options have for it; its newest version if none is given. `None`: it is not there.
pub async fn table_at(shared: &Shared, name: &str, version: Option<u64>) -> Option<Table> {
    let (schema, name) = split_table_name(name);
    let table = shared.catalog.table(&schema, &name).await.ok()?;
    match version {
        Some(version) => table.at_version(version).await.ok(),
        None => Some(table.as_ref().clone()),
    }
}

/// What trajectories stand on: an agent, its corpus, its policy, its prompts. `prompts`: the digest of their texts, if it is known.
///
/// # Errors
/// As [`of_table`].
pub async fn acting(shared: &Shared, asked: &Asked, prompts: Option<&str>) -> Result<Vec<Thing>> {
    let Asked { agent, options, policy, corpus_version } = asked;
    let mut things = vec![Thing { depth: 1, ..itself(agent, options)? }];
    match table_at(shared, &options.corpus, Some(*corpus_version)).await {
        Some(table) => add(&mut things, named_table(&shared.registry, &table)?),
        None => things.push(Thing { version: Some(*corpus_version), depth: 1, ..Thing::new(Kind::Table, options.corpus.clone()) }),
    }
    add(&mut things, of_policy(&shared.registry, policy));
    if let Some(digest) = prompts {
        add(&mut things, vec![Thing { digest: Some(digest.to_owned()), depth: 1, ..Thing::new(Kind::Prompts, options.prompts.clone()) }]);
    }
    Ok(things)
}

/// An agent, then what it would answer with now.
///
/// # Errors
/// As [`of_table`].
pub async fn of_agent(shared: &Shared, agent: &AgentDefinition) -> Result<Vec<Thing>> {
    let options = &agent.options;
    let mut things = vec![itself(&agent.name, options)?];
    let mut corpus = table_at(shared, &options.corpus, None).await;
    if let (Some(table), Some(version)) = (&corpus, &options.corpus_version) {
        corpus = versions::named(table, version).await.ok();
    }
    match corpus {
        Some(table) => add(&mut things, named_table(&shared.registry, &table)?),
        None => {
            let version = options.corpus_version.as_ref().and_then(|version| version.parse().ok());
            things.push(Thing { version, depth: 1, ..Thing::new(Kind::Table, options.corpus.clone()) });
        }
    }
    add(&mut things, of_policy(&shared.registry, &options.policy));
    Ok(things)
}

fn itself(agent: &str, options: &AgentOptions) -> Result<Thing> {
    let json = serde_json::to_value(options).map_err(|error| Error::Internal(error.to_string()))?;
    Ok(Thing { options: Some(json), seed: Some(options.seed), ..Thing::new(Kind::Agent, agent) })
}

/// The models that compute its generated columns, which name their versions.
fn pinned_models(table: &Table) -> Result<BTreeSet<String>> {
    let mut found = References::default();
    for text in table.definition().generated.values() {
        let _ = expression(text)?.visit(&mut found);
    }
    Ok(found.0)
}

#[derive(Default)]
struct References(BTreeSet<String>);

impl Visitor for References {
    type Break = ();

    fn pre_visit_expr(&mut self, expression: &SqlExpr) -> ControlFlow<()> {
        if let SqlExpr::Value(value) = expression
            && let Value::SingleQuotedString(text) = &value.value
            && text.split_once('@').is_some_and(|(_, version)| version.parse::<u32>().is_ok())
        {
            self.0.insert(text.clone());
        }
        ControlFlow::Continue(())
    }
}
