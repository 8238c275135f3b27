//! Arrow types as Postgres types.
//!
//! `arrow-pg` encodes the values it is right for. The others are converted a batch at a time before it sees them: it has no
//! vectors, panics on `FixedSizeList` and on large decimals, and writes NULL intervals as values.

use std::sync::Arc;

use arrow_pg::datatypes::into_pg_type;
use arrow_pg::encoder::encode_value;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, TimestampMicrosecondArray};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Decimal256Type, Field, FieldRef, TimeUnit, TimestampMicrosecondType};
use datafusion::arrow::error::ArrowError;
use pgwire::api::Type;
use pgwire::api::results::{DataRowEncoder, FieldFormat, FieldInfo};
use pgwire::error::PgWireResult;
use rolloutdb_udfs::TextType;

use super::response::client_error;
use super::{json, numeric, vector};

/// One column of a result as the client sees it.
pub(super) struct WireColumn {
    field: FieldInfo,
    /// The type that a batch's column must have before `conversion`; it is cast if it has another.
    plain: DataType,
    conversion: Conversion,
}

/// What is done to a column of the plain type so that its values can be written.
#[derive(Debug, Clone, PartialEq)]
enum Conversion {
    None,
    Cast(DataType),
    /// A vector as pgvector writes it.
    VectorText,
    /// What Postgres has no type for: structs, maps, lists of lists.
    Json,
    /// A decimal of any precision.
    Numeric,
}

impl WireColumn {
    pub(super) fn new(field: &Field, format: FieldFormat) -> Self {
        let plain = plain_type(field.data_type());
        let (pg_type, conversion) = match TextType::of(field) {
            Some(text_type) => (text_wire_type(text_type), Conversion::Cast(DataType::Utf8)),
            None => presentation(&plain),
        };
        let size = type_size(&pg_type);
        let field = FieldInfo::new(field.name().clone(), None, None, pg_type, format).with_type_size(size);
        Self { field, plain, conversion }
    }

    pub(super) fn field(&self) -> &FieldInfo {
        &self.field
    }

    /// The column of one batch, ready to be written.
    ///
    /// # Errors
    /// A value that its Postgres type cannot hold (22003).
    pub(super) fn prepare(&self, array: &ArrayRef) -> PgWireResult<PreparedColumn> {
        let converted = self.convert(array).map_err(|error| {
            client_error("22003", format!("column \"{}\" has a value that does not fit its type: {error}", self.field.name()))
        })?;
        Ok(PreparedColumn {
            arrow_field: Field::new(self.field.name(), converted.data_type().clone(), true),
            values: converted,
            field: self.field.clone(),
        })
    }

    fn convert(&self, array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        let plain = strict_cast(array, &self.plain)?;
        match &self.conversion {
            Conversion::None | Conversion::Numeric => Ok(plain),
            Conversion::Cast(target) => strict_cast(&plain, target),
            Conversion::VectorText => Ok(Arc::new(vector::to_text(plain.as_fixed_size_list())?)),
            Conversion::Json => Ok(Arc::new(json::to_text(&plain)?)),
        }
    }
}

/// A column of one batch whose values can be written.
pub(super) struct PreparedColumn {
    values: ArrayRef,
    arrow_field: Field,
    field: FieldInfo,
}

impl PreparedColumn {
    pub(super) fn encode(&self, row: usize, encoder: &mut DataRowEncoder) -> PgWireResult<()> {
        if self.values.is_null(row) {
            return encoder.encode_field_with_type_and_format(
                &None::<i8>,
                self.field.datatype(),
                self.field.format(),
                self.field.format_options(),
            );
        }
        match self.values.data_type() {
            DataType::Decimal128(_, _) => self.encode_numeric(&self.values.as_primitive::<Decimal128Type>().value_as_string(row), encoder),
            DataType::Decimal256(_, _) => self.encode_numeric(&self.values.as_primitive::<Decimal256Type>().value_as_string(row), encoder),
            DataType::Timestamp(TimeUnit::Microsecond, zone) if self.field.format() == FieldFormat::Text => {
                let text = instant_text(self.values.as_primitive::<TimestampMicrosecondType>(), row, zone.is_some());
                self.encode_raw(text.unwrap_or_else(|| "infinity".to_string()).as_bytes(), encoder)
            }
            DataType::Utf8 if matches!(*self.field.datatype(), Type::JSON | Type::JSONB | Type::UUID) => {
                self.encode_text_type(self.values.as_string::<i32>().value(row), encoder)
            }
            _ => encode_value(encoder, &self.values, row, &self.arrow_field, &self.field),
        }
    }

    /// The binary form of jsonb has a version before its text, that of a uuid is its sixteen bytes.
    fn encode_text_type(&self, text: &str, encoder: &mut DataRowEncoder) -> PgWireResult<()> {
        match (self.field.format(), self.field.datatype()) {
            (FieldFormat::Binary, &Type::JSONB) => self.encode_raw(&[&[1], text.as_bytes()].concat(), encoder),
            (FieldFormat::Binary, &Type::UUID) => {
                let hexadecimal = text.replace('-', "");
                let bytes = rolloutdb_udfs::parse_bytea(&format!("\\x{hexadecimal}"));
                self.encode_raw(&bytes.map_err(|error| client_error("22P02", error.to_string()))?, encoder)
            }
            _ => self.encode_raw(text.as_bytes(), encoder),
        }
    }

    fn encode_numeric(&self, decimal: &str, encoder: &mut DataRowEncoder) -> PgWireResult<()> {
        let bytes = match self.field.format() {
            FieldFormat::Text => decimal.as_bytes().to_vec(),
            FieldFormat::Binary => numeric::to_binary(decimal),
        };
        self.encode_raw(&bytes, encoder)
    }

