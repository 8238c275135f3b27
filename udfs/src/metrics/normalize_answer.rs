use std::sync::Arc;

use arrow::array::StringArray;
use arrow::datatypes::DataType;

use super::answer::VARIANT;
use super::variant::{ALL, Variant};
use crate::function::{Function, Interface, Kind, Parameter, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "normalize_answer",
        section: super::SECTION,
        description: "The form in which answers are compared, as in SQuAD: lower case, without ASCII punctuation, without \
            the articles a, an, the, and with single spaces. NULL for NULL.",
        parameters: &[Parameter { name: "text", kind: Kind::Text, description: "An answer." }, VARIANT],
        required: 1,
        example: ("SELECT normalize_answer('The  U.S. of A.')", "us of"),
    },
    returns: Returns::Always(DataType::Utf8),
    kernel: |arguments| {
        let (texts, variant) = (arguments.text(0)?, Variant::of(arguments, 1, ALL)?);
        let rows = (0..arguments.num_rows()).map(|row| texts.get(row).map(|text| variant.normalize(text)));
        Ok(Arc::new(rows.collect::<StringArray>()))
    },
};

/// Lower case, ASCII punctuation dropped, articles dropped, white space collapsed, in this order (SQuAD's evaluation script).
///
/// Articles go where a word boundary is on either side, so also beside non-ASCII punctuation, which stays: `l’an` gives `l’`.
pub fn normalize_answer(text: &str) -> String {
    Variant::Squad.normalize(text)
}

#[cfg(test)]
mod tests {
    use super::normalize_answer;

    /// Expected values by SQuAD v1.1's `normalize_answer` in Python.
    #[test]
    fn agrees_with_squad() {
        let cases = [
            ("The Beatles", "beatles"),
            ("  an\tApple a day ", "apple day"),
            ("U.S.A.", "usa"),
            ("rock-and-roll", "rockandroll"),
            ("l’an 1900", "l’ 1900"),
            ("Theo an", "theo"),
            ("Ünïted — the  Kingdom", "ünïted — kingdom"),
            ("a", ""),
            ("?!", ""),
            ("", ""),
        ];
        for (text, expected) in cases {
            assert_eq!(normalize_answer(text), expected, "{text:?}");
        }
    }
}
