//! CSV with a header by default. Vectors and lists are written as JSON arrays in a quoted field.
//!
//! csv-core splits the records: Arrow's own reader counts records where an error should name a line, and a quoted field may have many lines.

use std::io::Read;
use std::path::{Path, PathBuf};

use arrow::array::{Array, ArrayRef, StringArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field};
use csv_core::ReadRecordResult;
use memchr::memchr_iter;
use rolloutdb_udfs::{TextType, is_plain_numeric};

use super::checked;
use super::json::{is_valid, shortened};
use super::rows::{BadLine, Columns, OnError, Problem, Rows};
use super::{BLOCK_BYTES, CsvOptions, RECORD_BYTES_MAX, bad_input, json_column, without_byte_order_mark};
use crate::engine::typing::sql_type_name;
use crate::error::{Error, Result};

/// Whole records of a file.
#[derive(Default)]
pub struct Block {
    /// The fields without their quotes, one after the other.
    text: Vec<u8>,
    /// Where each field ends in `text`.
    ends: Vec<usize>,
    records: Vec<Record>,
}

struct Record {
    /// In which it begins, from 1.
    line: usize,
    /// Index of its first field in `Block::ends`.
    first: usize,
}

impl Block {
    /// The fields of each record, with its line.
    pub fn records(&self) -> impl Iterator<Item = (usize, Result<Vec<&str>, String>)> {
        self.records.iter().enumerate().map(|(number, record)| {
            let last = self.records.get(number + 1).map_or(self.ends.len(), |next| next.first);
            let field = |index: usize| {
                let start = if index == 0 { 0 } else { self.ends[index - 1] };
                std::str::from_utf8(&self.text[start..self.ends[index]])
                    .map_err(|_| format!("field {} is not UTF-8", index - record.first + 1))
            };
            (record.line, (record.first..last).map(field).collect())
        })
    }
}

/// A file as blocks. The header, if there is one, is read first.
pub struct Blocks {
    path: PathBuf,
    file: Box<dyn Read + Send>,
    reader: csv_core::Reader,
    input: Vec<u8>,
    /// What the reader has taken of `input`.
    position: usize,
    /// Of `position`, from 1.
    line: usize,
    is_at_end: bool,
    header: Option<Vec<String>>,
}

impl Blocks {
    pub fn new(path: &Path, file: Box<dyn Read + Send>, options: CsvOptions) -> Result<Self> {
        let reader = csv_core::ReaderBuilder::new().delimiter(options.delimiter).build();
        let input = Vec::new();
        let mut blocks = Self { path: path.to_owned(), file, reader, input, position: 0, line: 1, is_at_end: false, header: None };
        blocks.fill()?;
        without_byte_order_mark(&mut blocks.input);
        if options.has_header {
            blocks.read_header()?;
        }
        Ok(blocks)
    }

    /// Names of the columns; `None` if the file is said to have no header.
    pub fn header(&self) -> Option<&[String]> {
        self.header.as_deref()
    }

    fn read_header(&mut self) -> Result<()> {
        let mut block = Block::default();
        self.read_record(&mut block)?;
        let names: Vec<String> = match block.records().next() {
            None => vec![],
            Some((_, Ok(fields))) => fields.iter().enumerate().map(|(index, name)| column_name(index, name.trim())).collect(),
            Some((line, Err(reason))) => return Err(bad_input(&self.path, Some(line), reason)),
        };
        if let Some(twice) = names.iter().enumerate().find(|(index, name)| names[..*index].contains(name)) {
            return Err(bad_input(&self.path, Some(1), format!("the header has \"{}\" twice", twice.1)));
        }
        self.header = Some(names);
        Ok(())
    }

    /// The next records; `None` at the end.
    ///
    /// # Errors
    /// The file cannot be read, a record is longer than [`RECORD_BYTES_MAX`].
    pub fn next(&mut self) -> Result<Option<Block>> {
        let mut block = Block::default();
        while block.text.len() < BLOCK_BYTES && self.read_record(&mut block)? {}
        Ok((!block.records.is_empty()).then_some(block))
    }

