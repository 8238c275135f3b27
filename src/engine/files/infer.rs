//! Names and types of columns, from the first rows of text files.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use rolloutdb_udfs::{numeric_array_field, numeric_field, numeric_type};

use super::json::{elements, members, unquoted};
use super::numbers::Numbers;
use super::rows::{Columns, OnError};
use super::scan::TextFormat;
use super::{CsvOptions, bad_input, csv, jsonl, open_text};
use crate::error::{Error, Result};

/// Rows of each file that are looked at unless `sample_size` says otherwise.
pub const SAMPLE_ROWS: usize = 1000;
/// Of many files, this many are looked at.
pub const SAMPLE_FILES: usize = 16;

/// The columns of text files, in the order in which their names come: boolean, bigint, double precision, numeric, text, and arrays of these. Objects,
/// nested arrays and arrays of several types are text. NULL goes with every type, and numbers have the first type that keeps all their digits; anything
/// else that differs is text.
///
/// # Errors
/// [`Error::Io`]; [`Error::BadInput`] for a bad line unless those are skipped, and if there are no columns at all.
pub fn columns(paths: &[impl AsRef<Path>], format: TextFormat, sample_rows: usize, on_error: OnError) -> Result<Columns> {
    let mut sample = Sample::default();
    for path in paths.iter().take(SAMPLE_FILES) {
        match format {
            TextFormat::Jsonl => sample.add_jsonl(path.as_ref(), sample_rows, on_error)?,
            TextFormat::Csv(options) => sample.add_csv(path.as_ref(), options, sample_rows, on_error)?,
        }
    }
    if sample.names.is_empty() {
        let path = paths.first().map(AsRef::as_ref).unwrap_or(Path::new(""));
        let reason = "no rows to find the columns in; name them: columns => 'name type, ...'";
        return Err(bad_input(path, None, reason));
    }
    let fields = sample.names.iter().zip(&sample.kinds).map(|(name, kind)| kind.field(name));
    Ok(Columns { schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())), sampled_rows: Some(sample_rows) })
}

#[derive(Default)]
struct Sample {
    names: Vec<String>,
    kinds: Vec<Kind>,
    positions: HashMap<String, usize>,
}

impl Sample {
    fn add(&mut self, name: &str, kind: Kind) {
        match self.positions.get(name) {
            Some(position) => self.kinds[*position] = self.kinds[*position].with(kind),
            None => {
                self.positions.insert(name.to_owned(), self.names.len());
                self.names.push(name.to_owned());
                self.kinds.push(kind);
            }
        }
    }

    fn add_jsonl(&mut self, path: &Path, sample_rows: usize, on_error: OnError) -> Result<()> {
        let mut blocks = jsonl::Blocks::new(path, open_text(path)?, on_error)?;
        let mut num_rows = 0;
        jsonl::for_each_record(&mut blocks, |record| {
            // Of a bad line not even the first keys count.
            let mut row = Vec::new();
            members(record, |key, value| {
                row.push((unquoted(key)?, Kind::of_json(value)));
                Ok(())
            })?;
            for (name, kind) in row {
                self.add(&name, kind);
            }
            num_rows += 1;
            Ok(num_rows < sample_rows)
        })
    }

    fn add_csv(&mut self, path: &Path, options: CsvOptions, sample_rows: usize, on_error: OnError) -> Result<()> {
        let mut blocks = csv::Blocks::new(path, open_text(path)?, options)?;
        let header: Option<Vec<String>> = blocks.header().map(<[String]>::to_vec);
        let name = |index: usize| header.as_ref().map_or_else(|| csv::column_name(index, ""), |header| header[index].clone());
        for index in 0..header.as_ref().map_or(0, Vec::len) {
            self.add(&name(index), Kind::Null);
        }
        let mut num_rows = 0;
        csv::for_each_record(&mut blocks, on_error, |record| {
            if header.as_ref().is_some_and(|header| header.len() != record.len()) {
                return Err(format!("expected {} fields, found {}", header.as_ref().map_or(0, Vec::len), record.len()));
            }
            for (index, field) in record.iter().enumerate() {
                self.add(&name(index), Kind::of_text(field));
            }
            num_rows += 1;
            Ok(num_rows < sample_rows)
        })
    }
}

