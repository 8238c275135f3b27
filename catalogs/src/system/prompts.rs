//! `rollout.prompts`: the templates that a protocol fills in, which users may override.

use arrow::datatypes::DataType::Utf8;

use super::{define, required};
use crate::TableDefinition;

pub(super) fn definition() -> TableDefinition {
    let columns = vec![
        required("prompt_set", Utf8, "Name of a set of prompts that belong together."),
        required("protocol", Utf8, "Protocol that the prompt is for, such as reasonrag."),
        required("state", Utf8, "State of the protocol that the prompt is for."),
        required("template", Utf8, "Text with {placeholders}."),
    ];
    define(columns, &["prompt_set", "protocol", "state"])
}
