//! Secrets by name. What is stored is where the value is, never the value: it is read from there whenever it is needed, and given to nobody who prints.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use arrow::array::{RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::error::DataFusionError;
use serde::{Deserialize, Serialize};

use super::{durable_file, gate};
use crate::error::{Error, Result};

const FILE: &str = "secrets.json";
/// A key or a password; a longer file is something else.
const VALUE_BYTES_MAX: u64 = 64 << 10;

/// Where a value is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "lowercase")]
pub enum SecretPlace {
    Env {
        variable: String,
    },
    /// The gate gave its path.
    File {
        path: PathBuf,
    },
}

/// A value: it prints as nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretValue(String);

impl SecretValue {
    /// For the one that sends it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretValue")
    }
}

/// The secrets of a data directory. Cheap to clone; clones are the same secrets.
#[derive(Debug, Clone)]
pub struct Secrets {
    path: PathBuf,
    secrets: Arc<RwLock<BTreeMap<String, SecretPlace>>>,
}

impl Secrets {
    /// # Errors
    /// [`Error::Io`], [`Error::Damaged`].
    pub fn open(directory: &Path) -> Result<Self> {
        let path = directory.join(FILE);
        let secrets = durable_file::read(&path)?.unwrap_or_default();
        Ok(Self { path, secrets: Arc::new(RwLock::new(secrets)) })
    }

    pub fn contains(&self, name: &str) -> bool {
        self.read().contains_key(name)
    }

    /// # Errors
    /// [`Error::DuplicateObject`]; [`Error::NotReady`] (55000) if there is no value in its place; [`Error::Io`].
    pub fn create(&self, name: &str, place: SecretPlace) -> Result<()> {
        value_in(name, &place)?;
        let mut secrets = self.secrets.write().unwrap_or_else(PoisonError::into_inner);
        if secrets.contains_key(name) {
            return Err(Error::DuplicateObject { kind: "secret", name: name.to_owned() });
        }
        let mut changed = secrets.clone();
        changed.insert(name.to_owned(), place);
        durable_file::write(&self.path, &changed)?;
        *secrets = changed;
        Ok(())
    }

    /// Whether it was there.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn remove(&self, name: &str) -> Result<bool> {
        let mut secrets = self.secrets.write().unwrap_or_else(PoisonError::into_inner);
        let mut changed = secrets.clone();
        if changed.remove(name).is_none() {
            return Ok(false);
        }
        durable_file::write(&self.path, &changed)?;
        *secrets = changed;
        Ok(true)
    }

    /// # Errors
    /// [`Error::UnknownObject`] (42704), naming those there are.
    pub fn unknown(&self, name: &str) -> Error {
        Error::UnknownObject { kind: "secret", name: name.to_owned(), known: self.read().keys().cloned().collect() }
    }

    /// The value as it is now.
    ///
    /// # Errors
    /// [`Error::UnknownObject`]; [`Error::NotReady`] (55000) if its place is empty.
    pub fn value(&self, name: &str) -> Result<SecretValue> {
        let place = self.read().get(name).cloned();
        value_in(name, &place.ok_or_else(|| self.unknown(name))?)
    }

    /// The text with `***` in the place of every value there is by now.
    #[must_use]
    pub fn redact(&self, text: String) -> String {
        let places = self.read().clone();
        let values = places.iter().filter_map(|(name, place)| value_in(name, place).ok());
        values.filter(|value| !value.reveal().is_empty()).fold(text, |text, value| text.replace(value.reveal(), "***"))
    }

    /// `rollout.secrets`: names and kinds of places.
    ///
    /// # Errors
    /// [`Error::DataFusion`].
    pub fn rows(&self) -> Result<RecordBatch> {
        let secrets = self.read();
        let kind = |place: &SecretPlace| match place {
            SecretPlace::Env { .. } => "env",
            SecretPlace::File { .. } => "file",
        };
        let names = StringArray::from_iter_values(secrets.keys());
        let kinds = StringArray::from_iter_values(secrets.values().map(kind));
        Ok(RecordBatch::try_new(schema(), vec![Arc::new(names), Arc::new(kinds)]).map_err(DataFusionError::from)?)
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<String, SecretPlace>> {
        self.secrets.read().unwrap_or_else(PoisonError::into_inner)
    }
}

