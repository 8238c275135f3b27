//! The options of COPY: which format, and how it is laid out. As in PostgreSQL 15, with its codes; files have formats and defaults of their own.

use std::sync::Arc;

use arrow::datatypes::Schema;
use rolloutdb_sql::{OptionValue, Options};

use crate::engine::files::{self, Chosen, CsvOptions, Format, Header, Layout, OnError, RecordFormat, TextFormat};
use crate::engine::options;
use crate::error::{Error, Result};

const TO_OPTIONS: &[&str] = &["format", "header", "delimiter", "null", "quote", "escape", "force_quote", "encoding"];
const FROM_OPTIONS: &[&str] =
    &["format", "header", "delimiter", "null", "quote", "escape", "force_null", "force_not_null", "encoding", "on_error"];
/// Of PostgreSQL's csv; the csv files of this database need none of them.
const POSTGRES_CSV: &[&str] = &["null", "quote", "escape", "force_quote", "force_null", "force_not_null"];
/// What values are made of: as delimiters of `text` they could not be told apart.
const NO_TEXT_DELIMITERS: &str = "\\.abcdefghijklmnopqrstuvwxyz0123456789";

/// Which way the rows go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    From,
    To,
}

impl Way {
    fn check_known(self, given: &Options) -> Result<()> {
        let known = if self == Self::From { FROM_OPTIONS } else { TO_OPTIONS };
        options::check_known("COPY", given, known)?;
        match has_header(given, false) {
            Ok(Header::Match) if self == Self::To => Err(Error::InvalidParameter {
                name: "HEADER".to_owned(),
                found: "match".to_owned(),
                expected: "true or false: there is nothing to compare with".to_owned(),
            }),
            checked => checked.map(drop),
        }
    }
}

/// The format of a file: named, or that of the name's ending.
pub fn of_file(given: &Options, path: &str, way: Way) -> Result<Format> {
    way.check_known(given)?;
    check_encoding(given)?;
    match options::text(given, "format")?.map(str::to_lowercase).as_deref() {
        Some("text") => return text(given),
        Some("binary") => return binary(given),
        _ => {}
    }
    let has_own_layout = POSTGRES_CSV.iter().any(|name| given.get(name).is_some());
    let csv = CsvOptions { has_header: has_header(given, true)? != Header::None, ..CsvOptions::default() };
    let format = Format::resolve(options::text(given, "format")?, path, csv)?;
    match format {
        Format::Records(RecordFormat::Text(TextFormat::Csv(csv))) if has_own_layout || has_header(given, true)? == Header::Match => {
            // As ever with files, fields go by the names in the header.
            let header = match has_header(given, csv.has_header)? {
                Header::Skip => Header::Names,
                other => other,
            };
            delimited(given, Layout { header, ..Layout::csv() })
        }
        Format::Records(RecordFormat::Text(TextFormat::Csv(mut csv))) => {
            if let Some(delimiter) = options::text(given, "delimiter")? {
                csv.delimiter = files::delimiter(delimiter)?;
            }
            Ok(Format::Records(RecordFormat::Text(TextFormat::Csv(csv))))
        }
        // Never read by them, and always taken: a file's name may decide the format.
        other if !has_own_layout => Ok(other),
        _ => Err(only_for("csv", POSTGRES_CSV.iter().find(|name| given.get(name).is_some()).copied().unwrap_or_default())),
    }
}

/// The format of what a client sends or gets: `text` unless named.
pub fn of_client(given: &Options, way: Way) -> Result<RecordFormat> {
    way.check_known(given)?;
    check_encoding(given)?;
    let format = match options::text(given, "format")?.map(str::to_lowercase).as_deref() {
        None | Some("text") => text(given),
        Some("csv") => {
            let header = has_header(given, false)?;
            delimited(given, Layout { header, ..Layout::csv() })
        }
        Some("binary") => binary(given),
        Some("jsonl" | "json" | "ndjson") => {
            refuse(given, &[&["header", "delimiter"][..], POSTGRES_CSV].concat(), "csv")?;
            Ok(Format::Records(RecordFormat::Text(TextFormat::Jsonl)))
        }
        Some(format @ ("parquet" | "arrow" | "feather")) => Err(Error::NotSupported(format!(
            "COPY through the client in format {format} is not supported: such a file is written from both ends; name a file of the server"
        ))),
        Some(other) => Err(Error::InvalidParameter {
            name: "FORMAT".to_owned(),
            found: format!("'{other}'"),
            expected: "text, csv, binary or jsonl".to_owned(),
        }),
    }?;
    match format {
        Format::Records(records) => Ok(records),
        Format::Columnar(_) => Err(Error::Internal("a client has no columnar files".to_owned())),
    }
}

pub fn on_error(given: &Options, format: &Format) -> Result<OnError> {
    let text = options::text(given, "on_error")?;
    match format {
        Format::Columnar(_) | Format::Records(RecordFormat::Binary) if text.is_some() => {
            Err(Error::NotSupported("ON_ERROR is for lines of text; damaged data of another format cannot be read at all".to_owned()))
        }
        _ => OnError::from_option(text),
    }
}

