//! What is known of objects that have no file of their own to say it in: the numbers that clients know objects by, and comments on schemas.
//!
//! One file of the data directory, which a client's first look at a new object writes. An object keeps its number while it exists, over restarts and
//! new names, and no other object gets it after it is gone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use crate::durability::write_durably;
use crate::manifests::Warnings;
use crate::temporary::is_temporary_schema;
use crate::{Error, Result};

const FILE: &str = "objects.json";
/// PostgreSQL's first number for what users make; those below are fixed.
const FIRST_NUMBER: u32 = 16_384;

/// What a number stands for. `name` is unique among the objects of the kind in the schema; `of` is the table that the object belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectKey {
    pub kind: ObjectKind,
    pub schema: String,
    pub of: String,
    pub name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectKind {
    Schema,
    /// Tables, views and indexes share their names.
    Relation,
    Constraint,
    /// Of a column.
    Default,
}

impl ObjectKind {
    const ALL: [Self; 4] = [Self::Schema, Self::Relation, Self::Constraint, Self::Default];

    fn name(self) -> &'static str {
        match self {
            Self::Schema => "schema",
            Self::Relation => "relation",
            Self::Constraint => "constraint",
            Self::Default => "default",
        }
    }
}

impl ObjectKey {
    #[must_use]
    pub fn schema(schema: &str) -> Self {
        Self { kind: ObjectKind::Schema, schema: schema.to_owned(), of: String::new(), name: String::new() }
    }

    /// A table or a view.
    #[must_use]
    pub fn relation(schema: &str, name: &str) -> Self {
        Self { kind: ObjectKind::Relation, schema: schema.to_owned(), of: String::new(), name: name.to_owned() }
    }

    /// An index, or what a client takes for the index of a constraint.
    #[must_use]
    pub fn index(schema: &str, table: &str, name: &str) -> Self {
        Self { kind: ObjectKind::Relation, schema: schema.to_owned(), of: table.to_owned(), name: name.to_owned() }
    }

    #[must_use]
    pub fn constraint(schema: &str, table: &str, name: &str) -> Self {
        Self { kind: ObjectKind::Constraint, schema: schema.to_owned(), of: table.to_owned(), name: name.to_owned() }
    }

    #[must_use]
    pub fn default(schema: &str, table: &str, column: &str) -> Self {
        Self { kind: ObjectKind::Default, schema: schema.to_owned(), of: table.to_owned(), name: column.to_owned() }
    }

    fn is_of(&self, schema: &str, table: &str) -> bool {
        let is_itself = self.kind == ObjectKind::Relation && self.of.is_empty() && self.name == table;
        self.schema == schema && (is_itself || (!self.of.is_empty() && self.of == table))
    }
}

#[derive(Debug, Clone)]
struct Objects {
    next: u32,
    numbers: BTreeMap<ObjectKey, u32>,
    schema_comments: BTreeMap<String, String>,
}

impl Default for Objects {
    fn default() -> Self {
        Self { next: FIRST_NUMBER, numbers: BTreeMap::new(), schema_comments: BTreeMap::new() }
    }
}

/// The file, as it was last read or written.
#[derive(Debug)]
pub(crate) struct Register {
    path: PathBuf,
    objects: Mutex<Objects>,
}

impl Register {
    /// Reads the file. One that is not what this writes is set aside, with a warning: numbers begin anew, which hurts nobody who connects later.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn open(root: &Path, warnings: &Warnings) -> Result<Self> {
        let path = root.join(FILE);
        let objects = match std::fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Objects::default(),
            Err(source) => return Err(Error::io(&path, source)),
            Ok(bytes) => match read(&bytes) {
                Ok(objects) => objects,
                Err(reason) => {
                    let aside = path.with_extension("json.torn");
                    std::fs::rename(&path, &aside).map_err(|source| Error::io(&path, source))?;
                    let aside = aside.display();
                    warnings.push(format!("the comments on schemas are lost: {FILE} is damaged ({reason}); it is kept as {aside}"));
                    Objects::default()
                }
            },
        };
        Ok(Self { path, objects: Mutex::new(objects) })
    }

    /// The numbers of objects, in the order of `keys`; those that have none get one, which is on the disk when this returns.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn numbers(&self, keys: &[ObjectKey]) -> Result<Vec<u32>> {
        let mut objects = self.lock();
        if !keys.iter().all(|key| objects.numbers.contains_key(key)) {
            let mut changed = objects.clone();
            for key in keys {
                if !changed.numbers.contains_key(key) {
                    changed.numbers.insert(key.clone(), changed.next);
                    changed.next += 1;
                }
            }
            self.replace(&mut objects, changed)?;
        }
        Ok(keys.iter().map(|key| objects.numbers[key]).collect())
    }

    /// A table has another name now, and what belongs to it another table.
    pub(crate) fn rename_table(&self, schema: &str, from: &str, to: &str) {
        let mut objects = self.lock();
        if !objects.numbers.keys().any(|key| key.is_of(schema, from)) {
            return;
        }
        let old = std::mem::take(&mut objects.numbers);
        objects.numbers = old
            .into_iter()
            .map(|(mut key, number)| {
                if key.is_of(schema, from) {
                    let name = if key.of.is_empty() { &mut key.name } else { &mut key.of };
                    to.clone_into(name);
                }
                (key, number)
            })
            .collect();
        self.write_what_can_be(&objects);
    }

    /// A table or a view is gone, and what belonged to it.
    pub(crate) fn forget_relation(&self, schema: &str, name: &str) {
        self.forget_all(|key| key.is_of(schema, name));
    }

    /// An index is gone.
    pub(crate) fn forget(&self, gone: &ObjectKey) {
        self.forget_all(|key| key == gone);
    }

    /// A schema is gone, which had no tables any more.
    pub(crate) fn forget_schema(&self, schema: &str) {
        if self.lock().schema_comments.remove(schema).is_some() {
            self.write_what_can_be(&self.lock());
        }
        self.forget_all(|key| key.schema == schema);
    }

    /// The schemas of all sessions are gone.
    pub(crate) fn forget_temporary(&self) {
        let mut objects = self.lock();
        let before = (objects.numbers.len(), objects.schema_comments.len());
        objects.numbers.retain(|key, _| !is_temporary_schema(&key.schema));
        objects.schema_comments.retain(|schema, _| !is_temporary_schema(schema));
        if (objects.numbers.len(), objects.schema_comments.len()) != before {
            self.write_what_can_be(&objects);
        }
    }

    fn forget_all(&self, is_gone: impl Fn(&ObjectKey) -> bool) {
        let mut objects = self.lock();
        let before = objects.numbers.len();
        objects.numbers.retain(|key, _| !is_gone(key));
        if objects.numbers.len() < before {
            self.write_what_can_be(&objects);
        }
    }

    /// After a change that is done already, perhaps to make room on a full disk. If this file can not follow, an object that is made later has the number
    /// of the one that is gone.
    fn write_what_can_be(&self, objects: &Objects) {
        let _ = write_durably(&self.path, &written(objects));
    }

    pub(crate) fn schema_comment(&self, schema: &str) -> Option<String> {
        self.lock().schema_comments.get(schema).cloned()
    }

    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn set_schema_comment(&self, schema: &str, text: Option<&str>) -> Result<()> {
        let mut objects = self.lock();
        let mut changed = objects.clone();
        match text {
            Some(text) => changed.schema_comments.insert(schema.to_owned(), text.to_owned()),
            None => changed.schema_comments.remove(schema),
        };
        self.replace(&mut objects, changed)
    }

    fn lock(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file first: what is not on the disk is not told to anybody.
    fn replace(&self, objects: &mut Objects, changed: Objects) -> Result<()> {
        write_durably(&self.path, &written(&changed))?;
        *objects = changed;
        Ok(())
    }
}

