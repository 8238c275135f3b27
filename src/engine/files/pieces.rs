//! Rows on their way into a file or to a client, as many at once as their bytes allow: what is written for them is in memory until it is taken.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, stream};

use crate::engine::large_values::{VALUE_BYTES_MAX, bytes_of_rows};
use crate::error::{Error, Result};

/// In bytes: what the rows of a piece hold that has more than one.
const PIECE_BYTES: u64 = 4 << 20;
/// From here on a row is counted.
const LONG_ROW: u64 = 16 << 20;

/// The same rows in pieces; the memory that a long row takes once more while it is written is that of `memory`.
pub fn in_pieces(rows: SendableRecordBatchStream, memory: Arc<dyn MemoryPool>) -> SendableRecordBatchStream {
    let schema = rows.schema();
    let state = Pieces { rows, batch: None, pieces: VecDeque::new(), memory, held: None };
    let pieces =
        stream::try_unfold(state, |mut state| async move { Ok::<_, DataFusionError>(state.next().await?.map(|piece| (piece, state))) });
    Box::pin(RecordBatchStreamAdapter::new(schema, pieces))
}

struct Pieces {
    rows: SendableRecordBatchStream,
    batch: Option<RecordBatch>,
    /// Of the batch, with their bytes.
    pieces: VecDeque<(Range<usize>, u64)>,
    memory: Arc<dyn MemoryPool>,
    /// For the row before, until the next one is asked for.
    held: Option<MemoryReservation>,
}

impl Pieces {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        self.held = None;
        loop {
            if let (Some(batch), Some((rows, bytes))) = (&self.batch, self.pieces.pop_front()) {
                if bytes > VALUE_BYTES_MAX && rows.len() == 1 {
                    return Err(Error::ValueTooLarge { what: "a row of COPY".to_owned(), bytes });
                }
                if bytes > LONG_ROW {
                    let held = MemoryConsumer::new("a row of COPY").register(&self.memory);
                    held.try_grow(usize::try_from(bytes).unwrap_or(usize::MAX).saturating_mul(2))?;
                    self.held = Some(held);
                }
                return Ok(Some(batch.slice(rows.start, rows.len())));
            }
            let Some(batch) = self.rows.next().await.transpose()? else { return Ok(None) };
            self.pieces = cut(&batch);
            self.batch = Some(batch);
        }
    }
}

fn cut(batch: &RecordBatch) -> VecDeque<(Range<usize>, u64)> {
    let columns: Vec<Vec<u64>> = batch.columns().iter().map(bytes_of_rows).collect();
    let mut pieces: VecDeque<(Range<usize>, u64)> = VecDeque::new();
    for row in 0..batch.num_rows() {
        let bytes = columns.iter().map(|column| column[row]).fold(0, u64::saturating_add);
        match pieces.back_mut() {
            Some((rows, total)) if total.saturating_add(bytes) <= PIECE_BYTES => {
                rows.end += 1;
                *total += bytes;
            }
            _ => pieces.push_back((row..row + 1, bytes)),
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, StringArray};

    use super::*;

    #[test]
    fn pieces_have_all_rows_in_their_order() {
        let texts = ["a".repeat(10), "b".repeat(5 << 20), "c".repeat(10), "d".repeat(4 << 20), String::new()];
        let texts: ArrayRef = Arc::new(StringArray::from(texts.to_vec()));
        let batch = RecordBatch::try_from_iter([("t", texts)]).expect("a batch");
        let rows: Vec<Range<usize>> = cut(&batch).into_iter().map(|(rows, _)| rows).collect();
        assert_eq!(rows, [0..1, 1..2, 2..3, 3..5]);
    }
}
