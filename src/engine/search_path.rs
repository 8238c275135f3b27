//! `search_path`: the schemas in which names without one are looked for, and the first of which takes what is made.
//!
//! A statement gets the schemas that its names stand for before anything else looks at it, so that all behind this reads a name without a schema as one
//! of `public`. What is stored, such as the query of a view, is stored with them.

mod list;

use std::ops::ControlFlow;

use datafusion::sql::TableReference;
use datafusion::sql::sqlparser::ast::{Expr as SqlExpr, ObjectName, Query, TableAlias, TableFactor, VisitMut, VisitorMut};
use rolloutdb_catalogs::Error as CatalogError;
use rolloutdb_sql::{CommentedObject, CopySource, GrantObjects, OwnedKind, Privilege, Reindex, Statement};

use super::apply::planner::table_name;
use super::pg_catalog::{INFORMATION_SCHEMA, PG_CATALOG, is_table};
use super::privileges::Object;
use super::session::{DEFAULT_SCHEMA, Session};
use super::statement::quoted;
use super::table_arguments;
use super::with_names::{WithNames, folded};
use crate::error::{Error, Result};

pub use list::{listed, names};

/// The setting's name.
pub const SEARCH_PATH: &str = "search_path";

/// What stands for the schema that is called as the session's role.
const USER: &str = "$user";

/// Tables that the engine itself gives to a query.
const GIVEN: &str = "__rewrite_";

/// The schemas of the setting that there are, in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchPath {
    schemas: Vec<String>,
    /// What the setting names first.
    wanted: String,
}

impl SearchPath {
    pub fn of(session: &Session) -> Self {
        let shared = &session.database().shared;
        let exists = |name: &str| is_of_system(name) || shared.knows(&Object::schema(name));
        let named = names(&session.session_settings().value(SEARCH_PATH)).unwrap_or_default();
        let wanted = named.first().cloned().unwrap_or_default();
        let mut schemas: Vec<String> = Vec::new();
        for name in named {
            let name = if name == USER { session.role() } else { name };
            if !schemas.contains(&name) && exists(&name) {
                schemas.push(name);
            }
        }
        // Those that the role may not use are passed over; where that are all, the statement says what is missing.
        if schemas.len() > 1 {
            let access = session.access();
            let is_usable = |name: &String| is_of_system(name) || access.has(&Object::schema(name), Privilege::Usage);
            if schemas.iter().any(is_usable) {
                schemas.retain(is_usable);
            }
        }
        Self { schemas, wanted }
    }

    pub fn schemas(&self) -> &[String] {
        &self.schemas
    }

    /// Whether names mean what they mean without a path.
    fn is_default(&self) -> bool {
        matches!(self.schemas.as_slice(), [schema] if schema == DEFAULT_SCHEMA)
    }

    /// Those that tables can be in.
    fn of_users(&self) -> impl Iterator<Item = &String> {
        self.schemas.iter().filter(|schema| !is_of_system(schema))
    }

    /// The schema in which something is made.
    ///
    /// # Errors
    /// There is none (3F000).
    fn first(&self) -> Result<&String> {
        let none = || CatalogError::UnknownSchema { name: self.wanted.clone(), known: vec![DEFAULT_SCHEMA.to_owned()] };
        self.of_users().next().ok_or_else(|| none().into())
    }
}

fn is_of_system(schema: &str) -> bool {
    matches!(schema, PG_CATALOG | INFORMATION_SCHEMA)
}

/// The statement with the schemas of its own names; `None`: as it is. Those of its queries are found where they are planned.
///
/// # Errors
/// Something is to be made, and the path has no schema (3F000); a table is named, and there is none (42P01).
pub async fn resolved(session: &Session, statement: &Statement) -> Result<Option<Statement>> {
    if matches!(statement, Statement::Query(_)) {
        return Ok(None);
    }
    let path = SearchPath::of(session);
    if path.is_default() {
        return Ok(None);
    }
    let names = Names { session, path };
    let mut resolved = statement.clone();
    let inner = innermost(&mut resolved);
    if let Statement::CreateView(create) = inner {
        names.qualify(create.query.as_mut())?;
    }
    if let Statement::GenerateRollouts(generate) = inner {
        // It makes the table unless it is there.
        if !names.find(&mut generate.into) {
            names.place(&mut generate.into)?;
        }
    }
    created(inner).into_iter().try_for_each(|name| names.place(name))?;
    relations(inner).into_iter().try_for_each(|name| names.resolve(name))?;
    if let Some(index) = index(inner) {
        names.resolve_index(index).await?;
    }
    Ok(Some(resolved))
}

