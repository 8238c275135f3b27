//! PostgreSQL's types as far as clients meet them here: their numbers, their names, and which one a column of ours has.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, TimeUnit};
use rolloutdb_udfs::TextType;
use rolloutdb_udfs::postgres::{CatalogType, PG_TYPE, ValueType};

/// Numbers of pgvector's types and of their arrays. PostgreSQL gives an extension's types numbers when it is installed; these stay the same, below those of
/// what users make.
pub const VECTOR_OID: u32 = 16_380;
pub const VECTOR_ARRAY_OID: u32 = 16_381;
pub const HALFVEC_OID: u32 = 16_382;
pub const HALFVEC_ARRAY_OID: u32 = 16_383;

/// "No modifier" in `atttypmod`.
pub const NO_MODIFIER: i32 = -1;

/// A row of `pg_type`, but for its array type.
#[derive(Debug)]
pub struct TypeInfo {
    pub kind: Kind,
    pub oid: u32,
    /// 0: there is none.
    pub array_oid: u32,
    pub name: &'static str,
    /// As `format_type` gives it.
    pub sql_name: &'static str,
    /// `typlen`.
    pub length: i16,
    /// `typcategory`.
    pub category: char,
}

/// A type that is no array and no row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Bool,
    Bytea,
    Char,
    Name,
    Int8,
    Int2,
    Int2Vector,
    Int4,
    RegProc,
    Text,
    Oid,
    Tid,
    Xid,
    Cid,
    OidVector,
    Json,
    NodeTree,
    Float4,
    Float8,
    /// Of a literal that nothing gives a type, and of NULL.
    Unknown,
    AclItem,
    Bpchar,
    Varchar,
    Date,
    Time,
    Timestamp,
    Timestamptz,
    Interval,
    Bit,
    Numeric,
    RegProcedure,
    RegOperator,
    RegClass,
    RegType,
    Record,
    Cstring,
    Any,
    AnyArray,
    Void,
    /// Nothing here gives it, nor the next three; clients tell functions by them.
    Trigger,
    LanguageHandler,
    Internal,
    EventTrigger,
    AnyElement,
    Uuid,
    Jsonb,
    RegNamespace,
    RegRole,
    Vector,
    Halfvec,
    Varbit,
}

const fn info(kind: Kind, oid: u32, array_oid: u32, name: &'static str, sql_name: &'static str, length: i16, category: char) -> TypeInfo {
    TypeInfo { kind, oid, array_oid, name, sql_name, length, category }
}

