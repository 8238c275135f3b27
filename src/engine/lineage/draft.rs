//! The record of a statement that is under way.

use std::fmt::Display;

use datafusion::logical_expr::LogicalPlan;
use rolloutdb_catalogs::Table;
use serde_json::Value as Json;

use super::digests::Digests;
use super::{Made, Record, Sources, add};
use crate::engine::session::Session;
use crate::error::Result;

/// What will be noted of rows, begun when their plan is made and ended when they are written.
pub struct Draft {
    record: Record,
    sources: Sources,
    digests: Digests,
}

impl Draft {
    /// `target`: where the rows go, which are not said to come from there. `None` where they come from nowhere, as those of VALUES.
    ///
    /// # Errors
    /// Of a plan that cannot be walked.
    pub fn of_rows(plan: &LogicalPlan, target: &Table, statement: &dyn Display) -> Result<Option<Self>> {
        let mut sources = Sources::default();
        sources.add(plan)?;
        let sources = sources.without(target);
        Ok((!sources.is_empty()).then(|| Self::new(sources, statement)))
    }

    /// Of a table that is made: wherever its rows come from, the statement tells what they are.
    ///
    /// # Errors
    /// As [`Self::of_rows`].
    pub fn of_new_table(plan: &LogicalPlan, statement: &dyn Display) -> Result<Self> {
        let mut sources = Sources::default();
        sources.add(plan)?;
        Ok(Self::new(sources, statement))
    }

    fn new(sources: Sources, statement: &dyn Display) -> Self {
        let made = if sources.is_evaluation() { Made::Evaluation } else { Made::Rows };
        let digests = Digests::begin(sources.files().to_vec());
        Self { record: Record::new(made, statement), sources, digests }
    }

    /// Of a table that has no rows but these: as it stands in the table's file. `None` with a warning if it cannot be made.
    pub async fn of_first_version(self, session: &Session, table: &str) -> Option<Json> {
        match self.finished(session).await {
            Ok(record) => Some(Record { version: 1, ..record }.to_json()),
            Err(error) => {
                session.notices().warning(format!("what the rows of {table} stand on could not be noted: {error}"));
                None
            }
        }
    }

    /// Notes it with the table, whose rows are written. A failure is a warning: an error would make clients write them again.
    pub async fn note(self, session: &Session, table: &Table) {
        let noted = async {
            let record = self.finished(session).await?;
            let version = table.latest().await?.version();
            Ok::<_, crate::error::Error>(table.note_lineage(&Record { version, ..record }.to_json(), Record::may_go)?)
        };
        if let Err(error) = noted.await {
            session
                .notices()
                .warning(format!("the rows are written, but what they stand on could not be noted with {}: {error}", table.name()));
        }
    }

    async fn finished(self, session: &Session) -> Result<Record> {
        let Self { mut record, sources, digests } = self;
        let mut files = digests.finish().await;
        files.iter_mut().for_each(|file| file.statement = Some(record.statement.clone()));
        add(&mut record.stands_on, files);
        add(&mut record.stands_on, sources.things(&session.database().shared).await?);
        Ok(record)
    }
}
