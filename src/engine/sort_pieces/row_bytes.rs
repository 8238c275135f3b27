//! What rows take in memory: of arrays that may be small parts of large buffers, what a copy of the rows takes.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, GenericByteViewArray, OffsetSizeTrait, RecordBatch};
use arrow::buffer::Buffer;
use arrow::datatypes::{ByteViewType, DataType};
use datafusion::error::Result;

/// A view, beside which a longer text stands in a buffer.
const VIEW_BYTES: usize = size_of::<u128>();

pub(super) fn batch_bytes(batch: &RecordBatch) -> Result<usize> {
    batch.columns().iter().map(|column| array_bytes(column)).sum()
}

/// The rows, without the buffers that they share with others where their own texts take less than half of these: a sort counts whole buffers, and as
/// often as there are pieces.
pub(super) fn with_own_texts(batch: RecordBatch) -> Result<RecordBatch> {
    let own = |column: &ArrayRef| match column.data_type() {
        DataType::Utf8View => own_texts(column.as_string_view()),
        DataType::BinaryView => own_texts(column.as_binary_view()),
        _ => None,
    };
    let own: Vec<Option<ArrayRef>> = batch.columns().iter().map(own).collect();
    if own.iter().all(Option::is_none) {
        return Ok(batch);
    }
    let columns = own.into_iter().zip(batch.columns()).map(|(own, shared)| own.unwrap_or_else(|| Arc::clone(shared)));
    Ok(RecordBatch::try_new(batch.schema(), columns.collect())?)
}

fn array_bytes(array: &dyn Array) -> Result<usize> {
    let values = match array.data_type() {
        DataType::Utf8View => view_bytes(array.as_string_view()),
        DataType::BinaryView => view_bytes(array.as_binary_view()),
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            items_bytes(list.value_offsets(), list.values())?
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            items_bytes(list.value_offsets(), list.values())?
        }
        DataType::Map(_, _) => {
            let map = array.as_map();
            items_bytes(map.value_offsets(), map.entries())?
        }
        DataType::FixedSizeList(_, _) => array_bytes(array.as_fixed_size_list().values())?,
        DataType::Struct(_) => array.as_struct().columns().iter().map(|column| array_bytes(column)).sum::<Result<usize>>()?,
        // Arrow counts all that a dictionary holds, which a copy of the rows holds too.
        _ => return Ok(array.to_data().get_slice_memory_size()?),
    };
    let nulls = if array.nulls().is_some() { array.len().div_ceil(8) } else { 0 };
    Ok(values + nulls)
}

fn view_bytes<T: ByteViewType>(views: &GenericByteViewArray<T>) -> usize {
    views.len() * VIEW_BYTES + views.total_buffer_bytes_used()
}

/// Of lists: their offsets, and those items that they hold.
fn items_bytes<O: OffsetSizeTrait>(offsets: &[O], items: &dyn Array) -> Result<usize> {
    let (first, last) = (offsets[0].as_usize(), offsets[offsets.len() - 1].as_usize());
    Ok(size_of_val(offsets) + array_bytes(&items.slice(first, last - first))?)
}

/// `None`: most of what the buffers hold belongs to these rows.
fn own_texts<T: ByteViewType>(texts: &GenericByteViewArray<T>) -> Option<ArrayRef> {
    // Slices of one array have its buffers, and put together have them as often as there are slices.
    let mut seen = HashSet::new();
    let buffers = texts.data_buffers().iter().filter(|buffer| seen.insert(buffer.data_ptr()));
    let held: usize = buffers.map(Buffer::capacity).sum();
    (held > 2 * texts.total_buffer_bytes_used()).then(|| Arc::new(texts.gc()) as ArrayRef)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, ListArray, StringArray, StringViewArray, StructArray};
    use arrow::buffer::OffsetBuffer;
    use arrow::compute::concat;
    use arrow::datatypes::{Field, Schema};

    use super::*;

    const LONG: usize = 100;

    fn views(count: usize) -> ArrayRef {
        Arc::new(StringViewArray::from_iter_values((0..count).map(|number| format!("{number:0LONG$}"))))
    }

    /// Lists of two items each.
    fn lists(items: ArrayRef) -> ArrayRef {
        let field = Arc::new(Field::new_list_field(items.data_type().clone(), false));
        let offsets = OffsetBuffer::from_lengths(std::iter::repeat_n(2, items.len() / 2));
        Arc::new(ListArray::new(field, offsets, items, None))
    }

    fn structs(items: ArrayRef) -> ArrayRef {
        let field = Arc::new(Field::new("text", items.data_type().clone(), false));
        Arc::new(StructArray::new(vec![field].into(), vec![items], None))
    }

    fn bytes(array: &ArrayRef) -> usize {
        array_bytes(array).expect("it can be counted")
    }

    fn batch(column: ArrayRef) -> RecordBatch {
        let schema = Schema::new(vec![Field::new("a", column.data_type().clone(), true)]);
        RecordBatch::try_new(Arc::new(schema), vec![column]).expect("one column of its type")
    }

    #[test]
    fn rows_take_what_they_hold_and_not_what_their_buffers_do() {
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(["abc"; 1000]));
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1000));
        assert_eq!(bytes(&numbers.slice(500, 10)), 10 * 8);
        // Arrow counts one offset less than there are.
        assert_eq!(bytes(&texts.slice(500, 10)), 10 * 4 + 10 * 3);
        let view = VIEW_BYTES + LONG;
        assert_eq!((bytes(&views(1000)), bytes(&views(1000).slice(500, 10))), (1000 * view, 10 * view));
        let short: ArrayRef = Arc::new(StringViewArray::from_iter_values(["abc"; 1000]));
        assert_eq!(bytes(&short.slice(500, 10)), 10 * VIEW_BYTES, "a short text stands in its view");
        assert_eq!(bytes(&lists(views(1000)).slice(100, 10)), 11 * 4 + 20 * view);
        assert_eq!(bytes(&lists(numbers).slice(100, 10)), 11 * 4 + 20 * 8);
        assert_eq!(bytes(&structs(lists(views(1000))).slice(100, 10)), 11 * 4 + 20 * view);
        let nullable: ArrayRef = Arc::new(StringViewArray::from_iter([Some("abc"), None]));
        assert_eq!(batch_bytes(&batch(nullable)).expect("it can be counted"), 2 * VIEW_BYTES + 1);
    }

    #[test]
    fn few_texts_let_go_of_large_buffers() {
        let whole = views(1000);
        let slices = [whole.slice(0, 10), whole.slice(500, 10)];
        let few = concat(&[slices[0].as_ref(), slices[1].as_ref()]).expect("one type");
        let own = with_own_texts(batch(Arc::clone(&few))).expect("the same rows");
        assert_eq!(own, batch(few));
        let buffers = own.column(0).as_string_view().data_buffers();
        assert_eq!(buffers.iter().map(Buffer::len).sum::<usize>(), 20 * LONG);
        // Rows that need most of their buffers keep them.
        let kept = with_own_texts(batch(own.column(0).slice(0, 15))).expect("the same rows");
        assert_eq!(kept.column(0).as_string_view().data_buffers()[0].data_ptr(), buffers[0].data_ptr());
    }
}
