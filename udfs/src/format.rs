//! `format`: a text with values in the places that it marks, `%s`, `%I` and `%L`.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, StringArray};
use arrow::datatypes::DataType;

use crate::Error;
use crate::function::{Function, Interface, Kind, Parameter, Returns};
use crate::postgres::text_out::texts;
use crate::quoting::{identifier, literal};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "format",
        section: "Text",
        description: "The text with values in its places: `%s` as they are, `%I` as names, `%L` as constants, quoted where needed; `%%` is a percent sign. \
            `%2$s` takes the second value, `%-10s` and `%10s` fill up with blanks. NULL for NULL.",
        parameters: &[
            Parameter { name: "format", kind: Kind::Text, description: "A text with places for values." },
            Parameter { name: "values", kind: Kind::Rest, description: "Any values, in the order of their places." },
        ],
        required: 1,
        example: ("SELECT format('%I = %L', 'Title', 'O''Reilly')", "\"Title\" = 'O''Reilly'"),
    },
    returns: Returns::Always(DataType::Utf8),
    kernel: |arguments| {
        let formats = arguments.text(0)?;
        let values = (1..arguments.count()).map(|index| texts(arguments, index, false)).collect::<Result<Vec<_>, _>>()?;
        let rows = (0..arguments.num_rows()).map(|row| {
            let values = values.iter().map(|column| column.is_valid(row).then(|| column.value(row))).collect::<Vec<_>>();
            formats.get(row).map(|format| filled(format, &values)).transpose()
        });
        Ok(Arc::new(rows.collect::<Result<StringArray, Error>>()?) as ArrayRef)
    },
};

/// A place for a value: what stands between its percent sign and its letter.
#[derive(Default)]
struct Place {
    /// Of the value, from 1.
    position: Option<usize>,
    is_left: bool,
    width: usize,
    kind: char,
}

fn filled(format: &str, values: &[Option<&str>]) -> Result<String, Error> {
    let mut out = String::with_capacity(format.len());
    let mut rest = format;
    // The value that a place without a position takes.
    let mut next = 1;
    while let Some(percent) = rest.find('%') {
        out.push_str(&rest[..percent]);
        rest = &rest[percent + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let (place, after) = Place::parse(rest)?;
        rest = after;
        let position = place.position.unwrap_or(next);
        next = position + 1;
        let value =
            *values.get(position - 1).ok_or_else(|| refused("a text with more places than there are values", "a value for each place"))?;
        place.write(value, &mut out)?;
    }
    out.push_str(rest);
    Ok(out)
}

impl Place {
    /// The place, and what stands behind it.
    fn parse(text: &str) -> Result<(Self, &str), Error> {
        let mut place = Self::default();
        let mut rest = text;
        let (number, after) = take_number(rest)?;
        if let (Some(position), Some(after)) = (number, after.strip_prefix('$')) {
            if position == 0 {
                return Err(refused("a text with a place %0$", "positions from 1"));
            }
            (place.position, rest) = (Some(position), after);
        }
        while let Some(after) = rest.strip_prefix('-') {
            (place.is_left, rest) = (true, after);
        }
        let (width, after) = take_number(rest)?;
        place.width = width.unwrap_or(0);
        let mut characters = after.chars();
        place.kind = characters.next().ok_or_else(|| refused("a text with an unfinished place at its end", "%% for a percent sign"))?;
        if !matches!(place.kind, 's' | 'I' | 'L') {
            return Err(refused(&format!("a text with a place %{}", place.kind), "%s, %I, %L or %%"));
        }
        Ok((place, characters.as_str()))
    }

    fn write(&self, value: Option<&str>, out: &mut String) -> Result<(), Error> {
        let text = match (self.kind, value) {
            ('I', None) => return Err(Error::NullIdentifier),
            ('I', Some(name)) => identifier(name),
            ('L', value) => value.map_or_else(|| "NULL".to_owned(), literal),
            (_, value) => value.unwrap_or_default().to_owned(),
        };
        let blanks = " ".repeat(self.width.saturating_sub(text.chars().count()));
        if self.is_left {
            out.push_str(&text);
            out.push_str(&blanks);
        } else {
            out.push_str(&blanks);
            out.push_str(&text);
        }
        Ok(())
    }
}

/// The widest place; a number beyond it is a mistake.
const WIDTH_MAX: usize = 1_000_000;

/// The digits at the start, and what stands behind them.
fn take_number(text: &str) -> Result<(Option<usize>, &str), Error> {
    let (digits, rest) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
    if digits.is_empty() {
        return Ok((None, rest));
    }
    match digits.parse() {
        Ok(number) if number <= WIDTH_MAX => Ok((Some(number), rest)),
        _ => Err(refused(&format!("a text with the number {}", &digits[..digits.len().min(20)]), "at most 1000000")),
    }
}

fn refused(found: &str, expected: &str) -> Error {
    FUNCTION.interface.argument_error(0, found, expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From PostgreSQL's documentation.
    #[test]
    fn places_are_filled_as_in_postgres() {
        let cases: [(&str, &[Option<&str>], &str); 8] = [
            ("Hello %s", &[Some("World")], "Hello World"),
            ("Testing %s, %s, %s, %%", &[Some("one"), Some("two"), Some("three")], "Testing one, two, three, %"),
            ("INSERT INTO %I VALUES(%L)", &[Some("Foo bar"), Some("O'Reilly")], "INSERT INTO \"Foo bar\" VALUES('O''Reilly')"),
            ("|%10s|", &[Some("foo")], "|       foo|"),
            ("|%-10s|", &[Some("foo")], "|foo       |"),
            ("Testing %3$s, %2$s, %s", &[Some("one"), Some("two"), Some("three")], "Testing three, two, three"),
            ("%s|%L", &[None, None], "|NULL"),
            ("no places", &[], "no places"),
        ];
        for (format, values, expected) in cases {
            assert_eq!(filled(format, values).as_deref(), Ok(expected));
        }
        for format in ["%s %s", "%", "%x", "%0$s", "%99999999999s"] {
            assert!(filled(format, &[Some("one")]).is_err(), "{format}");
        }
        assert_eq!(filled("%I", &[None]), Err(Error::NullIdentifier));
    }
}
