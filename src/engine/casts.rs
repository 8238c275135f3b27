//! Casts that Arrow has not, or does otherwise than PostgreSQL, as calls of functions.

use arrow::datatypes::{DataType, Decimal128Type, DecimalType, Field, IntervalUnit, TimeUnit};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::{BinaryExpr, Cast, ScalarFunction, TryCast};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Operator, cast, lit};
use rolloutdb_udfs::postgres::{ValueType, date_of, has_own_text_form, time_of, timestamp_of};
use rolloutdb_udfs::vector::{halfvec_type, is_any_vector, vector_type};
use rolloutdb_udfs::{TextType, is_plain_numeric};

use super::typing::{call, is_text, read_array, sql_type_of};
use crate::error::Result;

/// Reads a number as `numeric` without declared digits.
pub const NUMERIC_IN: &str = "numeric_in";

/// Writes a value as PostgreSQL's cast to text does.
const TEXT_OUT: &str = "text_out";

/// The plan with such casts as calls; names of columns stay.
pub fn typed(plan: LogicalPlan, state: &SessionState) -> Result<LogicalPlan> {
    let mut has_named_types = false;
    let typed = plan.transform_up_with_subqueries(|node| {
        let expressions = node.expressions();
        if !expressions.iter().any(|expression| holds(expression, may_become_call)) {
            return Ok(Transformed::no(node));
        }
        let (schema, names) = (merge_schema(&node.inputs()), NamePreserver::new(&node));
        let changes_type = |inner: &Expr| is_cast_to_named_type(inner) || loses_named_type(inner, &schema);
        has_named_types |= expressions.iter().any(|expression| holds(expression, changes_type));
        node.map_expressions(|expression| {
            let name = names.save(&expression);
            let typed = expression.transform_up(|inner| called(inner, &schema, state))?;
            Ok(if typed.transformed { Transformed::yes(name.restore(typed.data)) } else { typed })
        })
    })?;
    if !has_named_types {
        return Ok(typed.data);
    }
    // The calls say of what type their results are; the columns of the nodes were found out before there were any.
    Ok(typed.data.transform_up_with_subqueries(|node| Ok(Transformed::yes(node.recompute_schema()?)))?.data)
}

/// The same of one expression over rows of a schema.
pub fn typed_expression(expression: Expr, schema: &DFSchema, state: &SessionState) -> Result<Expr> {
    Ok(expression.transform_up(|inner| called(inner, schema, state))?.data)
}

/// The plan after its parameters have their values: one that becomes a `numeric` is read by its digits, as a constant is, and one of another type
/// than its cast was planned for is cast as a constant of that type.
pub fn exact_parameters(plan: LogicalPlan, state: &SessionState) -> Result<LogicalPlan> {
    let exact = plan.transform_up_with_subqueries(|node| {
        if !node.expressions().iter().any(|expression| holds(expression, |inner| is_numeric_in(inner) || is_cast_constant(inner))) {
            return Ok(Transformed::no(node));
        }
        let names = NamePreserver::new(&node);
        node.map_expressions(|expression| {
            let name = names.save(&expression);
            let exact = expression.transform_up(|inner| match inner {
                Expr::ScalarFunction(ScalarFunction { func, args }) if func.name() == NUMERIC_IN => {
                    let args = args.into_iter().map(by_digits).collect();
                    Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args })))
                }
                other if is_cast_constant(&other) => called(other, &DFSchema::empty(), state),
                other => Ok(Transformed::no(other)),
            })?;
            Ok(if exact.transformed { Transformed::yes(name.restore(exact.data)) } else { exact })
        })
    })?;
    Ok(exact.data)
}

fn is_cast_constant(expression: &Expr) -> bool {
    matches!(expression, Expr::Cast(cast) if matches!(*cast.expr, Expr::Literal(..)))
}

/// Whether an expression is, or has within it, one of those.
fn holds(expression: &Expr, is_one: impl Fn(&Expr) -> bool) -> bool {
    expression.exists(|inner| Ok(is_one(inner))).unwrap_or(true)
}

fn may_become_call(expression: &Expr) -> bool {
    matches!(expression, Expr::Cast(_) | Expr::TryCast(_) | Expr::BinaryExpr(BinaryExpr { op: Operator::StringConcat, .. }))
}

fn is_cast_to_named_type(expression: &Expr) -> bool {
    matches!(expression, Expr::Cast(cast) if !cast.field.metadata().is_empty())
}

