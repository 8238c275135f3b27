//! Arrays, and functions whose value is a list of rows.

use super::{Call, Function, Returns};
use crate::engine::pg_catalog::types::Kind;
use crate::engine::pg_catalog::value::Value;
use crate::error::{Error, Result};

const TEXT: Returns = Returns::One(Kind::Text);
const INT4: Returns = Returns::One(Kind::Int4);
const INT8: Returns = Returns::One(Kind::Int8);

/// Rows that `generate_series` gives at most.
const SERIES_MAX: i64 = 1_000_000;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("array_length", &[Kind::AnyArray, Kind::Int4], INT4, |call| Ok(length(call))),
    Function::new("array_lower", &[Kind::AnyArray, Kind::Int4], INT4, |call| {
        Ok(if length(call).is_null() { Value::Null } else { Value::Int(call.first_number(0)) })
    }),
    Function::new("array_upper", &[Kind::AnyArray, Kind::Int4], INT4, |call| {
        Ok(length(call).as_int().map_or(Value::Null, |length| Value::Int(length + call.first_number(0) - 1)))
    }),
    Function::new("array_ndims", &[Kind::AnyArray], INT4, |call| Ok(if call.list(0).is_empty() { Value::Null } else { Value::Int(1) })),
    Function::new("cardinality", &[Kind::AnyArray], INT4, |call| Ok(Value::Int(call.list(0).len() as i64))),
    Function::new("array_position", &[Kind::AnyArray, Kind::AnyElement], INT4, |call| {
        let place = call.list(0).iter().position(|item| item.order(call.value(1)).is_eq());
        Ok(place.map_or(Value::Null, |place| Value::Int(place as i64 + call.first_number(0))))
    })
    .with_null(),
    Function::new("array_to_string", &[Kind::AnyArray, Kind::Text, Kind::Text], TEXT, to_string).required(2),
    Function::new("string_to_array", &[Kind::Text, Kind::Text], Returns::Many(Kind::Text), |call| {
        let items: Vec<&str> = if call.text(0).is_empty() { vec![] } else { call.text(0).split(call.text(1)).collect() };
        Ok(Value::list(items.into_iter().map(Value::text)))
    }),
    Function::new("array_append", &[Kind::AnyArray, Kind::AnyElement], Returns::Same(0), |call| {
        Ok(Value::list(call.list(0).iter().chain([call.value(1)]).cloned()))
    })
    .with_null(),
    Function::new("array_remove", &[Kind::AnyArray, Kind::AnyElement], Returns::Same(0), |call| {
        Ok(Value::list(call.list(0).iter().filter(|item| item.order(call.value(1)).is_ne()).cloned()))
    })
    .with_null(),
    Function::new("array_cat", &[Kind::AnyArray, Kind::AnyArray], Returns::Same(0), |call| {
        Ok(Value::list(call.list(0).iter().chain(call.list(1)).cloned()))
    })
    .with_null(),
    Function::new("generate_series", &[Kind::Int8, Kind::Int8, Kind::Int8], INT8, series).required(2).set(),
    Function::new("generate_subscripts", &[Kind::AnyArray, Kind::Int4, Kind::Bool], INT4, |call| {
        let first = call.first_number(0);
        let numbers = (0..call.list(0).len() as i64).map(|number| Value::Int(first + number));
        Ok(if call.value(2).is_true() { Value::list(numbers.rev()) } else { Value::list(numbers) })
    })
    .required(2)
    .set(),
    // Several lists side by side; one alone is a list already.
    Function::new("unnest", &[Kind::AnyArray, Kind::AnyArray], Returns::Items, side_by_side).with_null().variadic().set(),
    Function::new("_pg_expandarray", &[Kind::AnyArray], Returns::Record(&[("x", Kind::Int2), ("n", Kind::Int4)]), |call| {
        let numbered = call.list(0).iter().enumerate();
        Ok(Value::list(numbered.map(|(position, item)| Value::Record([item.clone(), Value::Int(position as i64 + 1)].into()))))
    })
    .set(),
    Function::new(
        "pg_options_to_table",
        &[Kind::AnyArray],
        Returns::Record(&[("option_name", Kind::Text), ("option_value", Kind::Text)]),
        |call| {
            let options = call.list(0).iter().filter_map(Value::as_str).map(|option| option.split_once('=').unwrap_or((option, "")));
            Ok(Value::list(options.map(|(name, value)| Value::Record([Value::text(name), Value::text(value)].into()))))
        },
    )
    .set(),
    Function::new("regexp_split_to_table", &[Kind::Text, Kind::Text], TEXT, |call| {
        let regex = crate::engine::pg_catalog::query::compiled(call.text(1), false)?;
        Ok(Value::list(regex.split(call.text(0)).map(Value::text)))
    })
    .set(),
];

/// NULL for an empty list, and for any dimension but the first.
fn length(call: &Call<'_>) -> Value {
    let count = call.list(0).len() as i64;
    if count == 0 || call.int(1) != Some(1) { Value::Null } else { Value::Int(count) }
}

fn to_string(call: &Call<'_>) -> Result<Value> {
    let item_type = call.types.first().map_or(crate::engine::pg_catalog::types::UNKNOWN, |pg_type| pg_type.item());
    let for_null = (call.values.len() > 2).then(|| call.text(2).to_owned());
    let mut parts = Vec::new();
    for item in call.list(0) {
        let text = match item_type.kind().filter(|kind| kind.names_object()).zip(item.as_oid()) {
            Some((kind, oid)) => Some(super::object_name(kind, oid, call.context.snapshot)),
            None => item.to_text(&item_type),
        };
        parts.extend(text.or_else(|| for_null.clone()));
    }
    Ok(Value::text(parts.join(call.text(1))))
}

fn series(call: &Call<'_>) -> Result<Value> {
    let (Some(from), Some(to)) = (call.int(0), call.int(1)) else { return Ok(Value::list([])) };
    let step = if call.values.len() > 2 { call.int(2).unwrap_or(1) } else { 1 };
    let invalid = |found: i64, expected: &str| Error::InvalidParameter {
        name: "generate_series".to_owned(),
        found: found.to_string(),
        expected: expected.to_owned(),
    };
    if step == 0 {
        return Err(invalid(step, "a step other than 0"));
    }
    // From one end of the numbers to the other there are more than a signed number counts.
    let steps = to.abs_diff(from) / step.unsigned_abs();
    let count =
        if (step > 0) == (from <= to) || from == to { i64::try_from(steps).map_or(i64::MAX, |steps| steps.saturating_add(1)) } else { 0 };
    if count > SERIES_MAX {
        return Err(invalid(count, "at most 1000000 rows in a query about the catalog"));
    }
    // Each number lies between the ends, however far the product of two goes round.
    Ok(Value::list((0..count).map(|number| Value::Int(from.wrapping_add(number.wrapping_mul(step))))))
}

fn side_by_side(call: &Call<'_>) -> Result<Value> {
    let longest = (0..call.values.len()).map(|position| call.list(position).len()).max().unwrap_or(0);
    let row = |number: usize| {
        let items = (0..call.values.len()).map(|position| call.list(position).get(number).cloned().unwrap_or(Value::Null));
        Value::Record(items.collect())
    };
    Ok(Value::list((0..longest).map(row)))
}
