//! Which of PostgreSQL's types a column has.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, IntervalUnit, TimeUnit};

use crate::named_type::NamedType;
use crate::text_type::TextType;
use crate::{is_plain_numeric, numeric_type};

/// A type of PostgreSQL, or of pgvector, with what its modifier says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueType {
    Bool,
    Int2,
    Int4,
    Int8,
    Float4,
    Float8,
    /// Precision and scale; `None` where they were not declared.
    Numeric(Option<(u8, i8)>),
    Text,
    /// Its length in characters, where it has one.
    Varchar(Option<u32>),
    /// Its length in characters, up to which blanks are shown.
    Char(u32),
    Json,
    Jsonb,
    Uuid,
    Bytea,
    Date,
    Time,
    Timestamp,
    /// An instant, kept and shown in UTC.
    Timestamptz,
    Interval,
    /// pgvector's type, and its width; [`ANY_WIDTH`] where each value has its own.
    Vector(i32),
    Halfvec(i32),
    /// Its length in bits.
    Bit(u32),
    /// Its length in bits, where it has one.
    Varbit(Option<u32>),
    /// A type that only catalogs have.
    Catalog(CatalogType),
    /// A list; one of lists is an array of more dimensions.
    Array(Box<ValueType>),
    /// A struct, of which PostgreSQL shows the values.
    Record(Vec<ValueType>),
}

/// Types that columns of `pg_catalog` have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CatalogType {
    /// The number of an object, without a sign.
    Oid,
    /// The number of a transaction.
    Xid,
    /// The name of an object.
    Name,
    /// One byte that stands for a kind, `"char"`.
    Char,
    /// `int2vector`: numbers with blanks between them, which count from 0.
    Int2Vector,
    /// `oidvector`, the same of numbers of objects.
    OidVector,
}

/// The width of vectors whose type says none.
pub const ANY_WIDTH: i32 = 0;

/// Key of the metadata of a field whose type is one that Arrow does not tell: `oid`, `name`, `_name` for an array of them.
pub const PG_TYPE: &str = "rolloutdb.pg_type";

impl ValueType {
    /// The type of a field's values.
    #[must_use]
    pub fn of(field: &Field) -> Self {
        if let Some(text_type) = TextType::of(field) {
            return Self::of_text(text_type);
        }
        if is_plain_numeric(field) {
            return Self::Numeric(None);
        }
        if let Some(named) = field.metadata().get(PG_TYPE).and_then(|name| Self::named(name, field.data_type())) {
            return named;
        }
        match (TextType::of_items(field), NamedType::of_field(field)) {
            (Some(item), _) => Self::Array(Box::new(Self::of_text(item))),
            (None, Some(named)) => Self::of_named(&named, field.data_type()),
            (None, None) => Self::of_data(field.data_type()),
        }
    }