/// What the values of a column have in common.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
enum Kind {
    #[default]
    Null,
    Scalar(Scalar),
    /// Of one type; `None` while all are empty.
    List(Option<Scalar>),
    /// Only their JSON text.
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Scalar {
    Boolean,
    Number(Numbers),
    Text,
}

impl Kind {
    /// Of a valid JSON value.
    fn of_json(value: &str) -> Self {
        match value.as_bytes().first() {
            Some(b'"') => Self::Scalar(Scalar::Text),
            Some(b't' | b'f') => Self::Scalar(Scalar::Boolean),
            Some(b'n') => Self::Null,
            Some(b'{') | None => Self::Json,
            Some(b'[') => Self::of_array(value),
            Some(_) => Self::Scalar(Scalar::Number(Numbers::of(value))),
        }
    }

    fn of_array(value: &str) -> Self {
        let mut all = Self::List(None);
        let result = elements(value, |element| {
            all = match Self::of_json(element) {
                Self::Null => all,
                Self::Scalar(scalar) => all.with(Self::List(Some(scalar))),
                Self::List(_) | Self::Json => Self::Json,
            };
            Ok(())
        });
        result.map_or(Self::Json, |()| all)
    }

    /// Of a field of CSV. A number with leading zeros is a text: `007` is an identifier.
    fn of_text(field: &str) -> Self {
        let digits = field.trim_start_matches(['-', '+']);
        let is_number =
            digits.starts_with(|first: char| first.is_ascii_digit() || first == '.') && digits.contains(|any: char| any.is_ascii_digit());
        let has_leading_zero = digits.len() > 1 && digits.starts_with('0') && !digits.starts_with("0.");
        match field {
            "" => Self::Null,
            field if field.eq_ignore_ascii_case("true") || field.eq_ignore_ascii_case("false") => Self::Scalar(Scalar::Boolean),
            _ if !is_number || has_leading_zero => Self::Scalar(Scalar::Text),
            field if field.parse::<f64>().is_ok() => Self::Scalar(Scalar::Number(Numbers::of(field))),
            _ => Self::Scalar(Scalar::Text),
        }
    }

    fn with(self, other: Self) -> Self {
        match (self, other) {
            (Self::Null, kind) | (kind, Self::Null) => kind,
            (Self::Scalar(a), Self::Scalar(b)) => Self::Scalar(a.with(b).unwrap_or(Scalar::Text)),
            (Self::List(None), Self::List(item)) | (Self::List(item), Self::List(None)) => Self::List(item),
            (Self::List(Some(a)), Self::List(Some(b))) => a.with(b).map_or(Self::Json, |item| Self::List(Some(item))),
            _ => Self::Json,
        }
    }

    fn field(self, name: &str) -> Field {
        match self.data_type() {
            numeric if numeric == numeric_type() => numeric_field(name),
            arrays if arrays == DataType::new_list(numeric_type(), true) => numeric_array_field(name),
            data_type => Field::new(name, data_type, true),
        }
    }

    fn data_type(self) -> DataType {
        match self {
            Self::Null | Self::Json => DataType::Utf8,
            Self::Scalar(scalar) => scalar.data_type(),
            Self::List(item) => DataType::new_list(item.unwrap_or(Scalar::Text).data_type(), true),
        }
    }
}

impl Scalar {
    /// The type of both, if there is one that changes neither.
    fn with(self, other: Self) -> Option<Self> {
        match (self, other) {
            (a, b) if a == b => Some(a),
            (Self::Number(a), Self::Number(b)) => Some(Self::Number(a.with(b))),
            _ => None,
        }
    }

    fn data_type(self) -> DataType {
        match self {
            Self::Boolean => DataType::Boolean,
            Self::Number(numbers) => numbers.data_type(),
            Self::Text => DataType::Utf8,
        }
    }
}

/// # Errors
/// [`Error::InvalidParameter`] for a sample of no rows.
pub fn sample_rows(value: i64) -> Result<usize> {
    match value {
        // As in DuckDB.
        -1 => Ok(usize::MAX),
        rows if rows > 0 => Ok(rows as usize),
        rows => Err(Error::InvalidParameter {
            name: "sample_size".to_owned(),
            found: rows.to_string(),
            expected: "1 or more rows, or -1 for all".to_owned(),
        }),
    }
}
