//! Values of catalog queries: what they are, how they compare, and how they read as text.

use std::cmp::Ordering;
use std::fmt::Write;
use std::sync::Arc;

use rolloutdb_udfs::postgres::{parse_array, parse_bool};

use super::types::{Kind, PgType};
use crate::error::{Error, Result};

/// A value; its type is known beside it.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    /// Integers, numbers of objects, microseconds since 1970.
    Int(i64),
    Float(f64),
    Text(Arc<str>),
    List(Arc<[Value]>),
    Record(Arc<[Value]>),
}

pub type Row = Vec<Value>;

impl Value {
    pub fn text(text: impl AsRef<str>) -> Self {
        Self::Text(text.as_ref().into())
    }

    pub fn optional_text(text: Option<impl AsRef<str>>) -> Self {
        text.map_or(Self::Null, Self::text)
    }

    pub fn oid(oid: u32) -> Self {
        Self::Int(i64::from(oid))
    }

    pub fn list(values: impl IntoIterator<Item = Self>) -> Self {
        Self::List(values.into_iter().collect())
    }

    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// NULL is not true.
    pub fn is_true(&self) -> bool {
        matches!(self, Self::Bool(true))
    }

    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(*value),
            Self::Float(value) => Some(value.round() as i64),
            Self::Text(text) => text.trim().parse().ok(),
            _ => None,
        }
    }

    pub fn as_oid(&self) -> Option<u32> {
        self.as_int().and_then(|value| u32::try_from(value).ok())
    }

    pub fn as_float(&self) -> Option<f64> {
        match self {
            Self::Int(value) => Some(*value as f64),
            Self::Float(value) => Some(*value),
            Self::Text(text) => text.trim().parse().ok(),
            _ => None,
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn as_list(&self) -> Option<&[Self]> {
        match self {
            Self::List(values) => Some(values),
            _ => None,
        }
    }

    /// `None` where one of them is NULL, or they are of kinds that do not compare.
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Bool(left), Self::Bool(right)) => Some(left.cmp(right)),
            (Self::Int(left), Self::Int(right)) => Some(left.cmp(right)),
            (Self::Text(left), Self::Text(right)) => Some(left.cmp(right)),
            (Self::Int(_) | Self::Float(_), Self::Int(_) | Self::Float(_)) => self.as_float()?.partial_cmp(&other.as_float()?),
            (Self::List(left), Self::List(right)) | (Self::Record(left), Self::Record(right)) => {
                let different = left.iter().zip(right.iter()).map(|(left, right)| left.order(right)).find(|order| order.is_ne());
                Some(different.unwrap_or_else(|| left.len().cmp(&right.len())))
            }
            _ => None,
        }
    }

    /// As ORDER BY has them: NULL after all others.
    pub fn order(&self, other: &Self) -> Ordering {
        match (self.is_null(), other.is_null()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => self.compare(other).unwrap_or(Ordering::Equal),
        }
    }

    /// Appends what tells this value from others, for hashing.
    pub fn write_key(&self, key: &mut String) {
        // Writing to a String does not fail.
        let _ = match self {
            Self::Null => write!(key, "n;"),
            Self::Bool(value) => write!(key, "b{value};"),
            Self::Int(value) => write!(key, "i{value};"),
            Self::Float(value) if value.fract() == 0.0 && value.abs() < 1e15 => write!(key, "i{};", *value as i64),
            Self::Float(value) => write!(key, "f{value};"),
            Self::Text(text) => write!(key, "t{}:{text}", text.len()),
            Self::List(values) | Self::Record(values) => {
                let _ = write!(key, "l{}:", values.len());
                values.iter().for_each(|value| value.write_key(key));
                Ok(())
            }
        };
    }

    pub fn key_of(values: &[Self]) -> String {
        let mut key = String::new();
        values.iter().for_each(|value| value.write_key(&mut key));
        key
    }

    /// As a client reads it; `None` for NULL. Names of objects take a look at the catalog, see `cast`.
    pub fn to_text(&self, of: &PgType) -> Option<String> {
        Some(match self {
            Self::Null => return None,
            Self::Bool(value) => if *value { "t" } else { "f" }.to_owned(),
            Self::Int(value) if matches!(of, PgType::One(Kind::Timestamptz)) => timestamp_text(*value, "+00"),
            Self::Int(value) if matches!(of, PgType::One(Kind::Timestamp)) => timestamp_text(*value, ""),
            Self::Int(value) => value.to_string(),
            Self::Float(value) => value.to_string(),
            Self::Text(text) => text.to_string(),
            Self::List(values) if matches!(of, PgType::One(Kind::Int2Vector | Kind::OidVector)) => {
                let items: Vec<String> = values.iter().filter_map(|value| value.to_text(&of.item())).collect();
                items.join(" ")
            }
            Self::List(values) => {
                let items: Vec<String> = values.iter().map(|value| array_item(value.to_text(&of.item()))).collect();
                format!("{{{}}}", items.join(","))
            }
            Self::Record(values) => {
                let types: &[(String, PgType)] = if let PgType::Record(types) = of { types } else { &[] };
                let unknown = super::types::UNKNOWN;
                let items = values.iter().enumerate().map(|(position, value)| {
                    let of = types.get(position).map_or(&unknown, |(_, of)| of);
                    value.to_text(of).map(record_item).unwrap_or_default()
                });
                format!("({})", items.collect::<Vec<_>>().join(","))
            }
        })
    }
}

