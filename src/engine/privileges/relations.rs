//! What a query reads, and whether that may be read: tables by privilege, views by privilege and what is under them with their owner's rights.
//!
//! The text says through which view a table is reached; the plan says which tables and models there are in truth. [`Relations::of`] reads the one
//! before views are put into it, [`Relations::check_plan`] the other: a table that the text did not show is asked about there.

use std::any::Any;
use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::sql::sqlparser::ast::{Ident, Query, Statement as SqlStatement, TableFactor, Visit, Visitor};
use rolloutdb_catalogs::Table;
use rolloutdb_sql::{Privilege, Statement};

use super::{Access, Object};
use crate::engine::apply::Apply;
use crate::engine::apply::planner::{called_function, split_table_name, table_arguments, table_reference};
use crate::engine::macros;
use crate::engine::session::Session;
use crate::error::{Error, Result};

/// Views that read views that read views.
const NESTING_MAX: usize = 32;

/// Schemas that describe what there is: everybody reads them.
pub const CATALOG_SCHEMAS: [&str; 2] = ["information_schema", "pg_catalog"];

type Named = HashMap<String, Arc<dyn TableProvider>>;

/// The tables that a query was found to read, and may.
pub struct Relations {
    access: Access,
    /// Schema and name.
    allowed: BTreeSet<(String, String)>,
}

impl Relations {
    /// `named`: tables of the statement alone, which it was asked about before.
    ///
    /// # Errors
    /// [`Error::InsufficientPrivilege`] (42501) for a table that the session's role, or the owner of the view before it, may not read.
    pub fn of(session: &Session, statement: &SqlStatement, named: &Named) -> Result<Self> {
        let access = session.access();
        let given = named.values().filter_map(stored_table).map(|table| (table.schema_name().to_owned(), table.name().to_owned()));
        let mut allowed: BTreeSet<_> = given.collect();
        let mut reader = Reader { session, access: access.clone(), named, scopes: vec![], views: 0, allowed: &mut allowed };
        match statement.visit(&mut reader) {
            ControlFlow::Continue(()) => Ok(Self { access, allowed }),
            ControlFlow::Break(error) => Err(*error),
        }
    }

