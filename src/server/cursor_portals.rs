//! Cursors that SQL declares, as portals of the protocol: psycopg's named cursors send DECLARE as text, and describe the portal of that name.

use datafusion::arrow::datatypes::SchemaRef;
use pgwire::api::portal::Format;
use pgwire::api::results::DescribePortalResponse;
use pgwire::error::PgWireResult;
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::extendedquery::PortalSuspended;
use pgwire::messages::response::CommandComplete;
use rolloutdb_sql::{Direction, Fetch, Statement};

use super::columns::WireColumn;
use super::connection::Connection;
use super::extended::unknown;
use super::response::wire_error;
use super::rows::{WireRows, completion_tag, wire_columns};
use super::running::{Outbox, Sent};
use crate::engine::Response;
use crate::error::Error;

impl Connection {
    /// The columns of a cursor, in the form in which [`Self::run_cursor`] sends them.
    ///
    /// # Errors
    /// There is no cursor of this name (34000), or the transaction takes no statements (25P02).
    pub(super) fn describe_cursor(&self, name: &str) -> PgWireResult<DescribePortalResponse> {
        let (columns, format) = self.cursor_columns(name)?;
        self.session.check_takes(&fetch(name, 0)).map_err(wire_error)?;
        let fields = wire_columns(&columns, &format).iter().map(WireColumn::field).cloned().collect();
        Ok(DescribePortalResponse::new(fields))
    }

    /// Sends rows from where the cursor is, all if `max_rows` is 0. They come to an end as those of a query do.
    pub(super) async fn run_cursor(&self, client: &mut impl Outbox, name: &str, max_rows: usize) -> PgWireResult<()> {
        let (_, format) = self.cursor_columns(name)?;
        let (session, statement) = (self.session.clone(), fetch(name, max_rows));
        let mut running = self.running(client).await;
        let response = self.execute(&mut running, async move { session.execute(&statement, Vec::new()).await }).await?;
        let Response::Rows { stream, .. } = response else {
            return Err(wire_error(Error::Internal("FETCH has given no rows".to_string())));
        };
        let mut rows = WireRows::new(stream, None, &format, &self.session.memory_pool())?;
        let count = match running.send_rows(&mut rows.stream, 0).await? {
            Sent::All(count) => count,
            Sent::Limit => unreachable!("there is no limit"),
        };
        if max_rows > 0 && count == max_rows {
            return running.client.put(PgWireBackendMessage::PortalSuspended(PortalSuspended::new())).await;
        }
        running.send_parameters(self).await?;
        let tag = completion_tag("SELECT", count);
        running.client.put(PgWireBackendMessage::CommandComplete(CommandComplete::new(tag))).await
    }

    fn cursor_columns(&self, name: &str) -> PgWireResult<(SchemaRef, Format)> {
        let cursor = self.session.cursor(name).ok_or_else(|| unknown("portal", name, "34000"))?;
        Ok((cursor.columns, if cursor.is_binary { Format::UnifiedBinary } else { Format::UnifiedText }))
    }
}

/// `max_rows`: 0 for all, as in `Execute`.
fn fetch(name: &str, max_rows: usize) -> Statement {
    let direction = match i64::try_from(max_rows) {
        Ok(0) | Err(_) => Direction::All,
        Ok(count) => Direction::Forward(count),
    };
    Statement::Fetch(Fetch { cursor: name.to_string(), direction, is_move: false })
}
