//! One column in memory.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, FixedSizeListArray, Float32Array, UInt64Array};
use arrow::buffer::NullBuffer;
use arrow::compute::{cast, interleave, take};
use arrow::datatypes::{DataType, Field, Float32Type};

use super::Bits;
use super::codes::Codes;
use super::simd::dot;
use crate::Result;
use crate::index::{in_single_precision, is_vector};

/// Narrower vectors are read as fast as their codes, and lose more to them.
const CODED_WIDTH_MIN: usize = 32;

#[derive(Debug)]
pub(crate) enum Column {
    Vectors(Vectors),
    /// One array per segment of the table.
    Values(Vec<ArrayRef>),
}

/// Vectors as one matrix.
#[derive(Debug)]
pub(crate) struct Vectors {
    pub(crate) width: usize,
    item: Arc<Field>,
    num_segments: usize,
    /// `[rows, width]` in single precision; zeros where there is no vector. Shared with the builds of graphs, which go on while rows come.
    pub(crate) matrix: Arc<Vec<f32>>,
    /// Of the matrix; absent where a row of codes would be no smaller than the vector by much.
    pub(crate) codes: Option<Codes>,
    /// Euclidean length of each row.
    pub(crate) norms: Vec<f64>,
    /// The rows that have a vector.
    pub(crate) present: Bits,
    /// Whether a vector has length 0.
    pub(crate) has_zeros: bool,
}

impl Column {
    pub(crate) fn new(data_type: &DataType) -> Self {
        match data_type {
            DataType::FixedSizeList(item, width) if is_vector(data_type) => {
                Self::Vectors(Vectors::new(Arc::clone(item), usize::try_from(*width).unwrap_or(0)))
            }
            _ => Self::Values(Vec::new()),
        }
    }

    pub(crate) fn num_segments(&self) -> usize {
        match self {
            Self::Vectors(vectors) => vectors.num_segments,
            Self::Values(arrays) => arrays.len(),
        }
    }

    pub(crate) fn push_segment(&mut self, array: ArrayRef) -> Result<()> {
        match self {
            Self::Vectors(vectors) => vectors.push_segment(&in_single_precision(array.as_fixed_size_list())?),
            Self::Values(arrays) => arrays.push(array),
        }
        Ok(())
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            Self::Vectors(vectors) => {
                let codes = vectors.codes.as_ref().map_or(0, Codes::memory_bytes);
                size_of_val(&vectors.matrix[..]) + codes + size_of_val(&vectors.norms[..])
            }
            Self::Values(arrays) => arrays.iter().map(|array| array.get_array_memory_size()).sum(),
        }
    }

    /// The values of rows, given as (segment, row in it) and as row of the table.
    pub(crate) fn take(&self, places: &[(usize, usize)], rows: &[usize]) -> Result<ArrayRef> {
        match self {
            Self::Vectors(vectors) => vectors.take(rows),
            Self::Values(arrays) => match arrays.as_slice() {
                [only] => Ok(take(only, &UInt64Array::from_iter_values(rows.iter().map(|row| *row as u64)), None)?),
                several => {
                    let several: Vec<&dyn Array> = several.iter().map(AsRef::as_ref).collect();
                    Ok(interleave(&several, places)?)
                }
            },
        }
    }
}

impl Vectors {
    pub(crate) fn new(item: Arc<Field>, width: usize) -> Self {
        Self {
            width,
            item,
            num_segments: 0,
            matrix: Arc::default(),
            codes: (width >= CODED_WIDTH_MIN).then(|| Codes::new(width)),
            norms: Vec::new(),
            present: Bits::none(0),
            has_zeros: false,
        }
    }

    fn push_segment(&mut self, vectors: &FixedSizeListArray) {
        let values: &[f32] = vectors.values().as_primitive::<Float32Type>().values();
        let first = usize::try_from(vectors.value_offset(0)).unwrap_or(0);
        self.num_segments += 1;
        let matrix = Arc::make_mut(&mut self.matrix);
        matrix.reserve_exact(vectors.len() * self.width);
        if let Some(codes) = &mut self.codes {
            codes.reserve(vectors.len());
        }
        for row in 0..vectors.len() {
            let start = first + row * self.width;
            let vector = &values[start..start + self.width];
            let position = self.norms.len();
            self.present.extend_with(1);
            let norm = if vectors.is_null(row) {
                self.present.remove(position);
                matrix.resize(matrix.len() + self.width, 0.0);
                0.0
            } else {
                matrix.extend_from_slice(vector);
                let norm = f64::from(dot(vector, vector)).sqrt();
                self.has_zeros |= norm == 0.0;
                norm
            };
            self.norms.push(norm);
            if let Some(codes) = &mut self.codes {
                codes.push(&matrix[position * self.width..], norm);
            }
        }
    }

    pub(crate) fn vector(&self, row: usize) -> &[f32] {
        &self.matrix[row * self.width..(row + 1) * self.width]
    }

    fn take(&self, rows: &[usize]) -> Result<ArrayRef> {
        let mut values = Vec::with_capacity(rows.len() * self.width);
        rows.iter().for_each(|row| values.extend_from_slice(self.vector(*row)));
        let valid: NullBuffer = rows.iter().map(|row| self.present.contains(*row)).collect();
        let width = i32::try_from(self.width).unwrap_or(i32::MAX);
        let values = cast(&Float32Array::from(values), self.item.data_type())?;
        Ok(Arc::new(FixedSizeListArray::try_new(Arc::clone(&self.item), width, values, Some(valid))?))
    }
}
