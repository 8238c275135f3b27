//! `lineage('table', 'wiki')`, `lineage('run', 'run1')`, `lineage('model', 'better@1')`: a row for the thing itself and for each that it stands on.
//!
//! The nearest come first. What the reader may not read has its name and version alone; files of tables that it may not read have no row.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, UInt32Array};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::error::DataFusionError;
use rolloutdb_sql::Privilege;
use serde_json::{Value as Json, json};

use crate::engine::apply::arguments::{Arguments, Names, Parameter};
use crate::engine::apply::planner::{Bound, TableFunction, split_table_name};
use crate::engine::apply::{Applied, ApplyFunction};
use crate::engine::database::Shared;
use crate::engine::lineage::{self, Kind, Thing};
use crate::engine::privileges::{Access, Object};
use crate::engine::versions;
use crate::error::{Error, Result};

const NAME: &str = "lineage";
const COLUMNS: [&str; 7] = ["kind", "name", "version", "digest", "options", "seed", "statement"];

pub fn function() -> Arc<dyn TableFunction> {
    Arc::new(Lineage)
}

#[derive(Debug)]
struct Lineage;

impl TableFunction for Lineage {
    fn name(&self) -> &'static str {
        NAME
    }

    fn parameters(&self) -> &'static [Parameter] {
        const PARAMETERS: &[Parameter] =
            &[Parameter::required_naming("kind", Names::Nothing), Parameter::required_naming("name", Names::Nothing)];
        PARAMETERS
    }

    fn bind(&self, arguments: &Arguments) -> Result<Bound> {
        let text = |name: &str| arguments.text(name).unwrap_or_default().to_owned();
        let kinds = [("table", Kind::Table), ("run", Kind::Run), ("model", Kind::Model), ("agent", Kind::Agent)];
        let Some((_, kind)) = kinds.into_iter().find(|(known, _)| *known == text("kind")) else {
            return Err(Error::InvalidParameter {
                name: format!("kind of {NAME}()"),
                found: format!("'{}'", text("kind")),
                expected: "'table', 'run', 'model' or 'agent'".to_owned(),
            });
        };
        Ok(Bound::Apply(Arc::new(LineageCall { kind, name: text("name"), access: arguments.gate()?.access().clone() })))
    }
}

#[derive(Debug)]
struct LineageCall {
    kind: Kind,
    name: String,
    access: Access,
}

#[async_trait]
impl ApplyFunction for LineageCall {
    fn name(&self) -> &str {
        NAME
    }

    fn details(&self) -> String {
        format!("{} {}", self.kind.name(), self.name)
    }

    fn schema(&self) -> SchemaRef {
        let field = |name: &str| {
            let data_type = if matches!(name, "version" | "seed") { DataType::Int64 } else { DataType::Utf8 };
            Field::new(name, data_type, !matches!(name, "kind" | "name"))
        };
        Arc::new(Schema::new(COLUMNS.map(field).to_vec()))
    }

    async fn call(&self, _: Vec<ArrayRef>, num_rows: usize) -> Result<Applied> {
        let once = batch(self.schema(), &Box::pin(self.things()).await?)?;
        let batch = concat_batches(&self.schema(), std::iter::repeat_n(&once, num_rows)).map_err(DataFusionError::from)?;
        let input_rows = (0..num_rows as u32).flat_map(|row| std::iter::repeat_n(row, once.num_rows()));
        Ok(Applied { batch, input_rows: UInt32Array::from_iter_values(input_rows) })
    }
}

impl LineageCall {
    async fn things(&self) -> Result<Vec<Thing>> {
        let shared = self.access.shared();
        let mut things = match self.kind {
            Kind::Model => self.of_model(shared)?,
            Kind::Agent => self.of_agent(shared).await?,
            _ => self.of_table(shared).await?,
        };
        things.sort_by_key(|thing| thing.depth);
        let current = current_names(shared)?;
        let mut shown = Vec::with_capacity(things.len());
        for thing in things {
            shown.extend(self.shown(shared, &current, thing).await);
        }
        Ok(shown)
    }

    fn of_model(&self, shared: &Shared) -> Result<Vec<Thing>> {
        self.access.require_model(&self.name)?;
        let info = match shared.registry.get(&self.name) {
            Err(Error::UnknownObject { kind, name, known }) => {
                let dropped = shared.registry.dropped(&self.name).map_err(|_| Error::UnknownObject { kind, name, known })?;
                // Nobody has rights on what is gone.
                self.access.require_superuser("the lineage of a model that was dropped")?;
                dropped
            }
            found => found?,
        };
        Ok(lineage::of_model(&shared.registry, &info))
    }

    async fn of_agent(&self, shared: &Shared) -> Result<Vec<Thing>> {
        let agent = shared.agents.get(&self.name)?;
        self.access.require(&Object::agent(&self.name), Privilege::Usage)?;
        lineage::of_agent(shared, &agent).await
    }

