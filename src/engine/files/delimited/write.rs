//! Rows as records.

use super::Layout;

/// The names of the columns, as a record.
pub fn header<'a>(layout: &Layout, names: impl Iterator<Item = &'a str>, out: &mut Vec<u8>) {
    let mut names = names.peekable();
    let mut is_first = true;
    while let Some(name) = names.next() {
        if !is_first {
            out.push(layout.delimiter);
        }
        let is_only = is_first && names.peek().is_none();
        is_first = false;
        match layout.is_csv {
            true => push_csv(name.as_bytes(), layout, false, is_only, out),
            false => push_text(name.as_bytes(), layout, out),
        }
    }
    out.push(b'\n');
}

/// One record. `in_quotes`: of each column, whether its values always are. `value` puts the value of a column into the buffer; false: it is NULL.
pub fn push_row(layout: &Layout, in_quotes: &[bool], buffer: &mut Vec<u8>, value: impl Fn(usize, &mut Vec<u8>) -> bool, out: &mut Vec<u8>) {
    for (column, is_quoted) in in_quotes.iter().enumerate() {
        if column > 0 {
            out.push(layout.delimiter);
        }
        buffer.clear();
        match (value(column, buffer), layout.is_csv) {
            (false, _) => out.extend(layout.null.as_bytes()),
            (true, true) => push_csv(buffer, layout, *is_quoted, in_quotes.len() == 1, out),
            (true, false) => push_text(buffer, layout, out),
        }
    }
    out.push(b'\n');
}

fn push_text(value: &[u8], layout: &Layout, out: &mut Vec<u8>) {
    for byte in value {
        let escaped = match byte {
            0x08 => b'b',
            0x0c => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0x0b => b'v',
            b'\\' => b'\\',
            byte if *byte == layout.delimiter => *byte,
            byte => {
                out.push(*byte);
                continue;
            }
        };
        out.extend([b'\\', escaped]);
    }
}

/// In quotes if it would be read as something else without them.
fn push_csv(value: &[u8], layout: &Layout, in_quotes: bool, is_only: bool, out: &mut Vec<u8>) {
    let is_sign = |byte: &u8| *byte == layout.delimiter || *byte == layout.quote || matches!(*byte, b'\n' | b'\r');
    let needs_quotes = in_quotes || value == layout.null.as_bytes() || value.iter().any(is_sign) || (is_only && value == b"\\.");
    if !needs_quotes {
        return out.extend(value);
    }
    out.push(layout.quote);
    for byte in value {
        if *byte == layout.quote || *byte == layout.escape {
            out.push(layout.escape);
        }
        out.push(*byte);
    }
    out.push(layout.quote);
}