/// PostgreSQL's numbers; `src/include/catalog/pg_type.dat` of version 16.
pub const TYPES: &[TypeInfo] = &[
    info(Kind::Bool, 16, 1000, "bool", "boolean", 1, 'B'),
    info(Kind::Bytea, 17, 1001, "bytea", "bytea", -1, 'U'),
    info(Kind::Char, 18, 1002, "char", "\"char\"", 1, 'Z'),
    info(Kind::Name, 19, 1003, "name", "name", 64, 'S'),
    info(Kind::Int8, 20, 1016, "int8", "bigint", 8, 'N'),
    info(Kind::Int2, 21, 1005, "int2", "smallint", 2, 'N'),
    info(Kind::Int2Vector, 22, 1006, "int2vector", "int2vector", -1, 'A'),
    info(Kind::Int4, 23, 1007, "int4", "integer", 4, 'N'),
    info(Kind::RegProc, 24, 1008, "regproc", "regproc", 4, 'N'),
    info(Kind::Text, 25, 1009, "text", "text", -1, 'S'),
    info(Kind::Oid, 26, 1028, "oid", "oid", 4, 'N'),
    info(Kind::Tid, 27, 1010, "tid", "tid", 6, 'U'),
    info(Kind::Xid, 28, 1011, "xid", "xid", 4, 'U'),
    info(Kind::Cid, 29, 1012, "cid", "cid", 4, 'U'),
    info(Kind::OidVector, 30, 1013, "oidvector", "oidvector", -1, 'A'),
    info(Kind::Json, 114, 199, "json", "json", -1, 'U'),
    info(Kind::NodeTree, 194, 0, "pg_node_tree", "pg_node_tree", -1, 'Z'),
    info(Kind::Float4, 700, 1021, "float4", "real", 4, 'N'),
    info(Kind::Float8, 701, 1022, "float8", "double precision", 8, 'N'),
    info(Kind::Unknown, 705, 0, "unknown", "unknown", -2, 'X'),
    info(Kind::AclItem, 1033, 1034, "aclitem", "aclitem", 16, 'U'),
    info(Kind::Bpchar, 1042, 1014, "bpchar", "character", -1, 'S'),
    info(Kind::Varchar, 1043, 1015, "varchar", "character varying", -1, 'S'),
    info(Kind::Date, 1082, 1182, "date", "date", 4, 'D'),
    info(Kind::Time, 1083, 1183, "time", "time without time zone", 8, 'D'),
    info(Kind::Timestamp, 1114, 1115, "timestamp", "timestamp without time zone", 8, 'D'),
    info(Kind::Timestamptz, 1184, 1185, "timestamptz", "timestamp with time zone", 8, 'D'),
    info(Kind::Interval, 1186, 1187, "interval", "interval", 16, 'T'),
    info(Kind::Bit, 1560, 1561, "bit", "bit", -1, 'V'),
    info(Kind::Numeric, 1700, 1231, "numeric", "numeric", -1, 'N'),
    info(Kind::RegProcedure, 2202, 2207, "regprocedure", "regprocedure", 4, 'N'),
    info(Kind::RegOperator, 2204, 2209, "regoperator", "regoperator", 4, 'N'),
    info(Kind::RegClass, 2205, 2210, "regclass", "regclass", 4, 'N'),
    info(Kind::RegType, 2206, 2211, "regtype", "regtype", 4, 'N'),
    info(Kind::Record, 2249, 2287, "record", "record", -1, 'P'),
    info(Kind::Cstring, 2275, 1263, "cstring", "cstring", -2, 'P'),
    info(Kind::Any, 2276, 0, "any", "\"any\"", 4, 'P'),
    info(Kind::AnyArray, 2277, 0, "anyarray", "anyarray", -1, 'P'),
    info(Kind::Void, 2278, 0, "void", "void", 4, 'P'),
    info(Kind::AnyElement, 2283, 0, "anyelement", "anyelement", 4, 'P'),
    info(Kind::Uuid, 2950, 2951, "uuid", "uuid", 16, 'U'),
    info(Kind::Jsonb, 3802, 3807, "jsonb", "jsonb", -1, 'U'),
    info(Kind::RegNamespace, 4089, 4090, "regnamespace", "regnamespace", 4, 'N'),
    info(Kind::RegRole, 4096, 4097, "regrole", "regrole", 4, 'N'),
    info(Kind::Vector, VECTOR_OID, VECTOR_ARRAY_OID, "vector", "vector", -1, 'U'),
    info(Kind::Halfvec, HALFVEC_OID, HALFVEC_ARRAY_OID, "halfvec", "halfvec", -1, 'U'),
    // Numbers of functions and of operator classes follow from the place in this list: later ones stand at its end.
    info(Kind::Trigger, 2279, 0, "trigger", "trigger", 4, 'P'),
    info(Kind::LanguageHandler, 2280, 0, "language_handler", "language_handler", 4, 'P'),
    info(Kind::Internal, 2281, 0, "internal", "internal", 8, 'P'),
    info(Kind::EventTrigger, 3838, 0, "event_trigger", "event_trigger", 4, 'P'),
    info(Kind::Varbit, 1562, 1563, "varbit", "bit varying", -1, 'V'),
];

impl Kind {
    pub fn info(self) -> &'static TypeInfo {
        TYPES.iter().find(|info| info.kind == self).expect("every kind is in the list")
    }

    /// By the name in `pg_type`, or by the words of SQL.
    pub fn named(name: &str) -> Option<Self> {
        let other = match name {
            "int" => "int4",
            "decimal" => "numeric",
            "regoper" => "regoperator",
            "sql_identifier" => "name",
            "character_data" | "yes_or_no" => "varchar",
            "cardinal_number" => "int4",
            "time_stamp" => "timestamptz",
            "float" => "float8",
            "string" => "text",
            other => other,
        };
        TYPES.iter().find(|info| info.name == other || (info.sql_name == other && info.kind != Self::Char)).map(|info| info.kind)
    }

    /// Types whose values are numbers of objects and whose text is the object's name.
    pub fn names_object(self) -> bool {
        matches!(
            self,
            Self::RegClass | Self::RegType | Self::RegProc | Self::RegProcedure | Self::RegOperator | Self::RegNamespace | Self::RegRole
        )
    }

    pub fn is_integer(self) -> bool {
        matches!(self, Self::Int2 | Self::Int4 | Self::Int8 | Self::Oid | Self::Xid | Self::Cid) || self.names_object()
    }

    pub fn is_text(self) -> bool {
        matches!(self, Self::Text | Self::Name | Self::Char | Self::Varchar | Self::Bpchar | Self::NodeTree | Self::Unknown | Self::Cstring)
    }

    pub fn is_time(self) -> bool {
        matches!(self, Self::Date | Self::Time | Self::Timestamp | Self::Timestamptz | Self::Interval)
    }

    /// Whether it is one of pgvector's, which are in the schema `public`.
    pub fn is_of_extension(self) -> bool {
        matches!(self, Self::Vector | Self::Halfvec)
    }
}

