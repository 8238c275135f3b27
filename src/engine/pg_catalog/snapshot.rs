//! What there is in a database, as one query about the catalog sees it: read once, before the query runs.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::logical_expr::TableType;
use datafusion::physical_plan::collect;
use rolloutdb_catalogs::system::SYSTEM_SCHEMA;
use rolloutdb_catalogs::{Catalog, Commented, Identity, IndexDefinition, ObjectKey, Table, View};

use super::catalog_table::CatalogTable;
use super::rows_of_batch::rows_of;
use super::system_tables::Numbers;
use super::tables::HIDDEN;
use super::types::{PgType, column_type};
use super::value::Row;
use super::{procedures, tables};
use crate::engine::cursors::CursorInfo;
use crate::engine::privileges::Privileges;
use crate::engine::session::{CATALOG_NAME, Session, WeakSession};
use crate::engine::{Membership, Role, Roles, SessionUser};
use crate::error::{Error, Result};

/// The number of `public` and of the superuser that is always there, as PostgreSQL has them.
pub const PUBLIC_OID: u32 = 2200;
pub const OWNER_OID: u32 = 10;
/// Numbers of the schemas that are made of queries.
pub const PG_CATALOG_OID: u32 = 11;
pub const INFORMATION_SCHEMA_OID: u32 = 13_000;
/// The number of the database.
pub const DATABASE_OID: u32 = 5;

/// Names that start so in the schema `rollout` are tables of `pg_catalog` too, and go before those that are made here.
const SYSTEM_PREFIX: &str = "pg_";

#[derive(Debug)]
pub struct SchemaEntry {
    pub oid: u32,
    pub name: String,
    pub comment: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelationKind {
    Table,
    /// A view, with its query.
    View(String),
    /// A view that is computed by the system: it has no query.
    System,
}

/// A table or a view.
#[derive(Debug)]
pub struct Relation {
    pub oid: u32,
    pub schema: String,
    pub schema_oid: u32,
    pub name: String,
    pub kind: RelationKind,
    pub columns: Vec<Column>,
    pub constraints: Vec<Constraint>,
    pub indexes: Vec<Index>,
    /// -1: not known.
    pub num_rows: f64,
    /// Of its rows on disk.
    pub bytes: u64,
    pub comment: Option<String>,
}

#[derive(Debug)]
pub struct Column {
    pub name: String,
    pub pg_type: PgType,
    /// `atttypmod`
    pub modifier: i32,
    pub not_null: bool,
    /// The expression of DEFAULT or GENERATED, with the number of it.
    pub expression: Option<(u32, String)>,
    pub is_generated: bool,
    pub identity: Option<Identity>,
    pub comment: Option<String>,
}

/// A primary key or a UNIQUE constraint. A client looks for an index of its name.
#[derive(Debug)]
pub struct Constraint {
    pub oid: u32,
    pub index_oid: u32,
    pub name: String,
    /// Numbers of columns, from 1.
    pub columns: Vec<i64>,
    pub is_primary: bool,
}

#[derive(Debug)]
pub struct Index {
    pub oid: u32,
    pub definition: IndexDefinition,
    /// The number of its column, from 1.
    pub column: i64,
    pub bytes: u64,
    pub comment: Option<String>,
}

/// What a number in `pg_class` stands for.
#[derive(Debug, Clone, Copy)]
pub enum Class<'a> {
    Relation(&'a Relation),
    Index(&'a Relation, &'a Index),
    ConstraintIndex(&'a Relation, &'a Constraint),
}

/// A role, with what the session may see of its password.
pub struct RoleEntry {
    pub role: Role,
    pub password: Option<String>,
}

impl fmt::Debug for RoleEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoleEntry").field("name", &self.role.name).finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub struct Snapshot {
    session: WeakSession,
    pub schemas: Vec<SchemaEntry>,
    pub relations: Vec<Relation>,
    /// By name.
    pub roles: Vec<RoleEntry>,
    pub memberships: Vec<Membership>,
    /// Who has whose rights.
    pub role_book: Roles,
    /// Who owns what, and has which rights to it.
    pub privileges: Privileges,
    /// Who asks.
    pub user: SessionUser,
    /// The rows of `pg_settings`.
    pub settings: Vec<Row>,
    /// Those of the session.
    pub cursors: Vec<CursorInfo>,
    pub procedures: Vec<procedures::Procedure>,
    pub now_micros: i64,
    /// Tables of others that go before those made here.
    system: BTreeMap<String, CatalogTable>,
    made: Mutex<HashMap<(&'static str, String), CatalogTable>>,
    by_oid: HashMap<u32, Place>,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    Relation(usize),
    Index(usize, usize),
    Constraint(usize, usize),
}

impl Snapshot {
    pub async fn load(session: &Session) -> Result<Self> {
        let catalog = Arc::clone(&session.database().shared.catalog);
        let mut schemas = vec![
            SchemaEntry { oid: PG_CATALOG_OID, name: tables::PG_CATALOG.to_owned(), comment: Some("system catalog schema".to_owned()) },
            SchemaEntry { oid: INFORMATION_SCHEMA_OID, name: tables::INFORMATION_SCHEMA.to_owned(), comment: None },
        ];
        let names = CatalogProvider::schema_names(&*catalog);
        let keys: Vec<ObjectKey> = names.iter().map(|name| ObjectKey::schema(name)).collect();
        for (name, number) in names.into_iter().zip(catalog.object_numbers(&keys)?) {
            let oid = if name == "public" { PUBLIC_OID } else { number };
            let comment = catalog.schema_comment(&name);
            schemas.push(SchemaEntry { oid, comment, name });
        }
        let mut relations = tables::relations();
        let mut tables_of_others = Vec::new();
        for schema in &schemas {
            let Ok(folder) = catalog.rollout_schema(&schema.name) else { continue };
            for name in folder.table_names() {
                // A table that is damaged is in the list all the same, so that it can be dropped.
                let provider = folder.table(&name).await.ok().flatten();
                if let Some(provider) = &provider
                    && schema.name == SYSTEM_SCHEMA
                    && name.starts_with(SYSTEM_PREFIX)
                {
                    tables_of_others.push((name.clone(), system_table(session, provider).await?));
                }
                relations.push(relation(&catalog, schema, &name, provider.as_ref()).await?);
            }
        }
        let role_book = session.database().roles().clone();
        let roles = role_entries(&role_book, &session.role());
        let numbers = Numbers { relations: &relations, roles: &roles };
        let system: BTreeMap<String, CatalogTable> =
            tables_of_others.into_iter().map(|(name, table)| (name, numbers.filled(table))).collect();
        let keys: Vec<ObjectKey> = system.keys().map(|name| ObjectKey::relation(tables::PG_CATALOG, name)).collect();
        let oids = catalog.object_numbers(&keys)?;
        relations.extend(system.iter().zip(oids).map(|((name, table), oid)| tables::system_relation(name, oid, table)));
        let by_oid = places(&relations);
        let state = session.context().state();
        Ok(Self {
            session: session.downgrade(),
            schemas,
            memberships: role_book.members(),
            roles,
            role_book,
            privileges: session.database().shared.privileges.clone(),
            user: session.session_user(),
            settings: rows_of(&session.session_settings().rows()?)?,
            cursors: session.cursors().list(),
            procedures: procedures::all(&state, &session.database().table_functions()),
            now_micros: micros(SystemTime::now()),
            relations,
            system,
            made: Mutex::default(),
            by_oid,
        })
    }

