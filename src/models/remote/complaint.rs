//! What a server says instead of an answer: its own words, and what kind of fault that is.

use serde_json::Value as Json;

use super::content::is_said;
use super::failure::{Fault, FaultKind};

/// Statuses of a request that the server cannot take: with them the words decide what is wrong with it.
const REFUSALS: [u16; 3] = [400, 413, 422];

/// Codes and types of a prompt that is too long: OpenAI's and llama.cpp's.
const CONTEXT_CODES: [&str; 2] = ["context_length_exceeded", "exceed_context_size_error"];

/// The same in words: OpenAI, vLLM, DeepSeek, Mistral and llama-cpp-python; vLLM's engine; SGLang; llama.cpp; text-generation-inference; gateways.
const CONTEXT_WORDS: [&str; 9] = [
    "maximum context length",
    "longer than the maximum model length",
    "too long to fit into the model",
    "longer than the model's context length",
    "exceeds the available context size",
    "exceed context window",
    "`inputs` tokens + `max_new_tokens` must be",
    "prompt is too long",
    "exceeds the maximum number of tokens",
];

/// Where the words of an error stand: OpenAI's, vLLM's, FastAPI's, text-generation-inference's, FastAPI's of a wrong request, gateways'.
const WORDS: [&str; 6] = ["/error/message", "/message", "/detail", "/error", "/detail/0/msg", "/errors/0/message"];

/// Of a page, parts whose text is not shown.
const UNSEEN: [&str; 3] = ["script", "style", "head"];

/// The words of a server and what they mean. `status`: None if it says so with a status of success.
pub(super) fn complaint(status: Option<u16>, body: &[u8]) -> (String, FaultKind) {
    let Ok(json) = serde_json::from_slice::<Json>(body) else {
        let words = words_of_text(&String::from_utf8_lossy(body));
        let kind = kind(status, &Json::Null, &words);
        return (words, kind);
    };
    let words = WORDS.iter().find_map(|path| json.pointer(path).and_then(Json::as_str));
    let words = words.map_or_else(|| json.to_string(), str::to_owned);
    let kind = kind(status, &json, &words);
    (words, kind)
}

/// The fault of JSON that came with a status of success and says that something went wrong; None if it does not.
pub(super) fn told(json: &Json) -> Option<Fault> {
    let is_error = json.get("error").is_some_and(is_said) || json.get("object").is_some_and(|object| object == "error");
    let is_told =
        || json.get("choices").is_none() && ["message", "detail", "errors"].iter().any(|name| json.get(name).is_some_and(is_said));
    (is_error || is_told()).then(|| {
        let (words, kind) = complaint(None, json.to_string().as_bytes());
        Fault::new(kind, words)
    })
}

fn kind(status: Option<u16>, json: &Json, words: &str) -> FaultKind {
    let codes: Vec<&Json> =
        ["/error/code", "/error/type", "/error/status", "/code", "/type", "/status"].iter().filter_map(|path| json.pointer(path)).collect();
    let has_code = |wanted: &str| codes.iter().any(|code| code.as_str() == Some(wanted));
    if has_code("insufficient_quota") {
        return FaultKind::Quota;
    }
    let number = |code: &&Json| code.as_u64().or_else(|| code.as_str()?.parse().ok()).and_then(|code| u16::try_from(code).ok());
    let told = codes.iter().find_map(number).filter(|code| (400..600).contains(code));
    let status = status.or(told);
    let lower = words.to_lowercase();
    let is_refusal = status.is_none_or(|status| REFUSALS.contains(&status));
    if CONTEXT_CODES.iter().any(|code| has_code(code)) || is_refusal && CONTEXT_WORDS.iter().any(|words| lower.contains(words)) {
        return FaultKind::ContextFull;
    }
    status.map_or(FaultKind::Complaint, FaultKind::Status)
}

