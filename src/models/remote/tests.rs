//! Options, the forms of requests and answers, and what messages say; servers that fail are in `tests/it/remote_policy.rs`.

use serde_json::{Value as Json, json};

use super::connections::Credential;
use super::failure::{Fault, FaultKind};
use super::options::{Api, RemoteOptions};
use super::request::RemoteRequest;
use super::response::{RemoteCompletion, complaint, shown};
use crate::error::Error;
use crate::value::Value;

fn options(options: &[(&str, Value)]) -> Result<RemoteOptions, Error> {
    let options: Vec<(String, Value)> = options.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    RemoteOptions::read("openai://org/model-7b:latest", &options)
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

fn request<'a>(prompt: &'a str, stop: &'a [String]) -> RemoteRequest<'a> {
    RemoteRequest { prompt, max_tokens: 64, temperature: 0.7, top_p: 1.0, seed: 7, stop }
}

fn body(options: &RemoteOptions, request: &RemoteRequest<'_>) -> Json {
    serde_json::from_slice(&options.body(request)).expect("a body is JSON")
}

#[test]
fn options_have_ranges_and_urls_one_form() {
    let read =
        options(&[("base_url", text("https://a.example/v1/, http://10.0.0.7:8000/v1 ,https://a.example/v1")), ("retries", Value::Int(0))]);
    let read = read.expect("these are options");
    assert_eq!((read.model.as_str(), read.retries, read.api), ("org/model-7b:latest", 0, Api::Chat));
    assert_eq!(read.base_urls, ["https://a.example/v1", "http://10.0.0.7:8000/v1"]);
    for (name, value) in [
        ("base_url", text("ftp://a.example/")),
        ("base_url", text("https://user:planted@a.example/v1")),
        ("base_url", text("https://a.example/v1?key=planted")),
        ("base_url", text("a.example/planted")),
        ("base_url", text("")),
        ("api", text("responses")),
        ("concurrency", Value::Int(0)),
        ("timeout", Value::Int(0)),
        ("timeout", Value::Float(f64::NAN)),
        ("retries", Value::Int(-1)),
        ("price_input", Value::Float(-0.5)),
        ("extra", text("[1]")),
        ("extra", text("{\"messages\": []}")),
    ] {
        let error = options(&[(name, value.clone())]).expect_err(name);
        assert!(matches!(error, Error::InvalidParameter { .. }), "{name} = {value}: {error}");
        assert!(!error.to_string().contains("planted"), "{error}");
    }
    assert!(matches!(options(&[("base_ulr", text("x"))]), Err(Error::UnknownOption { .. })));
    assert!(matches!(options(&[("cache", Value::Int(1))]), Err(Error::WrongType { .. })));
    for source in ["openai://", "openai://a b", "openai://a\n"] {
        assert!(matches!(RemoteOptions::read(source, &[]), Err(Error::InvalidParameter { .. })), "{source:?}");
    }
}

#[test]
fn a_request_says_what_was_asked() {
    let stop = ["</answer>".to_owned(), String::new()];
    let chat = options(&[("base_url", text("http://h:1/v1"))]).expect("options");
    assert_eq!(
        body(&chat, &request("Who?", &stop)),
        json!({"model": "org/model-7b:latest", "messages": [{"role": "user", "content": "Who?"}], "max_tokens": 64, "temperature": 0.7, "seed": 7,
            "stop": ["</answer>"], "stream": false})
    );
    let completions = [
        ("base_url", text("http://h:1/v1")),
        ("api", text("completions")),
        ("logprobs", Value::Bool(true)),
        ("extra", text("{\"top_k\": 20, \"temperature\": null}")),
    ];
    let completions = options(&completions).expect("options");
    assert_eq!(
        body(&completions, &RemoteRequest { top_p: 0.9, seed: u64::MAX >> 1, ..request("Who?", &[]) }),
        json!({"model": "org/model-7b:latest", "prompt": "Who?", "max_tokens": 64, "seed": 1, "stream": false, "top_p": 0.9, "logprobs": 1, "top_k": 20})
    );
    let openai = body(&options(&[]).expect("options"), &request("Who?", &[]));
    assert_eq!((openai["max_completion_tokens"].as_u64(), openai.get("max_tokens")), (Some(64), None));
}

#[test]
fn keys_tell_apart_what_answers_differ_by() {
    let key = |options: &RemoteOptions, request: &RemoteRequest<'_>| options.key(&options.body(request));
    let one = options(&[("base_url", text("http://a/v1,http://b/v1"))]).expect("options");
    let same = options(&[("base_url", text("http://b/v1,http://a/v1")), ("concurrency", Value::Int(1))]).expect("options");
    assert_eq!(key(&one, &request("p", &[])), key(&same, &request("p", &[])));
    let other_server = options(&[("base_url", text("http://c/v1"))]).expect("options");
    let other_api = options(&[("base_url", text("http://a/v1,http://b/v1")), ("api", text("completions"))]).expect("options");
    let mut keys = vec![
        key(&one, &request("p", &[])),
        key(&one, &request("q", &[])),
        key(&one, &RemoteRequest { seed: 8, ..request("p", &[]) }),
        key(&one, &RemoteRequest { max_tokens: 65, ..request("p", &[]) }),
        key(&one, &request("p", &["x".to_owned()])),
        key(&other_server, &request("p", &[])),
        key(&other_api, &request("p", &[])),
    ];
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 7);
}

fn read(api: Api, body: &Json, stop: &[&str]) -> Result<RemoteCompletion, Fault> {
    let stop: Vec<String> = stop.iter().map(|stop| (*stop).to_owned()).collect();
    RemoteCompletion::read(api, body.to_string().as_bytes(), &stop)
}