/// Whether it is a cast of json, jsonb or uuid, whose field has their name until the cast is a call.
fn loses_named_type(expression: &Expr, schema: &DFSchema) -> bool {
    matches!(expression, Expr::Cast(cast) if is_checked_text(&cast.expr, schema))
}

fn is_numeric_in(expression: &Expr) -> bool {
    matches!(expression, Expr::ScalarFunction(function) if function.func.name() == NUMERIC_IN)
}

/// A constant with digits behind its point as their text, which is refused where they are too many; all else as it is.
pub fn by_digits(value: Expr) -> Expr {
    let has_fraction = |number: f64| number.is_finite() && number.fract() != 0.0;
    match &value {
        Expr::Literal(ScalarValue::Float64(Some(number)), _) if has_fraction(*number) => lit(number.to_string()),
        Expr::Literal(ScalarValue::Float32(Some(number)), _) if has_fraction(f64::from(*number)) => lit(number.to_string()),
        Expr::Literal(ScalarValue::Decimal128(Some(number), precision, scale), _) => {
            lit(Decimal128Type::format_decimal(*number, *precision, *scale))
        }
        _ => value,
    }
}

pub fn is_vector(data_type: &DataType) -> bool {
    matches!(data_type, DataType::FixedSizeList(item, _) if item.data_type().is_floating())
}

/// The name of a type of texts with a rule, or of arrays of them: `varchar(3)`, `uuid[]`.
pub fn named_text(field: &Field) -> Option<String> {
    let of_items = || TextType::of_items(field).map(|item| format!("{item}[]"));
    TextType::of(field).map(|text_type| text_type.to_string()).or_else(of_items)
}

fn called(expression: Expr, schema: &DFSchema, state: &SessionState) -> DataFusionResult<Transformed<Expr>> {
    let call = match &expression {
        Expr::Cast(cast) => as_call(cast, schema, state)?,
        // A value that is none becomes NULL, as for every other type of numbers.
        Expr::TryCast(TryCast { expr, field }) if is_plain_numeric(field) => {
            Some(Expr::TryCast(TryCast::new(expr.clone(), field.data_type().clone())))
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right }) => joined_texts(left, right, schema, state)?,
        _ => None,
    };
    Ok(call.map_or_else(|| Transformed::no(expression), Transformed::yes))
}

/// `text || 1.5` with the number as PostgreSQL writes it. `None`: Arrow writes both sides so, or it joins arrays.
fn joined_texts(left: &Expr, right: &Expr, schema: &DFSchema, state: &SessionState) -> Result<Option<Expr>> {
    let is_one = |side: &Expr| side.get_type(schema).is_ok_and(|found| is_text(&found));
    let text = match (is_one(left), is_one(right)) {
        (true, false) => scalar_text(right, schema, state)?.map(|right| (left.clone(), right)),
        (false, true) => scalar_text(left, schema, state)?.map(|left| (left, right.clone())),
        _ => None,
    };
    Ok(text.map(|(left, right)| Expr::BinaryExpr(BinaryExpr::new(Box::new(left), Operator::StringConcat, Box::new(right)))))
}

/// The text of a value that is neither a list nor a struct; `None` where Arrow's cast writes it.
fn scalar_text(value: &Expr, schema: &DFSchema, state: &SessionState) -> Result<Option<Expr>> {
    match value.get_type(schema) {
        Ok(found) if (has_own_text_form(&found) && !found.is_nested()) || is_plain(value, schema) => {
            call(state, TEXT_OUT, vec![value.clone()]).map(Some)
        }
        _ => Ok(None),
    }
}

/// A value of that type as text, where Arrow's cast would write it otherwise than PostgreSQL; every other value as it is.
pub fn as_text(state: &SessionState, value: Expr, found: &DataType) -> Result<Expr> {
    match found {
        found if is_vector(found) => call(state, "vector_out", vec![value]),
        found if has_own_text_form(found) => call(state, TEXT_OUT, vec![value]),
        _ => Ok(value),
    }
}

/// Whether it is a column of json, jsonb, uuid or bits, whose cast to text Arrow leaves out.
fn is_checked_text(value: &Expr, schema: &DFSchema) -> bool {
    let text_type = value.to_field(schema).ok().and_then(|(_, field)| TextType::of(&field));
    text_type.is_some_and(TextType::is_kept)
}

