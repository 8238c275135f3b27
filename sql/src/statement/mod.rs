//! The statements: one file for each kind, with its fields, how it is read and how it is printed.
//!
//! A statement's `parse` starts at its first word.

mod alter_owner;
mod alter_table;
mod clear_cache;
mod comment;
mod copy;
mod create_agent;
mod create_extension;
mod create_index;
mod create_model;
mod create_schema;
mod create_table;
mod create_view;
mod cursor;
mod delete;
mod describe;
mod drop;
mod explain;
mod generate_rollouts;
mod grant;
mod insert;
mod job;
mod like_table;
mod maintenance;
mod merge;
mod prepare;
mod role;
mod savepoint;
mod secret;
mod set;
mod show;
mod target;
mod train;
mod transaction;
mod truncate;
mod unload_model;
mod update;

use std::fmt;

use crate::ast::{self, Query, With};
use crate::error::{Error, Result};
use crate::parser::Parser;
use crate::suggest::did_you_mean;

pub use alter_owner::{AlterOwner, OwnedKind};
pub use alter_table::{AlterAction, AlterTable};
pub use clear_cache::ClearCache;
pub use comment::{Comment, CommentedObject};
pub use copy::{CopyFrom, CopyPlace, CopySource, CopyTo};
pub use create_agent::CreateAgent;
pub use create_extension::CreateExtension;
pub use create_index::CreateIndex;
pub use create_model::CreateModel;
pub use create_schema::CreateSchema;
pub use create_table::{ColumnConstraint, ColumnDefinition, CreateTable, Identity, TableConstraint};
pub use create_view::CreateView;
pub use cursor::{CloseCursor, Declare, Direction, Fetch};
pub use delete::Delete;
pub use describe::{DescribeAgent, DescribeModel, DescribeTable};
pub use drop::{Dependents, DropAgent, DropIndex, DropModel, DropSchema, DropTable, DropView};
pub use explain::Explain;
pub use generate_rollouts::GenerateRollouts;
pub use grant::{Grant, GrantObjects, Grantee, Privilege, Revoke};
pub use insert::{ConflictAction, Insert, OnConflict, Overriding};
pub use job::{JobAction, JobCommand};
pub use like_table::{LikeProperty, LikeTable};
pub use maintenance::{Analyze, Optimize, Reindex, Vacuum};
pub use merge::{Matching, Merge, MergeAction, MergeClause, MergeInsert};
pub use prepare::{Deallocate, Execute, Prepare};
pub use role::{
    AlterRole, AlterRoleAction, CreateRole, DropRole, GrantRole, MembershipOption, Password, RevokeRole, RoleName, RoleOption, SetRole,
};
pub use savepoint::{Savepoint, SavepointAction};
pub use secret::{CreateSecret, DropSecret, SecretSource};
pub use set::{Reset, Set};
pub use show::Show;
pub use target::{Assignment, Target, is_default};
pub use train::{Train, TrainMethod};
pub use transaction::{Begin, IsolationLevel, SetTransaction, TransactionMode};
pub use truncate::Truncate;
pub use unload_model::UnloadModel;
pub use update::Update;

