//! A column whose values are ready to be written.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Decimal256Array, Float32Array, Float64Array,
    Int16Array, Int32Array, Int64Array, IntervalMonthDayNanoArray, StringArray, Time64MicrosecondArray, TimestampMicrosecondArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Decimal256Type, DurationMicrosecondType, Field, FieldRef, Float32Type, Float64Type, Int16Type,
    Int32Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType,
};
use arrow::error::ArrowError;
use arrow::json::writer::{EncoderOptions, make_encoder};

use super::value_type::{ANY_WIDTH, CatalogType, ValueType};

/// The values of an array as those of a type. What Arrow has other ways to store is brought to one, a column at a time.
#[derive(Debug, Clone)]
pub struct Column {
    pub value_type: ValueType,
    pub values: Values,
    nulls: Option<NullBuffer>,
}

/// Values by the form in which they are written. What a NULL has here means nothing.
#[derive(Debug, Clone)]
pub enum Values {
    Bool(BooleanArray),
    Int2(Int16Array),
    Int4(Int32Array),
    Int8(Int64Array),
    Oid(Int64Array),
    Float4(Float32Array),
    Float8(Float64Array),
    Numeric(Decimal128Array),
    WideNumeric(Decimal256Array),
    Text(StringArray),
    /// Texts, and the number of characters up to which blanks follow.
    Padded(StringArray, usize),
    Jsonb(StringArray),
    Uuid(StringArray),
    /// Digits 0 and 1.
    Bits(StringArray),
    Bytea(BinaryArray),
    Date(Date32Array),
    Time(Time64MicrosecondArray),
    Timestamp(TimestampMicrosecondArray),
    Timestamptz(TimestampMicrosecondArray),
    Interval(IntervalMonthDayNanoArray),
    Vector(Vectors),
    Halfvec(Vectors),
    Array(Box<Items>),
    Record(Vec<Column>),
}

/// The numbers of vectors, one after the other.
#[derive(Debug, Clone)]
pub struct Vectors {
    numbers: Float32Array,
    widths: Widths,
}

#[derive(Debug, Clone)]
enum Widths {
    One(usize),
    /// Each vector has its own: where it begins and ends.
    Own(OffsetBuffer<i32>),
}

/// The items of arrays, one after the other.
#[derive(Debug, Clone)]
pub struct Items {
    pub column: Column,
    offsets: OffsetBuffer<i32>,
}

impl Vectors {
    /// The numbers of one vector.
    #[must_use]
    pub fn get(&self, row: usize) -> &[f32] {
        let range = match &self.widths {
            Widths::One(width) => row * width..(row + 1) * width,
            Widths::Own(offsets) => offsets[row] as usize..offsets[row + 1] as usize,
        };
        &self.numbers.values()[range]
    }
}

impl Vectors {
    /// Of all vectors together.
    pub(super) fn num_numbers(&self) -> usize {
        self.numbers.len()
    }
}

impl Items {
    /// Where the items of one array are in the column.
    #[must_use]
    pub fn range(&self, row: usize) -> std::ops::Range<usize> {
        self.offsets[row] as usize..self.offsets[row + 1] as usize
    }
}

impl Column {
    /// # Errors
    /// [`ArrowError::CastError`] and the like for an array that is not of this type, and for one with a value that the type cannot hold.
    pub fn new(value_type: &ValueType, array: &ArrayRef) -> Result<Self, ArrowError> {
        let array = &unpacked(array)?;
        let values = match value_type {
            ValueType::Array(_) | ValueType::Catalog(CatalogType::Int2Vector | CatalogType::OidVector) => {
                let item = value_type.items();
                let lists = strict_cast(array, &DataType::List(Arc::new(Field::new_list_field(item_type(array, item), true))))?;
                let lists = lists.as_list::<i32>();
                let items = Items { column: Self::new(item, lists.values())?, offsets: lists.offsets().clone() };
                let nulls = lists.nulls().cloned();
                return Ok(Self { value_type: value_type.clone(), values: Values::Array(Box::new(items)), nulls });
            }
            ValueType::Record(types) => {
                let Some(records) = array.as_struct_opt().filter(|records| records.num_columns() == types.len()) else {
                    return Err(ArrowError::CastError(format!("cannot cast {} to a record of {} columns", array.data_type(), types.len())));
                };
                let columns = types.iter().zip(records.columns()).map(|(value_type, column)| Self::new(value_type, column));
                Values::Record(columns.collect::<Result<_, _>>()?)
            }
            ValueType::Vector(width) => Values::Vector(vectors(array, *width)?),
            ValueType::Halfvec(width) => Values::Halfvec(vectors(array, *width)?),
            ValueType::Interval if matches!(array.data_type(), DataType::Duration(_)) => Values::Interval(differences(array)?),
            ValueType::Json if !is_text(array.data_type()) => Values::Text(json_texts(array)?),
            scalar => scalar_values(scalar, &strict_cast(array, &scalar.data_type())?),
        };
        let nulls = match &values {
            // These may have been made anew, with NULLs of their own.
            Values::Text(texts) => texts.logical_nulls(),
            _ => array.logical_nulls(),
        };
        Ok(Self { value_type: value_type.clone(), values, nulls })
    }