/// Whether it is a numeric without declared digits, which Arrow writes with all the zeros of its type.
fn is_plain(value: &Expr, schema: &DFSchema) -> bool {
    value.to_field(schema).is_ok_and(|(_, field)| is_plain_numeric(&field))
}

/// The call that does the cast. `None`: Arrow does it.
fn as_call(asked: &Cast, schema: &DFSchema, state: &SessionState) -> Result<Option<Expr>> {
    let (value, wanted) = (asked.expr.as_ref().clone(), asked.field.as_ref());
    let found = value.get_type(schema);
    if let Some(bits) = TextType::of(wanted).filter(|wanted| wanted.is_bits())
        && let Some(call) = of_integer(&value, &found, bits, state)?
    {
        return Ok(Some(call));
    }
    if let Some(name) = named_text(wanted) {
        let text = match (&found, TextType::of(wanted)) {
            (Ok(_), Some(_)) if is_plain(&value, schema) => call(state, TEXT_OUT, vec![value])?,
            // Arrow writes lists as JSON arrays.
            (Ok(found), Some(text_type)) if is_vector(found) || !matches!(text_type, TextType::Json | TextType::Jsonb) => {
                as_text(state, value, found)?
            }
            (Ok(found), None) if is_text(found) => read_array(state, value, wanted.data_type())?,
            _ => value,
        };
        return call(state, "text_cast", vec![text, lit(name)]).map(Some);
    }
    if is_plain_numeric(wanted) {
        return call(state, NUMERIC_IN, vec![by_digits(value)]).map(Some);
    }
    let Ok(found) = found else { return Ok(None) };
    if is_any_vector(wanted) {
        return as_any_vector(wanted, value, &found, state).map(Some);
    }
    if *wanted.data_type() == DataType::Utf8 && value.to_field(schema).is_ok_and(|(_, field)| is_any_vector(&field)) {
        return call(state, "vector_out", vec![value]).map(Some);
    }
    if let Some(named) = vectors_in(wanted) {
        return as_vectors(wanted, value, &found, &named, state).map(Some);
    }
    if wanted.data_type().is_integer() && value.to_field(schema).is_ok_and(|(_, field)| TextType::of(&field).is_some_and(TextType::is_bits))
    {
        return Ok(Some(cast(call(state, "bit_to_integer", vec![value])?, wanted.data_type().clone())));
    }
    let (function, arguments) = match (wanted.data_type(), found) {
        // A text of one of these types has it no longer, which clients see.
        (DataType::Utf8, found) if is_text(&found) && wanted.metadata().is_empty() && is_checked_text(&value, schema) => {
            return call(state, TEXT_OUT, vec![value]).map(Some);
        }
        (DataType::Utf8, _) if is_plain(&value, schema) => return call(state, TEXT_OUT, vec![value]).map(Some),
        (DataType::Utf8, found) if is_vector(&found) || has_own_text_form(&found) => return as_text(state, value, &found).map(Some),
        (DataType::List(_), found) if is_text(&found) => return read_array(state, value, wanted.data_type()).map(Some),
        (wanted, found) if is_text(&found) && is_time(wanted) => return read_time(state, value, wanted).map(Some),
        // Arrow knows no infinity.
        (DataType::Date32, DataType::Timestamp(..)) => ("date_of_timestamp", vec![value]),
        (DataType::Timestamp(_, Some(_)), DataType::Timestamp(_, None)) => {
            return Ok(Some(cast(call(state, "timestamptz_of_timestamp", vec![value])?, wanted.data_type().clone())));
        }
        (DataType::Timestamp(_, None), DataType::Timestamp(_, Some(_))) => {
            return Ok(Some(cast(call(state, "timestamp_of_timestamptz", vec![value])?, wanted.data_type().clone())));
        }
        (DataType::Time64(_), DataType::Timestamp(..)) => ("time_of_timestamp", vec![value]),
        (DataType::Timestamp(_, zone), DataType::Date32) => {
            let function = if zone.is_some() { "timestamptz_of_date" } else { "timestamp_of_date" };
            return Ok(Some(cast(call(state, function, vec![value])?, wanted.data_type().clone())));
        }
        // Arrow cuts the digits behind the point off.
        (DataType::Int16 | DataType::Int32 | DataType::Int64, found)
            if found.is_floating() || matches!(found, DataType::Decimal128(_, 1..)) =>
        {
            return Ok(Some(cast(rounded(state, value, &found)?, wanted.data_type().clone())));
        }
        (DataType::Float64, found) if is_text(&found) => ("float8_in", vec![value]),
        (DataType::Float32, found) if is_text(&found) => ("float4_in", vec![value]),
        (wanted, found) if is_text(&found) && wanted.is_numeric() => {
            return Ok(without_blanks(state, value)?.map(|text| cast(text, wanted.clone())));
        }
        // Arrow would take the characters for the bytes.
        (DataType::Binary | DataType::LargeBinary | DataType::BinaryView, found) if is_text(&found) => {
            return Ok(Some(cast(call(state, "bytea_in", vec![value])?, wanted.data_type().clone())));
        }
        // Arrow reads fewer forms.
        (DataType::Interval(IntervalUnit::MonthDayNano), found) if is_text(&found) => {
            return call(state, "interval_in", vec![value]).map(Some);
        }
        // Arrow would make infinities of what is beyond half precision.
        (DataType::FixedSizeList(item, width), found)
            if *item.data_type() == DataType::Float16 && found != *wanted.data_type() && !found.is_null() =>
        {
            ("halfvec_in", vec![value, lit(i64::from(*width))])
        }
        (DataType::FixedSizeList(_, width), found) if is_vector(wanted.data_type()) => match found {
            found if is_text(&found) => ("vector_in", vec![value, lit(i64::from(*width))]),
            DataType::List(_) | DataType::LargeList(_) => ("array_to_vector", vec![value, lit(i64::from(*width))]),
            DataType::FixedSizeList(..) if found != *wanted.data_type() => ("vector_in", vec![value, lit(i64::from(*width))]),
            _ => return Ok(None),
        },
        _ => return Ok(None),
    };
    call(state, function, arguments).map(Some)
}

