use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field};
use datafusion::error::Result;
use datafusion::scalar::ScalarValue;

use crate::Error;
use crate::arguments::Arguments;
use crate::function::{Function, Interface, Kind, Parameter, Returns, is_text};
use crate::postgres::parse_array;

use super::built::{VectorKind, VectorsBuilder};
use super::column::Vectors;
use super::text::parse_vector_of;

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "vector_array_in",
        section: super::SECTION,
        description: "Reads an array of vectors of one width from PostgreSQL's form, `{\"[1,2]\",\"[3,4]\"}`; `text::vector[]` does the same, and \
            `text::vector(2)[]`. NULL for NULL.",
        parameters: &[
            Parameter { name: "value", kind: Kind::Any, description: "Vectors between braces, or an array of vectors, which is checked." },
            Parameter {
                name: "type",
                kind: Kind::Text,
                description: "A constant: the type of the vectors, such as `vector(384)` or `halfvec`.",
            },
        ],
        required: 2,
        example: ("SELECT vector_array_in('{\"[1,2]\",\"[3,4]\"}', 'vector')", "[[1.0, 2.0], [3.0, 4.0]]"),
    },
    returns: Returns::Computed(return_type),
    kernel,
};

/// Without a width in the type's name, a constant has that of its first vector; of other texts it is not known before they are read.
fn return_type(_: &[DataType], literals: &[Option<&ScalarValue>]) -> Result<DataType> {
    let text = |index: usize| literals.get(index).copied().flatten().and_then(|value| value.try_as_str().flatten());
    let not_constant = |argument, reason| Error::NotConstant { function: FUNCTION.interface.name, argument, reason };
    let name =
        text(1).ok_or_else(|| not_constant("type", "because it decides the type of the result: vector_array_in(text, 'vector(384)')"))?;
    let (type_name, width) = match name.split_once('(') {
        Some((type_name, width)) => (type_name, width.trim_end_matches(')').parse::<usize>().ok()),
        None => (name, None),
    };
    let is_half = type_name == "halfvec";
    let reason = "or the type has a width, which all vectors of the array have: value::vector(384)[]";
    let width = match width {
        Some(width) => width,
        None => {
            let items = items_of(text(0).ok_or_else(|| not_constant("value", reason))?)?;
            let first = items.iter().flatten().next().map(|item| parse_vector_of(item, kind_name(is_half))).transpose()?;
            first.map_or(1, |first| first.len())
        }
    };
    let item = VectorKind { is_half, width: Some(width) }.field().data_type().clone();
    Ok(DataType::List(Arc::new(Field::new_list_field(item, true))))
}

fn kind_name(is_half: bool) -> &'static str {
    if is_half { super::elements::HALFVEC } else { super::elements::VECTOR }
}

fn items_of(text: &str) -> Result<Vec<Option<String>>, Error> {
    let array = parse_array(text).ok_or_else(|| Error::ArrayText { text: text.chars().take(60).collect() })?;
    match array.lengths.len() {
        0 | 1 => Ok(array.texts),
        found => Err(Error::ArrayDimensions { found, text: text.chars().take(60).collect() }),
    }
}

fn kernel(arguments: &Arguments) -> Result<ArrayRef> {
    let DataType::List(item) = arguments.return_type() else { unreachable!("its type is a list") };
    let mut vectors = VectorsBuilder::new(item.data_type(), arguments.num_rows());
    let type_name = vectors.kind().type_name();
    let (mut lengths, mut presence) = (Vec::new(), Vec::new());
    let column = arguments.column(0)?;
    let array = column.array();
    if !is_text(array.data_type()) {
        let lists = array.as_list::<i32>();
        let given = Vectors::from_array(lists.values())?;
        for row in 0..arguments.num_rows() {
            let row = if column.is_constant() { 0 } else { row };
            let range = lists.value_offsets()[row] as usize..lists.value_offsets()[row + 1] as usize;
            lengths.push(range.len());
            presence.push(lists.is_valid(row));
            for place in range {
                vectors.push(given.get(place))?;
            }
        }
    } else {
        let texts = arguments.text(0)?;
        for row in 0..arguments.num_rows() {
            let items = texts.get(row).map(items_of).transpose()?;
            presence.push(items.is_some());
            let items = items.unwrap_or_default();
            lengths.push(items.len());
            for item in items {
                vectors.push(item.map(|item| parse_vector_of(&item, type_name)).transpose()?.as_deref())?;
            }
        }
    }
    let (values, nulls) = (vectors.finish()?, NullBuffer::from(presence));
    Ok(Arc::new(ListArray::try_new(Arc::clone(item), OffsetBuffer::from_lengths(lengths), values, Some(nulls))?))
}
