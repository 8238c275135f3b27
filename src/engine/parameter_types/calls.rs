//! Parameters as arguments of functions that take one type alone, or prefer one, as PostgreSQL resolves calls with values of unknown type.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, IntervalUnit, TimeUnit};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use rolloutdb_udfs::{TextsArgument, numeric_field, texts_arguments};

use super::{is_untyped, known_field, set, share, unnamed};
use crate::error::{Error, Result, Unresolved};

/// In the field of a parameter whose type is the one that a function prefers: it takes others too.
const PREFERRED: &str = "rolloutdb:preferred";

/// Whether a client that says another type of the parameter means a call with that type.
pub fn is_preferred(field: &Field) -> bool {
    field.metadata().contains_key(PREFERRED)
}

fn prefer(argument: &mut Expr, field: &FieldRef) -> bool {
    let mut metadata = field.metadata().clone();
    metadata.insert(PREFERRED.to_owned(), String::new());
    set(argument, &Arc::new(field.as_ref().clone().with_metadata(metadata)))
}

/// Gives types to the parameters among the arguments of a function; whether there was one.
pub fn infer(function: &str, args: &mut [Expr], schema: &DFSchema) -> bool {
    match shape(function, args.len()) {
        Some(Shape::Each(types)) => set_each(args, &types),
        Some(Shape::Shared(without)) => {
            share(args.iter_mut(), schema) || args.iter_mut().fold(false, |is_set, argument| prefer(argument, &without) | is_set)
        }
        Some(Shape::DoubleOrNumeric) => double_or_numeric(args, schema),
        None => infer_texts(function, args),
    }
}

enum Shape {
    /// Of each argument in order; `None`: the argument stays as it is.
    Each(Vec<Option<FieldRef>>),
    /// All have one type: this one, if none of them has any.
    Shared(FieldRef),
    /// Double precision, unless one of them is a numeric.
    DoubleOrNumeric,
}

fn shape(function: &str, count: usize) -> Option<Shape> {
    let each = |types: &[FieldRef]| Some(Shape::Each(types.iter().take(count).cloned().map(Some).collect()));
    let first = |field: FieldRef| Some(Shape::Each(vec![Some(field)]));
    let double = || unnamed(DataType::Float64);
    let integer = || unnamed(DataType::Int64);
    let numeric = || Arc::new(numeric_field(""));
    match (function, count) {
        ("round" | "trunc", 2) => each(&[numeric(), integer()]),
        ("log", 2) => each(&[numeric(), numeric()]),
        (
            "abs" | "ceil" | "floor" | "round" | "trunc" | "signum" | "sign" | "sqrt" | "cbrt" | "exp" | "ln" | "log" | "log10" | "log2"
            | "sin" | "cos" | "tan" | "cot" | "asin" | "acos" | "atan" | "sinh" | "cosh" | "tanh" | "asinh" | "acosh" | "atanh" | "degrees"
            | "radians" | "pg_sleep",
            1,
        ) => first(double()),
        ("to_timestamp", 1) => first(double()),
        ("atan2", 2) => each(&[double(), double()]),
        ("power", 2) => Some(Shape::DoubleOrNumeric),
        ("gcd" | "lcm" | "mod", 2) => Some(Shape::Shared(integer())),
        ("generate_series", 2 | 3) => Some(Shape::Shared(integer())),
        ("factorial" | "chr" | "to_hex", 1) => first(integer()),
        ("sequence_logp", 1) => first(unnamed(DataType::new_list(DataType::Float64, true))),
        ("make_date" | "make_interval", _) => Some(Shape::Each(vec![Some(integer()); count])),
        ("make_time", 3) => each(&[integer(), integer(), double()]),
        ("date_trunc", 2) => Some(Shape::Each(vec![None, Some(instant())])),
        ("age", _) => Some(Shape::Each(vec![Some(instant()); count])),
        ("date_bin", _) => each(&[interval(), instant(), instant()]),
        ("justify_hours" | "justify_days" | "justify_interval", 1) => first(interval()),
        ("width_bucket", 4) => each(&[double(), double(), double(), integer()]),
        (
            "array_length" | "cardinality" | "array_ndims" | "array_dims" | "array_lower" | "array_upper" | "array_to_string" | "unnest",
            _,
        )
        | ("trim_array" | "array_distinct" | "array_sort" | "array_reverse" | "array_empty" | "flatten", _) => first(texts()),
        ("array_concat", _) => Some(Shape::Shared(texts())),
        _ => None,
    }
}

fn instant() -> FieldRef {
    unnamed(DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())))
}

fn interval() -> FieldRef {
    unnamed(DataType::Interval(IntervalUnit::MonthDayNano))
}

/// What a list of no type is.
fn texts() -> FieldRef {
    Arc::new(Field::new("", DataType::new_list(DataType::Utf8, true), true))
}

fn set_each(args: &mut [Expr], types: &[Option<FieldRef>]) -> bool {
    let known = args.iter_mut().zip(types).filter_map(|(argument, field)| Some((argument, field.as_ref()?)));
    known.fold(false, |is_set, (argument, field)| prefer(argument, field) | is_set)
}

fn double_or_numeric(args: &mut [Expr], schema: &DFSchema) -> bool {
    let is_numeric =
        |argument: &Expr| known_field(argument, schema).is_some_and(|field| matches!(field.data_type(), DataType::Decimal128(..)));
    let field = if args.iter().any(is_numeric) { Arc::new(numeric_field("")) } else { unnamed(DataType::Float64) };
    args.iter_mut().fold(false, |is_set, argument| prefer(argument, &field) | is_set)
}

/// That no sum or average is of values which nothing but parameters of no type tell: they would be texts.
///
/// # Errors
/// [`Error::Unresolved`] (42883).
pub fn check_sums(plan: &LogicalPlan, is_typed: &dyn Fn(&str) -> bool) -> Result<()> {
    let mut wrong = None;
    plan.apply_with_subqueries(|node| {
        let schema = merge_schema(&node.inputs());
        node.apply_expressions(|expression| {
            expression.apply(|inner| {
                if let Expr::AggregateFunction(call) = inner
                    && let ("sum" | "avg", [argument]) = (call.func.name(), call.params.args.as_slice())
                    && argument.get_type(&schema).is_ok_and(|found| found.is_null())
                    && let Some(parameter) = untyped_in(argument).filter(|parameter| !is_typed(parameter))
                {
                    wrong.get_or_insert((call.func.name().to_owned(), parameter));
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    match wrong {
        None => Ok(()),
        Some((function, parameter)) => {
            let message = format!(
                "function {function}(text) does not exist: nothing says of what type {parameter} is; write {parameter}::bigint, or another number's type"
            );
            Err(Error::Unresolved { kind: Unresolved::Function, message })
        }
    }
}

/// The first parameter of no type in an expression.
fn untyped_in(expression: &Expr) -> Option<String> {
    let mut found = None;
    // Looking never fails.
    let _ = expression.apply(|inner| {
        if let Expr::Placeholder(Placeholder { id, field: None }) = inner {
            found.get_or_insert_with(|| id.clone());
        }
        Ok(TreeNodeRecursion::Continue)
    });
    found
}

/// Of functions of ours that take lists and nothing else.
fn infer_texts(function: &str, args: &mut [Expr]) -> bool {
    let lists = texts_arguments(function).iter().map(|(_, kind)| *kind == Some(TextsArgument::List));
    let open = args.iter_mut().zip(lists).filter(|(argument, is_list)| *is_list && is_untyped(argument));
    open.fold(false, |_, (argument, _)| prefer(argument, &texts()))
}
