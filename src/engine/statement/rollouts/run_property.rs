//! How the trees of a table were made, kept with it: a table holds trees of one kind.

use rolloutdb_catalogs::Table;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};

use crate::agent::{Agent, AgentOptions, SearchOptions};
use crate::error::{Error, Result};

/// The table's property that says how its trees were made.
const RUN_PROPERTY: &str = "run";

/// Everything that shapes a tree, as JSON: the policy's version, the agent's options, the search's, in which models are named with their
/// versions. Concurrency does not.
pub fn run_property(agent: &Agent, options: &AgentOptions, search: &SearchOptions) -> Json {
    let (policy, version) = agent.policy.reference();
    // A tag may move.
    let corpus_version = options.corpus_version.as_ref().map(|_| agent.retriever.corpus_version().to_string());
    let agent = AgentOptions { policy: format!("{policy}@{version}"), corpus_version, ..options.clone() };
    let search = SearchOptions { concurrency: 0, ..search.clone() };
    json!({ "agent": agent, "search": search })
}

/// The options are kept with the table by the first statement and compared by the next ones.
///
/// # Errors
/// [`Error::NotReady`] naming what differs.
pub async fn check_run(table: &Table, wanted: &Json) -> Result<()> {
    let Some(found) = table.property(RUN_PROPERTY).and_then(|text| serde_json::from_str::<Json>(text).ok()) else {
        return Ok(table.set_property(RUN_PROPERTY, &wanted.to_string()).await?);
    };
    let differences = differences(found, wanted);
    if differences.is_empty() {
        return Ok(());
    }
    Err(Error::NotReady(format!(
        "the rollouts in {} were made with {}; use another table, or the same options to go on",
        table.name(),
        differences.join(", ")
    )))
}

fn differences(found: Json, wanted: &Json) -> Vec<String> {
    let found =
        json!({ "agent": with_defaults::<AgentOptions>(&found["agent"]), "search": with_defaults::<SearchOptions>(&found["search"]) });
    let mut differences = Vec::new();
    for part in ["agent", "search"] {
        for (name, now) in wanted[part].as_object().into_iter().flatten() {
            if &found[part][name] != now {
                differences.push(format!("{name} = {} (now {now})", found[part][name]));
            }
        }
    }
    differences
}

/// Options that the version which made the table did not have were as they are by default.
fn with_defaults<T: DeserializeOwned + Serialize>(found: &Json) -> Json {
    let read: Option<T> = serde_json::from_value(found.clone()).ok();
    read.and_then(|options| serde_json::to_value(options).ok()).unwrap_or_else(|| found.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_came_later_are_as_they_are_by_default() {
        let agent = AgentOptions::default();
        let wanted = |search: SearchOptions| json!({ "agent": agent, "search": SearchOptions { concurrency: 0, ..search } });
        let older = || json!({ "agent": { "policy": "" }, "search": { "simulations": 64, "exploration": std::f64::consts::SQRT_2, "concurrency": 0 } });
        assert_eq!(differences(older(), &wanted(SearchOptions::default())), Vec::<String>::new());
        let parallel = SearchOptions { parallel: 4, ..SearchOptions::default() };
        assert_eq!(differences(older(), &wanted(parallel)), ["parallel = 1 (now 4)"]);
    }
}
