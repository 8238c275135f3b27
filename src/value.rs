//! A literal in `WITH (name = value)`: what options of agents, searches, models and trainings are set from.
//!
//! These modules know no SQL, so they take this and not the parser's type.

use std::fmt;

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Int(i64),
    Float(f64),
    Text(String),
    Bool(bool),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(value) => value.fmt(f),
            Self::Float(value) => value.fmt(f),
            Self::Text(value) => write!(f, "'{value}'"),
            Self::Bool(value) => value.fmt(f),
        }
    }
}
