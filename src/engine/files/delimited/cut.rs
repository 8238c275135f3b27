//! Where records end: at a line end that is neither escaped nor in quotes.

use std::ops::Range;

use memchr::{memchr2, memchr3};

use super::Layout;
use crate::engine::files::rows::BadLine;

/// A line of its own that ends the data before the bytes do.
const END_OF_DATA: &[u8] = b"\\.";

#[derive(Debug)]
pub struct Record {
    /// In which it begins, from 1.
    pub line: usize,
    /// Without its line end.
    pub bytes: Range<usize>,
}

/// Keeps its place in the text, so that a record that comes in many pieces is looked at once.
pub struct Cutter {
    is_csv: bool,
    quote: u8,
    escape: u8,
    line: usize,
    record_line: usize,
    start: usize,
    position: usize,
    is_quoted: bool,
    /// Whether lines end in `\r\n`, as the first one does.
    has_returns: Option<bool>,
    is_done: bool,
}

impl Cutter {
    pub fn new(layout: &Layout) -> Self {
        let Layout { is_csv, quote, escape, .. } = *layout;
        Self { is_csv, quote, escape, line: 1, record_line: 1, start: 0, position: 0, is_quoted: false, has_returns: None, is_done: false }
    }

    /// Whether the line came that ends the data.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// The line in which the record begins that is not whole yet.
    pub fn record_line(&self) -> usize {
        self.record_line
    }

    /// The records that end in `text` after those of earlier calls.
    ///
    /// # Errors
    /// A quote that is not closed, a line end that is another than the first.
    pub fn cut(&mut self, text: &[u8], is_at_end: bool) -> Result<Vec<Record>, BadLine> {
        let mut records = Vec::new();
        while !self.is_done {
            let Some(offset) = self.next_sign(&text[self.position..]) else {
                self.position = text.len();
                break;
            };
            let at = self.position + offset;
            if text[at] == b'\n' {
                if !self.is_quoted {
                    self.end_line(text, at, &mut records)?;
                }
                self.line += 1;
                self.position = at + 1;
                if !self.is_quoted {
                    (self.start, self.record_line) = (self.position, self.line);
                }
            } else if let Some(length) = self.step(text, at) {
                self.position = at + length;
            } else if is_at_end {
                self.position = text.len();
                break;
            } else {
                // The byte after it decides, which is not there yet.
                self.position = at;
                break;
            }
        }
        if is_at_end && !self.is_done && self.start < text.len() {
            if self.is_quoted {
                return Err(BadLine::new(self.record_line, "unterminated quoted field: a quote is not closed"));
            }
            self.end_record(text, self.start..text.len(), &mut records);
            self.start = text.len();
        }
        Ok(records)
    }

    /// The number of bytes before the first record that is not whole. They are gone from the text that [`Self::cut`] sees next.
    pub fn take_consumed(&mut self) -> usize {
        self.position -= self.start;
        std::mem::take(&mut self.start)
    }

    /// The next byte that may end a record or keep another one from doing so.
    fn next_sign(&self, text: &[u8]) -> Option<usize> {
        match self.is_csv {
            true => memchr3(b'\n', self.quote, self.escape, text),
            false => memchr2(b'\n', b'\\', text),
        }
    }

    /// How many bytes the sign at `at` takes; `None`: the text ends too early to say.
    fn step(&mut self, text: &[u8], at: usize) -> Option<usize> {
        let next = text.get(at + 1).copied();
        if !self.is_csv {
            // An escaped line end belongs to its field.
            self.line += usize::from(next? == b'\n');
            return Some(2);
        }
        let is_escape = self.is_quoted && text[at] == self.escape && self.escape != self.quote;
        if is_escape && matches!(next?, byte if byte == self.quote || byte == self.escape) {
            return Some(2);
        }
        // Two quotes within quotes end and begin them.
        self.is_quoted ^= text[at] == self.quote;
        Some(1)
    }

    fn end_line(&mut self, text: &[u8], end: usize, records: &mut Vec<Record>) -> Result<(), BadLine> {
        let has_return = end > self.start && text[end - 1] == b'\r';
        let has_returns = *self.has_returns.get_or_insert(has_return);
        if has_return != has_returns {
            let (found, expected) = if has_return { ("\\r\\n", "\\n") } else { ("\\n", "\\r\\n") };
            let reason = format!("the line ends in {found} and the first one in {expected}; within a value write an escape or quotes");
            return Err(BadLine::new(self.line, reason));
        }
        self.end_record(text, self.start..end - usize::from(has_return), records);
        Ok(())
    }

    fn end_record(&mut self, text: &[u8], bytes: Range<usize>, records: &mut Vec<Record>) {
        // The last line may end in \r alone.
        let record = &text[bytes.clone()];
        if record.strip_suffix(b"\r").unwrap_or(record) == END_OF_DATA {
            self.is_done = true;
        } else {
            records.push(Record { line: self.record_line, bytes });
        }
    }
}