    /// Writes the bytes as they are, for the binary form of bytea is the bytes themselves.
    fn encode_raw(&self, bytes: &[u8], encoder: &mut DataRowEncoder) -> PgWireResult<()> {
        encoder.encode_field_with_type_and_format(&bytes, &Type::BYTEA, FieldFormat::Binary, self.field.format_options())
    }
}

/// `2024-02-29 12:34:56.5`, with `+00` behind it for an instant, and no more digits than the fraction has. `None` beyond chrono's years.
fn instant_text(values: &TimestampMicrosecondArray, row: usize, has_zone: bool) -> Option<String> {
    let text = values.value_as_datetime(row)?.format("%Y-%m-%d %H:%M:%S%.6f").to_string();
    let text = text.trim_end_matches('0').trim_end_matches('.');
    Some(format!("{text}{}", if has_zone { "+00" } else { "" }))
}

/// The Postgres type that a column or parameter of this Arrow type has on the wire.
pub(super) fn wire_type(data_type: &DataType) -> Type {
    presentation(&plain_type(data_type)).0
}

/// The type of the same values without an encoding that only saves memory.
pub(super) fn plain_type(data_type: &DataType) -> DataType {
    match data_type {
        // A column without a type, as in SELECT NULL, is text.
        DataType::Null => DataType::Utf8,
        DataType::Dictionary(_, values) => plain_type(values),
        DataType::RunEndEncoded(_, values) => plain_type(values.data_type()),
        DataType::LargeList(element) | DataType::ListView(element) | DataType::LargeListView(element) => {
            DataType::List(with_type(element, plain_type(element.data_type())))
        }
        DataType::List(element) => DataType::List(with_type(element, plain_type(element.data_type()))),
        other => other.clone(),
    }
}

fn text_wire_type(text_type: TextType) -> Type {
    match text_type {
        TextType::Json => Type::JSON,
        TextType::Jsonb => Type::JSONB,
        TextType::Uuid => Type::UUID,
    }
}

fn presentation(plain: &DataType) -> (Type, Conversion) {
    match plain {
        DataType::FixedSizeList(element, _) if element.data_type().is_floating() => (Type::TEXT, Conversion::VectorText),
        DataType::List(element) | DataType::FixedSizeList(element, _) => array_presentation(element),
        _ => scalar_presentation(plain).unwrap_or((Type::JSON, Conversion::Json)),
    }
}

fn array_presentation(element: &FieldRef) -> (Type, Conversion) {
    let Some((_, conversion)) = scalar_presentation(&plain_type(element.data_type())) else {
        return (Type::JSON, Conversion::Json);
    };
    let target = match conversion {
        Conversion::Cast(target) => target,
        // arrow-pg's array of decimals stops at 28 digits, with a panic.
        Conversion::Numeric => DataType::Utf8,
        _ => plain_type(element.data_type()),
    };
    let list = DataType::List(with_type(element, target));
    match into_pg_type(&list) {
        Ok(pg_type) => (pg_type, Conversion::Cast(list)),
        Err(_) => (Type::JSON, Conversion::Json),
    }
}

/// `None`: not a scalar.
fn scalar_presentation(plain: &DataType) -> Option<(Type, Conversion)> {
    let utc = |zone: &Option<Arc<str>>| DataType::Timestamp(TimeUnit::Microsecond, zone.as_ref().map(|_| "+00:00".into()));
    let cast = match plain {
        DataType::Struct(_) | DataType::Map(_, _) | DataType::Union(_, _) => return None,
        DataType::List(_) | DataType::FixedSizeList(_, _) => return None,
        // As Postgres' row_number(): bigint; larger values are an error, never a wrong number.
        DataType::UInt64 => Some(DataType::Int64),
        DataType::Float16 => Some(DataType::Float32),
        DataType::Date64 => Some(DataType::Date32),
        DataType::FixedSizeBinary(_) => Some(DataType::Binary),
        // Postgres counts microseconds, and shows an instant in the session's time zone, which is UTC.
        DataType::Timestamp(_, zone) if *plain != utc(zone) => Some(utc(zone)),
        DataType::Decimal32(_, _) | DataType::Decimal64(_, _) => Some(DataType::Decimal128(38, decimal_scale(plain))),
        _ => None,
    };
    if plain.is_decimal() {
        return Some((Type::NUMERIC, cast.map_or(Conversion::Numeric, Conversion::Cast)));
    }
    let pg_type = into_pg_type(cast.as_ref().unwrap_or(plain)).ok()?;
    Some((pg_type, cast.map_or(Conversion::None, Conversion::Cast)))
}

fn decimal_scale(data_type: &DataType) -> i8 {
    match data_type {
        DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale) => *scale,
        _ => 0,
    }
}

fn with_type(element: &FieldRef, data_type: DataType) -> FieldRef {
    Arc::new(element.as_ref().clone().with_data_type(data_type))
}

/// A cast that fails where a value does not fit, rather than making it NULL.
fn strict_cast(array: &ArrayRef, target: &DataType) -> Result<ArrayRef, ArrowError> {
    if array.data_type() == target {
        return Ok(array.clone());
    }
    cast_with_options(array, target, &CastOptions { safe: false, ..CastOptions::default() })
}

/// `pg_type.typlen`: bytes of a value, -1 for a type of varying width.
fn type_size(pg_type: &Type) -> i16 {
    match *pg_type {
        Type::BOOL => 1,
        Type::INT2 => 2,
        Type::INT4 | Type::FLOAT4 | Type::DATE => 4,
        Type::INT8 | Type::FLOAT8 | Type::TIME | Type::TIMESTAMP | Type::TIMESTAMPTZ => 8,
        Type::INTERVAL | Type::UUID => 16,
        _ => -1,
    }
}
