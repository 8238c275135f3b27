//! Texts: quoting, and what clients compute of names.

use rolloutdb_udfs::quoting::{identifier, literal};

use super::{Function, Returns};
use crate::engine::pg_catalog::query::compiled;
use crate::engine::pg_catalog::types::{Kind, PgType};
use crate::engine::pg_catalog::value::Value;
use crate::error::{Error, Result};

const TEXT: Returns = Returns::One(Kind::Text);
const INT4: Returns = Returns::One(Kind::Int4);

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("quote_ident", &[Kind::Text], TEXT, |call| Ok(Value::text(identifier(call.text(0))))),
    Function::new("quote_literal", &[Kind::Text], TEXT, |call| Ok(Value::text(literal(call.text(0))))),
    Function::new("quote_nullable", &[Kind::Text], TEXT, |call| {
        Ok(Value::text(call.value(0).as_str().map_or_else(|| "NULL".to_owned(), literal)))
    })
    .with_null(),
    Function::new("lower", &[Kind::Text], TEXT, |call| Ok(Value::text(call.text(0).to_lowercase()))),
    Function::new("upper", &[Kind::Text], TEXT, |call| Ok(Value::text(call.text(0).to_uppercase()))),
    Function::new("chr", &[Kind::Int4], TEXT, |call| {
        let found = call.int(0).unwrap_or(0);
        let character = u32::try_from(found).ok().filter(|number| *number != 0).and_then(char::from_u32);
        let refused = || Error::InvalidParameter {
            name: "chr".to_owned(),
            found: found.to_string(),
            expected: "the number of a character, from 1 to 1114111 without the surrogates".to_owned(),
        };
        character.map(Value::from).ok_or_else(refused)
    }),
    Function::new("length", &[Kind::Text], INT4, |call| Ok(Value::Int(call.text(0).chars().count() as i64))),
    Function::new("char_length", &[Kind::Text], INT4, |call| Ok(Value::Int(call.text(0).chars().count() as i64))),
    Function::new("btrim", &[Kind::Text, Kind::Text], TEXT, |call| {
        let blanks = if call.values.len() > 1 { call.text(1) } else { " " };
        Ok(Value::text(call.text(0).trim_matches(|c: char| blanks.contains(c))))
    })
    .required(1),
    Function::new("strpos", &[Kind::Text, Kind::Text], INT4, |call| {
        let (text, wanted) = (call.text(0), call.text(1));
        let place = text.find(wanted).map_or(0, |place| text[..place].chars().count() as i64 + 1);
        Ok(Value::Int(place))
    }),
    Function::new("left", &[Kind::Text, Kind::Int4], TEXT, |call| {
        let (text, count) = (call.text(0), call.int(1).unwrap_or(0));
        let length = text.chars().count() as i64;
        let kept = if count < 0 { length + count } else { count };
        Ok(Value::text(text.chars().take(usize::try_from(kept).unwrap_or(0)).collect::<String>()))
    }),
    Function::new("right", &[Kind::Text, Kind::Int4], TEXT, |call| {
        let (text, count) = (call.text(0), call.int(1).unwrap_or(0));
        let length = text.chars().count() as i64;
        let skipped = if count < 0 { count.saturating_neg() } else { length - count };
        Ok(Value::text(text.chars().skip(usize::try_from(skipped).unwrap_or(0)).collect::<String>()))
    }),
    // substring(text from pattern) too: it gives what the pattern, or its first group, matched.
    Function::new("substring", &[Kind::Text, Kind::Any, Kind::Int4], TEXT, substring).required(2),
    Function::new("substr", &[Kind::Text, Kind::Int4, Kind::Int4], TEXT, substring).required(2),
    Function::new("replace", &[Kind::Text, Kind::Text, Kind::Text], TEXT, |call| {
        Ok(Value::text(call.text(0).replace(call.text(1), call.text(2))))
    }),
    Function::new("split_part", &[Kind::Text, Kind::Text, Kind::Int4], TEXT, |call| {
        let number = call.int(2).and_then(|number| usize::try_from(number.checked_sub(1)?).ok());
        Ok(Value::text(number.and_then(|number| call.text(0).split(call.text(1)).nth(number)).unwrap_or_default()))
    }),
    Function::new("concat", &[Kind::Text], TEXT, |call| Ok(Value::text(call.values.iter().filter_map(Value::as_str).collect::<String>())))
        .with_null()
        .variadic()
        .required(0),
    Function::new("concat_ws", &[Kind::Text], TEXT, |call| {
        let parts: Vec<&str> = call.values.iter().skip(1).filter_map(Value::as_str).collect();
        Ok(Value::text(parts.join(call.text(0))))
    })
    .with_null()
    .variadic(),
    Function::new("regexp_replace", &[Kind::Text, Kind::Text, Kind::Text, Kind::Text], TEXT, |call| {
        let flags = call.text(3);
        let regex = compiled(call.text(1), flags.contains('i'))?;
        // `\1` is PostgreSQL's way to name a group.
        let with = call.text(2).replace('$', "$$");
        let with = (1..=9).fold(with, |with, group| with.replace(&format!("\\{group}"), &format!("${{{group}}}")));
        let limit = if flags.contains('g') { 0 } else { 1 };
        Ok(Value::text(regex.replacen(call.text(0), limit, with.as_str())))
    })
    .required(3),
    Function::new("abs", &[Kind::Int8], Returns::One(Kind::Int8), |call| {
        Ok(call.int(0).map_or(Value::Null, |n| Value::Int(n.saturating_abs())))
    }),
    Function::new("starts_with", &[Kind::Text, Kind::Text], Returns::One(Kind::Bool), |call| {
        Ok(Value::Bool(call.text(0).starts_with(call.text(1))))
    }),
    Function::new("ltrim", &[Kind::Text, Kind::Text], TEXT, |call| {
        let blanks = if call.values.len() > 1 { call.text(1) } else { " " };
        Ok(Value::text(call.text(0).trim_start_matches(|c: char| blanks.contains(c))))
    })
    .required(1),
    Function::new("rtrim", &[Kind::Text, Kind::Text], TEXT, |call| {
        let blanks = if call.values.len() > 1 { call.text(1) } else { " " };
        Ok(Value::text(call.text(0).trim_end_matches(|c: char| blanks.contains(c))))
    })
    .required(1),
    Function::new("like_escape", &[Kind::Text, Kind::Text], TEXT, |call| Ok(Value::text(like_escape(call.text(0), call.text(1))))),
    Function::new("format", &[Kind::Text, Kind::Any], TEXT, format).with_null().variadic().required(1),
    Function::new("row_to_json", &[Kind::Any, Kind::Bool], Returns::One(Kind::Json), to_json).required(1),
    Function::new("to_json", &[Kind::Any], Returns::One(Kind::Json), to_json),
    Function::new("bpchar", &[Kind::Text], Returns::One(Kind::Bpchar), |call| Ok(call.value(0).clone())),
    Function::new("translate", &[Kind::Text, Kind::Text, Kind::Text], TEXT, |call| {
        let to: Vec<char> = call.text(2).chars().collect();
        let moved = |next: char| match call.text(1).chars().position(|from| from == next) {
            Some(position) => to.get(position).copied(),
            None => Some(next),
        };
        Ok(Value::text(call.text(0).chars().filter_map(moved).collect::<String>()))
    }),
    Function::new("encode", &[Kind::Any, Kind::Text], TEXT, |_| {
        Err(Error::NotSupported("encode() of something in the catalog, which keeps no bytes".to_owned()))
    }),
    // NULL only if all of them are.
    Function::new("greatest", &[Kind::Any], Returns::Same(0), |call| Ok(furthest(call, std::cmp::Ordering::Greater)))
        .with_null()
        .variadic(),
    Function::new("least", &[Kind::Any], Returns::Same(0), |call| Ok(furthest(call, std::cmp::Ordering::Less))).with_null().variadic(),
    Function::new("round", &[Kind::Any, Kind::Int4], Returns::One(Kind::Numeric), |call| {
        let digits = call.int(1).and_then(|digits| i32::try_from(digits).ok()).unwrap_or(0).clamp(-15, 15);
        let scale = 10_f64.powi(digits);
        Ok(call.value(0).as_float().map_or(Value::Null, |number| Value::Float((number * scale).round() / scale)))
    })
    .required(1),
    Function::new("json_build_object", &[Kind::Any], Returns::One(Kind::Json), json_object).with_null().variadic().required(0),
    // Every row was written by transaction 0.
    Function::new("age", &[Kind::Xid], INT4, |_| Ok(Value::Int(0))),
    Function::new("parse_ident", &[Kind::Text, Kind::Bool], Returns::Many(Kind::Text), |call| {
        Ok(Value::list(super::cast::name_parts(call.text(0)).into_iter().map(Value::text)))
    })
    .required(1),
];