/// One statement.
///
/// Names in our own fields are folded: lower case, unless they were quoted in the text. Names inside sqlparser's trees
/// (queries, expressions, [`Statement::Other`]) are as written; DataFusion folds
/// them when it plans.
#[derive(Debug, Clone, PartialEq)]
pub enum Statement {
    CreateModel(CreateModel),
    DropModel(DropModel),
    UnloadModel(UnloadModel),
    ClearCache(ClearCache),
    /// `SHOW MODELS`
    ShowModels,
    DescribeModel(DescribeModel),
    CreateAgent(CreateAgent),
    DropAgent(DropAgent),
    /// `SHOW AGENTS`
    ShowAgents,
    DescribeAgent(DescribeAgent),
    DescribeTable(DescribeTable),
    GenerateRollouts(GenerateRollouts),
    Train(Train),
    CreateTable(CreateTable),
    DropTable(DropTable),
    AlterTable(AlterTable),
    Comment(Comment),
    AlterOwner(AlterOwner),
    Grant(Grant),
    Revoke(Revoke),
    CreateSecret(CreateSecret),
    DropSecret(DropSecret),
    CreateSchema(CreateSchema),
    DropSchema(DropSchema),
    CreateView(CreateView),
    DropView(DropView),
    CreateIndex(CreateIndex),
    DropIndex(DropIndex),
    CopyFrom(CopyFrom),
    CopyTo(CopyTo),
    Declare(Declare),
    Fetch(Fetch),
    CloseCursor(CloseCursor),
    Prepare(Prepare),
    Execute(Execute),
    Deallocate(Deallocate),
    Insert(Box<Insert>),
    Vacuum(Vacuum),
    Optimize(Optimize),
    Analyze(Analyze),
    Reindex(Reindex),
    /// A long statement that runs in the background: `... ASYNC`
    Async(Box<Statement>),
    JobCommand(JobCommand),
    /// `SHOW JOBS`
    ShowJobs,
    /// `SHOW TABLES`
    ShowTables,
    /// `SHOW INDEXES`
    ShowIndexes,
    Show(Show),
    Set(Set),
    Reset(Reset),
    Begin(Begin),
    SetTransaction(SetTransaction),
    /// `COMMIT`, `END`
    Commit,
    /// `ROLLBACK`, `ABORT`
    Rollback,
    Savepoint(Savepoint),
    /// `DISCARD ALL`
    Discard,
    /// `DISCARD TEMP`
    DiscardTemp,
    CreateExtension(CreateExtension),
    CreateRole(CreateRole),
    AlterRole(AlterRole),
    DropRole(DropRole),
    GrantRole(GrantRole),
    RevokeRole(RevokeRole),
    SetRole(SetRole),
    Explain(Explain),
    Update(Box<Update>),
    Delete(Box<Delete>),
    Merge(Box<Merge>),
    Truncate(Truncate),
    /// `SELECT`, `VALUES`, `TABLE`, `WITH ... SELECT`; it does not write.
    Query(Box<Query>),
    /// What sqlparser reads and no variant above says: `NOTIFY`, `LISTEN`, `CREATE FUNCTION`, ...
    Other(Box<ast::Statement>),
}

/// Words that a statement can start with.
const STARTS: &[&str] = &[
    "ABORT",
    "ALTER",
    "ANALYZE",
    "BEGIN",
    "CALL",
    "CANCEL",
    "CLEAR",
    "CLOSE",
    "COMMENT",
    "COMMIT",
    "COPY",
    "CREATE",
    "DEALLOCATE",
    "DECLARE",
    "DELETE",
    "DESC",
    "DESCRIBE",
    "DISCARD",
    "DO",
    "DROP",
    "END",
    "EXECUTE",
    "EXPLAIN",
    "FETCH",
    "GENERATE",
    "GRANT",
    "INSERT",
    "LISTEN",
    "LOAD",
    "LOCK",
    "MERGE",
    "MOVE",
    "NOTIFY",
    "OPTIMIZE",
    "PREPARE",
    "REINDEX",
    "RELEASE",
    "RESET",
    "RESUME",
    "REVOKE",
    "ROLLBACK",
    "SAVEPOINT",
    "SELECT",
    "SET",
    "SHOW",
    "START",
    "TABLE",
    "TRAIN",
    "TRUNCATE",
    "UNLISTEN",
    "UNLOAD",
    "UPDATE",
    "VACUUM",
    "VALUES",
    "WAIT",
    "WITH",
];