    /// One of this column's decimals as a whole number and the digits of it that are behind the point. Of a numeric without declared digits zeros at the
    /// end are those of its type, which the value was not written with.
    #[must_use]
    pub fn decimal(&self, values: &Decimal128Array, row: usize) -> (i128, i8) {
        let (mut value, mut scale) = (values.value(row), values.scale());
        if self.value_type == ValueType::Numeric(None) {
            while scale > 0 && value % 10 == 0 {
                (value, scale) = (value / 10, scale - 1);
            }
        }
        (value, scale)
    }

    /// How many values there are, of arrays and records as of others.
    pub(super) fn num_rows(&self) -> u64 {
        let num_rows = match &self.values {
            Values::Bool(values) => values.len(),
            Values::Int2(values) => values.len(),
            Values::Int4(values) => values.len(),
            Values::Int8(values) | Values::Oid(values) => values.len(),
            Values::Float4(values) => values.len(),
            Values::Float8(values) => values.len(),
            Values::Numeric(values) => values.len(),
            Values::WideNumeric(values) => values.len(),
            Values::Text(values) | Values::Jsonb(values) | Values::Uuid(values) | Values::Bits(values) | Values::Padded(values, _) => {
                values.len()
            }
            Values::Bytea(values) => values.len(),
            Values::Date(values) => values.len(),
            Values::Time(values) => values.len(),
            Values::Timestamp(values) | Values::Timestamptz(values) => values.len(),
            Values::Interval(values) => values.len(),
            Values::Vector(vectors) | Values::Halfvec(vectors) => vectors.num_numbers(),
            Values::Array(items) => items.offsets.len() - 1,
            Values::Record(columns) => return columns.iter().map(Self::num_rows).max().unwrap_or(1),
        };
        num_rows as u64
    }

    #[must_use]
    pub fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }
}

/// `array` has the type of the value type.
fn scalar_values(value_type: &ValueType, array: &ArrayRef) -> Values {
    match value_type {
        ValueType::Bool => Values::Bool(array.as_boolean().clone()),
        ValueType::Int2 => Values::Int2(array.as_primitive::<Int16Type>().clone()),
        ValueType::Int4 => Values::Int4(array.as_primitive::<Int32Type>().clone()),
        ValueType::Int8 => Values::Int8(array.as_primitive::<Int64Type>().clone()),
        ValueType::Catalog(CatalogType::Oid | CatalogType::Xid) => Values::Oid(array.as_primitive::<Int64Type>().clone()),
        ValueType::Float4 => Values::Float4(array.as_primitive::<Float32Type>().clone()),
        ValueType::Float8 => Values::Float8(array.as_primitive::<Float64Type>().clone()),
        ValueType::Numeric(_) => match array.data_type() {
            DataType::Decimal256(..) => Values::WideNumeric(array.as_primitive::<Decimal256Type>().clone()),
            _ => Values::Numeric(array.as_primitive::<Decimal128Type>().clone()),
        },
        ValueType::Char(length) => Values::Padded(array.as_string::<i32>().clone(), *length as usize),
        ValueType::Jsonb => Values::Jsonb(array.as_string::<i32>().clone()),
        ValueType::Uuid => Values::Uuid(array.as_string::<i32>().clone()),
        ValueType::Bit(_) | ValueType::Varbit(_) => Values::Bits(array.as_string::<i32>().clone()),
        ValueType::Bytea => Values::Bytea(array.as_binary::<i32>().clone()),
        ValueType::Date => Values::Date(array.as_primitive::<Date32Type>().clone()),
        ValueType::Time => Values::Time(array.as_primitive::<Time64MicrosecondType>().clone()),
        ValueType::Timestamp => Values::Timestamp(array.as_primitive::<TimestampMicrosecondType>().clone()),
        ValueType::Timestamptz => Values::Timestamptz(array.as_primitive::<TimestampMicrosecondType>().clone()),
        ValueType::Interval => Values::Interval(array.as_primitive::<IntervalMonthDayNanoType>().clone()),
        ValueType::Text | ValueType::Varchar(_) | ValueType::Json | ValueType::Catalog(CatalogType::Name | CatalogType::Char) => {
            Values::Text(array.as_string::<i32>().clone())
        }
        ValueType::Vector(_)
        | ValueType::Halfvec(_)
        | ValueType::Array(_)
        | ValueType::Record(_)
        | ValueType::Catalog(CatalogType::Int2Vector | CatalogType::OidVector) => {
            unreachable!("{value_type:?} is no scalar")
        }
    }
}

