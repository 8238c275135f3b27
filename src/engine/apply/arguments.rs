//! What table functions take: parameters with names, kinds and defaults, and the arguments of one call.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Expr;
use datafusion::sql::sqlparser::ast::{Expr as SqlExpr, FunctionArg, FunctionArgExpr, FunctionArgOperator, Ident};
use rolloutdb_catalogs::{AskedEffort, Table};

use crate::engine::gate::Gate;
use crate::engine::progress::Notices;
use crate::error::{Error, Result};

#[derive(Debug)]
pub struct Parameter {
    pub name: &'static str,
    pub kind: ParameterKind,
    pub is_required: bool,
    /// What a constant text names: rights are asked for, and a path goes through the gate.
    pub names: Names,
}

/// What the text of a constant argument is the name of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    Nothing,
    Model,
    Agent,
    /// A table that is read.
    Table,
    /// A file of the server.
    File,
    /// A version of the first table argument: a number or a tag. The table is opened as of it before anything is planned.
    Version,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ParameterKind {
    /// A table, as an identifier or a text.
    Table,
    /// An expression over the relations before a LATERAL, or a constant.
    Value(DataType),
    /// The same, as text or as a list of numbers, or an array of them: the call sees `Utf8`, a `List` of `Float32`, or a `List` of one of both.
    TextOrVector,
    /// A constant.
    Constant(DataType),
    /// A constant text of names and types, as in CREATE TABLE: `'id text, year integer'`.
    Columns,
    /// A text that is a condition over the columns of the first table argument, and of the relations before a LATERAL.
    Filter,
}

impl Parameter {
    pub const fn table(name: &'static str) -> Self {
        Self::of(name, ParameterKind::Table, true, Names::Nothing)
    }
    pub const fn value(name: &'static str, data_type: DataType) -> Self {
        Self::of(name, ParameterKind::Value(data_type), true, Names::Nothing)
    }
    pub const fn text_or_vector(name: &'static str) -> Self {
        Self::of(name, ParameterKind::TextOrVector, true, Names::Nothing)
    }
    pub const fn constant(name: &'static str, data_type: DataType) -> Self {
        Self::of(name, ParameterKind::Constant(data_type), false, Names::Nothing)
    }
    pub const fn columns(name: &'static str) -> Self {
        Self::of(name, ParameterKind::Columns, false, Names::Nothing)
    }
    pub const fn filter(name: &'static str) -> Self {
        Self::of(name, ParameterKind::Filter, false, Names::Nothing)
    }
    /// A constant text that names something.
    pub const fn naming(name: &'static str, names: Names) -> Self {
        Self::of(name, ParameterKind::Constant(DataType::Utf8), false, names)
    }
    /// The same, which has to be given.
    pub const fn required_naming(name: &'static str, names: Names) -> Self {
        Self::of(name, ParameterKind::Constant(DataType::Utf8), true, names)
    }
    const fn of(name: &'static str, kind: ParameterKind, is_required: bool, names: Names) -> Self {
        Self { name, kind, is_required, names }
    }
}

/// The constant and table arguments of one call.
#[derive(Debug, Default, Clone)]
pub struct Arguments {
    pub(super) function: &'static str,
    pub(super) constants: BTreeMap<&'static str, ScalarValue>,
    pub(super) columns: BTreeMap<&'static str, SchemaRef>,
    pub(super) tables: BTreeMap<&'static str, Arc<Table>>,
    pub(super) notices: Notices,
    pub(super) gate: Option<Gate>,
    pub(super) effort: AskedEffort,
    pub(super) filters: BTreeMap<&'static str, Expr>,
    pub(super) has_array: bool,
}

impl Arguments {
    /// Whether the [`ParameterKind::TextOrVector`] argument is an array.
    pub fn has_array(&self) -> bool {
        self.has_array
    }

    /// Where the function may tell the client something.
    pub fn notices(&self) -> &Notices {
        &self.notices
    }

    /// What the session's role may do, and which files it may reach.
    ///
    /// # Errors
    /// [`Error::Internal`] if the call was not planned for a session.
    pub fn gate(&self) -> Result<&Gate> {
        self.gate.as_ref().ok_or_else(|| Error::Internal(format!("{}() was planned without a session", self.function)))
    }

    /// What the session has set for approximate searches.
    pub fn effort(&self) -> AskedEffort {
        self.effort
    }

    /// A [`ParameterKind::Columns`] argument, all nullable.
    pub fn columns(&self, name: &str) -> Option<&SchemaRef> {
        self.columns.get(name)
    }