pub fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("name", DataType::Utf8, false), Field::new("source", DataType::Utf8, false)]))
}

/// No message says what stands there, or by which name it was looked for: the one may be a part of the value, the other the value in a wrong place.
fn value_in(name: &str, place: &SecretPlace) -> Result<SecretValue> {
    let empty = |what: &str| Error::NotReady(format!("secret \"{name}\": {what}"));
    let value = match place {
        SecretPlace::Env { variable } => std::env::var(variable).map_err(|_| {
            empty("the environment variable that it names is not set for the server, or is not UTF-8; set it and start the server again")
        })?,
        SecretPlace::File { path } => {
            let refused =
                "its file is gone, cannot be read, is no regular file, or a link was put in its place; DROP SECRET, and create it anew";
            let file = gate::open(path).map_err(|_| empty(refused))?;
            let mut text = String::new();
            let num_bytes =
                file.take(VALUE_BYTES_MAX + 1).read_to_string(&mut text).map_err(|_| empty("its file cannot be read as UTF-8"))?;
            if num_bytes as u64 > VALUE_BYTES_MAX {
                return Err(empty("its file is too large for a secret: at most 64 kB"));
            }
            text.lines().next().unwrap_or_default().to_owned()
        }
    };
    if value.trim().is_empty() { Err(empty("there is no value in its place")) } else { Ok(SecretValue(value)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read_from_its_place_and_shown_nowhere() -> Result<()> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().canonicalize().expect("it is there").join("key");
        std::fs::write(&file, "planted-4711\nsecond line\n").expect("a temporary file is writable");
        let secrets = Secrets::open(directory.path())?;
        secrets.create("hub", SecretPlace::File { path: file.clone() })?;
        assert_eq!(secrets.value("hub")?.reveal(), "planted-4711");
        assert!(!format!("{:?} {secrets:?} {:?}", secrets.value("hub")?, secrets.rows()?).contains("planted"));
        let stored = std::fs::read_to_string(directory.path().join(FILE)).expect("it is stored");
        assert!(!stored.contains("planted"), "{stored}");
        // After a restart, and with another value.
        std::fs::write(&file, "planted-4712").expect("a temporary file is writable");
        let secrets = Secrets::open(directory.path())?;
        assert_eq!(secrets.value("hub")?.reveal(), "planted-4712");
        assert!(matches!(secrets.create("hub", SecretPlace::File { path: file.clone() }), Err(Error::DuplicateObject { .. })));
        std::fs::write(&file, "\n").expect("a temporary file is writable");
        assert!(matches!(secrets.value("hub"), Err(Error::NotReady(_))));
        // What took its place later is not what was allowed.
        for in_its_place in ["link", "pipe", "folder", "large"] {
            std::fs::remove_file(&file).expect("it was there");
            match in_its_place {
                "link" => std::os::unix::fs::symlink(directory.path().join(FILE), &file).expect("a link"),
                "pipe" => assert!(std::process::Command::new("mkfifo").arg(&file).status().expect("mkfifo runs").success()),
                "folder" => {
                    std::fs::create_dir(&file).expect("a folder");
                    assert!(matches!(secrets.value("hub"), Err(Error::NotReady(_))), "{in_its_place}");
                    std::fs::remove_dir(&file).expect("it is empty");
                    std::fs::write(&file, "\n").expect("a temporary file is writable");
                }
                _ => std::fs::write(&file, "a".repeat(VALUE_BYTES_MAX as usize + 1)).expect("a temporary file is writable"),
            }
            assert!(matches!(secrets.value("hub"), Err(Error::NotReady(_))), "{in_its_place}");
        }
        assert!(secrets.remove("hub")? && !secrets.remove("hub")?);
        assert!(matches!(secrets.value("hub"), Err(Error::UnknownObject { .. })));
        let unset = secrets.create("sk", SecretPlace::Env { variable: "SK_PLANTED_4711".to_owned() }).expect_err("it is not set");
        assert!(!unset.to_string().contains("PLANTED"), "{unset}");
        Ok(())
    }
}