fn chat(choice: Json) -> Json {
    json!({ "choices": [choice], "usage": {"prompt_tokens": 11, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 3}} })
}

#[test]
fn an_answer_is_text_tokens_and_usage() {
    let content = [json!({"token": "So", "logprob": -0.5}), json!({"token": " it", "logprob": -1.5})];
    let choice = json!({"message": {"content": "So it"}, "finish_reason": "stop", "logprobs": {"content": content}, "token_ids": [3, 9]});
    let found = read(Api::Chat, &chat(choice), &[]).expect("a completion");
    let expected = RemoteCompletion {
        text: "So it".to_owned(),
        stopped: false,
        token_ids: vec![3, 9],
        token_logprobs: vec![-0.5, -1.5],
        prompt_tokens: 11,
        cached_tokens: 3,
        generated_tokens: 5,
    };
    assert_eq!(found, expected);
    let choice = json!({"text": " x", "finish_reason": "length", "logprobs": {"tokens": ["token_id:4"], "token_logprobs": [-0.25]}});
    let found = read(Api::Completions, &json!({"choices": [choice]}), &["x y"]).expect("a completion");
    assert_eq!((found.text.as_str(), found.stopped, found.token_ids, found.token_logprobs), (" x", false, vec![4], vec![-0.25]));
    assert_eq!((found.prompt_tokens, found.generated_tokens), (0, 0));
    // Without ids, the names of tokens are none.
    let choice = json!({"text": " x", "logprobs": {"tokens": [" x"], "token_logprobs": [-0.25]}});
    let found = read(Api::Completions, &json!({"choices": [choice]}), &[]).expect("a completion");
    assert_eq!((found.token_ids, found.token_logprobs), (vec![], vec![-0.25]));
    assert_eq!(read(Api::Chat, &chat(json!({"message": {"content": null}})), &[]).expect("a refusal").text, "");
}

#[test]
fn a_stop_text_is_told_from_the_end_where_the_server_tells() {
    let stopped = |choice: Json, stop: &[&str]| {
        let mut choice = choice;
        choice["message"] = choice.get("message").cloned().unwrap_or_else(|| json!({"content": "<query>Jaws"}));
        let found = read(Api::Chat, &chat(choice), stop).expect("a completion");
        (found.text, found.stopped)
    };
    let stop = ["</query>", "</answer>"];
    let text = "<query>Jaws".to_owned();
    // Nothing is told: the protocol decides.
    assert_eq!(stopped(json!({"finish_reason": "stop"}), &stop), (text.clone(), true));
    assert_eq!(stopped(json!({"finish_reason": "stop"}), &[]), (text.clone(), false));
    assert_eq!(stopped(json!({"finish_reason": "length"}), &stop), (text.clone(), false));
    // vLLM and SGLang tell.
    assert_eq!(stopped(json!({"finish_reason": "stop", "stop_reason": "</query>"}), &stop), (text.clone(), true));
    assert_eq!(stopped(json!({"finish_reason": "stop", "stop_reason": null}), &stop), (text.clone(), false));
    assert_eq!(stopped(json!({"finish_reason": "stop", "matched_stop": 151_645}), &stop), (text.clone(), false));
    // Kept in the text, or passed over.
    let kept = json!({"finish_reason": "stop", "stop_reason": null, "message": {"content": "<query>Jaws</query> and </answer>"}});
    assert_eq!(stopped(kept, &stop), (text, true));
}

#[test]
fn what_is_no_completion_is_malformed() {
    for body in [
        json!({}),
        json!({"choices": []}),
        json!({"choices": [{}]}),
        json!({"error": {"message": "no"}}),
        json!([]),
        json!({"choices": [{"message": {"content": 1}}]}),
    ] {
        let fault = read(Api::Chat, &body, &[]).expect_err("no completion");
        assert_eq!((fault.kind, fault.is_passing()), (FaultKind::Malformed, true), "{body}");
    }
    assert_eq!(RemoteCompletion::read(Api::Chat, b"{\"choices\": [", &[]).expect_err("cut").kind, FaultKind::Malformed);
}

#[test]
fn complaints_are_shown_short_and_without_keys() {
    let (words, is_quota) = complaint(br#"{"error": {"message": "you have\nno money", "code": "insufficient_quota"}}"#);
    assert_eq!((shown(&words).as_str(), is_quota), ("you have no money", true));
    assert_eq!(complaint(br#"{"detail": "not here"}"#), ("not here".to_owned(), false));
    assert_eq!(complaint(b"<html>").0, "<html>");
    assert!(shown(&"word ".repeat(1000)).len() < 400);
    let credential = Credential::new("sk-planted-4711-key");
    assert_eq!(credential.redact("Incorrect key: sk-planted-4711-key."), "Incorrect key: ***");
    // Pieces too, with the word that they are in.
    assert_eq!(credential.redact("Incorrect key: sk-pla*****1-key, see"), "Incorrect key: *** see");
    assert_eq!(credential.redact("a word"), "a word");
    assert_eq!(format!("{credential:?}"), "Credential");
    assert!(format!("{:?}", credential.header()).contains("Sensitive"));
    assert!(Credential::new("two\nlines").header().is_none());
}

#[test]
fn the_cost_is_that_of_the_prices() {
    let priced = options(&[("price_input", Value::Float(2.0)), ("price_cached", Value::Float(1.0)), ("price_output", Value::Int(10))])
        .expect("options");
    assert_eq!(priced.cost(1_000_000, 500_000, 100_000), Some(2.5));
    assert_eq!(options(&[]).expect("options").cost(1, 1, 1), None);
}