    /// The type of data of which more is known than the data tell.
    fn of_named(named: &NamedType, data_type: &DataType) -> Self {
        match (named, data_type) {
            (NamedType::Text(text_type), _) => Self::of_text(*text_type),
            (NamedType::Numeric, _) => Self::Numeric(None),
            (NamedType::Array(named), DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _)) => {
                Self::Array(Box::new(Self::of_named(named, item.data_type())))
            }
            (NamedType::Record(columns), DataType::Struct(fields)) => {
                let column = |(named, field): (&Option<NamedType>, &FieldRef)| match named {
                    Some(named) => Self::of_named(named, field.data_type()),
                    None => Self::of(field),
                };
                Self::Record(columns.iter().zip(fields).map(column).collect())
            }
            _ => Self::of_data(data_type),
        }
    }

    /// By the name in `pg_type`, of data that such a type has: an expression may carry the name on to others.
    fn named(name: &str, data_type: &DataType) -> Option<Self> {
        if let (Some(item), DataType::List(field)) = (name.strip_prefix('_'), data_type) {
            return Self::named(item, field.data_type()).map(|item| Self::Array(Box::new(item)));
        }
        let is_text = matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
        match name {
            "oid" if data_type.is_integer() => Some(Self::Catalog(CatalogType::Oid)),
            "xid" if data_type.is_integer() => Some(Self::Catalog(CatalogType::Xid)),
            "name" if is_text => Some(Self::Catalog(CatalogType::Name)),
            "char" if is_text => Some(Self::Catalog(CatalogType::Char)),
            "varchar" if is_text => Some(Self::Varchar(None)),
            "int2vector" if matches!(data_type, DataType::List(_)) => Some(Self::Catalog(CatalogType::Int2Vector)),
            "oidvector" if matches!(data_type, DataType::List(_)) => Some(Self::Catalog(CatalogType::OidVector)),
            "vector" if is_list_of(data_type, &DataType::Float32) => Some(Self::Vector(ANY_WIDTH)),
            "halfvec" if is_list_of(data_type, &DataType::Float16) => Some(Self::Halfvec(ANY_WIDTH)),
            _ => None,
        }
    }

    fn of_text(text_type: TextType) -> Self {
        match text_type {
            TextType::Json => Self::Json,
            TextType::Jsonb => Self::Jsonb,
            TextType::Uuid => Self::Uuid,
            TextType::Varchar(length) => Self::Varchar(Some(length)),
            TextType::Char(length) => Self::Char(length),
            TextType::Bit(length) => Self::Bit(length),
            TextType::Varbit(length) => Self::Varbit(length),
        }
    }

    fn of_data(data_type: &DataType) -> Self {
        match data_type {
            DataType::Boolean => Self::Bool,
            DataType::Int8 | DataType::Int16 | DataType::UInt8 => Self::Int2,
            DataType::Int32 | DataType::UInt16 => Self::Int4,
            // PostgreSQL's row_number() is a bigint too; a larger number is an error, never a wrong one.
            DataType::Int64 | DataType::UInt32 | DataType::UInt64 => Self::Int8,
            DataType::Float16 | DataType::Float32 => Self::Float4,
            DataType::Float64 => Self::Float8,
            DataType::Decimal32(precision, scale)
            | DataType::Decimal64(precision, scale)
            | DataType::Decimal128(precision, scale)
            | DataType::Decimal256(precision, scale) => Self::Numeric(Some((*precision, *scale))),
            // A column without a type, as in SELECT NULL, is text.
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null => Self::Text,
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => Self::Bytea,
            DataType::Date32 | DataType::Date64 => Self::Date,
            DataType::Time32(_) | DataType::Time64(_) => Self::Time,
            DataType::Timestamp(_, None) => Self::Timestamp,
            DataType::Timestamp(_, Some(_)) => Self::Timestamptz,
            DataType::Interval(_) | DataType::Duration(_) => Self::Interval,
            DataType::FixedSizeList(item, width) if *item.data_type() == DataType::Float32 => Self::Vector(*width),
            DataType::FixedSizeList(item, width) if *item.data_type() == DataType::Float16 => Self::Halfvec(*width),
            DataType::List(item)
            | DataType::LargeList(item)
            | DataType::ListView(item)
            | DataType::LargeListView(item)
            | DataType::FixedSizeList(item, _) => Self::Array(Box::new(Self::of(item))),
            DataType::Struct(fields) => Self::Record(fields.iter().map(|field| Self::of(field)).collect()),
            DataType::Dictionary(_, values) => Self::of_data(values),
            DataType::RunEndEncoded(_, values) => Self::of(values),
            // PostgreSQL has neither.
            DataType::Map(..) | DataType::Union(..) => Self::Json,
        }
    }

    /// The Arrow type in which values of this type are written, and to which they are read.
    #[must_use]
    pub fn data_type(&self) -> DataType {
        match self {
            Self::Bool => DataType::Boolean,
            Self::Int2 => DataType::Int16,
            Self::Int4 => DataType::Int32,
            Self::Int8 | Self::Catalog(CatalogType::Oid | CatalogType::Xid) => DataType::Int64,
            Self::Float4 => DataType::Float32,
            Self::Float8 => DataType::Float64,
            Self::Numeric(None) => numeric_type(),
            Self::Numeric(Some((precision, scale))) if *precision <= 38 => DataType::Decimal128(*precision, *scale),
            Self::Numeric(Some((precision, scale))) => DataType::Decimal256(*precision, *scale),
            Self::Catalog(CatalogType::Int2Vector | CatalogType::OidVector) => DataType::new_list(self.items().data_type(), true),
            Self::Text
            | Self::Varchar(_)
            | Self::Char(_)
            | Self::Json
            | Self::Jsonb
            | Self::Uuid
            | Self::Bit(_)
            | Self::Varbit(_)
            | Self::Catalog(_) => DataType::Utf8,
            Self::Bytea => DataType::Binary,
            Self::Date => DataType::Date32,
            Self::Time => DataType::Time64(TimeUnit::Microsecond),
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::Timestamptz => DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())),
            Self::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
            Self::Vector(width) => vector_of(DataType::Float32, *width),
            Self::Halfvec(width) => vector_of(DataType::Float16, *width),
            Self::Array(item) => DataType::List(Arc::new(Field::new_list_field(item.data_type(), true))),
            Self::Record(fields) => {
                let field = |(index, value_type): (usize, &Self)| Field::new(format!("f{}", index + 1), value_type.data_type(), true);
                DataType::Struct(fields.iter().enumerate().map(field).collect())
            }
        }
    }

    /// The type of the items of an array or of a vector of numbers; of other types themselves.
    pub(super) fn items(&self) -> &Self {
        match self {
            Self::Array(item) => item,
            Self::Catalog(CatalogType::Int2Vector) => &Self::Int2,
            Self::Catalog(CatalogType::OidVector) => &Self::Catalog(CatalogType::Oid),
            other => other,
        }
    }

    /// Whether it is one of the vectors of numbers that catalogs have, which are arrays whose items count from 0.
    #[must_use]
    pub fn counts_from_zero(&self) -> bool {
        matches!(self, Self::Catalog(CatalogType::Int2Vector | CatalogType::OidVector))
    }

    /// The type at the bottom of an array of any dimensions, and how many it has; of other types themselves and 0.
    #[must_use]
    pub fn innermost(&self) -> (&Self, usize) {
        match self {
            Self::Array(item) => {
                let (innermost, dimensions) = item.innermost();
                (innermost, dimensions + 1)
            }
            other => (other, 0),
        }
    }
}

