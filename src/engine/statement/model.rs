//! CREATE MODEL, DROP MODEL, DESCRIBE MODEL.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::ScalarValue;
use futures::TryStreamExt;
use rolloutdb_sql::{CreateModel, Dependents, DescribeModel, DropModel, OptionValue, UnloadModel};
use tokio::sync::oneshot;

use super::{arrow, done, hub_model, name, rows};
use crate::engine::lineage::without_stands_on;
use crate::engine::options;
use crate::engine::pinned_models;
use crate::engine::planning::plan_query;
use crate::engine::privileges::Object;
use crate::engine::session::{Response, Session};
use crate::error::{Error, Result};
use crate::models::adapted::{AdapterBase, is_adapter};
use crate::models::chat_template::CHAT_TEMPLATE_KWARGS;
use crate::models::gguf;
use crate::models::registry::ModelFiles;
use crate::models::remote::RemoteOptions;
use crate::models::{self, EmbedderSettings, EncoderConfig, ModelInfo, Task};
use crate::value::Value;

/// The option that names the model that adapters belong to.
const BASE: &str = "base";

pub async fn create(session: &Session, create: &CreateModel, parameters: &[ScalarValue]) -> Result<Response> {
    let shared = &session.database().shared;
    if create.if_not_exists && shared.registry.get(&create.name).is_ok() {
        session.notices().notice(format!("model \"{}\" already exists, skipping", create.name));
        return Ok(done("CREATE MODEL"));
    }
    let (mut values, mut task, mut device) = (Vec::new(), None, models::Device::Auto);
    for (name, value) in create.options.iter() {
        match (name, option_value(name, value)?) {
            ("task", Value::Text(text)) => task = Some(task_named(&text)?),
            ("device", Value::Text(text)) => device = text.parse()?,
            ("task" | "device", other) => {
                let expected = "a text, as in task = 'embed', device = 'cpu'".to_owned();
                return Err(Error::InvalidParameter { name: name.to_owned(), found: other.to_string(), expected });
            }
            (_, value) => values.push((name.to_owned(), value)),
        }
    }
    let texts = texts(session, create, parameters).await?;
    let (name, source) = (create.name.clone(), create.source.clone());
    let mut request = models::CreateModel { name, source, task, device, options: values, texts };
    let registry = Arc::clone(&shared.registry);
    let gate = session.gate();
    let (mut directory, mut snapshot, mut adapters) = (None, None, None);
    match files_of(&create.source) {
        Files::Inside => {}
        Files::Directory => {
            let (folder, file) = gate.read_directory(&create.source)?;
            adapters = adapters_of(&mut request, &folder, file.is_none())?;
            directory = Some(folder);
            request.options.extend(file.map(|file| (gguf::OPTION.to_owned(), Value::Text(file))));
        }
        Files::Server => check_server(session, &request)?,
        Files::Hub => snapshot = Some(Box::pin(hub_model::fetch(session, &request)).await?),
        Files::Elsewhere => {
            gate.outbound().check(&create.source)?;
        }
    }
    // Copying weights and training a tokenizer take seconds of file and processor time. The receiver goes with the statement: if that is dropped, what
    // still runs makes no model.
    let (sender, _statement) = oneshot::channel::<()>();
    let object = Object::model(&create.name);
    let lock = name::to_make(session, &object).await;
    let maker = session.clone();
    let work = move || {
        // Here, since a statement that is cancelled now ends before this does.
        let _name = lock;
        let is_cancelled = || sender.is_closed();
        if let Some(snapshot) = snapshot {
            let staged = registry.stage()?;
            snapshot.place(staged.path())?;
            registry.create_staged(request, staged, snapshot.source(), &is_cancelled)?;
        } else {
            let open = |path: &Path| gate.open(path);
            let files = directory.as_deref().map(|directory| ModelFiles { directory, open: &open });
            match (adapters, files) {
                (Some(Adapters { base }), Some(files)) => {
                    let may_use = |base: &ModelInfo| maker.access().require_model(&base.name);
                    let base = AdapterBase { name: base.as_deref(), may_use: &may_use };
                    registry.create_adapted(request, files, base, &is_cancelled)?;
                }
                (_, files) => {
                    registry.create_unless(request, files, &is_cancelled)?;
                }
            }
        }
        maker.own(object)
    };
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::Internal(error.to_string()))??;
    Ok(done("CREATE MODEL"))
}

