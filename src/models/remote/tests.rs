//! Options, the forms of requests and answers, and what messages say; servers that fail are in `tests/it/remote_policy.rs`.

use serde_json::{Value as Json, json};

use super::complaint::complaint;
use super::connections::Credential;
use super::failure::{Fault, FaultKind};
use super::options::{Api, RemoteOptions};
use super::request::RemoteRequest;
use super::response::{Answer, RemoteCompletion, TokenCounts, Wanted};
use crate::error::Error;
use crate::models::shown::shown;
use crate::price::Price;
use crate::value::Value;

fn options(options: &[(&str, Value)]) -> Result<RemoteOptions, Error> {
    let options: Vec<(String, Value)> = options.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    RemoteOptions::read("openai://org/model-7b:latest", &options)
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

fn request<'a>(prompt: &'a str, stop: &'a [String]) -> RemoteRequest<'a> {
    let (max_tokens, temperature, top_p) = (64, 0.7, 1.0);
    RemoteRequest { prompt, turns: &[], max_tokens, temperature, top_p, top_k: 0, min_p: 0.0, repetition_penalty: 1.0, seed: 7, stop }
}

fn body(options: &RemoteOptions, request: &RemoteRequest<'_>) -> Json {
    body_of(options, request, 1)
}

fn body_of(options: &RemoteOptions, request: &RemoteRequest<'_>, num_samples: usize) -> Json {
    serde_json::from_slice(&options.body(request, num_samples)).expect("a body is JSON")
}

#[test]
fn a_chat_is_asked_by_turns() {
    let chat = options(&[("base_url", text("http://h:1/v1"))]).expect("options");
    let completions = options(&[("base_url", text("http://h:1/v1")), ("api", text("completions"))]).expect("options");
    let turns = |pieces: &[&str]| {
        let ends: Vec<usize> = (1..pieces.len()).map(|count| pieces[..count].concat().len()).collect();
        let prompt = pieces.concat();
        let asked = RemoteRequest { turns: &ends, ..request(&prompt, &[]) };
        assert_eq!(body(&completions, &asked)["prompt"], prompt.as_str(), "who goes on with a text reads all of it");
        let messages = body(&chat, &asked)["messages"].as_array().expect("messages").clone();
        let shown =
            messages.iter().map(|message| format!("{}: {}", message["role"].as_str().unwrap(), message["content"].as_str().unwrap()));
        shown.collect::<Vec<_>>().join(" | ")
    };
    assert_eq!(turns(&["Who?\n"]), "user: Who?\n", "as it is");
    assert_eq!(turns(&["Who?\n", " <search>Jaws", "\n<information>\n"]), "user: Who? | assistant: <search>Jaws | user: <information>");
    // What was put in says nothing: the model went on by itself.
    assert_eq!(turns(&["Who?", "a", "\n", "b", "c"]), "user: Who? | assistant: a\nb | user: c");
    assert_eq!(turns(&["Who?", " ", "more"]), "user: Who? more");
    assert_eq!(turns(&["Who?", "a", " "]), "user: Who?a ");
    let (prompt, ends) = ("Who?abc", [4, 5]);
    let asked = RemoteRequest { turns: &ends, ..request(prompt, &[]) };
    assert_ne!(chat.key(&asked, 1), chat.key(&request(prompt, &[]), 1), "other messages have other answers");
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
        ("extra", text("{\"seed\": 4}")),
        ("extra", text("{\"stream\": null}")),
        ("idle_timeout", Value::Int(0)),
        ("samples_per_request", Value::Int(0)),
        ("samples_per_request", Value::Int(129)),
        ("context_length", Value::Int(0)),
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

/// A version that was made before there were some of the options.
#[test]
fn older_versions_have_the_defaults_of_newer_options() {
    let now = options(&[("base_url", text("http://h:1/v1"))]).expect("options");
    let mut written = serde_json::to_value(&now).expect("options are JSON");
    for name in ["stream", "idle_timeout", "samples_per_request", "context_length"] {
        written.as_object_mut().expect("an object").remove(name).expect("it was written");
    }
    assert_eq!(serde_json::from_value::<RemoteOptions>(written).expect("older options"), now);
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
    let streamed = options(&[("stream", Value::Bool(true)), ("extra", text("{\"seed\": null}"))]).expect("options");
    let streamed = body_of(&streamed, &request("Who?", &[]), 4);
    assert_eq!((&streamed["stream"], &streamed["stream_options"]), (&json!(true), &json!({"include_usage": true})));
    assert_eq!((&streamed["n"], streamed.get("seed")), (&json!(4), None));
    let own = text("{\"stream_options\": {\"include_usage\": true, \"continuous_usage_stats\": true}}");
    let own = options(&[("stream", Value::Bool(true)), ("extra", own)]).expect("options");
    assert_eq!(body(&own, &request("Who?", &[]))["stream_options"]["continuous_usage_stats"], json!(true));
    let openai = body(&options(&[]).expect("options"), &request("Who?", &[]));
    assert_eq!((openai["max_completion_tokens"].as_u64(), openai.get("max_tokens")), (Some(64), None));
}

#[test]
fn what_openai_does_not_have_is_sent_only_if_it_is_set() {
    let options = options(&[("base_url", text("http://h:1/v1"))]).expect("options");
    let narrowed = RemoteRequest { top_k: 20, min_p: 0.05, repetition_penalty: 1.1, ..request("Who?", &[]) };
    let sent = |request: &RemoteRequest<'_>| ["top_k", "min_p", "repetition_penalty"].map(|name| body(&options, request)[name].as_f64());
    assert_eq!(sent(&narrowed), [Some(20.0), Some(0.05), Some(1.1)]);
    assert_eq!(sent(&request("Who?", &[])), [None; 3]);
}

#[test]
fn keys_tell_apart_what_answers_differ_by() {
    let key = |options: &RemoteOptions, request: &RemoteRequest<'_>| options.key(request, 1);
    let one = options(&[("base_url", text("http://a/v1,http://b/v1"))]).expect("options");
    let same = options(&[("base_url", text("http://b/v1,http://a/v1")), ("concurrency", Value::Int(1))]).expect("options");
    assert_eq!(key(&one, &request("p", &[])), key(&same, &request("p", &[])));
    let streaming = [("base_url", text("http://a/v1,http://b/v1")), ("stream", Value::Bool(true)), ("samples_per_request", Value::Int(4))];
    let streaming = options(&streaming).expect("options");
    assert_eq!(key(&one, &request("p", &[])), key(&streaming, &request("p", &[])), "how an answer comes does not change it");
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
        one.key(&request("p", &[]), 2),
    ];
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 8);
    assert_eq!(one.answer_source(), streaming.answer_source());
    assert_ne!(one.answer_source(), other_server.answer_source());
    assert_ne!(one.answer_source(), other_api.answer_source());
}

