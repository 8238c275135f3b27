//! What a query reads, and whether that may be read: tables by privilege, views by privilege and what is under them with their owner's rights.
//!
//! The text says through which view a table is reached; the plan says which tables and models there are in truth. [`Relations::of`] reads the one
//! before views are put into it, [`Relations::check_plan`] the other: every scan is asked about there, with the rights of who reads at its place.

use std::any::Any;
use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{Expr, LogicalPlan, Operator};
use datafusion::sql::TableReference;
use datafusion::sql::sqlparser::ast::{ObjectName, Query, Statement as SqlStatement, TableFactor, Visit, Visitor};
use rolloutdb_catalogs::Table;
use rolloutdb_sql::{Privilege, Statement};

use super::{Access, Object, denied};
use crate::engine::apply::Apply;
use crate::engine::apply::extract::folded_constant;
use crate::engine::apply::planner::{called_function, split_table_name, table_arguments, table_reference};
use crate::engine::macros;
use crate::engine::session::Session;
use crate::engine::views::TablesOfViews;
use crate::engine::with_names::{WithNames, folded};
use crate::error::{Error, Result};

/// Views that read views that read views.
const NESTING_MAX: usize = 32;

/// Schemas that describe what there is: everybody reads them.
pub const CATALOG_SCHEMAS: [&str; 2] = ["information_schema", "pg_catalog"];

type Named = HashMap<String, Arc<dyn TableProvider>>;

/// What a query was found to read, and may.
pub struct Relations {
    access: Access,
    /// Tables of the statement alone, by name.
    given: BTreeSet<String>,
    /// Schema and name of the tables that its functions in FROM name.
    searched: BTreeSet<(String, String)>,
}

impl Relations {
    /// `named`: tables of the statement alone, which it was asked about before.
    ///
    /// # Errors
    /// [`Error::InsufficientPrivilege`] (42501) for a table that the session's role, or the owner of the view before it, may not read.
    pub fn of(session: &Session, statement: &SqlStatement, named: &Named) -> Result<Self> {
        let access = session.access();
        let mut searched = BTreeSet::new();
        let mut reader = Reader { session, access: access.clone(), named, with: WithNames::default(), views: 0, searched: &mut searched };
        match statement.visit(&mut reader) {
            ControlFlow::Continue(()) => Ok(Self { access, given: named.keys().cloned().collect(), searched }),
            ControlFlow::Break(error) => Err(*error),
        }
    }

