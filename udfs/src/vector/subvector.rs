use arrow::array::ArrayRef;
use datafusion::error::Result;
use datafusion::scalar::ScalarValue;

use crate::Error;
use crate::arguments::Arguments;
use crate::function::{Function, Interface, Kind, Parameter, Returns};

use super::built::{VectorKind, VectorsBuilder};
use super::column::Vectors;

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "subvector",
        section: super::SECTION,
        description: "So many numbers of a vector, from a position on, as `substring` of a text. An error if none are left. NULL for NULL.",
        parameters: &[
            Parameter { name: "vector", kind: Kind::Vector, description: "A vector or a halfvec, of which the result is one too." },
            Parameter { name: "start", kind: Kind::Integer, description: "Position of the first number, from 1." },
            Parameter { name: "count", kind: Kind::Integer, description: "How many numbers, at least 1." },
        ],
        required: 3,
        example: ("SELECT subvector('[1,2,3,4]', 2, 2)", "[2.0, 3.0]"),
    },
    returns: Returns::Field(|fields, literals| {
        let kind = VectorKind::of_argument(&fields[0], literals.first().copied().flatten())?;
        let integer = |index: usize| -> Result<Option<i64>> {
            let Some(value) = literals.get(index).copied().flatten() else { return Ok(None) };
            Ok(match value.cast_to(&arrow::datatypes::DataType::Int64)? {
                ScalarValue::Int64(number) => number,
                _ => None,
            })
        };
        // The width is that of every row where it follows from constants.
        let width = match (kind.width, integer(1)?, integer(2)?) {
            (Some(width), Some(start), Some(count)) => Some(part(width, start, count, kind.type_name())?.len()),
            _ => None,
        };
        Ok(VectorKind { width, ..kind }.field())
    }),
    kernel,
};

fn kernel(arguments: &Arguments) -> Result<ArrayRef> {
    let (given, starts, counts) = (Vectors::new(arguments, 0)?, arguments.integer(1)?, arguments.integer(2)?);
    let mut vectors = VectorsBuilder::new(arguments.return_type(), arguments.num_rows());
    let type_name = vectors.kind().type_name();
    for row in 0..arguments.num_rows() {
        match (given.get(row), starts.get(row), counts.get(row)) {
            (Some(vector), Some(start), Some(count)) => vectors.push(Some(&vector[part(vector.len(), start, count, type_name)?]))?,
            _ => vectors.push_null(),
        }
    }
    vectors.finish()
}

/// The positions, from 0, of `count` numbers from position `start` on, counted from 1.
fn part(width: usize, start: i64, count: i64, type_name: &'static str) -> Result<std::ops::Range<usize>, Error> {
    let none = || Error::NoDimension { type_name };
    if count < 1 {
        return Err(none());
    }
    let width = width as i64;
    let end = start.saturating_add(count).clamp(1, width + 1);
    let start = start.max(1);
    // Both are at least 1 and at most the width and 1, which is a vector's.
    if start < end { Ok(start as usize - 1..end as usize - 1) } else { Err(none()) }
}
