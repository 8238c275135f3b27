use crate::function::{Function, Interface, Kind, Parameter, Returns};

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array};
use datafusion::error::Result;

use super::column::{Vectors, distance_type, pair};
use super::kernel::dot;
use crate::arguments::Arguments;

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "cosine_distance",
        section: super::SECTION,
        description: "1 - cosine of the angle between the vectors, 0 to 2; also `left <=> right`. `NaN` if one of them is a zero vector, \
            as in pgvector. NULL if one of them is NULL.",
        parameters: &[
            Parameter { name: "left", kind: Kind::Vector, description: "A vector." },
            Parameter { name: "right", kind: Kind::Vector, description: "A vector of the same width." },
        ],
        required: 2,
        example: ("SELECT cosine_distance('[1,0]', '[0,2]')", "1.0"),
    },
    returns: Returns::Computed(|types, _| distance_type(types)),
    kernel,
};

/// The square of the norm of a constant, usually the query, is taken once.
fn kernel(arguments: &Arguments) -> Result<ArrayRef> {
    let (left, right) = (Vectors::new(arguments, 0)?, Vectors::new(arguments, 1)?);
    let (left_square, right_square) = (constant_square(&left), constant_square(&right));
    let mut distances = Float64Array::builder(arguments.num_rows());
    for row in 0..arguments.num_rows() {
        distances.append_option(pair(&left, &right, row)?.map(|(left, right)| {
            let squares = left_square.unwrap_or_else(|| square(left)) * right_square.unwrap_or_else(|| square(right));
            cosine_distance(dot(left, right), squares.sqrt())
        }));
    }
    Ok(Arc::new(distances.finish()))
}

/// In the precision of the inner product, so that one number too large makes both infinite, and the distance NaN as in pgvector.
fn square(vector: &[f32]) -> f64 {
    dot(vector, vector)
}

fn constant_square(vectors: &Vectors) -> Option<f64> {
    if vectors.is_constant() { vectors.get(0).map(square) } else { None }
}

/// Rounding may leave the cosine of parallel vectors a little above 1: clamped, so that no distance is negative. The NaN of a zero vector is the
/// positive one, which sorts after every number as in Postgres; 0 / 0 gives the negative one, which Arrow sorts before them.
fn cosine_distance(dot: f64, norms: f64) -> f64 {
    let cosine = dot / norms;
    if cosine.is_nan() { f64::NAN } else { 1.0 - cosine.clamp(-1.0, 1.0) }
}

#[cfg(test)]
mod tests {
    use super::{cosine_distance, dot, square};

    #[test]
    fn stays_in_range_and_is_undefined_for_zero() {
        let vector = [0.1f32; 384];
        let distance = cosine_distance(dot(&vector, &vector), (square(&vector) * square(&vector)).sqrt());
        assert!((0.0..1e-6).contains(&distance), "{distance}");
        assert_eq!(cosine_distance(-4.0, 4.0), 2.0);
        let zero = cosine_distance(0.0, 0.0);
        assert!(zero.is_nan() && zero.is_sign_positive());
    }
}
