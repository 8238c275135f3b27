//! The names of temporary tables in a statement, which get their schema.

mod statement;

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::sql::TableReference;
use datafusion::sql::sqlparser::ast::{
    Expr as SqlExpr, Ident, ObjectName, ObjectNamePart, Query, TableAlias, TableFactor, Visit, VisitMut, Visitor, VisitorMut,
};
use rolloutdb_catalogs::{Catalog, Error as CatalogError, is_temporary_schema};
use rolloutdb_sql::{CommentedObject, Insert, Reindex, Statement};

use super::{TEMPORARY_ALIAS, is_of_another};
use crate::engine::apply::planner::{TableFunction, table_name};
use crate::engine::session::{CATALOG_NAME, Session};
use crate::engine::table_arguments;
use crate::engine::with_names::{WithNames, folded};
use crate::error::{Error, Result};

/// The statement with the names of temporary tables in full; `None`: it names none.
///
/// # Errors
/// [`Error::NotSupported`] for a table of another session, and for a job that names a temporary one; [`Error::InvalidDefinition`] for a temporary
/// table in a schema that is none of the session's; an unknown table of `pg_temp` (42P01).
pub async fn resolved(session: &Session, statement: &Statement) -> Result<Option<Box<Statement>>> {
    let job = match statement {
        Statement::Async(inner) => Some(inner.as_ref()),
        _ => None,
    };
    let statement = job.unwrap_or(statement);
    let mut names = Names::of(session);
    if !names.may_be_in(statement) {
        return Ok(None);
    }
    let mut resolved = Box::new(statement.clone());
    names.statement(&mut resolved)?;
    if let Some(index) = index_of(&mut resolved) {
        names.index(index).await?;
    }
    match names.found {
        None => Ok(None),
        Some(name) if job.is_some() => Err(Error::NotSupported(format!(
            "a job runs in a session of its own, which does not see the temporary table \"{name}\"; leave out ASYNC, or make it a table that is not temporary"
        ))),
        Some(_) => Ok(Some(resolved)),
    }
}

/// As [`resolved`], for a query.
///
/// # Errors
/// As [`resolved`].
pub fn resolved_query<'a>(session: &Session, query: &'a Query) -> Result<Cow<'a, Query>> {
    let mut names = Names::of(session);
    if !names.may_be_in_node(query) {
        return Ok(Cow::Borrowed(query));
    }
    let mut resolved = query.clone();
    names.visit(&mut resolved)?;
    Ok(if names.found.is_some() { Cow::Owned(resolved) } else { Cow::Borrowed(query) })
}

/// The name of an index that stands without its table.
fn index_of(statement: &mut Statement) -> Option<&mut ObjectName> {
    match statement {
        Statement::DropIndex(drop) => Some(&mut drop.name),
        Statement::Reindex(Reindex::Index(name)) => Some(name),
        Statement::Comment(comment) => match &mut comment.on {
            CommentedObject::Index(name) => Some(name),
            _ => None,
        },
        _ => None,
    }
}

struct Names<'a> {
    functions: &'a HashMap<&'static str, Arc<dyn TableFunction>>,
    catalog: &'a Catalog,
    /// The session's schema.
    own: &'a str,
    is_made: bool,
    /// What does not exist is told by the statement.
    missing_ok: bool,
    with: WithNames,
    /// The first name that was found to be a temporary table's.
    found: Option<String>,
}

/// The parts of a name as a catalog has them.
fn parts_of(name: &ObjectName) -> Vec<String> {
    name.0.iter().filter_map(|part| part.as_ident()).map(folded).collect()
}

/// The same for a name that is an argument.
fn parts_of_argument(name: &str) -> Vec<String> {
    let reference = TableReference::parse_str(name);
    let parts = [reference.catalog(), reference.schema(), Some(reference.table())];
    parts.into_iter().flatten().map(str::to_owned).collect()
}

impl<'a> Names<'a> {
    fn of(session: &'a Session) -> Self {
        let (shared, temporary) = (&session.database().shared, session.temporary());
        Self {
            functions: &shared.functions,
            catalog: &shared.catalog,
            own: temporary.name(),
            is_made: temporary.made().is_some(),
            missing_ok: false,
            with: WithNames::default(),
            found: None,
        }
    }

    fn has(&self, relation: &str) -> bool {
        self.is_made && self.catalog.tables(self.own).is_ok_and(|names| names.iter().any(|name| name == relation))
    }

    /// Whether a name concerns the session's schema, or that of another session.
    fn concerns(&self, parts: &[String]) -> bool {
        match parts {
            [relation] => self.has(relation),
            [.., schema, _] => schema == TEMPORARY_ALIAS || is_temporary_schema(schema),
            [] => false,
        }
    }

