//! What each kind of statement needs, asked before its work begins. A new kind has to say what it needs: there is no arm for the rest.
//!
//! What a statement's queries read is asked about where they are planned ([`super::relations`]), and files where they are resolved (`gate.rs`).

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr as SqlExpr, ObjectName, Query, SelectItem, Visit, Visitor};
use rolloutdb_sql::{
    AlterOwner, CommentedObject, ConflictAction, CopySource, Delete, GenerateRollouts, Insert, JobCommand, Merge, MergeAction, OwnedKind,
    Privilege, Reindex, Statement, Train, Update,
};

use super::{Access, Object, denied};
use crate::engine::session::Session;
use crate::engine::statement::table_name;
use crate::error::{Error, Result};

/// # Errors
/// [`crate::Error::InsufficientPrivilege`] (42501).
pub async fn authorize(session: &Session, statement: &Statement) -> Result<()> {
    let access = session.access();
    if access.is_superuser() {
        return Ok(());
    }
    let rights = Needs { session, access };
    match innermost(statement) {
        // Rights are asked for while it is planned.
        Statement::Query(_) => Ok(()),
        Statement::Declare(_) | Statement::Fetch(_) | Statement::CloseCursor(_) => Ok(()),
        // What is prepared is asked about when it is described, and each time it runs.
        Statement::Prepare(_) | Statement::Execute(_) | Statement::Deallocate(_) => Ok(()),

        Statement::Insert(insert) => rights.insert(insert),
        Statement::Update(update) => rights.update(update),
        Statement::Delete(delete) => rights.delete(delete),
        Statement::Merge(merge) => rights.merge(merge),
        Statement::Truncate(truncate) => truncate.names.iter().try_for_each(|name| rights.table(name, &[Privilege::Truncate])),
        Statement::CopyFrom(copy) => rights.table(&copy.table, &[Privilege::Insert]),
        Statement::CopyTo(copy) => match &copy.source {
            CopySource::Table(table, _) => rights.table(table, &[Privilege::Select]),
            CopySource::Query(_) => Ok(()),
        },

        Statement::CreateTable(create) => {
            create.likes.iter().try_for_each(|like| rights.table(&like.table, &[Privilege::Select]))?;
            rights.create_in_schema(&create.name)
        }
        Statement::CreateView(create) if create.or_replace && rights.exists(&create.name)? => rights.owner(&create.name),
        Statement::CreateView(create) => rights.create_in_schema(&create.name),
        Statement::CreateSchema(_) | Statement::CreateModel(_) | Statement::CreateAgent(_) => rights.create_in_database(),
        Statement::DropTable(drop) => drop.names.iter().try_for_each(|name| rights.owner_to_drop(name)),
        Statement::DropView(drop) => drop.names.iter().try_for_each(|name| rights.owner_to_drop(name)),
        Statement::DropSchema(drop) => rights.known_owner(&Object::schema(&drop.name)),
        Statement::DropModel(drop) => rights.known_owner(&Object::model(&drop.name)),
        Statement::UnloadModel(unload) => rights.known_owner(&Object::model(&unload.name)),
        Statement::ClearCache(clear) => match &clear.model {
            Some(model) => rights.known_owner(&Object::model(model)),
            None => rights.access.require_superuser("the kept answers of all models"),
        },
        Statement::DropAgent(drop) => rights.known_owner(&Object::agent(&drop.name)),
        Statement::AlterTable(alter) => rights.owner(&alter.name),
        Statement::AlterOwner(alter) => rights.alter_owner(alter),
        Statement::Comment(comment) => match &comment.on {
            CommentedObject::Table(name) | CommentedObject::View(name) | CommentedObject::Column { relation: name, .. } => {
                rights.owner(name)
            }
            CommentedObject::Index(name) => rights.owner_of_index(name).await,
            CommentedObject::Schema(name) => rights.known_owner(&Object::schema(name)),
        },
        Statement::CreateIndex(create) => rights.owner(&create.table),
        Statement::DropIndex(drop) => rights.owner_of_index(&drop.name).await,
        Statement::Reindex(Reindex::Index(index)) => rights.owner_of_index(index).await,
        Statement::Reindex(Reindex::Table(table)) => rights.owner(table),
        Statement::Vacuum(vacuum) => rights.owner_of_each(&vacuum.tables, "VACUUM"),
        Statement::Optimize(optimize) => rights.owner_of_each(&optimize.tables, "OPTIMIZE"),
        // It changes nothing.
        Statement::Analyze(_) => Ok(()),

        Statement::JobCommand(command) => rights.job(*command),
        Statement::GenerateRollouts(generate) => rights.generate(generate),
        Statement::Train(train) => rights.train(train),
        Statement::DescribeModel(describe) => rights.access.require_model(&describe.name),
        Statement::DescribeAgent(describe) if rights.knows(&Object::agent(&describe.name)) => {
            rights.access.require(&Object::agent(&describe.name), Privilege::Usage)
        }
        // What there is may be seen by all, as in PostgreSQL's catalogs; what is in it may not.
        Statement::DescribeAgent(_)
        | Statement::DescribeTable(_)
        | Statement::ShowModels
        | Statement::ShowAgents
        | Statement::ShowJobs
        | Statement::ShowTables
        | Statement::ShowIndexes => Ok(()),

        // What a role may do to roles is decided where they are changed (`statement/role.rs`).
        Statement::CreateRole(_)
        | Statement::AlterRole(_)
        | Statement::DropRole(_)
        | Statement::GrantRole(_)
        | Statement::RevokeRole(_)
        | Statement::SetRole(_) => Ok(()),
        // Each object is asked about when it is changed: who may grant is not who may use.
        Statement::Grant(_) | Statement::Revoke(_) => Ok(()),
        Statement::CreateSecret(_) | Statement::DropSecret(_) => rights.access.require_superuser("secrets of the server"),

        Statement::Show(_)
        | Statement::Set(_)
        | Statement::Reset(_)
        | Statement::Begin(_)
        | Statement::SetTransaction(_)
        | Statement::Commit
        | Statement::Rollback
        | Statement::Savepoint(_)
        | Statement::Discard
        | Statement::DiscardTemp
        | Statement::CreateExtension(_) => Ok(()),
        Statement::Explain(_) | Statement::Async(_) => Err(Error::Internal("rights are asked for what a statement holds".to_owned())),
        // LISTEN and its like, which do nothing here; the rest is refused by name.
        Statement::Other(_) => Ok(()),
    }
}

