//! What SET, SET LOCAL and RESET have said in a session, as texts; what a setting does is told in `statement/settings.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::{ArrayRef, BooleanArray, ListBuilder, RecordBatch, StringArray, StringBuilder, new_null_array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::error::DataFusionError;

use super::setting_definitions::{
    DEFAULT_TRANSACTION_ISOLATION, DEFAULT_TRANSACTION_READ_ONLY, DEFINITIONS, Definition, READ_COMMITTED, TRANSACTION_ISOLATION,
    TRANSACTION_READ_ONLY, default_of_transaction,
};
use crate::error::Result;

/// Values other than the defaults, by name.
type Values = BTreeMap<String, String>;

/// The settings of one session; who has them does not hold the session.
#[derive(Debug, Clone, Default)]
pub struct SessionSettings(Arc<Mutex<Settings>>);

impl SessionSettings {
    /// The value in force, in the form in which it is kept; the default if there is no such setting.
    pub fn value(&self, name: &str) -> String {
        let default = DEFINITIONS.iter().find(|known| known.name == name).map_or("", |known| known.default);
        self.lock().get(name).unwrap_or(default).to_owned()
    }

    /// PostgreSQL's columns of `pg_settings`.
    pub fn schema() -> SchemaRef {
        let text = |name: &str| Field::new(name, DataType::Utf8, true);
        Arc::new(Schema::new(vec![
            text("name"),
            text("setting"),
            text("unit"),
            text("category"),
            text("short_desc"),
            text("extra_desc"),
            text("context"),
            text("vartype"),
            text("source"),
            text("min_val"),
            text("max_val"),
            Field::new("enumvals", DataType::new_list(DataType::Utf8, true), true),
            text("boot_val"),
            text("reset_val"),
            text("sourcefile"),
            Field::new("sourceline", DataType::Int32, true),
            Field::new("pending_restart", DataType::Boolean, true),
        ]))
    }