    /// # Errors
    /// [`Error::InsufficientPrivilege`] (42501) for a table or a model.
    pub fn check_plan(&self, plan: &LogicalPlan) -> Result<()> {
        if self.access.is_superuser() {
            return Ok(());
        }
        plan.apply_with_subqueries(|node| {
            match node {
                LogicalPlan::TableScan(scan) => {
                    if let Some(table) = stored_table(&source_as_provider(&scan.source)?) {
                        self.check_table(table)?;
                    }
                }
                LogicalPlan::Extension(extension) => {
                    let searched = extension.node.as_any().downcast_ref::<Apply>().and_then(|apply| apply.function.tables());
                    for table in searched.iter().flatten() {
                        self.check_table(table)?;
                    }
                }
                _ => {}
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        check_models(&self.access, plan)
    }

    fn check_table(&self, table: &Table) -> Result<()> {
        let name = (table.schema_name().to_owned(), table.name().to_owned());
        if self.allowed.contains(&name) { Ok(()) } else { self.access.require_table(&name.0, &name.1, &[Privilege::Select]) }
    }
}

fn stored_table(provider: &Arc<dyn TableProvider>) -> Option<&Table> {
    (provider.as_ref() as &dyn Any).downcast_ref::<Table>()
}

/// The models that the expressions of a plan call: asked once more when parameters, which may name some, have their values.
///
/// # Errors
/// [`Error::InsufficientPrivilege`] (42501).
pub fn check_models(access: &Access, plan: &LogicalPlan) -> Result<()> {
    if access.is_superuser() {
        return Ok(());
    }
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            expression.apply(|inner| {
                if let Some(model) = called_model(inner) {
                    access.require_model(model)?;
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(())
}

/// The model that a call in an expression names: its first argument, a constant.
fn called_model(expression: &Expr) -> Option<&str> {
    let Expr::ScalarFunction(call) = expression else { return None };
    call.func.as_async()?;
    let Some(Expr::Literal(model, _)) = call.args.first() else { return None };
    model.try_as_str().flatten()
}

struct Reader<'a> {
    session: &'a Session,
    /// Of the session's role; within a view, of the view's owner.
    access: Access,
    named: &'a Named,
    /// Of each query round the one that is visited, outermost first.
    scopes: Vec<Scope>,
    /// How many views are round the one that is visited.
    views: usize,
    allowed: &'a mut BTreeSet<(String, String)>,
}

/// The names after WITH of one query, which hide tables: from its body all, from the query of one of them those before it.
#[derive(Default)]
struct Scope {
    /// With the place in memory of its query, by which that is known when it is visited.
    names: Vec<(String, usize)>,
    visible: usize,
}

fn address(query: &Query) -> usize {
    std::ptr::from_ref(query).addr()
}

fn folded(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}

impl Visitor for Reader<'_> {
    type Break = Box<Error>;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Self::Break> {
        let tables = query.with.iter().flat_map(|with| &with.cte_tables);
        let names: Vec<_> = tables.map(|table| (folded(&table.alias.name), address(&table.query))).collect();
        self.scopes.push(Scope { names, visible: 0 });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<Self::Break> {
        self.scopes.pop();
        // After the query of a name, the next one sees that name; after the last, the body sees them all.
        if let Some(outer) = self.scopes.last_mut()
            && let Some(position) = outer.names.iter().position(|(_, place)| *place == address(query))
        {
            outer.visible = position + 1;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, relation: &TableFactor) -> ControlFlow<Self::Break> {
        match self.read(relation) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    }
}

impl Reader<'_> {
    fn read(&mut self, relation: &TableFactor) -> Result<()> {
        if self.access.is_superuser() && self.views == 0 {
            return Ok(());
        }
        let session = self.session;
        if let Some((function, arguments)) = called_function(&session.database().shared.functions, relation) {
            let tables = table_arguments(function.as_ref(), arguments);
            return tables.iter().map(|name| split_table_name(name)).try_for_each(|(schema, table)| self.read_table(&schema, &table));
        }
        if let Some(nodes) = macros::table_of(relation) {
            let (schema, table) = split_table_name(&nodes);
            return self.read_table(&schema, &table);
        }
        let TableFactor::Table { name, args: None, .. } = relation else { return Ok(()) };
        if let [part] = name.0.as_slice()
            && let Some(ident) = part.as_ident()
            && self.is_hidden(&folded(ident))
        {
            return Ok(());
        }
        match table_reference(name) {
            Some((schema, table)) => self.read_table(&schema, &table),
            // Another database, which planning refuses.
            None => Ok(()),
        }
    }

    fn is_hidden(&self, name: &str) -> bool {
        let is_query = |scope: &Scope| scope.names[..scope.visible].iter().any(|(known, _)| known == name);
        self.scopes.iter().any(is_query) || self.views == 0 && self.named.contains_key(name)
    }

    fn read_table(&mut self, schema: &str, name: &str) -> Result<()> {
        let catalog = &self.session.database().shared.catalog;
        let is_known = catalog.tables(schema).is_ok_and(|tables| tables.iter().any(|known| known == name));
        // What does not exist is told by planning, with the names that are near.
        if CATALOG_SCHEMAS.contains(&schema) || !is_known {
            return Ok(());
        }
        self.access.require_table(schema, name, &[Privilege::Select])?;
        self.allowed.insert((schema.to_owned(), name.to_owned()));
        let Some(text) = catalog.view_query(schema, name) else { return Ok(()) };
        if self.views == NESTING_MAX {
            return Err(Error::NotSupported(format!("view {name} reads itself, by way of other views")));
        }
        let Some(Statement::Query(query)) = rolloutdb_sql::parse(&text)?.pop() else {
            return Err(Error::Internal(format!("view {name} is not a query: {text}")));
        };
        let access = self.access.owner_of(&Object::table(schema, name));
        let (session, named, views) = (self.session, self.named, self.views + 1);
        let mut inner = Reader { session, access, named, scopes: vec![], views, allowed: &mut *self.allowed };
        match SqlStatement::Query(query).visit(&mut inner) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(error) => Err(*error),
        }
    }
}
