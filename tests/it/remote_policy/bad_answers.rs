//! Servers that answer with a status of success and give no answer, and texts that are empty for one reason or another.

use std::sync::Mutex;

use super::*;
use crate::openai_server::Piece;

/// Every way to ask: API, and whether in a stream.
const WAYS: [(&str, bool); 4] = [("chat", false), ("chat", true), ("completions", false), ("completions", true)];

fn options_of((api, stream): (&str, bool), rest: &str) -> String {
    format!(", api = '{api}', stream = {stream}{rest}")
}

fn say(body: &str) -> Reply {
    Reply::Say(200, vec![], body.to_owned())
}

/// A choice of the interface that was asked, whole or in one event and the end.
fn choice(asked: &Asked, text: serde_json::Value, more: serde_json::Value, end: serde_json::Value) -> Reply {
    let mut choice = json!({"index": 0, "finish_reason": end});
    let is_stream = asked.body["stream"] == json!(true);
    let mut place = if asked.is_chat() { json!({"content": text}) } else { json!({}) };
    for (name, value) in more.as_object().into_iter().flatten() {
        place[name] = value.clone();
    }
    match (asked.is_chat(), is_stream) {
        (true, true) => choice["delta"] = place,
        (true, false) => choice["message"] = place,
        (false, _) => {
            choice["text"] = text;
            for (name, value) in more.as_object().into_iter().flatten() {
                choice[name] = value.clone();
            }
        }
    }
    let usage = json!({"prompt_tokens": 100, "completion_tokens": 10});
    match is_stream {
        false => Reply::json(json!({"choices": [choice], "usage": usage})),
        true => {
            let usage = json!({"choices": [], "usage": usage});
            Reply::Stream(vec![
                Piece::Data(json!({"choices": [choice]}).to_string()),
                Piece::Data(usage.to_string()),
                Piece::Data("[DONE]".to_owned()),
            ])
        }
    }
}