/// A pattern of LIKE with another sign before what is meant as it stands, with the usual one.
fn like_escape(pattern: &str, escape: &str) -> String {
    let mut chars = pattern.chars();
    let mut usual = String::with_capacity(pattern.len());
    while let Some(next) = chars.next() {
        if escape.starts_with(next) {
            usual.push('\\');
            usual.extend(chars.next());
        } else {
            usual.extend((next == '\\').then_some('\\'));
            usual.push(next);
        }
    }
    usual
}

/// `%s`, `%I` for a name, `%L` for a literal, in the order of the arguments.
fn format(call: &super::Call<'_>) -> Result<Value> {
    if call.value(0).is_null() {
        return Ok(Value::Null);
    }
    let shown = |position: usize| -> Result<Option<String>> {
        let unknown = PgType::One(Kind::Text);
        let of = call.types.get(position).unwrap_or(&unknown);
        Ok(super::cast(call.value(position).clone(), of, &PgType::One(Kind::Text), call.context)?.as_str().map(str::to_owned))
    };
    let (mut text, mut position, mut chars) = (String::new(), 0, call.text(0).chars());
    while let Some(next) = chars.next() {
        if next != '%' {
            text.push(next);
            continue;
        }
        let kind = chars.next();
        if kind == Some('%') {
            text.push('%');
            continue;
        }
        position += 1;
        let argument = shown(position)?;
        match kind {
            Some('s') => text.push_str(&argument.unwrap_or_default()),
            Some('I') => text.push_str(&identifier(&argument.unwrap_or_default())),
            Some('L') => text.push_str(&argument.map_or_else(|| "NULL".to_owned(), |argument| literal(&argument))),
            other => {
                let found = other.map(String::from).unwrap_or_default();
                let expected = "%s, %I, %L or %%".to_owned();
                return Err(Error::InvalidParameter { name: "format".to_owned(), found, expected });
            }
        }
    }
    Ok(Value::text(text))
}