    /// A table of `pg_catalog` or `information_schema`; without a schema, of the former. `None`: there is none of that name.
    ///
    /// # Errors
    /// When a table of another part has rows that cannot be read.
    pub fn table(&self, schema: Option<&str>, name: &str) -> Result<Option<CatalogTable>> {
        let Some(schema) = tables::schema_of(schema, name, self) else { return Ok(None) };
        if schema == tables::PG_CATALOG
            && let Some(table) = self.system.get(name)
        {
            return Ok(Some(table.clone()));
        }
        let key = (schema, name.to_owned());
        if let Some(made) = self.made.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(Some(made.clone()));
        }
        let Some(made) = tables::make(schema, name, self) else { return Ok(None) };
        self.made.lock().unwrap_or_else(PoisonError::into_inner).insert(key, made.clone());
        Ok(Some(made))
    }

    /// Whether a table of another part is shown in `pg_catalog` under this name.
    pub fn has_system_table(&self, name: &str) -> bool {
        self.system.contains_key(name)
    }

    pub fn class(&self, oid: u32) -> Option<Class<'_>> {
        Some(match *self.by_oid.get(&oid)? {
            Place::Relation(relation) => Class::Relation(&self.relations[relation]),
            Place::Index(relation, index) => Class::Index(&self.relations[relation], &self.relations[relation].indexes[index]),
            Place::Constraint(relation, constraint) => {
                Class::ConstraintIndex(&self.relations[relation], &self.relations[relation].constraints[constraint])
            }
        })
    }

    /// Schemas whose tables are found without naming them.
    pub fn search_path(&self) -> [&'static str; 2] {
        [tables::PG_CATALOG, "public"]
    }

    pub fn is_visible(&self, class: Class<'_>) -> bool {
        self.search_path().contains(&class.schema())
    }

    /// A table, view or index by name; without a schema, one that is found without it.
    pub fn class_named(&self, schema: Option<&str>, name: &str) -> Option<u32> {
        let path = self.search_path();
        let path = schema.map_or_else(|| path.to_vec(), |schema| vec![schema]);
        path.iter().find_map(|schema| {
            self.relations.iter().filter(|relation| relation.schema == *schema).find_map(|relation| {
                if relation.name == name {
                    return Some(relation.oid);
                }
                let index = relation.indexes.iter().find(|index| index.definition.name == name).map(|index| index.oid);
                let of_constraint = || relation.constraints.iter().find(|constraint| constraint.name == name).map(|found| found.index_oid);
                index.or_else(of_constraint)
            })
        })
    }

    pub fn schema(&self, oid: u32) -> Option<&SchemaEntry> {
        self.schemas.iter().find(|schema| schema.oid == oid)
    }

    pub fn role(&self, oid: u32) -> Option<&str> {
        self.roles.iter().find(|entry| entry.role.oid == oid).map(|entry| entry.role.name.as_str())
    }

    pub fn role_number(&self, name: &str) -> Option<u32> {
        self.roles.iter().find(|entry| entry.role.name == name).map(|entry| entry.role.oid)
    }

    /// The name of the role that has what nobody else has: the superuser that is always there.
    pub fn owner(&self) -> &str {
        self.role(OWNER_OID).unwrap_or_default()
    }

    /// The session that asks.
    ///
    /// # Errors
    /// [`Error::Internal`] when it has ended.
    pub fn session(&self) -> Result<Session> {
        self.session.upgrade().ok_or_else(|| Error::Internal("the session is gone".to_owned()))
    }
}

