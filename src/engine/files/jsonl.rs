//! JSON Lines, one object a line; and files that are one JSON array of objects, as the original sets of HotpotQA and 2WikiMultihopQA.
//!
//! [`Blocks`] cuts a file into pieces of whole records, one piece in memory at a time; [`rows`] takes a piece apart, on any thread.

use std::collections::HashMap;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use memchr::memchr;

use super::json::{is_blank, members, unquoted};
use super::rows::{BadLine, Columns, OnError, Rows};
use super::{BLOCK_BYTES, RECORD_BYTES_MAX, bad_input, bad_line, without_byte_order_mark};
use crate::error::Result;

/// Whole records of a file.
pub struct Block {
    text: Vec<u8>,
    records: Vec<Record>,
    /// Lines that were left out before the records were known.
    bad: Vec<BadLine>,
}

#[derive(Debug)]
pub struct Record {
    /// In which it begins, from 1.
    pub line: usize,
    pub bytes: Range<usize>,
}

/// A file as blocks.
pub struct Blocks {
    path: PathBuf,
    file: Box<dyn Read + Send>,
    on_error: OnError,
    text: Vec<u8>,
    cutter: Cutter,
    is_at_end: bool,
}

impl Blocks {
    pub fn new(path: &Path, file: Box<dyn Read + Send>, on_error: OnError) -> Result<Self> {
        let mut blocks = Self { path: path.to_owned(), file, on_error, text: Vec::new(), cutter: Cutter::lines(), is_at_end: false };
        blocks.fill()?;
        without_byte_order_mark(&mut blocks.text);
        if blocks.text.iter().find(|byte| !is_blank(**byte)) == Some(&b'[') {
            blocks.cutter = Cutter::array();
        }
        Ok(blocks)
    }