/// `{"name" : "C", "schema" : null}`
fn json_object(call: &super::Call<'_>) -> Result<Value> {
    let json = |position: usize| -> Result<String> {
        let text = || -> Result<String> {
            let unknown = PgType::One(Kind::Text);
            let of = call.types.get(position).unwrap_or(&unknown);
            let text = super::cast(call.value(position).clone(), of, &PgType::One(Kind::Text), call.context)?;
            Ok(serde_json::Value::from(text.as_str().unwrap_or_default()).to_string())
        };
        match call.value(position) {
            Value::Null => Ok("null".to_owned()),
            Value::Bool(value) => Ok(value.to_string()),
            Value::Int(_) | Value::Float(_) if !names_object(call.types.get(position)) => {
                text().map(|text| text.trim_matches('"').to_owned())
            }
            _ => text(),
        }
    };
    let pairs = (0..call.values.len() / 2).map(|pair| Ok(format!("{} : {}", json(2 * pair)?, json(2 * pair + 1)?)));
    Ok(Value::text(format!("{{{}}}", pairs.collect::<Result<Vec<_>>>()?.join(", "))))
}

/// A row, an array or a value as PostgreSQL writes it: `{"a":1,"b":[true,null]}`.
fn to_json(call: &super::Call<'_>) -> Result<Value> {
    let unknown = PgType::One(Kind::Text);
    Ok(Value::text(json_text(call.value(0), call.types.first().unwrap_or(&unknown), call)?))
}

