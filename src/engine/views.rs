//! Views: their queries take the place of their names before anything is planned, so that a statement reads one snapshot of all tables under them.
//!
//! What a view reads is settled by the view and its owner, whatever stands around it: each table in its query goes by a name that nobody can know
//! beforehand. So no name after WITH takes its place, and no other part of the statement reads it with the rights of the view's owner.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::logical_expr::ScalarUDF;
use datafusion::sql::TableReference;
use datafusion::sql::sqlparser::ast::{
    Ident, ObjectName, Query, Statement as SqlStatement, TableAlias, TableFactor, TableVersion, TableWithJoins, Visit, VisitMut, Visitor,
    VisitorMut,
};
use ring::rand::{SecureRandom, SystemRandom};
use rolloutdb_catalogs::Catalog;
use rolloutdb_sql::Statement;

use super::apply::planner::table_reference;
use super::privileges::relations::stored_table;
use super::privileges::{Access, Object};
use super::session::{CATALOG_NAME, Session};
use super::statement_catalog::OpenedTables;
use super::view_names::ViewName;
use super::with_names::WithNames;
use super::{macros, versions};
use crate::error::{Error, Result};

/// Views that read views that read views.
const NESTING_MAX: usize = 32;

/// A table that the query of a view reads.
#[derive(Debug)]
pub struct TableOfView {
    /// By which the statement reads it.
    internal_name: String,
    schema: String,
    name: String,
    version: Option<TableVersion>,
    /// As the view's query has it.
    shown: TableReference,
    has_alias: bool,
    /// Of the view: who reads the table.
    owner: Access,
}

/// Puts the queries of views in the place of their names; gives the tables that these read, which [`open`] opens.
///
/// `functions`: those that statements may call, for arguments that go by names.
///
/// # Errors
/// [`Error::NotSupported`] for views that read each other in a circle.
pub fn expand(session: &Session, statement: &mut SqlStatement, functions: &HashMap<String, Arc<ScalarUDF>>) -> Result<Vec<TableOfView>> {
    let mut tables = Vec::new();
    let expander = Expander { session, functions, with: WithNames::default(), owner: None, views: 0, tables: &mut tables };
    expander.expand(statement)?;
    Ok(tables)
}

/// Whether a query names a view.
pub fn are_read(catalog: &Catalog, query: &Query) -> bool {
    Visit::visit(query, &mut Names(catalog)).is_break()
}

/// Stops at the first name of a view, hidden or not.
struct Names<'a>(&'a Catalog);

impl Visitor for Names<'_> {
    type Break = ();

    fn pre_visit_table_factor(&mut self, relation: &TableFactor) -> ControlFlow<()> {
        let TableFactor::Table { name, .. } = relation else { return ControlFlow::Continue(()) };
        match table_reference(name).and_then(|(schema, name)| self.0.view_query(&schema, &name)) {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    }
}

struct Expander<'a> {
    session: &'a Session,
    functions: &'a HashMap<String, Arc<ScalarUDF>>,
    with: WithNames,
    /// Of the view whose query is visited.
    owner: Option<Access>,
    /// How many views are round what is visited.
    views: usize,
    tables: &'a mut Vec<TableOfView>,
}

impl VisitorMut for Expander<'_> {
    type Break = Box<Error>;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        self.with.enter(query);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        self.with.leave(query);
        ControlFlow::Continue(())
    }

    /// After what is in the relation: the query of a view is no part of the text around it.
    fn post_visit_table_factor(&mut self, relation: &mut TableFactor) -> ControlFlow<Self::Break> {
        match self.replace(relation) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    }
}

