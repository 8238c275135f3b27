//! What there is in a database, as one query about the catalog sees it: read once, before the query runs.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::physical_plan::collect;
use rolloutdb_catalogs::system::SYSTEM_SCHEMA;
use rolloutdb_catalogs::{Identity, IndexDefinition, ObjectKey, is_temporary_schema};
use tokio::time::Instant;

use super::catalog_table::CatalogTable;
use super::drafts::Draft;
use super::rows_of_batch::rows_of;
use super::system_tables::Numbers;
use super::tables::HIDDEN;
use super::types::{PgType, column_type};
use super::value::Row;
use super::{procedures, tables};
use crate::engine::cursors::CursorInfo;
use crate::engine::interruption::Wanted;
use crate::engine::named_statements::NamedStatementInfo;
use crate::engine::privileges::Privileges;
use crate::engine::search_path::SearchPath;
use crate::engine::session::{CATALOG_NAME, Session, WeakSession};
use crate::engine::temporary::TEMPORARY_ALIAS;
use crate::engine::{Membership, Role, Roles, SessionUser};
use crate::error::{Error, Result};

/// The number of `public` and of the superuser that is always there, as PostgreSQL has them.
pub const PUBLIC_OID: u32 = 2200;
pub const OWNER_OID: u32 = 10;
/// Numbers of the schemas that are made of queries.
pub const PG_CATALOG_OID: u32 = 11;
pub const INFORMATION_SCHEMA_OID: u32 = 13_000;
/// How many rows a table has, where that is not known.
pub const NOT_KNOWN: f64 = -1.0;
/// The number of the database. Clients take databases up to 16383 for the server's own, and pgAdmin shows none of them; the numbers of what users make begin
/// there and do not get so far, and those of functions come after it.
pub const DATABASE_OID: u32 = 999_999_999;

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
    /// Of an identity column.
    pub sequence: Option<Sequence>,
    pub comment: Option<String>,
}

