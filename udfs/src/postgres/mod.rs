//! PostgreSQL's forms of values: which of its types a column has, and its values as its output functions write them.
//!
//! The wire, casts to text and files write the same text because all of them write it here. Of the binary forms, the one of numbers with many digits is
//! here, the others are where they are written: on the wire, and in files.

mod array_text;
mod boolean;
mod column;
mod datetime;
mod datetime_in;
mod decimal;
mod float;
mod interval;
mod json_text;
mod nested;
pub mod numeric_binary;
mod text;
pub(crate) mod text_out;
mod text_size;
mod value_type;

pub use array_text::{ArrayItems, parse_array};
pub use boolean::parse_bool;
pub use column::{Column, Items, Values, Vectors};
pub(crate) use datetime::{MICROS_PER_DAY, MICROS_PER_SECOND, civil_of_days, days_of_civil};
pub use datetime::{date_of, parse_date, parse_time, parse_timestamp, time_of, timestamp_of};
pub use datetime_in::{Fault, instant_of_local, local_of_instant};
pub use interval::parse_interval;
pub use json_text::{JsonColumn, JsonReader, json_lines};
pub(crate) use text::write_vector;
pub use text_out::has_own_text_form;
pub use value_type::{ANY_WIDTH, CatalogType, PG_TYPE, ValueType};
