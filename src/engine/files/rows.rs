//! Rows of text on their way to columns, and what becomes of a line that does not fit.

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, SchemaRef};

use super::infer::SAMPLE_FILES;
use super::{json, numbers};
use crate::error::{Error, Fault, Result};

/// A line of a text file that cannot be read.
#[derive(Debug, Clone)]
pub struct BadLine {
    /// From 1.
    pub line: usize,
    pub reason: String,
    pub fault: Fault,
}

impl BadLine {
    /// A line that is not of the file's format.
    pub fn new(line: usize, reason: impl ToString) -> Self {
        Self { line, reason: reason.to_string(), fault: Fault::Form }
    }
}

/// What to do with a bad line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnError {
    #[default]
    Stop,
    /// Leave it out and count it.
    Skip,
}

impl OnError {
    /// As options name it; `stop` unless given. PostgreSQL says `ignore`.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`].
    pub fn from_option(text: Option<&str>) -> Result<Self> {
        match text.map(str::to_lowercase).as_deref() {
            None | Some("stop") => Ok(Self::Stop),
            Some("skip" | "ignore") => Ok(Self::Skip),
            Some(other) => Err(Error::InvalidParameter {
                name: "on_error".to_owned(),
                found: format!("'{other}'"),
                expected: "'stop', 'skip' or 'ignore'".to_owned(),
            }),
        }
    }
}

/// The value that does not fit, by its row.
pub struct Problem {
    pub row: usize,
    pub reason: String,
    pub fault: Fault,
}

impl Problem {
    /// A value that is not of the column's type.
    pub fn new(row: usize, reason: impl ToString) -> Self {
        Self { row, reason: reason.to_string(), fault: Fault::Form }
    }
}

/// Makes a column of values: JSON texts, or fields of CSV. `None` is NULL.
pub type ReadColumn = fn(&[Option<&str>], &Field) -> Result<ArrayRef, Problem>;

/// The columns to read.
#[derive(Debug, Clone)]
pub struct Columns {
    /// All nullable.
    pub schema: SchemaRef,
    /// The number of rows of each file from which names and types were found out; `None` if they were given.
    pub sampled_rows: Option<usize>,
}

impl Columns {
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.schema.fields().iter().map(|field| field.name().as_str())
    }

    /// For the end of an error's reason: what to do when the sample was too small.
    pub fn hint(&self) -> String {
        let Some(rows) = self.sampled_rows else { return String::new() };
        let (sample, more) = match rows {
            usize::MAX => (format!("{SAMPLE_FILES} files"), ""),
            rows => (format!("{rows} rows"), "raise sample_size, or "),
        };
        format!("; names and types are those of the first {sample}: {more}give columns => 'name type, ...'")
    }
}

/// Rows of one block of a file, column by column.
pub struct Rows<'a> {
    on_error: OnError,
    lines: Vec<usize>,
    columns: Vec<Vec<Option<&'a str>>>,
    bad: Vec<BadLine>,
}

/// The first value of a column that was found to be double precision in a sample, and whose digits that does not keep.
fn changed_by_double(values: &[Option<&str>], field: &Field) -> Option<Problem> {
    let is_double = |data_type: &DataType| *data_type == DataType::Float64;
    let is_one = match field.data_type() {
        DataType::List(item) => is_double(item.data_type()),
        data_type => is_double(data_type),
    };
    let changed = |(row, value): (usize, &Option<&str>)| Some((row, numbers::changed_by_double((*value)?)?));
    let (row, number) = values.iter().enumerate().filter(|_| is_one).find_map(changed)?;
    Some(Problem::new(row, format!("double precision does not keep the digits of {}; numeric does", json::shortened(&number))))
}

/// A block as columns, and its lines that were left out.
pub struct Decoded {
    pub batch: RecordBatch,
    pub bad: Vec<BadLine>,
}

impl<'a> Rows<'a> {
    pub fn new(num_columns: usize, on_error: OnError, bad: Vec<BadLine>) -> Self {
        Self { on_error, lines: Vec::new(), columns: vec![Vec::new(); num_columns], bad }
    }

    /// Takes the values of one line, or why it has none. Says whether to go on.
    pub fn push(&mut self, line: usize, row: Result<&[Option<&'a str>], String>) -> bool {
        match row {
            Ok(values) => {
                self.lines.push(line);
                for (column, value) in self.columns.iter_mut().zip(values) {
                    column.push(*value);
                }
                true
            }
            Err(reason) => {
                self.bad.push(BadLine::new(line, reason));
                self.on_error == OnError::Skip
            }
        }
    }

    /// # Errors
    /// With [`OnError::Stop`] the first bad line.
    pub fn decode(mut self, columns: &Columns, projection: &SchemaRef, read: ReadColumn) -> Result<Decoded, BadLine> {
        let mut batch = self.batch(columns, projection, read);
        if batch.is_err() && self.on_error == OnError::Skip {
            self.drop_bad_rows(columns, projection, read);
            batch = self.batch(columns, projection, read);
        }
        // The rows end before the first line without values: a value that does not fit comes earlier.
        let batch = batch?;
        match self.bad.first() {
            Some(bad) if self.on_error == OnError::Stop => Err(bad.clone()),
            _ => Ok(Decoded { batch, bad: self.bad }),
        }
    }

    fn batch(&self, columns: &Columns, projection: &SchemaRef, read: ReadColumn) -> Result<RecordBatch, BadLine> {
        let mut arrays = Vec::with_capacity(self.columns.len());
        let mut first: Option<BadLine> = None;
        for (field, values) in projection.fields().iter().zip(&self.columns) {
            let changed = if columns.sampled_rows.is_some() { changed_by_double(values, field) } else { None };
            match changed.map_or_else(|| read(values, field), Err) {
                Ok(array) => arrays.push(array),
                Err(Problem { row, reason, fault }) => {
                    let reason = format!("column {}: {reason}{}", field.name(), columns.hint());
                    let bad = BadLine { line: self.lines.get(row).copied().unwrap_or(1), reason, fault };
                    first = first.filter(|earlier| earlier.line <= bad.line).or(Some(bad));
                }
            }
        }
        if let Some(bad) = first {
            return Err(bad);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.lines.len()));
        RecordBatch::try_new_with_options(SchemaRef::clone(projection), arrays, &options)
            .map_err(|error| BadLine::new(self.lines.first().copied().unwrap_or(1), error))
    }

    /// Tries each row alone.
    fn drop_bad_rows(&mut self, columns: &Columns, projection: &SchemaRef, read: ReadColumn) {
        let mut good = Rows::new(self.columns.len(), self.on_error, std::mem::take(&mut self.bad));
        for (row, line) in self.lines.iter().enumerate() {
            let values: Vec<Option<&str>> = self.columns.iter().map(|column| column[row]).collect();
            let mut alone = Rows::new(self.columns.len(), self.on_error, vec![]);
            alone.push(*line, Ok(&values));
            match alone.batch(columns, projection, read) {
                Ok(_) => good.push(*line, Ok(&values)),
                Err(bad) => good.push(*line, Err(bad.reason)),
            };
        }
        good.bad.sort_by_key(|bad| bad.line);
        *self = good;
    }
}