    async fn of_table(&self, shared: &Shared) -> Result<Vec<Thing>> {
        let is_there = |name: &str| {
            let (schema, table) = split_table_name(name);
            shared.catalog.tables(&schema).is_ok_and(|tables| tables.contains(&table))
        };
        let (name, version) = match self.name.rsplit_once('@') {
            Some((name, version)) if !is_there(&self.name) => (name, Some(version)),
            _ => (self.name.as_str(), None),
        };
        let (schema, table) = split_table_name(name);
        if is_there(name) {
            self.access.require_table(&schema, &table, &[Privilege::Select])?;
        }
        let mut table = shared.catalog.table(&schema, &table).await?.as_ref().clone();
        if let Some(version) = version {
            table = versions::named(&table, version).await?;
        }
        let things = lineage::of_table(&shared.registry, &table)?;
        if self.kind == Kind::Run && things[0].kind != Kind::Run {
            let (found, expected) = ("a table of other rows".to_owned(), "a table of rollouts, as GENERATE ROLLOUTS makes it".to_owned());
            return Err(Error::WrongType { what: format!("table \"{name}\" of {NAME}('run', ..)"), found, expected });
        }
        Ok(things)
    }

    /// As the reader may see it; `None` for a file of a table that it may not read.
    async fn shown(&self, shared: &Shared, current: &HashMap<String, (String, String)>, mut thing: Thing) -> Option<Thing> {
        if thing.depth == 0 {
            return Some(thing);
        }
        let may_read =
            |id: &str| current.get(id).is_none_or(|(schema, name)| self.access.require_table(schema, name, &[Privilege::Select]).is_ok());
        let is_known = |object: Object| shared.knows(&object).then_some(object);
        let is_readable = match thing.kind {
            Kind::File => return thing.via.as_deref().is_none_or(may_read).then_some(thing),
            Kind::Table | Kind::Run => thing.id.as_deref().is_none_or(may_read),
            Kind::Model => is_known(Object::model(&thing.name)).is_none_or(|model| self.access.has(&model, Privilege::Usage)),
            Kind::Agent => is_known(Object::agent(&thing.name)).is_none_or(|agent| self.access.has(&agent, Privilege::Usage)),
            Kind::Prompts => true,
        };
        if let Some(state) = self.state(shared, current, &mut thing).await {
            let options = thing.options.get_or_insert_with(|| json!({}));
            if let Json::Object(options) = options {
                options.insert("state".to_owned(), json!(state));
            }
        }
        if is_readable || self.access.is_superuser() {
            return Some(thing);
        }
        Some(Thing { version: thing.version, ..Thing::new(thing.kind, thing.name) })
    }

    /// What became of it, if it is not there any more. A table gets the name that it has now.
    async fn state(&self, shared: &Shared, current: &HashMap<String, (String, String)>, thing: &mut Thing) -> Option<&'static str> {
        match thing.kind {
            Kind::Model => {
                let reference = thing.version.map_or_else(|| thing.name.clone(), |version| format!("{}@{version}", thing.name));
                matches!(shared.registry.get(&reference), Err(Error::UnknownObject { .. })).then_some("dropped")
            }
            Kind::Agent => shared.agents.get(&thing.name).is_err().then_some("dropped"),
            Kind::Table | Kind::Run => {
                let Some((schema, name)) = current.get(thing.id.as_deref()?) else { return Some("dropped") };
                thing.name = lineage::shown_name(schema, name);
                let table = shared.catalog.table(schema, name).await.ok()?;
                table.at_version(thing.version?).await.is_err().then_some("version removed")
            }
            Kind::File | Kind::Prompts => None,
        }
    }
}

/// Schema and name of tables by what they go by in the lineage of others.
fn current_names(shared: &Shared) -> Result<HashMap<String, (String, String)>> {
    let named = shared.catalog.lineages()?.into_iter();
    Ok(named.filter_map(|found| Some((found.lineage.id?, (found.schema, found.table)))).collect())
}

fn batch(schema: SchemaRef, things: &[Thing]) -> Result<RecordBatch> {
    let texts = |read: &dyn Fn(&Thing) -> Option<String>| -> ArrayRef { Arc::new(things.iter().map(read).collect::<StringArray>()) };
    let numbers = |read: &dyn Fn(&Thing) -> Option<i64>| -> ArrayRef { Arc::new(things.iter().map(read).collect::<Int64Array>()) };
    let columns = vec![
        texts(&|thing| Some(thing.kind.name().to_owned())),
        texts(&|thing| Some(thing.name.clone())),
        numbers(&|thing| i64::try_from(thing.version?).ok()),
        texts(&|thing| thing.digest.clone()),
        texts(&|thing| thing.options.as_ref().map(Json::to_string)),
        numbers(&|thing| thing.seed),
        texts(&|thing| thing.statement.clone()),
    ];
    Ok(RecordBatch::try_new(schema, columns).map_err(DataFusionError::from)?)
}