fn vector_of(item: DataType, width: i32) -> DataType {
    let item = Arc::new(Field::new_list_field(item, true));
    if width == ANY_WIDTH { DataType::List(item) } else { DataType::FixedSizeList(item, width) }
}

fn is_list_of(data_type: &DataType, number: &DataType) -> bool {
    matches!(data_type, DataType::List(item) if item.data_type() == number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vector;

    #[test]
    fn a_type_follows_from_the_data_and_the_metadata() {
        let of = |data_type: DataType| ValueType::of(&Field::new("c", data_type, true));
        for (data_type, expected) in [
            (DataType::UInt8, ValueType::Int2),
            (DataType::UInt32, ValueType::Int8),
            (DataType::UInt64, ValueType::Int8),
            (DataType::Null, ValueType::Text),
            (DataType::Duration(TimeUnit::Second), ValueType::Interval),
            (DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)), ValueType::Text),
            (vector::vector_type(3), ValueType::Vector(3)),
            (vector::halfvec_type(3), ValueType::Halfvec(3)),
            (DataType::new_list(vector::vector_type(3), true), ValueType::Array(Box::new(ValueType::Vector(3)))),
            (DataType::new_fixed_size_list(DataType::Int64, 3, true), ValueType::Array(Box::new(ValueType::Int8))),
        ] {
            assert_eq!(of(data_type.clone()), expected, "{data_type}");
        }
        assert_eq!(ValueType::of(&TextType::Uuid.array_field("c", true)), ValueType::Array(Box::new(ValueType::Uuid)));
        let fields = vec![TextType::Char(3).field("a", true), Field::new("b", DataType::Int32, true)];
        assert_eq!(of(DataType::Struct(fields.into())), ValueType::Record(vec![ValueType::Char(3), ValueType::Int4]));
        let nested = of(DataType::new_list(DataType::new_list(DataType::Int32, true), true));
        assert_eq!(nested.innermost(), (&ValueType::Int4, 2));
    }

    #[test]
    fn columns_of_catalogs_carry_their_type() {
        let of = |data_type: DataType, name: &str| {
            let metadata = [(PG_TYPE.to_owned(), name.to_owned())].into();
            ValueType::of(&Field::new("c", data_type, true).with_metadata(metadata))
        };
        assert_eq!(of(DataType::Int32, "oid"), ValueType::Catalog(CatalogType::Oid));
        assert_eq!(of(DataType::Utf8, "char"), ValueType::Catalog(CatalogType::Char));
        assert_eq!(of(DataType::Utf8, "varchar"), ValueType::Varchar(None));
        let names = of(DataType::new_list(DataType::Utf8, true), "_name");
        assert_eq!(names, ValueType::Array(Box::new(ValueType::Catalog(CatalogType::Name))));
        assert_eq!(of(DataType::Float64, "oid"), ValueType::Float8);
        assert_eq!(of(DataType::new_list(DataType::Int16, true), "int2vector"), ValueType::Catalog(CatalogType::Int2Vector));
        assert_eq!(of(DataType::Utf8, "int2vector"), ValueType::Text);
        assert_eq!(ValueType::of(&vector::any_vector_field("c")), ValueType::Vector(ANY_WIDTH));
        assert_eq!(ValueType::of(&vector::any_halfvec_field("c")), ValueType::Halfvec(ANY_WIDTH));
    }
}