/// The values of an array that stores them once, or how often each comes.
fn unpacked(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    match array.data_type() {
        DataType::Dictionary(_, values) => strict_cast(array, values),
        DataType::RunEndEncoded(_, values) => strict_cast(array, values.data_type()),
        _ => Ok(Arc::clone(array)),
    }
}

/// The type of the items that an array has; of one that has none, such as a NULL, that of the value type.
fn item_type(array: &ArrayRef, item: &ValueType) -> DataType {
    match array.data_type() {
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _) => field.data_type().clone(),
        _ => item.data_type(),
    }
}

/// The numbers are those of single precision, which holds every number of half precision.
fn vectors(array: &ArrayRef, width: i32) -> Result<Vectors, ArrowError> {
    // A value that came with a width may stand for one of any width.
    let width = match array.data_type() {
        DataType::FixedSizeList(_, found) if width == ANY_WIDTH => *found,
        _ if width == ANY_WIDTH => return vectors_of_any_width(array),
        _ => width,
    };
    let item = Arc::new(Field::new_list_field(DataType::Float32, true));
    let array = strict_cast(array, &DataType::FixedSizeList(item, width))?;
    let lists = array.as_fixed_size_list();
    let first = usize::try_from(lists.value_offset(0)).unwrap_or(0);
    let width = usize::try_from(width).unwrap_or(0);
    let numbers = lists.values().slice(first, lists.len() * width);
    let numbers = numbers.as_primitive::<Float32Type>();
    if numbers.null_count() > 0 && (0..lists.len()).any(|row| lists.is_valid(row) && numbers.slice(row * width, width).null_count() > 0) {
        return Err(null_within());
    }
    Ok(Vectors { numbers: numbers.clone(), widths: Widths::One(width) })
}

fn vectors_of_any_width(array: &ArrayRef) -> Result<Vectors, ArrowError> {
    let lists = strict_cast(array, &DataType::new_list(DataType::Float32, true))?;
    let lists = lists.as_list::<i32>();
    let numbers = lists.values().as_primitive::<Float32Type>().clone();
    let range = |row: usize| (lists.value_offsets()[row] as usize, lists.value_length(row) as usize);
    let has_null = |row: usize| numbers.slice(range(row).0, range(row).1).null_count() > 0;
    if numbers.null_count() > 0 && (0..lists.len()).any(|row| lists.is_valid(row) && has_null(row)) {
        return Err(null_within());
    }
    Ok(Vectors { numbers, widths: Widths::Own(lists.offsets().clone()) })
}

fn null_within() -> ArrowError {
    ArrowError::CastError("a vector has no NULLs in it; cast it to real[]".to_owned())
}

/// The time between two instants, of which PostgreSQL makes whole days and the rest.
fn differences(array: &ArrayRef) -> Result<IntervalMonthDayNanoArray, ArrowError> {
    const MICROS_PER_DAY: i64 = 86_400_000_000;
    let micros = strict_cast(array, &DataType::Duration(TimeUnit::Microsecond))?;
    micros.as_primitive::<DurationMicrosecondType>().try_unary(|micros| {
        let days = i32::try_from(micros / MICROS_PER_DAY);
        let days = days.map_err(|_| ArrowError::ArithmeticOverflow("more days than an interval has".to_owned()))?;
        Ok(IntervalMonthDayNano::new(0, days, micros % MICROS_PER_DAY * 1_000))
    })
}

/// For what PostgreSQL has no type: maps and unions, which Arrow writes.
fn json_texts(array: &ArrayRef) -> Result<StringArray, ArrowError> {
    let array = &with_text_keys(array)?;
    let field: FieldRef = Arc::new(Field::new("value", array.data_type().clone(), true));
    let options = EncoderOptions::default().with_explicit_nulls(true);
    let mut encoder = make_encoder(&field, array.as_ref(), &options)?;
    let text = |row: usize| {
        let mut buffer = Vec::new();
        array.is_valid(row).then(|| {
            encoder.encode(row, &mut buffer);
            String::from_utf8_lossy(&buffer).into_owned()
        })
    };
    Ok((0..array.len()).map(text).collect())
}

/// A map with texts for keys, as JSON has them.
fn with_text_keys(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let DataType::Map(entries, is_sorted) = array.data_type() else { return Ok(Arc::clone(array)) };
    let DataType::Struct(fields) = entries.data_type() else { return Ok(Arc::clone(array)) };
    let columns = fields.iter().enumerate().map(|(place, field)| match place {
        0 => Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8)),
        _ => Arc::clone(field),
    });
    let entries = entries.as_ref().clone().with_data_type(DataType::Struct(columns.collect()));
    strict_cast(array, &DataType::Map(Arc::new(entries), *is_sorted))
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null)
}

/// A cast that fails where a value does not fit, rather than making it NULL.
fn strict_cast(array: &ArrayRef, target: &DataType) -> Result<ArrayRef, ArrowError> {
    if array.data_type() == target {
        return Ok(Arc::clone(array));
    }
    cast_with_options(array, target, &CastOptions { safe: false, ..CastOptions::default() })
}