/// Kinds of objects that `CREATE` and `DROP` are followed by, ours first.
const OBJECTS: &[&str] = &[
    "MODEL",
    "AGENT",
    "TABLE",
    "INDEX",
    "EXTENSION",
    "VIEW",
    "MATERIALIZED",
    "SECRET",
    "SCHEMA",
    "DATABASE",
    "FUNCTION",
    "PROCEDURE",
    "AGGREGATE",
    "SEQUENCE",
    "TYPE",
    "DOMAIN",
    "TRIGGER",
    "ROLE",
    "USER",
    "GROUP",
    "POLICY",
    "OPERATOR",
    "SERVER",
    "RECURSIVE",
    "OR",
    "TEMP",
    "TEMPORARY",
    "UNLOGGED",
    "GLOBAL",
    "LOCAL",
    "EXTERNAL",
    "UNIQUE",
    "COLLATION",
    "CAST",
];

impl Statement {
    pub(crate) fn parse(parser: &mut Parser) -> Result<Self> {
        let statement = Self::parse_foreground(parser)?;
        job::perhaps_async(parser, statement)
    }

    fn parse_foreground(parser: &mut Parser) -> Result<Self> {
        let Some(first) = parser.peek_word(0) else {
            return if parser.is_left_parenthesis() { parser.query().map(Self::Query) } else { Err(parser.expected("a statement")) };
        };
        match first.as_str() {
            "CREATE" => Self::parse_create(parser),
            "DROP" => Self::parse_drop(parser),
            "DESCRIBE" | "DESC" => describe::parse(parser),
            "GENERATE" => GenerateRollouts::parse(parser).map(Self::GenerateRollouts),
            "TRAIN" => Train::parse(parser).map(Self::Train),
            "COPY" => copy::parse(parser),
            "DECLARE" | "FETCH" | "MOVE" | "CLOSE" => cursor::parse(parser, &first),
            "PREPARE" | "EXECUTE" | "DEALLOCATE" => prepare::parse(parser, &first),
            "INSERT" | "UPDATE" | "DELETE" | "MERGE" => Self::parse_change(parser, &first, None),
            "ALTER" if AlterOwner::comes_next(parser) => AlterOwner::parse(parser).map(Self::AlterOwner),
            "ALTER" if parser.is_at("ALTER DEFAULT PRIVILEGES") => Err(Error::not_supported_but(
                "ALTER DEFAULT PRIVILEGES",
                "GRANT ... ON ALL TABLES IN SCHEMA grants on those that are there",
            )),
            "ALTER" if parser.is_at("ALTER TABLE") => AlterTable::parse(parser).map(Self::AlterTable),
            "ALTER" if ["ALTER ROLE", "ALTER USER", "ALTER GROUP"].iter().any(|words| parser.is_at(words)) => role::parse_alter(parser),
            "GRANT" if role::is_membership(parser) => role::parse_grant(parser),
            "REVOKE" if role::is_membership(parser) => role::parse_revoke(parser),
            "COMMENT" => Comment::parse(parser).map(Self::Comment),
            "GRANT" | "REVOKE" => grant::parse(parser),
            "VACUUM" => Vacuum::parse(parser).map(Self::Vacuum),
            "OPTIMIZE" => Optimize::parse(parser).map(Self::Optimize),
            "ANALYZE" => Analyze::parse(parser).map(Self::Analyze),
            "REINDEX" => Reindex::parse(parser).map(Self::Reindex),
            "TRUNCATE" => Truncate::parse(parser).map(Self::Truncate),
            "SHOW" => show::parse(parser),
            "SET" | "RESET" => set::parse(parser),
            "BEGIN" | "START" | "COMMIT" | "END" | "ROLLBACK" | "ABORT" => transaction::parse(parser),
            "SAVEPOINT" | "RELEASE" => savepoint::parse(parser),
            "UNLOAD" => UnloadModel::parse(parser).map(Self::UnloadModel),
            "CLEAR" => ClearCache::parse(parser).map(Self::ClearCache),
            "CANCEL" | "RESUME" | "WAIT" => JobCommand::parse(parser).map(Self::JobCommand),
            "EXPLAIN" => Explain::parse(parser).map(Self::Explain),
            "DO" => Err(Error::not_supported_but(
                "DO",
                "no language runs in the server but SQL: send the statements themselves, or run them in the client",
            )),
            "SELECT" | "VALUES" | "TABLE" => parser.query().map(Self::Query),
            "WITH" => Self::parse_with(parser),
            _ if STARTS.contains(&first.as_str()) => Self::parse_ast(parser),
            _ => Err(parser.error_here(format!("unknown statement{}", did_you_mean(&first, STARTS)))),
        }
    }

