//! An argument of kind `Vector` as one buffer of single-precision numbers, whatever it came as.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float32Array, Float64Array};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::cast::{as_fixed_size_list_array, as_float32_array, as_list_array, as_string_array};
use datafusion::common::internal_err;
use datafusion::error::Result;

use crate::Error;
use crate::arguments::Arguments;
use crate::function::{is_text, type_name};

use super::elements::VECTOR;
use super::text::parse_vector_of;
use super::vector_type::item_field;

#[derive(Debug)]
pub(super) struct Vectors {
    values: ScalarBuffer<f32>,
    bounds: Bounds,
    nulls: Option<NullBuffer>,
    constant: bool,
}

#[derive(Debug)]
enum Bounds {
    Width(usize),
    Offsets(OffsetBuffer<i32>),
}

impl Vectors {
    /// Argument `index`, without a copy if it is a `FixedSizeList<Float32>` or `List<Float32>`.
    ///
    /// # Errors
    /// [`Error::VectorText`] for text that is no vector, [`Error::NullElement`] for a NULL inside a vector.
    pub fn new(arguments: &Arguments, index: usize) -> Result<Self> {
        Self::of_type(arguments, index, VECTOR)
    }

    /// The same, for a text that stands for a value of type `type_name`.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn of_type(arguments: &Arguments, index: usize, type_name: &'static str) -> Result<Self> {
        let column = arguments.column(index)?;
        let array = column.array();
        let mut vectors = if is_text(array.data_type()) { Self::from_text(array, type_name)? } else { Self::from_array(array)? };
        vectors.constant = column.is_constant();
        Ok(vectors)
    }

    /// # Errors
    /// As [`Self::new`].
    pub fn from_array(array: &ArrayRef) -> Result<Self> {
        match array.data_type() {
            DataType::Null => Ok(Self::all_null(array.len())),
            text if is_text(text) => Self::from_text(array, VECTOR),
            DataType::FixedSizeList(_, width) => {
                let list = as_fixed_size_list_array(array)?;
                let width = usize::try_from(*width).expect("Arrow has no negative widths");
                Self::from_parts(list.values(), Bounds::Width(width), list.nulls(), list.len())
            }
            // Arrow would read the innermost numbers, or none.
            DataType::List(item) | DataType::LargeList(item) if item.data_type().is_nested() => Err(Error::NestedVector.into()),
            DataType::List(_) | DataType::LargeList(_) => {
                let array = cast(array, &DataType::List(item_field()))?;
                let list = as_list_array(&array)?;
                Self::from_parts(list.values(), Bounds::Offsets(list.offsets().clone()), list.nulls(), list.len())
            }
            other => internal_err!("{} is not a vector, which planning checks", type_name(other)),
        }
    }

    fn all_null(len: usize) -> Self {
        let bounds = Bounds::Offsets(OffsetBuffer::new_zeroed(len));
        Self { values: ScalarBuffer::from(vec![]), bounds, nulls: Some(NullBuffer::new_null(len)), constant: false }
    }

    fn from_text(array: &ArrayRef, type_name: &'static str) -> Result<Self> {
        let texts = cast(array, &DataType::Utf8)?;
        let texts = as_string_array(&texts)?;
        let (mut values, mut lengths) = (Vec::new(), Vec::with_capacity(texts.len()));
        for text in texts {
            let vector = text.map(|text| parse_vector_of(text, type_name)).transpose()?.unwrap_or_default();
            lengths.push(vector.len());
            values.extend(vector);
        }
        let bounds = Bounds::Offsets(OffsetBuffer::from_lengths(lengths));
        Ok(Self { values: values.into(), bounds, nulls: texts.nulls().cloned(), constant: false })
    }

    fn from_parts(values: &ArrayRef, bounds: Bounds, nulls: Option<&NullBuffer>, len: usize) -> Result<Self> {
        let values = cast(values, &DataType::Float32)?;
        let values = as_float32_array(&values)?;
        let vectors = Self { values: values.values().clone(), bounds, nulls: nulls.cloned(), constant: false };
        vectors.refuse_null_elements(values, len)?;
        Ok(vectors)
    }

    /// A NULL row may have NULLs for elements, a vector may not.
    fn refuse_null_elements(&self, values: &Float32Array, len: usize) -> Result<(), Error> {
        if values.null_count() == 0 {
            return Ok(());
        }
        for range in (0..len).filter_map(|index| self.range(index)) {
            if let Some(position) = range.clone().position(|at| values.is_null(at)) {
                return Err(Error::NullElement { position: position + 1, width: range.len() });
            }
        }
        Ok(())
    }

    fn range(&self, index: usize) -> Option<Range<usize>> {
        if self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(index)) {
            return None;
        }
        Some(match &self.bounds {
            Bounds::Width(width) => index * width..(index + 1) * width,
            Bounds::Offsets(offsets) => offsets[index] as usize..offsets[index + 1] as usize,
        })
    }

    /// The vector of a row; a constant's is the same for every row.
    pub fn get(&self, row: usize) -> Option<&[f32]> {
        self.range(if self.constant { 0 } else { row }).map(|range| &self.values[range])
    }

    pub fn is_constant(&self) -> bool {
        self.constant
    }
}

/// One number per row from the vector of argument 0; NULL for NULL.
pub(super) fn map_vectors(arguments: &Arguments, kernel: impl Fn(&[f32]) -> f64) -> Result<ArrayRef> {
    let vectors = Vectors::new(arguments, 0)?;
    let rows = (0..arguments.num_rows()).map(|row| vectors.get(row).map(&kernel));
    Ok(Arc::new(rows.collect::<Float64Array>()))
}

/// One number per row from the vectors of arguments 0 and 1; NULL if one of them is.
///
/// # Errors
/// [`Error::Dimensions`] if two vectors of a row differ in width.
pub(super) fn map_pairs(arguments: &Arguments, kernel: fn(&[f32], &[f32]) -> f64) -> Result<ArrayRef> {
    let (left, right) = (Vectors::new(arguments, 0)?, Vectors::new(arguments, 1)?);
    let mut results = Float64Array::builder(arguments.num_rows());
    for row in 0..arguments.num_rows() {
        results.append_option(pair(&left, &right, row)?.map(|(left, right)| kernel(left, right)));
    }
    Ok(Arc::new(results.finish()))
}

pub(super) type Pair<'a> = (&'a [f32], &'a [f32]);

/// The two vectors of a row, of one width; `None` if one of them is NULL.
pub(super) fn pair<'a>(left: &'a Vectors, right: &'a Vectors, row: usize) -> Result<Option<Pair<'a>>, Error> {
    let Some((left, right)) = left.get(row).zip(right.get(row)) else { return Ok(None) };
    if left.len() != right.len() {
        return Err(Error::Dimensions { left: left.len(), right: right.len() });
    }
    Ok(Some((left, right)))
}

/// Return type of the distances: double precision, and an error already in planning for columns of different widths.
pub(super) fn distance_type(types: &[DataType]) -> Result<DataType> {
    if let [DataType::FixedSizeList(_, left), DataType::FixedSizeList(_, right)] = types
        && left != right
    {
        let width = |n: &i32| usize::try_from(*n).expect("Arrow has no negative widths");
        return Err(Error::Dimensions { left: width(left), right: width(right) }.into());
    }
    Ok(DataType::Float64)
}
