//! PostgreSQL's binary format: a header, then rows of sized values. See "Binary Format" in the manual's page of COPY.

use std::io::Read;
use std::ops::Range;
use std::path::Path;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;

use super::input::Bytes;
use super::postgres::binary_in;
use super::rows::{BadLine, Columns, Decoded};
use super::{BLOCK_BYTES, RECORD_BYTES_MAX, bad_input, bad_line};
use crate::error::Result;

pub const SIGNATURE: &[u8; 11] = b"PGCOPY\n\xff\r\n\0";
/// In place of a row's number of fields.
pub const END: i16 = -1;
/// The lower flags are for what a reader need not know.
const CRITICAL_FLAGS: u32 = 0xffff_0000;
/// A header's extension has been empty since there are headers.
const EXTENSION_BYTES_MAX: usize = 1 << 20;

/// Whole rows, not yet read.
pub struct Block {
    bytes: Vec<u8>,
    /// Of every row one after the other; `None`: NULL.
    fields: Vec<Option<Range<usize>>>,
    num_rows: usize,
    /// Of the first of them, from 1.
    first_row: usize,
}

pub struct Blocks {
    bytes: Bytes,
    num_columns: usize,
    num_rows: usize,
    is_done: bool,
}

impl Blocks {
    /// # Errors
    /// The header is not that of this format.
    pub fn new(path: &Path, source: Box<dyn Read + Send>, columns: &Columns) -> Result<Self> {
        let bytes = Bytes::new(path, source);
        let mut blocks = Self { bytes, num_columns: columns.schema.fields().len(), num_rows: 0, is_done: false };
        blocks.read_header()?;
        Ok(blocks)
    }

    fn read_header(&mut self) -> Result<()> {
        let refused = |bytes: &Bytes, reason: &str| bad_input(&bytes.path, None, reason);
        let fixed = SIGNATURE.len() + 8;
        self.await_bytes(fixed)?;
        if !self.bytes.text.starts_with(SIGNATURE) {
            return Err(refused(&self.bytes, "COPY file signature not recognized: it is not in PostgreSQL's binary format"));
        }
        let (Some(flags), Some(extension)) = (self.word(SIGNATURE.len()), self.word(SIGNATURE.len() + 4)) else {
            return Err(refused(&self.bytes, "the header is not whole"));
        };
        if flags & CRITICAL_FLAGS != 0 {
            return Err(refused(&self.bytes, "the header asks for what is not known here, such as OIDs"));
        }
        let length = fixed.saturating_add(extension as usize);
        if extension as usize > EXTENSION_BYTES_MAX {
            return Err(refused(&self.bytes, "the header's extension is too long"));
        }
        self.await_bytes(length)?;
        if self.bytes.text.len() < length {
            return Err(refused(&self.bytes, "the header is not whole"));
        }
        self.bytes.text.drain(..length);
        Ok(())
    }

    fn await_bytes(&mut self, count: usize) -> Result<()> {
        while self.bytes.text.len() < count && !self.bytes.is_at_end {
            self.bytes.fill()?;
        }
        Ok(())
    }

    fn word(&self, at: usize) -> Option<u32> {
        let bytes = self.bytes.text.get(at..at + 4)?;
        Some(u32::from_be_bytes(bytes.try_into().ok()?))
    }