    /// `first`: the word that comes next; `with`: what was read before it.
    fn parse_change(parser: &mut Parser, first: &str, with: Option<With>) -> Result<Self> {
        Ok(match first {
            "INSERT" => Self::Insert(Box::new(Insert::parse(parser, with)?)),
            "UPDATE" => Self::Update(Box::new(Update::parse(parser, with)?)),
            "DELETE" => Self::Delete(Box::new(Delete::parse(parser, with)?)),
            _ => Self::Merge(Box::new(Merge::parse(parser, with)?)),
        })
    }

    /// A query, or a statement that writes, after the queries that it can name.
    fn parse_with(parser: &mut Parser) -> Result<Self> {
        let with = parser.with()?;
        match parser.peek_word(0).as_deref() {
            Some(first @ ("INSERT" | "UPDATE" | "DELETE" | "MERGE")) => Self::parse_change(parser, first, Some(with)),
            Some("WITH") => Err(parser.expected("SELECT, INSERT, UPDATE, DELETE or MERGE")),
            _ => {
                let mut query = parser.query()?;
                query.with = Some(with);
                Ok(Self::Query(query))
            }
        }
    }

    fn parse_create(parser: &mut Parser) -> Result<Self> {
        refuse_create_variants(parser)?;
        match parser.peek_word(1).as_deref() {
            Some("MODEL") => CreateModel::parse(parser).map(Self::CreateModel),
            Some("AGENT") => CreateAgent::parse(parser).map(Self::CreateAgent),
            Some("TABLE") => CreateTable::parse(parser).map(Self::CreateTable),
            _ if is_temporary(parser, "CREATE", "TABLE") => CreateTable::parse(parser).map(Self::CreateTable),
            _ if is_temporary(parser, "CREATE", "VIEW") || is_temporary(parser, "CREATE OR REPLACE", "VIEW") => {
                CreateView::parse(parser).map(Self::CreateView)
            }
            Some("INDEX") => CreateIndex::parse(parser).map(Self::CreateIndex),
            Some("SCHEMA") => CreateSchema::parse(parser).map(Self::CreateSchema),
            Some("SECRET") => CreateSecret::parse(parser).map(Self::CreateSecret),
            Some("VIEW") => CreateView::parse(parser).map(Self::CreateView),
            Some("OR") if parser.is_at("CREATE OR REPLACE VIEW") => CreateView::parse(parser).map(Self::CreateView),
            Some("EXTENSION") => CreateExtension::parse(parser).map(Self::CreateExtension),
            Some("ROLE" | "USER" | "GROUP") => role::parse_create(parser),
            Some(object) if OBJECTS.contains(&object) => Self::parse_ast(parser),
            _ => Err(unknown_object(parser)),
        }
    }

    fn parse_drop(parser: &mut Parser) -> Result<Self> {
        match parser.peek_word(1).as_deref() {
            Some("MODEL") => DropModel::parse(parser).map(Self::DropModel),
            Some("AGENT") => DropAgent::parse(parser).map(Self::DropAgent),
            Some("TABLE") => DropTable::parse(parser).map(Self::DropTable),
            Some("INDEX") => DropIndex::parse(parser).map(Self::DropIndex),
            Some("VIEW") => DropView::parse(parser).map(Self::DropView),
            Some("SCHEMA") => DropSchema::parse(parser).map(Self::DropSchema),
            Some("ROLE" | "USER" | "GROUP") => role::parse_drop(parser),
            Some("SECRET") => DropSecret::parse(parser).map(Self::DropSecret),
            Some(object) if OBJECTS.contains(&object) => Self::parse_ast(parser),
            _ => Err(unknown_object(parser)),
        }
    }

