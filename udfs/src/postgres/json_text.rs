//! Values as JSON, as PostgreSQL's `to_json` writes them: json as it is, numbers and truth values bare, arrays and records as theirs, all else a string of its text.

use arrow::array::{Array, ArrayRef, StringArray};
use arrow::datatypes::{DataType, Field};
use arrow::error::ArrowError;

use super::column::{Column, Items, Values};
use super::datetime;
use super::value_type::ValueType;

/// What reads the JSON that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonReader {
    /// SQL, which has the text of PostgreSQL.
    Sql,
    /// Whoever reads files of one value a line: none has a bare end of a line within, and a whole number in double precision keeps its point, by which the
    /// type of its column is found.
    Lines,
}

/// A column whose values can be written as JSON.
#[derive(Debug)]
pub struct JsonColumn {
    column: Column,
    form: Form,
    reader: JsonReader,
}

/// What becomes of the values of a column.
#[derive(Debug)]
enum Form {
    Scalar,
    Items(Box<Form>),
    /// The names of the columns, quoted.
    Members(Vec<(Vec<u8>, Form)>),
}

impl JsonColumn {
    /// # Errors
    /// As [`Column::new`].
    pub fn new(field: &Field, array: &ArrayRef, reader: JsonReader) -> Result<Self, ArrowError> {
        let field = field.clone().with_data_type(array.data_type().clone());
        let column = Column::new(&ValueType::of(&field), array)?;
        let form = Form::of(&column.values, array.data_type());
        Ok(Self { column, form, reader })
    }

    #[must_use]
    pub fn is_null(&self, row: usize) -> bool {
        self.column.is_null(row)
    }

    /// Writes the value of a row; NULL is `null`.
    pub fn write(&self, row: usize, out: &mut Vec<u8>) {
        write(&self.column, &self.form, self.reader, row, out);
    }

    /// The values as texts; `None` for NULL.
    pub fn texts(&self, num_rows: usize) -> impl Iterator<Item = Option<String>> + '_ {
        let mut buffer = Vec::new();
        (0..num_rows).map(move |row| {
            if self.is_null(row) {
                return None;
            }
            buffer.clear();
            self.write(row, &mut buffer);
            Some(String::from_utf8_lossy(&buffer).into_owned())
        })
    }
}

/// The values of a column as JSON for lines; NULL stays NULL.
///
/// # Errors
/// As [`JsonColumn::new`].
pub fn json_lines(field: &Field, array: &ArrayRef) -> Result<StringArray, ArrowError> {
    Ok(JsonColumn::new(field, array, JsonReader::Lines)?.texts(array.len()).collect())
}

impl Form {
    fn of(values: &Values, data_type: &DataType) -> Self {
        match (values, data_type) {
            (_, DataType::Dictionary(_, packed)) => Self::of(values, packed),
            (_, DataType::RunEndEncoded(_, packed)) => Self::of(values, packed.data_type()),
            (Values::Array(items), found) => Self::Items(Box::new(Self::of(&items.column.values, item_type(found)))),
            (Values::Record(columns), DataType::Struct(fields)) => {
                let names = fields.iter().map(|field| field.name().as_str()).collect::<Vec<_>>();
                // DataFusion's names for the columns of ROW(..), which are f1, f2 in PostgreSQL.
                let is_unnamed = names.iter().enumerate().all(|(place, name)| *name == format!("c{place}"));
                let name = |place: usize| if is_unnamed { format!("f{}", place + 1) } else { names[place].to_owned() };
                let members = columns.iter().zip(fields).enumerate().map(|(place, (column, field))| {
                    let mut key = Vec::new();
                    write_string(&name(place), &mut key);
                    (key, Self::of(&column.values, field.data_type()))
                });
                Self::Members(members.collect())
            }
            _ => Self::Scalar,
        }
    }
}

fn item_type(list: &DataType) -> &DataType {
    match list {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => item.data_type(),
        _ => &DataType::Null,
    }
}

fn write(column: &Column, form: &Form, reader: JsonReader, row: usize, out: &mut Vec<u8>) {
    if column.is_null(row) {
        return out.extend_from_slice(b"null");
    }
    match (&column.values, form) {
        (Values::Array(items), Form::Items(form)) => write_items(items, form, reader, row, out),
        (Values::Record(columns), Form::Members(members)) => {
            out.push(b'{');
            for (place, (column, (key, form))) in columns.iter().zip(members).enumerate() {
                out.extend_from_slice(if place > 0 { b"," } else { b"" });
                out.extend_from_slice(key);
                out.push(b':');
                write(column, form, reader, row, out);
            }
            out.push(b'}');
        }
        (Values::Vector(vectors) | Values::Halfvec(vectors), _) => {
            out.push(b'[');
            for (place, number) in vectors.get(row).iter().enumerate() {
                out.extend_from_slice(if place > 0 { b"," } else { b"" });
                write_float(f64::from(*number), reader, |out| super::float::write_f32(*number, out), out);
            }
            out.push(b']');
        }
        _ => write_scalar(column, reader, row, out),
    }
}

fn write_items(items: &Items, form: &Form, reader: JsonReader, row: usize, out: &mut Vec<u8>) {
    out.push(b'[');
    let range = items.range(row);
    for place in range.clone() {
        out.extend_from_slice(if place > range.start { b"," } else { b"" });
        write(&items.column, form, reader, place, out);
    }
    out.push(b']');
}

