//! A prepared statement after its tables have changed: it is described anew, and must give the columns that it was prepared with. Its parameters keep their types.

use std::sync::{Arc, MutexGuard, PoisonError};

use arrow::datatypes::{FieldRef, SchemaRef};
use futures::FutureExt;
use rolloutdb_sql::Statement;

use super::PreparedStatement;
use crate::engine::declared_types;
use crate::engine::parameter_types::is_text_or_list;
use crate::engine::search_path::SearchPath;
use crate::engine::session::Session;
use crate::engine::typing::sql_type_of;
use crate::error::{Error, Result};

/// What decides of which objects the names in a statement are, and of which columns these are.
#[derive(Debug)]
pub struct Names {
    /// Of the catalog.
    epoch: u64,
    settings: u64,
    path: SearchPath,
}

/// What is known of a statement's columns and parameters.
#[derive(Debug, Default)]
pub struct Shape {
    /// For which its description holds; `None`: it was not compared.
    names: Option<Names>,
    /// The statement as it runs by now, if the types of its parameters had to be written into it anew.
    successor: Option<Arc<PreparedStatement>>,
}

impl Names {
    pub fn of(session: &Session) -> Self {
        let epoch = session.database().shared.catalog.names_epoch();
        Self { epoch, settings: session.settings_epoch(), path: SearchPath::of(session) }
    }

    /// Whether they are the same by now. Of settings the search path counts alone.
    fn are_of(&mut self, session: &Session) -> bool {
        if self.epoch != session.database().shared.catalog.names_epoch() {
            return false;
        }
        let settings = session.settings_epoch();
        if self.settings != settings {
            if self.path != SearchPath::of(session) {
                return false;
            }
            self.settings = settings;
        }
        true
    }
}

impl PreparedStatement {
    pub(super) fn of_names(self, names: Names, declared: &[Option<FieldRef>]) -> Self {
        let shape = Shape { names: Some(names), successor: None };
        Self { shape: shape.into(), declared: declared.to_vec(), ..self }
    }

    fn shape(&self) -> MutexGuard<'_, Shape> {
        self.shape.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether its description can become wrong, and may be so.
    pub(crate) fn may_be_stale(&self, session: &Session) -> bool {
        match &self.statement {
            // What they name changes without a table.
            Statement::Execute(_) | Statement::Fetch(_) => true,
            _ if self.description.columns.fields().is_empty() && self.description.parameters.is_empty() => false,
            _ => !self.shape().names.as_mut().is_some_and(|names| names.are_of(session)),
        }
    }

    /// The type that each parameter has for good: the one that was said, or the one that followed from the statement.
    fn fixed_types(&self) -> Vec<Option<FieldRef>> {
        let implied = &self.description.parameters;
        let at = |types: &[Option<FieldRef>], position: usize| types.get(position).cloned().flatten();
        let count = implied.len().max(self.declared.len());
        let implied = |position: usize| at(implied, position).filter(|field| !is_text_or_list(field));
        (0..count).map(|position| at(&self.declared, position).or_else(|| implied(position))).collect()
    }
}

impl Session {
    /// The statement as it runs on what its names stand for by now. `None`: as it is.
    ///
    /// # Errors
    /// [`Error::ResultTypeChanged`] for other columns; as [`Session::describe`] for a statement that is none any more, or not with these parameters.
    pub async fn revalidated(&self, prepared: &PreparedStatement) -> Result<Option<Arc<PreparedStatement>>> {
        if !prepared.may_be_stale(self) {
            return Ok(prepared.shape().successor.clone());
        }
        let names = Names::of(self);
        let types = prepared.fixed_types();
        let was_implied = |position: usize| prepared.declared.get(position).is_none_or(Option::is_none);
        let original = prepared.original.as_ref().unwrap_or(&prepared.statement).clone();
        let anew = match types.iter().any(Option::is_some) {
            true => declared_types::prepared(self, original, &types, &was_implied).boxed().await?,
            false => {
                let description = self.describe(&original).await?;
                PreparedStatement::new(original, description)
            }
        };
        if !are_alike(&prepared.description.columns, &anew.description.columns) {
            return Err(Error::ResultTypeChanged);
        }
        let mut shape = prepared.shape();
        shape.names = Some(names);
        shape.successor = (anew.statement != prepared.statement).then(|| Arc::new(anew));
        Ok(shape.successor.clone())
    }
}

/// Whether clients may take the rows of one for those of the other: by the names and types of columns.
fn are_alike(told: &SchemaRef, found: &SchemaRef) -> bool {
    let is_same = |(told, found): (&FieldRef, &FieldRef)| told.name() == found.name() && sql_type_of(told) == sql_type_of(found);
    told.fields().len() == found.fields().len() && told.fields().iter().zip(found.fields()).all(is_same)
}
