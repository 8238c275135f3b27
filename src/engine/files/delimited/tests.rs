//! Records of PostgreSQL's text and csv, wherever the bytes are cut into pieces.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::{Blocks, Header, Layout, header, push_row, rows, split};
use crate::engine::files::csv::Fields;
use crate::engine::files::postgres::text_in;
use crate::engine::files::rows::{Columns, OnError};

/// Gives at most so many bytes at a time.
struct Pieces {
    bytes: Vec<u8>,
    size: usize,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.size.min(self.bytes.len()).min(buffer.len());
        buffer[..count].copy_from_slice(&self.bytes[..count]);
        self.bytes.drain(..count);
        Ok(count)
    }
}

fn columns(num_columns: usize) -> Columns {
    let fields = (0..num_columns).map(|number| Field::new(format!("c{number}"), DataType::Utf8, true));
    Columns { schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())), sampled_rows: None }
}

/// The rows of a text, or the first thing that is wrong with it.
fn read(bytes: &[u8], layout: &Layout, num_columns: usize) -> Result<Vec<Vec<Option<String>>>, String> {
    let columns = columns(num_columns);
    let source = Box::new(Pieces { bytes: bytes.to_vec(), size: 3 });
    let path = Path::new("COPY t");
    let mut blocks = Blocks::new(path, source, Arc::new(layout.clone()), &columns).map_err(|error| error.to_string())?;
    let projection: Vec<usize> = (0..num_columns).collect();
    let fields = Fields::new(path, blocks.header(), &columns, &projection).map_err(|error| error.to_string())?;
    let mut found = Vec::new();
    while let Some(block) = blocks.next().map_err(|error| error.to_string())? {
        let split = split(&block);
        let decoded = rows(&split, layout, &fields, &columns, OnError::Stop).decode(&columns, &columns.schema, text_in::read_field);
        let batch = decoded.map_err(|bad| format!("line {}: {}", bad.line, bad.reason))?.batch;
        for row in 0..batch.num_rows() {
            let text = |column: &arrow::array::ArrayRef| {
                use arrow::array::{Array, AsArray};
                column.is_valid(row).then(|| column.as_string::<i32>().value(row).to_owned())
            };
            found.push(batch.columns().iter().map(text).collect());
        }
    }
    Ok(found)
}

fn check(text: &str, layout: &Layout, num_columns: usize, expected: Expect) {
    expected.assert_eq(&match read(text.as_bytes(), layout, num_columns) {
        Ok(rows) => rows.iter().map(|row| format!("{row:?}\n")).collect(),
        Err(reason) => reason,
    });
}

#[test]
fn text_is_read_as_postgresql_reads_it() {
    let layout = Layout::text();
    check(
        "1\ta b\n2\t\\N\n\\N\t\n",
        &layout,
        2,
        expect![[r#"
        [Some("1"), Some("a b")]
        [Some("2"), None]
        [None, Some("")]
    "#]],
    );
    check(
        "a\\tb\\nc\\\\d\\\ne\\101\\x42\\q\n",
        &layout,
        1,
        expect![[r#"
        [Some("a\tb\nc\\d\neABq")]
    "#]],
    );
    check(
        "1\r\n2\r\n\\.\r\nnot read\n",
        &layout,
        1,
        expect![[r#"
        [Some("1")]
        [Some("2")]
    "#]],
    );
    check(
        "\\\\.\n\n",
        &layout,
        1,
        expect![[r#"
        [Some("\\.")]
        [Some("")]
    "#]],
    );
    check("1\t2\n1\n", &layout, 2, expect![[r#"line 2: missing data for column "c1": expected 2 fields, found 1"#]]);
    check("1\t2\n1\t2\t3\n", &layout, 2, expect!["line 2: extra data after last expected column: expected 2 fields, found 3"]);
    check(
        "1\n2\r\n",
        &layout,
        1,
        expect![[r"COPY t, line 2: the line ends in \r\n and the first one in \n; within a value write an escape or quotes"]],
    );
    let other = Layout { delimiter: b'|', null: "none".to_owned(), header: Header::Skip, ..layout };
    check(
        "x|y\n1|none\n\\||2",
        &other,
        2,
        expect![[r#"
        [Some("1"), None]
        [Some("|"), Some("2")]
    "#]],
    );
}

#[test]
fn csv_is_read_as_postgresql_reads_it() {
    let layout = Layout::csv();
    check(
        "1,\"a \"\"b\"\", c\"\n,\"\"\n\"x\ny\",z\n",
        &layout,
        2,
        expect![[r#"
        [Some("1"), Some("a \"b\", c")]
        [None, Some("")]
        [Some("x\ny"), Some("z")]
    "#]],
    );
    check(
        "a\"b,c\"d\n",
        &layout,
        1,
        expect![[r#"
        [Some("ab,cd")]
    "#]],
    );
    check("1,\"2\n", &layout, 2, expect!["COPY t, line 1: unterminated quoted field: a quote is not closed"]);
    let escape = Layout { escape: b'\\', ..layout.clone() };
    check(
        "\"a\\\"b\\\\c\\d\",\\\n",
        &escape,
        2,
        expect![[r#"
        [Some("a\"b\\c\\d"), Some("\\")]
    "#]],
    );
    let named = Layout { header: Header::Match, ..layout.clone() };
    check(
        "c0,c1\n1,2\n",
        &named,
        2,
        expect![[r#"
        [Some("1"), Some("2")]
    "#]],
    );
    check("c0,x\n1,2\n", &named, 2, expect![[r#"COPY t, line 1: the header has "x" where the column "c1" is expected"#]]);
    let by_name = Layout { header: Header::Names, ..layout.clone() };
    check(
        "c1,x,c0\n1,2,3\n",
        &by_name,
        2,
        expect![[r#"
        [Some("3"), Some("1")]
    "#]],
    );
    let forced = Layout {
        force_null: super::Chosen::Named(vec!["c0".to_owned()]),
        force_not_null: super::Chosen::Named(vec!["c1".to_owned()]),
        ..layout
    };
    check(
        "\"\",\n",
        &forced,
        2,
        expect![[r#"
        [None, Some("")]
    "#]],
    );
}

proptest! {
    /// What is written is read back, whatever the values are and whichever bytes keep them apart.
    #[test]
    fn rows_read_back(
        table in prop::collection::vec(prop::collection::vec(prop::option::of("[a,;|\"'\\\\\t\n\r .N]{0,6}"), 2), 0..6),
        is_csv in any::<bool>(),
        delimiter in prop::sample::select(&b",;|\t"[..]),
        escape in prop::sample::select(&b"\"\\"[..]),
        has_header in any::<bool>(),
    ) {
        let header_use = if has_header { Header::Match } else { Header::None };
        let layout = match is_csv {
            true => Layout { delimiter, escape, header: header_use, ..Layout::csv() },
            false => Layout { delimiter, header: header_use, ..Layout::text() },
        };
        let mut out = Vec::new();
        if has_header {
            header(&layout, ["c0", "c1"].into_iter(), &mut out);
        }
        for row in &table {
            let value = |column: usize, out: &mut Vec<u8>| {
                out.extend(row[column].iter().flat_map(|text| text.bytes()));
                row[column].is_some()
            };
            push_row(&layout, &[false, false], &mut Vec::new(), value, &mut out);
        }
        prop_assert_eq!(read(&out, &layout, 2), Ok(table), "{}", String::from_utf8_lossy(&out));
    }
}
