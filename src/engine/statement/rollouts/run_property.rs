//! How the trees of a table were made, kept with it: a table holds trees of one kind.

use ring::digest::{Context, SHA256};
use rolloutdb_catalogs::Table;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};

use crate::agent::{Agent, AgentOptions, Method, SearchOptions, Valuer};
use crate::error::{Error, Result};

/// The table's property that says how its trees were made.
const RUN_PROPERTY: &str = "run";

/// Everything that shapes a tree, as JSON: the policy's version, the agent's options, the search's, in which models are named with their
/// versions, and a hash of the prompts, since the texts of a set may change under its name. Concurrency does not.
pub fn run_property(agent: &Agent, options: &AgentOptions, search: &SearchOptions, valuer: &Valuer) -> Json {
    let prompts = prompts_hash(agent, valuer);
    let (policy, version) = agent.policy.reference();
    // A tag may move.
    let corpus_version = options.corpus_version.as_ref().map(|_| agent.retriever.corpus_version().to_string());
    let agent = AgentOptions { policy: format!("{policy}@{version}"), corpus_version, ..options.clone() };
    let search = SearchOptions { concurrency: 0, ..search.clone() };
    json!({ "agent": agent, "search": search, "prompts": prompts })
}

/// How the trees of a table were made; `None` for a table that is none of rollouts, or that does not say.
pub fn run_property_of(table: &Table) -> Option<Json> {
    serde_json::from_str(table.property(RUN_PROPERTY)?).ok()
}

/// The protocol of the agent that made the trees of a table; None if the table does not say, as a copy of one does not.
pub fn protocol_of(table: &Table) -> Option<String> {
    let found = run_property_of(table)?;
    serde_json::from_value::<AgentOptions>(found["agent"].clone()).ok().map(|agent| agent.protocol)
}

/// How many simulations each tree of a table was to have; `None` if the table does not say, or its trajectories are sampled, which are never fewer.
pub fn simulations_of(table: &Table) -> Option<u64> {
    let found = run_property_of(table)?;
    let search = serde_json::from_value::<SearchOptions>(found["search"].clone()).ok()?;
    (search.method == Method::Mcts).then_some(search.simulations as u64)
}

/// SHA-256 of the texts that models are shown: the templates of the agent's set, and the judge's.
fn prompts_hash(agent: &Agent, valuer: &Valuer) -> String {
    let mut context = Context::new(&SHA256);
    let mut update = |state: &str, text: &str| {
        // The length keeps apart what stands one after the other.
        context.update(format!("{state} {} ", text.len()).as_bytes());
        context.update(text.as_bytes());
    };
    agent.prompts.texts().for_each(|(state, text)| update(state.as_str(), text));
    if let Valuer::Judge(judge) = valuer {
        update("judge", judge.template());
    }
    context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The options are kept with the table by the first statement and compared by the next ones.
///
/// # Errors
/// [`Error::NotReady`] naming what differs.
pub async fn check_run(table: &Table, wanted: &Json) -> Result<()> {
    let Some(found) = run_property_of(table) else {
        return Ok(table.set_property(RUN_PROPERTY, &wanted.to_string()).await?);
    };
    let differences = differences(found, wanted);
    if differences.is_empty() {
        return Ok(());
    }
    let (name, differences) = (table.name(), differences.join(", "));
    Err(Error::NotReady(match table.row_count().await? {
        0 => format!(
            "{name} was begun with {differences} and has no rows yet; DROP TABLE {name} to begin anew, or use the same options and prompts to go on"
        ),
        _ => format!("the rollouts in {name} were made with {differences}; use another table, or the same options and prompts to go on"),
    }))
}

fn differences(found: Json, wanted: &Json) -> Vec<String> {
    // A run of a version that kept no hash goes on as it did then.
    let has_other_prompts = found["prompts"].is_string() && found["prompts"] != wanted["prompts"];
    let found =
        json!({ "agent": with_defaults::<AgentOptions>(&found["agent"]), "search": with_defaults::<SearchOptions>(&found["search"]) });
    let mut differences = Vec::new();
    for part in ["agent", "search"] {
        for (name, now) in wanted[part].as_object().into_iter().flatten() {
            // What is searched is compared by itself, with the table's own record.
            if name != "corpus_version" && &found[part][name] != now {
                differences.push(format!("{name} = {} (now {now})", found[part][name]));
            }
        }
    }
    // With another set, or another prompt for the judge, the texts are others too; that is said already.
    let is_said =
        |difference: &String| ["prompts = ", "protocol = ", "value = ", "judge_prompt = "].iter().any(|name| difference.starts_with(name));
    if has_other_prompts && !differences.iter().any(is_said) {
        differences.push(format!("other texts of the prompts {} than rollout.prompts has now", wanted["agent"]["prompts"]));
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

    #[test]
    fn texts_of_prompts_are_compared_where_they_are_known() {
        let run = |prompts: &str, hash: Json| {
            let agent = AgentOptions { prompts: prompts.to_owned(), ..AgentOptions::default() };
            json!({ "agent": agent, "search": SearchOptions::default(), "prompts": hash })
        };
        let now = run("short", json!("5e"));
        assert_eq!(differences(run("short", json!("5e")), &now), Vec::<String>::new());
        assert_eq!(differences(run("short", json!("c1")), &now), [r#"other texts of the prompts "short" than rollout.prompts has now"#]);
        assert_eq!(differences(run("mine", json!("c1")), &now), [r#"prompts = "mine" (now "short")"#]);
        assert_eq!(differences(run("short", Json::Null), &now), Vec::<String>::new(), "an older run");
    }
}
