//! What a choice says, in the forms in which servers write it.

use serde_json::Value as Json;

use super::failure::Fault;
use super::response::malformed;

/// Fields for what a model thought before it said something: DeepSeek and earlier vLLM; later vLLM; OpenRouter; Ollama.
const REASONING: [&str; 4] = ["reasoning_content", "reasoning", "reasoning_details", "thinking"];
/// Types of parts that are said.
const TEXT_PARTS: [&str; 2] = ["text", "output_text"];
/// Types of parts that are thought.
const REASONING_PARTS: [&str; 2] = ["thinking", "reasoning"];

/// The text of a field `content` or `text`: a text as it is, parts joined. None: there is no such field, or it is null.
///
/// # Errors
/// [`super::failure::FaultKind::Malformed`] for anything else.
pub(super) fn text(content: Option<&Json>) -> Result<Option<String>, Fault> {
    let text = match content {
        None | Some(Json::Null) => return Ok(None),
        Some(Json::String(text)) => Some(text.clone()),
        Some(Json::Array(parts)) => parts.iter().map(part).collect(),
        Some(Json::Object(_)) => content.and_then(part).map(str::to_owned),
        Some(_) => None,
    };
    text.map(Some).ok_or_else(|| malformed("its choice has a text that is none"))
}

/// The text of a part; empty for one that is not said, such as a picture or a thought. None: it is no part.
fn part(part: &Json) -> Option<&str> {
    let Json::Object(fields) = part else { return part.as_str() };
    let is_text = fields.get("type").is_none_or(|kind| TEXT_PARTS.iter().any(|text| kind == text));
    match fields.get("text") {
        _ if !is_text => Some(""),
        None | Some(Json::Null) => Some(""),
        Some(Json::String(text)) => Some(text),
        // With annotations beside it.
        Some(Json::Object(text)) => text.get("value")?.as_str(),
        Some(_) => None,
    }
}

/// What the model thought, of a message or of a piece of one; None if it is told of no thought.
pub(super) fn reasoning(message: &Json) -> Option<&Json> {
    let is_thought = |part: &&Json| part.get("type").is_some_and(|kind| REASONING_PARTS.iter().any(|thought| kind == thought));
    let field = REASONING.iter().filter_map(|name| message.get(name)).find(|thought| is_said(thought));
    field.or_else(|| message.get("content")?.as_array()?.iter().find(is_thought))
}

/// Whether a field is more than a way to say nothing.
pub(super) fn is_said(value: &Json) -> bool {
    match value {
        Json::Null | Json::Bool(false) => false,
        Json::Bool(true) => true,
        Json::Number(number) => number.as_f64() != Some(0.0),
        Json::String(text) => !text.trim().is_empty(),
        Json::Array(items) => !items.is_empty(),
        Json::Object(fields) => !fields.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parts_are_one_text() {
        let said = |content: Json| text(Some(&content)).expect("a text");
        assert_eq!(said(json!("So it is")).as_deref(), Some("So it is"));
        assert_eq!(said(json!([{"type": "text", "text": "So "}, {"type": "text", "text": "it is"}])).as_deref(), Some("So it is"));
        let mixed = json!([
            {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}, {"type": "output_text", "text": "So "}, "it", {"text": {"value": " is"}},
            {"type": "image_url", "image_url": {}}, {"type": "text", "text": null}
        ]);
        assert_eq!(said(mixed).as_deref(), Some("So it is"));
        assert_eq!(said(json!([])).as_deref(), Some(""));
        assert_eq!(said(json!({"type": "text", "text": "one"})).as_deref(), Some("one"));
        assert_eq!((text(None), said(Json::Null)), (Ok(None), None));
        for none in [json!(1), json!(true), json!([1]), json!([{"type": "text", "text": 1}]), json!([null])] {
            assert!(text(Some(&none)).is_err(), "{none}");
        }
    }

    #[test]
    fn thoughts_are_told_from_what_is_said() {
        let has = |message: Json| reasoning(&message).is_some();
        for message in [
            json!({"reasoning_content": "Hm."}),
            json!({"reasoning": "Hm.", "content": null}),
            json!({"reasoning_details": [{"type": "reasoning.text"}]}),
            json!({"content": [{"type": "thinking", "thinking": "Hm."}]}),
        ] {
            assert!(has(message.clone()), "{message}");
        }
        for message in [json!({"content": "x"}), json!({"reasoning_content": " \n", "reasoning": null, "reasoning_details": []}), json!({})]
        {
            assert!(!has(message.clone()), "{message}");
        }
    }
}
