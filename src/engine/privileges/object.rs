//! What has an owner and privileges.

use std::fmt;

use datafusion::sql::sqlparser::ast::ObjectName;
use rolloutdb_catalogs::is_temporary_schema;
use rolloutdb_sql::{OwnedKind, Privilege};
use serde::{Deserialize, Serialize};

use crate::engine::session::CATALOG_NAME;
use crate::engine::statement::table_name;
use crate::error::Result;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Object {
    /// A table or a view: they share their names.
    Table {
        schema: String,
        name: String,
    },
    Schema {
        name: String,
    },
    /// All versions of a model.
    Model {
        name: String,
    },
    Agent {
        name: String,
    },
    /// The one that there is: who may make schemas, models and agents in it.
    Database,
}

impl Object {
    pub fn table(schema: &str, name: &str) -> Self {
        Self::Table { schema: schema.to_owned(), name: name.to_owned() }
    }

    pub fn schema(name: &str) -> Self {
        Self::Schema { name: name.to_owned() }
    }

    /// `reference`: a model or one of its versions, `name@3`.
    pub fn model(reference: &str) -> Self {
        let name = reference.split_once('@').map_or(reference, |(name, _)| name);
        Self::Model { name: name.to_owned() }
    }

    pub fn agent(name: &str) -> Self {
        Self::Agent { name: name.to_owned() }
    }

    /// What ALTER ... OWNER TO names.
    ///
    /// # Errors
    /// [`crate::Error::NotSupported`] for the name of another database.
    pub fn owned(kind: OwnedKind, name: &ObjectName) -> Result<Self> {
        let last = || name.0.last().and_then(|part| part.as_ident()).map(|ident| ident.value.clone()).unwrap_or_default();
        Ok(match kind {
            OwnedKind::Table | OwnedKind::View => {
                let (schema, name) = table_name(name)?;
                Self::Table { schema, name }
            }
            OwnedKind::Schema => Self::Schema { name: last() },
            OwnedKind::Model => Self::Model { name: last() },
            OwnedKind::Agent => Self::Agent { name: last() },
        })
    }

    /// Of one session alone: what is said about it is not stored.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Table { schema, .. } | Self::Schema { name: schema } if is_temporary_schema(schema))
    }

    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Table { .. } => "table",
            Self::Schema { .. } => "schema",
            Self::Model { .. } => "model",
            Self::Agent { .. } => "agent",
            Self::Database => "database",
        }
    }

    /// Its name without its schema.
    pub fn name(&self) -> &str {
        match self {
            Self::Table { name, .. } | Self::Schema { name } | Self::Model { name } | Self::Agent { name } => name,
            Self::Database => CATALOG_NAME,
        }
    }

    /// The privileges that there are on it.
    pub const fn privileges(&self) -> &'static [Privilege] {
        match self {
            Self::Table { .. } => &[Privilege::Insert, Privilege::Select, Privilege::Update, Privilege::Delete, Privilege::Truncate],
            Self::Schema { .. } => &[Privilege::Usage, Privilege::Create],
            Self::Model { .. } | Self::Agent { .. } => &[Privilege::Usage],
            Self::Database => &[Privilege::Create],
        }
    }

    /// As GRANT names it: `films`, `s.films`, `SCHEMA s`.
    pub fn in_grant(&self) -> String {
        match self {
            Self::Table { schema, name } if schema == "public" => name.clone(),
            Self::Table { schema, name } => format!("{schema}.{name}"),
            Self::Schema { name } => format!("SCHEMA {name}"),
            Self::Model { name } => format!("MODEL {name}"),
            Self::Agent { name } => format!("AGENT {name}"),
            Self::Database => format!("DATABASE {CATALOG_NAME}"),
        }
    }
}

/// As PostgreSQL's messages name it: `table films`.
impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.name())
    }
}