/// What a client takes for the sequence of an identity column, whose numbers the table gives.
#[derive(Debug)]
pub struct Sequence {
    pub oid: u32,
    /// `table_column_seq`
    pub name: String,
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
    Sequence(&'a Relation, &'a Sequence),
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

/// By object and column, with the catalog table that lists the object.
type Comments = HashMap<(u32, i64), Vec<(u32, String)>>;

#[derive(Debug)]
pub struct Snapshot {
    session: WeakSession,
    /// The schema of the session's temporary tables, if it has made some.
    temporary: Option<String>,
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
    /// Those of the session.
    pub prepared_statements: Vec<NamedStatementInfo>,
    search_path: Vec<String>,
    pub procedures: Vec<procedures::Procedure>,
    pub now_micros: i64,
    /// When the database was opened.
    pub opened_micros: i64,
    /// Tables of others that go before those made here.
    system: BTreeMap<String, CatalogTable>,
    made: Mutex<HashMap<(&'static str, String), CatalogTable>>,
    places: Places,
    /// Texts, with the number of the catalog table that lists the object, by the object and its column; made when the first is asked for.
    comments: OnceLock<Comments>,
    /// Whether the statement that asks still runs.
    pub wanted: Wanted,
    /// By when it must have.
    pub deadline: Option<Instant>,
    /// Of the session's statements.
    pub memory: Arc<dyn MemoryPool>,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    Relation(usize),
    Index(usize, usize),
    Constraint(usize, usize),
    /// Of the column at a position.
    Sequence(usize, usize),
}

impl Snapshot {
    /// `with_relations`: whether tables are asked for; to read what they are takes a look at each of them.
    pub async fn load(session: &Session, with_relations: bool) -> Result<Self> {
        let catalog = Arc::clone(&session.database().shared.catalog);
        let mut schemas = vec![
            SchemaEntry { oid: PG_CATALOG_OID, name: tables::PG_CATALOG.to_owned(), comment: Some("system catalog schema".to_owned()) },
            SchemaEntry { oid: INFORMATION_SCHEMA_OID, name: tables::INFORMATION_SCHEMA.to_owned(), comment: None },
        ];
        let temporary = session.temporary().made().map(str::to_owned);
        let mut names = CatalogProvider::schema_names(&*catalog);
        names.retain(|name| !is_temporary_schema(name) || temporary.as_ref() == Some(name));
        let keys: Vec<ObjectKey> = names.iter().map(|name| ObjectKey::schema(name)).collect();
        for (name, number) in names.into_iter().zip(catalog.object_numbers(&keys)?) {
            let oid = if name == "public" { PUBLIC_OID } else { number };
            let comment = catalog.schema_comment(&name);
            schemas.push(SchemaEntry { oid, comment, name });
        }
        let mut relations = tables::relations();
        let mut tables_of_others = Vec::new();
        let mut drafts = Vec::new();
        for schema in schemas.iter().filter(|_| with_relations) {
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
                drafts.push(Draft::read(schema, name, provider).await);
            }
        }
        let keys: Vec<ObjectKey> = drafts.iter().flat_map(Draft::keys).collect();
        let mut numbers = catalog.object_numbers(&keys)?.into_iter();
        for draft in drafts {
            relations.push(draft.relation(&mut numbers));
        }
        let role_book = session.database().roles().clone();
        let roles = role_entries(&role_book, &session.role());
        let numbers = Numbers { relations: &relations, roles: &roles };
        let system: BTreeMap<String, CatalogTable> =
            tables_of_others.into_iter().map(|(name, table)| (name, numbers.filled(table))).collect();
        let keys: Vec<ObjectKey> = system.keys().map(|name| ObjectKey::relation(tables::PG_CATALOG, name)).collect();
        let oids = catalog.object_numbers(&keys)?;
        relations.extend(system.iter().zip(oids).map(|((name, table), oid)| tables::system_relation(name, oid, table)));
        let places = Places::of(&relations);
        let state = session.context().state();
        Ok(Self {
            session: session.downgrade(),
            search_path: search_path(session, temporary.as_deref()),
            temporary,
            schemas,
            memberships: role_book.members(),
            roles,
            role_book,
            privileges: session.database().shared.privileges.clone(),
            user: session.session_user(),
            settings: rows_of(&session.session_settings().rows()?)?,
            cursors: session.cursors().list(),
            prepared_statements: session.named_statements().list(),
            procedures: procedures::all(&state, &session.database().table_functions()),
            now_micros: micros(SystemTime::now()),
            opened_micros: micros(session.database().shared.opened),
            relations,
            system,
            made: Mutex::default(),
            places,
            comments: OnceLock::new(),
            wanted: session.wanted(),
            deadline: session.timeouts().deadline(),
            memory: Arc::clone(session.memory()) as Arc<dyn MemoryPool>,
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
        Some(match *self.places.by_oid.get(&oid)? {
            Place::Relation(relation) => Class::Relation(&self.relations[relation]),
            Place::Index(relation, index) => Class::Index(&self.relations[relation], &self.relations[relation].indexes[index]),
            Place::Constraint(relation, constraint) => {
                Class::ConstraintIndex(&self.relations[relation], &self.relations[relation].constraints[constraint])
            }
            Place::Sequence(relation, column) => {
                let relation = &self.relations[relation];
                Class::Sequence(relation, relation.columns[column].sequence.as_ref()?)
            }
        })
    }

    /// Schemas whose tables are found without naming them: those of temporary tables and of the catalog go before all, unless the setting gives the catalog a
    /// place.
    pub fn search_path(&self) -> &[String] {
        &self.search_path
    }

    /// A table that has the name of a temporary one is not.
    pub fn is_visible(&self, class: Class<'_>) -> bool {
        let position = self.search_path.iter().position(|schema| schema == class.schema());
        // One of the same name in a schema before its own hides it.
        let is_free =
            |position: usize| self.search_path[..position].iter().all(|schema| self.class_named(Some(schema), class.name()).is_none());
        position.is_some_and(is_free)
    }

    /// The schema of the session's temporary tables.
    pub fn temporary_schema(&self) -> Option<&SchemaEntry> {
        self.schemas.iter().find(|schema| self.temporary.as_ref() == Some(&schema.name))
    }

    /// A table, view, index or sequence by name; without a schema, one that is found without it.
    pub fn class_named(&self, schema: Option<&str>, name: &str) -> Option<u32> {
        let find = |schema: &str| self.places.by_name.get(schema)?.get(name).copied();
        // `pg_temp` is the name of the session's own.
        let schema = schema.map(|schema| self.temporary.as_deref().filter(|_| schema == TEMPORARY_ALIAS).unwrap_or(schema));
        match schema {
            Some(schema) => find(schema),
            None => self.search_path.iter().find_map(|schema| find(schema)),
        }
    }

    /// A primary key or a UNIQUE constraint by its own number, with its table.
    pub fn constraint(&self, oid: u32) -> Option<(&Relation, &Constraint)> {
        let (relation, constraint) = *self.places.constraints.get(&oid)?;
        Some((&self.relations[relation], &self.relations[relation].constraints[constraint]))
    }

    /// The comment on an object, or on its column if that is not 0. `listed_in`: the catalog table that lists the object; 0: any.
    pub fn comment(&self, oid: u32, column: i64, listed_in: u32) -> Option<&str> {
        let comments = self.comments.get_or_init(|| {
            let mut comments = Comments::new();
            for (object, class, column, text) in tables::comments(self) {
                comments.entry((object, column)).or_default().push((class, text.to_owned()));
            }
            comments
        });
        let mut of_object = comments.get(&(oid, column))?.iter();
        of_object.find(|(class, _)| listed_in == 0 || *class == listed_in).map(|(_, text)| text.as_str())
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
            Self::Relation(relation) | Self::Index(relation, _) | Self::ConstraintIndex(relation, _) | Self::Sequence(relation, _) => {
                relation
            }
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
            Self::Sequence(_, sequence) => &sequence.name,
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

/// With the catalog, which is looked into though the setting does not name it, and the session's own schema before it.
fn search_path(session: &Session, temporary: Option<&str>) -> Vec<String> {
    let mut path = SearchPath::of(session).schemas().to_vec();
    if !path.iter().any(|schema| schema == tables::PG_CATALOG) {
        path.insert(0, tables::PG_CATALOG.to_owned());
    }
    path.splice(0..0, temporary.map(str::to_owned));
    path
}

/// Where the objects are that have numbers and names.
#[derive(Debug, Default)]
struct Places {
    by_oid: HashMap<u32, Place>,
    /// Numbers by schema and name.
    by_name: HashMap<String, HashMap<String, u32>>,
    /// Relation and position, by the constraint's own number.
    constraints: HashMap<u32, (usize, usize)>,
}

impl Places {
    fn of(relations: &[Relation]) -> Self {
        let mut places = Self::default();
        for (number, relation) in relations.iter().enumerate() {
            places.add(relation, &relation.name, relation.oid, Place::Relation(number));
            for (position, index) in relation.indexes.iter().enumerate() {
                places.add(relation, &index.definition.name, index.oid, Place::Index(number, position));
            }
            for (position, constraint) in relation.constraints.iter().enumerate() {
                places.add(relation, &constraint.name, constraint.index_oid, Place::Constraint(number, position));
                places.constraints.insert(constraint.oid, (number, position));
            }
            for (position, column) in relation.columns.iter().enumerate() {
                if let Some(sequence) = &column.sequence {
                    places.add(relation, &sequence.name, sequence.oid, Place::Sequence(number, position));
                }
            }
        }
        places
    }

    /// Of several that have a name, the first has it.
    fn add(&mut self, relation: &Relation, name: &str, oid: u32, place: Place) {
        self.by_oid.insert(oid, place);
        self.by_name.entry(relation.schema.clone()).or_default().entry(name.to_owned()).or_insert(oid);
    }
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

/// Microseconds since 1970.
pub fn micros(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
}

/// The name of the database, which is that of the catalog.
pub fn database_name() -> &'static str {
    CATALOG_NAME
}