async fn tallies(session: &Session) -> Result<Vec<String>> {
    rows(session, "SELECT requests, retries, failures, empty_answers, cache_hits FROM rollout.remote_models").await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_words_of_a_server_reach_the_message() -> Result<()> {
    let page = "<!DOCTYPE html><html><head><title>Sign in</title></head><body><p>Your session is over.</p></body></html>";
    for (body, code, words) in [
        (
            json!({"error": {"message": "the model is asleep", "type": "server_error"}}).to_string(),
            "58000",
            "answered with an error: the model is asleep",
        ),
        (json!({"error": "the model is asleep"}).to_string(), "58000", "the model is asleep"),
        (json!({"error": {"message": "wrong key", "code": 401}}).to_string(), "58000", "refused the key (401): wrong key"),
        (
            json!({"error": {"message": "This model's maximum context length is 8 tokens"}}).to_string(),
            "22023",
            "maximum context length is 8 tokens",
        ),
        (json!({"detail": "no such model here"}).to_string(), "58000", "no such model here"),
        (json!({"detail": [{"loc": ["body"], "msg": "field required"}]}).to_string(), "58000", "field required"),
        (json!({"object": "list", "data": []}).to_string(), "58000", "it has no choices: {"),
        (json!({"choices": []}).to_string(), "58000", "it has no choices"),
        (page.to_owned(), "58000", "Sign in Your session is over."),
        ("{\"choices\": [{\"message\": {\"content\": \"So".to_owned(), "58000", "ends in the middle of JSON: {\"choices\""),
        ("Internal Server Error".to_owned(), "58000", "its body is not JSON: Internal Server Error"),
        (String::new(), "58000", "its body is empty"),
    ] {
        for way in WAYS {
            let (data, said) = (temporary(), body.clone());
            let server = OpenAiServer::start(move |_, _| say(&said));
            let (_database, session) = with_model(data.path(), &server, &options_of(way, ", retries = 0")).await?;
            let error = rows(&session, "SELECT generate('m', 'p')").await.expect_err("it is no answer");
            let message = error.client_message();
            let host = server.host().replace("http://", "");
            assert_eq!(error.sqlstate(), code, "{way:?}: {message}");
            assert!(message.contains(words) && message.contains("model m@1") && message.contains(&host), "{way:?} {body}: {message}");
            assert_eq!(rows(&session, "SELECT answers FROM rollout.remote_cache").await?, ["0"]);
        }
    }
    Ok(())
}

/// Statuses of success that promise no body, or another one.
#[tokio::test(flavor = "multi_thread")]
async fn a_status_of_success_needs_an_answer() -> Result<()> {
    for (status, body, words) in
        [(204, "", "its body is empty"), (202, "", "its body is empty"), (206, "{\"choices\": [", "in the middle of JSON")]
    {
        let data = temporary();
        let server = OpenAiServer::always(Reply::Say(status, vec![], body.to_owned()));
        let (_database, session) = with_model(data.path(), &server, ", retries = 0").await?;
        let error = rows(&session, "SELECT generate('m', 'p')").await.expect_err("there is no answer");
        assert!(error.client_message().contains(words), "{status}: {}", error.client_message());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_wrong_in_a_stream_is_told() -> Result<()> {
    let raw = |text: &str| Piece::Raw(text.as_bytes().to_vec());
    for (pieces, words) in [
        (vec![Piece::chat("So"), Piece::Data(json!({"error": {"message": "worn out"}}).to_string())], "answered with an error: worn out"),
        (vec![Piece::chat("So"), Piece::Data(json!({"detail": "worn out"}).to_string())], "answered with an error: worn out"),
        (vec![Piece::chat("So"), raw("event: error\ndata: worn out\n\n")], "answered with an error: worn out"),
        (vec![Piece::chat("So"), raw("error: {\"code\": 500, \"message\": \"worn out\"}\n\n")], "failed (500): worn out"),
        (vec![Piece::chat("So"), raw("Internal Server Error\n")], "its stream ended before its text: Internal Server Error"),
        (vec![Piece::chat("So"), raw("data: <html>\n\n")], "an event of its stream is not JSON: <html>"),
        (vec![Piece::Data(json!({"choices": [], "usage": {}}).to_string()), Piece::Data("[DONE]".to_owned())], "its stream has no choices"),
        (vec![Piece::Data(json!({"choices": [{"text": "So", "finish_reason": "stop"}]}).to_string())], "has its text in another place"),
    ] {
        let data = temporary();
        let server = OpenAiServer::always(Reply::Stream(pieces.clone()));
        let (_database, session) = with_model(data.path(), &server, ", stream = true, retries = 0").await?;
        let error = rows(&session, "SELECT generate('m', 'p')").await.expect_err("it is no answer");
        assert!(error.client_message().contains(words), "{pieces:?}: {}", error.client_message());
    }
    Ok(())
}

/// Whatever its type says, and whichever way it was asked for.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_read_as_what_it_is() -> Result<()> {
    let whole = json!({"choices": [{"message": {"content": "So it is"}, "finish_reason": "stop"}]}).to_string();
    let piece = json!({"choices": [{"index": 0, "delta": {"content": "So it is"}, "finish_reason": "stop"}]}).to_string();
    let parts = json!({"choices": [{"message": {"content": [{"type": "text", "text": "So "}, {"type": "text", "text": "it is"}]}, "finish_reason": "stop"}]});
    let events = format!(": ping\n\ndata: {piece}\n\ndata: [DONE]\n\n");
    for body in [
        whole.clone(),
        format!("\u{feff}{whole}"),
        format!("\n \r\n{whole}\n"),
        events.clone(),
        format!("\u{feff}{events}"),
        parts.to_string(),
    ] {
        for (stream, content_type) in [(false, "text/plain"), (true, "text/html"), (false, "text/event-stream"), (true, "application/json")]
        {
            let data = temporary();
            let said = Reply::Say(200, vec![("Content-Type", content_type.to_owned())], body.clone());
            let server = OpenAiServer::always(said);
            let (_database, session) = with_model(data.path(), &server, &format!(", stream = {stream}, retries = 0")).await?;
            assert_eq!(rows(&session, "SELECT generate('m', 'p')").await?, ["So it is"], "{body:?}, {content_type}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_text_that_ended_is_kept() -> Result<()> {
    for way in WAYS {
        for text in [json!(""), json!(null)] {
            let (data, said) = (temporary(), text.clone());
            let server = OpenAiServer::start(move |asked, _| choice(asked, said.clone(), json!({}), json!("stop")));
            let (_database, session) = with_model(data.path(), &server, &options_of(way, "")).await?;
            for _ in 0..2 {
                assert_eq!(rows(&session, "SELECT generate('m', 'p') = ''").await?, ["true"], "{way:?} {text}");
            }
            assert_eq!(tallies(&session).await?, ["1", "0", "0", "0", "0"], "{way:?} {text}");
            assert_eq!(rows(&session, "SELECT answers FROM rollout.remote_cache").await?, ["1"], "{way:?} {text}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_text_that_is_no_answer_is_asked_for_again_and_never_kept() -> Result<()> {
    for way in WAYS {
        for (more, end) in [
            (json!({}), json!("error")),
            (json!({}), json!(null)),
            (json!({"reasoning_content": "It might be Jaws."}), json!("stop")),
            (json!({"reasoning": "It might be Jaws."}), json!("length")),
        ] {
            let (data, told, ended) = (temporary(), more.clone(), end.clone());
            // The second request of all is answered, and the fifth.
            let server = OpenAiServer::start(move |asked, number| match number {
                1 | 4 => choice(asked, json!("Jaws"), told.clone(), json!("stop")),
                _ => choice(asked, json!(""), told.clone(), ended.clone()),
            });
            let (_database, session) = with_model(data.path(), &server, &options_of(way, ", retries = 1, price_input = 1")).await?;
            let what = format!("{way:?} {more} {end}");
            assert_eq!(rows(&session, "SELECT generate('m', 'p')").await?, ["Jaws"], "{what}");
            assert_eq!(tallies(&session).await?, ["2", "1", "0", "0", "0"], "{what}");
            assert_eq!(rows(&session, "SELECT prompt_tokens FROM rollout.remote_models").await?, ["200"], "both are paid for: {what}");
            // After the last attempt it is empty, and counted; nobody keeps it.
            assert_eq!(rows(&session, "SELECT generate('m', 'q') = ''").await?, ["true"], "{what}");
            assert_eq!(tallies(&session).await?, ["4", "2", "0", "1", "0"], "{what}");
            assert_eq!(rows(&session, "SELECT answers FROM rollout.remote_cache").await?, ["1"], "{what}");
            assert_eq!(rows(&session, "SELECT generate('m', 'q')").await?, ["Jaws"], "{what}");
            assert_eq!(rows(&session, "SELECT generate('m', 'q')").await?, ["Jaws"], "{what}");
            assert_eq!(tallies(&session).await?, ["5", "2", "0", "1", "0"], "{what}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sample_that_is_no_answer_is_asked_for_again_with_those_beside_it() -> Result<()> {
    let data = temporary();
    let seen = Mutex::new(BTreeSet::new());
    let server = OpenAiServer::start(move |asked, _| {
        let is_first = seen.lock().expect("nobody panicked").insert(asked.body.to_string());
        let texts: Vec<String> = (0..asked.body["n"].as_u64().unwrap_or(1)).map(|sample| reasoned(asked, sample)).collect();
        let choice = |(index, text): (usize, &String)| match (is_first, index) {
            (true, 0) => json!({"index": index, "message": {"content": "", "reasoning_content": text}, "finish_reason": "stop"}),
            _ => json!({"index": index, "message": {"content": text}, "finish_reason": "stop"}),
        };
        let choices: Vec<serde_json::Value> = texts.iter().enumerate().map(choice).collect();
        Reply::json(json!({"choices": choices, "usage": {"prompt_tokens": 100, "completion_tokens": 10}}))
    });
    let (_database, session) = with_model(data.path(), &server, ", samples_per_request = 4").await?;
    run(&session, WORLD).await?;
    run(&session, &GENERATE.replace("children = 2", "children = 4")).await?;
    assert_eq!(number(&session, "SELECT count(*) FROM run WHERE depth > 0 AND response = ''").await?, 0);
    assert!(server.asked().iter().any(|asked| asked.body["n"] == json!(4)), "some samples share a request");
    assert_eq!(number(&session, "SELECT empty_answers FROM rollout.remote_models").await?, 0);
    assert_eq!(number(&session, "SELECT retries * 2 FROM rollout.remote_models").await?, server.num_asked() as i64);
    Ok(())
}

/// A run that meets only such texts has empty steps, and is not resumed from them.
#[tokio::test(flavor = "multi_thread")]
async fn steps_without_an_answer_are_empty_and_their_costs_unknown() -> Result<()> {
    for cache in [true, false] {
        let data = temporary();
        let server = OpenAiServer::always(Reply::json(json!({"choices": [{"message": {"content": null}, "finish_reason": null}]})));
        let options = format!(", retries = 0, price_input = 1, price_output = 1, cache = {cache}");
        let (_database, session) = with_model(data.path(), &server, &options).await?;
        run(&session, WORLD).await?;
        run(&session, GENERATE).await?;
        assert!(number(&session, "SELECT count(*) FROM run WHERE depth > 0 AND response = '' AND cost IS NULL").await? > 0);
        assert_eq!(number(&session, "SELECT count(*) FROM run WHERE response <> '' OR cost IS NOT NULL").await?, 0);
        let empty = number(&session, "SELECT empty_answers FROM rollout.remote_models").await?;
        assert_eq!(empty, server.num_asked() as i64);
        assert_eq!(rows(&session, "SELECT answers FROM rollout.remote_cache").await?, ["0"]);
        for query in [
            "SELECT cost FROM rollout.remote_models",
            "SELECT cost FROM rollout_summary(run)",
            "SELECT cost FROM rollout.task_history WHERE statement LIKE 'GENERATE ROLLOUTS%' LIMIT 1",
        ] {
            assert_eq!(rows(&session, query).await?, [""], "{query}");
        }
    }
    Ok(())
}

/// Of one that counts now and then a sum is unknown too.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_count_costs_nobody_knows_what() -> Result<()> {
    for (usage, cost) in [
        (json!({"prompt_tokens": 100, "completion_tokens": 10}), "0.000220"),
        (json!(null), ""),
        (json!({}), ""),
        (json!({"prompt_tokens": 100}), ""),
        (json!({"prompt_tokens": 0, "completion_tokens": 0}), ""),
    ] {
        let (data, told) = (temporary(), usage.clone());
        let server = OpenAiServer::start(move |asked, number| {
            let usage = if number == 0 { json!({"prompt_tokens": 100, "completion_tokens": 10}) } else { told.clone() };
            Reply::json(json!({"choices": [{"message": {"content": asked.prompt()}, "finish_reason": "stop"}], "usage": usage}))
        });
        let (_database, session) = with_model(data.path(), &server, ", price_input = 1, price_output = 1").await?;
        let cost_of = "SELECT round(cost::numeric, 6) FROM rollout.remote_models";
        rows(&session, "SELECT generate('m', 'p')").await?;
        assert_eq!(rows(&session, cost_of).await?, ["0.000110"], "{usage}");
        rows(&session, "SELECT generate('m', 'q')").await?;
        assert_eq!(rows(&session, cost_of).await?, [cost], "{usage}");
    }
    Ok(())
}
