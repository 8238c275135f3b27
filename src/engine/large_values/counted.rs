//! Columns whose memory is counted for as long as somebody holds them.

use arrow::array::{ArrayData, ArrayRef, make_array};
use arrow::buffer::Buffer;
use bytes::Bytes;
use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryReservation;

/// A buffer of a column, and what was set aside for all of it.
struct Counted {
    buffer: Buffer,
    _memory: MemoryReservation,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        self.buffer.as_slice()
    }
}

/// The same column; `memory` is given back when the last of those is gone that hold it, a slice of it, or what is in it.
///
/// # Errors
/// None for a column that is one.
pub fn counted(column: &ArrayRef, memory: MemoryReservation) -> Result<ArrayRef> {
    let data = column.to_data();
    let largest = largest_buffer(&data);
    let mut memory = Some(memory);
    Ok(make_array(with_counted(data, largest, &mut memory)?))
}

/// What is read longest: the items of a list outlive its own places.
fn largest_buffer(data: &ArrayData) -> usize {
    let own = data.buffers().iter().map(Buffer::len).max().unwrap_or(0);
    data.child_data().iter().map(largest_buffer).fold(own, usize::max)
}

/// The first buffer of the length takes the memory.
fn with_counted(data: ArrayData, length: usize, memory: &mut Option<MemoryReservation>) -> Result<ArrayData> {
    let buffers = data.buffers().iter().map(|buffer| match memory.take_if(|_| buffer.len() == length && length > 0) {
        Some(memory) => Buffer::from(Bytes::from_owner(Counted { buffer: buffer.clone(), _memory: memory })),
        None => buffer.clone(),
    });
    let buffers = buffers.collect();
    let children = data.child_data().iter().map(|child| with_counted(child.clone(), length, memory)).collect::<Result<Vec<_>>>()?;
    Ok(data.into_builder().buffers(buffers).child_data(children).build()?)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Array, AsArray, ListArray, StringArray, StringViewArray};
    use arrow::datatypes::Int64Type;
    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryConsumer, MemoryPool};

    use super::*;

    #[test]
    fn memory_is_held_as_long_as_a_part_of_the_column() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1000));
        let columns: [ArrayRef; 3] = [
            Arc::new(StringArray::from(vec![Some("a long enough text"), None, Some("b")])),
            Arc::new(StringViewArray::from(vec![Some("a text that is longer than twelve"), None, Some("b")])),
            Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>([Some((0..20).map(Some)), None, Some((0..1).map(Some))])),
        ];
        for column in columns {
            let memory = MemoryConsumer::new("test").register(&pool);
            memory.try_grow(100).expect("there is enough");
            let held = counted(&column, memory).expect("it is a column");
            assert_eq!(&held, &column);
            let part = match held.as_list_opt::<i32>() {
                Some(list) => list.values().slice(3, 2),
                None => held.slice(0, 1),
            };
            drop(held);
            assert_eq!(pool.reserved(), 100, "{part:?}");
            drop(part);
            assert_eq!(pool.reserved(), 0);
        }
    }
}