/// The type of an expression of a catalog query.
#[derive(Debug, Clone, PartialEq)]
pub enum PgType {
    One(Kind),
    Many(Kind),
    Record(Arc<[(String, PgType)]>),
    /// An array of rows with these fields.
    Records(Arc<[(String, PgType)]>),
}

pub const UNKNOWN: PgType = PgType::One(Kind::Unknown);

impl PgType {
    /// `oid`, `text[]`.
    pub fn named(name: &str) -> Option<Self> {
        match name.strip_suffix("[]") {
            Some(item) => Kind::named(item).map(Self::Many),
            None => Kind::named(name).map(Self::One),
        }
    }

    pub fn kind(&self) -> Option<Kind> {
        match self {
            Self::One(kind) => Some(*kind),
            _ => None,
        }
    }

    pub fn is_unknown(&self) -> bool {
        *self == UNKNOWN
    }

    /// Of the items of an array or of a vector of numbers.
    pub fn item(&self) -> Self {
        match self {
            Self::Many(kind) => Self::One(*kind),
            Self::One(Kind::Int2Vector) => Self::One(Kind::Int2),
            Self::One(Kind::OidVector) => Self::One(Kind::Oid),
            Self::Records(fields) => Self::Record(Arc::clone(fields)),
            _ => UNKNOWN,
        }
    }

    pub fn oid(&self) -> u32 {
        match self {
            Self::One(kind) => kind.info().oid,
            Self::Many(kind) => kind.info().array_oid,
            Self::Record(_) => Kind::Record.info().oid,
            Self::Records(_) => Kind::Record.info().array_oid,
        }
    }

    /// `bigint`, `text[]`.
    pub fn sql_name(&self) -> String {
        match self {
            Self::One(kind) => kind.info().sql_name.to_owned(),
            Self::Many(kind) => format!("{}[]", kind.info().sql_name),
            Self::Record(_) => "record".to_owned(),
            Self::Records(_) => "record[]".to_owned(),
        }
    }

    /// The field in which values of this type go out.
    pub fn field(&self, name: &str) -> Field {
        let (data_type, own_name) = match self {
            Self::One(kind) => (scalar(*kind), own_name(*kind).map(str::to_owned)),
            Self::Many(kind) => (
                DataType::new_list(scalar(*kind), true),
                own_name(*kind).filter(|_| kind.info().array_oid != 0).map(|name| format!("_{name}")),
            ),
            Self::Record(fields) => (row_of(fields), None),
            Self::Records(fields) => (DataType::new_list(row_of(fields), true), None),
        };
        let text_type = match self {
            Self::One(Kind::Json) => Some(TextType::Json),
            Self::One(Kind::Jsonb) => Some(TextType::Jsonb),
            Self::One(Kind::Uuid) => Some(TextType::Uuid),
            _ => None,
        };
        if let Some(text_type) = text_type {
            return text_type.field(name, true);
        }
        Field::new(name, data_type, true).with_metadata(own_name.map(|own| (PG_TYPE.to_owned(), own)).into_iter().collect())
    }
}

fn row_of(fields: &[(String, PgType)]) -> DataType {
    DataType::Struct(fields.iter().map(|(name, pg_type)| pg_type.field(name)).collect())
}

/// The Arrow type of a value. Names of objects go out as texts.
fn scalar(kind: Kind) -> DataType {
    match kind {
        Kind::Bool => DataType::Boolean,
        Kind::Int2 => DataType::Int16,
        Kind::Int4 | Kind::Oid | Kind::Xid | Kind::Cid => DataType::Int32,
        Kind::Int8 => DataType::Int64,
        Kind::Int2Vector => DataType::new_list(DataType::Int16, true),
        Kind::OidVector => DataType::new_list(DataType::Int32, true),
        Kind::Float4 => DataType::Float32,
        Kind::Float8 | Kind::Numeric => DataType::Float64,
        Kind::Timestamptz => DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())),
        Kind::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
        _ => DataType::Utf8,
    }
}

/// The type's name where the Arrow type stands for another one.
fn own_name(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Oid | Kind::Xid | Kind::Name | Kind::Char | Kind::Varchar | Kind::Int2Vector | Kind::OidVector => Some(kind.info().name),
        _ => None,
    }
}

