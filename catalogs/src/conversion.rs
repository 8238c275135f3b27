//! Arrow types of a query to the types that are stored, and batches of an INSERT to the columns of a table.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, FixedSizeListArray, RecordBatch, RecordBatchOptions, UInt64Array, new_null_array};
use arrow::compute::{CastOptions, cast_with_options, take};
use arrow::datatypes::{ArrowPrimitiveType, DataType, Field, Float16Type, Float32Type, Float64Type, Schema, SchemaRef};

use crate::{Error, Result};

/// The stored form of a schema: text as Utf8, lists as List, vectors as FixedSizeList of Float32 or Float16. Views, dictionaries
/// and large offsets are how a query computes, not what a column is; an untyped NULL column becomes text, as in Postgres.
///
/// # Errors
/// [`Error::NotSupported`] for a type that a table can not hold, [`Error::InvalidName`] for a column's name.
pub fn storage_schema(schema: &Schema) -> Result<SchemaRef> {
    let mut fields = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        check_name(field.name(), &fields)?;
        let data_type = storage_type(field.data_type());
        let field = field.as_ref().clone().with_data_type(data_type);
        check_storable(&field)?;
        fields.push(field);
    }
    Ok(Arc::new(Schema::new(fields)))
}

/// Lance finds columns without regard to case and reads dots and backticks as paths: such names would miss their column.
fn check_name(name: &str, earlier: &[Field]) -> Result<()> {
    let invalid = |reason: &str| Error::InvalidName { kind: "column", name: name.to_owned(), reason: reason.to_owned() };
    if name.is_empty() {
        return Err(invalid("it is empty"));
    }
    if name.contains(['.', '`']) {
        return Err(invalid("it has a dot or a backtick"));
    }
    if matches!(name, "_rowid" | "_rowaddr" | "_distance" | "_score") {
        return Err(invalid("the storage uses it"));
    }
    if earlier.iter().any(|field| field.name().eq_ignore_ascii_case(name)) {
        return Err(invalid("another column has the same name but for upper and lower case"));
    }
    Ok(())
}

fn storage_type(data_type: &DataType) -> DataType {
    let item = |field: &Field| Arc::new(field.clone().with_data_type(storage_type(field.data_type())));
    match data_type {
        DataType::Utf8View | DataType::LargeUtf8 | DataType::Null => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::Dictionary(_, value) => storage_type(value),
        DataType::List(field) | DataType::LargeList(field) | DataType::ListView(field) | DataType::LargeListView(field) => {
            DataType::List(item(field))
        }
        DataType::FixedSizeList(field, width) if field.data_type().is_floating() => {
            let precision = if *field.data_type() == DataType::Float16 { DataType::Float16 } else { DataType::Float32 };
            DataType::FixedSizeList(Arc::new(field.as_ref().clone().with_data_type(precision)), *width)
        }
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(|field| item(field)).collect()),
        other => other.clone(),
    }
}

fn check_storable(field: &Field) -> Result<()> {
    let schema = Schema::new(vec![field.clone()]);
    match lance_core::datatypes::Schema::try_from(&schema) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::NotSupported(format!(
            "column \"{}\" has type {}, which a table can not store; cast it",
            field.name(),
            field.data_type()
        ))),
    }
}

/// Matches the columns of `batch` to `schema` by position (DataFusion's contract for INSERT), casts them, and fills
/// missing trailing columns with NULL. The result carries `schema`; NOT NULL is checked later, where it can be named.
///
/// # Errors
/// [`Error::WrongType`] for too many columns, a value that the column's type can not hold, or a vector of another width.
pub(crate) fn convert(table: &str, batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let width = schema.fields().len();
    if batch.num_columns() > width {
        return Err(Error::WrongType {
            what: format!("a row for table \"{table}\""),
            found: format!("{} columns wide", batch.num_columns()),
            expected: format!("at most {width}"),
        });
    }
    let mut columns = Vec::with_capacity(width);
    for (position, field) in schema.fields().iter().enumerate() {
        columns.push(match batch.columns().get(position) {
            Some(column) => with_plain_nans(convert_column(table, column, field)?),
            None => new_null_array(field.data_type(), batch.num_rows()),
        });
    }
    for (column, field) in columns.iter().zip(schema.fields()) {
        if has_null_element(column) {
            return Err(Error::NullElement { table: table.to_owned(), column: field.name().clone() });
        }
        if !field.is_nullable() && column.null_count() > 0 {
            return Err(Error::NotNull { table: table.to_owned(), column: field.name().clone() });
        }
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
}

/// Refuses new vectors with numbers that none holds, whatever file or expression they come from. Rows that were stored before that was refused may be
/// written anew as they are.
///
/// # Errors
/// [`Error::NotFinite`] with the first column.
pub(crate) fn check_finite(table: &str, batch: &RecordBatch) -> Result<()> {
    for (column, field) in batch.columns().iter().zip(batch.schema_ref().fields()) {
        if let Some(found) = column.as_fixed_size_list_opt().and_then(not_finite) {
            return Err(Error::NotFinite { table: table.to_owned(), column: field.name().clone(), found });
        }
    }
    Ok(())
}

/// What the first such number is; `None` if all are finite.
pub(crate) fn not_finite(vectors: &FixedSizeListArray) -> Option<&'static str> {
    let word = |is_nan: bool| if is_nan { "NaN" } else { "infinite value" };
    let numbers = vectors.values();
    if let Some(numbers) = numbers.as_primitive_opt::<Float32Type>() {
        // As a rule all are finite, whatever lies under a NULL.
        if numbers.values().iter().all(|number| number.is_finite()) {
            return None;
        }
        return in_rows(vectors, |place| {
            Some(numbers.value(place)).filter(|number| !number.is_finite()).map(|number| word(number.is_nan()))
        });
    }
    let numbers = numbers.as_primitive_opt::<Float16Type>()?;
    if numbers.values().iter().all(|number| number.is_finite()) {
        return None;
    }
    in_rows(vectors, |place| Some(numbers.value(place)).filter(|number| !number.is_finite()).map(|number| word(number.is_nan())))
}

