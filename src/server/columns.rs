//! Arrow types as Postgres types.
//!
//! `arrow-pg` encodes the values it is right for. The others are converted a batch at a time before it sees them: it has no
//! vectors, panics on `FixedSizeList` and on large decimals, and writes NULL intervals as values.

use std::sync::Arc;

use arrow_pg::datatypes::into_pg_type;
use arrow_pg::encoder::encode_value;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringArray, TimestampMicrosecondArray};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Decimal256Type, Field, FieldRef, TimeUnit, TimestampMicrosecondType};
use datafusion::arrow::error::ArrowError;
use pgwire::api::Type;
use pgwire::api::results::{DataRowEncoder, FieldFormat, FieldInfo};
use pgwire::error::PgWireResult;
use rolloutdb_udfs::TextType;

use super::response::client_error;
use super::{json, numeric, vector};
use crate::engine::pg_catalog::PG_TYPE;

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
        let (pg_type, conversion) = match (TextType::of(field), TextType::of_items(field)) {
            (Some(text_type), _) => (text_wire_type(text_type), Conversion::Cast(DataType::Utf8)),
            (None, Some(item)) => (array_wire_type(item), Conversion::Cast(DataType::new_list(DataType::Utf8, true))),
            (None, None) => presentation(&plain),
        };
        let pg_type = catalog_wire_type(field).unwrap_or(pg_type);
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
                let value = text_type_value(self.values.as_string::<i32>().value(row), self.field.datatype(), self.field.format())?;
                self.encode_raw(&value, encoder)
            }
            DataType::List(_) if self.field.format() == FieldFormat::Binary => match own_item_type(self.field.datatype()) {
                Some(item_type) => {
                    let items = self.values.as_list::<i32>().value(row);
                    self.encode_raw(&binary_array(items.as_string::<i32>(), &item_type)?, encoder)
                }
                None => encode_value(encoder, &self.values, row, &self.arrow_field, &self.field),
            },
            _ => encode_value(encoder, &self.values, row, &self.arrow_field, &self.field),
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

/// The binary form of jsonb has a version before its text, that of a uuid is its sixteen bytes.
fn text_type_value(text: &str, pg_type: &Type, format: FieldFormat) -> PgWireResult<Vec<u8>> {
    match (format, pg_type) {
        (FieldFormat::Binary, &Type::JSONB) => Ok([&[1], text.as_bytes()].concat()),
        (FieldFormat::Binary, &Type::UUID) => {
            let hexadecimal = text.replace('-', "");
            rolloutdb_udfs::parse_bytea(&format!("\\x{hexadecimal}")).map_err(|error| client_error("22P02", error.to_string()))
        }
        _ => Ok(text.as_bytes().to_vec()),
    }
}

/// The type of the items of arrays whose binary form is written here.
fn own_item_type(array: &Type) -> Option<Type> {
    match *array {
        Type::JSON_ARRAY => Some(Type::JSON),
        Type::JSONB_ARRAY => Some(Type::JSONB),
        Type::UUID_ARRAY => Some(Type::UUID),
        _ => None,
    }
}

/// The binary form of an array: dimensions, whether there are NULLs, the type of the items; size and lower bound; length and bytes of each item.
fn binary_array(items: &StringArray, item_type: &Type) -> PgWireResult<Vec<u8>> {
    // Lengths are those of a message, which PostgreSQL counts in signed integers.
    let length = |length: usize| (length as i32).to_be_bytes();
    let num_dimensions = usize::from(!items.is_empty());
    let mut bytes = [length(num_dimensions), length(usize::from(items.null_count() > 0)), item_type.oid().to_be_bytes()].concat();
    if !items.is_empty() {
        bytes.extend([length(items.len()), length(1)].concat());
    }
    for item in items {
        match item {
            None => bytes.extend((-1_i32).to_be_bytes()),
            Some(text) => {
                let value = text_type_value(text, item_type, FieldFormat::Binary)?;
                bytes.extend(length(value.len()));
                bytes.extend(value);
            }
        }
    }
    Ok(bytes)
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
        TextType::Varchar(_) => Type::VARCHAR,
        TextType::Char(_) => Type::BPCHAR,
    }
}

fn array_wire_type(item: TextType) -> Type {
    match item {
        TextType::Json => Type::JSON_ARRAY,
        TextType::Jsonb => Type::JSONB_ARRAY,
        TextType::Uuid => Type::UUID_ARRAY,
        TextType::Varchar(_) => Type::VARCHAR_ARRAY,
        TextType::Char(_) => Type::BPCHAR_ARRAY,
    }
}

/// The type of a column of a catalog table whose Arrow type stands for another one, such as `oid`.
fn catalog_wire_type(field: &Field) -> Option<Type> {
    let item_is = |wanted: &DataType| matches!(field.data_type(), DataType::List(item) if item.data_type() == wanted);
    let (is_number, is_text) = (*field.data_type() == DataType::Int32, *field.data_type() == DataType::Utf8);
    // An expression over such a column may carry its metadata, and be of another type.
    Some(match field.metadata().get(PG_TYPE)?.as_str() {
        "oid" if is_number => Type::OID,
        "xid" if is_number => Type::XID,
        "name" if is_text => Type::NAME,
        "char" if is_text => Type::CHAR,
        "varchar" if is_text => Type::VARCHAR,
        "_oid" if item_is(&DataType::Int32) => Type::OID_ARRAY,
        "_name" if item_is(&DataType::Utf8) => Type::NAME_ARRAY,
        "_char" if item_is(&DataType::Utf8) => Type::CHAR_ARRAY,
        _ => return None,
    })
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
        Type::BOOL | Type::CHAR => 1,
        Type::INT2 => 2,
        Type::INT4 | Type::FLOAT4 | Type::DATE | Type::OID | Type::XID => 4,
        Type::INT8 | Type::FLOAT8 | Type::TIME | Type::TIMESTAMP | Type::TIMESTAMPTZ => 8,
        Type::INTERVAL | Type::UUID => 16,
        Type::NAME => 64,
        _ => -1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_of_uuid_and_jsonb_have_postgres_binary_form() {
        let keys = StringArray::from(vec![Some("f47ac10b-58cc-4372-a567-0e02b2c3d479"), None]);
        let bytes = binary_array(&keys, &Type::UUID).expect("it is written");
        // One dimension, with NULLs, of type 2950; two items, counted from 1.
        assert_eq!(bytes[..20], [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 11, 134, 0, 0, 0, 2, 0, 0, 0, 1]);
        assert_eq!((bytes.len(), &bytes[20..26]), (44, [0, 0, 0, 16, 0xf4, 0x7a].as_slice()));
        assert_eq!(bytes[40..], [255; 4]);
        let facts = StringArray::from(vec!["{}"]);
        assert_eq!(binary_array(&facts, &Type::JSONB).expect("it is written")[20..], [0, 0, 0, 3, 1, b'{', b'}']);
        let nothing = StringArray::from(Vec::<Option<&str>>::new());
        assert_eq!(binary_array(&nothing, &Type::UUID).expect("it is written"), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11, 134]);
    }
}