impl<'a> Class<'a> {
    pub fn relation(self) -> &'a Relation {
        match self {
            Self::Relation(relation) | Self::Index(relation, _) | Self::ConstraintIndex(relation, _) => relation,
        }
    }

    pub fn schema(self) -> &'a str {
        &self.relation().schema
    }

    pub fn name(self) -> &'a str {
        match self {
            Self::Relation(relation) => &relation.name,
            Self::Index(_, index) => &index.definition.name,
            Self::ConstraintIndex(_, constraint) => &constraint.name,
        }
    }
}

impl Relation {
    /// Of the table and its indexes.
    pub fn total_bytes(&self) -> u64 {
        self.bytes + self.indexes.iter().map(|index| index.bytes).sum::<u64>()
    }

    /// One of the two schemas that every database has.
    pub fn is_of_system(&self) -> bool {
        self.schema_oid == PG_CATALOG_OID || self.schema_oid == INFORMATION_SCHEMA_OID
    }
}

fn places(relations: &[Relation]) -> HashMap<u32, Place> {
    let mut places = HashMap::new();
    for (number, relation) in relations.iter().enumerate() {
        places.insert(relation.oid, Place::Relation(number));
        let indexes = relation.indexes.iter().enumerate().map(|(position, index)| (index.oid, Place::Index(number, position)));
        let constraints = relation.constraints.iter().enumerate();
        places.extend(indexes.chain(constraints.map(|(position, found)| (found.index_oid, Place::Constraint(number, position)))));
    }
    places
}

/// Superusers see passwords as they are stored.
fn role_entries(roles: &Roles, reader: &str) -> Vec<RoleEntry> {
    let sees_passwords = roles.get(reader).is_some_and(|role| role.is_superuser);
    let password = |role: &Role| {
        role.has_password().then(|| if sees_passwords { String::from(roles.verifier(&role.name).0) } else { HIDDEN.to_owned() })
    };
    roles.list().into_iter().map(|role| RoleEntry { password: password(&role), role }).collect()
}

async fn system_table(session: &Session, provider: &Arc<dyn TableProvider>) -> Result<CatalogTable> {
    let state = session.context().state();
    let plan = provider.scan(&state, None, &[], None).await?;
    let batches = collect(plan, state.task_ctx()).await?;
    let columns = provider.schema().fields().iter().map(|field| (field.name().clone(), column_type(field).0)).collect();
    let rows = batches.iter().map(rows_of).collect::<Result<Vec<_>>>()?;
    Ok(CatalogTable { columns, rows: Arc::new(rows.into_iter().flatten().collect()) })
}