/// An integer as bits, of which a cast takes the last ones; `None` for every other value.
fn of_integer(value: &Expr, found: &DataFusionResult<DataType>, bits: TextType, state: &SessionState) -> Result<Option<Expr>> {
    match (found, bits) {
        (Ok(found), TextType::Bit(length)) if found.is_integer() => {
            call(state, "integer_to_bit", vec![value.clone(), lit(i64::from(length))]).map(Some)
        }
        _ => Ok(None),
    }
}

/// The name of the type of the vectors in an array; `None` for arrays of all else.
fn vectors_in(wanted: &Field) -> Option<String> {
    match (ValueType::of(wanted), wanted.data_type()) {
        (ValueType::Array(item), DataType::List(field)) if matches!(*item, ValueType::Vector(_) | ValueType::Halfvec(_)) => {
            Some(sql_type_of(field))
        }
        _ => None,
    }
}

/// The cast to an array of vectors. Vectors of one array have one width here: without one in the type's name the values say it.
fn as_vectors(wanted: &Field, value: Expr, found: &DataType, named: &str, state: &SessionState) -> Result<Expr> {
    match found {
        found if is_text(found) => call(state, "vector_array_in", vec![value, lit(named)]),
        DataType::List(item) if is_vector(item.data_type()) && !named.contains('(') => Ok(value),
        DataType::List(item) if is_vector(item.data_type()) => call(state, "vector_array_in", vec![value, lit(named)]),
        // An empty array has no vectors to say it, nor any to contradict.
        _ => {
            let item = if named.starts_with("halfvec") { halfvec_type(1) } else { vector_type(1) };
            let data_type = match wanted.data_type() {
                DataType::List(field) if is_vector(field.data_type()) => wanted.data_type().clone(),
                _ => DataType::new_list(item, true),
            };
            Ok(cast(value, data_type))
        }
    }
}

/// The text of a number without the blanks round it, which Arrow refuses; `None`: a constant has none.
fn without_blanks(state: &SessionState, text: Expr) -> Result<Option<Expr>> {
    const BLANKS: &str = " \t\n\u{b}\u{c}\r";
    let constant = match &text {
        Expr::Literal(constant, _) => {
            constant.try_as_str().flatten().map(|text| (text.len(), text.trim_matches(|found: char| BLANKS.contains(found)).to_owned()))
        }
        _ => return call(state, "btrim", vec![text, lit(BLANKS)]).map(Some),
    };
    Ok(constant.filter(|(length, trimmed)| trimmed.len() < *length).map(|(_, trimmed)| lit(trimmed)))
}

