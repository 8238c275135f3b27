use std::sync::Arc;

use arrow::array::{ArrayRef, Float32Array, ListArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::error::Result;

use crate::arguments::Arguments;
use crate::function::{Function, Interface, Kind, Parameter, Returns};

use super::column::Vectors;
use super::kernel::norm;
use super::vector_type::item_field;

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "l2_normalize",
        section: super::SECTION,
        description: "The vector divided by its Euclidean length; a zero vector stays as it is. NULL for NULL.",
        parameters: &[Parameter { name: "vector", kind: Kind::Vector, description: "A vector." }],
        required: 1,
        example: ("SELECT l2_normalize('[0,4]')", "[0.0, 1.0]"),
    },
    returns: Returns::Computed(|types, _| Ok(return_type(types))),
    kernel,
};

/// A vector keeps its width; lists and text, whose rows may differ in width, give lists.
fn return_type(types: &[DataType]) -> DataType {
    match types {
        [DataType::FixedSizeList(_, width)] => DataType::FixedSizeList(item_field(), *width),
        _ => DataType::List(item_field()),
    }
}

fn kernel(arguments: &Arguments) -> Result<ArrayRef> {
    let vectors = Vectors::new(arguments, 0)?;
    let null_width = match arguments.return_type() {
        DataType::FixedSizeList(_, width) => usize::try_from(*width).expect("Arrow has no negative widths"),
        _ => 0,
    };
    let (mut values, mut lengths, mut valid) = (Vec::new(), Vec::new(), Vec::new());
    for row in 0..arguments.num_rows() {
        let vector = vectors.get(row);
        match vector {
            Some(vector) => values.extend(normalized(vector)),
            None => values.extend(std::iter::repeat_n(0.0, null_width)),
        }
        lengths.push(vector.map_or(null_width, <[f32]>::len));
        valid.push(vector.is_some());
    }
    let values = Arc::new(Float32Array::from(values));
    let offsets = OffsetBuffer::from_lengths(lengths);
    let list: ArrayRef = Arc::new(ListArray::try_new(item_field(), offsets, values, Some(NullBuffer::from(valid)))?);
    Ok(cast(&list, arguments.return_type())?)
}

fn normalized(vector: &[f32]) -> impl Iterator<Item = f32> {
    let length = norm(vector);
    let length = if length == 0.0 { 1.0 } else { length };
    vector.iter().map(move |value| (f64::from(*value) / length) as f32)
}