    /// The next records; `None` at the end.
    ///
    /// # Errors
    /// The file cannot be read, a record is longer than [`RECORD_BYTES_MAX`], an array has no end.
    pub fn next(&mut self) -> Result<Option<Block>> {
        let mut bad = Vec::new();
        loop {
            let records = self.cutter.cut(&self.text, self.is_at_end).map_err(|problem: BadLine| bad_line(&self.path, problem))?;
            if !records.is_empty() || self.is_at_end {
                let rest = self.text.split_off(self.cutter.take_consumed());
                let text = std::mem::replace(&mut self.text, rest);
                let is_last = records.is_empty() && bad.is_empty();
                return Ok((!is_last).then_some(Block { text, records, bad }));
            }
            if self.text.len() > RECORD_BYTES_MAX {
                bad.extend(self.drop_record()?);
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> Result<()> {
        self.text.reserve(BLOCK_BYTES);
        let num_read = Read::by_ref(&mut self.file).take(BLOCK_BYTES as u64).read_to_end(&mut self.text);
        self.is_at_end = num_read.map_err(|error| bad_input(&self.path, None, error))? == 0;
        Ok(())
    }

    /// Leaves out the line that fills the memory; the rest of it is dropped as it comes.
    fn drop_record(&mut self) -> Result<Option<BadLine>> {
        let reason = format!("longer than {} MiB, which no passage is", RECORD_BYTES_MAX >> 20);
        match &mut self.cutter {
            Cutter::Lines { line, start, position, is_dropping } if self.on_error == OnError::Skip => {
                self.text.clear();
                (*start, *position) = (0, 0);
                let was_dropping = std::mem::replace(is_dropping, true);
                Ok((!was_dropping).then_some(BadLine::new(*line, reason)))
            }
            cutter => Err(bad_input(&self.path, Some(cutter.line()), reason)),
        }
    }
}

/// Finds where records end. Keeps its place in the text, so that a record that comes in many pieces is looked at once.
pub enum Cutter {
    Lines {
        line: usize,
        start: usize,
        position: usize,
        /// Until the end of the line.
        is_dropping: bool,
    },
    Array(ArrayCutter),
}

impl Cutter {
    pub fn lines() -> Self {
        Self::Lines { line: 1, start: 0, position: 0, is_dropping: false }
    }

    pub fn array() -> Self {
        Self::Array(ArrayCutter::default())
    }

    /// The records that end in `text` after those of earlier calls.
    ///
    /// # Errors
    /// What is wrong with the array round the records.
    pub fn cut(&mut self, text: &[u8], is_at_end: bool) -> Result<Vec<Record>, BadLine> {
        match self {
            Self::Array(cutter) => cutter.cut(text, is_at_end),
            Self::Lines { line, start, position, is_dropping } => {
                let mut records = Vec::new();
                let mut push = |line, bytes: Range<usize>, is_dropping: bool| {
                    if !is_dropping && !text[bytes.clone()].iter().all(|byte| is_blank(*byte)) {
                        records.push(Record { line, bytes });
                    }
                };
                while let Some(length) = memchr(b'\n', &text[*position..]) {
                    push(*line, *start..*position + length, std::mem::take(is_dropping));
                    *line += 1;
                    *position += length + 1;
                    *start = *position;
                }
                *position = text.len();
                if is_at_end {
                    push(*line, *start..text.len(), *is_dropping);
                    *start = text.len();
                }
                Ok(records)
            }
        }
    }

    /// The number of bytes before the first record that is not whole. They are gone from the text that [`Self::cut`] sees next.
    pub fn take_consumed(&mut self) -> usize {
        let (start, position) = match self {
            Self::Lines { start, position, .. } => (start, position),
            Self::Array(ArrayCutter { start, position, .. }) => (start, position),
        };
        *position -= *start;
        std::mem::take(start)
    }

    fn line(&self) -> usize {
        match self {
            Self::Lines { line, .. } | Self::Array(ArrayCutter { line, .. }) => *line,
        }
    }
}

/// The elements of one array: what stands between its brackets and the commas outside of all others.
#[derive(Default)]
pub struct ArrayCutter {
    /// Line breaks before `position`.
    num_breaks: usize,
    /// Where the element begins, from 1; before its first byte, where the array begins.
    line: usize,
    start: usize,
    position: usize,
    has_element: bool,
    depth: usize,
    is_string: bool,
    state: ArrayState,
}

#[derive(Default, PartialEq)]
enum ArrayState {
    #[default]
    BeforeArray,
    First,
    Later,
    AfterArray,
}

impl ArrayCutter {
    fn cut(&mut self, text: &[u8], is_at_end: bool) -> Result<Vec<Record>, BadLine> {
        let mut records = Vec::new();
        while let Some(byte) = text.get(self.position).copied() {
            if self.is_string && byte == b'\\' && self.position + 1 == text.len() && !is_at_end {
                // The escaped byte decides nothing, but it has to be there to be passed over.
                break;
            }
            self.step(byte, &mut records).map_err(|reason| BadLine::new(self.num_breaks + 1, reason))?;
        }
        if is_at_end && self.state != ArrayState::AfterArray {
            let reason =
                "the array that the file begins with is not closed: the file is not whole, or it is JSON Lines of arrays".to_owned();
            return Err(BadLine::new(self.num_breaks + 1, reason));
        }
        Ok(records)
    }

    fn step(&mut self, byte: u8, records: &mut Vec<Record>) -> Result<(), String> {
        self.num_breaks += usize::from(byte == b'\n');
        let at = self.position;
        self.position += 1;
        if self.is_string {
            match byte {
                b'\\' => self.position += 1,
                b'"' => self.is_string = false,
                _ => {}
            }
            return Ok(());
        }
        let is_outside = self.depth == 0;
        match byte {
            byte if is_blank(byte) => return Ok(()),
            b'[' if self.state == ArrayState::BeforeArray => {
                self.state = ArrayState::First;
                self.start = self.position;
                return Ok(());
            }
            _ if self.state == ArrayState::AfterArray => return Err("expected nothing after the array".to_owned()),
            b',' if is_outside => return self.end_element(at, ArrayState::Later, records),
            b']' if is_outside && !self.has_element && self.state == ArrayState::First => self.state = ArrayState::AfterArray,
            b']' if is_outside => return self.end_element(at, ArrayState::AfterArray, records),
            b'}' if is_outside => return Err("found } without its {".to_owned()),
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth -= 1,
            b'"' => self.is_string = true,
            _ => {}
        }
        if !self.has_element && self.state != ArrayState::AfterArray {
            self.has_element = true;
            self.line = self.num_breaks + 1;
        }
        Ok(())
    }

    fn end_element(&mut self, at: usize, next: ArrayState, records: &mut Vec<Record>) -> Result<(), String> {
        if !std::mem::take(&mut self.has_element) {
            return Err("expected a JSON object between the commas".to_owned());
        }
        records.push(Record { line: self.line, bytes: self.start..at });
        self.start = self.position;
        self.state = next;
        Ok(())
    }
}

/// Which keys to read, and where their values go.
pub struct Keys {
    /// `None`: known, but not wanted.
    positions: HashMap<String, Option<usize>>,
    num_wanted: usize,
    is_closed: bool,
}

impl Keys {
    pub fn new(columns: &Columns, projection: &[usize]) -> Self {
        let position = |index| projection.iter().position(|wanted| *wanted == index);
        let positions = columns.names().enumerate().map(|(index, name)| (name.to_owned(), position(index))).collect();
        Self { positions, num_wanted: projection.len(), is_closed: columns.sampled_rows.is_some() }
    }
}

/// The values of the wanted keys of each record, as JSON texts.
pub fn rows<'a>(block: &'a Block, keys: &Keys, columns: &Columns, on_error: OnError) -> Rows<'a> {
    let mut rows = Rows::new(keys.num_wanted, on_error, block.bad.clone());
    let mut values = vec![None; keys.num_wanted];
    for record in &block.records {
        let read = read(&block.text[record.bytes.clone()], keys, columns, &mut values);
        if !rows.push(record.line, read.map(|()| values.as_slice())) {
            break;
        }
    }
    rows
}

fn read<'a>(record: &'a [u8], keys: &Keys, columns: &Columns, values: &mut [Option<&'a str>]) -> Result<(), String> {
    values.fill(None);
    members(utf8(record)?, |key, value| {
        let name = unquoted(key)?;
        match keys.positions.get(name.as_ref()) {
            // As in most readers, the last of two equal keys counts.
            Some(Some(position)) => values[*position] = Some(value).filter(|value| *value != "null"),
            None if keys.is_closed => return Err(format!("key {key} is none of the columns{}", columns.hint())),
            Some(None) | None => {}
        }
        Ok(())
    })
}

/// Calls `each` with every record's line and text until it says that it has enough.
///
/// # Errors
/// Of [`Blocks`]; of `each`, at its line.
pub fn for_each_record(blocks: &mut Blocks, mut each: impl FnMut(&str) -> Result<bool, String>) -> Result<()> {
    while let Some(block) = blocks.next()? {
        for record in &block.records {
            match utf8(&block.text[record.bytes.clone()]).and_then(&mut each) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(_) if blocks.on_error == OnError::Skip => {}
                Err(reason) => return Err(bad_input(&blocks.path, Some(record.line), reason)),
            }
        }
    }
    Ok(())
}

fn utf8(record: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(record).map_err(|error| format!("not UTF-8 at byte {}", error.valid_up_to() + 1))
}
