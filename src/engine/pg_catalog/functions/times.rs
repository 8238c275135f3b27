//! Instants as texts of a form that is asked for. DataFusion has functions of these names too, with other forms.

use super::{Call, Function, Returns};
use crate::engine::pg_catalog::types::{Kind, PgType};
use crate::engine::pg_catalog::value::{Value, instant_text};
use crate::error::{Error, Result};

pub(super) const FUNCTIONS: &[Function] = &[Function::new("to_char", &[Kind::Any, Kind::Text], Returns::One(Kind::Text), formatted)];

/// What a pattern is made of; longer ones first, since others begin as they do.
const PARTS: &[&str] = &["YYYY", "HH24", "HH12", "MM", "DD", "HH", "MI", "SS", "MS", "US", "TZ", "OF"];

/// `to_char(instant, 'YYYY-MM-DD HH24:MI:SS TZ')`
fn formatted(call: &Call<'_>) -> Result<Value> {
    let of = call.types.first().and_then(PgType::kind);
    let (Some(Kind::Timestamp | Kind::Timestamptz), Some(micros)) = (of, call.int(0)) else {
        return Err(Error::NotSupported("to_char of something other than an instant in a query about the catalog".to_owned()));
    };
    let has_zone = of == Some(Kind::Timestamptz);
    // `2024-02-29 12:34:56.500000`
    let text = instant_text(micros);
    let (mut shown, mut pattern) = (String::new(), call.text(1));
    while let Some(next) = pattern.chars().next() {
        let part = PARTS.iter().find(|part| pattern.starts_with(**part) || pattern.starts_with(&part.to_lowercase()));
        let length = match (next, part) {
            (_, Some(part)) if !pattern.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("SSSS")) => {
                let value = of_instant(&text, part, has_zone);
                shown.push_str(&if next.is_lowercase() { value.to_lowercase() } else { value });
                part.len()
            }
            ('"', _) => quoted(pattern, &mut shown),
            // PostgreSQL knows many more parts, and takes other letters for themselves.
            (letter, _) if letter.is_ascii_alphabetic() || letter == '\\' => {
                return Err(Error::NotSupported(format!(
                    "to_char with {pattern:?} in its pattern, in a query about the catalog; it has {}, and texts in double quotes",
                    PARTS.join(", ")
                )));
            }
            (other, _) => {
                shown.push(other);
                other.len_utf8()
            }
        };
        pattern = &pattern[length..];
    }
    Ok(Value::text(shown))
}

/// Adds the text between double quotes at the start of the pattern, or up to its end; gives the number of bytes that it takes with its quotes.
fn quoted(pattern: &str, shown: &mut String) -> usize {
    let mut is_escaped = false;
    for (place, next) in pattern.char_indices().skip(1) {
        match next {
            '\\' if !is_escaped => {
                is_escaped = true;
                continue;
            }
            '"' if !is_escaped => return place + 1,
            other => shown.push(other),
        }
        is_escaped = false;
    }
    pattern.len()
}

fn of_instant(text: &str, part: &str, has_zone: bool) -> String {
    let from_end = |start: usize, length: usize| {
        // Years may have more than four digits, the rest has its width.
        let start = text.len().saturating_sub(start);
        text.get(start..start + length).unwrap_or_default().to_owned()
    };
    match part {
        "YYYY" => text.split_once('-').map_or_else(String::new, |(year, _)| year.to_owned()),
        "MM" => from_end(21, 2),
        "DD" => from_end(18, 2),
        "HH24" => from_end(15, 2),
        "HH12" | "HH" => {
            let hour: u32 = from_end(15, 2).parse().unwrap_or(0);
            format!("{:02}", (hour + 11) % 12 + 1)
        }
        "MI" => from_end(12, 2),
        "SS" => from_end(9, 2),
        "MS" => from_end(6, 3),
        "US" => from_end(6, 6),
        // Times are shown in UTC alone.
        "TZ" if has_zone => "UTC".to_owned(),
        "OF" if has_zone => "+00".to_owned(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_an_instant_have_their_places() {
        let text = instant_text(1_709_210_096_500_000);
        assert_eq!(text, "2024-02-29 12:34:56.500000");
        let parts = PARTS.iter().map(|part| of_instant(&text, part, true)).collect::<Vec<_>>();
        assert_eq!(parts, ["2024", "12", "12", "02", "29", "12", "34", "56", "500", "500000", "UTC", "+00"]);
    }

    #[test]
    fn a_text_in_quotes_stands_for_itself() {
        let mut shown = String::new();
        assert_eq!((quoted(r#""T"HH"#, &mut shown), shown.as_str()), (3, "T"));
        shown.clear();
        assert_eq!((quoted(r#""a\"b\\c" "#, &mut shown), shown.as_str()), (9, r#"a"b\c"#));
        shown.clear();
        assert_eq!((quoted(r#""open"#, &mut shown), shown.as_str()), (5, "open"));
    }
}