/// Where the files of a model come from.
enum Files {
    /// This program has or makes them.
    Inside,
    /// A directory of the server.
    Directory,
    /// There are none: a server answers.
    Server,
    /// A hub, from which they are fetched.
    Hub,
    /// Another host.
    Elsewhere,
}

fn files_of(source: &str) -> Files {
    match source.split_once("://") {
        None => Files::Directory,
        Some((scheme, _)) if scheme.eq_ignore_ascii_case("file") => Files::Directory,
        Some(("builtin" | "random", _)) => Files::Inside,
        Some(("openai", _)) => Files::Server,
        Some(("hf", _)) => Files::Hub,
        Some(_) => Files::Elsewhere,
    }
}

/// A directory of adapters, and the model that the statement says they belong to.
struct Adapters {
    base: Option<String>,
}

/// Whether the files of a directory are adapters. Their base is taken out of the options.
///
/// # Errors
/// [`Error::InvalidParameter`] for a base of something else, [`Error::WrongType`] for one that is no text.
fn adapters_of(request: &mut models::CreateModel, folder: &Path, is_whole: bool) -> Result<Option<Adapters>> {
    let position = request.options.iter().position(|(name, _)| name == BASE);
    let base = position.map(|position| request.options.remove(position).1);
    match (is_whole && is_adapter(folder), base) {
        (true, None) => Ok(Some(Adapters { base: None })),
        (true, Some(Value::Text(base))) => Ok(Some(Adapters { base: Some(base) })),
        (true, Some(other)) => {
            let expected = "the name of a model, as in base = 'policy'".to_owned();
            Err(Error::WrongType { what: format!("option {BASE}"), found: other.to_string(), expected })
        }
        (false, Some(base)) => {
            let expected = "a directory of adapters with it, which has adapter_config.json".to_owned();
            Err(Error::InvalidParameter { name: BASE.to_owned(), found: base.to_string(), expected })
        }
        (false, None) => Ok(None),
    }
}

/// A single value; several base URLs may be a list.
fn option_value(name: &str, value: &OptionValue) -> Result<Value> {
    let OptionValue::List(values) = value else { return options::value(name, value) };
    let text = |value: &OptionValue| if let OptionValue::Text(text) = value { Some(text.clone()) } else { None };
    let texts: Option<Vec<String>> = values.iter().map(text).collect();
    match texts {
        Some(texts) if name == "base_url" => Ok(Value::Text(texts.join(","))),
        _ => options::value(name, value),
    }
}

/// Whether the servers of a remote model may be asked, with the secret that it names: its value goes to them.
fn check_server(session: &Session, create: &models::CreateModel) -> Result<()> {
    let options = RemoteOptions::read(&create.source, &create.options)?;
    if let Some(secret) = &options.secret {
        session.access().require_superuser("a model with a secret of the server")?;
        let secrets = &session.database().shared.secrets;
        if !secrets.contains(secret) {
            return Err(secrets.unknown(secret));
        }
    }
    let gate = session.gate();
    options.base_urls.iter().try_for_each(|url| gate.outbound().check(url).map(|_| ()))
}

fn task_named(text: &str) -> Result<Task> {
    match text {
        "generate" => Ok(Task::Generate),
        "embed" => Ok(Task::Embed),
        "rerank" => Ok(Task::Rerank),
        other => Err(Error::InvalidParameter {
            name: "task".to_owned(),
            found: format!("'{other}'"),
            expected: "'generate', 'embed' or 'rerank'".to_owned(),
        }),
    }
}

