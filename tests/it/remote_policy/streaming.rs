//! Answers that are read as they are written.

use super::*;
use crate::openai_server::Piece;

const TEXTS: [&str; 5] =
    ["So it is.", "", "Émile 漢字 \u{1f600}\r\n\ndata: [DONE]\n\n: x", "</answer", "Question: {\"choices\": []} \\n \"quoted\" it"];

/// The text of the prompt's number, in the form and the way that it is asked for.
fn one_of_the_texts(asked: &Asked) -> Reply {
    let text = TEXTS[asked.prompt().parse::<usize>().expect("a number") % TEXTS.len()];
    if asked.is_chat() {
        return Reply::chat(text, "stop");
    }
    let usage = json!({"prompt_tokens": 100, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 40}});
    Reply::json(json!({"choices": [{"index": 0, "text": text, "finish_reason": "stop"}], "usage": usage}))
}

/// Pieces of so many bytes, whatever they cut, with comments between the events and lines that end in two bytes.
fn in_bytes(reply: Reply, piece_bytes: usize) -> Reply {
    let Reply::Stream(pieces) = reply else { return reply };
    let data =
        |piece: &Piece| if let Piece::Data(data) = piece { format!(": still here\r\n\r\ndata: {data}\r\n\r\n") } else { String::new() };
    let whole: String = pieces.iter().map(data).collect();
    Reply::Stream(whole.as_bytes().chunks(piece_bytes).map(|piece| Piece::Raw(piece.to_vec())).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_in_pieces_is_the_text() -> Result<()> {
    for (api, piece) in [("chat", 1), ("chat", 3), ("chat", 1000), ("completions", 1), ("completions", 7)] {
        for is_cut_anywhere in [false, true] {
            let data = temporary();
            let server = OpenAiServer::start(move |asked, _| {
                let whole = one_of_the_texts(asked);
                if asked.body["stream"] == json!(false) {
                    whole
                } else if is_cut_anywhere {
                    in_bytes(whole.streamed(asked, 2), piece)
                } else {
                    whole.streamed(asked, piece)
                }
            });
            let session = open(data.path(), &[server.host()]).await?.session();
            for (name, stream) in [("whole", false), ("pieces", true)] {
                let options = format!("base_url = '{}', api = '{api}', stream = {stream}, retries = 0", server.base_url());
                rows(&session, &format!("CREATE MODEL {name} FROM 'openai://{name}' WITH ({options})")).await?;
            }
            let said = |model: &str| format!("SELECT generate('{model}', value::text) FROM generate_series(0, 4) s(value) ORDER BY value");
            assert_eq!(rows(&session, &said("whole")).await?, TEXTS);
            assert_eq!(rows(&session, &said("pieces")).await?, TEXTS, "{api}, {piece}, {is_cut_anywhere}");
            let tallies =
                "SELECT requests, failures, prompt_tokens, cached_tokens, generated_tokens FROM rollout.remote_models WHERE name = 'whole'";
            let paid = rows(&session, tallies).await?;
            assert_eq!(paid, ["5", "0", "500", "200", "50"]);
            assert_eq!(rows(&session, &tallies.replace("whole", "pieces")).await?, paid);
            // These servers pass over stop texts.
            let stopped = |model: &str| said(model).replace("::text)", "::text, stop => ARRAY['it', '</answer>'])");
            let whole = rows(&session, &stopped("whole")).await?;
            assert_eq!(rows(&session, &stopped("pieces")).await?, whole, "{api}, {piece}, {is_cut_anywhere}");
            assert_eq!((whole[0].as_str(), whole[2].as_str()), ("So ", TEXTS[2]));
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn how_an_answer_comes_does_not_matter_to_who_kept_it() -> Result<()> {
    let data = temporary();
    let server = OpenAiServer::start(|asked, _| Reply::chat(asked.prompt(), "stop").streamed(asked, 2));
    let (_database, session) = with_model(data.path(), &server, ", stream = true").await?;
    assert_eq!(rows(&session, "SELECT generate('m', 'prompt')").await?, ["prompt"]);
    let asked = &server.asked()[0].body;
    assert_eq!((&asked["stream"], &asked["stream_options"]), (&json!(true), &json!({"include_usage": true})));
    rows(&session, &format!("CREATE MODEL plain FROM 'openai://tiny' WITH (base_url = '{}')", server.base_url())).await?;
    assert_eq!(rows(&session, "SELECT generate('plain', 'prompt')").await?, ["prompt"]);
    assert_eq!(server.num_asked(), 1);
    // There are servers that know no streams.
    let whole = OpenAiServer::always(Reply::chat("in one piece", "stop"));
    let data = temporary();
    let (_database, session) = with_model(data.path(), &whole, ", stream = true").await?;
    assert_eq!(rows(&session, "SELECT generate('m', 'prompt')").await?, ["in one piece"]);
    Ok(())
}

/// The server is not told the stop text: it would write for ten seconds.
#[tokio::test(flavor = "multi_thread")]
async fn a_text_ends_at_a_stop_that_only_we_know() -> Result<()> {
    let data = temporary();
    let server = OpenAiServer::start(|asked, _| {
        assert_eq!(asked.body.get("stop"), None);
        let going_on = (0..2_000).flat_map(|_| [Piece::pause(5), Piece::chat(" on")]);
        Reply::Stream(["So ", "it is</ans", "wer> and"].map(Piece::chat).into_iter().chain(going_on).collect())
    });
    let (_database, session) = with_model(data.path(), &server, r#", stream = true, extra = '{"stop": null}'"#).await?;
    let ask = "SELECT generate('m', 'p', stop => ARRAY['</answer>'])";
    let started = Instant::now();
    assert_eq!(rows(&session, ask).await?, ["So it is"]);
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
    while server.given_up() < 1 && started.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!((server.num_asked(), server.given_up()), (1, 1), "the server sees that nobody listens");
    assert!(server.written() < 1_500, "{} pieces", server.written());
    // Who is not heard to the end does not say what it has counted: each piece is a token.
    let tallies = "SELECT requests, failures, prompt_tokens, generated_tokens FROM rollout.remote_models";
    assert_eq!(rows(&session, tallies).await?, ["1", "0", "0", "4"]);
    assert_eq!(number(&session, "SELECT answers FROM rollout.remote_cache").await?, 1);
    // Another stop text is another question.
    assert_eq!(rows(&session, "SELECT generate('m', 'p', stop => ARRAY['is</'])").await?, ["So it "]);
    assert_eq!(server.num_asked(), 2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_ends_a_stream_in_the_middle() -> Result<()> {
    let data = temporary();
    let server = OpenAiServer::always(Reply::Stream(vec![Piece::chat("So"), Piece::Hang]));
    let (_database, session) = with_model(data.path(), &server, ", stream = true").await?;
    rows(&session, "SET statement_timeout = '400ms'").await?;
    let started = Instant::now();
    assert_eq!(rows(&session, "SELECT generate('m', 'p')").await.expect_err("it is over").sqlstate(), "57014");
    while server.given_up() < 1 && started.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!((server.num_asked(), server.given_up()), (1, 1));
    rows(&session, "SET statement_timeout = 0").await?;
    assert_eq!(rows(&session, "SELECT in_flight, requests FROM rollout.remote_models").await?, ["0", "1"]);
    assert_eq!(number(&session, "SELECT answers FROM rollout.remote_cache").await?, 0, "half a text is no answer");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_may_wait_before_a_text_and_not_within_it() -> Result<()> {
    let data = temporary();
    let server = OpenAiServer::start(|asked, number| {
        let right = Reply::chat("right", "stop").streamed(asked, 2);
        let Reply::Stream(mut pieces) = right else { panic!("it is a stream") };
        match (asked.prompt(), number) {
            ("within", 0) => Reply::Stream(vec![Piece::chat("So"), Piece::Hang]),
            ("before", _) => {
                let role = Piece::Data(json!({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}).to_string());
                pieces.splice(0..0, [role, Piece::Raw(b": in the queue\n\n".to_vec()), Piece::pause(1_200)]);
                Reply::Stream(pieces)
            }
            _ => Reply::Stream(pieces),
        }
    });
    let (_database, session) = with_model(data.path(), &server, ", stream = true, idle_timeout = 0.4, retries = 1").await?;
    let started = Instant::now();
    assert_eq!(rows(&session, "SELECT generate('m', 'within')").await?, ["right"]);
    assert!(started.elapsed() < Duration::from_secs(20), "it does not wait for the option timeout: {:?}", started.elapsed());
    assert_eq!(rows(&session, "SELECT requests, retries, failures FROM rollout.remote_models").await?, ["2", "1", "0"]);
    assert_eq!(rows(&session, "SELECT generate('m', 'before')").await?, ["right"]);
    assert_eq!(server.num_asked(), 3);
    Ok(())
}

fn faults() -> Vec<(&'static str, Reply, &'static str)> {
    let data = |json: serde_json::Value| Piece::Data(json.to_string());
    vec![
        ("a cut stream", Reply::Stream(vec![Piece::chat("So"), Piece::Cut]), "08006"),
        ("a cut event", Reply::Stream(vec![Piece::chat("So"), Piece::Raw(b"data: {\"cho".to_vec()), Piece::Cut]), "08006"),
        ("an end without a last word", Reply::Stream(vec![Piece::chat("So")]), "08006"),
        ("half of an event", Reply::Stream(vec![Piece::chat("So"), Piece::Data("{\"choices\": [".to_owned())]), "58000"),
        ("an event that is none", Reply::Stream(vec![data(json!({"choices": [{"delta": {"content": 7}}]}))]), "58000"),
        ("no event", Reply::Stream(vec![]), "58000"),
        ("a complaint", Reply::Stream(vec![Piece::chat("So"), data(json!({"error": {"message": "worn out", "code": 503}}))]), "58000"),
        ("a complaint without a number", Reply::Stream(vec![data(json!({"error": "worn out"}))]), "58000"),
        ("a page", Reply::Say(200, vec![], "<html>welcome</html>".to_owned()), "58000"),
        ("a refusal", Reply::error(503, "overloaded"), "58000"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_breaks_is_a_failed_attempt() -> Result<()> {
    for (what, fault, state) in faults() {
        let data = temporary();
        let broken = fault.clone();
        let server = OpenAiServer::start(
            move |asked, number| {
                if number == 0 { broken.clone() } else { Reply::chat("right", "stop").streamed(asked, 2) }
            },
        );
        let (_database, session) = with_model(data.path(), &server, ", stream = true").await?;
        assert_eq!(rows(&session, "SELECT generate('m', 'p')").await?, ["right"], "{what}");
        assert_eq!(rows(&session, "SELECT requests, retries, failures FROM rollout.remote_models").await?, ["2", "1", "0"], "{what}");

        let (data, server) = (temporary(), OpenAiServer::always(fault));
        let (_database, session) = with_model(data.path(), &server, ", stream = true, retries = 0").await?;
        let error = rows(&session, "SELECT generate('m', 'p')").await.expect_err(what);
        assert_eq!(error.sqlstate(), state, "{what}: {error}");
        assert_eq!(number(&session, "SELECT answers FROM rollout.remote_cache").await?, 0, "{what}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_complaint_in_a_stream_does_not_tell_the_key() -> Result<()> {
    let (data, files) = (temporary(), temporary());
    let key = files.path().join("key");
    std::fs::write(&key, format!("{PLANTED}\n")).expect("a temporary file is writable");
    let server = OpenAiServer::start(|asked, _| {
        let words = format!("your key is {}", asked.headers["authorization"]);
        Reply::Stream(vec![Piece::chat("So"), Piece::Data(json!({"error": {"message": words, "code": 400}}).to_string())])
    });
    let session = open(data.path(), &[server.host()]).await?.session();
    rows(&session, &format!("CREATE SECRET hub FROM FILE '{}'", key.display())).await?;
    let options = format!("base_url = '{}', secret = 'hub', stream = true", server.base_url());
    rows(&session, &format!("CREATE MODEL m FROM 'openai://tiny' WITH ({options})")).await?;
    let error = rows(&session, "SELECT generate('m', 'p')").await.expect_err("it is refused");
    let said = format!("{error} {error:?} {}", error.client_message());
    assert!(said.contains("your key is") && said.contains("***") && !said.contains(&PLANTED[3..]), "{said}");
    assert_eq!(server.num_asked(), 1, "a refusal stays");
    Ok(())
}