/// Type and modifier (`atttypmod`) of a column of a table.
pub fn column_type(field: &Field) -> (PgType, i32) {
    let value_type = ValueType::of(field);
    let (innermost, dimensions) = value_type.innermost();
    let (kind, modifier) = kind_of(innermost);
    (if dimensions == 0 { PgType::One(kind) } else { PgType::Many(kind) }, modifier)
}

/// Of a type that is no array.
fn kind_of(value_type: &ValueType) -> (Kind, i32) {
    // After the four bytes of a header that PostgreSQL counts in.
    let length = |length: u32| i32::try_from(length).map_or(NO_MODIFIER, |length| length + HEADER);
    let kind = match value_type {
        ValueType::Varchar(Some(characters)) => return (Kind::Varchar, length(*characters)),
        ValueType::Char(characters) => return (Kind::Bpchar, length(*characters)),
        ValueType::Numeric(Some((precision, scale))) => return (Kind::Numeric, numeric_modifier(*precision, *scale)),
        ValueType::Bit(length) => return (Kind::Bit, i32::try_from(*length).unwrap_or(NO_MODIFIER)),
        ValueType::Varbit(length) => {
            return (Kind::Varbit, length.and_then(|length| i32::try_from(length).ok()).unwrap_or(NO_MODIFIER));
        }
        ValueType::Vector(width) => return (Kind::Vector, *width),
        ValueType::Halfvec(width) => return (Kind::Halfvec, *width),
        ValueType::Bool => Kind::Bool,
        ValueType::Int2 => Kind::Int2,
        ValueType::Int4 => Kind::Int4,
        ValueType::Int8 => Kind::Int8,
        ValueType::Float4 => Kind::Float4,
        ValueType::Float8 => Kind::Float8,
        ValueType::Numeric(None) => Kind::Numeric,
        ValueType::Text => Kind::Text,
        ValueType::Varchar(None) => Kind::Varchar,
        ValueType::Json => Kind::Json,
        ValueType::Jsonb => Kind::Jsonb,
        ValueType::Uuid => Kind::Uuid,
        ValueType::Bytea => Kind::Bytea,
        ValueType::Date => Kind::Date,
        ValueType::Time => Kind::Time,
        ValueType::Timestamp => Kind::Timestamp,
        ValueType::Timestamptz => Kind::Timestamptz,
        ValueType::Interval => Kind::Interval,
        ValueType::Catalog(CatalogType::Oid) => Kind::Oid,
        ValueType::Catalog(CatalogType::Xid) => Kind::Xid,
        ValueType::Catalog(CatalogType::Name) => Kind::Name,
        ValueType::Catalog(CatalogType::Char) => Kind::Char,
        ValueType::Catalog(CatalogType::Int2Vector) => Kind::Int2Vector,
        ValueType::Catalog(CatalogType::OidVector) => Kind::OidVector,
        ValueType::Record(_) | ValueType::Array(_) => Kind::Record,
    };
    (kind, NO_MODIFIER)
}

/// What `atttypmod` counts before what it says.
const HEADER: i32 = 4;

/// Precision and scale packed as `numeric(p, s)` has them.
fn numeric_modifier(precision: u8, scale: i8) -> i32 {
    ((i32::from(precision) << 16) | (i32::from(scale) & 0x7ff)) + HEADER
}

/// Precision and scale of a `numeric(p, s)`; `None` without them.
pub fn precision_and_scale(modifier: i32) -> Option<(i32, i32)> {
    let packed = modifier.checked_sub(HEADER).filter(|packed| *packed >= 0)?;
    // The scale has eleven bits, of which the highest is its sign.
    Some((packed >> 16, ((packed & 0x7ff) ^ 0x400) - 0x400))
}

/// `format_type(oid, modifier)`; `None`: no such type.
pub fn format_type(oid: u32, modifier: Option<i32>) -> Option<String> {
    let is_it = |info: &&TypeInfo| info.oid == oid || (info.array_oid == oid && oid != 0);
    let info = TYPES.iter().find(is_it)?;
    let brackets = if info.oid == oid { "" } else { "[]" };
    let modifier = modifier.filter(|modifier| *modifier >= 0);
    let name = match (info.kind, modifier) {
        (Kind::Varchar | Kind::Bpchar, Some(modifier)) if modifier > 4 => format!("{}({})", info.sql_name, modifier - 4),
        // Without a length `character` would mean one character.
        (Kind::Bpchar, None) => "bpchar".to_owned(),
        (Kind::Numeric, Some(modifier)) => match precision_and_scale(modifier) {
            Some((precision, scale)) => format!("numeric({precision},{scale})"),
            None => info.sql_name.to_owned(),
        },
        (Kind::Vector | Kind::Halfvec, Some(width)) if width > 0 => format!("{}({width})", info.name),
        _ => info.sql_name.to_owned(),
    };
    Some(format!("{name}{brackets}"))
}