    /// Whether there was one more.
    fn read_record(&mut self, block: &mut Block) -> Result<bool> {
        if !self.skip_line_ends()? {
            return Ok(false);
        }
        let record = Record { line: self.line, first: block.ends.len() };
        let start = block.text.len();
        let (mut num_bytes, mut num_fields) = (0, 0);
        loop {
            block.text.resize(start + (2 * num_bytes).max(1 << 12), 0);
            block.ends.resize(record.first + (2 * num_fields).max(1 << 6), 0);
            let input = &self.input[self.position..];
            let (result, num_read, num_written, num_ended) =
                self.reader.read_record(input, &mut block.text[start + num_bytes..], &mut block.ends[record.first + num_fields..]);
            self.line += memchr_iter(b'\n', &input[..num_read]).count();
            self.position += num_read;
            num_bytes += num_written;
            num_fields += num_ended;
            match result {
                ReadRecordResult::InputEmpty => self.fill()?,
                ReadRecordResult::OutputFull | ReadRecordResult::OutputEndsFull => {}
                ReadRecordResult::Record | ReadRecordResult::End => break,
            }
            if num_bytes > RECORD_BYTES_MAX {
                let reason = format!("a record longer than {} MiB: is a quote not closed?", RECORD_BYTES_MAX >> 20);
                return Err(bad_input(&self.path, Some(record.line), reason));
            }
        }
        block.text.truncate(start + num_bytes);
        block.ends.truncate(record.first + num_fields);
        // The reader counts from the beginning of its record.
        block.ends[record.first..].iter_mut().for_each(|end| *end += start);
        block.records.push(record);
        Ok(true)
    }

    /// Moves to the next record, so that its line is known; the reader would pass over empty lines too. `false` at the end of the file.
    fn skip_line_ends(&mut self) -> Result<bool> {
        loop {
            match self.input.get(self.position) {
                Some(b'\n') => self.line += 1,
                Some(b'\r') => {}
                Some(_) => return Ok(true),
                None if self.is_at_end => return Ok(false),
                None => {
                    self.fill()?;
                    continue;
                }
            }
            self.position += 1;
        }
    }

    /// Reads on, once all is taken. An empty input tells the reader that the file has ended.
    fn fill(&mut self) -> Result<()> {
        self.input.clear();
        self.position = 0;
        let num_read = Read::by_ref(&mut self.file).take(BLOCK_BYTES as u64).read_to_end(&mut self.input);
        self.is_at_end = num_read.map_err(|error| bad_input(&self.path, None, error))? == 0;
        Ok(())
    }
}

/// The name of the field in the header; without one, as PostgreSQL names the columns of VALUES.
pub fn column_name(index: usize, name: &str) -> String {
    if name.is_empty() { format!("column{}", index + 1) } else { name.to_owned() }
}

/// Where the fields of a file go.
pub struct Fields {
    /// For each wanted column the index of its field.
    pub indices: Vec<Option<usize>>,
    pub num_fields: usize,
    header: Option<Vec<String>>,
}

impl Fields {
    /// Columns go by the names in the header, or by position.
    ///
    /// # Errors
    /// [`Error::BadInput`] for a header without any of the columns.
    pub fn new(path: &Path, header: Option<&[String]>, columns: &Columns, projection: &[usize]) -> Result<Self> {
        let Some(header) = header else {
            let indices = projection.iter().copied().map(Some).collect();
            return Ok(Self { indices, num_fields: columns.schema.fields().len(), header: None });
        };
        let of = |name: &str| header.iter().position(|known| known == name);
        if !header.is_empty() && !columns.names().any(|name| of(name).is_some()) {
            let names: Vec<&str> = columns.names().collect();
            let reason = format!("the header ({}) has none of the columns {}", header.join(", "), names.join(", "));
            return Err(bad_input(path, Some(1), reason));
        }
        if let Some(unknown) = header.iter().find(|name| columns.sampled_rows.is_some() && !columns.names().any(|known| known == *name)) {
            return Err(bad_input(path, Some(1), format!("\"{unknown}\" is none of the columns{}", columns.hint())));
        }
        let indices = projection.iter().map(|index| of(columns.schema.field(*index).name())).collect();
        Ok(Self { indices, num_fields: header.len(), header: Some(header.to_vec()) })
    }

