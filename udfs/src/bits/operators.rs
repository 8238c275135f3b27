//! `&`, `|`, `#` and `~` over strings of bits, and pgvector's `<~>` and `<%>`.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, StringArray};
use arrow::datatypes::{DataType, Field};
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use crate::Error;
use crate::arguments::Arguments;
use crate::function::{Function, Interface, Kind, Parameter, Returns, is_text, type_name};
use crate::text_type::TextType;

use super::{distances, parse};

const PARAMETERS: &[Parameter] = &[
    Parameter { name: "left", kind: Kind::Text, description: "A string of bits." },
    Parameter { name: "right", kind: Kind::Text, description: "One of the same length." },
];

/// The type of the first argument that has one.
const RETURNS: Returns = Returns::Field(|fields, _| Ok(bits_of(fields.iter().map(|field| field.as_ref())).field("", true)));

fn bits_of<'a>(mut fields: impl Iterator<Item = &'a Field>) -> TextType {
    fields.find_map(|field| TextType::of(field).filter(|found| found.is_bits())).unwrap_or(TextType::Varbit(None))
}

pub(crate) static AND: Function = Function {
    interface: Interface {
        name: "bit_string_and",
        section: super::SECTION,
        description: "The bits that both have; also `left & right`. NULL if one of them is NULL.",
        parameters: PARAMETERS,
        required: 2,
        example: ("SELECT bit_string_and('1100', '1010')", "1000"),
    },
    returns: RETURNS,
    kernel: |arguments| combined(arguments, |a, b| a & b),
};

pub(crate) static OR: Function = Function {
    interface: Interface {
        name: "bit_string_or",
        section: super::SECTION,
        description: "The bits that one of them has; also `left | right`. NULL if one of them is NULL.",
        parameters: PARAMETERS,
        required: 2,
        example: ("SELECT bit_string_or('1100', '1010')", "1110"),
    },
    returns: RETURNS,
    kernel: |arguments| combined(arguments, |a, b| a | b),
};

pub(crate) static XOR: Function = Function {
    interface: Interface {
        name: "bit_string_xor",
        section: super::SECTION,
        description: "The bits that differ; also `left # right`. NULL if one of them is NULL.",
        parameters: PARAMETERS,
        required: 2,
        example: ("SELECT bit_string_xor('1100', '1010')", "0110"),
    },
    returns: RETURNS,
    kernel: |arguments| combined(arguments, |a, b| a ^ b),
};

pub(crate) static COUNT: Function = Function {
    interface: Interface {
        name: "bit_count",
        section: super::SECTION,
        description: "How many bits are 1. NULL for NULL.",
        parameters: &[Parameter { name: "bits", kind: Kind::Text, description: "A string of bits." }],
        required: 1,
        example: ("SELECT bit_count('1101')", "3"),
    },
    returns: Returns::Always(DataType::Int64),
    kernel: |arguments| {
        let texts = arguments.text(0)?;
        let count = |text: &str| -> Result<i64, Error> { Ok(parse(text)?.bytes().filter(|bit| *bit == b'1').count() as i64) };
        let rows = (0..arguments.num_rows()).map(|row| texts.get(row).map(count).transpose());
        Ok(Arc::new(rows.collect::<Result<Int64Array, Error>>()?) as ArrayRef)
    },
};

fn combined(arguments: &Arguments, of_digits: fn(u8, u8) -> u8) -> Result<ArrayRef> {
    let (lefts, rights) = (arguments.text(0)?, arguments.text(1)?);
    let pair = |(left, right): (&str, &str)| -> Result<String, Error> {
        let (left, right) = (parse(left)?, parse(right)?);
        if left.len() != right.len() {
            return Err(Error::BitSizes);
        }
        let digit = |(a, b): (u8, u8)| if of_digits(a & 1, b & 1) == 1 { '1' } else { '0' };
        Ok(left.bytes().zip(right.bytes()).map(digit).collect())
    };
    let rows = (0..arguments.num_rows()).map(|row| lefts.get(row).zip(rights.get(row)).map(pair).transpose());
    Ok(Arc::new(rows.collect::<Result<StringArray, Error>>()?))
}

/// Turns the operators into calls where one side is a string of bits and the other one is too, or a text, a parameter or NULL.
#[derive(Debug, Default)]
pub struct BitOperatorPlanner;

impl ExprPlanner for BitOperatorPlanner {
    /// # Errors
    /// [`Error::NoOperator`] for `<~>` and `<%>` between other types.
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let Some((function, distance)) = called(&expr.op) else { return Ok(PlannerResult::Original(expr)) };
        let is_bits = |side: &Expr| side.to_field(schema).is_ok_and(|(_, field)| TextType::of(&field).is_some_and(TextType::is_bits));
        let (left, right) = (expr.left.get_type(schema)?, expr.right.get_type(schema)?);
        let may_be = |data_type: &DataType| is_text(data_type) || data_type.is_null();
        if !((is_bits(&expr.left) || is_bits(&expr.right)) && may_be(&left) && may_be(&right)) {
            return match distance {
                Some(operator) => {
                    let hint = "at least one side must be a string of bits, for example B'101'";
                    Err(Error::NoOperator { operator, left: type_name(&left), right: type_name(&right), hint }.into())
                }
                None => Ok(PlannerResult::Original(expr)),
            };
        }
        let arguments = vec![operand(expr.left), operand(expr.right)];
        Ok(PlannerResult::Planned(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(function.udf()), arguments))))
    }
}

fn called(operator: &BinaryOperator) -> Option<(&'static Function, Option<&'static str>)> {
    match operator {
        BinaryOperator::Custom(name) if name == "<~>" => Some((&distances::HAMMING, Some("<~>"))),
        BinaryOperator::Custom(name) if name == "<%>" => Some((&distances::JACCARD, Some("<%>"))),
        BinaryOperator::BitwiseAnd => Some((&AND, None)),
        BinaryOperator::BitwiseOr => Some((&OR, None)),
        BinaryOperator::PGBitwiseXor | BinaryOperator::BitwiseXor => Some((&XOR, None)),
        _ => None,
    }
}

/// A parameter of no type is a text of bits.
fn operand(operand: Expr) -> Expr {
    match operand {
        Expr::Placeholder(placeholder) if placeholder.field.is_none() => {
            let field = TextType::Varbit(None).field(&placeholder.id, true);
            Expr::Placeholder(datafusion::logical_expr::expr::Placeholder::new_with_field(placeholder.id, Some(Arc::new(field))))
        }
        other => other,
    }
}