fn written(objects: &Objects) -> Vec<u8> {
    let numbers: Vec<Value> =
        objects.numbers.iter().map(|(key, number)| json!([key.kind.name(), key.schema, key.of, key.name, number])).collect();
    let file = json!({ "next": objects.next, "numbers": numbers, "schema_comments": objects.schema_comments });
    file.to_string().into_bytes()
}

fn read(bytes: &[u8]) -> Result<Objects, String> {
    let damaged = str::to_owned;
    let file: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let number = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
    let next = file.get("next").and_then(number).ok_or_else(|| damaged("there is no next number"))?;
    let mut objects = Objects { next, ..Objects::default() };
    for entry in file.get("numbers").and_then(Value::as_array).into_iter().flatten() {
        let text = |position: usize| entry.get(position).and_then(Value::as_str).map(str::to_owned);
        let kind = entry.get(0).and_then(Value::as_str).and_then(|name| ObjectKind::ALL.into_iter().find(|kind| kind.name() == name));
        let (Some(kind), Some(schema), Some(of), Some(name)) = (kind, text(1), text(2), text(3)) else {
            return Err(damaged("an object has no name"));
        };
        let number = entry.get(4).and_then(number).ok_or_else(|| damaged("an object has no number"))?;
        objects.numbers.insert(ObjectKey { kind, schema, of, name }, number);
    }
    let comments = file.get("schema_comments").and_then(Value::as_object).into_iter().flatten();
    objects.schema_comments = comments.filter_map(|(schema, text)| Some((schema.clone(), text.as_str()?.to_owned()))).collect();
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_over_restarts_and_renames_and_are_given_once() -> Result<()> {
        let root = tempfile::tempdir().expect("a temporary directory");
        let keys =
            [ObjectKey::schema("s"), ObjectKey::relation("s", "t"), ObjectKey::index("s", "t", "i"), ObjectKey::constraint("s", "t", "c")];
        let warnings = Warnings::default();
        let register = Register::open(root.path(), &warnings)?;
        let numbers = register.numbers(&keys)?;
        assert_eq!(numbers, [16_384, 16_385, 16_386, 16_387]);
        register.rename_table("s", "t", "u");
        register.set_schema_comment("s", Some("it's \"mine\""))?;

        let register = Register::open(root.path(), &warnings)?;
        let renamed = [ObjectKey::relation("s", "u"), ObjectKey::index("s", "u", "i"), ObjectKey::constraint("s", "u", "c")];
        assert_eq!(register.numbers(&renamed)?, numbers[1..]);
        assert_eq!(register.schema_comment("s").as_deref(), Some("it's \"mine\""));
        register.forget_relation("s", "u");
        assert_eq!(register.numbers(&renamed[..1])?, [16_388], "a number is never given twice");
        register.forget_schema("s");
        assert_eq!((register.schema_comment("s"), register.numbers(&keys[..1])?), (None, vec![16_389]));
        Ok(())
    }

    #[test]
    fn a_file_that_is_none_is_set_aside() -> Result<()> {
        for text in ["", "{}", "{\"next\": 1, \"numbers\": [[\"relation\"]]}", "{\"next\": -1}"] {
            let root = tempfile::tempdir().expect("a temporary directory");
            std::fs::write(root.path().join(FILE), text).expect("it is written");
            let warnings = Warnings::default();
            let register = Register::open(root.path(), &warnings)?;
            assert_eq!((warnings.take().len(), register.numbers(&[ObjectKey::schema("s")])?), (1, vec![FIRST_NUMBER]), "{text}");
            assert!(root.path().join("objects.json.torn").exists());
        }
        Ok(())
    }
}
