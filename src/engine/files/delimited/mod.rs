//! PostgreSQL's own text formats: `text`, with tabs between the fields and backslashes, and its `csv`, in which NULL and the empty text differ.
//!
//! See "File Formats" in the manual's page of COPY, and `src/backend/commands/copyfromparse.c`. [`cut`] finds records, [`split`] their fields,
//! [`write`] makes them.

mod cut;
mod split;
#[cfg(test)]
mod tests;
mod write;

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

pub use split::{rows, split};
pub use write::{header, push_row};

use self::cut::{Cutter, Record};
use super::input::Bytes;
use super::rows::Columns;
use super::{RECORD_BYTES_MAX, bad_input, bad_line, without_byte_order_mark};
use crate::error::Result;

/// How records are laid out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    pub is_csv: bool,
    pub delimiter: u8,
    /// What stands for NULL.
    pub null: String,
    pub header: Header,
    pub quote: u8,
    pub escape: u8,
    /// Columns that are always written in quotes.
    pub force_quote: Chosen,
    /// Columns in which `null` is NULL also in quotes.
    pub force_null: Chosen,
    /// Columns in which nothing is NULL.
    pub force_not_null: Chosen,
}

/// What the first line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// A row.
    None,
    /// Passed over.
    Skip,
    /// The names of the columns, or it is an error.
    Match,
    /// It says which field is for which column.
    Names,
}

/// Some of the columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chosen {
    All,
    Named(Vec<String>),
}

impl Chosen {
    pub fn has(&self, column: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.iter().any(|name| name == column),
        }
    }
}

impl Layout {
    pub fn text() -> Self {
        let none = || Chosen::Named(Vec::new());
        Self {
            is_csv: false,
            delimiter: b'\t',
            null: "\\N".to_owned(),
            header: Header::None,
            quote: b'"',
            escape: b'"',
            force_quote: none(),
            force_null: none(),
            force_not_null: none(),
        }
    }

    pub fn csv() -> Self {
        Self { is_csv: true, delimiter: b',', null: String::new(), ..Self::text() }
    }
}

/// Whole records, not yet taken apart.
pub struct Block {
    text: Vec<u8>,
    records: Vec<Record>,
    layout: Arc<Layout>,
}

impl Block {
    pub fn layout(&self) -> &Layout {
        &self.layout
    }
}

/// Bytes as blocks. The header, if there is one, is read first.
pub struct Blocks {
    bytes: Bytes,
    layout: Arc<Layout>,
    cutter: Cutter,
    /// What came with the header.
    first: Option<Block>,
    names: Option<Vec<String>>,
}

impl Blocks {
    pub fn new(path: &Path, source: Box<dyn Read + Send>, layout: Arc<Layout>, columns: &Columns) -> Result<Self> {
        let cutter = Cutter::new(&layout);
        let mut blocks = Self { bytes: Bytes::new(path, source), layout, cutter, first: None, names: None };
        blocks.bytes.fill()?;
        without_byte_order_mark(&mut blocks.bytes.text);
        if blocks.layout.header != Header::None {
            blocks.read_header(columns)?;
        }
        Ok(blocks)
    }

    /// The names in the header, if fields go by them.
    pub fn header(&self) -> Option<&[String]> {
        self.names.as_deref()
    }

    fn read_header(&mut self, columns: &Columns) -> Result<()> {
        let Some(mut block) = self.next()? else { return Ok(()) };
        let rest = block.records.split_off(1);
        let split = split(&block);
        let names = split.names().map_err(|reason| bad_input(&self.bytes.path, Some(1), reason))?;
        match self.layout.header {
            Header::Match => check_names(&names, columns).map_err(|reason| bad_input(&self.bytes.path, Some(1), reason))?,
            Header::Names => {
                if let Some((_, twice)) = names.iter().enumerate().find(|(index, name)| names[..*index].contains(name)) {
                    return Err(bad_input(&self.bytes.path, Some(1), format!("the header has \"{twice}\" twice")));
                }
                self.names = Some(names);
            }
            Header::None | Header::Skip => {}
        }
        self.first = Some(Block { records: rest, ..block });
        Ok(())
    }

    /// The next records; `None` at the end.
    ///
    /// # Errors
    /// The bytes cannot be read, a record is longer than [`RECORD_BYTES_MAX`], a quote is not closed, line ends differ.
    pub fn next(&mut self) -> Result<Option<Block>> {
        if let Some(block) = self.first.take().filter(|block| !block.records.is_empty()) {
            return Ok(Some(block));
        }
        loop {
            let records = self.cutter.cut(&self.bytes.text, self.bytes.is_at_end).map_err(|bad| bad_line(&self.bytes.path, bad))?;
            if self.cutter.is_done() {
                let text = std::mem::take(&mut self.bytes.text);
                self.bytes.skip_rest()?;
                return Ok(self.block(text, records));
            }
            if !records.is_empty() || self.bytes.is_at_end {
                let rest = self.bytes.text.split_off(self.cutter.take_consumed());
                let text = std::mem::replace(&mut self.bytes.text, rest);
                return Ok(self.block(text, records));
            }
            if self.bytes.text.len() > RECORD_BYTES_MAX {
                let reason = format!("a record longer than {} MiB: is a quote not closed?", RECORD_BYTES_MAX >> 20);
                return Err(bad_input(&self.bytes.path, Some(self.cutter.record_line()), reason));
            }
            self.bytes.fill()?;
        }
    }

    fn block(&self, text: Vec<u8>, records: Vec<Record>) -> Option<Block> {
        (!records.is_empty()).then(|| Block { text, records, layout: Arc::clone(&self.layout) })
    }
}

fn check_names(found: &[String], columns: &Columns) -> Result<(), String> {
    let expected: Vec<&str> = columns.names().collect();
    if found.len() != expected.len() {
        return Err(format!("the header has {} fields, expected {}", found.len(), expected.len()));
    }
    match found.iter().zip(&expected).find(|(found, expected)| *found != *expected) {
        Some((found, expected)) => Err(format!("the header has \"{found}\" where the column \"{expected}\" is expected")),
        None => Ok(()),
    }
}