/// A row of a catalog table: `row![1259_u32, "pg_class", false, None::<&str>]`.
macro_rules! row {
    ($($value:expr),* $(,)?) => {
        vec![$($crate::engine::pg_catalog::value::Value::from($value)),*]
    };
}
pub(in crate::engine::pg_catalog) use row;

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<i32> for Value {
    fn from(value: i32) -> Self {
        Self::Int(i64::from(value))
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Self::Int(i64::from(value))
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::text(value)
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::text(value)
    }
}

impl From<char> for Value {
    fn from(value: char) -> Self {
        Self::text(value.to_string())
    }
}

impl<T> From<Option<T>> for Value
where
    Value: From<T>,
{
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Self::from)
    }
}

fn array_item(text: Option<String>) -> String {
    let Some(text) = text else { return "NULL".to_owned() };
    let is_plain = !text.is_empty()
        && !text.eq_ignore_ascii_case("null")
        && !text.contains(|c: char| c.is_whitespace() || matches!(c, '{' | '}' | ',' | '"' | '\\'));
    if is_plain { text } else { format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")) }
}

/// NULL is nothing between the commas, an empty text two quotes.
fn record_item(text: String) -> String {
    let is_plain = !text.is_empty() && !text.contains(|c: char| c.is_ascii_whitespace() || matches!(c, '(' | ')' | ',' | '"' | '\\'));
    if is_plain { text } else { format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\"\"")) }
}

/// `2024-02-29 12:34:56.5`
fn timestamp_text(micros: i64, zone: &str) -> String {
    let text = instant_text(micros);
    let (seconds, fraction) = text.split_once('.').unwrap_or((text.as_str(), ""));
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{seconds}{point}{fraction}{zone}")
}

/// `2024-02-29 12:34:56.500000`: the days by Howard Hinnant's `civil_from_days`.
pub fn instant_text(micros: i64) -> String {
    let (days, of_day) = (micros.div_euclid(86_400_000_000), micros.rem_euclid(86_400_000_000));
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (seconds, fraction) = (of_day / 1_000_000, of_day % 1_000_000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{fraction:06}")
}

/// The items of `{a,"b c",NULL}`, or of `1 2 3`.
pub fn parse_list(text: &str, of: &PgType) -> Result<Value> {
    let text = text.trim();
    if matches!(of, PgType::One(Kind::Int2Vector | Kind::OidVector)) {
        return Ok(Value::List(text.split_whitespace().map(|item| parse(item, &of.item())).collect::<Result<_>>()?));
    }
    let items = parse_array(text).filter(|items| items.lengths.len() <= 1).ok_or_else(|| malformed(text, of))?;
    let item = |item: &Option<String>| item.as_ref().map_or(Ok(Value::Null), |text| parse(text, &of.item()));
    Ok(Value::List(items.texts.iter().map(item).collect::<Result<_>>()?))
}

fn malformed(text: &str, of: &PgType) -> Error {
    Error::BadText { of: of.sql_name(), text: text.to_owned() }
}

/// A text as a value of a type; names of objects are not read here.
pub fn parse(text: &str, of: &PgType) -> Result<Value> {
    let kind = match of {
        PgType::Many(_) | PgType::Records(_) | PgType::One(Kind::Int2Vector | Kind::OidVector) => return parse_list(text, of),
        PgType::Record(_) => return Err(malformed(text, of)),
        PgType::One(kind) => *kind,
    };
    let trimmed = text.trim();
    match kind {
        Kind::Bool => parse_bool(text).map(Value::Bool).ok_or_else(|| malformed(text, of)),
        kind if kind.is_integer() => trimmed.parse().map(Value::Int).map_err(|_| malformed(text, of)),
        Kind::Float4 | Kind::Float8 | Kind::Numeric => trimmed.parse().map(Value::Float).map_err(|_| malformed(text, of)),
        // One byte, as PostgreSQL cuts it.
        Kind::Char => Ok(Value::text(text.chars().take(1).collect::<String>())),
        _ => Ok(Value::text(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_read_back_from_their_text() {
        let texts = PgType::Many(Kind::Text);
        let value = Value::list(["a", "b c", "", "null", "q\"\\"].map(Value::text).into_iter().chain([Value::Null]));
        let text = value.to_text(&texts).expect("it is not NULL");
        assert_eq!(text, r#"{a,"b c","","null","q\"\\",NULL}"#);
        assert_eq!(parse(&text, &texts).expect("it reads back"), value);
        let numbers = PgType::One(Kind::Int2Vector);
        assert_eq!(parse("1 -2", &numbers).expect("numbers"), Value::list([Value::Int(1), Value::Int(-2)]));
        assert_eq!(parse("{}", &texts).expect("an empty one"), Value::list([]));
        for wrong in ["", "{", "a", "{\"a}"] {
            assert!(parse(wrong, &texts).is_err(), "{wrong}");
        }
    }

    #[test]
    fn instants_read_as_in_postgres() {
        for (micros, text) in
            [(0, "1970-01-01 00:00:00+00"), (1_709_210_096_500_000, "2024-02-29 12:34:56.5+00"), (-1, "1969-12-31 23:59:59.999999+00")]
        {
            assert_eq!(Value::Int(micros).to_text(&PgType::One(Kind::Timestamptz)).as_deref(), Some(text));
        }
    }

    #[test]
    fn equal_values_have_equal_keys() {
        assert_eq!(Value::key_of(&[Value::Int(3)]), Value::key_of(&[Value::Float(3.0)]));
        assert_ne!(Value::key_of(&[Value::text("a"), Value::text("b")]), Value::key_of(&[Value::text("ab"), Value::text("")]));
    }
}
