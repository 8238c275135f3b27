//! Modifiers of types, as the 3 of `vector(3)`.

use datafusion::sql::sqlparser::ast::{ArrayElemTypeDef, DataType};

use crate::error::{Error, Result};

/// Refuses `point('x, y')`: sqlparser drops the quotes and prints another type. No type of ours has a modifier that is a text.
///
/// # Errors
/// [`NotSupported`](crate::Error::NotSupported).
pub(crate) fn check_modifiers(data_type: &DataType) -> Result<()> {
    match data_type {
        DataType::Array(
            ArrayElemTypeDef::SquareBracket(item, _) | ArrayElemTypeDef::AngleBracket(item) | ArrayElemTypeDef::Parenthesis(item),
        ) => check_modifiers(item),
        DataType::Custom(name, modifiers) if !modifiers.iter().all(|modifier| is_word(modifier)) => {
            let feature = format!("a modifier of the type {name} that is neither a number nor a word");
            Err(Error::not_supported_but(feature, "leave it out, or write a number, as in vector(384)"))
        }
        _ => Ok(()),
    }
}

fn is_word(modifier: &str) -> bool {
    !modifier.is_empty() && modifier.chars().all(|character| character.is_alphanumeric() || character == '_')
}

#[cfg(test)]
mod tests {
    use crate::parse;

    #[test]
    fn a_modifier_is_a_number_or_a_word() {
        for text in [
            "SELECT CAST(x AS place('a, b'))",
            "SELECT x::place('')",
            "SELECT x::place('[1')[]",
            "CREATE TABLE t (x place('a b'))",
            "PREPARE p (place('a(')) AS SELECT $1",
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains("a modifier of the type place"), "{text}: {error}");
        }
        for text in ["SELECT x::vector(3)", "SELECT CAST(x AS place(wide, 3))", "CREATE TABLE t (x vector(384), y numeric(10, 2))"] {
            parse(text).expect(text);
        }
    }
}
