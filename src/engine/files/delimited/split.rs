//! The fields of records.

use std::ops::Range;

use memchr::memchr2;

use super::{Block, Layout};
use crate::engine::files::csv::Fields;
use crate::engine::files::rows::{Columns, OnError, Rows};

/// The fields of a block's records, without what keeps them apart.
#[derive(Default)]
pub struct Split {
    text: Vec<u8>,
    /// Where each field is in `text`.
    fields: Vec<Field>,
    records: Vec<Record>,
}

struct Field {
    bytes: Range<usize>,
    is_quoted: bool,
    /// As it was written, it is what stands for NULL.
    is_null: bool,
}

struct Record {
    /// From 1.
    line: usize,
    /// Index of its first field.
    first: usize,
}

impl Split {
    /// The texts of the only record.
    pub fn names(&self) -> Result<Vec<String>, String> {
        self.fields.iter().map(|field| self.text(field).map(str::to_owned)).collect()
    }

    fn text(&self, field: &Field) -> Result<&str, String> {
        std::str::from_utf8(&self.text[field.bytes.clone()]).map_err(|_| "not UTF-8".to_owned())
    }
}

pub fn split(block: &Block) -> Split {
    let mut split = Split::default();
    for record in &block.records {
        split.records.push(Record { line: record.line, first: split.fields.len() });
        let bytes = &block.text[record.bytes.clone()];
        match block.layout.is_csv {
            true => split_csv(bytes, &block.layout, &mut split),
            false => split_text(bytes, &block.layout, &mut split),
        }
    }
    split
}

fn split_text(record: &[u8], layout: &Layout, split: &mut Split) {
    let mut rest = record;
    loop {
        let mut end = 0;
        // A delimiter after a backslash is a character of the field.
        let delimiter = loop {
            match memchr2(layout.delimiter, b'\\', &rest[end..]) {
                Some(offset) if rest[end + offset] == b'\\' => end = (end + offset + 2).min(rest.len()),
                Some(offset) => break Some(end + offset),
                None => break None,
            }
        };
        let raw = &rest[..delimiter.unwrap_or(rest.len())];
        let start = split.text.len();
        push_unescaped(raw, &mut split.text);
        split.fields.push(Field { bytes: start..split.text.len(), is_quoted: false, is_null: raw == layout.null.as_bytes() });
        match delimiter {
            Some(delimiter) => rest = &rest[delimiter + 1..],
            None => return,
        }
    }
}

/// `\n`, `\t` and the like, `\101` and `\x41`; any other character after a backslash is itself.
fn push_unescaped(raw: &[u8], out: &mut Vec<u8>) {
    let mut rest = raw;
    while let Some(backslash) = memchr::memchr(b'\\', rest) {
        out.extend(&rest[..backslash]);
        rest = &rest[backslash + 1..];
        let Some((&first, after)) = rest.split_first() else { return out.push(b'\\') };
        rest = after;
        match first {
            b'b' => out.push(0x08),
            b'f' => out.push(0x0c),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'v' => out.push(0x0b),
            b'0'..=b'7' => {
                let mut code = u32::from(first - b'0');
                rest = push_code(rest, &mut code, 8, 2);
                // As PostgreSQL: the eighth bit is the last.
                out.push(code as u8);
            }
            b'x' if rest.first().is_some_and(u8::is_ascii_hexdigit) => {
                let mut code = 0;
                rest = push_code(rest, &mut code, 16, 2);
                out.push(code as u8);
            }
            other => out.push(other),
        }
    }
    out.extend(rest);
}

/// Takes at most `num_digits` digits of that base.
fn push_code<'a>(text: &'a [u8], code: &mut u32, base: u32, num_digits: usize) -> &'a [u8] {
    let digits = text.iter().take(num_digits).map_while(|byte| char::from(*byte).to_digit(base));
    let mut num_taken = 0;
    for digit in digits {
        *code = *code * base + digit;
        num_taken += 1;
    }
    &text[num_taken..]
}

