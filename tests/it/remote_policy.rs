//! Policies behind servers: what is asked, what it costs, what happens when servers fail, and that nothing is paid for twice.

mod bad_answers;
mod cache;
mod context;
mod costs;
mod samples;
mod streaming;
mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arrow::array::AsArray;
use arrow::datatypes::Float64Type;
use futures::future::join_all;
use rolloutdb::{Database, Result, Session};
use serde_json::json;

use crate::database::{files_with, number, open, rows, run, temporary};
use crate::http_server::Asked;
use crate::openai_server::{OpenAiServer, Reply};
use crate::process::{kill_when, sql_command, start_unheard};

const PLANTED: &str = "sk-planted-5c1e-remote-key";
const PATIENCE: Duration = Duration::from_secs(30);

/// A database with the model `m` at this server, made with further options.
async fn with_model(data: &Path, server: &OpenAiServer, options: &str) -> Result<(Database, Session)> {
    let database = open(data, &[server.host()]).await?;
    let session = database.session();
    let create = format!("CREATE MODEL m FROM 'openai://tiny' WITH (task = 'generate', base_url = '{}'{options})", server.base_url());
    rows(&session, &create).await?;
    Ok((database, session))
}

/// What a policy of the protocol `reasonrag` would say: a pure function of what it is asked, cut at its stop text as servers do.
fn reason(asked: &Asked) -> Reply {
    Reply::chat(&reasoned(asked, 0), "stop")
}

/// The text of a sample: as vLLM does, from the seed and the sample's number.
fn reasoned(asked: &Asked, sample: u64) -> String {
    let sum = asked.prompt().bytes().fold(asked.body["seed"].as_u64().unwrap_or(0) + sample, |sum, byte| {
        sum.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(u64::from(byte)).rotate_left(17)
    });
    let whole = match asked.stop().as_slice() {
        ["</evidence>"] => format!("<evidence>seen {}</evidence>", sum % 5),
        ["</answer>"] => format!("So the answer is <answer>{}</answer>", sum % 3),
        _ if sum % 3 == 0 => format!("So the answer is <answer>{}</answer>", sum % 4),
        _ => format!("So the next query is <query>film {}</query>", sum % 7),
    };
    let cut = asked.stop().iter().filter_map(|stop| whole.find(stop)).min();
    whole[..cut.unwrap_or(whole.len())].to_owned()
}

const WORLD: &str = "CREATE TABLE wiki AS SELECT id, contents FROM hopworld_passages(seed => 3);
    CREATE INDEX wiki_text ON wiki USING bm25 (contents);
    CREATE TABLE questions AS SELECT * FROM hopworld_questions(seed => 3, count => 4);
    CREATE AGENT qa WITH (policy = 'm', corpus = 'wiki', retriever = 'text', prompts = 'short', max_tokens = 48)";
const GENERATE: &str = "GENERATE ROLLOUTS INTO run USING AGENT qa FROM (SELECT * FROM questions)
    WITH (simulations = 6, children = 2, max_depth = 5, temperature = 1.0, seed = 5, concurrency = 4)";