/// The statement that is explained, or queued: a job is asked about now, and once more when it runs.
fn innermost(mut statement: &Statement) -> &Statement {
    loop {
        statement = match statement {
            Statement::Explain(explain) => explain.statement.as_ref(),
            Statement::Async(inner) => inner.as_ref(),
            other => return other,
        }
    }
}

/// Whether an expression has a name in it that may be a column's, or a query.
fn reads_rows(expression: &SqlExpr) -> bool {
    Visit::visit(expression, &mut Rows).is_break()
}

fn returns_rows(item: &SelectItem) -> bool {
    let is_wildcard = matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..));
    is_wildcard || Visit::visit(item, &mut Rows).is_break()
}

/// Stops where rows are read.
struct Rows;

impl Visitor for Rows {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        ControlFlow::Break(())
    }

    fn pre_visit_expr(&mut self, expression: &SqlExpr) -> ControlFlow<()> {
        let is_name = matches!(
            expression,
            SqlExpr::Identifier(_)
                | SqlExpr::CompoundIdentifier(_)
                | SqlExpr::Wildcard(_)
                | SqlExpr::QualifiedWildcard(..)
                | SqlExpr::MatchAgainst { .. }
        );
        if is_name { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// The rights of the session's role, which is no superuser.
struct Needs<'a> {
    session: &'a Session,
    access: Access,
}

impl Needs<'_> {
    fn table(&self, name: &ObjectName, privileges: &[Privilege]) -> Result<()> {
        let (schema, name) = table_name(name)?;
        if !self.knows(&Object::table(&schema, &name)) {
            return Ok(());
        }
        self.access.require_table(&schema, &name, privileges)
    }

    /// Whether there is such an object. If not, the statement says so, with the names that are near.
    fn knows(&self, object: &Object) -> bool {
        self.session.database().shared.knows(object)
    }

    fn exists(&self, name: &ObjectName) -> Result<bool> {
        let (schema, name) = table_name(name)?;
        Ok(self.knows(&Object::table(&schema, &name)))
    }

    fn known_owner(&self, object: &Object) -> Result<()> {
        if self.knows(object) { self.access.require_owner(object) } else { Ok(()) }
    }

    fn owner(&self, name: &ObjectName) -> Result<()> {
        let (schema, name) = table_name(name)?;
        self.known_owner(&Object::table(&schema, &name))
    }

    /// The owner of a schema may drop what others have made in it.
    fn owner_to_drop(&self, name: &ObjectName) -> Result<()> {
        let (schema, _) = table_name(name)?;
        if self.access.owns(&Object::schema(&schema)) { Ok(()) } else { self.owner(name) }
    }

    fn owner_of_each(&self, tables: &[ObjectName], statement: &str) -> Result<()> {
        if tables.is_empty() {
            let what = format!("all tables at once, to {statement} them");
            return Err(denied(what, format!("only a superuser may do it; {statement} t is for a table that you own")));
        }
        tables.iter().try_for_each(|name| self.owner(name))
    }

    async fn owner_of_index(&self, index: &ObjectName) -> Result<()> {
        let (schema, name) = table_name(index)?;
        match self.session.database().shared.catalog.find_index(&schema, &name).await {
            Ok(table) => self.access.require_owner(&Object::table(table.schema_name(), table.name())),
            // The statement says so, with the names that are near.
            Err(_) => Ok(()),
        }
    }

    fn create_in_schema(&self, name: &ObjectName) -> Result<()> {
        let schema = Object::schema(&table_name(name)?.0);
        if self.knows(&schema) { self.access.require(&schema, Privilege::Create) } else { Ok(()) }
    }

    fn create_in_database(&self) -> Result<()> {
        self.access.require(&Object::Database, Privilege::Create)
    }

    fn insert(&self, insert: &Insert) -> Result<()> {
        let is_update = insert.on_conflict.as_ref().is_some_and(|conflict| matches!(conflict.action, ConflictAction::Update { .. }));
        let mut privileges = vec![Privilege::Insert];
        if is_update {
            privileges.push(Privilege::Update);
        }
        if is_update || !insert.returning.is_empty() {
            privileges.push(Privilege::Select);
        }
        self.table(&insert.target.table, &privileges)
    }

    /// Expressions that name no column and hold no query read nothing.
    fn update(&self, update: &Update) -> Result<()> {
        let reads = update.condition.iter().any(reads_rows)
            || !update.from.is_empty()
            || update.returning.iter().any(returns_rows)
            || update.assignments.iter().any(|assignment| !rolloutdb_sql::is_default(&assignment.value) && reads_rows(&assignment.value));
        let privileges: &[Privilege] = if reads { &[Privilege::Update, Privilege::Select] } else { &[Privilege::Update] };
        self.table(&update.target.table, privileges)
    }

    fn delete(&self, delete: &Delete) -> Result<()> {
        let reads = delete.condition.is_some() || !delete.using.is_empty() || !delete.returning.is_empty();
        let privileges: &[Privilege] = if reads { &[Privilege::Delete, Privilege::Select] } else { &[Privilege::Delete] };
        self.table(&delete.target.table, privileges)
    }

    fn merge(&self, merge: &Merge) -> Result<()> {
        let mut privileges = vec![Privilege::Select];
        privileges.extend(merge.clauses.iter().filter_map(|clause| match clause.action {
            MergeAction::Nothing => None,
            MergeAction::Delete => Some(Privilege::Delete),
            MergeAction::Update(_) => Some(Privilege::Update),
            MergeAction::Insert(_) => Some(Privilege::Insert),
        }));
        self.table(&merge.target.table, &privileges)
    }

    fn alter_owner(&self, alter: &AlterOwner) -> Result<()> {
        match alter.kind {
            OwnedKind::Table | OwnedKind::View => self.owner(&alter.name),
            kind => self.known_owner(&Object::owned(kind, &alter.name)?),
        }
    }

    fn generate(&self, generate: &GenerateRollouts) -> Result<()> {
        if let Ok(agent) = self.session.database().shared.agents.get(&generate.agent) {
            self.access.require_agent(&generate.agent, &agent.options)?;
        }
        if self.exists(&generate.into)? {
            // It reads which questions are there.
            self.table(&generate.into, &[Privilege::Insert, Privilege::Select])
        } else {
            self.create_in_schema(&generate.into)
        }
    }

    fn job(&self, command: JobCommand) -> Result<()> {
        let jobs = &self.session.database().shared.jobs;
        // One that does not exist is told by the statement.
        let Ok(job) = jobs.get(i64::try_from(command.job).unwrap_or(i64::MAX)) else { return Ok(()) };
        self.access.require_rights_of(&job.role, &format!("job {}", job.job_id))
    }

    /// Weights can be copied by training from them, and who adds a version changes what the name stands for.
    fn train(&self, train: &Train) -> Result<()> {
        self.access.require_model(&train.base)?;
        let model = Object::model(&train.model);
        if self.knows(&model) { self.access.require_owner(&model) } else { self.create_in_database() }
    }
}