fn split_csv(record: &[u8], layout: &Layout, split: &mut Split) {
    let mut position = 0;
    loop {
        let start = split.text.len();
        let is_quoted = push_csv_field(record, &mut position, layout, &mut split.text);
        let bytes = start..split.text.len();
        let is_null = !is_quoted && split.text[bytes.clone()] == *layout.null.as_bytes();
        split.fields.push(Field { bytes, is_quoted, is_null });
        if position > record.len() {
            return;
        }
    }
}

/// Moves behind the field's delimiter; behind the end of the record for the last one. Whether there was a quote, which may stand anywhere in a field.
fn push_csv_field(record: &[u8], position: &mut usize, layout: &Layout, out: &mut Vec<u8>) -> bool {
    let mut has_quotes = false;
    loop {
        let rest = &record[*position..];
        let Some(end) = memchr2(layout.delimiter, layout.quote, rest) else {
            out.extend(rest);
            *position = record.len() + 1;
            return has_quotes;
        };
        out.extend(&rest[..end]);
        *position += end + 1;
        if rest[end] == layout.delimiter {
            return has_quotes;
        }
        has_quotes = true;
        push_quoted(record, position, layout, out);
    }
}

/// Moves behind the closing quote.
fn push_quoted(record: &[u8], position: &mut usize, layout: &Layout, out: &mut Vec<u8>) {
    loop {
        let rest = &record[*position..];
        let Some(end) = memchr2(layout.quote, layout.escape, rest) else {
            out.extend(rest);
            *position = record.len();
            return;
        };
        out.extend(&rest[..end]);
        *position += end + 1;
        match rest.get(end + 1) {
            Some(next) if rest[end] == layout.escape && (*next == layout.escape || *next == layout.quote) => {
                out.push(*next);
                *position += 1;
            }
            _ if rest[end] == layout.quote => return,
            _ => out.push(layout.escape),
        }
    }
}

/// The wanted fields of each record.
pub fn rows<'a>(split: &'a Split, layout: &Layout, fields: &Fields, columns: &Columns, on_error: OnError) -> Rows<'a> {
    let mut rows = Rows::new(fields.indices.len(), on_error, Vec::new());
    // By the fields' order in the file: whether NULL is asked for by name.
    let names = fields.names(columns);
    let rules: Vec<(bool, bool)> = names.iter().map(|name| (layout.force_null.has(name), layout.force_not_null.has(name))).collect();
    let mut values = vec![None; fields.indices.len()];
    for (number, record) in split.records.iter().enumerate() {
        let last = split.records.get(number + 1).map_or(split.fields.len(), |next| next.first);
        let found = &split.fields[record.first..last];
        let row = if found.len() == fields.num_fields {
            read(split, layout, found, fields, &rules, &mut values).map(|()| values.as_slice())
        } else {
            Err(wrong_count(found.len(), fields, columns))
        };
        if !rows.push(record.line, row) {
            break;
        }
    }
    rows
}

fn wrong_count(found: usize, fields: &Fields, columns: &Columns) -> String {
    match fields.names(columns).get(found) {
        Some(missing) if found < fields.num_fields => {
            format!("missing data for column \"{missing}\": expected {} fields, found {found}", fields.num_fields)
        }
        _ => format!("extra data after last expected column: expected {} fields, found {found}", fields.num_fields),
    }
}

fn read<'a>(
    split: &'a Split,
    layout: &Layout,
    found: &[Field],
    fields: &Fields,
    rules: &[(bool, bool)],
    values: &mut [Option<&'a str>],
) -> Result<(), String> {
    for (value, index) in values.iter_mut().zip(&fields.indices) {
        *value = None;
        let Some(index) = *index else { continue };
        let field = &found[index];
        let (forces_null, forces_not_null) = rules[index];
        if field.is_null && !forces_not_null {
            continue;
        }
        let text = split.text(field).map_err(|reason| format!("field {}: {reason}", index + 1))?;
        *value = Some(text).filter(|text| !(forces_null && field.is_quoted && *text == layout.null));
    }
    Ok(())
}
