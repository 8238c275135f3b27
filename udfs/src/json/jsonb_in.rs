use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray};

use crate::function::{Function, Interface, Returns};
use crate::text_type::TextType;

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "jsonb_in",
        section: super::SECTION,
        description: "The one form of a JSON text: each key once, keys in order of their length and bytes, even blanks, numbers without exponent; \
            `text::jsonb` does the same.",
        parameters: &[super::JSON],
        required: 1,
        example: ("SELECT jsonb_in('{\"b\":1, \"a\":1e2}')", r#"{"a": 100, "b": 1}"#),
    },
    returns: Returns::Text(TextType::Jsonb),
    kernel: |arguments| {
        let texts = arguments.text(0)?;
        let normal = (0..arguments.num_rows()).map(|row| texts.get(row).map(super::normalize).transpose());
        Ok(Arc::new(normal.collect::<Result<StringArray, _>>()?) as ArrayRef)
    },
};
