//! Operators and types by the names that SQL has for them.

use datafusion::sql::sqlparser::ast::{ArrayElemTypeDef, BinaryOperator, DataType as SqlType, ExactNumberInfo, ObjectName, TimezoneInfo};

use super::bind_expression::array_of;
use super::bind_select::{last, parts_of};
use super::{Binary, BindError, BindResult};
use crate::engine::pg_catalog::types::{Kind, PgType, type_named};

pub(super) fn yields_bool(operator: Binary) -> bool {
    matches!(
        operator,
        Binary::Equal
            | Binary::NotEqual
            | Binary::Less
            | Binary::LessOrEqual
            | Binary::Greater
            | Binary::GreaterOrEqual
            | Binary::Overlaps
            | Binary::Contains
            | Binary::ContainedIn
    )
}

pub(super) fn operator_of(operator: &BinaryOperator) -> Option<Binary> {
    let regex = |ignore_case, negated| Binary::Regex { ignore_case, negated };
    let like = |ignore_case, negated| Binary::Like { ignore_case, negated };
    Some(match operator {
        BinaryOperator::Eq => Binary::Equal,
        BinaryOperator::NotEq => Binary::NotEqual,
        BinaryOperator::Lt => Binary::Less,
        BinaryOperator::LtEq => Binary::LessOrEqual,
        BinaryOperator::Gt => Binary::Greater,
        BinaryOperator::GtEq => Binary::GreaterOrEqual,
        BinaryOperator::Plus => Binary::Add,
        BinaryOperator::Minus => Binary::Subtract,
        BinaryOperator::Multiply => Binary::Multiply,
        BinaryOperator::Divide => Binary::Divide,
        BinaryOperator::Modulo => Binary::Modulo,
        BinaryOperator::BitwiseAnd => Binary::BitAnd,
        BinaryOperator::BitwiseOr => Binary::BitOr,
        BinaryOperator::PGBitwiseShiftLeft => Binary::ShiftLeft,
        BinaryOperator::PGBitwiseShiftRight => Binary::ShiftRight,
        BinaryOperator::PGOverlap => Binary::Overlaps,
        BinaryOperator::AtArrow => Binary::Contains,
        BinaryOperator::ArrowAt => Binary::ContainedIn,
        BinaryOperator::PGRegexMatch => regex(false, false),
        BinaryOperator::PGRegexIMatch => regex(true, false),
        BinaryOperator::PGRegexNotMatch => regex(false, true),
        BinaryOperator::PGRegexNotIMatch => regex(true, true),
        BinaryOperator::PGLikeMatch => like(false, false),
        BinaryOperator::PGILikeMatch => like(true, false),
        BinaryOperator::PGNotLikeMatch => like(false, true),
        BinaryOperator::PGNotILikeMatch => like(true, true),
        // OPERATOR(pg_catalog.~)
        BinaryOperator::PGCustomBinaryOperator(parts) => match parts.last()?.as_str() {
            "=" => Binary::Equal,
            "<>" => Binary::NotEqual,
            "<" => Binary::Less,
            "<=" => Binary::LessOrEqual,
            ">" => Binary::Greater,
            ">=" => Binary::GreaterOrEqual,
            "+" => Binary::Add,
            "-" => Binary::Subtract,
            "~" => regex(false, false),
            "~*" => regex(true, false),
            "!~" => regex(false, true),
            "!~*" => regex(true, true),
            "~~" => like(false, false),
            "~~*" => like(true, false),
            "!~~" => like(false, true),
            "!~~*" => like(true, true),
            "&&" => Binary::Overlaps,
            "@>" => Binary::Contains,
            "<@" => Binary::ContainedIn,
            _ => return None,
        },
        _ => return None,
    })
}

/// The type that a cast names.
pub(super) fn pg_type(sql_type: &SqlType) -> BindResult<PgType> {
    let one = |kind| Ok(PgType::One(kind));
    match sql_type {
        SqlType::Bool | SqlType::Boolean => one(Kind::Bool),
        SqlType::SmallInt(_) | SqlType::Int2(_) => one(Kind::Int2),
        SqlType::Int(_) | SqlType::Integer(_) | SqlType::Int4(_) => one(Kind::Int4),
        SqlType::BigInt(_) | SqlType::Int8(_) => one(Kind::Int8),
        SqlType::Real | SqlType::Float4 | SqlType::Float(ExactNumberInfo::Precision(1..=24)) => one(Kind::Float4),
        SqlType::DoublePrecision | SqlType::Double(_) | SqlType::Float8 | SqlType::Float(_) => one(Kind::Float8),
        SqlType::Numeric(_) | SqlType::Decimal(_) | SqlType::Dec(_) => one(Kind::Numeric),
        SqlType::Text | SqlType::String(_) => one(Kind::Text),
        SqlType::Varchar(_) | SqlType::CharacterVarying(_) | SqlType::CharVarying(_) => one(Kind::Varchar),
        SqlType::Char(_) | SqlType::Character(_) => one(Kind::Bpchar),
        SqlType::Timestamp(_, TimezoneInfo::WithTimeZone | TimezoneInfo::Tz) => one(Kind::Timestamptz),
        SqlType::Timestamp(..) => one(Kind::Timestamp),
        SqlType::Regclass => one(Kind::RegClass),
        SqlType::Array(ArrayElemTypeDef::SquareBracket(item, _) | ArrayElemTypeDef::AngleBracket(item)) => array_of(&pg_type(item)?),
        SqlType::Custom(name, modifiers) if modifiers.is_empty() => custom_type(name),
        _ => Err(BindError::NotHere),
    }
}

fn custom_type(name: &ObjectName) -> BindResult<PgType> {
    let is_known_schema = match parts_of(name)?.as_slice() {
        [_] => true,
        [schema, _] => matches!(schema.as_str(), "pg_catalog" | "public" | "information_schema"),
        _ => false,
    };
    let bare = last(name)?;
    // Quoted or not, the last part is the name in pg_type.
    match Kind::named(&bare).map(PgType::One).or_else(|| type_named(&bare)) {
        Some(known) if is_known_schema => Ok(known),
        _ => Err(BindError::NotHere),
    }
}