    /// Reads a statement that sqlparser knows; the kinds that have a variant get it.
    fn parse_ast(parser: &mut Parser) -> Result<Self> {
        Ok(match parser.statement()? {
            ast::Statement::Query(query) => Self::Query(query),
            ast::Statement::Discard { object_type: ast::DiscardObject::ALL } => Self::Discard,
            ast::Statement::Discard { object_type: ast::DiscardObject::TEMP } => Self::DiscardTemp,
            other => Self::Other(Box::new(other)),
        })
    }

    /// The kind of statement, for messages and command tags: `CREATE MODEL`.
    ///
    /// For [`Statement::Other`] it is the first word only.
    pub fn tag(&self) -> &'static str {
        match self {
            Self::CreateModel(_) => "CREATE MODEL",
            Self::DropModel(_) => "DROP MODEL",
            Self::UnloadModel(_) => "UNLOAD MODEL",
            Self::ClearCache(_) => "CLEAR CACHE",
            Self::DescribeModel(_) => "DESCRIBE MODEL",
            Self::CreateAgent(_) => "CREATE AGENT",
            Self::DropAgent(_) => "DROP AGENT",
            Self::DescribeAgent(_) => "DESCRIBE AGENT",
            Self::DescribeTable(_) => "DESCRIBE",
            Self::GenerateRollouts(_) => "GENERATE ROLLOUTS",
            Self::Train(_) => "TRAIN",
            Self::CreateTable(CreateTable { query: Some(_), .. }) => "CREATE TABLE AS",
            Self::CreateTable(_) => "CREATE TABLE",
            Self::DropTable(_) => "DROP TABLE",
            Self::AlterTable(_) => "ALTER TABLE",
            Self::Comment(_) => "COMMENT",
            Self::AlterOwner(alter) => match alter.kind {
                OwnedKind::Table => "ALTER TABLE",
                OwnedKind::View => "ALTER VIEW",
                OwnedKind::Schema => "ALTER SCHEMA",
                OwnedKind::Model => "ALTER MODEL",
                OwnedKind::Agent => "ALTER AGENT",
            },
            Self::Grant(_) => "GRANT",
            Self::Revoke(_) => "REVOKE",
            Self::CreateSecret(_) => "CREATE SECRET",
            Self::DropSecret(_) => "DROP SECRET",
            Self::CreateSchema(_) => "CREATE SCHEMA",
            Self::DropSchema(_) => "DROP SCHEMA",
            Self::CreateView(_) => "CREATE VIEW",
            Self::DropView(_) => "DROP VIEW",
            Self::Vacuum(_) => "VACUUM",
            Self::Optimize(_) => "OPTIMIZE",
            Self::Analyze(_) => "ANALYZE",
            Self::Reindex(_) => "REINDEX",
            Self::CreateIndex(_) => "CREATE INDEX",
            Self::DropIndex(_) => "DROP INDEX",
            Self::CopyFrom(_) | Self::CopyTo(_) => "COPY",
            Self::Declare(_) => "DECLARE CURSOR",
            Self::Fetch(Fetch { is_move: true, .. }) => "MOVE",
            Self::Fetch(_) => "FETCH",
            Self::CloseCursor(CloseCursor { name: None }) => "CLOSE CURSOR ALL",
            Self::CloseCursor(_) => "CLOSE CURSOR",
            Self::Prepare(_) => "PREPARE",
            Self::Execute(_) => "EXECUTE",
            Self::Deallocate(Deallocate { name: None }) => "DEALLOCATE ALL",
            Self::Deallocate(_) => "DEALLOCATE",
            Self::Insert(_) => "INSERT",
            Self::Async(statement) => statement.tag(),
            Self::JobCommand(command) => command.action.words(),
            Self::ShowModels | Self::ShowAgents | Self::ShowTables | Self::ShowIndexes | Self::ShowJobs | Self::Show(_) => "SHOW",
            Self::Set(_) | Self::SetTransaction(_) => "SET",
            Self::Reset(_) => "RESET",
            Self::Begin(_) => "BEGIN",
            Self::Commit => "COMMIT",
            Self::Rollback => "ROLLBACK",
            Self::Savepoint(savepoint) => savepoint.action.tag(),
            Self::Discard => "DISCARD ALL",
            Self::DiscardTemp => "DISCARD TEMP",
            Self::CreateExtension(_) => "CREATE EXTENSION",
            Self::CreateRole(_) => "CREATE ROLE",
            Self::AlterRole(_) => "ALTER ROLE",
            Self::DropRole(_) => "DROP ROLE",
            Self::GrantRole(_) => "GRANT ROLE",
            Self::RevokeRole(_) => "REVOKE ROLE",
            Self::SetRole(SetRole { role: None, local: false }) => "RESET",
            Self::SetRole(_) => "SET",
            Self::Explain(_) => "EXPLAIN",
            Self::Update(_) => "UPDATE",
            Self::Delete(_) => "DELETE",
            Self::Merge(_) => "MERGE",
            Self::Truncate(_) => "TRUNCATE TABLE",
            Self::Query(_) => "SELECT",
            Self::Other(statement) => first_word(statement),
        }
    }
}