/// What a text says to a reader: of a page the title and what it shows, of anything else all.
pub(super) fn words_of_text(text: &str) -> String {
    let lower = text.trim_start().to_ascii_lowercase();
    if !lower.starts_with("<!doctype") && !lower.starts_with("<html") {
        return text.to_owned();
    }
    let title = between(text, "<title", "</title").and_then(|title| title.split_once('>')).map_or("", |(_, title)| title);
    let shown = format!("{title} {}", without_tags(text));
    if shown.trim().is_empty() { text.to_owned() } else { shown }
}

/// The text between the tags of a page, but for that of [`UNSEEN`] ones.
fn without_tags(page: &str) -> String {
    let (mut shown, mut rest) = (String::new(), page);
    while let Some(start) = rest.find('<') {
        shown.push_str(&rest[..start]);
        shown.push(' ');
        let tag = &rest[start..];
        let unseen = UNSEEN.iter().find(|name| is_tag(&tag[1..], name));
        let closing = unseen.map(|name| format!("</{name}"));
        let from = closing.and_then(|closing| find_lower(tag, &closing)).unwrap_or(0);
        let end = tag[from..].find('>').map_or(tag.len(), |end| from + end + 1);
        rest = &tag[end..];
    }
    shown.push_str(rest);
    shown
}

/// Whether what follows a `<` opens this tag.
fn is_tag(after: &str, name: &str) -> bool {
    let head = after.get(..name.len()).is_some_and(|head| head.eq_ignore_ascii_case(name));
    head && !after[name.len()..].starts_with(|next: char| next.is_ascii_alphanumeric())
}

/// `wanted`: in small letters.
fn find_lower(text: &str, wanted: &str) -> Option<usize> {
    text.to_ascii_lowercase().find(wanted)
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    let begun = &text[find_lower(text, start)?..];
    find_lower(begun, end).map(|end| &begun[..end])
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;
    use crate::models::shown::shown;

    #[test]
    fn a_page_is_what_it_shows() {
        let check = |page: &str, expected: Expect| expected.assert_eq(&shown(&words_of_text(page)));
        check(
            "<!DOCTYPE html>\n<html><head><title>502 Bad Gateway</title><style>p {}</style></head><body><h1>Bad Gateway</h1><p class='x'>The <b>upstream</b> is down.</body></html>",
            expect!["502 Bad Gateway Bad Gateway The upstream is down."],
        );
        check("<HTML><script>if (a < b) {}</script>Sign in", expect!["Sign in"]);
        check("<html>", expect!["<html>"]);
        check("<html><script>never closed", expect!["never closed"]);
        check("plain <b>words</b>", expect!["plain <b>words</b>"]);
    }

    #[test]
    fn errors_are_found_beside_a_status_of_success() {
        let kind = |json: Json| told(&json).map(|fault| (fault.detail, fault.kind));
        let words = |words: &str, kind: FaultKind| Some((words.to_owned(), kind));
        assert_eq!(kind(json!({"error": {"message": "worn out", "code": 503}})), words("worn out", FaultKind::Status(503)));
        assert_eq!(kind(json!({"error": {"message": "slow down", "code": "429"}})), words("slow down", FaultKind::Status(429)));
        assert_eq!(kind(json!({"error": "worn out"})), words("worn out", FaultKind::Complaint));
        assert_eq!(kind(json!({"detail": "no such model"})), words("no such model", FaultKind::Complaint));
        assert_eq!(kind(json!({"detail": [{"loc": ["body"], "msg": "field required"}]})), words("field required", FaultKind::Complaint));
        assert_eq!(kind(json!({"error": true, "message": "no"})), words("no", FaultKind::Complaint));
        assert_eq!(kind(json!({"object": "error", "message": "no", "code": 400})), words("no", FaultKind::Status(400)));
        assert_eq!(kind(json!({"error": {"reason": 7}})), words(r#"{"error":{"reason":7}}"#, FaultKind::Complaint));
        for answer in
            [json!({"choices": [], "error": null}), json!({"choices": [{}], "message": "x"}), json!({"error": ""}), json!({}), json!([])]
        {
            assert_eq!(kind(answer.clone()), None, "{answer}");
        }
    }
}