/// The first column of the USING query: the texts that a tokenizer is trained on.
async fn texts(session: &Session, create: &CreateModel, parameters: &[ScalarValue]) -> Result<Vec<String>> {
    let Some(query) = &create.using else { return Ok(vec![]) };
    let mut stream = plan_query(session, query, parameters).await?.stream().await?;
    let mut texts = Vec::new();
    while let Some(batch) = stream.try_next().await? {
        let column =
            batch.columns().first().filter(|column| matches!(column.data_type(), DataType::Utf8)).ok_or_else(|| Error::WrongType {
                what: "first column of CREATE MODEL ... USING".to_owned(),
                found: "no text".to_owned(),
                expected: "text".to_owned(),
            })?;
        texts.extend(column.as_string::<i32>().iter().flatten().map(str::to_owned));
    }
    Ok(texts)
}

pub async fn drop(session: &Session, drop: &DropModel) -> Result<Response> {
    let shared = &session.database().shared;
    let object = Object::model(&drop.name);
    let _name = name::to_drop(session, &object).await?;
    let version = match drop.name.contains('@').then(|| shared.registry.get(&drop.name)).transpose() {
        Err(Error::UnknownObject { .. }) if drop.if_exists => None,
        found => found?,
    };
    let is_there = version.is_some() || shared.knows(&object);
    if drop.if_exists && (!is_there || (drop.name.contains('@') && version.is_none())) {
        session.notices().notice(format!("model \"{}\" does not exist, skipping", drop.name));
        return Ok(done("DROP MODEL"));
    }
    // One version of several; the last one is the model.
    let one_of_several = version.filter(|info| shared.registry.num_versions(&info.name).is_ok_and(|count| count > 1));
    let name = drop.name.split_once('@').map_or(drop.name.as_str(), |(name, _)| name);
    let names = |reference: &str| match &one_of_several {
        Some(info) => reference == info.reference(),
        None => reference.split_once('@').map_or(reference, |(name, _)| name) == name,
    };
    let agents: Vec<String> =
        shared.agents.list().into_iter().filter(|agent| names(&agent.options.policy)).map(|agent| agent.name).collect();
    free_agents(session, drop, &agents)?;
    tell_columns(session, drop, &names).await?;
    match &one_of_several {
        Some(info) => shared.registry.drop_version(info)?,
        None => {
            shared.registry.drop_model(name)?;
            shared.privileges.forget(&object)?;
        }
    }
    shared.models.forget(one_of_several.as_ref().map_or(name, |_| drop.name.as_str()))?;
    Ok(done("DROP MODEL"))
}

/// Before the policy of agents goes.
///
/// # Errors
/// [`Error::StillNeeded`] (2BP01) if they are to stay, and the model with them.
fn free_agents(session: &Session, drop: &DropModel, agents: &[String]) -> Result<()> {
    let shared = &session.database().shared;
    if agents.is_empty() {
        return Ok(());
    }
    let listed = agents.join(", ");
    match drop.dependents {
        Dependents::Restrict => Err(Error::StillNeeded(format!(
            "cannot drop model \"{name}\": it is the policy of agents: {listed}; DROP MODEL {name} CASCADE drops them too, FORCE leaves them without it",
            name = drop.name
        ))),
        Dependents::Cascade => {
            for agent in agents {
                if shared.agents.remove(agent)? {
                    shared.privileges.forget(&Object::agent(agent))?;
                }
            }
            session.notices().notice(format!("drop cascades to agents: {listed}"));
            Ok(())
        }
        Dependents::Force => {
            session.notices().warning(format!("agents have no policy any more: {listed}"));
            Ok(())
        }
    }
}

