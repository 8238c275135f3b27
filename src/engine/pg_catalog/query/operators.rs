//! Operators of two operands.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::HashMap;

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use regex::{Regex, RegexBuilder};

use super::Binary;
use crate::engine::pg_catalog::value::Value;
use crate::error::{Error, Result};

/// NULL if an operand is, or if they are of kinds that the operator does not take.
pub(super) fn binary(operator: Binary, left: &Value, right: &Value) -> Result<Value> {
    if left.is_null() || right.is_null() {
        // Two arrays of which one is NULL are the other one.
        let other = if left.is_null() { right } else { left };
        return Ok(if operator == Binary::ConcatenateLists { other.clone() } else { Value::Null });
    }
    if let (Value::Record(lefts), Value::Record(rights), Binary::Equal | Binary::NotEqual) = (left, right, operator) {
        let equal = rows_equal(lefts, rights)?;
        return Ok(if let (Value::Bool(equal), Binary::NotEqual) = (&equal, operator) { Value::Bool(!equal) } else { equal });
    }
    let compared = |holds: fn(Ordering) -> bool| left.compare(right).map_or(Value::Null, |order| Value::Bool(holds(order)));
    match operator {
        Binary::Equal => Ok(compared(Ordering::is_eq)),
        Binary::NotEqual => Ok(compared(Ordering::is_ne)),
        Binary::Less => Ok(compared(Ordering::is_lt)),
        Binary::LessOrEqual => Ok(compared(Ordering::is_le)),
        Binary::Greater => Ok(compared(Ordering::is_gt)),
        Binary::GreaterOrEqual => Ok(compared(Ordering::is_ge)),
        Binary::Add | Binary::Subtract | Binary::Multiply | Binary::Divide | Binary::Modulo => arithmetic(operator, left, right),
        Binary::BitAnd | Binary::BitOr | Binary::ShiftLeft | Binary::ShiftRight => Ok(bits(operator, left, right)),
        Binary::Concatenate => Ok(concatenated(left, right)),
        Binary::Append | Binary::Prepend | Binary::ConcatenateLists => Ok(joined(operator, left, right)),
        Binary::Overlaps | Binary::Contains | Binary::ContainedIn => Ok(sets(operator, left, right)),
        Binary::Regex { ignore_case, negated } => {
            let (Some(text), Some(pattern)) = (left.as_str(), right.as_str()) else { return Ok(Value::Null) };
            Ok(Value::Bool(matches(text, pattern, ignore_case)? != negated))
        }
        Binary::Like { ignore_case, negated } => {
            let (Some(text), Some(pattern)) = (left.as_str(), right.as_str()) else { return Ok(Value::Null) };
            Ok(Value::Bool(matches(text, &like_pattern(pattern), ignore_case)? != negated))
        }
    }
}

/// Rows are equal when all of their values are; NULL when no value differs and one is NULL.
fn rows_equal(lefts: &[Value], rights: &[Value]) -> Result<Value> {
    let mut equal = Value::Bool(lefts.len() == rights.len());
    for (left, right) in lefts.iter().zip(rights) {
        match binary(Binary::Equal, left, right)? {
            Value::Bool(true) => {}
            Value::Null => equal = Value::Null,
            different => return Ok(different),
        }
    }
    Ok(equal)
}

/// Of a whole number that a bigint has no place for (22003).
pub(super) fn out_of_range() -> Error {
    Error::from(DataFusionError::from(ArrowError::ArithmeticOverflow("bigint out of range".to_owned())))
}

fn arithmetic(operator: Binary, left: &Value, right: &Value) -> Result<Value> {
    let by_zero = || Error::from(DataFusionError::from(ArrowError::DivideByZero));
    if let (Value::Int(left), Value::Int(right)) = (left, right) {
        if *right == 0 && matches!(operator, Binary::Divide | Binary::Modulo) {
            return Err(by_zero());
        }
        let result = match operator {
            Binary::Add => left.checked_add(*right),
            Binary::Subtract => left.checked_sub(*right),
            Binary::Multiply => left.checked_mul(*right),
            Binary::Divide => left.checked_div(*right),
            _ => left.checked_rem(*right),
        };
        return result.map(Value::Int).ok_or_else(out_of_range);
    }
    let (Some(left), Some(right)) = (left.as_float(), right.as_float()) else { return Ok(Value::Null) };
    if right == 0.0 && matches!(operator, Binary::Divide | Binary::Modulo) {
        return Err(by_zero());
    }
    Ok(Value::Float(match operator {
        Binary::Add => left + right,
        Binary::Subtract => left - right,
        Binary::Multiply => left * right,
        Binary::Divide => left / right,
        _ => left % right,
    }))
}

