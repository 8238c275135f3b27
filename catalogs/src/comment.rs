//! COMMENT ON: a sentence about a table, a column, an index, a view or a schema, kept where the object is.

use std::sync::Arc;

use datafusion::catalog::TableProvider;

use crate::{Catalog, Error, Result, Table, View};

/// Dataset configuration: the comment on the table.
const TABLE_COMMENT: &str = "rollout.comment.table";
/// Dataset configuration: `rollout.comment.column.<number of the column>`, which stays when the column gets another name.
const COLUMN_COMMENT: &str = "rollout.comment.column.";
/// Dataset configuration: `rollout.comment.index.<name>`.
const INDEX_COMMENT: &str = "rollout.comment.index.";

/// What of a table a comment is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commented<'a> {
    Table,
    Column(&'a str),
    Index(&'a str),
}

impl Table {
    /// The comment that this version has.
    #[must_use]
    pub fn comment(&self, on: Commented<'_>) -> Option<&str> {
        self.dataset.config().get(&self.comment_key(on).ok()?).map(String::as_str)
    }

    /// Sets or removes a comment, in one commit.
    ///
    /// # Errors
    /// [`Error::UnknownColumn`], [`Error::Conflict`], [`Error::Storage`].
    pub async fn set_comment(&self, on: Commented<'_>, text: Option<&str>) -> Result<()> {
        if let Commented::Column(column) = on {
            self.column(column)?;
        }
        let _writer = self.lock_writer().await;
        let mut dataset = self.state.snapshot(&self.schema_state.storage).await?.as_ref().clone();
        let comment = [(self.comment_key(on)?, text.map(str::to_owned))];
        dataset.update_config(comment).await.map_err(|source| Error::storage(self.name(), source))?;
        self.state.publish(Arc::new(dataset)).await;
        Ok(())
    }

    fn comment_key(&self, on: Commented<'_>) -> Result<String> {
        Ok(match on {
            Commented::Table => TABLE_COMMENT.to_owned(),
            Commented::Column(column) => format!("{COLUMN_COMMENT}{}", self.field_id(column)?),
            Commented::Index(index) => index_comment(index),
        })
    }
}

/// Where the comment on an index is, which goes with it.
pub(crate) fn index_comment(index: &str) -> String {
    format!("{INDEX_COMMENT}{index}")
}

impl Catalog {
    #[must_use]
    pub fn schema_comment(&self, schema: &str) -> Option<String> {
        self.storage().register().schema_comment(schema)
    }

    /// # Errors
    /// [`Error::UnknownSchema`], [`Error::Io`].
    pub fn set_schema_comment(&self, schema: &str, text: Option<&str>) -> Result<()> {
        self.rollout_schema(schema)?;
        self.storage().register().set_schema_comment(schema, text)
    }

    /// Sets or removes the comment on a view, or on a column of it.
    ///
    /// # Errors
    /// [`Error::UnknownTable`], [`Error::NotAView`], [`Error::UnknownColumn`], [`Error::Io`].
    pub fn set_view_comment(&self, schema: &str, name: &str, column: Option<&str>, text: Option<&str>) -> Result<()> {
        let schema = self.rollout_schema(schema)?;
        let Some(table) = schema.0.virtual_table(name) else {
            return Err(if schema.0.contains(name) { Error::NotAView { name: name.to_owned() } } else { schema.0.unknown_table(name) });
        };
        let view = View::of(table.as_ref()).ok_or_else(|| Error::NotAView { name: name.to_owned() })?;
        if let Some(column) = column
            && view.schema().field_with_name(column).is_err()
        {
            let known = view.schema().fields().iter().map(|field| field.name().clone()).collect();
            return Err(Error::UnknownColumn { table: name.to_owned(), name: column.to_owned(), known });
        }
        let changed = view.with_comment(column, text);
        changed.write(&self.storage().view_file(&schema.0.name, name)?)?;
        schema.0.set_virtual_table(name, Arc::new(changed));
        Ok(())
    }
}
