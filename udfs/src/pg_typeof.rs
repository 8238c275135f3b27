use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray};
use arrow::datatypes::DataType;

use crate::function::{Function, Interface, Kind, Parameter, Returns};
use crate::postgres::text_out::type_of;
use crate::postgres::{CatalogType, ValueType};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "pg_typeof",
        section: "Text",
        description: "The name of a value's type, without its length or digits.",
        parameters: &[Parameter { name: "value", kind: Kind::Any, description: "Any value." }],
        required: 1,
        example: ("SELECT pg_typeof(ARRAY['a'])", "text[]"),
    },
    returns: Returns::Always(DataType::Utf8),
    kernel: |arguments| {
        let name = name(&type_of(arguments, 0)?);
        Ok(Arc::new(StringArray::from(vec![name.as_str(); arguments.num_rows()])) as ArrayRef)
    },
};

fn name(value_type: &ValueType) -> String {
    let name = match value_type {
        ValueType::Bool => "boolean",
        ValueType::Int2 => "smallint",
        ValueType::Int4 => "integer",
        ValueType::Int8 => "bigint",
        ValueType::Float4 => "real",
        ValueType::Float8 => "double precision",
        ValueType::Numeric(_) => "numeric",
        ValueType::Text => "text",
        ValueType::Varchar(_) => "character varying",
        ValueType::Char(_) => "character",
        ValueType::Json => "json",
        ValueType::Jsonb => "jsonb",
        ValueType::Uuid => "uuid",
        ValueType::Bit(_) => "bit",
        ValueType::Varbit(_) => "bit varying",
        ValueType::Bytea => "bytea",
        ValueType::Date => "date",
        ValueType::Time => "time without time zone",
        ValueType::Timestamp => "timestamp without time zone",
        ValueType::Timestamptz => "timestamp with time zone",
        ValueType::Interval => "interval",
        ValueType::Vector(_) => "vector",
        ValueType::Halfvec(_) => "halfvec",
        ValueType::Catalog(CatalogType::Oid) => "oid",
        ValueType::Catalog(CatalogType::Xid) => "xid",
        ValueType::Catalog(CatalogType::Name) => "name",
        ValueType::Catalog(CatalogType::Char) => "\"char\"",
        ValueType::Catalog(CatalogType::Int2Vector) => "int2vector",
        ValueType::Catalog(CatalogType::OidVector) => "oidvector",
        ValueType::Record(_) => "record",
        // Arrays of more dimensions are of the same type.
        ValueType::Array(_) => return format!("{}[]", name(value_type.innermost().0)),
    };
    name.to_owned()
}