fn write_scalar(column: &Column, reader: JsonReader, row: usize, out: &mut Vec<u8>) {
    match &column.values {
        Values::Text(values) if column.value_type == ValueType::Json => write_embedded(values.value(row), reader, out),
        Values::Jsonb(values) => write_embedded(values.value(row), reader, out),
        Values::Text(values) | Values::Uuid(values) => write_string(values.value(row), out),
        // The blanks that SQL shows behind it are no part of the value.
        Values::Padded(values, _) if reader == JsonReader::Lines => write_string(values.value(row), out),
        Values::Bool(_) => column.write_word(row, out),
        Values::Int2(_) | Values::Int4(_) | Values::Int8(_) | Values::Oid(_) | Values::Numeric(_) | Values::WideNumeric(_) => {
            column.write_text(row, out);
        }
        Values::Float4(values) => write_float(f64::from(values.value(row)), reader, |out| column.write_text(row, out), out),
        Values::Float8(values) => write_float(values.value(row), reader, |out| column.write_text(row, out), out),
        Values::Timestamp(values) => write_quoted(|out| datetime::write_iso_timestamp(values.value(row), false, out), out),
        Values::Timestamptz(values) => write_quoted(|out| datetime::write_iso_timestamp(values.value(row), true, out), out),
        Values::Date(values) => write_quoted(|out| datetime::write_date(values.value(row), out), out),
        _ => write_quoted(|out| column.write_text(row, out), out),
    }
}

/// JSON has neither NaN nor infinity, which are strings then.
fn write_float(value: f64, reader: JsonReader, write_text: impl Fn(&mut Vec<u8>), out: &mut Vec<u8>) {
    if !value.is_finite() {
        return write_quoted(write_text, out);
    }
    let start = out.len();
    write_text(out);
    if reader == JsonReader::Lines && out[start..].iter().all(|byte| byte.is_ascii_digit() || *byte == b'-') {
        out.extend_from_slice(b".0");
    }
}

/// Of a value whose text may have anything in it.
fn write_quoted(write_text: impl Fn(&mut Vec<u8>), out: &mut Vec<u8>) {
    let mut text = Vec::new();
    write_text(&mut text);
    write_string(&String::from_utf8_lossy(&text), out);
}

fn write_string(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("a text becomes a string of JSON, and memory takes it");
}

/// Between the tokens of JSON a blank is as good as the end of a line, and within strings there is no bare one.
fn write_embedded(json: &str, reader: JsonReader, out: &mut Vec<u8>) {
    match reader {
        JsonReader::Sql => out.extend_from_slice(json.as_bytes()),
        JsonReader::Lines => out.extend(json.bytes().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte })),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Date32Array, Float64Array, ListArray, StructArray, TimestampMicrosecondArray};
    use arrow::datatypes::Float32Type;

    use super::*;
    use crate::TextType;

    fn written(field: &Field, array: &ArrayRef, reader: JsonReader) -> String {
        let column = JsonColumn::new(field, array, reader).expect("a column");
        let mut out = Vec::new();
        (0..array.len()).for_each(|row| {
            column.write(row, &mut out);
            out.push(b' ');
        });
        String::from_utf8(out).expect("text").trim_end().to_owned()
    }

    fn plain(array: ArrayRef) -> String {
        written(&Field::new("c", array.data_type().clone(), true), &array, JsonReader::Sql)
    }

    #[test]
    fn what_json_has_not_is_a_string() {
        let floats = Float64Array::from(vec![Some(1.0), Some(f64::NAN), Some(f64::NEG_INFINITY), Some(1e300), None, Some(0.5)]);
        assert_eq!(plain(Arc::new(floats.clone())), r#"1 "NaN" "-Infinity" 1e+300 null 0.5"#);
        let lines = written(&Field::new("c", DataType::Float64, true), &(Arc::new(floats) as ArrayRef), JsonReader::Lines);
        assert_eq!(lines, r#"1.0 "NaN" "-Infinity" 1e+300 null 0.5"#);
        assert_eq!(plain(Arc::new(Date32Array::from(vec![0, i32::MAX]))), r#""1970-01-01" "infinity""#);
        let instants = TimestampMicrosecondArray::from(vec![1_500_000, i64::MIN]);
        assert_eq!(plain(Arc::new(instants.clone())), r#""1970-01-01T00:00:01.5" "-infinity""#);
        assert_eq!(plain(Arc::new(instants.with_timezone("+00:00"))), r#""1970-01-01T00:00:01.5+00:00" "-infinity""#);
        let vectors = ListArray::from_iter_primitive::<Float32Type, _, _>([Some(vec![Some(1.5), None])]);
        assert_eq!(plain(Arc::new(vectors)), "[1.5,null]");
    }

    #[test]
    fn json_stays_json_in_arrays_and_records() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["{\"a\":\n1}", "[2]"]));
        assert_eq!(written(&TextType::Json.field("c", true), &texts, JsonReader::Lines), "{\"a\": 1} [2]");
        let fields = [Field::new("j\"", DataType::Utf8, true), Field::new("t", DataType::Utf8, true)];
        let records: ArrayRef = Arc::new(StructArray::from(vec![
            (Arc::new(fields[0].clone()), Arc::clone(&texts)),
            (Arc::new(fields[1].clone()), Arc::clone(&texts)),
        ]));
        let named = crate::NamedType::named("(jsonb,)").expect("a type");
        let field = named.field("r", records.data_type());
        assert_eq!(written(&field, &records.slice(1, 1), JsonReader::Sql), r#"{"j\"":[2],"t":"[2]"}"#);
    }
}