    /// Of the fields, in their order.
    pub fn names<'a>(&'a self, columns: &'a Columns) -> Vec<&'a str> {
        match &self.header {
            Some(header) => header.iter().map(String::as_str).collect(),
            None => columns.names().collect(),
        }
    }
}

/// The wanted fields of each record. An empty one is NULL.
pub fn rows<'a>(block: &'a Block, fields: &Fields, on_error: OnError) -> Rows<'a> {
    let mut rows = Rows::new(fields.indices.len(), on_error, Vec::<BadLine>::new());
    let mut values = vec![None; fields.indices.len()];
    for (line, record) in block.records() {
        let row = match record {
            Ok(record) if record.len() == fields.num_fields => {
                for (value, index) in values.iter_mut().zip(&fields.indices) {
                    *value = index.map(|index| record[index]).filter(|field: &&str| !field.is_empty());
                }
                Ok(values.as_slice())
            }
            Ok(record) => Err(format!("expected {} fields, found {}", fields.num_fields, record.len())),
            Err(reason) => Err(reason),
        };
        if !rows.push(line, row) {
            break;
        }
    }
    rows
}

/// Calls `each` with the fields of every record until it says that it has enough.
///
/// # Errors
/// Of [`Blocks`]; of `each`, at its line.
pub fn for_each_record(blocks: &mut Blocks, on_error: OnError, mut each: impl FnMut(&[&str]) -> Result<bool, String>) -> Result<()> {
    while let Some(block) = blocks.next()? {
        for (line, record) in block.records() {
            match record.and_then(|record| each(&record)) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(_) if on_error == OnError::Skip => {}
                Err(reason) => return Err(bad_input(&blocks.path, Some(line), reason)),
            }
        }
    }
    Ok(())
}

/// A column of fields; `None` is NULL.
///
/// # Errors
/// The first field that is not of the type.
pub fn read_column(fields: &[Option<&str>], field: &Field) -> Result<ArrayRef, Problem> {
    let data_type = field.data_type();
    if let Some(text_type) = TextType::of(field) {
        return checked::texts(fields.iter().copied(), text_type);
    }
    if *data_type == DataType::Binary {
        return checked::bytes(fields.iter().copied());
    }
    if matches!(data_type, DataType::List(_) | DataType::FixedSizeList(..)) {
        let is_broken = |field: &Option<&str>| field.is_some_and(|field| !is_valid(field));
        return match fields.iter().position(is_broken) {
            Some(row) => Err(Problem::new(row, format!("expected a JSON array, found {}", shortened(fields[row].unwrap_or_default())))),
            None => json_column::read_field(fields, field),
        };
    }
    if let Some(times) = checked::times(fields.iter().copied(), data_type) {
        return times;
    }
    let texts: StringArray = fields.iter().copied().collect();
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    let column = cast_with_options(&texts, data_type, &strict).map_err(|_| {
        let is_wrong = |row: &usize| cast_with_options(&texts.slice(*row, 1), data_type, &strict).is_err();
        let row = (0..texts.len()).find(is_wrong).unwrap_or(0);
        Problem::new(row, format!("expected {}, found '{}'", sql_type_name(data_type), shortened(texts.value(row))))
    })?;
    if is_plain_numeric(field) {
        checked::digits(fields.iter().copied())?;
    }
    Ok(column)
}

/// The delimiter as an option gives it.
///
/// # Errors
/// [`Error::InvalidParameter`] unless it is one byte.
pub fn delimiter(text: &str) -> Result<u8> {
    match text.as_bytes() {
        [byte] => Ok(*byte),
        _ => Err(Error::InvalidParameter {
            name: "DELIMITER".to_owned(),
            found: format!("'{text}'"),
            expected: "one single-byte character".to_owned(),
        }),
    }
}
