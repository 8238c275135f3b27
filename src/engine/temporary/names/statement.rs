//! Where in each kind of statement names of tables stand. Those that a query reads are found while it is visited.

use datafusion::sql::sqlparser::ast::{ObjectName, With};
use rolloutdb_sql::{
    Assignment, CommentedObject, ConflictAction, CopySource, CreateView, Delete, GrantObjects, Insert, Merge, MergeAction, OwnedKind,
    Reindex, Statement, Update,
};

use super::super::{TEMPORARY_ALIAS, is_of_another};
use super::{Names, of_another_session, parts_of};
use crate::error::{Error, Result};

impl Names<'_> {
    pub(super) fn statement(&mut self, statement: &mut Statement) -> Result<()> {
        match statement {
            Statement::Query(query) => self.visit(query),
            Statement::Explain(explain) => self.statement(&mut explain.statement),
            Statement::Declare(declare) => self.visit(&mut declare.query),
            Statement::Insert(insert) => self.insert(insert),
            Statement::Update(update) => self.update(update),
            Statement::Delete(delete) => self.delete(delete),
            Statement::Merge(merge) => self.merge(merge),
            Statement::Truncate(truncate) => self.names(&mut truncate.names),
            Statement::CopyFrom(copy) => self.name(&mut copy.table),
            Statement::CopyTo(copy) => match &mut copy.source {
                CopySource::Table(table, _) => self.name(table),
                CopySource::Query(query) => self.visit(query),
            },
            Statement::CreateTable(create) => {
                if let Some(query) = &mut create.query {
                    self.visit(query)?;
                }
                create.likes.iter_mut().try_for_each(|like| self.name(&mut like.table))?;
                create.temporary = self.created(&mut create.name, create.temporary)?;
                Ok(())
            }
            Statement::CreateView(create) => self.create_view(create),
            Statement::DropTable(drop) => {
                self.missing_ok = drop.if_exists;
                self.names(&mut drop.names)
            }
            Statement::DropView(drop) => {
                self.missing_ok = drop.if_exists;
                self.names(&mut drop.names)
            }
            Statement::AlterTable(alter) => {
                self.missing_ok = alter.if_exists;
                self.name(&mut alter.name)
            }
            Statement::AlterOwner(alter) if matches!(alter.kind, OwnedKind::Table | OwnedKind::View) => {
                self.missing_ok = alter.if_exists;
                self.name(&mut alter.name)
            }
            Statement::Comment(comment) => match &mut comment.on {
                CommentedObject::Table(name) | CommentedObject::View(name) | CommentedObject::Column { relation: name, .. } => {
                    self.name(name)
                }
                CommentedObject::Index(_) | CommentedObject::Schema(_) => Ok(()),
            },
            Statement::Grant(grant) => self.granted(&mut grant.objects),
            Statement::Revoke(revoke) => self.granted(&mut revoke.objects),
            Statement::CreateIndex(create) => self.name(&mut create.table),
            Statement::Reindex(Reindex::Table(table)) => self.name(table),
            Statement::Vacuum(vacuum) => self.names(&mut vacuum.tables),
            Statement::Optimize(optimize) => self.names(&mut optimize.tables),
            Statement::Analyze(analyze) => self.names(&mut analyze.tables),
            Statement::DescribeTable(describe) => self.name(&mut describe.name),
            Statement::GenerateRollouts(generate) => {
                self.name(&mut generate.into)?;
                self.visit(&mut generate.query)
            }
            Statement::Train(train) => {
                self.visit(&mut train.query)?;
                self.visit(&mut train.validate)
            }
            // They name no table.
            _ => Ok(()),
        }
    }

    fn insert(&mut self, insert: &mut Insert) -> Result<()> {
        let Insert { with, target, source, on_conflict, returning, .. } = insert;
        self.name(&mut target.table)?;
        self.after_with(with, |names| {
            names.visit(source)?;
            if let Some(conflict) = on_conflict
                && let ConflictAction::Update { assignments, condition } = &mut conflict.action
            {
                names.assignments(assignments)?;
                names.visit(condition)?;
            }
            names.visit(returning)
        })
    }

    fn update(&mut self, update: &mut Update) -> Result<()> {
        let Update { with, target, assignments, from, condition, returning } = update;
        self.name(&mut target.table)?;
        self.after_with(with, |names| {
            names.assignments(assignments)?;
            names.visit(from)?;
            names.visit(condition)?;
            names.visit(returning)
        })
    }

    fn delete(&mut self, delete: &mut Delete) -> Result<()> {
        let Delete { with, target, using, condition, returning } = delete;
        self.name(&mut target.table)?;
        self.after_with(with, |names| {
            names.visit(using)?;
            names.visit(condition)?;
            names.visit(returning)
        })
    }

    fn merge(&mut self, merge: &mut Merge) -> Result<()> {
        let Merge { with, target, source, on, clauses, returning } = merge;
        self.name(&mut target.table)?;
        self.after_with(with, |names| {
            names.visit(source)?;
            names.visit(on)?;
            for clause in clauses {
                names.visit(&mut clause.condition)?;
                match &mut clause.action {
                    MergeAction::Nothing | MergeAction::Delete => {}
                    MergeAction::Update(assignments) => names.assignments(assignments)?,
                    MergeAction::Insert(insert) => names.visit(&mut insert.values)?,
                }
            }
            names.visit(returning)
        })
    }

    /// What comes after WITH does not see the tables that its names hide.
    fn after_with(&mut self, with: &mut Option<With>, rest: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.with.enter_with(with.as_ref());
        self.visit(with)?;
        rest(self)?;
        self.with.leave_with();
        Ok(())
    }

    fn assignments(&mut self, assignments: &mut [Assignment]) -> Result<()> {
        assignments.iter_mut().try_for_each(|assignment| self.visit(&mut assignment.value))
    }

    /// A view of a temporary table cannot outlive it.
    fn create_view(&mut self, create: &mut CreateView) -> Result<()> {
        self.visit(&mut create.query)?;
        let is_temporary = create.temporary || self.found.is_some();
        create.temporary = self.created(&mut create.name, is_temporary)?;
        Ok(())
    }

    /// Gives the name of what is made the session's schema, if it is temporary, and says whether it is.
    fn created(&mut self, name: &mut ObjectName, is_temporary: bool) -> Result<bool> {
        let parts = parts_of(name);
        let is_temporary = match parts.as_slice() {
            [.., schema, _] if schema == TEMPORARY_ALIAS || schema == self.own => true,
            [.., schema, _] if is_of_another(schema, self.own) => return Err(of_another_session()),
            [.., schema, relation] if is_temporary => {
                return Err(Error::InvalidDefinition(format!(
                    "\"{relation}\" is temporary, or reads a temporary table, and cannot be in schema \"{schema}\"; leave out the schema"
                )));
            }
            _ => is_temporary,
        };
        if is_temporary {
            self.qualify(name);
        }
        Ok(is_temporary)
    }

    fn granted(&mut self, objects: &mut GrantObjects) -> Result<()> {
        match objects {
            GrantObjects::Tables(names) => self.names(names),
            _ => Ok(()),
        }
    }
}
