//! PostgreSQL's types and their numbers, for the types that values have.

use std::sync::LazyLock;

use pgwire::api::Type;
use rolloutdb_udfs::postgres::{ANY_WIDTH, CatalogType, ValueType};

use crate::engine::pg_catalog::{HALFVEC_ARRAY_OID, HALFVEC_OID, VECTOR_ARRAY_OID, VECTOR_OID};

static VECTOR: LazyLock<Type> = LazyLock::new(|| of_extension("vector", VECTOR_OID));
static VECTOR_ARRAY: LazyLock<Type> = LazyLock::new(|| of_extension("_vector", VECTOR_ARRAY_OID));
static HALFVEC: LazyLock<Type> = LazyLock::new(|| of_extension("halfvec", HALFVEC_OID));
static HALFVEC_ARRAY: LazyLock<Type> = LazyLock::new(|| of_extension("_halfvec", HALFVEC_ARRAY_OID));

fn of_extension(name: &str, oid: u32) -> Type {
    // Nobody asks for the kind here; that of text says that there is nothing within.
    Type::new(name.to_owned(), oid, Type::TEXT.kind().clone(), "public".to_owned())
}

/// The type of values on the wire.
pub(super) fn wire_type(value_type: &ValueType) -> Type {
    match value_type.innermost() {
        (scalar, 0) => scalar_type(scalar),
        (item, _) => array_type(item),
    }
}

fn scalar_type(value_type: &ValueType) -> Type {
    match value_type {
        ValueType::Bool => Type::BOOL,
        ValueType::Int2 => Type::INT2,
        ValueType::Int4 => Type::INT4,
        ValueType::Int8 => Type::INT8,
        ValueType::Float4 => Type::FLOAT4,
        ValueType::Float8 => Type::FLOAT8,
        ValueType::Numeric(_) => Type::NUMERIC,
        ValueType::Text => Type::TEXT,
        ValueType::Varchar(_) => Type::VARCHAR,
        ValueType::Char(_) => Type::BPCHAR,
        ValueType::Json => Type::JSON,
        ValueType::Jsonb => Type::JSONB,
        ValueType::Uuid => Type::UUID,
        ValueType::Bit(_) => Type::BIT,
        ValueType::Varbit(_) => Type::VARBIT,
        ValueType::Bytea => Type::BYTEA,
        ValueType::Date => Type::DATE,
        ValueType::Time => Type::TIME,
        ValueType::Timestamp => Type::TIMESTAMP,
        ValueType::Timestamptz => Type::TIMESTAMPTZ,
        ValueType::Interval => Type::INTERVAL,
        ValueType::Vector(_) => VECTOR.clone(),
        ValueType::Halfvec(_) => HALFVEC.clone(),
        ValueType::Catalog(CatalogType::Oid) => Type::OID,
        ValueType::Catalog(CatalogType::Xid) => Type::XID,
        ValueType::Catalog(CatalogType::Name) => Type::NAME,
        ValueType::Catalog(CatalogType::Char) => Type::CHAR,
        ValueType::Catalog(CatalogType::Int2Vector) => Type::INT2_VECTOR,
        ValueType::Catalog(CatalogType::OidVector) => Type::OID_VECTOR,
        ValueType::Record(_) => Type::RECORD,
        ValueType::Array(item) => array_type(item),
    }
}

fn array_type(item: &ValueType) -> Type {
    match item {
        ValueType::Bool => Type::BOOL_ARRAY,
        ValueType::Int2 => Type::INT2_ARRAY,
        ValueType::Int4 => Type::INT4_ARRAY,
        ValueType::Int8 => Type::INT8_ARRAY,
        ValueType::Float4 => Type::FLOAT4_ARRAY,
        ValueType::Float8 => Type::FLOAT8_ARRAY,
        ValueType::Numeric(_) => Type::NUMERIC_ARRAY,
        ValueType::Text => Type::TEXT_ARRAY,
        ValueType::Varchar(_) => Type::VARCHAR_ARRAY,
        ValueType::Char(_) => Type::BPCHAR_ARRAY,
        ValueType::Json => Type::JSON_ARRAY,
        ValueType::Jsonb => Type::JSONB_ARRAY,
        ValueType::Uuid => Type::UUID_ARRAY,
        ValueType::Bit(_) => Type::BIT_ARRAY,
        ValueType::Varbit(_) => Type::VARBIT_ARRAY,
        ValueType::Bytea => Type::BYTEA_ARRAY,
        ValueType::Date => Type::DATE_ARRAY,
        ValueType::Time => Type::TIME_ARRAY,
        ValueType::Timestamp => Type::TIMESTAMP_ARRAY,
        ValueType::Timestamptz => Type::TIMESTAMPTZ_ARRAY,
        ValueType::Interval => Type::INTERVAL_ARRAY,
        ValueType::Vector(_) => VECTOR_ARRAY.clone(),
        ValueType::Halfvec(_) => HALFVEC_ARRAY.clone(),
        ValueType::Catalog(CatalogType::Oid) => Type::OID_ARRAY,
        ValueType::Catalog(CatalogType::Xid) => Type::XID_ARRAY,
        ValueType::Catalog(CatalogType::Name) => Type::NAME_ARRAY,
        ValueType::Catalog(CatalogType::Char) => Type::CHAR_ARRAY,
        ValueType::Catalog(CatalogType::Int2Vector) => Type::INT2_VECTOR_ARRAY,
        ValueType::Catalog(CatalogType::OidVector) => Type::OID_VECTOR_ARRAY,
        ValueType::Record(_) => Type::RECORD_ARRAY,
        // Arrays of more dimensions have the type of those of one.
        ValueType::Array(item) => array_type(item),
    }
}