async fn relation(catalog: &Catalog, schema: &SchemaEntry, name: &str, provider: Option<&Arc<dyn TableProvider>>) -> Result<Relation> {
    let oid = catalog.object_numbers(&[ObjectKey::relation(&schema.name, name)])?[0];
    let empty = Relation {
        oid,
        schema: schema.name.clone(),
        schema_oid: schema.oid,
        name: name.to_owned(),
        kind: RelationKind::Table,
        columns: vec![],
        constraints: vec![],
        indexes: vec![],
        num_rows: -1.0,
        bytes: 0,
        comment: None,
    };
    let Some(provider) = provider else { return Ok(empty) };
    if let Some(table) = (provider.as_ref() as &dyn std::any::Any).downcast_ref::<Table>() {
        return stored_table(catalog, table, empty).await;
    }
    let view = View::of(provider.as_ref());
    let column = |field: &arrow::datatypes::FieldRef| {
        let (pg_type, modifier) = column_type(field);
        let comment = view.and_then(|view| view.comment(Some(field.name())).map(str::to_owned));
        Column {
            name: field.name().clone(),
            pg_type,
            modifier,
            not_null: false,
            expression: None,
            is_generated: false,
            identity: None,
            comment,
        }
    };
    let kind = match view {
        Some(view) => RelationKind::View(view.query().to_owned()),
        None if provider.table_type() == TableType::Base => RelationKind::Table,
        None => RelationKind::System,
    };
    let columns = provider.schema().fields().iter().map(column).collect();
    let comment = view.and_then(|view| view.comment(None).map(str::to_owned));
    Ok(Relation { kind, columns, comment, ..empty })
}

async fn stored_table(catalog: &Catalog, table: &Table, empty: Relation) -> Result<Relation> {
    let definition = table.definition();
    let (schema, name) = (&empty.schema, &empty.name);
    let described = table.described_indexes().await?;
    let constraint_names = definition.constraint_names(name);
    let mut keys: Vec<ObjectKey> = described.iter().map(|(index, _)| ObjectKey::index(schema, name, &index.name)).collect();
    keys.extend(constraint_names.iter().map(|constraint| ObjectKey::constraint(schema, name, constraint)));
    keys.extend(constraint_names.iter().map(|constraint| ObjectKey::index(schema, name, constraint)));
    let fields = definition.schema.fields();
    keys.extend(fields.iter().map(|field| ObjectKey::default(schema, name, field.name())));
    let mut numbers = catalog.object_numbers(&keys)?.into_iter();
    let number_of = |column: &String| fields.iter().position(|field| field.name() == column).map_or(0, |position| position as i64 + 1);
    let indexes = described.into_iter().zip(numbers.by_ref()).map(|((index, bytes), oid)| {
        let comment = table.comment(Commented::Index(&index.name)).map(str::to_owned);
        Index { oid, column: number_of(&index.column), definition: index, bytes, comment }
    });
    let indexes: Vec<Index> = indexes.collect();
    let constraint_oids: Vec<u32> = numbers.by_ref().take(constraint_names.len()).collect();
    let index_oids: Vec<u32> = numbers.by_ref().take(constraint_names.len()).collect();
    let constraints = definition.unique_constraints().zip(constraint_names).zip(constraint_oids.into_iter().zip(index_oids));
    let constraints = constraints.map(|(((columns, is_primary), name), (oid, index_oid))| Constraint {
        oid,
        index_oid,
        name,
        columns: columns.iter().map(number_of).collect(),
        is_primary,
    });
    let constraints = constraints.collect();
    let column = |(field, oid): (&arrow::datatypes::FieldRef, u32)| {
        let (pg_type, modifier) = column_type(field);
        let generated = definition.generated.get(field.name());
        let expression = generated.or_else(|| definition.defaults.get(field.name()));
        Column {
            name: field.name().clone(),
            pg_type,
            modifier,
            not_null: !field.is_nullable(),
            expression: expression.map(|expression| (oid, expression.clone())),
            is_generated: generated.is_some(),
            identity: definition.identity.get(field.name()).copied(),
            comment: table.comment(Commented::Column(field.name())).map(str::to_owned),
        }
    };
    let columns = fields.iter().zip(numbers).map(column).collect();
    let num_rows = table.row_count().await? as f64;
    let comment = table.comment(Commented::Table).map(str::to_owned);
    Ok(Relation { columns, constraints, indexes, num_rows, bytes: table.data_bytes(), comment, ..empty })
}

/// Microseconds since 1970.
pub fn micros(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
}

/// The name of the database, which is that of the catalog.
pub fn database_name() -> &'static str {
    CATALOG_NAME
}