    /// The next rows; `None` at the end.
    ///
    /// # Errors
    /// The bytes cannot be read, a row has another number of fields than there are columns, or is not whole; bytes after the end.
    pub fn next(&mut self) -> Result<Option<Block>> {
        loop {
            let (mut fields, mut position, mut num_rows) = (Vec::new(), 0, 0);
            let first_row = self.num_rows + 1;
            while !self.is_done && position < BLOCK_BYTES {
                let found = self
                    .cut_row(position, &mut fields)
                    .map_err(|reason| bad_line(&self.bytes.path, BadLine::new(first_row + num_rows, reason)))?;
                match found {
                    Cut::Row(end) => (position, num_rows) = (end, num_rows + 1),
                    Cut::End(end) => (position, self.is_done) = (end, true),
                    Cut::More => break,
                }
            }
            fields.truncate(num_rows * self.num_columns);
            self.num_rows += num_rows;
            if num_rows > 0 {
                let rest = self.bytes.text.split_off(position);
                let bytes = std::mem::replace(&mut self.bytes.text, rest);
                return Ok(Some(Block { bytes, fields, num_rows, first_row }));
            }
            if self.is_done {
                return self.end(position);
            }
            if self.bytes.is_at_end {
                return match self.bytes.text.is_empty() {
                    true => Ok(None),
                    false => Err(bad_line(&self.bytes.path, BadLine::new(first_row, "unexpected end of the data: the row is not whole"))),
                };
            }
            if self.bytes.text.len() > RECORD_BYTES_MAX {
                let reason = format!("a row longer than {} MiB", RECORD_BYTES_MAX >> 20);
                return Err(bad_line(&self.bytes.path, BadLine::new(first_row, reason)));
            }
            self.bytes.fill()?;
        }
    }

    /// Nothing may come after the end, which a client tells when it has sent everything.
    fn end(&mut self, position: usize) -> Result<Option<Block>> {
        self.bytes.text.drain(..position);
        while self.bytes.text.is_empty() && !self.bytes.is_at_end {
            self.bytes.fill()?;
        }
        if self.bytes.text.is_empty() {
            return Ok(None);
        }
        Err(bad_line(&self.bytes.path, BadLine::new(self.num_rows + 1, "received data after the end of the rows")))
    }

    /// One row from `start` on.
    fn cut_row(&self, start: usize, fields: &mut Vec<Option<Range<usize>>>) -> Result<Cut, String> {
        let text = &self.bytes.text;
        let Some(count) = text.get(start..start + 2) else { return Ok(Cut::More) };
        let count = i16::from_be_bytes([count[0], count[1]]);
        if count == END {
            return Ok(Cut::End(start + 2));
        }
        if usize::try_from(count) != Ok(self.num_columns) {
            return Err(format!("row field count is {count}, expected {}", self.num_columns));
        }
        let mut position = start + 2;
        for _ in 0..self.num_columns {
            let Some(length) = self.word(position) else { return Ok(Cut::More) };
            position += 4;
            match length.cast_signed() {
                -1 => fields.push(None),
                length if length < 0 || length as usize > RECORD_BYTES_MAX => return Err(format!("invalid field size {length}")),
                length => {
                    let end = position + length as usize;
                    if end > text.len() {
                        return Ok(Cut::More);
                    }
                    fields.push(Some(position..end));
                    position = end;
                }
            }
        }
        Ok(Cut::Row(position))
    }
}

/// What [`Blocks::cut_row`] finds, and where it ends.
enum Cut {
    Row(usize),
    /// Of all rows.
    End(usize),
    /// It is not whole yet.
    More,
}

impl Block {
    /// The columns of `projection`, whose fields are those of `schema`.
    ///
    /// # Errors
    /// The first value that is not of its column's type; rows count as lines.
    pub fn decode(&self, projection: &[usize], schema: &SchemaRef) -> Result<Decoded, BadLine> {
        let num_columns = self.fields.len() / self.num_rows.max(1);
        let mut columns = Vec::with_capacity(projection.len());
        let mut first: Option<BadLine> = None;
        for (field, index) in schema.fields().iter().zip(projection) {
            let value = |row: usize| self.fields[row * num_columns + index].clone().map(|range| &self.bytes[range]);
            let values: Vec<Option<&[u8]>> = (0..self.num_rows).map(value).collect();
            match binary_in::read_field(&values, field) {
                Ok(column) => columns.push(column),
                Err(problem) => {
                    let line = self.first_row + problem.row;
                    let bad = BadLine { line, reason: format!("column {}: {}", field.name(), problem.reason), fault: problem.fault };
                    first = first.filter(|earlier| earlier.line <= line).or(Some(bad));
                }
            }
        }
        if let Some(bad) = first {
            return Err(bad);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.num_rows));
        let batch = RecordBatch::try_new_with_options(SchemaRef::clone(schema), columns, &options);
        batch.map(|batch| Decoded { batch, bad: Vec::new() }).map_err(|error| BadLine::new(self.first_row, error))
    }
}