fn bits(operator: Binary, left: &Value, right: &Value) -> Value {
    let (Some(left), Some(right)) = (left.as_int(), right.as_int()) else { return Value::Null };
    let places = (right & 63) as u32;
    Value::Int(match operator {
        Binary::BitAnd => left & right,
        Binary::BitOr => left | right,
        Binary::ShiftLeft => left.wrapping_shl(places),
        _ => left.wrapping_shr(places),
    })
}

/// Operands are texts: binding casts them.
fn concatenated(left: &Value, right: &Value) -> Value {
    match (left.as_str(), right.as_str()) {
        (Some(left), Some(right)) => Value::text(format!("{left}{right}")),
        _ => Value::Null,
    }
}

fn joined(operator: Binary, left: &Value, right: &Value) -> Value {
    let items = |value: &Value, is_list: bool| match value {
        Value::List(items) if is_list => items.to_vec(),
        other => vec![other.clone()],
    };
    let mut joined = items(left, operator != Binary::Prepend);
    joined.extend(items(right, operator != Binary::Append));
    Value::List(joined.into())
}

fn sets(operator: Binary, left: &Value, right: &Value) -> Value {
    let (Some(left), Some(right)) = (left.as_list(), right.as_list()) else { return Value::Null };
    let has = |items: &[Value], wanted: &Value| items.iter().any(|item| item.compare(wanted) == Some(Ordering::Equal));
    Value::Bool(match operator {
        Binary::Overlaps => left.iter().any(|item| has(right, item)),
        Binary::Contains => right.iter().all(|item| has(left, item)),
        _ => left.iter().all(|item| has(right, item)),
    })
}

thread_local! {
    /// Patterns of the queries that this thread ran last; a client sends few.
    static PATTERNS: RefCell<HashMap<(String, bool), Regex>> = RefCell::default();
}

const PATTERNS_MAX: usize = 100;

/// Whether a POSIX pattern is found in the text.
fn matches(text: &str, pattern: &str, ignore_case: bool) -> Result<bool> {
    PATTERNS.with_borrow_mut(|patterns| {
        let key = (pattern.to_owned(), ignore_case);
        if let Some(regex) = patterns.get(&key) {
            return Ok(regex.is_match(text));
        }
        let regex = compiled(pattern, ignore_case)?;
        let is_match = regex.is_match(text);
        if patterns.len() >= PATTERNS_MAX {
            patterns.clear();
        }
        patterns.insert(key, regex);
        Ok(is_match)
    })
}

/// The automaton's size is bounded, and its time is linear in the text.
pub fn compiled(pattern: &str, ignore_case: bool) -> Result<Regex> {
    let regex = RegexBuilder::new(pattern).case_insensitive(ignore_case).size_limit(1 << 20).build();
    regex.map_err(|error| Error::InvalidParameter {
        name: "regular expression".to_owned(),
        found: pattern.to_owned(),
        expected: format!("a valid one: {error}"),
    })
}

/// `a\_b%` as a regular expression.
fn like_pattern(pattern: &str) -> String {
    let mut regex = String::from("(?s)^");
    let mut chars = pattern.chars();
    while let Some(next) = chars.next() {
        match next {
            '%' => regex.push_str(".*"),
            '_' => regex.push('.'),
            '\\' => regex.extend(chars.next().map(|escaped| regex::escape(&escaped.to_string()))),
            other => regex.push_str(&regex::escape(&other.to_string())),
        }
    }
    regex.push('$');
    regex
}

#[cfg(test)]
mod tests {
    use super::*;

    fn like(text: &str, pattern: &str) -> bool {
        binary(Binary::Like { ignore_case: false, negated: false }, &Value::text(text), &Value::text(pattern)).expect("a pattern").is_true()
    }

    #[test]
    fn like_takes_wildcards_and_escapes() {
        assert!(like("pg_class", "pg\\_%") && !like("pgxclass", "pg\\_%"));
        assert!(like("a.c", "a._") && !like("abc", "a.c") && like("a\nb", "a%b"));
    }

    #[test]
    fn a_pattern_that_is_none_is_refused() {
        assert!(matches("a", "(", false).is_err());
        assert!(matches("Wiki", "^(wiki)$", true).expect("a pattern"));
    }

    #[test]
    fn numbers_compute_in_postgres_range() {
        assert!(binary(Binary::Divide, &Value::Int(1), &Value::Int(0)).is_err());
        assert!(binary(Binary::Add, &Value::Int(i64::MAX), &Value::Int(1)).is_err());
        assert_eq!(binary(Binary::BitAnd, &Value::Int(6), &Value::Int(3)).expect("bits"), Value::Int(2));
    }
}
