//! Arithmetic by PostgreSQL's names and rules, where DataFusion has other ones.

mod atan2;
mod bits;
mod checked_sum;
mod operator;
mod quotient;
mod rint;
mod sign;
mod width_bucket;

pub use checked_sum::checked_sum;
pub use operator::MathOperatorPlanner;

use crate::function::{Function, Kind, Parameter};

pub(crate) const FUNCTIONS: &[&Function] =
    &[&quotient::MOD, &quotient::DIV, &sign::FUNCTION, &rint::FUNCTION, &atan2::FUNCTION, &width_bucket::FUNCTION, &bits::FUNCTION];

const SECTION: &str = "Numbers";

const NUMBER: Parameter = Parameter { name: "value", kind: Kind::Number, description: "A number." };