/// What is not sent may still be what answers differ by.
#[test]
fn keys_tell_apart_seeds_and_stop_texts_that_are_not_sent() {
    let bare = options(&[("extra", text("{\"seed\": null, \"stop\": null}"))]).expect("options");
    let stop = ["x".to_owned()];
    let asked = [request("p", &[]), RemoteRequest { seed: 8, ..request("p", &[]) }, request("p", &stop)];
    assert!(asked.iter().all(|request| body(&bare, request) == body(&bare, &asked[0])));
    let mut keys: Vec<_> = asked.iter().map(|request| bare.key(request, 1)).collect();
    keys.dedup();
    assert_eq!(keys.len(), 3);
}

fn read(api: Api, body: &Json, stop: &[&str]) -> Result<RemoteCompletion, Fault> {
    let stop: Vec<String> = stop.iter().map(|stop| (*stop).to_owned()).collect();
    Answer::read(body, Wanted { api, stop: &stop, num_samples: 1 }).map(|mut answer| answer.completions.remove(0))
}

fn chat(choice: Json) -> Json {
    json!({ "choices": [choice], "usage": {"prompt_tokens": 11, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 3}} })
}

#[test]
fn an_answer_is_text_tokens_and_usage() {
    let content = [json!({"token": "So", "logprob": -0.5}), json!({"token": " it", "logprob": -1.5})];
    let choice = json!({"message": {"content": "So it"}, "finish_reason": "stop", "logprobs": {"content": content}, "token_ids": [3, 9], "prompt_token_ids": [1, 2]});
    let found = read(Api::Chat, &chat(choice), &[]).expect("a completion");
    let expected = RemoteCompletion {
        text: "So it".to_owned(),
        stopped: false,
        token_ids: vec![3, 9],
        token_logprobs: vec![-0.5, -1.5],
        prompt_tokens: 11,
        cached_tokens: 3,
        generated_tokens: 5,
        is_usage_told: true,
        is_answer: true,
        prompt_ids: vec![1, 2],
        cost: Price::None,
    };
    assert_eq!(found, expected);
    let choice = json!({"text": " x", "finish_reason": "length", "logprobs": {"tokens": ["token_id:4"], "token_logprobs": [-0.25]}});
    let found = read(Api::Completions, &json!({"choices": [choice]}), &["x y"]).expect("a completion");
    assert_eq!((found.text.as_str(), found.stopped, found.token_ids, found.token_logprobs), (" x", false, vec![4], vec![-0.25]));
    assert_eq!((found.prompt_tokens, found.generated_tokens, found.is_usage_told), (0, 0, false));
    // llama.cpp has them beside the names.
    let content = json!([{"token": " x", "id": 44, "logprob": -0.25}]);
    let found = read(Api::Completions, &json!({"choices": [{"text": " x", "logprobs": {"content": content}}]}), &[]).expect("a completion");
    assert_eq!((found.token_ids, found.token_logprobs), (vec![44], vec![-0.25]));
    // Without ids, the names of tokens are none.
    let choice = json!({"text": " x", "logprobs": {"tokens": [" x"], "token_logprobs": [-0.25]}});
    let found = read(Api::Completions, &json!({"choices": [choice]}), &[]).expect("a completion");
    assert_eq!((found.token_ids, found.token_logprobs), (vec![], vec![-0.25]));
    let refused = read(Api::Chat, &chat(json!({"message": {"content": null}, "finish_reason": "content_filter"})), &[]).expect("a refusal");
    assert_eq!((refused.text.as_str(), refused.is_answer), ("", true));
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
        json!({"choices": [null]}),
        json!({"choices": "none"}),
        json!({"choices": [{"text": "of another interface", "finish_reason": "stop"}]}),
        json!([]),
        json!({"choices": [{"message": {"content": 1}}]}),
    ] {
        let fault = read(Api::Chat, &body, &[]).expect_err("no completion");
        assert_eq!((fault.kind, fault.is_passing()), (FaultKind::Malformed, true), "{body}");
    }
    let fault = read(Api::Completions, &json!({"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]}), &[]);
    assert_eq!(fault.expect_err("of another interface").kind, FaultKind::Malformed);
    let told = |body: Json| read(Api::Chat, &body, &[]).map_err(|fault| (fault.detail, fault.kind));
    assert_eq!(told(json!({"error": {"message": "no"}})), Err(("no".to_owned(), FaultKind::Complaint)));
    assert_eq!(told(json!({"detail": "no"})), Err(("no".to_owned(), FaultKind::Complaint)));
    let choice = json!({"message": {"content": "So"}, "finish_reason": "stop"});
    assert_eq!(told(json!({"error": {"message": "no", "code": 502}, "choices": [choice]})), Err(("no".to_owned(), FaultKind::Status(502))));
    let refused = json!({"error": {"message": "too many tokens", "type": "exceed_context_size_error"}});
    assert_eq!(read(Api::Chat, &refused, &[]).expect_err("a refusal with status 200").kind, FaultKind::ContextFull);
}

#[test]
fn an_empty_text_is_an_answer_if_the_server_says_so() {
    let is_answer = |choice: Json| read(Api::Chat, &chat(choice), &[]).map(|found| (found.text, found.is_answer)).expect("a completion");
    let (yes, no) = ((String::new(), true), (String::new(), false));
    let said = |message: Json, end: Json| json!({"message": message, "finish_reason": end});
    for message in [
        json!({"content": ""}),
        json!({"content": null}),
        json!({}),
        json!({"content": []}),
        json!({"content": "", "reasoning_content": ""}),
    ] {
        assert_eq!(is_answer(said(message.clone(), json!("stop"))), yes, "{message}");
        for end in [json!("error"), json!("abort"), Json::Null, json!("")] {
            assert_eq!(is_answer(said(message.clone(), end.clone())), no, "{message} {end}");
        }
        assert_eq!(is_answer(json!({"message": message})), no, "{message}");
    }
    for thought in ["reasoning_content", "reasoning", "thinking"] {
        assert_eq!(is_answer(said(json!({"content": null, thought: "Hm."}), json!("stop"))), no);
        assert_eq!(is_answer(said(json!({"content": "So", thought: "Hm."}), json!("stop"))), ("So".to_owned(), true));
    }
    // Cut before a stop text it is what the policy said.
    let cut = read(Api::Chat, &chat(json!({"message": {"content": "STOP x"}})), &["STOP"]).expect("a completion");
    assert_eq!((cut.text.as_str(), cut.is_answer, cut.stopped), ("", true, true));
    let broken = read(Api::Chat, &chat(said(json!({"content": "So"}), json!("error"))), &[]);
    assert_eq!(broken.expect_err("half").kind, FaultKind::Cut);
    let completion = |choice: Json| read(Api::Completions, &json!({"choices": [choice]}), &[]).expect("a completion").is_answer;
    assert!(completion(json!({"text": "", "finish_reason": "stop"})) && completion(json!({"finish_reason": "length"})));
    assert!(!completion(json!({"text": "", "finish_reason": null})) && !completion(json!({})));
}

/// An earlier version kept whatever text came.
#[test]
fn empty_texts_that_an_earlier_version_kept_are_asked_for_again() {
    let kept = |text: &str, prompt_tokens: u64| {
        let written = json!({"text": text, "stopped": true, "token_ids": [], "token_logprobs": [], "prompt_tokens": prompt_tokens, "cached_tokens": 0,
            "generated_tokens": 1});
        serde_json::from_value::<RemoteCompletion>(written).expect("a completion").kept()
    };
    assert_eq!(kept("", 3), None);
    assert_eq!(kept("So", 3).map(|found| (found.is_answer, found.is_usage_told)), Some((true, true)));
    assert_eq!(kept("So", 0).map(|found| (found.is_answer, found.is_usage_told)), Some((true, false)));
    let now = RemoteCompletion { is_answer: true, ..RemoteCompletion::default() };
    assert_eq!(now.clone().kept(), Some(now));
}

#[test]
fn samples_are_in_order_and_share_what_they_cost() {
    let choice = |index: u64, text: &str| json!({"index": index, "message": {"content": text}, "finish_reason": "stop"});
    let usage = json!({"prompt_tokens": 11, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 3}});
    let body = json!({"choices": [choice(2, "cccc"), choice(0, "a"), choice(1, "bb")], "usage": usage});
    let wanted = |num_samples: usize| Wanted { api: Api::Chat, stop: &[], num_samples };
    let said = |answer: &Answer| {
        let said = |one: &RemoteCompletion| (one.text.clone(), one.prompt_tokens, one.cached_tokens, one.generated_tokens);
        answer.completions.iter().map(said).collect::<Vec<_>>()
    };
    let found = Answer::read(&body, wanted(3)).expect("three samples");
    assert_eq!(found.tokens, TokenCounts { prompt: 11, cached: 3, generated: 10, is_told: true });
    let expected = [("a", 3, 2), ("bb", 11, 3), ("cccc", 11, 5)];
    assert_eq!(said(&found), expected.map(|(text, cached, generated)| (text.to_owned(), 11, cached, generated)));
    // More than were asked for are left.
    assert_eq!(said(&Answer::read(&body, wanted(1)).expect("one sample")), [("a".to_owned(), 11, 3, 10)]);
    // As tokens where they are known.
    let known = |index: u64, tokens: usize| {
        let content: Vec<Json> = (0..tokens).map(|_| json!({"token": "x", "logprob": -1.0})).collect();
        json!({"index": index, "message": {"content": "text"}, "logprobs": {"content": content}})
    };
    let body = json!({"choices": [known(0, 3), known(1, 7)], "usage": usage});
    let found = Answer::read(&body, wanted(2)).expect("two samples");
    assert_eq!(found.completions.iter().map(|one| one.generated_tokens).collect::<Vec<_>>(), [3, 7]);
}

#[test]
fn the_stop_text_counts_that_is_whole_first() {
    let stopped =
        |text: &str, stop: &[&str]| read(Api::Chat, &chat(json!({"message": {"content": text}})), stop).expect("a completion").text;
    assert_eq!(stopped("abcdef", &["bcdef", "c"]), "ab");
    assert_eq!(stopped("abcdef", &["de", "cde", "f"]), "ab");
    assert_eq!(stopped("abcdef", &["", "x"]), "abcdef");
}

/// What servers answer to a prompt that is too long.
#[test]
fn a_prompt_that_is_too_long_is_told_from_other_refusals() {
    let kind = |status: u16, body: &str| complaint(Some(status), body.as_bytes()).1;
    for (status, body) in [
        // OpenAI.
        (
            400,
            r#"{"error": {"message": "Too much.", "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}}"#,
        ),
        // vLLM, three ways.
        (
            400,
            r#"{"object": "error", "message": "This model's maximum context length is 2048 tokens. However, you requested 2100 tokens", "code": 400}"#,
        ),
        (
            400,
            r#"{"error": {"message": "The decoder prompt (length 25938) is longer than the maximum model length of 4096.", "code": 400}}"#,
        ),
        (400, r#"{"message": "The prompt (total length 25938) is too long to fit into the model (context length 4096)."}"#),
        // SGLang.
        (400, r#"{"message": "The input (5000 tokens) is longer than the model's context length (4096 tokens)."}"#),
        // llama.cpp, earlier and later.
        (
            500,
            r#"{"error": {"code": 500, "message": "the request exceeds the available context size", "type": "exceed_context_size_error", "n_ctx": 256}}"#,
        ),
        (
            400,
            r#"{"error": {"code": 400, "message": "request (4390 tokens) exceeds the available context size (4096 tokens), try increasing it"}}"#,
        ),
        // text-generation-inference.
        (422, r#"{"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens"}"#),
        (413, "Requested tokens (2285) exceed context window of 2048"),
    ] {
        assert_eq!(kind(status, body), FaultKind::ContextFull, "{body}");
    }
    assert_eq!(kind(400, r#"{"error": {"message": "stop has too many entries"}}"#), FaultKind::Status(400));
    // It is not the request that fails.
    assert_eq!(kind(500, r#"{"error": {"message": "maximum context length is not configured"}}"#), FaultKind::Status(500));
}

#[test]
fn complaints_are_shown_short_and_without_keys() {
    let (words, kind) = complaint(Some(429), br#"{"error": {"message": "you have\nno money", "code": "insufficient_quota"}}"#);
    assert_eq!((shown(&words).as_str(), kind), ("you have no money", FaultKind::Quota));
    assert_eq!(complaint(Some(404), br#"{"detail": "not here"}"#), ("not here".to_owned(), FaultKind::Status(404)));
    assert_eq!(complaint(Some(502), b"<html>").0, "<html>");
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
    let free = options(&[]).expect("options");
    assert_eq!(free.cost(1, 1, 1), None);
    let tokens = |is_told| TokenCounts { prompt: 1_000_000, cached: 500_000, generated: 100_000, is_told };
    assert_eq!([true, false].map(|is_told| priced.price(tokens(is_told))), [Price::Known(2.5), Price::Unknown]);
    assert_eq!([true, false].map(|is_told| free.price(tokens(is_told))), [Price::None; 2]);
}
