//! What CREATE TABLE says beyond names and types, kept as metadata of the dataset so that it survives a restart.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use crate::conversion::storage_schema;
use crate::names::nearest;
use crate::{Error, Result};

/// Field metadata: the expression of `GENERATED ALWAYS AS (expression) STORED`.
const GENERATED: &str = "rollout.generated";
/// Field metadata: the expression of `DEFAULT`.
const DEFAULT: &str = "rollout.default";
/// Field metadata: `always` or `by default` of a column that the table numbers.
const IDENTITY: &str = "rollout.identity";
/// Schema metadata: the primary key's columns as a JSON array, in key order.
const PRIMARY_KEY: &str = "rollout.primary_key";
/// Schema metadata: the name of the primary key, where one was given or chosen.
const PRIMARY_KEY_NAME: &str = "rollout.primary_key_name";
/// Schema metadata: the columns of each UNIQUE constraint, as a JSON array of arrays.
const UNIQUE: &str = "rollout.unique";
/// Schema metadata: their names in the same order, as a JSON array. Tables of older versions have none.
const UNIQUE_NAMES: &str = "rollout.unique_names";
/// Field metadata: the name of a UNIQUE constraint on this column alone that came with the column, until the constraints are next written as a whole.
const UNIQUE_NAME: &str = "rollout.unique_name";
/// Field metadata that Lance reads: how the values of a column are packed.
const COMPRESSION: &str = "lance-encoding:compression";
const NO_COMPRESSION: &str = "none";
/// The methods of [`TableDefinition::with_compression`].
const COMPRESSIONS: [&str; 2] = [NO_COMPRESSION, "fsst"];
/// Field metadata that Lance reads: the default key of a merge.
const LANCE_PRIMARY_KEY: &str = "lance-schema:unenforced-primary-key";

/// Columns, key, generated columns and defaults of a table. Expressions are texts here; the engine evaluates them.
#[derive(Debug, Clone, PartialEq)]
pub struct TableDefinition {
    /// Columns in order, in the types that are stored (see [`storage_schema`]). Columns of the key are NOT NULL.
    pub schema: SchemaRef,
    /// Columns of the primary key, in key order; empty when there is none.
    pub primary_key: Vec<String>,
    /// `None`: it is called after the table, see [`Self::constraint_names`].
    pub primary_key_name: Option<String>,
    pub unique: Vec<UniqueConstraint>,
    /// Column to the expression that computes it.
    pub generated: BTreeMap<String, String>,
    /// Column to the expression that fills it when an INSERT leaves it out.
    pub defaults: BTreeMap<String, String>,
    /// Columns that the table numbers.
    pub identity: BTreeMap<String, Identity>,
    /// Columns of texts or bytes to the method that packs them. The others are written as they are, which loads twice as fast as packing.
    pub compression: BTreeMap<String, String>,
}

/// A UNIQUE constraint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UniqueConstraint {
    /// No other constraint of the table has it.
    pub name: String,
    pub columns: Vec<String>,
}

/// Whether an INSERT may give the number of an identity column itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    Always,
    ByDefault,
}

impl TableDefinition {
    /// A table of these columns alone. Metadata that another table's definition left on the fields is dropped, so that
    /// `CREATE TABLE b AS SELECT * FROM a` does not inherit a's key.
    ///
    /// # Errors
    /// [`Error::NotSupported`] for a type that can not be stored and for no columns, [`Error::InvalidName`] for a
    /// column's name.
    pub fn new(schema: &Schema) -> Result<Self> {
        if schema.fields().is_empty() {
            return Err(Error::NotSupported("a table needs at least one column".to_owned()));
        }
        let fields: Vec<Field> = schema.fields().iter().map(|field| plain(field)).collect();
        Ok(Self {
            schema: storage_schema(&Schema::new(fields))?,
            primary_key: Vec::new(),
            primary_key_name: None,
            unique: Vec::new(),
            generated: BTreeMap::new(),
            defaults: BTreeMap::new(),
            identity: BTreeMap::new(),
            compression: BTreeMap::new(),
        })
    }

    /// Sets the primary key; its columns become NOT NULL.
    ///
    /// # Errors
    /// [`Error::UnknownColumn`], or [`Error::WrongType`] for a column whose values have no key form (a vector, a list).
    pub fn with_primary_key(mut self, columns: &[&str]) -> Result<Self> {
        self.check_key("primary key", columns)?;
        self.primary_key = columns.iter().map(|column| (*column).to_owned()).collect();
        let key = self.primary_key.clone();
        self.schema = map_fields(&self.schema, |field| {
            let in_key = key.contains(field.name());
            field.clone().with_nullable(field.is_nullable() && !in_key)
        });
        Ok(self)
    }