/// Says which columns keep their values and take no new ones.
async fn tell_columns(session: &Session, drop: &DropModel, names: &(dyn Fn(&str) -> bool + Sync)) -> Result<()> {
    let mut columns = Vec::new();
    for table in session.database().shared.catalog.all_tables().await? {
        for column in pinned_models::columns_of(session, &table, names)? {
            columns.push(format!("{}.{}.{column}", table.schema_name(), table.name()));
        }
    }
    if !columns.is_empty() {
        let message = format!(
            "model \"{}\" computed the columns {}: their values stay, and rows are written only with others",
            drop.name,
            columns.join(", ")
        );
        session.notices().warning(message);
    }
    Ok(())
}

/// Out of memory. What runs keeps the model until it is done; the next use loads it again.
pub fn unload(session: &Session, unload: &UnloadModel) -> Result<Response> {
    if session.database().shared.models.unload(&unload.name)? == 0 {
        session.notices().notice(format!("model \"{}\" is not in memory", unload.name));
    }
    Ok(done("UNLOAD MODEL"))
}

pub fn description_schema() -> SchemaRef {
    let text = |name: &str| Field::new(name, DataType::Utf8, false);
    Arc::new(Schema::new(vec![text("property"), text("value")]))
}

/// What it is and where it came from: the statement, base, options and figures of the training that made it.
pub fn describe(session: &Session, describe: &DescribeModel) -> Result<Response> {
    let info = session.database().shared.registry.get(&describe.name)?;
    let mut properties = vec![
        ("name".to_owned(), info.name.clone()),
        ("version".to_owned(), info.version.to_string()),
        ("task".to_owned(), info.task.to_string()),
        ("architecture".to_owned(), info.architecture.clone()),
        ("parameter_count".to_owned(), info.parameter_count.to_string()),
        ("source".to_owned(), info.source.clone()),
        ("device".to_owned(), if info.remote.is_some() { "its server's".to_owned() } else { info.device_description() }),
        ("directory".to_owned(), info.directory.display().to_string()),
    ];
    if info.task == Task::Embed {
        properties.extend(embedding_properties(&info)?);
    }
    if let Some(variables) = &info.chat_template_kwargs {
        properties
            .push((CHAT_TEMPLATE_KWARGS.to_owned(), serde_json::to_string(variables).map_err(|error| Error::Internal(error.to_string()))?));
    }
    if let Some(gguf) = &info.gguf {
        properties.push(("weights".to_owned(), format!("GGUF: {}", gguf.tensor_types.join(", "))));
    }
    if let Some(adapters) = info.adapter_directory() {
        properties.push(("adapter".to_owned(), adapters.display().to_string()));
    }
    if let serde_json::Value::Object(lineage) = &without_stands_on(&info.lineage) {
        properties.extend(lineage.iter().map(|(name, value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            (format!("lineage.{name}"), text)
        }));
    }
    let names = StringArray::from_iter_values(properties.iter().map(|(name, _)| name));
    let values = StringArray::from_iter_values(properties.iter().map(|(_, value)| value));
    Ok(rows("DESCRIBE", RecordBatch::try_new(description_schema(), vec![Arc::new(names), Arc::new(values)]).map_err(arrow)?))
}

/// How it makes vectors of texts, as its files say and its maker.
fn embedding_properties(info: &ModelInfo) -> Result<Vec<(String, String)>> {
    let (settings, config) = (EmbedderSettings::of(info)?, EncoderConfig::load(&info.directory)?);
    let max_tokens = settings.max_tokens.unwrap_or(usize::MAX).min(config.max_tokens());
    let properties = [
        ("dimensions", config.hidden_size.to_string()),
        ("max_tokens", max_tokens.to_string()),
        ("pooling", settings.pooling.to_string()),
        ("normalize", settings.normalise.to_string()),
        ("query_prompt", settings.query_prompt),
        ("passage_prompt", settings.passage_prompt),
    ];
    Ok(properties.map(|(name, value)| (name.to_owned(), value)).into())
}