/// The statement that is explained, or queued.
fn innermost(statement: &mut Statement) -> &mut Statement {
    match statement {
        Statement::Explain(explain) => innermost(&mut explain.statement),
        Statement::Async(inner) => innermost(inner),
        other => other,
    }
}

/// What the statement makes, by name.
fn created(statement: &mut Statement) -> Option<&mut ObjectName> {
    match statement {
        Statement::CreateTable(create) => Some(&mut create.name),
        Statement::CreateView(create) => Some(&mut create.name),
        _ => None,
    }
}

/// The tables and views that the statement names, but for its queries.
fn relations(statement: &mut Statement) -> Vec<&mut ObjectName> {
    match statement {
        Statement::Insert(insert) => vec![&mut insert.target.table],
        Statement::Update(update) => vec![&mut update.target.table],
        Statement::Delete(delete) => vec![&mut delete.target.table],
        Statement::Merge(merge) => vec![&mut merge.target.table],
        Statement::Truncate(truncate) => truncate.names.iter_mut().collect(),
        Statement::CopyFrom(copy) => vec![&mut copy.table],
        Statement::CopyTo(copy) => match &mut copy.source {
            CopySource::Table(table, _) => vec![table],
            CopySource::Query(_) => vec![],
        },
        Statement::DropTable(drop) => drop.names.iter_mut().collect(),
        Statement::DropView(drop) => drop.names.iter_mut().collect(),
        Statement::AlterTable(alter) => vec![&mut alter.name],
        Statement::AlterOwner(alter) if matches!(alter.kind, OwnedKind::Table | OwnedKind::View) => vec![&mut alter.name],
        Statement::Comment(comment) => match &mut comment.on {
            CommentedObject::Table(name) | CommentedObject::View(name) | CommentedObject::Column { relation: name, .. } => vec![name],
            CommentedObject::Index(_) | CommentedObject::Schema(_) => vec![],
        },
        Statement::Grant(grant) => granted(&mut grant.objects),
        Statement::Revoke(revoke) => granted(&mut revoke.objects),
        Statement::CreateIndex(create) => vec![&mut create.table],
        Statement::Reindex(Reindex::Table(table)) => vec![table],
        Statement::Vacuum(vacuum) => vacuum.tables.iter_mut().collect(),
        Statement::Optimize(optimize) => optimize.tables.iter_mut().collect(),
        Statement::Analyze(analyze) => analyze.tables.iter_mut().collect(),
        Statement::DescribeTable(describe) => vec![&mut describe.name],
        Statement::CreateTable(create) => create.likes.iter_mut().map(|like| &mut like.table).collect(),
        _ => vec![],
    }
}

fn granted(objects: &mut GrantObjects) -> Vec<&mut ObjectName> {
    match objects {
        GrantObjects::Tables(names) => names.iter_mut().collect(),
        _ => vec![],
    }
}

/// An index is in the schema of its table.
fn index(statement: &mut Statement) -> Option<&mut ObjectName> {
    match statement {
        Statement::DropIndex(drop) => Some(&mut drop.name),
        Statement::Reindex(Reindex::Index(index)) => Some(index),
        Statement::Comment(comment) => match &mut comment.on {
            CommentedObject::Index(index) => Some(index),
            _ => None,
        },
        _ => None,
    }
}

/// Gives the tables of queries their schemas.
///
/// # Errors
/// As [`resolved`].
pub fn qualify(session: &Session, query: &mut impl VisitMut) -> Result<()> {
    let path = SearchPath::of(session);
    if path.is_default() { Ok(()) } else { Names { session, path }.qualify(query) }
}

/// Names along a path.
struct Names<'a> {
    session: &'a Session,
    path: SearchPath,
}