    /// Adds a UNIQUE constraint, or the primary key. `name`: as it stands after CONSTRAINT; `None`: as PostgreSQL would call it, `t_a_b_key` or `t_pkey`,
    /// with a number where that is taken.
    ///
    /// # Errors
    /// [`Error::SecondPrimaryKey`], [`Error::DuplicateConstraint`]; else as [`Self::with_primary_key`].
    pub fn with_constraint(mut self, table: &str, name: Option<&str>, is_primary: bool, columns: &[&str]) -> Result<Self> {
        if is_primary && !self.primary_key.is_empty() {
            return Err(Error::SecondPrimaryKey { table: table.to_owned() });
        }
        let taken = self.constraint_names(table);
        let name = match name {
            Some(name) if taken.iter().any(|taken| taken == name) => {
                return Err(Error::DuplicateConstraint { name: name.to_owned(), table: table.to_owned() });
            }
            Some(name) => name.to_owned(),
            None if is_primary => free_name(format!("{table}_pkey"), &taken),
            None => free_name(format!("{table}_{}_key", columns.join("_")), &taken),
        };
        if is_primary {
            self.primary_key_name = Some(name);
            return self.with_primary_key(columns);
        }
        self.check_key("UNIQUE", columns)?;
        self.unique.push(UniqueConstraint { name, columns: columns.iter().map(|column| (*column).to_owned()).collect() });
        Ok(self)
    }

