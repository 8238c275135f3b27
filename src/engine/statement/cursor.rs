//! DECLARE, FETCH, MOVE, CLOSE.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::ScalarValue;
use datafusion::error::DataFusionError;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::stream;
use rolloutdb_sql::{CloseCursor, Declare, Direction, Fetch};

use super::{done, query, rows_description};
use crate::engine::cursors::{CursorOptions, CursorRows};
use crate::engine::session::{Description, Response, Session, TransactionStatus};
use crate::error::{Error, Result};

pub async fn declare(session: &Session, declare: &Declare, parameters: &[ScalarValue]) -> Result<Response> {
    let is_of_transaction = session.transaction_status() != TransactionStatus::Idle;
    if !is_of_transaction && !declare.is_held {
        let advice = "DECLARE CURSOR can only be used in transaction blocks; write BEGIN first, or WITH HOLD";
        return Err(Error::NoTransaction(advice.to_owned()));
    }
    session.cursors().check_free(&declare.name)?;
    let rows = query::rows(session, &declare.query, parameters).await?;
    let rows = CursorRows::new(rows, session.task());
    let options = CursorOptions { is_binary: declare.is_binary, is_held: declare.is_held, is_of_transaction };
    session.cursors().add(&declare.name, declare.to_string(), rows, options)?;
    Ok(done("DECLARE CURSOR"))
}

/// The parameters of its query; it gives no rows.
pub async fn describe_declare(session: &Session, declare: &Declare) -> Result<Description> {
    let description = query::describe(session, &declare.query).await?;
    Ok(Description { columns: Arc::new(Schema::empty()), ..description })
}

pub fn describe_fetch(session: &Session, fetch: &Fetch) -> Result<Description> {
    Ok(rows_description(match fetch.is_move {
        true => Arc::new(Schema::empty()),
        false => session.cursors().schema(&fetch.cursor)?,
    }))
}

pub async fn fetch(session: &Session, fetch: &Fetch) -> Result<Response> {
    let schema = session.cursors().schema(&fetch.cursor)?;
    let mut rows = session.cursors().rows(&fetch.cursor)?;
    if let Some(of_cursor) = session.cursors().wanted(&fetch.cursor) {
        session.wanted().reads(of_cursor);
    }
    let Span { skipped, count } = Span::of(fetch.direction, rows.position())?;
    let num_skipped = rows.skip(skipped).await?;
    // The row that is wanted may be behind the end.
    let count = if num_skipped < skipped { 0 } else { count };
    if fetch.is_move {
        return Ok(done(format!("MOVE {}", rows.skip(count).await?)));
    }
    // The rows are lent to the response: as they are asked for, they are read.
    let batches = stream::try_unfold((rows, count), |(mut rows, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let batch = rows.next(left).await.map_err(DataFusionError::from)?;
        Ok::<_, DataFusionError>(batch.map(|batch| {
            let left = left - batch.num_rows() as u64;
            (batch, (rows, left))
        }))
    });
    Ok(Response::Rows { stream: Box::pin(RecordBatchStreamAdapter::new(schema, batches)), tag: "FETCH".to_owned() })
}

pub fn close(session: &Session, close: &CloseCursor) -> Result<Response> {
    match &close.name {
        Some(name) => {
            session.cursors().close(name)?;
            Ok(done("CLOSE CURSOR"))
        }
        None => {
            session.cursors().close_all();
            Ok(done("CLOSE CURSOR ALL"))
        }
    }
}

/// The rows of a direction, from where the cursor is.
#[derive(Debug, PartialEq)]
struct Span {
    skipped: u64,
    count: u64,
}

impl Span {
    /// # Errors
    /// [`Error::NotReady`] for rows that were passed, which are not kept.
    fn of(direction: Direction, position: u64) -> Result<Self> {
        let backward =
            || Error::NotReady("cursor can only scan forward; declare it again, or order its query the other way round".to_owned());
        let forward = |count: i64| u64::try_from(count).map_err(|_| backward());
        match direction {
            // Before the first row there is none to give again.
            Direction::Forward(0) | Direction::Relative(0) if position == 0 => Ok(Self { skipped: 0, count: 0 }),
            Direction::Forward(0) | Direction::Relative(0) => Err(backward()),
            Direction::Forward(count) => Ok(Self { skipped: 0, count: forward(count)? }),
            Direction::All => Ok(Self { skipped: 0, count: u64::MAX }),
            Direction::Relative(count) => Ok(Self { skipped: forward(count)? - 1, count: 1 }),
            Direction::Absolute(number) => match forward(number)? {
                number if number > position => Ok(Self { skipped: number - position - 1, count: 1 }),
                _ => Err(backward()),
            },
            Direction::BackwardAll => Err(backward()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_are_counted_from_where_the_cursor_is() {
        let of = |direction, position| Span::of(direction, position).ok().map(|span| (span.skipped, span.count));
        assert_eq!(of(Direction::Forward(5), 3), Some((0, 5)));
        assert_eq!(of(Direction::Relative(5), 3), Some((4, 1)));
        assert_eq!(of(Direction::Absolute(5), 3), Some((1, 1)));
        assert_eq!(of(Direction::All, 3), Some((0, u64::MAX)));
        assert_eq!(of(Direction::Forward(0), 0), Some((0, 0)));
        for behind in [
            Direction::Forward(0),
            Direction::Forward(-1),
            Direction::Relative(-1),
            Direction::Absolute(3),
            Direction::Absolute(-1),
            Direction::BackwardAll,
        ] {
            assert_eq!(of(behind, 3), None, "{behind:?}");
        }
    }
}