impl Names<'_> {
    fn qualify(&self, query: &mut impl VisitMut) -> Result<()> {
        match query.visit(&mut Qualifier { names: self, with: WithNames::default() }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(error) => Err(*error),
        }
    }

    /// The first schema with a table or view of this name.
    fn found(&self, table: &str) -> Option<&String> {
        let shared = &self.session.database().shared;
        self.path.of_users().find(|schema| shared.knows(&Object::table(schema, table)))
    }

    /// The schema of a table; `None`: the name is to stay as it is.
    ///
    /// # Errors
    /// The path has no schema that could have it (42P01).
    fn schema_of(&self, table: &str) -> Result<Option<&String>> {
        // What PostgreSQL has in its catalog goes before all.
        if is_table(PG_CATALOG, table) || table.starts_with(GIVEN) {
            return Ok(None);
        }
        if let Some(schema) = self.found(table) {
            return Ok(Some(schema));
        }
        if table.starts_with("pg_") {
            return Ok(None);
        }
        // The error of the first schema names the tables that are near.
        let none = || CatalogError::UnknownTable { name: table.to_owned(), known: Vec::new() };
        self.path.first().map(Some).map_err(|_| none().into())
    }

    /// For a name without a schema, of something that is there.
    fn resolve(&self, name: &mut ObjectName) -> Result<()> {
        if let Some(table) = bare(name)
            && let Some(schema) = self.schema_of(&table)?
        {
            *name = within(schema, &table);
        }
        Ok(())
    }

    /// The same; false, and nothing happens, if there is no such table.
    fn find(&self, name: &mut ObjectName) -> bool {
        let Some(table) = bare(name) else { return true };
        let schema = self.found(&table);
        if let Some(schema) = schema {
            *name = within(schema, &table);
        }
        schema.is_some()
    }

    /// For a name without a schema, of something that is made.
    fn place(&self, name: &mut ObjectName) -> Result<()> {
        if let Some(table) = bare(name) {
            *name = within(self.path.first()?, &table);
        }
        Ok(())
    }

    async fn resolve_index(&self, name: &mut ObjectName) -> Result<()> {
        let Some(index) = bare(name) else { return Ok(()) };
        let catalog = &self.session.database().shared.catalog;
        for schema in self.path.of_users() {
            if catalog.find_index(schema, &index).await.is_ok() {
                *name = within(schema, &index);
                return Ok(());
            }
        }
        // The statement says that it is not there.
        self.place(name)
    }
}

/// The name if it has no schema, folded.
fn bare(name: &ObjectName) -> Option<String> {
    let [part] = name.0.as_slice() else { return None };
    part.as_ident().map(folded)
}

fn within(schema: &str, name: &str) -> ObjectName {
    ObjectName::from(vec![quoted(schema), quoted(name)])
}

struct Qualifier<'a> {
    names: &'a Names<'a>,
    with: WithNames,
}

impl VisitorMut for Qualifier<'_> {
    type Break = Box<Error>;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        self.with.enter(query);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        self.with.leave(query);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, relation: &mut TableFactor) -> ControlFlow<Self::Break> {
        match self.relation(relation) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    }
}

impl Qualifier<'_> {
    fn relation(&self, relation: &mut TableFactor) -> Result<()> {
        for argument in table_arguments::of(&self.names.session.database().shared.functions, relation) {
            self.argument(argument)?;
        }
        let TableFactor::Table { name, alias, args: None, .. } = relation else { return Ok(()) };
        let Some(table) = bare(name).filter(|_| !self.with.hides(name)) else { return Ok(()) };
        if let Some(schema) = self.names.schema_of(&table)? {
            *name = within(schema, &table);
            // Columns are named by the table's name alone.
            alias.get_or_insert_with(|| TableAlias { explicit: true, name: quoted(&table), columns: vec![], at: None });
        }
        Ok(())
    }

    fn argument(&self, argument: &mut SqlExpr) -> Result<()> {
        let Some(written) = table_name(argument) else { return Ok(()) };
        let TableReference::Bare { table } = TableReference::parse_str(&written) else { return Ok(()) };
        if let Some(schema) = self.names.schema_of(&table)? {
            *argument = SqlExpr::CompoundIdentifier(vec![quoted(schema), quoted(&table)]);
        }
        Ok(())
    }
}