impl fmt::Display for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateModel(statement) => statement.fmt(f),
            Self::DropModel(statement) => statement.fmt(f),
            Self::UnloadModel(statement) => statement.fmt(f),
            Self::ClearCache(statement) => statement.fmt(f),
            Self::ShowModels => f.write_str("SHOW MODELS"),
            Self::DescribeModel(statement) => statement.fmt(f),
            Self::CreateAgent(statement) => statement.fmt(f),
            Self::DropAgent(statement) => statement.fmt(f),
            Self::ShowAgents => f.write_str("SHOW AGENTS"),
            Self::DescribeAgent(statement) => statement.fmt(f),
            Self::DescribeTable(statement) => statement.fmt(f),
            Self::GenerateRollouts(statement) => statement.fmt(f),
            Self::Train(statement) => statement.fmt(f),
            Self::CreateTable(statement) => statement.fmt(f),
            Self::DropTable(statement) => statement.fmt(f),
            Self::CreateIndex(statement) => statement.fmt(f),
            Self::DropIndex(statement) => statement.fmt(f),
            Self::CopyFrom(statement) => statement.fmt(f),
            Self::CopyTo(statement) => statement.fmt(f),
            Self::Declare(statement) => statement.fmt(f),
            Self::Fetch(statement) => statement.fmt(f),
            Self::CloseCursor(statement) => statement.fmt(f),
            Self::Prepare(statement) => statement.fmt(f),
            Self::Execute(statement) => statement.fmt(f),
            Self::Deallocate(statement) => statement.fmt(f),
            Self::Insert(statement) => statement.fmt(f),
            Self::Async(statement) => write!(f, "{statement} ASYNC"),
            Self::JobCommand(command) => command.fmt(f),
            Self::ShowJobs => f.write_str("SHOW JOBS"),
            Self::ShowTables => f.write_str("SHOW TABLES"),
            Self::ShowIndexes => f.write_str("SHOW INDEXES"),
            Self::AlterTable(statement) => statement.fmt(f),
            Self::Comment(statement) => statement.fmt(f),
            Self::AlterOwner(statement) => statement.fmt(f),
            Self::Grant(statement) => statement.fmt(f),
            Self::Revoke(statement) => statement.fmt(f),
            Self::CreateSecret(statement) => statement.fmt(f),
            Self::DropSecret(statement) => statement.fmt(f),
            Self::CreateSchema(statement) => statement.fmt(f),
            Self::DropSchema(statement) => statement.fmt(f),
            Self::CreateView(statement) => statement.fmt(f),
            Self::DropView(statement) => statement.fmt(f),
            Self::Vacuum(statement) => statement.fmt(f),
            Self::Optimize(statement) => statement.fmt(f),
            Self::Analyze(statement) => statement.fmt(f),
            Self::Reindex(statement) => statement.fmt(f),
            Self::Show(statement) => statement.fmt(f),
            Self::Set(statement) => statement.fmt(f),
            Self::Reset(statement) => statement.fmt(f),
            Self::Begin(statement) => statement.fmt(f),
            Self::SetTransaction(statement) => statement.fmt(f),
            Self::Commit => f.write_str("COMMIT"),
            Self::Rollback => f.write_str("ROLLBACK"),
            Self::Savepoint(statement) => statement.fmt(f),
            Self::Discard => f.write_str("DISCARD ALL"),
            Self::DiscardTemp => f.write_str("DISCARD TEMP"),
            Self::CreateExtension(statement) => statement.fmt(f),
            Self::CreateRole(statement) => statement.fmt(f),
            Self::AlterRole(statement) => statement.fmt(f),
            Self::DropRole(statement) => statement.fmt(f),
            Self::GrantRole(statement) => statement.fmt(f),
            Self::RevokeRole(statement) => statement.fmt(f),
            Self::SetRole(statement) => statement.fmt(f),
            Self::Explain(statement) => statement.fmt(f),
            Self::Update(statement) => statement.fmt(f),
            Self::Delete(statement) => statement.fmt(f),
            Self::Merge(statement) => statement.fmt(f),
            Self::Truncate(statement) => statement.fmt(f),
            Self::Other(statement) => statement.fmt(f),
            Self::Query(query) => query.fmt(f),
        }
    }
}