const TREE: &str =
    "SELECT question_id, node_id, parent_id, action, response, visit_count, q_value, prompt_tokens, cached_tokens, generated_tokens
    FROM run ORDER BY question_id, node_id";

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_is_asked_once_and_its_answer_outlives_the_process() -> Result<()> {
    let data = temporary();
    let server = OpenAiServer::start(|asked, _| Reply::chat(&format!("{}!", asked.prompt()), "stop"));
    let ask = "SELECT generate('m', prompt, max_tokens => 8, seed => 3) FROM (VALUES ('a'), ('b'), ('a')) p(prompt)";
    {
        let (_database, session) = with_model(data.path(), &server, ", price_input = 2, price_cached = 1, price_output = 10").await?;
        assert_eq!(server.num_asked(), 0, "a model is made without its server");
        assert_eq!(rows(&session, ask).await?, ["a!", "b!", "a!"]);
        assert_eq!(server.num_asked(), 2);
        let asked = &server.asked()[0];
        assert_eq!(asked.path, "/v1/chat/completions");
        assert!(!asked.headers.contains_key("authorization"), "there is no key");
        let expected = json!({"model": "tiny", "messages": [{"role": "user", "content": asked.prompt()}], "max_tokens": 8, "temperature": 0.0, "seed": 3,
            "stream": false});
        assert_eq!(asked.body, expected);
        let tallies =
            "SELECT requests, retries, failures, cache_hits, prompt_tokens, cached_tokens, generated_tokens FROM rollout.remote_models";
        assert_eq!(rows(&session, tallies).await?, ["2", "0", "0", "0", "200", "80", "20"]);
        let cost = run(&session, "SELECT cost FROM rollout.remote_models").await?;
        // 120 tokens read, 80 from a cache, 20 written.
        let cost = cost[0].column(0).as_primitive::<Float64Type>().value(0);
        assert!((cost - 520e-6).abs() < 1e-12, "{cost}");
        // Another setting is another question.
        rows(&session, "SELECT generate('m', 'a', max_tokens => 9, seed => 3)").await?;
        assert_eq!(server.num_asked(), 3);
    }
    let database = open(data.path(), &[server.host()]).await?;
    let session = database.session();
    assert_eq!(rows(&session, ask).await?, ["a!", "b!", "a!"]);
    assert_eq!(server.num_asked(), 3, "the answers were kept");
    assert_eq!(rows(&session, "SELECT requests, cache_hits FROM rollout.remote_models").await?, ["0", "2"]);
    assert_eq!(rows(&session, "SELECT answers, files FROM rollout.remote_cache").await?, ["3", "1"]);
    // A model of that server under another name has the same answers.
    rows(&session, &format!("CREATE MODEL again FROM 'openai://tiny' WITH (base_url = ['{}'])", server.base_url())).await?;
    assert_eq!(rows(&session, &ask.replace("'m'", "'again'")).await?, ["a!", "b!", "a!"]);
    assert_eq!(server.num_asked(), 3);
    // Unless it does not want them.
    rows(&session, &format!("CREATE MODEL fresh FROM 'openai://tiny' WITH (base_url = '{}', cache = false)", server.base_url())).await?;
    rows(&session, &ask.replace("'m'", "'fresh'")).await?;
    assert_eq!(server.num_asked(), 5);
    assert_eq!(rows(&session, "SELECT answers FROM rollout.remote_cache").await?, ["3"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn completions_ends_and_log_probabilities() -> Result<()> {
    let data = temporary();
    let server = OpenAiServer::start(|asked, _| {
        let logprobs = json!({"tokens": [" x", "y"], "token_logprobs": [-0.5, -0.25]});
        assert_eq!(
            (asked.path.as_str(), asked.body["logprobs"].as_i64(), asked.body["top_k"].as_i64()),
            ("/v1/completions", Some(1), Some(5))
        );
        Reply::json(json!({"choices": [{"text": " xy STOP z", "finish_reason": "length", "logprobs": logprobs}]}))
    });
    let (_database, session) =
        with_model(data.path(), &server, r#", api = 'completions', logprobs = true, extra = '{"top_k": 5}'"#).await?;
    // Servers that pass over stop texts are cut here.
    assert_eq!(rows(&session, "SELECT generate('m', 'p', stop => ARRAY['STOP'])").await?, [" xy "]);
    assert_eq!(server.asked()[0].body["stop"], json!(["STOP"]));
    Ok(())
}

/// They come to the steps of answers and to the nodes of trees: the ids where the server tells them too.
#[tokio::test(flavor = "multi_thread")]
async fn log_probabilities_reach_the_rows() -> Result<()> {
    for has_ids in [true, false] {
        let data = temporary();
        let server = OpenAiServer::start(move |_, _| {
            let mut choice =
                json!({"text": "Jaws", "finish_reason": "stop", "logprobs": {"tokens": ["Ja", "ws"], "token_logprobs": [-0.5, -0.25]}});
            if has_ids {
                choice["token_ids"] = json!([7, 8]);
            }
            Reply::json(json!({"choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}))
        });
        let (_database, session) = with_model(data.path(), &server, ", api = 'completions', logprobs = true").await?;
        for statement in [
            "CREATE TABLE wiki AS SELECT 'a' AS id, 'Jaws is a film.' AS contents",
            "CREATE INDEX wiki_text ON wiki USING bm25 (contents)",
            "CREATE AGENT qa WITH (policy = 'm', corpus = 'wiki', retriever = 'text', protocol = 'direct', prompts = 'short')",
            "GENERATE ROLLOUTS INTO run USING AGENT qa FROM (SELECT 'q' AS id, 'Which film?' AS question, 'Jaws' AS golden_answers) WITH (method = 'sample', simulations = 1)",
        ] {
            rows(&session, statement).await?;
        }
        assert_eq!(rows(&session, "SELECT logprob FROM answer_steps('Which film?', agent => 'qa')").await?, ["-0.75"], "ids: {has_ids}");
        let node = "SELECT token_ids::text || ' ' || token_logprobs::text FROM run WHERE parent_id IS NOT NULL";
        let ids = if has_ids { "{7,8}" } else { "{}" };
        assert_eq!(rows(&session, node).await?, [format!("{ids} {{-0.5,-0.25}}")]);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_passes_is_tried_again() -> Result<()> {
    let whole = json!({"choices": [{"message": {"content": "never whole"}}]}).to_string();
    let faults = [
        ("429", Reply::Say(429, vec![("Retry-After", "1".to_owned())], "slow down".to_owned())),
        ("500", Reply::error(500, "out of order")),
        ("a cut body", Reply::Cut(whole.clone())),
        ("half of a JSON text", Reply::Say(200, vec![], whole[..whole.len() / 2].to_owned())),
        ("another JSON text", Reply::json(json!({"choices": []}))),
        ("a page", Reply::Say(502, vec![], "<html>bad gateway</html>".to_owned())),
        ("nothing in time", Reply::Hang),
    ];
    for (what, fault) in faults {
        let data = temporary();
        let is_limit = what == "429";
        let server = OpenAiServer::start(move |_, number| if number == 0 { fault.clone() } else { Reply::chat("right", "stop") });
        let (_database, session) = with_model(data.path(), &server, ", timeout = 0.5").await?;
        let started = Instant::now();
        assert_eq!(rows(&session, "SELECT generate('m', 'p')").await?, ["right"], "{what}");
        assert_eq!(server.num_asked(), 2, "{what}");
        assert!(
            !is_limit || started.elapsed() >= Duration::from_secs(1),
            "{what}: the server asked for a second, it got {:?}",
            started.elapsed()
        );
        assert_eq!(rows(&session, "SELECT requests, retries, failures FROM rollout.remote_models").await?, ["2", "1", "0"], "{what}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stays_is_an_error_that_says_what_to_do() -> Result<()> {
    // (reply, retries, requests, SQLSTATE, words)
    let cases = [
        (Reply::error(400, "temperature is too hot"), 5, 1, "58000", "temperature is too hot"),
        (Reply::error(401, "no such key"), 5, 1, "58000", "CREATE SECRET"),
        (Reply::error(404, "no model tiny"), 5, 1, "58000", "openai://NAME"),
        (Reply::Say(307, vec![("Location", "http://127.0.0.1:1/".to_owned())], String::new()), 5, 1, "58000", "redirects"),
        (Reply::Say(429, vec![("Retry-After", "3600".to_owned())], String::new()), 5, 1, "58000", "requests_per_minute"),
        (
            Reply::Say(429, vec![], json!({"error": {"message": "no money", "code": "insufficient_quota"}}).to_string()),
            5,
            1,
            "58000",
            "no money",
        ),
        (Reply::error(503, "overloaded"), 1, 2, "58000", "overloaded"),
        (Reply::json(json!({"answer": 42})), 1, 2, "58000", "/v1"),
        (Reply::Cut("x".repeat(100)), 1, 2, "08006", "broke off"),
        (Reply::Hang, 1, 2, "08006", "timeout"),
    ];
    for (reply, retries, requests, state, words) in cases {
        let data = temporary();
        let server = OpenAiServer::always(reply.clone());
        let (_database, session) = with_model(data.path(), &server, &format!(", retries = {retries}, timeout = 0.3")).await?;
        let error = rows(&session, "SELECT generate('m', 'p')").await.expect_err("it fails");
        let message = error.client_message();
        assert_eq!(error.sqlstate(), state, "{reply:?}: {message}");
        assert!(message.contains(words) && message.contains("m@1") && message.contains("127.0.0.1"), "{reply:?}: {message}");
        assert_eq!(server.num_asked(), requests, "{reply:?}");
        assert_eq!(number(&session, "SELECT failures FROM rollout.remote_models").await?, 1);
        assert_eq!(number(&session, "SELECT answers FROM rollout.remote_cache").await?, 0, "a failure is no answer");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there() -> Result<()> {
    let data = temporary();
    let host = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        format!("http://{}", listener.local_addr().expect("it is bound"))
    };
    let session = open(data.path(), std::slice::from_ref(&host)).await?.session();
    rows(&session, &format!("CREATE MODEL m FROM 'openai://tiny' WITH (base_url = '{host}/v1', retries = 1)")).await?;
    let error = rows(&session, "SELECT generate('m', 'p')").await.expect_err("nobody is there");
    assert_eq!(error.sqlstate(), "08006", "{error}");
    assert!(error.client_message().contains("cannot be reached, tried 2 times"), "{}", error.client_message());
    for train in [
        "TRAIN SFT MODEL better FROM m USING (SELECT 'a' AS prompt, 'b' AS completion)",
        "TRAIN GRPO MODEL better FROM m USING (SELECT 'a' AS question, 'b' AS golden_answers) WITH (agent = 'qa')",
    ] {
        assert_eq!(rows(&session, train).await.expect_err("there are no weights").sqlstate(), "0A000", "{train}");
    }
    let embed = rows(&session, "SELECT embed('m', 'text')").await.expect_err("it does not embed");
    assert_eq!(embed.sqlstate(), "42804", "{embed}");
    let described = rows(&session, "DESCRIBE MODEL m").await?.join(" ");
    assert!(described.contains("remote") && described.contains(&host), "{described}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_requests_in_flight_are_one() -> Result<()> {
    let data = temporary();
    let server = OpenAiServer::start(|asked, _| Reply::after(500, Reply::chat(asked.prompt(), "stop")));
    let (database, _session) = with_model(data.path(), &server, "").await?;
    let ask = |_| {
        let session = database.session();
        async move { rows(&session, "SELECT generate('m', 'p', temperature => 0.5)").await }
    };
    for answer in join_all((0..8).map(ask)).await {
        assert_eq!(answer?, ["p"]);
    }
    assert_eq!(server.num_asked(), 1);
    assert_eq!(rows(&database.session(), "SELECT requests, shared FROM rollout.remote_models").await?, ["1", "7"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_statement_gives_its_requests_up() -> Result<()> {
    let data = temporary();
    let server = OpenAiServer::always(Reply::Hang);
    let (_database, session) = with_model(data.path(), &server, ", concurrency = 4").await?;
    rows(&session, "SET statement_timeout = '400ms'").await?;
    let started = Instant::now();
    let many = "SELECT generate('m', value::text) FROM generate_series(1, 20) s(value)";
    assert_eq!(rows(&session, many).await.expect_err("it is over").sqlstate(), "57014");
    assert!(started.elapsed() < PATIENCE, "{:?}", started.elapsed());
    while server.given_up() < 4 && started.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!((server.num_asked(), server.given_up()), (4, 4), "as many as may be in flight, and the server sees them go");
    rows(&session, "SET statement_timeout = 0").await?;
    assert_eq!(number(&session, "SELECT in_flight FROM rollout.remote_models").await?, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_requests_than_allowed() -> Result<()> {
    let data = temporary();
    let server = OpenAiServer::start(|asked, _| Reply::after(20, Reply::chat(asked.prompt(), "stop")));
    let (_database, session) = with_model(data.path(), &server, ", concurrency = 3").await?;
    let many = |model: &str, count: usize| {
        format!("SELECT count(DISTINCT generate('{model}', value::text)) FROM generate_series(1, {count}) s(value)")
    };
    assert_eq!(number(&session, &many("m", 60)).await?, 60);
    assert_eq!((server.num_asked(), server.most_in_flight()), (60, 3));
    let create = format!("CREATE MODEL slow FROM 'openai://slow' WITH (base_url = '{}', requests_per_minute = 1200)", server.base_url());
    rows(&session, &create).await?;
    let started = Instant::now();
    assert_eq!(number(&session, &many("slow", 11)).await?, 11);
    // Ten gaps of 50 ms.
    assert!(started.elapsed() >= Duration::from_millis(500), "{:?}", started.elapsed());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_with_the_least_to_do_is_asked() -> Result<()> {
    let data = temporary();
    let fast = OpenAiServer::start(|asked, _| Reply::chat(asked.prompt(), "stop"));
    let slow = OpenAiServer::start(|asked, _| Reply::after(400, Reply::chat(asked.prompt(), "stop")));
    let broken = OpenAiServer::always(Reply::error(503, "out of order"));
    let gone = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        format!("http://{}", listener.local_addr().expect("it is bound"))
    };
    let database = open(data.path(), &[fast.host(), slow.host(), broken.host(), gone.clone()]).await?;
    let session = database.session();
    let urls = |urls: &[String]| urls.iter().map(|url| format!("'{url}'")).collect::<Vec<_>>().join(", ");
    let both = urls(&[slow.base_url(), fast.base_url()]);
    rows(&session, &format!("CREATE MODEL m FROM 'openai://tiny' WITH (base_url = [{both}], concurrency = 4)")).await?;
    let many = |model: &str| format!("SELECT count(DISTINCT generate('{model}', value::text)) FROM generate_series(1, 60) s(value)");
    assert_eq!(number(&session, &many("m")).await?, 60);
    assert_eq!(slow.num_asked() + fast.num_asked(), 60);
    assert!(slow.num_asked() < 20, "the slow one got {} of 60", slow.num_asked());
    // Those that fail are passed over, and nothing waits for them.
    let asked_before = fast.num_asked();
    let three = urls(&[format!("{gone}/v1"), broken.base_url(), fast.base_url()]);
    rows(&session, &format!("CREATE MODEL f FROM 'openai://tiny' WITH (base_url = [{three}], concurrency = 4)")).await?;
    let started = Instant::now();
    assert_eq!(number(&session, &many("f")).await?, 60);
    assert_eq!(fast.num_asked() - asked_before, 60);
    assert!(broken.num_asked() < 20, "the broken one got {} requests", broken.num_asked());
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_goes_to_its_server_and_nowhere_else() -> Result<()> {
    let (data, files) = (temporary(), temporary());
    let key = files.path().join("key");
    std::fs::write(&key, format!("{PLANTED}\n")).expect("a temporary file is writable");
    // It says which key it got, whole and in pieces.
    let server = OpenAiServer::start(|asked, number| {
        let got = asked.headers.get("authorization").cloned().unwrap_or_default();
        match number {
            0 => Reply::error(401, &format!("wrong key: {got}, {}", &got[..got.len() - 4])),
            1 => Reply::error(400, &got),
            2 => Reply::Say(403, vec![], got),
            _ => Reply::chat("in", "stop"),
        }
    });
    let database = open(data.path(), &[server.host()]).await?;
    let session = database.session();
    let create = format!("CREATE MODEL m FROM 'openai://tiny' WITH (base_url = '{}', secret = 'hub', retries = 0)", server.base_url());
    assert_eq!(rows(&session, &create).await.expect_err("there is no such secret").sqlstate(), "42704");
    rows(&session, &format!("CREATE SECRET hub FROM FILE '{}'", key.display())).await?;
    rows(&session, &create).await?;
    let mut said = String::new();
    for _ in 0..3 {
        let error = rows(&session, "SELECT generate('m', 'p')").await.expect_err("it is refused");
        said += &format!("{error} {error:?} {}", error.client_message());
        assert!(error.client_message().contains("***"), "{}", error.client_message());
    }
    assert!(said.contains("\\\"hub\\\"") || said.contains("\"hub\""), "the message names the secret: {said}");
    assert_eq!(rows(&session, "SELECT generate('m', 'p')").await?, ["in"]);
    assert_eq!(server.asked()[3].headers["authorization"], format!("Bearer {PLANTED}"));
    for statement in [
        "DESCRIBE MODEL m",
        "SHOW MODELS",
        "SELECT * FROM rollout.models",
        "SELECT * FROM rollout.remote_models",
        "EXPLAIN ANALYZE SELECT generate('m', 'p')",
        "EXPLAIN VERBOSE SELECT generate('m', 'q')",
        "SELECT * FROM rollout.secrets",
    ] {
        said += &rows(&session, statement).await?.join(" ");
    }
    assert!(!said.contains(&PLANTED[3..]), "{said}");
    // The value as it is now; without one there is nothing to send.
    std::fs::write(&key, "sk-another\n").expect("a temporary file is writable");
    rows(&session, "SELECT generate('m', 'another')").await?;
    assert_eq!(server.asked()[4].headers["authorization"], "Bearer sk-another");
    rows(&session, "DROP SECRET hub").await?;
    let error = rows(&session, "SELECT generate('m', 'a third')").await.expect_err("the secret is gone");
    assert_eq!((error.sqlstate(), server.num_asked()), ("55000", 5), "{error}");
    drop((session, database));
    assert_eq!(files_with(data.path(), PLANTED), Vec::<String>::new());
    assert_eq!(files_with(data.path(), "sk-another"), Vec::<String>::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_hosts_that_are_allowed_are_asked() -> Result<()> {
    let data = temporary();
    let server = OpenAiServer::always(Reply::chat("x", "stop"));
    let by_name = server.base_url().replace("127.0.0.1", "localhost");
    {
        let session = open(data.path(), &[server.host(), by_name.trim_end_matches("/v1").to_owned()]).await?.session();
        for url in ["https://example.org/v1", "http://127.0.0.1:1/v1", "https://127.0.0.1/v1", "http://169.254.169.254/latest"] {
            let create = format!("CREATE MODEL other FROM 'openai://tiny' WITH (base_url = '{url}, {}')", server.base_url());
            assert_eq!(rows(&session, &create).await.expect_err(url).sqlstate(), "42501", "{url}");
        }
        rows(&session, &format!("CREATE MODEL m FROM 'openai://tiny' WITH (base_url = '{}')", server.base_url())).await?;
        rows(&session, "SELECT generate('m', 'p')").await?;
    }
    {
        // A name that is allowed leads to a private address that is not.
        let session = open(data.path(), &[by_name.trim_end_matches("/v1").to_owned()]).await?.session();
        rows(&session, &format!("CREATE MODEL named FROM 'openai://tiny' WITH (base_url = '{by_name}', retries = 0)")).await?;
        let error = rows(&session, "SELECT generate('named', 'p')").await.expect_err("the address is private");
        assert_eq!(error.sqlstate(), "42501", "{error}");
    }
    // The process was started without its host.
    let session = open(data.path(), &[]).await?.session();
    assert_eq!(rows(&session, "SELECT generate('m', 'q')").await.expect_err("it is not allowed").sqlstate(), "42501");
    assert_eq!(server.num_asked(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_answer_and_search_with_a_server() -> Result<()> {
    let mut trees = Vec::new();
    for _ in 0..2 {
        let data = temporary();
        let server = OpenAiServer::start(|asked, _| reason(asked));
        let (_database, session) = with_model(data.path(), &server, "").await?;
        rows(&session, WORLD).await?;
        let answers =
            rows(&session, "SELECT a.answer, a.stop_reason FROM questions q CROSS JOIN LATERAL answer(q.question, agent => 'qa') a")
                .await?;
        assert!(answers.iter().any(|word| word == "answered"), "{answers:?}");
        rows(&session, GENERATE).await?;
        let sampled =
            number(&session, "SELECT count(*) FROM run WHERE prompt_tokens >= 100 AND cached_tokens * 10 = prompt_tokens * 4").await?;
        assert!(sampled > 8, "{sampled} nodes tell what they cost");
        let malformed = number(&session, "SELECT count(*) FROM run WHERE action = 'malformed'").await?;
        assert_eq!(malformed, 0, "the text that ended a response is put back");
        trees.push(rows(&session, TREE).await?);
        let asked: BTreeSet<String> = server.asked().iter().map(|asked| asked.body.to_string()).collect();
        assert_eq!(asked.len(), server.num_asked(), "no request was made twice");
    }
    assert_eq!(trees[0], trees[1]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_run_that_goes_on_pays_nothing_twice() -> Result<()> {
    killed_run("", reason).await
}

/// `reason`: how the server answers.
async fn killed_run(options: &str, reason: fn(&Asked) -> Reply) -> Result<()> {
    let expected = {
        let (data, server) = (temporary(), OpenAiServer::start(move |asked, _| reason(asked)));
        let (_database, session) = with_model(data.path(), &server, options).await?;
        rows(&session, WORLD).await?;
        rows(&session, GENERATE).await?;
        rows(&session, TREE).await?
    };
    let data = temporary();
    let hangs = Arc::new(AtomicBool::new(true));
    let is_hanging = Arc::clone(&hangs);
    let server = OpenAiServer::start(
        move |asked, number| {
            if number >= 15 && is_hanging.load(Ordering::SeqCst) { Reply::Hang } else { reason(asked) }
        },
    );
    {
        let (_database, session) = with_model(data.path(), &server, options).await?;
        rows(&session, WORLD).await?;
    }
    let child = start_unheard(sql_command(data.path(), GENERATE).args(["--allow-host", &server.host()]));
    // Until what can be answered is answered, and kept.
    let (mut num_asked, mut since) = (0, Instant::now());
    kill_when(child, "GENERATE ROLLOUTS", || {
        if server.num_asked() != num_asked {
            (num_asked, since) = (server.num_asked(), Instant::now());
        }
        num_asked >= 16 && since.elapsed() >= Duration::from_secs(2)
    });
    let paid = server.answered().len();
    assert_eq!(paid, 15);

    hangs.store(false, Ordering::SeqCst);
    let database = open(data.path(), &[server.host()]).await?;
    let session = database.session();
    rows(&session, GENERATE).await?;
    let mut times = BTreeMap::<String, usize>::new();
    for asked in server.answered() {
        *times.entry(asked.body.to_string()).or_default() += 1;
    }
    assert!(times.len() > paid, "there was more to ask: {} of {paid}", times.len());
    assert_eq!(times.values().filter(|times| **times > 1).count(), 0, "paid for twice");
    assert!(number(&session, "SELECT cache_hits FROM rollout.remote_models").await? > 0);
    assert_eq!(rows(&session, TREE).await?, expected, "the same tree as without the kill");
    Ok(())
}

/// What a call costs beside the server's work: `cargo test --test it -- --ignored --nocapture overhead_of_a_call`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn overhead_of_a_call() -> Result<()> {
    // Four thousand characters, of which a stream has eight in a piece.
    let server = OpenAiServer::start(|asked, _| {
        let reply = Reply::chat(asked.prompt(), "stop");
        if asked.body["stream"] == json!(true) { reply.streamed(asked, 8) } else { reply }
    });
    let prompt = "passage ".repeat(500);
    for (concurrency, cache, stream) in
        [(1, false, false), (1, true, false), (16, false, false), (16, true, false), (1, false, true), (16, false, true), (16, true, true)]
    {
        let data = temporary();
        let options = format!(", concurrency = {concurrency}, cache = {cache}, stream = {stream}");
        let (_database, session) = with_model(data.path(), &server, &options).await?;
        let ask = |from: usize, to: usize| {
            format!("SELECT count(generate('m', '{prompt}' || value::text, max_tokens => 8)) FROM generate_series({from}, {to}) s(value)")
        };
        rows(&session, &ask(1, 20)).await?;
        let started = Instant::now();
        rows(&session, &ask(1_001, 2_000)).await?;
        println!("concurrency {concurrency}, cache {cache}, stream {stream}: {:.3} ms a call", started.elapsed().as_secs_f64());
    }
    Ok(())
}
