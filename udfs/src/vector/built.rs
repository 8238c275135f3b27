//! The vectors that a function gives: its type, and its rows in the layout of that type.

use std::sync::Arc;

use arrow::array::{ArrayRef, FixedSizeListArray, Float16Array, Float32Array, ListArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::error::Result;
use datafusion::scalar::ScalarValue;
use half::f16;

use crate::Error;
use crate::postgres::{ANY_WIDTH, ValueType};

use super::elements::{HALFVEC, VECTOR, check_elements, check_width};
use super::{any_halfvec_field, any_vector_field, halfvec_type, parse_vector, to_half, vector_type};

/// A type of vectors: `vector` or `halfvec`, and how many numbers each has, where that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct VectorKind {
    pub is_half: bool,
    pub width: Option<usize>,
}

impl VectorKind {
    /// Of an argument: a vector and a halfvec are what they are, all else becomes a vector. The text of a constant tells its width.
    ///
    /// # Errors
    /// Those of [`parse_vector`] for a constant.
    pub fn of_argument(field: &Field, literal: Option<&ScalarValue>) -> Result<Self, Error> {
        if let Some(text) = literal.and_then(|value| value.try_as_str().flatten()) {
            return Ok(Self { is_half: false, width: Some(parse_vector(text)?.len()) });
        }
        let width = |width: i32| if width == ANY_WIDTH { None } else { usize::try_from(width).ok() };
        Ok(match (ValueType::of(field), field.data_type()) {
            (ValueType::Vector(found), _) => Self { is_half: false, width: width(found) },
            (ValueType::Halfvec(found), _) => Self { is_half: true, width: width(found) },
            (_, DataType::FixedSizeList(_, found)) => Self { is_half: false, width: width(*found) },
            _ => Self { is_half: false, width: None },
        })
    }

    /// Of what two vectors make together: half precision if one of them has it, as pgvector casts.
    pub fn of_both(fields: &[FieldRef], literals: &[Option<&ScalarValue>]) -> Result<[Self; 2], Error> {
        let kind = |index: usize| Self::of_argument(&fields[index], literals.get(index).copied().flatten());
        let [mut left, mut right] = [kind(0)?, kind(1)?];
        let is_half = left.is_half || right.is_half;
        (left.is_half, right.is_half) = (is_half, is_half);
        Ok([left, right])
    }

    pub fn field(self) -> Field {
        match (self.is_half, self.width) {
            (false, Some(width)) => Field::new("", vector_type(width), true),
            (true, Some(width)) => Field::new("", halfvec_type(width), true),
            (false, None) => any_vector_field(""),
            (true, None) => any_halfvec_field(""),
        }
    }

    pub fn type_name(self) -> &'static str {
        if self.is_half { HALFVEC } else { VECTOR }
    }
}

/// Rows of vectors, of one width or each of its own.
#[derive(Debug)]
pub(super) struct VectorsBuilder {
    data_type: DataType,
    kind: VectorKind,
    numbers: Vec<f32>,
    lengths: Vec<usize>,
    presence: Vec<bool>,
}

impl VectorsBuilder {
    /// `data_type`: that of [`VectorKind::field`].
    pub fn new(data_type: &DataType, capacity: usize) -> Self {
        let (item, width) = match data_type {
            DataType::FixedSizeList(item, width) => (item.data_type(), usize::try_from(*width).ok()),
            DataType::List(item) => (item.data_type(), None),
            other => unreachable!("{other} is no type of vectors"),
        };
        let kind = VectorKind { is_half: *item == DataType::Float16, width };
        let numbers = Vec::with_capacity(capacity * width.unwrap_or_default());
        let (lengths, presence) = (Vec::with_capacity(capacity), Vec::with_capacity(capacity));
        Self { data_type: data_type.clone(), kind, numbers, lengths, presence }
    }

    pub fn kind(&self) -> VectorKind {
        self.kind
    }

    /// # Errors
    /// [`Error::Width`], [`Error::NoDimension`], [`Error::TooManyDimensions`], [`Error::NotFinite`].
    pub fn push(&mut self, vector: Option<&[f32]>) -> Result<(), Error> {
        match vector {
            Some(vector) => self.push_numbers(vector.iter().copied()),
            None => {
                self.push_null();
                Ok(())
            }
        }
    }

    /// As [`Self::push`].
    ///
    /// # Errors
    /// The same.
    pub fn push_numbers(&mut self, vector: impl Iterator<Item = f32>) -> Result<(), Error> {
        let start = self.numbers.len();
        self.numbers.extend(vector);
        let (found, type_name) = (self.numbers.len() - start, self.kind.type_name());
        check_width(found, type_name)?;
        if let Some(expected) = self.kind.width.filter(|expected| *expected != found) {
            return Err(Error::Width { found, expected });
        }
        check_elements(&self.numbers[start..], type_name)?;
        self.lengths.push(found);
        self.presence.push(true);
        Ok(())
    }

    pub fn push_null(&mut self) {
        let width = self.kind.width.unwrap_or_default();
        self.numbers.extend(std::iter::repeat_n(0.0, width));
        self.lengths.push(width);
        self.presence.push(false);
    }

    /// # Errors
    /// [`Error::HalfRange`] for a number beyond half precision.
    pub fn finish(self) -> Result<ArrayRef> {
        let numbers: ArrayRef = match self.kind.is_half {
            true => {
                let halves: Vec<f16> = self.numbers.into_iter().map(to_half).collect::<Result<_, _>>()?;
                Arc::new(Float16Array::from_iter_values(halves))
            }
            false => Arc::new(Float32Array::from(self.numbers)),
        };
        let nulls = self.presence.contains(&false).then(|| NullBuffer::from(self.presence));
        Ok(match &self.data_type {
            DataType::FixedSizeList(item, width) => Arc::new(FixedSizeListArray::try_new(Arc::clone(item), *width, numbers, nulls)?),
            DataType::List(item) => {
                Arc::new(ListArray::try_new(Arc::clone(item), OffsetBuffer::from_lengths(self.lengths), numbers, nulls)?)
            }
            other => unreachable!("{other} is no type of vectors"),
        })
    }
}
