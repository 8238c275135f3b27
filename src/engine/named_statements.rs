//! Prepared statements by name: those that PREPARE makes, and those that a client's messages name. A session has one list of both, so EXECUTE runs what
//! a driver has prepared, and DEALLOCATE releases it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use arrow::datatypes::FieldRef;

use super::prepared::PreparedStatement;
use super::session::Session;
use super::typing::sql_type_of;
use crate::error::{Error, Result};

/// The prepared statements of one session, by name.
#[derive(Default)]
pub struct NamedStatements {
    statements: BTreeMap<String, NamedStatement>,
    num_released: u64,
}

/// A prepared statement that has a name.
#[derive(Debug, Clone)]
pub struct NamedStatement {
    /// `None`: a text without a statement, which only a client's message can name.
    pub prepared: Option<Arc<PreparedStatement>>,
    text: String,
    created: SystemTime,
    /// What was said of the types of its parameters; may be shorter than there are parameters.
    declared: Vec<Option<FieldRef>>,
    is_from_sql: bool,
}

/// A prepared statement, for `pg_prepared_statements`.
#[derive(Debug, Clone)]
pub struct NamedStatementInfo {
    pub name: String,
    pub text: String,
    pub created: SystemTime,
    /// As one writes them in SQL.
    pub parameter_types: Vec<String>,
    pub is_from_sql: bool,
}

impl NamedStatement {
    /// `text`: of the whole PREPARE.
    pub(super) fn of_sql(prepared: PreparedStatement, text: String, declared: Vec<Option<FieldRef>>) -> Self {
        Self { prepared: Some(Arc::new(prepared)), text, created: SystemTime::now(), declared, is_from_sql: true }
    }

    /// Of the protocol's `Parse`; `declared`: the types that the client has said.
    #[must_use]
    pub fn of_protocol(prepared: Option<Arc<PreparedStatement>>, text: String, declared: Vec<Option<FieldRef>>) -> Self {
        Self { prepared, text, created: SystemTime::now(), declared, is_from_sql: false }
    }

    /// The parameters that EXECUTE gives values for: the type that was declared and the one that the statement implies, of each.
    pub(super) fn parameters(&self) -> Vec<(Option<FieldRef>, Option<FieldRef>)> {
        let implied: &[Option<FieldRef>] = self.prepared.as_ref().map_or(&[], |prepared| &prepared.description().parameters);
        let at = |fields: &[Option<FieldRef>], position: usize| fields.get(position).cloned().flatten();
        let count = implied.len().max(self.declared.len());
        (0..count).map(|position| (at(&self.declared, position), at(implied, position))).collect()
    }

    fn parameter_types(&self) -> Vec<String> {
        let name = |(declared, implied): (Option<FieldRef>, Option<FieldRef>)| {
            declared.or(implied).map_or_else(|| "text".to_owned(), |field| sql_type_of(&field))
        };
        self.parameters().into_iter().map(name).collect()
    }
}

impl NamedStatements {
    /// # Errors
    /// [`Error::DuplicateStatement`] (42P05).
    pub fn check_free(&self, name: &str) -> Result<()> {
        if self.statements.contains_key(name) { Err(Error::DuplicateStatement(name.to_owned())) } else { Ok(()) }
    }

    /// # Errors
    /// As [`Self::check_free`].
    pub fn add(&mut self, name: &str, statement: NamedStatement) -> Result<()> {
        self.check_free(name)?;
        self.statements.insert(name.to_owned(), statement);
        Ok(())
    }

    /// # Errors
    /// [`Error::UnknownStatement`] (26000).
    pub fn get(&self, name: &str) -> Result<&NamedStatement> {
        self.statements.get(name).ok_or_else(|| Error::UnknownStatement(name.to_owned()))
    }

    /// # Errors
    /// As [`Self::get`].
    pub fn release(&mut self, name: &str) -> Result<()> {
        self.statements.remove(name).ok_or_else(|| Error::UnknownStatement(name.to_owned()))?;
        self.num_released += 1;
        Ok(())
    }

    pub fn release_all(&mut self) {
        self.num_released += self.statements.len() as u64;
        self.statements.clear();
    }

    /// By name.
    pub fn list(&self) -> Vec<NamedStatementInfo> {
        let info = |(name, statement): (&String, &NamedStatement)| NamedStatementInfo {
            name: name.clone(),
            text: statement.text.clone(),
            created: statement.created,
            parameter_types: statement.parameter_types(),
            is_from_sql: statement.is_from_sql,
        };
        self.statements.iter().map(info).collect()
    }
}

/// For the server, whose clients name statements by messages.
impl Session {
    /// # Errors
    /// The session has a statement of this name (42P05).
    pub fn check_statement_is_free(&self, name: &str) -> Result<()> {
        self.named_statements().check_free(name)
    }

    /// # Errors
    /// As [`Self::check_statement_is_free`].
    pub fn name_statement(&self, name: &str, statement: NamedStatement) -> Result<()> {
        self.named_statements().add(name, statement)
    }

    /// `None`: there is none of this name.
    pub fn named_statement(&self, name: &str) -> Option<NamedStatement> {
        self.named_statements().get(name).ok().cloned()
    }

    /// Does nothing if there is none of this name, as the protocol wants it.
    pub fn release_statement(&self, name: &str) {
        // Only DEALLOCATE finds fault with a name that is not there.
        let _ = self.named_statements().release(name);
    }

    /// Another number after each release.
    pub fn num_released_statements(&self) -> u64 {
        self.named_statements().num_released
    }
}