/// `TEMP`, and what it may be called; whether it is `GLOBAL` or `LOCAL` says nothing, as in Postgres.
const TEMPORARY: [&str; 6] = ["TEMP", "TEMPORARY", "LOCAL TEMP", "LOCAL TEMPORARY", "GLOBAL TEMP", "GLOBAL TEMPORARY"];

/// Whether a statement comes next that makes a temporary `object`; `verb`: what it starts with.
fn is_temporary(parser: &Parser, verb: &str, object: &str) -> bool {
    TEMPORARY.iter().any(|words| parser.is_at(&format!("{verb} {words} {object}")))
}

/// Reads `[GLOBAL | LOCAL] {TEMP | TEMPORARY}`, if it comes next.
fn eat_temporary(parser: &mut Parser) -> bool {
    TEMPORARY.iter().any(|words| parser.eat(words))
}

/// Refuses `CREATE OR REPLACE MODEL`, `CREATE UNLOGGED TABLE`, `CREATE UNIQUE INDEX` and the like by name.
fn refuse_create_variants(parser: &Parser) -> Result<()> {
    let words: Vec<String> = (1..=4).map_while(|n| parser.peek_word(n)).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["OR", "REPLACE", object @ ("MODEL" | "AGENT" | "TABLE"), ..] => Err(Error::not_supported_but(
            format!("CREATE OR REPLACE {object}"),
            format!("write DROP {object} IF EXISTS first, or CREATE {object} IF NOT EXISTS"),
        )),
        [kind @ ("UNLOGGED" | "EXTERNAL"), "TABLE", ..] => Err(Error::not_supported(format!("CREATE {kind} TABLE"))),
        ["UNIQUE", "INDEX", ..] => {
            Err(Error::not_supported_but("CREATE UNIQUE INDEX", "write ALTER TABLE t ADD CONSTRAINT name UNIQUE (columns)"))
        }
        _ => Ok(()),
    }
}

/// The error for the second word of `CREATE` or `DROP`; reads the first.
fn unknown_object(parser: &mut Parser) -> Error {
    let verb = parser.peek_word(0).unwrap_or_default();
    parser.next_token();
    match parser.peek_word(0) {
        Some(found) => parser.error_here(format!("unknown kind of object after {verb}{}", did_you_mean(&found, OBJECTS))),
        None => parser.expected(&format!("the kind of object after {verb}, such as TABLE or MODEL")),
    }
}

fn first_word(statement: &ast::Statement) -> &'static str {
    let text = statement.to_string();
    let first = text.split([' ', '(']).next().unwrap_or_default();
    STARTS.iter().copied().find(|start| start.eq_ignore_ascii_case(first)).unwrap_or("SQL")
}