    /// A row for each setting but DataFusion's.
    pub fn rows(&self) -> Result<RecordBatch> {
        let settings = self.lock();
        let text = |read: &dyn Fn(&Definition) -> Option<String>| -> ArrayRef {
            Arc::new(DEFINITIONS.iter().copied().map(read).collect::<StringArray>())
        };
        let schema = Self::schema();
        let columns = schema.fields().iter().map(|field| -> ArrayRef {
            match field.name().as_str() {
                "name" => text(&|known| Some(known.name.to_owned())),
                "setting" => text(&|known| Some(settings.get(known.name).unwrap_or(known.default).to_owned())),
                "unit" => text(&|known| known.unit().map(str::to_owned)),
                "category" => text(&|known| Some(known.category.to_owned())),
                "short_desc" => text(&|known| Some(known.description.to_owned())),
                "context" => text(&|known| Some(known.context().to_owned())),
                "vartype" => text(&|known| Some(known.type_name().to_owned())),
                "source" => text(&|known| {
                    let is_given = known.context() == "user";
                    Some(if is_given { settings.source(known.name) } else { "default" }.to_owned())
                }),
                "min_val" => text(&Definition::least),
                "max_val" => text(&Definition::most),
                "enumvals" => {
                    let mut lists = ListBuilder::new(StringBuilder::new());
                    for known in DEFINITIONS.iter() {
                        lists.append_option(known.choices().map(|choices| choices.iter().map(|choice| Some(*choice))));
                    }
                    Arc::new(lists.finish())
                }
                "boot_val" => text(&|known| Some(known.default.to_owned())),
                "reset_val" => text(&|known| Some(settings.reset_value(known.name).unwrap_or(known.default).to_owned())),
                "pending_restart" => Arc::new(BooleanArray::from(vec![false; DEFINITIONS.len()])),
                _ => new_null_array(field.data_type(), DEFINITIONS.len()),
            }
        });
        let columns: Vec<ArrayRef> = columns.collect();
        Ok(RecordBatch::try_new(schema, columns).map_err(DataFusionError::from)?)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Settings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
pub struct Settings {
    values: Values,
    transaction: Option<Transaction>,
    /// What the client said when it connected, and what the server says of itself: RESET goes back to these.
    startup: Values,
    /// Defaults that hang on how the server was started.
    defaults: Values,
}

/// Since BEGIN.
#[derive(Debug)]
struct Transaction {
    /// What ROLLBACK brings back.
    before: Values,
    /// In force until COMMIT or ROLLBACK.
    local: Values,
    modes: Modes,
}

/// What a transaction began with, whatever becomes of the defaults for the next ones.
#[derive(Debug, Clone)]
struct Modes {
    isolation: String,
    read_only: String,
}

/// What SET and SET LOCAL had said at a savepoint.
#[derive(Debug, Clone)]
pub struct SettingsAt {
    values: Values,
    local: Values,
    modes: Option<Modes>,
}

impl Settings {
    /// `None`: the default.
    pub fn get(&self, name: &str) -> Option<&str> {
        if let Some(default) = default_of_transaction(name) {
            let own = self.transaction.as_ref().and_then(|transaction| transaction.modes.get(name));
            return own.or_else(|| self.get(default));
        }
        let local = self.transaction.as_ref().and_then(|transaction| transaction.local.get(name));
        local.or_else(|| self.values.get(name)).map(String::as_str).or_else(|| self.reset_value(name))
    }

    /// What RESET gives; `None`: the default.
    pub fn reset_value(&self, name: &str) -> Option<&str> {
        self.startup.get(name).or_else(|| self.defaults.get(name)).map(String::as_str)
    }

    pub fn set_at_startup(&mut self, name: &str, value: String) {
        self.startup.insert(name.to_owned(), value);
    }

    pub fn set_default(&mut self, name: &str, value: String) {
        self.defaults.insert(name.to_owned(), value);
    }

    /// The column `source` of `pg_settings`.
    fn source(&self, name: &str) -> &'static str {
        let is_local = self.transaction.as_ref().is_some_and(|transaction| transaction.local.contains_key(name));
        match is_local || self.values.contains_key(name) {
            true => "session",
            false if self.startup.contains_key(name) => "client",
            false => "default",
        }
    }

    /// The settings whose names begin so, with their values.
    pub fn in_force(&self, prefix: &str) -> Vec<(String, String)> {
        let mut values = self.startup.clone();
        values.extend(self.values.clone());
        values.extend(self.transaction.iter().flat_map(|transaction| transaction.local.clone()));
        values.into_iter().filter(|(name, _)| name.starts_with(prefix)).collect()
    }

    /// For the session; a SET LOCAL before it in the transaction no longer counts. `None`: the default.
    pub fn set(&mut self, name: &str, value: Option<String>) {
        if let Some(transaction) = &mut self.transaction {
            transaction.local.remove(name);
        }
        match value {
            Some(value) => self.values.insert(name.to_owned(), value),
            None => self.values.remove(name),
        };
    }

    /// Until the end of the transaction; false when there is none, and nothing happens.
    pub fn set_local(&mut self, name: &str, value: String) -> bool {
        let transaction = self.transaction.as_mut();
        transaction.map(|transaction| transaction.local.insert(name.to_owned(), value)).is_some()
    }

    /// Of the transaction of [`default_of_transaction`]; false when there is none, and nothing happens.
    pub fn set_mode(&mut self, name: &str, value: String) -> bool {
        let mode = self.transaction.as_mut().and_then(|transaction| transaction.modes.get_mut(name));
        mode.map(|mode| *mode = value).is_some()
    }

    /// Every setting to its default; the transaction stays what it is. Returns those that were set.
    pub fn reset_all(&mut self) -> BTreeSet<String> {
        let local = self.transaction.as_mut().map(|transaction| std::mem::take(&mut transaction.local));
        std::mem::take(&mut self.values).into_keys().chain(local.unwrap_or_default().into_keys()).collect()
    }

    pub fn begin(&mut self) {
        let isolation = self.get(DEFAULT_TRANSACTION_ISOLATION).unwrap_or(READ_COMMITTED).to_owned();
        let read_only = self.get(DEFAULT_TRANSACTION_READ_ONLY).unwrap_or("off").to_owned();
        self.transaction = Some(Transaction { before: self.values.clone(), local: Values::new(), modes: Modes { isolation, read_only } });
    }

    /// As they are now, for a savepoint.
    pub fn at_savepoint(&self) -> SettingsAt {
        let transaction = self.transaction.as_ref();
        let local = transaction.map(|transaction| transaction.local.clone()).unwrap_or_default();
        SettingsAt { values: self.values.clone(), local, modes: transaction.map(|transaction| transaction.modes.clone()) }
    }

    /// As they were at a savepoint of the transaction. Returns the names of settings that may have changed.
    pub fn go_back_to(&mut self, savepoint: SettingsAt) -> BTreeSet<String> {
        let SettingsAt { values, local, modes } = savepoint;
        let mut changed: BTreeSet<String> = values.keys().chain(local.keys()).cloned().collect();
        changed.extend(std::mem::replace(&mut self.values, values).into_keys());
        if let Some(transaction) = &mut self.transaction {
            changed.extend(std::mem::replace(&mut transaction.local, local).into_keys());
            if let Some(modes) = modes {
                transaction.modes = modes;
            }
        }
        changed
    }

    /// What SET LOCAL said ends with the transaction, and what SET said with one that is rolled back. Returns the names of settings that may have changed.
    pub fn end(&mut self, is_committed: bool) -> BTreeSet<String> {
        let Some(Transaction { before, local, .. }) = self.transaction.take() else { return BTreeSet::new() };
        let mut changed: BTreeSet<String> = local.into_keys().collect();
        if !is_committed {
            let after = std::mem::replace(&mut self.values, before);
            changed.extend(after.into_keys().chain(self.values.keys().cloned()));
        }
        changed
    }
}

impl Modes {
    fn get(&self, name: &str) -> Option<&str> {
        match name {
            TRANSACTION_ISOLATION => Some(&self.isolation),
            TRANSACTION_READ_ONLY => Some(&self.read_only),
            _ => None,
        }
    }

    fn get_mut(&mut self, name: &str) -> Option<&mut String> {
        match name {
            TRANSACTION_ISOLATION => Some(&mut self.isolation),
            TRANSACTION_READ_ONLY => Some(&mut self.read_only),
            _ => None,
        }
    }
}
