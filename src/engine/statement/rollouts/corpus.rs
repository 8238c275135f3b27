//! Which version of the corpus a run searches: the one that it began with, whatever was written since.

use std::fmt::Display;
use std::sync::Arc;

use rolloutdb_catalogs::Table;
use serde_json::{Value as Json, json};

use super::run_property::run_property_of;
use crate::agent::{Agent, AgentOptions, SearchOptions};
use crate::engine::apply::Asked;
use crate::engine::apply::planner::split_table_name;
use crate::engine::database::Shared;
use crate::engine::lineage::holds::searched_versions;
use crate::engine::lineage::{Kind, Made, Record, Sources, acting, add, in_force, of_policy};
use crate::engine::session::Session;
use crate::engine::versions;
use crate::error::{Error, Result};
use crate::value::Value;

/// The option that lets a run go on with another version than the one it began with.
pub const CORPUS_CHANGED: &str = "corpus_changed";
const ACCEPT: &str = "accept";

/// Reads `corpus_changed = 'accept'`.
///
/// # Errors
/// [`Error::InvalidParameter`] for any other value.
pub fn is_accepted(value: &Value) -> Result<bool> {
    match value {
        Value::Text(text) if text == ACCEPT => Ok(true),
        Value::Text(text) if text == "refuse" => Ok(false),
        other => Err(Error::InvalidParameter {
            name: CORPUS_CHANGED.to_owned(),
            found: other.to_string(),
            expected: "'accept', to go on with the corpus as it is now, or 'refuse'".to_owned(),
        }),
    }
}

/// What a run has searched so far.
struct Begun {
    /// `None`: an earlier version of this program kept only the number.
    table_id: Option<String>,
    version: u64,
}

/// The agent's options with the version of the corpus that a statement into `table` searches; `None` is the newest.
///
/// # Errors
/// [`Error::NotReady`] (55000) if the run has searched another version than the one that is named or there, unless that is accepted.
pub async fn held_to_its_version(
    session: &Session,
    table: Option<&Arc<Table>>,
    options: &AgentOptions,
    is_accepted: bool,
) -> Result<AgentOptions> {
    let shared = &session.database().shared;
    let Some(run) = table else { return Ok(options.clone()) };
    let Some(begun) = begun(run).await? else { return Ok(options.clone()) };
    let (schema, name) = split_table_name(&options.corpus);
    let corpus = shared.catalog.table(&schema, &name).await?;
    let named = match &options.corpus_version {
        // One that is gone is no other than the one that the run began with.
        Some(version) if !is_accepted && version.parse() == Ok(begun.version) => Some(begun.version),
        Some(version) => Some(versions::named(&corpus, version).await?.version()),
        None => None,
    };
    let is_same_table = begun.table_id.is_none() || corpus.lineage()?.id == begun.table_id;
    let is_there = is_same_table && corpus.at_version(begun.version).await.is_ok();
    if is_there && named.is_none_or(|named| named == begun.version) && !(is_accepted && named.is_none()) {
        return Ok(at(options, begun.version));
    }
    let now = named.unwrap_or_else(|| corpus.version());
    if is_accepted {
        if now != begun.version || !is_same_table {
            session.notices().warning(format!(
                "{}: its trees so far searched version {} of {}, and those to come version {now}, as corpus_changed = 'accept' allows; column corpus_version tells them apart",
                run.name(),
                begun.version,
                options.corpus
            ));
        }
        return Ok(at(options, now));
    }
    let (run, corpus, version) = (run.name(), &options.corpus, begun.version);
    let what = match (is_same_table, named) {
        (false, _) => format!("{corpus} is another table now than the one that it searched"),
        (true, Some(named)) if named != version => format!("the agent names version {named} of {corpus} now"),
        _ => format!("that version of {corpus} was removed"),
    };
    Err(Error::NotReady(format!(
        "run {run} began with version {version} of its corpus, and {what}; use another table, or WITH (corpus_changed = 'accept') to add trees of version {now}"
    )))
}

fn at(options: &AgentOptions, version: u64) -> AgentOptions {
    AgentOptions { corpus_version: Some(version.to_string()), ..options.clone() }
}

/// The last version that the run has searched; `None` for one that has not begun.
async fn begun(run: &Table) -> Result<Option<Begun>> {
    let records = in_force(&run.lineage()?.records, u64::MAX);
    let of_run = records.iter().rev().find(|record| record.made == Made::Run);
    if let Some(record) = of_run {
        let corpus = record.options.as_ref().and_then(|options| options[CORPUS].as_object());
        let number = corpus.and_then(|corpus| corpus.get("version")?.as_u64());
        let id = corpus.and_then(|corpus| Some(corpus.get("table_id")?.as_str()?.to_owned()));
        return Ok(number.map(|version| Begun { table_id: id, version }));
    }
    if run_property_of(run).is_none() {
        return Ok(None);
    }
    Ok(searched_versions(run).await?.last().map(|version| Begun { table_id: None, version: *version }))
}

/// The member of a run's options that says what is searched.
const CORPUS: &str = "corpus";

/// Notes with the table what its trees will stand on, before there are any: that is held from now on.
///
/// # Errors
/// [`Error::Catalog`] if it cannot be written.
pub async fn note(session: &Session, run: &Table, statement: &(dyn Display + Sync), agent: &Agent, of: RunOf<'_>) -> Result<()> {
    let shared = &session.database().shared;
    let mut record = Record::new(Made::Run, statement);
    let RunOf { name, options, search, property, questions } = of;
    let (policy, version) = agent.policy.reference();
    let corpus_version = agent.retriever.corpus_version();
    let asked = Asked { agent: name.to_owned(), options: options.clone(), policy: format!("{policy}@{version}"), corpus_version };
    add(&mut record.stands_on, acting(shared, &asked, property["prompts"].as_str()).await?);
    add(&mut record.stands_on, questions.all_things(shared).await?);
    for model in search.judge.iter().chain(&search.prm) {
        add(&mut record.stands_on, of_policy(&shared.registry, model));
    }
    record.options = Some(json!({
        "agent": name,
        "search": search,
        CORPUS: { "name": options.corpus, "version": corpus_version, "table_id": corpus_id(shared, options).await },
    }));
    record.seed = Some(search.seed);
    record.version = run.version();
    let is_known = |known: &Record| known.made == Made::Run && (&known.statement, &known.options) == (&record.statement, &record.options);
    if in_force(&run.lineage()?.records, u64::MAX).iter().any(|known| is_known(known) && same_things(known, &record)) {
        return Ok(());
    }
    Ok(run.note_lineage(&record.to_json(), Record::may_go)?)
}

/// What a run was asked for.
pub struct RunOf<'a> {
    /// Of the agent.
    pub name: &'a str,
    pub options: &'a AgentOptions,
    pub search: &'a SearchOptions,
    pub property: &'a Json,
    pub questions: &'a Sources,
}

async fn corpus_id(shared: &Shared, options: &AgentOptions) -> Option<String> {
    let (schema, name) = split_table_name(&options.corpus);
    shared.catalog.table(&schema, &name).await.ok()?.lasting_id().ok()
}

/// Whether two records name the same directly.
fn same_things(one: &Record, other: &Record) -> bool {
    let named = |record: &Record| -> Vec<(Kind, String, Option<u64>)> {
        record.stands_on.iter().filter(|thing| thing.depth == 1).map(|thing| (thing.kind, thing.name.clone(), thing.version)).collect()
    };
    named(one) == named(other)
}
