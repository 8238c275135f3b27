//! Vectors: the types `vector(n)` and `halfvec(n)` with pgvector's text form, its distances, and its operators.
//!
//! A vector is a `FixedSizeList<Float32, n>`, a halfvec one of `Float16`; where a width is not known, as in `$1::vector`, they are lists. The functions also take lists of any numbers and text such as `[1,2,3]`,
//! and compute in single precision like pgvector; distances come back as double precision.

mod aggregates;
mod arithmetic;
mod array_to_vector;
mod binary_quantize;
mod built;
mod column;
mod compare;
mod concat;
mod cosine_distance;
mod elements;
mod halfvec_in;
mod inner_product;
mod kernel;
mod l1_distance;
mod l2_distance;
mod l2_normalize;
mod negative_inner_product;
mod operator;
mod subvector;
mod text;
mod vector_array_in;
mod vector_dims;
mod vector_in;
mod vector_norm;
mod vector_out;
mod vector_type;

pub use aggregates::with_vectors;
pub use elements::check_elements;
pub use halfvec_in::to_half;
pub use operator::VectorOperatorPlanner;
pub use text::parse_vector;
pub use vector_type::{
    ColumnTypePlanner, DIMENSIONS_MAX, any_halfvec_field, any_vector_field, halfvec_type, is_any_vector, vector_literal, vector_type,
};

pub(crate) const FUNCTIONS: &[&crate::function::Function] = &[
    &vector_in::FUNCTION,
    &vector_out::FUNCTION,
    &array_to_vector::FUNCTION,
    &halfvec_in::FUNCTION,
    &vector_array_in::FUNCTION,
    &l2_distance::FUNCTION,
    &cosine_distance::FUNCTION,
    &inner_product::FUNCTION,
    &negative_inner_product::FUNCTION,
    &l1_distance::FUNCTION,
    &vector_dims::FUNCTION,
    &vector_norm::FUNCTION,
    &vector_norm::L2_NORM,
    &l2_normalize::FUNCTION,
    &arithmetic::ADD,
    &arithmetic::SUB,
    &arithmetic::MUL,
    &concat::FUNCTION,
    &subvector::FUNCTION,
    &binary_quantize::FUNCTION,
    &compare::VECTOR_CMP,
    &compare::HALFVEC_CMP,
];

const SECTION: &str = "Vectors";