/// The cast to `vector` or `halfvec` without a width: a vector of that kind keeps its own.
fn as_any_vector(wanted: &Field, value: Expr, found: &DataType, state: &SessionState) -> Result<Expr> {
    let kind = |data_type: &DataType| match data_type {
        DataType::List(item) | DataType::FixedSizeList(item, _) => Some(item.data_type().clone()),
        _ => None,
    };
    let is_half = kind(wanted.data_type()) == Some(DataType::Float16);
    match found {
        DataType::FixedSizeList(..) if kind(found) == kind(wanted.data_type()) => Ok(value),
        _ => call(state, if is_half { "halfvec_in" } else { "vector_in" }, vec![value]),
    }
}

/// A number as the whole one to which a cast rounds it: half of a double goes to the even one, that of a numeric, as constants are in PostgreSQL, away from
/// zero.
pub fn rounded(state: &SessionState, value: Expr, found: &DataType) -> Result<Expr> {
    let is_double = found.is_floating() && !is_constant(&value);
    call(state, if is_double { "rint" } else { "round" }, vec![value])
}

fn is_constant(value: &Expr) -> bool {
    match value {
        Expr::Literal(..) => true,
        Expr::Negative(inner) => is_constant(inner),
        _ => false,
    }
}

/// Whether a type is one of dates and times of day.
pub fn is_time(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Date32 | DataType::Time64(_) | DataType::Timestamp(..))
}

/// A text as a date, a time of day or an instant, a constant at once.
///
/// # Errors
/// [`rolloutdb_udfs::Error::TimeText`] and [`rolloutdb_udfs::Error::TimeRange`] for a constant that is none.
pub fn read_time(state: &SessionState, value: Expr, wanted: &DataType) -> Result<Expr> {
    if let Expr::Literal(text, _) = &value
        && let Some(text) = text.try_as_str().flatten()
    {
        return match of_clock(state, text)? {
            Some(instant) => Ok(cast(instant, wanted.clone())),
            None => Ok(lit(time_constant(text, wanted)?.cast_to(wanted)?)),
        };
    }
    let function = match wanted {
        DataType::Date32 => "date_in",
        DataType::Time64(_) => "time_in",
        DataType::Timestamp(_, None) => "timestamp_in",
        _ => "timestamptz_in",
    };
    Ok(cast(call(state, function, vec![value])?, wanted.clone()))
}

/// What `now` and the days about it stand for in a constant.
fn of_clock(state: &SessionState, text: &str) -> Result<Option<Expr>> {
    let days = match text.trim().to_ascii_lowercase().as_str() {
        "now" => return call(state, "now", vec![]).map(Some),
        "yesterday" => -1,
        "today" => 0,
        "tomorrow" => 1,
        _ => return Ok(None),
    };
    let midnight = cast(call(state, "current_date", vec![])?, DataType::Timestamp(TimeUnit::Microsecond, None));
    Ok(Some(midnight + lit(ScalarValue::new_interval_mdn(0, days, 0))))
}

fn time_constant(text: &str, wanted: &DataType) -> Result<ScalarValue, rolloutdb_udfs::Error> {
    Ok(match wanted {
        DataType::Date32 => ScalarValue::Date32(Some(date_of(text)?)),
        DataType::Time64(_) => ScalarValue::Time64Microsecond(Some(time_of(text)?)),
        DataType::Timestamp(_, zone) => ScalarValue::TimestampMicrosecond(Some(timestamp_of(text, zone.is_some())?), zone.clone()),
        other => unreachable!("{other} is no type of times"),
    })
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;

    use crate::{Database, Result, Session};

    async fn run(session: &Session, sql: &str) -> Result<()> {
        session.sql(sql).await?.try_collect::<Vec<_>>().await?;
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_a_column_takes_is_known_when_the_database_is_opened_anew() -> Result<()> {
        let data = tempfile::tempdir().expect("a temporary directory");
        let session = Database::open(data.path()).await?.session();
        run(&session, "CREATE TABLE t (a varchar(2), b uuid[], c numeric)").await?;
        drop(session);
        let session = Database::open(data.path()).await?.session();
        for row in ["'abc', NULL, NULL", "NULL, ARRAY['no uuid'], NULL", "NULL, NULL, 0.00000000001"] {
            assert!(run(&session, &format!("INSERT INTO t VALUES ({row})")).await.is_err(), "{row}");
        }
        run(&session, "INSERT INTO t VALUES ('ab', ARRAY['0b7d8f2e-1111-4222-8333-444455556666'], 0.0000000001)").await
    }
}
