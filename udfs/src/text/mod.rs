//! Texts and bytes by PostgreSQL's rules, where DataFusion has other ones or none.

mod concat;
mod count_nulls;
mod encoding;
mod get_byte;
mod parse_ident;
mod pattern;
mod regexp;
mod replace;
mod unistr;

pub use unistr::unescaped;

use crate::function::{Function, Kind, Parameter};

pub(crate) const FUNCTIONS: &[&Function] = &[
    &concat::CONCAT,
    &concat::CONCAT_WS,
    &encoding::ENCODE,
    &encoding::DECODE,
    &get_byte::FUNCTION,
    &replace::FUNCTION,
    &regexp::SUBSTRING,
    &regexp::SUBSTR,
    &regexp::SPLIT_TO_ARRAY,
    &unistr::FUNCTION,
    &parse_ident::FUNCTION,
    &count_nulls::NULLS,
    &count_nulls::NONNULLS,
];

const SECTION: &str = "Texts and bytes";

const TEXT: Parameter = Parameter { name: "text", kind: Kind::Text, description: "A text." };
