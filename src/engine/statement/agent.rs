//! CREATE AGENT, DROP AGENT, DESCRIBE AGENT.

use std::sync::Arc;

use arrow::array::{RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use rolloutdb_sql::{CreateAgent, DescribeAgent, DropAgent};

use super::{arrow, done, name, rows};
use crate::agent::AgentOptions;
use crate::engine::privileges::Object;
use crate::engine::session::{Response, Session};
use crate::engine::{binding, lineage, options};
use crate::error::{Error, Result};

/// Checks that everything the agent names exists, so that a misspelling is found here and not at its first question.
pub async fn create(session: &Session, create: &CreateAgent) -> Result<Response> {
    let shared = &session.database().shared;
    if create.if_not_exists && shared.agents.get(&create.name).is_ok() {
        session.notices().notice(format!("agent \"{}\" already exists, skipping", create.name));
        return Ok(done("CREATE AGENT"));
    }
    let mut agent = AgentOptions::default();
    for (name, value) in create.options.iter() {
        agent.set(name, &options::value(name, value)?)?;
    }
    agent.check_complete()?;
    crate::agent::protocol::protocol(&agent.protocol)?;
    let model = shared.registry.get(&agent.policy)?;
    if model.task != crate::models::Task::Generate {
        return Err(Error::InvalidParameter {
            name: "policy".to_owned(),
            found: format!("model {} of task {}", agent.policy, model.task),
            expected: "a model WITH (task = 'generate')".to_owned(),
        });
    }
    if shared.agents.get(&create.name).is_ok() {
        return Err(Error::DuplicateObject { kind: "agent", name: create.name.clone() });
    }
    binding::check(&agent, &shared.catalog, &shared.models).await?;
    session.access().require_parts(&agent)?;
    let object = Object::agent(&create.name);
    let _name = name::to_make(session, &object).await;
    let names_number = agent.corpus_version.as_ref().is_some_and(|version| version.parse::<u64>().is_ok());
    let corpus = if names_number { lineage::table_at(shared, &agent.corpus, None).await } else { None };
    let corpus_id = corpus.map(|corpus| corpus.lasting_id()).transpose()?;
    shared.agents.create(&create.name, agent, corpus_id)?;
    session.own(object)?;
    Ok(done("CREATE AGENT"))
}

pub async fn drop(session: &Session, drop: &DropAgent) -> Result<Response> {
    let shared = &session.database().shared;
    let agents = &shared.agents;
    let object = Object::agent(&drop.name);
    let _name = name::to_drop(session, &object).await?;
    if agents.remove(&drop.name)? {
        shared.privileges.forget(&object)?;
    } else {
        if !drop.if_exists {
            agents.get(&drop.name)?;
        }
        session.notices().notice(format!("agent \"{}\" does not exist, skipping", drop.name));
    }
    Ok(done("DROP AGENT"))
}

pub fn description_schema() -> SchemaRef {
    let text = |name: &str| Field::new(name, DataType::Utf8, false);
    Arc::new(Schema::new(vec![text("option"), text("value")]))
}

/// Each option with its value, defaults included.
pub fn describe(session: &Session, describe: &DescribeAgent) -> Result<Response> {
    let agent = session.database().shared.agents.get(&describe.name)?;
    let json = serde_json::to_value(&agent.options).map_err(|error| Error::Internal(error.to_string()))?;
    let text = |name: &str| match &json[name] {
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let names = StringArray::from_iter_values(AgentOptions::NAMES);
    let values = StringArray::from_iter_values(AgentOptions::NAMES.iter().map(|name| text(name)));
    Ok(rows("DESCRIBE", RecordBatch::try_new(description_schema(), vec![Arc::new(names), Arc::new(values)]).map_err(arrow)?))
}
