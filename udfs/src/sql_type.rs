//! SQL types whose fields carry their name: texts with a rule, arrays of them, and `numeric` without declared digits.

use std::sync::Arc;

use arrow::datatypes::FieldRef;
use datafusion::common::not_impl_err;
use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{ArrayElemTypeDef, CharacterLength, DataType, ExactNumberInfo};

use crate::numeric_in;
use crate::text_type::TextType;

/// The field of a column of the type; `None` for every other type.
///
/// # Errors
/// [`crate::Error::TextLength`]; arrays of arrays of such a type are not supported.
pub(crate) fn field(sql_type: &DataType) -> Result<Option<FieldRef>> {
    if let DataType::Numeric(ExactNumberInfo::None) | DataType::Decimal(ExactNumberInfo::None) | DataType::Dec(ExactNumberInfo::None) =
        sql_type
    {
        return Ok(Some(Arc::new(numeric_in::field(""))));
    }
    let field = match item_type(sql_type) {
        None => text_type(sql_type)?.map(|text_type| text_type.field("", true)),
        Some(item) => match (text_type(innermost_type(item))?, item_type(item)) {
            (Some(inner), Some(_)) => return not_impl_err!("arrays of arrays of {inner} are not supported"),
            (inner, _) => inner.map(|inner| inner.array_field("", true)),
        },
    };
    Ok(field.map(Arc::new))
}

fn text_type(sql_type: &DataType) -> Result<Option<TextType>> {
    Ok(Some(match sql_type {
        DataType::JSON => TextType::Json,
        DataType::JSONB => TextType::Jsonb,
        DataType::Uuid => TextType::Uuid,
        DataType::Varchar(length) | DataType::CharacterVarying(length) | DataType::CharVarying(length) => match length {
            Some(CharacterLength::IntegerLength { length, .. }) => TextType::varchar(*length)?,
            Some(CharacterLength::Max) | None => return Ok(None),
        },
        DataType::Char(length) | DataType::Character(length) => match length {
            Some(CharacterLength::IntegerLength { length, .. }) => TextType::char(*length)?,
            Some(CharacterLength::Max) => return Ok(None),
            // One character, as the standard has it.
            None => TextType::char(1)?,
        },
        DataType::Bit(length) => TextType::bit(length.unwrap_or(1))?,
        DataType::BitVarying(length) | DataType::VarBit(length) => match length {
            Some(length) => TextType::varbit(*length)?,
            None => TextType::Varbit(None),
        },
        _ => return Ok(None),
    }))
}

/// The type of an array's items. The length that PostgreSQL lets one write behind an array means nothing there either.
fn item_type(sql_type: &DataType) -> Option<&DataType> {
    match sql_type {
        DataType::Array(ArrayElemTypeDef::SquareBracket(item, _)) => Some(item.as_ref()),
        _ => None,
    }
}

fn innermost_type(mut sql_type: &DataType) -> &DataType {
    while let Some(item) = item_type(sql_type) {
        sql_type = item;
    }
    sql_type
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::{dialect::PostgreSqlDialect, parser::Parser};

    use super::*;

    fn planned(sql: &str) -> Result<Option<FieldRef>> {
        let parsed = Parser::new(&PostgreSqlDialect {}).try_with_sql(sql).expect("tokens").parse_data_type().expect("a type");
        field(&parsed)
    }

    #[test]
    fn types_with_a_name_are_told_from_others() {
        for (sql, expected) in [
            ("varchar(3)", TextType::Varchar(3)),
            ("character varying(3)", TextType::Varchar(3)),
            ("char(3)", TextType::Char(3)),
            ("character", TextType::Char(1)),
            ("uuid", TextType::Uuid),
        ] {
            let field = planned(sql).expect(sql).expect(sql);
            assert_eq!(TextType::of(&field), Some(expected), "{sql}");
            let arrays = planned(&format!("{sql}[]")).expect(sql).expect(sql);
            assert_eq!(TextType::of_items(&arrays), Some(expected), "{sql}[]");
        }
        assert!(numeric_in::is_plain_numeric(&planned("numeric").expect("a type").expect("ours")));
        for sql in ["text", "varchar", "varchar[]", "text[][]", "numeric(38, 10)", "bigint"] {
            assert_eq!(planned(sql).expect(sql), None, "{sql}");
        }
    }

    #[test]
    fn lengths_out_of_range_and_arrays_of_arrays_are_refused() {
        for sql in ["varchar(0)", "char(10485761)", "uuid[][]", "varchar(0)[]"] {
            assert!(planned(sql).is_err(), "{sql}");
        }
    }
}