    /// `of_views`: the tables that its views read.
    ///
    /// # Errors
    /// [`Error::InsufficientPrivilege`] (42501) for a table or a model.
    pub fn check_plan(&self, plan: &LogicalPlan, of_views: &TablesOfViews) -> Result<()> {
        if self.access.is_superuser() {
            return Ok(());
        }
        plan.apply_with_subqueries(|node| {
            match node {
                LogicalPlan::TableScan(scan) => {
                    let provider = source_as_provider(&scan.source)?;
                    let of_view = of_views.reader(&provider);
                    if let Some(table) = stored_table(&provider).filter(|_| of_view.is_some() || !self.is_given(&scan.table_name)) {
                        let reader = of_view.unwrap_or(&self.access);
                        reader.require_table(table.schema_name(), table.name(), &[Privilege::Select])?;
                    }
                }
                LogicalPlan::Extension(extension) => {
                    let searched = extension.node.as_any().downcast_ref::<Apply>().and_then(|apply| apply.function.tables());
                    for table in searched.iter().flatten() {
                        self.check_searched(table)?;
                    }
                }
                _ => {}
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        check_models(&self.access, plan)
    }

    /// Whether the statement was asked about it before.
    fn is_given(&self, name: &TableReference) -> bool {
        matches!(name, TableReference::Bare { table } if self.given.contains(table.as_ref()))
    }

    /// A function of a view reads with the view's rights, and the text shows them all.
    fn check_searched(&self, table: &Table) -> Result<()> {
        let name = (table.schema_name().to_owned(), table.name().to_owned());
        if self.searched.contains(&name) { Ok(()) } else { self.access.require_table(&name.0, &name.1, &[Privilege::Select]) }
    }
}

/// The table of the catalog that a provider is, if it is one.
pub fn stored_table(provider: &Arc<dyn TableProvider>) -> Option<&Table> {
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
                if let Some(model) = called_model(inner)? {
                    access.require_model(&model)?;
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(())
}

/// The model that a call in an expression names, if the text says which.
pub fn named_model(expression: &Expr) -> Option<String> {
    called_model(expression).ok().flatten()
}

/// The model that a call in an expression names: its first argument. `None` while a parameter in it has no value; then it is asked about later.
///
/// # Errors
/// [`Error::InsufficientPrivilege`] (42501) for a name that only running tells.
fn called_model(expression: &Expr) -> Result<Option<String>> {
    let Expr::ScalarFunction(call) = expression else { return Ok(None) };
    let Some(argument) = call.args.first().filter(|_| call.func.as_async().is_some()) else { return Ok(None) };
    if argument.exists(|part| Ok(matches!(part, Expr::Placeholder(_))))? {
        return Ok(None);
    }
    let is_joined = |part: &Expr| match part {
        Expr::Literal(..) | Expr::Cast(_) | Expr::TryCast(_) | Expr::Alias(_) => true,
        Expr::BinaryExpr(joined) => joined.op == Operator::StringConcat,
        _ => false,
    };
    // Of these, the value is the same before and after the analyzer has given them their types.
    let is_known = !argument.exists(|part| Ok(!is_joined(part)))?;
    let model = if is_known { folded_constant(argument.clone())? } else { argument.clone() };
    match model {
        Expr::Literal(model, _) => Ok(model.try_as_str().flatten().map(str::to_owned)),
        _ => Err(denied(
            format!("the model of {}()", call.func.name()),
            "name it by a text, such as 'policy': a computed name says too late which it is",
        )),
    }
}

struct Reader<'a> {
    session: &'a Session,
    /// Of the session's role; within a view, of the view's owner.
    access: Access,
    named: &'a Named,
    with: WithNames,
    /// How many views are round the one that is visited.
    views: usize,
    searched: &'a mut BTreeSet<(String, String)>,
}

impl Visitor for Reader<'_> {
    type Break = Box<Error>;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Self::Break> {
        self.with.enter(query);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<Self::Break> {
        self.with.leave(query);
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
            for name in table_arguments(function.as_ref(), arguments) {
                let (schema, table) = split_table_name(&name);
                self.read_table(&schema, &table)?;
                self.searched.insert((schema, table));
            }
            return Ok(());
        }
        if let Some(nodes) = macros::table_of(relation) {
            let (schema, table) = split_table_name(&nodes);
            return self.read_table(&schema, &table);
        }
        let TableFactor::Table { name, args: None, .. } = relation else { return Ok(()) };
        if self.with.hides(name) || self.is_given(name) {
            return Ok(());
        }
        match table_reference(name) {
            Some((schema, table)) => self.read_table(&schema, &table),
            // Another database, which planning refuses.
            None => Ok(()),
        }
    }

    fn is_given(&self, name: &ObjectName) -> bool {
        let [part] = name.0.as_slice() else { return false };
        self.views == 0 && part.as_ident().is_some_and(|ident| self.named.contains_key(&folded(ident)))
    }

    fn read_table(&mut self, schema: &str, name: &str) -> Result<()> {
        let catalog = &self.session.database().shared.catalog;
        let is_known = catalog.tables(schema).is_ok_and(|tables| tables.iter().any(|known| known == name));
        // What does not exist is told by planning, with the names that are near.
        if CATALOG_SCHEMAS.contains(&schema) || !is_known {
            return Ok(());
        }
        self.access.require_table(schema, name, &[Privilege::Select])?;
        let Some(text) = catalog.view_query(schema, name) else { return Ok(()) };
        if self.views == NESTING_MAX {
            return Err(Error::NotSupported(format!("view {name} reads itself, by way of other views")));
        }
        let Some(Statement::Query(query)) = rolloutdb_sql::parse(&text)?.pop() else {
            return Err(Error::Internal(format!("view {name} is not a query: {text}")));
        };
        let access = self.access.owner_of(&Object::table(schema, name));
        let (session, named, views) = (self.session, self.named, self.views + 1);
        let mut inner = Reader { session, access, named, with: WithNames::default(), views, searched: &mut *self.searched };
        match SqlStatement::Query(query).visit(&mut inner) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(error) => Err(*error),
        }
    }
}