    fn check_key(&self, constraint: &str, columns: &[&str]) -> Result<()> {
        for (position, column) in columns.iter().enumerate() {
            let field = self.column_named(column)?;
            if columns[..position].contains(column) {
                return Err(Error::DuplicateColumn { name: (*column).to_owned() });
            }
            if field.data_type().is_nested() {
                return Err(Error::WrongType {
                    what: format!("{constraint} column \"{column}\""),
                    found: field.data_type().to_string(),
                    expected: "a scalar type".to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Lets the table number `column`.
    ///
    /// # Errors
    /// [`Error::UnknownColumn`], [`Error::WrongType`] for a column that is no integer.
    pub fn with_identity(mut self, column: &str, identity: Identity) -> Result<Self> {
        let data_type = self.column_named(column)?.data_type();
        if !matches!(data_type, DataType::Int16 | DataType::Int32 | DataType::Int64) {
            return Err(Error::WrongType {
                what: format!("identity column \"{column}\""),
                found: data_type.to_string(),
                expected: "smallint, integer or bigint".to_owned(),
            });
        }
        self.identity.insert(column.to_owned(), identity);
        Ok(self)
    }

    /// The columns of the primary key and of each UNIQUE constraint; true for the former.
    pub fn unique_constraints(&self) -> impl Iterator<Item = (&Vec<String>, bool)> {
        let primary = Some((&self.primary_key, true)).filter(|(columns, _)| !columns.is_empty());
        primary.into_iter().chain(self.unique.iter().map(|constraint| (&constraint.columns, false)))
    }

    /// The names of [`Self::unique_constraints`], in the same order.
    #[must_use]
    pub fn constraint_names(&self, table: &str) -> Vec<String> {
        let named = self.primary_key_name.clone().unwrap_or_else(|| format!("{table}_pkey"));
        let primary = Some(named).filter(|_| !self.primary_key.is_empty());
        primary.into_iter().chain(self.unique.iter().map(|constraint| constraint.name.clone())).collect()
    }

    /// Whether there is a constraint on exactly `columns`, in any order; always for none.
    ///
    /// # Errors
    /// [`Error::NoConstraint`].
    pub fn check_conflict_target(&self, table: &str, columns: &[String]) -> Result<()> {
        let is_on =
            |constraint: &Vec<String>| constraint.len() == columns.len() && columns.iter().all(|column| constraint.contains(column));
        if columns.is_empty() || self.unique_constraints().any(|(constraint, _)| is_on(constraint)) {
            return Ok(());
        }
        Err(Error::NoConstraint { table: table.to_owned(), columns: columns.join(", ") })
    }

    /// Makes `column` a generated column.
    ///
    /// # Errors
    /// [`Error::UnknownColumn`].
    pub fn with_generated(mut self, column: &str, expression: &str) -> Result<Self> {
        self.column_named(column)?;
        self.generated.insert(column.to_owned(), expression.to_owned());
        Ok(self)
    }

    /// Gives `column` a default.
    ///
    /// # Errors
    /// [`Error::UnknownColumn`].
    pub fn with_default(mut self, column: &str, expression: &str) -> Result<Self> {
        self.column_named(column)?;
        self.defaults.insert(column.to_owned(), expression.to_owned());
        Ok(self)
    }

    /// Packs the values of `column` when they are written, by `none` or `fsst`.
    ///
    /// # Errors
    /// [`Error::UnknownColumn`]; [`Error::InvalidOption`]; [`Error::NotSupported`] for a column that is neither text nor bytes.
    pub fn with_compression(mut self, column: &str, method: &str) -> Result<Self> {
        if !COMPRESSIONS.contains(&method) {
            return Err(Error::InvalidOption {
                name: "COMPRESSION".to_owned(),
                found: method.to_owned(),
                expected: format!("one of {}", COMPRESSIONS.join(", ")),
            });
        }
        if !is_packed(self.column_named(column)?.data_type()) {
            return Err(Error::NotSupported(format!("COMPRESSION of column \"{column}\", which is neither text nor bytes")));
        }
        self.compression.insert(column.to_owned(), method.to_owned());
        Ok(self)
    }

    pub(crate) fn column_named(&self, column: &str) -> Result<&Field> {
        self.schema.field_with_name(column).map_err(|_| Error::UnknownColumn {
            table: "being defined".to_owned(),
            name: column.to_owned(),
            known: nearest(column, self.schema.fields().iter().map(|field| field.name().clone())),
        })
    }

    /// The schema to write: the columns, with everything else as metadata.
    pub(crate) fn to_stored(&self) -> SchemaRef {
        let schema = map_fields(&self.schema, |field| {
            let mut metadata = field.metadata().clone();
            if let Some(expression) = self.generated.get(field.name()) {
                metadata.insert(GENERATED.to_owned(), expression.clone());
            }
            if let Some(expression) = self.defaults.get(field.name()) {
                metadata.insert(DEFAULT.to_owned(), expression.clone());
            }
            if let Some(identity) = self.identity.get(field.name()) {
                metadata.insert(IDENTITY.to_owned(), identity.name().to_owned());
            }
            if self.primary_key.contains(field.name()) {
                metadata.insert(LANCE_PRIMARY_KEY.to_owned(), "true".to_owned());
            }
            if is_packed(field.data_type()) {
                let method = self.compression.get(field.name()).map_or(NO_COMPRESSION, String::as_str);
                metadata.insert(COMPRESSION.to_owned(), method.to_owned());
            }
            field.clone().with_metadata(metadata)
        });
        let key = serde_json::to_string(&self.primary_key).expect("a list of strings is JSON");
        let columns: Vec<&Vec<String>> = self.unique.iter().map(|constraint| &constraint.columns).collect();
        let unique = serde_json::to_string(&columns).expect("a list of lists of strings is JSON");
        let mut metadata = HashMap::from([(PRIMARY_KEY.to_owned(), key), (UNIQUE.to_owned(), unique)]);
        if let Some(name) = &self.primary_key_name {
            metadata.insert(PRIMARY_KEY_NAME.to_owned(), name.clone());
        }
        if !self.unique.is_empty() {
            let names: Vec<&String> = self.unique.iter().map(|constraint| &constraint.name).collect();
            let names = serde_json::to_string(&names).expect("a list of strings is JSON");
            metadata.insert(UNIQUE_NAMES.to_owned(), names);
        }
        Arc::new(Schema::new_with_metadata(schema.fields().clone(), metadata))
    }

    /// The last column as it is added to a table: the storage takes what is said of it in the same commit, and nothing of what is said of the table,
    /// so that a UNIQUE constraint on it goes with the column.
    pub(crate) fn last_column_to_stored(&self) -> Field {
        let stored = self.to_stored();
        let field = stored.field(stored.fields().len() - 1);
        let mut metadata = field.metadata().clone();
        if let Some(constraint) = self.unique.iter().find(|constraint| constraint.columns == [field.name().as_str()]) {
            metadata.insert(UNIQUE_NAME.to_owned(), constraint.name.clone());
        }
        field.clone().with_metadata(metadata)
    }

    /// Reads back what [`Self::to_stored`] and [`Self::last_column_to_stored`] wrote.
    ///
    /// # Errors
    /// [`Error::Damaged`] when the key is not a list of names.
    pub(crate) fn from_stored(table: &str, stored: &Schema) -> Result<Self> {
        let damaged =
            |what: &str, error| Error::Damaged { table: table.to_owned(), reason: format!("its {what} is not readable: {error}") };
        let primary_key = match stored.metadata().get(PRIMARY_KEY) {
            None => Vec::new(),
            Some(text) => serde_json::from_str(text).map_err(|error| damaged("primary key", error))?,
        };
        let unique: Vec<Vec<String>> = match stored.metadata().get(UNIQUE) {
            None => Vec::new(),
            Some(text) => serde_json::from_str(text).map_err(|error| damaged("list of UNIQUE constraints", error))?,
        };
        let names: Vec<String> = match stored.metadata().get(UNIQUE_NAMES) {
            None => Vec::new(),
            Some(text) => serde_json::from_str(text).map_err(|error| damaged("list of names of constraints", error))?,
        };
        let collect = |key: &str| -> BTreeMap<String, String> {
            let fields = stored.fields().iter();
            fields.filter_map(|field| Some((field.name().clone(), field.metadata().get(key)?.clone()))).collect()
        };
        let identity = collect(IDENTITY).into_iter().map(|(column, name)| (column, Identity::from_name(&name))).collect();
        let mut compression = collect(COMPRESSION);
        compression.retain(|_, method| method != NO_COMPRESSION);
        let schema = map_fields(stored, plain);
        let primary_key_name = stored.metadata().get(PRIMARY_KEY_NAME).cloned();
        let mut unique = named(table, unique, names);
        let of_columns =
            stored.fields().iter().filter_map(|field| Some((field.name().clone(), field.metadata().get(UNIQUE_NAME)?.clone())));
        unique.extend(of_columns.map(|(column, name)| UniqueConstraint { name, columns: vec![column] }));
        Ok(Self {
            schema,
            primary_key,
            primary_key_name,
            unique,
            generated: collect(GENERATED),
            defaults: collect(DEFAULT),
            identity,
            compression,
        })
    }

    /// Positions of columns in the schema.
    pub(crate) fn positions(&self, columns: &[String]) -> Vec<usize> {
        columns.iter().filter_map(|column| self.schema.index_of(column).ok()).collect()
    }
}

impl Identity {
    fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::ByDefault => "by default",
        }
    }

    fn from_name(name: &str) -> Self {
        if name == "always" { Self::Always } else { Self::ByDefault }
    }
}

/// The constraints on these columns; those that have no name take PostgreSQL's.
fn named(table: &str, columns: Vec<Vec<String>>, mut names: Vec<String>) -> Vec<UniqueConstraint> {
    for columns in columns.iter().skip(names.len()) {
        let name = free_name(format!("{table}_{}_key", columns.join("_")), &names);
        names.push(name);
    }
    names.into_iter().zip(columns).map(|(name, columns)| UniqueConstraint { name, columns }).collect()
}

/// `name`, or the first of `name1`, `name2` and so on that is not taken.
fn free_name(name: String, taken: &[String]) -> String {
    let numbered = (1..=taken.len()).map(|number| format!("{name}{number}"));
    let free = std::iter::once(name.clone()).chain(numbered).find(|name| !taken.contains(name));
    free.unwrap_or(name)
}

/// `field` without the metadata that belongs to one table's definition.
/// Whether Lance would pack values of this type unasked, which takes more time than all else that a load does.
fn is_packed(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary)
}

fn plain(field: &Field) -> Field {
    let ours = |key: &str| {
        key == GENERATED
            || key == DEFAULT
            || key == IDENTITY
            || key == UNIQUE_NAME
            || key == COMPRESSION
            || key.starts_with("lance-schema:")
    };
    let metadata = field.metadata().iter().filter(|(key, _)| !ours(key));
    field.clone().with_metadata(metadata.map(|(key, value)| (key.clone(), value.clone())).collect())
}

pub(crate) fn map_fields(schema: &Schema, change: impl Fn(&Field) -> Field) -> SchemaRef {
    Arc::new(Schema::new(schema.fields().iter().map(|field| change(field)).collect::<Vec<Field>>()))
}