impl Expander<'_> {
    fn expand(mut self, statement: &mut SqlStatement) -> Result<()> {
        match VisitMut::visit(statement, &mut self) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(error) => Err(*error),
        }
    }

    fn replace(&mut self, relation: &mut TableFactor) -> Result<()> {
        let TableFactor::Table { name, alias, args: None, version, .. } = &*relation else { return Ok(()) };
        if self.with.hides(name) {
            return Ok(());
        }
        let Some((schema, table)) = table_reference(name) else { return Ok(()) };
        let text = if version.is_none() { self.session.database().shared.catalog.view_query(&schema, &table) } else { None };
        let Some(text) = text else { return self.rename(relation, schema, table) };
        let own_name = || TableAlias { explicit: true, name: super::statement::quoted(&table), columns: vec![], at: None };
        let mut alias = alias.clone().unwrap_or_else(own_name);
        let subquery = self.query_of(&schema, &table, &text)?;
        // The columns are named where they are those of the view, and the view's name stands round them until the plan is analyzed.
        let name = Ident::with_quote('"', ViewName { schema, view: table }.to_string());
        let marked = TableAlias { explicit: true, name, columns: std::mem::take(&mut alias.columns), at: None };
        let relation_of_view = TableFactor::Derived { lateral: false, subquery, alias: Some(marked), sample: None };
        let table_with_joins = Box::new(TableWithJoins { relation: relation_of_view, joins: vec![] });
        *relation = TableFactor::NestedJoin { table_with_joins, alias: Some(alias) };
        Ok(())
    }

    /// The query of a view, with those of the views under it.
    fn query_of(&mut self, schema: &str, view: &str, text: &str) -> Result<Box<Query>> {
        if self.views == NESTING_MAX {
            return Err(Error::NotSupported(format!("view {view} reads itself, by way of other views")));
        }
        let not_a_query = || Error::Internal(format!("view {view} is not a query: {text}"));
        let Some(Statement::Query(query)) = rolloutdb_sql::parse(text)?.pop() else { return Err(not_a_query()) };
        let mut statement = SqlStatement::Query(query);
        // What a macro reads is read by the view.
        macros::expand(&mut statement, self.functions)?;
        let owner = self.session.access().owner_of(&Object::table(schema, view));
        let (session, functions, views) = (self.session, self.functions, self.views + 1);
        let inner = Expander { session, functions, with: WithNames::default(), owner: Some(owner), views, tables: &mut *self.tables };
        inner.expand(&mut statement)?;
        let SqlStatement::Query(query) = statement else { return Err(not_a_query()) };
        Ok(query)
    }

    /// Within a view, a table gets its name of this statement alone. What there is not, and catalogs of the system, keep theirs.
    fn rename(&mut self, relation: &mut TableFactor, schema: String, table: String) -> Result<()> {
        let Some(owner) = &self.owner else { return Ok(()) };
        let TableFactor::Table { name, alias, version, .. } = relation else { return Ok(()) };
        let tables = self.session.database().shared.catalog.tables(&schema);
        if !tables.is_ok_and(|tables| tables.contains(&table)) {
            return Ok(());
        }
        let shown = match name.0.len() {
            1 => TableReference::bare(table.clone()),
            _ => TableReference::partial(schema.clone(), table.clone()),
        };
        let has_alias = alias.is_some();
        // For what reads the text later, and asks how a relation is called.
        alias.get_or_insert_with(|| TableAlias { explicit: true, name: super::statement::quoted(&table), columns: vec![], at: None });
        let internal_name = unknowable_name()?;
        *name = ObjectName::from(vec![Ident::new(internal_name.clone())]);
        let (version, owner) = (version.take(), owner.clone());
        self.tables.push(TableOfView { internal_name, schema, name: table, version, shown, has_alias, owner });
        Ok(())
    }
}

fn unknowable_name() -> Result<String> {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).map_err(|_| Error::Internal("the system gives no random numbers".to_owned()))?;
    Ok(format!("__view_{:032x}", u128::from_ne_bytes(bytes)))
}

/// The tables that the views of a statement read, opened.
#[derive(Debug, Default)]
pub struct TablesOfViews {
    by_name: HashMap<String, OpenedOfView>,
    /// Each stored one once, as the whole statement sees it.
    pub opened: OpenedTables,
}

#[derive(Debug)]
pub struct OpenedOfView {
    table: TableOfView,
    pub provider: Arc<dyn TableProvider>,
}

impl OpenedOfView {
    /// The name by which a plan shows it, and its columns go.
    pub fn shown(&self) -> TableReference {
        self.table.shown.clone()
    }

    /// Whether the view's query gives it an alias.
    pub fn has_alias(&self) -> bool {
        self.table.has_alias
    }
}

impl TablesOfViews {
    pub fn get(&self, internal_name: &str) -> Option<&OpenedOfView> {
        self.by_name.get(internal_name)
    }

    /// Who reads a table that a plan scans, if a view does: a provider is that of one place in the query of one view.
    pub fn reader(&self, provider: &Arc<dyn TableProvider>) -> Option<&Access> {
        let place = |provider: &Arc<dyn TableProvider>| Arc::as_ptr(provider).cast::<()>().addr();
        self.by_name.values().find(|opened| place(&opened.provider) == place(provider)).map(|opened| &opened.table.owner)
    }

    async fn provider(&mut self, session: &Session, table: &TableOfView) -> Result<Arc<dyn TableProvider>> {
        let TableOfView { schema, name, version, .. } = table;
        if let Some(version) = version {
            return Ok(Arc::new(versions::table_at(session, schema, name, version).await?));
        }
        let key = (schema.clone(), name.clone());
        if let Some(opened) = self.opened.get(&key) {
            return Ok(Arc::new(opened.as_ref().clone()));
        }
        let found = match session.context().catalog(CATALOG_NAME).and_then(|catalog| catalog.schema(schema)) {
            Some(schema) => schema.table(name).await?,
            None => None,
        };
        if let Some(provider) = found {
            if let Some(table) = stored_table(&provider) {
                self.opened.insert(key, Arc::new(table.clone()));
            }
            return Ok(provider);
        }
        // It was dropped meanwhile; the catalog's own error names the tables that are near.
        let table: Arc<dyn TableProvider> = session.database().shared.catalog.table(schema, name).await?;
        Ok(table)
    }
}

/// Opens the tables that views read.
///
/// # Errors
/// Of a table that is not there (any more), or not of that version.
pub async fn open(session: &Session, tables: Vec<TableOfView>) -> Result<TablesOfViews> {
    let mut all = TablesOfViews::default();
    for table in tables {
        let provider = all.provider(session, &table).await?;
        all.by_name.insert(table.internal_name.clone(), OpenedOfView { table, provider });
    }
    Ok(all)
}