/// What a client may declare a parameter as, or name as the type of the items of an array. `None`: a type that there is not here.
pub(super) fn declared_type(oid: u32) -> Option<ValueType> {
    const SCALARS: &[ValueType] = &[
        ValueType::Bool,
        ValueType::Int2,
        ValueType::Int4,
        ValueType::Int8,
        ValueType::Float4,
        ValueType::Float8,
        ValueType::Numeric(None),
        ValueType::Text,
        ValueType::Varchar(None),
        ValueType::Json,
        ValueType::Jsonb,
        ValueType::Uuid,
        ValueType::Varbit(None),
        ValueType::Bytea,
        ValueType::Date,
        ValueType::Time,
        ValueType::Timestamp,
        ValueType::Timestamptz,
        ValueType::Interval,
        ValueType::Vector(ANY_WIDTH),
        ValueType::Halfvec(ANY_WIDTH),
        ValueType::Catalog(CatalogType::Oid),
        ValueType::Catalog(CatalogType::Xid),
        ValueType::Catalog(CatalogType::Name),
        ValueType::Catalog(CatalogType::Char),
    ];
    if oid == Type::BPCHAR.oid() || oid == Type::UNKNOWN.oid() || oid == Type::CSTRING.oid() {
        return Some(ValueType::Text);
    }
    // How many bits there are, a value says.
    if oid == Type::BIT.oid() {
        return Some(ValueType::Varbit(None));
    }
    if oid == Type::BIT_ARRAY.oid() {
        return Some(ValueType::Array(Box::new(ValueType::Varbit(None))));
    }
    if oid == Type::BPCHAR_ARRAY.oid() {
        return Some(ValueType::Array(Box::new(ValueType::Text)));
    }
    let is_scalar = |known: &&ValueType| scalar_type(known).oid() == oid;
    let is_array = |known: &&ValueType| array_type(known).oid() == oid;
    let scalar = SCALARS.iter().find(is_scalar).cloned();
    scalar.or_else(|| SCALARS.iter().find(is_array).map(|item| ValueType::Array(Box::new(item.clone()))))
}

/// The type that a client names in `Parse`; `None`: it leaves the type to the statement, or names one that there is not here.
pub(super) fn type_of_oid(oid: u32) -> Option<Type> {
    let extensions = [&VECTOR, &VECTOR_ARRAY, &HALFVEC, &HALFVEC_ARRAY];
    let of_extension = extensions.into_iter().find(|known| known.oid() == oid).map(|known| Type::clone(known));
    of_extension.or_else(|| Type::from_oid(oid))
}

/// `pg_type.typlen`: bytes of a value, -1 for a type of varying width.
pub(super) fn size(value_type: &ValueType) -> i16 {
    match value_type {
        ValueType::Bool | ValueType::Catalog(CatalogType::Char) => 1,
        ValueType::Int2 => 2,
        ValueType::Int4 | ValueType::Float4 | ValueType::Date | ValueType::Catalog(CatalogType::Oid | CatalogType::Xid) => 4,
        ValueType::Int8 | ValueType::Float8 | ValueType::Time | ValueType::Timestamp | ValueType::Timestamptz => 8,
        ValueType::Interval | ValueType::Uuid => 16,
        ValueType::Catalog(CatalogType::Name) => 64,
        _ => -1,
    }
}

/// `atttypmod`: what the type is limited to; -1: nothing. Lengths count the four bytes of a header that PostgreSQL has there.
pub(super) fn modifier(value_type: &ValueType) -> i32 {
    const NONE: i32 = -1;
    const HEADER: i32 = 4;
    match value_type.innermost().0 {
        ValueType::Varchar(Some(length)) | ValueType::Char(length) => i32::try_from(*length).map_or(NONE, |length| length + HEADER),
        ValueType::Numeric(Some((precision, scale))) => ((i32::from(*precision) << 16) | (i32::from(*scale) & 0x7ff)) + HEADER,
        ValueType::Vector(width) | ValueType::Halfvec(width) if *width != ANY_WIDTH => *width,
        ValueType::Bit(length) | ValueType::Varbit(Some(length)) => i32::try_from(*length).unwrap_or(NONE),
        _ => NONE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declared_number_finds_its_type() {
        for (oid, expected) in [
            (23, ValueType::Int4),
            (1009, ValueType::Array(Box::new(ValueType::Text))),
            (16_380, ValueType::Vector(0)),
            (16_383, ValueType::Array(Box::new(ValueType::Halfvec(0)))),
            (705, ValueType::Text),
            (1042, ValueType::Text),
            (18, ValueType::Catalog(CatalogType::Char)),
        ] {
            assert_eq!(declared_type(oid), Some(expected), "{oid}");
        }
        assert_eq!(declared_type(600), None, "point");
    }

    #[test]
    fn vectors_of_numbers_are_types_of_their_own() {
        assert_eq!(wire_type(&ValueType::Catalog(CatalogType::Int2Vector)).oid(), 22);
        assert_eq!(wire_type(&ValueType::Catalog(CatalogType::OidVector)).oid(), 30);
    }

    #[test]
    fn modifiers_are_those_of_postgres() {
        let modifier_of = |value_type| modifier(&value_type);
        assert_eq!(modifier_of(ValueType::Varchar(Some(3))), 7);
        assert_eq!(modifier_of(ValueType::Numeric(Some((10, 2)))), 655_366);
        assert_eq!(modifier_of(ValueType::Array(Box::new(ValueType::Vector(3)))), 3);
        assert_eq!((modifier_of(ValueType::Vector(ANY_WIDTH)), modifier_of(ValueType::Int4)), (-1, -1));
    }
}