    /// Cheap where a statement may be long, and right where it says no.
    fn may_be_in(&self, statement: &Statement) -> bool {
        match statement {
            Statement::Query(query) => self.may_be_in_node(query),
            Statement::Insert(insert) => {
                let Insert { with, target, source, on_conflict, returning, .. } = insert.as_ref();
                self.concerns(&parts_of(&target.table))
                    || self.may_be_in_node(with)
                    || self.may_be_in_node(source)
                    || self.may_be_in_node(returning)
                    || on_conflict.is_some()
            }
            _ => true,
        }
    }

    fn may_be_in_node(&self, node: &impl Visit) -> bool {
        node.visit(&mut Scan(self)).is_break()
    }

    fn visit(&mut self, node: &mut impl VisitMut) -> Result<()> {
        match node.visit(self) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(error) => Err(*error),
        }
    }

    fn names(&mut self, names: &mut [ObjectName]) -> Result<()> {
        names.iter_mut().try_for_each(|name| self.name(name))
    }

    /// Gives the name of a temporary table the session's schema.
    fn name(&mut self, name: &mut ObjectName) -> Result<()> {
        if self.is_own(&parts_of(name))? {
            self.qualify(name);
        }
        Ok(())
    }

    fn qualify(&mut self, name: &mut ObjectName) {
        let Some(relation) = name.0.pop() else { return };
        self.found.get_or_insert_with(|| relation.as_ident().map(folded).unwrap_or_default());
        name.0 = vec![ObjectNamePart::Identifier(Ident::new(self.own)), relation];
    }

    async fn index(&mut self, name: &mut ObjectName) -> Result<()> {
        let parts = parts_of(name);
        let is_own = match parts.as_slice() {
            [index] => self.is_made && self.catalog.find_index(self.own, index).await.is_ok(),
            _ => self.is_own(&parts)?,
        };
        if is_own {
            self.qualify(name);
        }
        Ok(())
    }

    /// Whether a name stands for something temporary of the session.
    fn is_own(&self, parts: &[String]) -> Result<bool> {
        let (schema, relation) = match parts {
            [relation] => return Ok(self.has(relation)),
            [schema, relation] => (schema, relation),
            [catalog, schema, relation] if catalog == CATALOG_NAME => (schema, relation),
            // Another database, which the statement refuses.
            _ => return Ok(false),
        };
        if is_of_another(schema, self.own) {
            return Err(of_another_session());
        }
        if schema != TEMPORARY_ALIAS && schema != self.own {
            return Ok(false);
        }
        if !self.is_made && !self.missing_ok {
            return Err(CatalogError::UnknownTable { name: format!("{schema}.{relation}"), known: Vec::new() }.into());
        }
        Ok(self.is_made)
    }

    fn relation(&mut self, relation: &mut TableFactor) -> Result<()> {
        for argument in table_arguments::of(self.functions, relation) {
            self.argument(argument)?;
        }
        let TableFactor::Table { name, alias, args: None, .. } = relation else { return Ok(()) };
        let Some(own_name) = name.0.last().and_then(|part| part.as_ident()).cloned() else { return Ok(()) };
        if self.with.hides(name) || !self.is_own(&parts_of(name))? {
            return Ok(());
        }
        self.qualify(name);
        // Its columns go by the name that was written.
        alias.get_or_insert(TableAlias { explicit: true, name: own_name, columns: vec![], at: None });
        Ok(())
    }

    fn argument(&mut self, argument: &mut SqlExpr) -> Result<()> {
        let parts = table_name(argument).map(|name| parts_of_argument(&name)).unwrap_or_default();
        if self.is_own(&parts)?
            && let Some(table) = parts.last()
        {
            let quoted = |name: &str| Ident::with_quote('"', name);
            *argument = SqlExpr::CompoundIdentifier(vec![quoted(self.own), quoted(table)]);
            self.found.get_or_insert_with(|| table.clone());
        }
        Ok(())
    }
}

fn of_another_session() -> Error {
    Error::NotSupported("temporary tables of other sessions cannot be used; only the session that made one sees it".to_owned())
}

impl VisitorMut for Names<'_> {
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

    /// `pg_temp.t.a` is `t.a`: the table has this alias.
    fn pre_visit_expr(&mut self, expression: &mut SqlExpr) -> ControlFlow<Self::Break> {
        if let SqlExpr::CompoundIdentifier(parts) = expression
            && parts.len() > 2
            && [TEMPORARY_ALIAS, self.own].contains(&folded(&parts[0]).as_str())
        {
            parts.remove(0);
        }
        ControlFlow::Continue(())
    }
}

/// Looks for a name that may be a temporary table's.
struct Scan<'a>(&'a Names<'a>);

impl Visitor for Scan<'_> {
    type Break = ();

    fn pre_visit_table_factor(&mut self, relation: &TableFactor) -> ControlFlow<()> {
        let concerns = match relation {
            TableFactor::Table { name, args: None, .. } => self.0.concerns(&parts_of(name)),
            _ => table_arguments::names(self.0.functions, relation).iter().any(|name| self.0.concerns(&parts_of_argument(name))),
        };
        if concerns { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