    pub fn table(&self, name: &str) -> Result<&Arc<Table>> {
        self.tables.get(name).ok_or_else(|| Error::Internal(format!("{}() has no table argument {name}", self.function)))
    }

    /// A condition over the bare columns of the table; columns of the relations before LATERAL are outer references.
    pub fn filter(&self, name: &str) -> Option<&Expr> {
        self.filters.get(name)
    }

    pub fn has(&self, name: &str) -> bool {
        self.constants.contains_key(name)
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.constants.get(name).and_then(|value| value.try_as_str().flatten())
    }

    pub fn float(&self, name: &str) -> Option<f64> {
        match self.constants.get(name)? {
            ScalarValue::Float64(value) => *value,
            _ => None,
        }
    }

    pub fn boolean(&self, name: &str) -> Option<bool> {
        match self.constants.get(name)? {
            ScalarValue::Boolean(value) => *value,
            _ => None,
        }
    }

    /// An integer constant of at least `minimum`.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] if it is smaller.
    pub fn integer(&self, name: &str, default: i64, minimum: i64) -> Result<i64> {
        self.integer_within(name, default, minimum..=i64::MAX)
    }

    /// An integer constant in a range.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] if it is outside.
    pub fn integer_within(&self, name: &str, default: i64, range: RangeInclusive<i64>) -> Result<i64> {
        let value = match self.constants.get(name) {
            Some(ScalarValue::Int64(Some(value))) => *value,
            _ => default,
        };
        if range.contains(&value) {
            return Ok(value);
        }
        let expected = match *range.end() {
            i64::MAX => format!("{} or more", range.start()),
            end => format!("{} to {end}", range.start()),
        };
        Err(Error::InvalidParameter { name: format!("{} of {}()", name, self.function), found: value.to_string(), expected })
    }

    /// Every constant given, in name order, for functions that take open-ended options.
    pub fn constants(&self) -> impl Iterator<Item = (&'static str, &ScalarValue)> {
        self.constants.iter().map(|(name, value)| (*name, value))
    }
}

/// Gives each argument its parameter: positional ones first, then `name => value`.
pub fn assign<'a>(
    function: &str,
    parameters: &'static [Parameter],
    arguments: &'a [FunctionArg],
) -> Result<Vec<(&'static Parameter, &'a SqlExpr)>> {
    let mut assigned: Vec<(&'static Parameter, &SqlExpr)> = Vec::new();
    for (position, argument) in arguments.iter().enumerate() {
        let (parameter, value) = match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => {
                let parameter = parameters.get(position).ok_or_else(|| too_many(function, parameters, arguments.len()))?;
                (parameter, value)
            }
            FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), operator: FunctionArgOperator::RightArrow } => {
                (named(function, parameters, name)?, value)
            }
            FunctionArg::ExprNamed {
                name: SqlExpr::Identifier(name),
                arg: FunctionArgExpr::Expr(value),
                operator: FunctionArgOperator::RightArrow,
            } => (named(function, parameters, name)?, value),
            other => {
                return Err(Error::InvalidParameter {
                    name: format!("argument of {}()", function),
                    found: other.to_string(),
                    expected: "a value, or name => value".to_owned(),
                });
            }
        };
        if assigned.iter().any(|(earlier, _)| earlier.name == parameter.name) {
            return Err(Error::InvalidParameter {
                name: format!("{} of {}()", parameter.name, function),
                found: "two values".to_owned(),
                expected: "one".to_owned(),
            });
        }
        assigned.push((parameter, value));
    }
    if let Some(missing) = parameters.iter().find(|p| p.is_required && !assigned.iter().any(|(given, _)| given.name == p.name)) {
        return Err(Error::InvalidParameter {
            name: format!("{} of {}()", missing.name, function),
            found: "nothing".to_owned(),
            expected: "a value".to_owned(),
        });
    }
    Ok(assigned)
}

fn named(function: &str, parameters: &'static [Parameter], name: &Ident) -> Result<&'static Parameter> {
    let name = name.value.to_lowercase();
    parameters.iter().find(|parameter| parameter.name == name).ok_or_else(|| unknown(function, parameters, &name))
}

fn too_many(function: &str, parameters: &[Parameter], count: usize) -> Error {
    Error::InvalidParameter {
        name: format!("number of arguments of {}()", function),
        found: count.to_string(),
        expected: format!("at most {}", parameters.len()),
    }
}

fn unknown(function: &str, parameters: &[Parameter], name: &str) -> Error {
    Error::UnknownOption {
        kind: "argument",
        name: name.to_owned(),
        of: format!("{}()", function),
        known: parameters.iter().map(|parameter| parameter.name.to_owned()).collect(),
    }
}