/// What is found first in the rows that are not NULL.
fn in_rows<T>(vectors: &FixedSizeListArray, find: impl Fn(usize) -> Option<T>) -> Option<T> {
    let width = usize::try_from(vectors.value_length()).unwrap_or_default();
    let rows = (0..vectors.len()).filter(|row| vectors.is_valid(*row));
    rows.flat_map(|row| row * width..(row + 1) * width).find_map(find)
}

/// A vector that is not NULL but has a NULL in it: a search would read whatever number lies under it.
fn has_null_element(column: &ArrayRef) -> bool {
    let Some(vectors) = column.as_fixed_size_list_opt() else { return false };
    vectors.values().null_count() > 0 && vectors.iter().flatten().any(|vector| vector.null_count() > 0)
}

fn convert_column(table: &str, column: &ArrayRef, field: &Field) -> Result<ArrayRef> {
    check_width(table, column, field)?;
    if column.data_type() == field.data_type() {
        return Ok(column.clone());
    }
    // Arrow's cast of lists to vectors takes the first numbers of the buffer, whichever rows the lists are.
    let from_start = match (column.data_type(), field.data_type()) {
        (DataType::List(_) | DataType::LargeList(_), DataType::FixedSizeList(..)) => {
            take(column, &UInt64Array::from_iter_values(0..column.len() as u64), None)?
        }
        _ => Arc::clone(column),
    };
    // Not `safe`: a value that does not fit is an error, never a silent NULL.
    let strict = CastOptions { safe: false, ..Default::default() };
    cast_with_options(&from_start, field.data_type(), &strict).map_err(|error| Error::WrongType {
        what: format!("column \"{}\" of table \"{table}\"", field.name()),
        found: format!("{} ({error})", column.data_type()),
        expected: field.data_type().to_string(),
    })
}

/// A NaN without the sign that a computed one may have: filters of the storage compare bits, and would not find it.
fn with_plain_nans(column: ArrayRef) -> ArrayRef {
    fn plain<T: ArrowPrimitiveType>(column: ArrayRef, nan: T::Native, is_nan: fn(T::Native) -> bool) -> ArrayRef {
        let numbers = column.as_primitive::<T>();
        if !numbers.values().iter().any(|number| is_nan(*number)) {
            return column;
        }
        Arc::new(numbers.unary::<_, T>(|number| if is_nan(number) { nan } else { number }))
    }
    match column.data_type() {
        DataType::Float64 => plain::<Float64Type>(column, f64::NAN, f64::is_nan),
        DataType::Float32 => plain::<Float32Type>(column, f32::NAN, f32::is_nan),
        _ => column,
    }
}

/// Arrow reports a list of another width in terms of offsets; say it in terms of vectors.
fn check_width(table: &str, column: &ArrayRef, field: &Field) -> Result<()> {
    let DataType::FixedSizeList(_, expected) = field.data_type() else { return Ok(()) };
    let found = match column.data_type() {
        DataType::FixedSizeList(_, found) => (found != expected).then_some(*found),
        DataType::List(_) => {
            let lists = column.as_list::<i32>();
            (0..lists.len()).filter(|row| lists.is_valid(*row)).map(|row| lists.value_length(row)).find(|found| found != expected)
        }
        _ => None,
    };
    match found {
        None => Ok(()),
        Some(found) => Err(Error::Width { table: table.to_owned(), column: field.name().clone(), found, expected: *expected }),
    }
}