/// Refuses FORCE_... for what is no column.
pub fn check_columns(format: &RecordFormat, columns: &Schema, of: &str) -> Result<()> {
    let RecordFormat::Delimited(layout) = format else { return Ok(()) };
    for chosen in [&layout.force_quote, &layout.force_null, &layout.force_not_null] {
        let Chosen::Named(names) = chosen else { continue };
        if let Some(name) = names.iter().find(|name| columns.index_of(name).is_err()) {
            return Err(Error::UnknownColumn {
                table: of.to_owned(),
                name: name.clone(),
                known: columns.fields().iter().map(|field| field.name().clone()).collect(),
            });
        }
    }
    Ok(())
}

fn text(given: &Options) -> Result<Format> {
    refuse(given, &["quote", "escape", "force_quote", "force_null", "force_not_null"], "csv")?;
    delimited(given, Layout { header: has_header(given, false)?, ..Layout::text() })
}

fn binary(given: &Options) -> Result<Format> {
    refuse(given, &[&["header", "delimiter"][..], POSTGRES_CSV].concat(), "text and csv")?;
    Ok(Format::Records(RecordFormat::Binary))
}

fn refuse(given: &Options, names: &[&str], format: &str) -> Result<()> {
    match names.iter().find(|name| given.get(name).is_some()) {
        Some(name) => Err(only_for(format, name)),
        None => Ok(()),
    }
}

fn only_for(format: &str, option: &str) -> Error {
    Error::NotSupported(format!("option {option} is for format {format} only"))
}

fn delimited(given: &Options, mut layout: Layout) -> Result<Format> {
    layout.delimiter = sign(given, "delimiter", layout.delimiter)?;
    layout.quote = sign(given, "quote", layout.quote)?;
    layout.escape = sign(given, "escape", layout.quote)?;
    if let Some(null) = options::text(given, "null")? {
        layout.null = null.to_owned();
    }
    layout.force_quote = columns(given, "force_quote")?;
    layout.force_null = columns(given, "force_null")?;
    layout.force_not_null = columns(given, "force_not_null")?;
    check(&layout)?;
    Ok(Format::Records(RecordFormat::Delimited(Arc::new(layout))))
}

fn check(layout: &Layout) -> Result<()> {
    let invalid = |name: &str, found: &dyn std::fmt::Debug, expected: &str| {
        Err(Error::InvalidParameter { name: name.to_owned(), found: format!("{found:?}"), expected: expected.to_owned() })
    };
    let delimiter = char::from(layout.delimiter);
    if !layout.is_csv && NO_TEXT_DELIMITERS.contains(delimiter) {
        return invalid("DELIMITER", &delimiter, "another character: values are made of these");
    }
    if layout.is_csv && layout.delimiter == layout.quote {
        return invalid("QUOTE", &delimiter, "another character than DELIMITER");
    }
    if layout.null.contains(['\n', '\r']) {
        return invalid("NULL", &layout.null, "a text without an end of a line");
    }
    if layout.null.bytes().any(|byte| byte == layout.delimiter || (layout.is_csv && byte == layout.quote)) {
        return invalid("NULL", &layout.null, "a text without DELIMITER and QUOTE");
    }
    Ok(())
}

/// One byte, and no end of a line.
fn sign(given: &Options, name: &str, otherwise: u8) -> Result<u8> {
    let Some(text) = options::text(given, name)? else { return Ok(otherwise) };
    match text.as_bytes() {
        [byte] if !matches!(byte, b'\n' | b'\r' | 0) => Ok(*byte),
        _ => Err(Error::InvalidParameter {
            name: name.to_uppercase(),
            found: format!("{text:?}"),
            expected: "one single-byte character, not the end of a line".to_owned(),
        }),
    }
}

fn has_header(given: &Options, otherwise: bool) -> Result<Header> {
    if let Some(OptionValue::Text(text)) = given.get("header")
        && text.eq_ignore_ascii_case("match")
    {
        return Ok(Header::Match);
    }
    Ok(if options::boolean(given, "header", otherwise)? { Header::Skip } else { Header::None })
}

fn columns(given: &Options, name: &str) -> Result<Chosen> {
    let invalid = |found: &OptionValue| Error::WrongType {
        what: format!("option {name}"),
        found: found.to_string(),
        expected: "names of columns in parentheses, or *".to_owned(),
    };
    match given.get(name) {
        None => Ok(Chosen::Named(Vec::new())),
        Some(OptionValue::Text(text)) if text == "*" => Ok(Chosen::All),
        Some(OptionValue::Text(text)) => Ok(Chosen::Named(vec![text.clone()])),
        Some(list @ OptionValue::List(values)) => {
            let names = values.iter().map(|value| match value {
                OptionValue::Text(text) => Ok(text.clone()),
                _ => Err(invalid(list)),
            });
            names.collect::<Result<Vec<_>>>().map(Chosen::Named)
        }
        Some(other) => Err(invalid(other)),
    }
}

/// All text is UTF-8, as the server tells its clients.
fn check_encoding(given: &Options) -> Result<()> {
    match options::text(given, "encoding")? {
        Some(name) if !["utf8", "utf-8", "unicode", "sql_ascii"].contains(&name.to_lowercase().as_str()) => {
            Err(Error::NotSupported(format!("encoding '{name}' is not supported; all text is UTF8")))
        }
        _ => Ok(()),
    }
}