/// The type with this number.
pub fn type_of_oid(oid: u32) -> Option<PgType> {
    let info = TYPES.iter().find(|info| info.oid == oid || (info.array_oid == oid && oid != 0))?;
    Some(if info.oid == oid { PgType::One(info.kind) } else { PgType::Many(info.kind) })
}

/// The type that a text names, as `to_regtype` and `'...'::regtype` read it: `bigint`, `pg_catalog.int8[]`, `varchar(3)`, `_text`.
pub fn type_named(text: &str) -> Option<PgType> {
    let text = text.trim();
    let text = ["pg_catalog.", "public."].iter().find_map(|schema| text.strip_prefix(schema)).unwrap_or(text);
    let (text, is_array) = match text.strip_suffix("[]") {
        Some(item) => (item.trim_end(), true),
        None => (text, false),
    };
    let bare = match text.split_once('(') {
        Some((name, rest)) => format!("{}{}", name.trim_end(), rest.split_once(')').map_or("", |(_, after)| after)),
        None => text.to_owned(),
    };
    if bare == "\"char\"" {
        return Some(if is_array { PgType::Many(Kind::Char) } else { PgType::One(Kind::Char) });
    }
    let quoted = bare.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let bare = quoted.map_or_else(|| bare.to_lowercase(), str::to_owned);
    if let Some(item) = bare.strip_prefix('_') {
        return TYPES.iter().find(|info| info.name == item && info.array_oid != 0).map(|info| PgType::Many(info.kind));
    }
    let kind = match bare.as_str() {
        "timestamp" => Kind::Timestamp,
        "time" => Kind::Time,
        "char" => Kind::Bpchar,
        other => Kind::named(other)?,
    };
    Some(if is_array { PgType::Many(kind) } else { PgType::One(kind) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_named_as_in_postgres() {
        let named = |text: &str, modifier| type_named(text).and_then(|named| format_type(named.oid(), modifier));
        for (text, modifier, expected) in [
            ("bigint", None, "bigint"),
            ("pg_catalog.int8[]", None, "bigint[]"),
            ("_text", None, "text[]"),
            ("varchar(3)", Some(7), "character varying(3)"),
            ("numeric", Some(655_366), "numeric(10,2)"),
            ("vector", Some(384), "vector(384)"),
            ("public.halfvec", Some(-1), "halfvec"),
            ("timestamp with time zone", None, "timestamp with time zone"),
            ("\"char\"", None, "\"char\""),
            ("character", None, "bpchar"),
        ] {
            assert_eq!(named(text, modifier).as_deref(), Some(expected), "{text}");
        }
        assert_eq!((type_named("nothing"), format_type(4_000_000, None)), (None, None));
    }

    #[test]
    fn every_number_is_one_type() {
        let mut oids: Vec<u32> = TYPES.iter().flat_map(|info| [info.oid, info.array_oid]).filter(|oid| *oid != 0).collect();
        let count = oids.len();
        oids.sort_unstable();
        oids.dedup();
        assert_eq!(oids.len(), count);
        assert!(oids.iter().all(|oid| *oid < 16_384), "tables have the numbers from 16384 on");
    }

    #[test]
    fn columns_have_the_types_that_they_were_declared_with() {
        let vector = DataType::FixedSizeList(Arc::new(Field::new_list_field(DataType::Float32, true)), 3);
        let cases = [
            (Field::new("c", vector, true), (PgType::One(Kind::Vector), 3)),
            (Field::new("c", DataType::new_list(DataType::Int64, true), true), (PgType::Many(Kind::Int8), -1)),
            (Field::new("c", DataType::Decimal128(10, 2), true), (PgType::One(Kind::Numeric), 655_366)),
            (rolloutdb_udfs::numeric_field("c"), (PgType::One(Kind::Numeric), -1)),
            (TextType::Varchar(3).field("c", true), (PgType::One(Kind::Varchar), 7)),
            (TextType::Uuid.array_field("c", true), (PgType::Many(Kind::Uuid), -1)),
            (PgType::One(Kind::Oid).field("c"), (PgType::One(Kind::Oid), -1)),
            (PgType::Many(Kind::Oid).field("c"), (PgType::Many(Kind::Oid), -1)),
        ];
        for (field, expected) in cases {
            assert_eq!(column_type(&field), expected, "{field}");
        }
    }
}