fn json_text(value: &Value, of: &PgType, call: &super::Call<'_>) -> Result<String> {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    Ok(match (value, of) {
        (Value::Null, _) => "null".to_owned(),
        (Value::Bool(value), _) => value.to_string(),
        (Value::Record(values), PgType::Record(fields)) => {
            let pairs = values.iter().zip(fields.iter());
            let pairs = pairs.map(|(value, (name, of))| Ok(format!("{}:{}", quoted(name), json_text(value, of, call)?)));
            format!("{{{}}}", pairs.collect::<Result<Vec<_>>>()?.join(","))
        }
        (Value::List(items), of) => {
            let items = items.iter().map(|item| json_text(item, &of.item(), call));
            format!("[{}]", items.collect::<Result<Vec<_>>>()?.join(","))
        }
        (Value::Text(text), PgType::One(Kind::Json | Kind::Jsonb)) => text.to_string(),
        (value, PgType::One(Kind::Timestamp | Kind::Timestamptz)) => {
            let text = value.to_text(of).unwrap_or_default().replacen(' ', "T", 1);
            quoted(&if *of == PgType::One(Kind::Timestamptz) { format!("{text}:00") } else { text })
        }
        (Value::Int(_) | Value::Float(_), of) if !names_object(Some(of)) => value.to_text(of).unwrap_or_default(),
        (value, of) => {
            let text = super::cast(value.clone(), of, &PgType::One(Kind::Text), call.context)?;
            quoted(text.as_str().unwrap_or_default())
        }
    })
}

/// The argument that comes last in the order, or first.
fn furthest(call: &super::Call<'_>, wanted: std::cmp::Ordering) -> Value {
    let mut present = call.values.iter().filter(|value| !value.is_null());
    let further = |known: Value, next: &Value| if next.compare(&known) == Some(wanted) { next.clone() } else { known };
    let Some(first) = present.next() else { return Value::Null };
    present.fold(first.clone(), further)
}

fn names_object(pg_type: Option<&PgType>) -> bool {
    pg_type.and_then(PgType::kind).is_some_and(Kind::names_object)
}

fn substring(call: &super::Call<'_>) -> Result<Value> {
    let text = call.text(0);
    if let Some(pattern) = call.value(1).as_str() {
        let regex = compiled(pattern, false)?;
        let found =
            regex.captures(text).and_then(|groups| groups.get(usize::from(groups.len() > 1)).map(|group| group.as_str().to_owned()));
        return Ok(Value::optional_text(found));
    }
    let from = call.int(1).unwrap_or(1);
    let end = if call.values.len() > 2 { from.saturating_add(call.int(2).unwrap_or(0)) } else { i64::MAX };
    let kept = text.chars().enumerate().filter(|(position, _)| (from..end).contains(&(*position as i64 + 1)));
    Ok(Value::text(kept.map(|(_, c)| c).collect::<String>()))
}

/// Words that PostgreSQL never takes for a name without quotes: `R` of `pg_get_keywords`.
pub(super) const RESERVED: &[&str] = &[
    "all",
    "analyse",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "asymmetric",
    "both",
    "case",
    "cast",
    "check",
    "collate",
    "column",
    "constraint",
    "create",
    "current_catalog",
    "current_date",
    "current_role",
    "current_time",
    "current_timestamp",
    "current_user",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "false",
    "fetch",
    "for",
    "foreign",
    "from",
    "grant",
    "group",
    "having",
    "in",
    "initially",
    "intersect",
    "into",
    "lateral",
    "leading",
    "limit",
    "localtime",
    "localtimestamp",
    "not",
    "null",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "placing",
    "primary",
    "references",
    "returning",
    "select",
    "session_user",
    "some",
    "symmetric",
    "system_user",
    "table",
    "then",
    "to",
    "trailing",
    "true",
    "union",
    "unique",
    "user",
    "using",
    "variadic",
    "when",
    "where",
    "window",
    "with",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_escape_becomes_the_usual_one() {
        assert_eq!((like_escape("pg/_%", "/"), like_escape("a\\%", "#")), ("pg\\_%".to_owned(), "a\\\\%".to_owned()));
    }
}
