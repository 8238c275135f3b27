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
/// Schema metadata: the columns of each UNIQUE constraint, as a JSON array of arrays.
const UNIQUE: &str = "rollout.unique";
/// Field metadata that Lance reads: the default key of a merge.
const LANCE_PRIMARY_KEY: &str = "lance-schema:unenforced-primary-key";

/// Columns, key, generated columns and defaults of a table. Expressions are texts here; the engine evaluates them.
#[derive(Debug, Clone, PartialEq)]
pub struct TableDefinition {
    /// Columns in order, in the types that are stored (see [`storage_schema`]). Columns of the key are NOT NULL.
    pub schema: SchemaRef,
    /// Columns of the primary key, in key order; empty when there is none.
    pub primary_key: Vec<String>,
    /// The columns of each UNIQUE constraint.
    pub unique: Vec<Vec<String>>,
    /// Column to the expression that computes it.
    pub generated: BTreeMap<String, String>,
    /// Column to the expression that fills it when an INSERT leaves it out.
    pub defaults: BTreeMap<String, String>,
    /// Columns that the table numbers.
    pub identity: BTreeMap<String, Identity>,
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
            unique: Vec::new(),
            generated: BTreeMap::new(),
            defaults: BTreeMap::new(),
            identity: BTreeMap::new(),
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

    /// Adds a UNIQUE constraint.
    ///
    /// # Errors
    /// As [`Self::with_primary_key`].
    pub fn with_unique(mut self, columns: &[&str]) -> Result<Self> {
        self.check_key("UNIQUE", columns)?;
        self.unique.push(columns.iter().map(|column| (*column).to_owned()).collect());
        Ok(self)
    }

    fn check_key(&self, constraint: &str, columns: &[&str]) -> Result<()> {
        for column in columns {
            let field = self.column_named(column)?;
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
        primary.into_iter().chain(self.unique.iter().map(|columns| (columns, false)))
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
            field.clone().with_metadata(metadata)
        });
        let key = serde_json::to_string(&self.primary_key).expect("a list of strings is JSON");
        let unique = serde_json::to_string(&self.unique).expect("a list of lists of strings is JSON");
        let metadata = HashMap::from([(PRIMARY_KEY.to_owned(), key), (UNIQUE.to_owned(), unique)]);
        Arc::new(Schema::new_with_metadata(schema.fields().clone(), metadata))
    }

    /// Reads back what [`Self::to_stored`] wrote.
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
        let unique = match stored.metadata().get(UNIQUE) {
            None => Vec::new(),
            Some(text) => serde_json::from_str(text).map_err(|error| damaged("list of UNIQUE constraints", error))?,
        };
        let collect = |key: &str| -> BTreeMap<String, String> {
            let fields = stored.fields().iter();
            fields.filter_map(|field| Some((field.name().clone(), field.metadata().get(key)?.clone()))).collect()
        };
        let identity = collect(IDENTITY).into_iter().map(|(column, name)| (column, Identity::from_name(&name))).collect();
        let schema = map_fields(stored, plain);
        Ok(Self { schema, primary_key, unique, generated: collect(GENERATED), defaults: collect(DEFAULT), identity })
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

/// `field` without the metadata that belongs to one table's definition.
fn plain(field: &Field) -> Field {
    let ours = |key: &str| key == GENERATED || key == DEFAULT || key == IDENTITY || key.starts_with("lance-schema:");
    let metadata = field.metadata().iter().filter(|(key, _)| !ours(key));
    field.clone().with_metadata(metadata.map(|(key, value)| (key.clone(), value.clone())).collect())
}

pub(crate) fn map_fields(schema: &Schema, change: impl Fn(&Field) -> Field) -> SchemaRef {
    Arc::new(Schema::new(schema.fields().iter().map(|field| change(field)).collect::<Vec<Field>>()))
}
