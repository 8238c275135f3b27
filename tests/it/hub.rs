//! Models from a hub: what is asked and of whom, what a cut, a kill and a cancel leave, what a hostile hub can do.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rolloutdb::{Result, Session};
use serde_json::json;

use crate::database::{files_with, open, rows, temporary};
use crate::hub_server::{COMMIT, HubServer, Reply, Repository};
use crate::process::{ServerProcess, binary, kill_when, sql_command, start_unheard};
use crate::{files_below, project};

const WEIGHTS: &str = "model.safetensors";
const PLANTED: &str = "hf_planted-8d21-hub-token";
const PATIENCE: Duration = Duration::from_secs(30);

/// `CREATE MODEL m` from the repository at this server, with further options.
fn create(server: &HubServer, options: &str) -> String {
    format!("CREATE MODEL m FROM 'hf://org/model' WITH (endpoint = '{}'{options})", server.url())
}

/// A database that may ask this server alone.
async fn session(data: &Path, server: &HubServer) -> Result<Session> {
    Ok(open(data, &[server.url()]).await?.session())
}

/// Every file below a folder, by its path in it.
fn files(folder: &Path) -> Vec<String> {
    files_below(folder).iter().map(|path| path.strip_prefix(folder).expect("it is below").display().to_string()).collect()
}

/// Where the only commit of a data directory is kept.
fn kept(data: &Path) -> PathBuf {
    let file = files(&data.join("hub")).into_iter().next().expect("something was fetched");
    let path = data.join("hub").join(file);
    path.ancestors().find(|path| path.ends_with(COMMIT)).expect("files are kept by commit").to_owned()
}

/// As the fixture's own model.
async fn embeds_right(session: &Session) -> Result<()> {
    let fixture = project().join("tests/fixtures/models/bert");
    rows(session, &format!("CREATE MODEL IF NOT EXISTS fixture FROM '{}'", fixture.display())).await?;
    let compare = "SELECT embed('m', 'a film by Ada') = embed('fixture', 'a film by Ada')";
    assert_eq!(rows(session, compare).await?, ["true"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_is_fetched_once() -> Result<()> {
    let data = temporary();
    let server = HubServer::of(&Repository::of_fixture("bert"));
    let session = session(data.path(), &server).await?;
    rows(&session, &create(&server, ", task = 'embed'")).await?;
    embeds_right(&session).await?;
    let asked: Vec<String> = server.asked().into_iter().map(|asked| asked.path).collect();
    assert_eq!(asked[0], "/api/models/org/model/revision/main?blobs=true");
    assert_eq!(asked[1], format!("/org/model/resolve/{COMMIT}/config.json"), "what says whether it could run comes first");
    let mut others: Vec<&str> = asked[2..].iter().map(|path| path.rsplit('/').next().unwrap_or_default()).collect();
    others.sort_unstable();
    assert_eq!(others, [WEIGHTS, "tokenizer.json", "tokenizer_config.json"], "only the files of a model");
    // What it is exactly, and what was said.
    let source = format!("hf://org/model@{COMMIT}");
    assert_eq!(rows(&session, "SELECT source FROM rollout.models WHERE name = 'm'").await?, [source.as_str()]);
    let described = rows(&session, "DESCRIBE MODEL m").await?;
    assert!(described.windows(2).any(|pair| pair == ["lineage.source", "hf://org/model"]), "{described:?}");

    // Another model of the same commit, by its own name and by that of another branch.
    for (name, revision) in [("again", COMMIT), ("branch", "refs/pr/1")] {
        rows(&session, &format!("CREATE MODEL {name} FROM 'hf://org/model@{revision}' WITH (endpoint = '{}')", server.url())).await?;
    }
    assert_eq!(server.asked().len(), asked.len() + 2, "two lists of files");
    assert_eq!(
        server.asked().last().map(|asked| asked.path.clone()),
        Some("/api/models/org/model/revision/refs%2Fpr%2F1?blobs=true".to_owned())
    );
    // A name that is taken is refused before anything is asked.
    assert_eq!(rows(&session, &create(&server, "")).await.expect_err("it is taken").sqlstate(), "42710");
    assert_eq!(server.asked().len(), asked.len() + 2);
    // Files are the models' too, and stay when what is kept goes.
    rows(&session, "DROP MODEL m; VACUUM FULL").await?;
    assert_eq!(files(&data.path().join("hub")).len(), 4, "other models have them");
    rows(&session, "DROP MODEL branch; DROP MODEL again; VACUUM FULL").await?;
    assert_eq!(files(&data.path().join("hub")), Vec::<String>::new());
    rows(&session, &create(&server, "")).await?;
    embeds_right(&session).await?;
    assert_eq!(server.sent(WEIGHTS), 2 * Repository::of_fixture("bert").size(WEIGHTS));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_statements_at_once_fetch_a_file_once() -> Result<()> {
    let data = temporary();
    let repository = Repository::of_fixture("bert");
    let server = HubServer::of(&repository);
    let database = open(data.path(), &[server.url()]).await?;
    let (one, other) = (database.session(), database.session());
    let (first, second) = (create(&server, ""), create(&server, "").replace("MODEL m", "MODEL n"));
    let (made, made_too) = tokio::join!(rows(&one, &first), rows(&other, &second));
    assert_eq!((made?.len(), made_too?.len()), (0, 0));
    assert_eq!(server.sent(WEIGHTS), repository.size(WEIGHTS));
    assert_eq!(rows(&one, "SELECT embed('m', 'a') = embed('n', 'a')").await?, ["true"]);
    // For one name there is one model.
    rows(&one, "DROP MODEL m; DROP MODEL n").await?;
    let (made, made_too) = tokio::join!(rows(&one, &first), rows(&other, &first));
    let error = made.and(made_too).expect_err("one of them is late");
    assert_eq!(error.sqlstate(), "42710");
    embeds_right(&one).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn weights_in_shards() -> Result<()> {
    let data = temporary();
    let tokenizer = std::fs::read(project().join("tests/fixtures/models/bert/tokenizer.json")).expect("a fixture");
    let repository = Repository::of_fixture("qwen2_untied")
        .with("tokenizer.json", tokenizer)
        .with("model-00004-of-00004.safetensors", "of another index")
        .with("original/model.safetensors", "in another form");
    let server = HubServer::of(&repository);
    let session = session(data.path(), &server).await?;
    rows(&session, &create(&server, ", task = 'generate'")).await?;
    let parameters = "SELECT architecture, parameter_count FROM rollout.models";
    assert_eq!(rows(&session, parameters).await?, ["Qwen2ForCausalLM", "108864"]);
    let shards = server.asked().iter().filter(|asked| asked.path.ends_with(".safetensors")).count();
    assert_eq!(shards, 3, "those that the index names");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gguf_file_of_several() -> Result<()> {
    let data = temporary();
    let repository = Repository::of_fixture("../gguf/qwen2_mixed").with("large/model-f32.gguf", "of more bits").with("config.json", "{}");
    let server = HubServer::of(&repository);
    let session = session(data.path(), &server).await?;
    let error = rows(&session, &create(&server, "")).await.expect_err("which of them?");
    assert_eq!(error.sqlstate(), "22023");
    assert!(error.to_string().contains("one of 'large/model-f32.gguf', 'model.gguf'"), "{error}");
    assert_eq!(rows(&session, &create(&server, ", file = 'model-q2.gguf'")).await.expect_err("it is not there").sqlstate(), "42704");
    rows(&session, &create(&server, ", file = 'model.gguf', task = 'generate'")).await?;
    let fixture = project().join("tests/fixtures/gguf/qwen2_mixed/model.gguf");
    rows(&session, &format!("CREATE MODEL fixture FROM '{}'", fixture.display())).await?;
    let said = |model: &str| format!("generate('{model}', 'So the next query is', max_tokens => 8, temperature => 1, seed => 3)");
    assert_eq!(rows(&session, &format!("SELECT {} = {}", said("m"), said("fixture"))).await?, ["true"]);
    assert_eq!((server.sent("model-f32.gguf"), server.sent("config.json")), (0, 0));
    // What it was made of is as it came: the next model of it fetches nothing.
    let asked = server.asked().len();
    rows(&session, &create(&server, ", file = 'model.gguf'").replace("MODEL m", "MODEL again")).await?;
    assert_eq!(server.asked().len(), asked + 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_connection_is_taken_up() -> Result<()> {
    let data = temporary();
    let repository = Repository::of_fixture("bert");
    let served = repository.clone();
    let server = HubServer::start(move |asked, _| {
        let reply = served.reply(asked);
        match asked.headers.get("range").map(String::as_str) {
            None if asked.path.ends_with(WEIGHTS) => reply.cut_after(60_000),
            Some("bytes=60000-") => reply.cut_after(50_000),
            _ => reply,
        }
    });
    let session = session(data.path(), &server).await?;
    // No attempt in a row brings nothing: one more is enough for any number of cuts.
    rows(&session, &create(&server, ", retries = 1")).await?;
    embeds_right(&session).await?;
    assert_eq!(server.sent(WEIGHTS), repository.size(WEIGHTS), "no byte came twice");
    let asked = server.asked_for(WEIGHTS);
    let ranges: Vec<_> = asked.iter().map(|asked| asked.headers.get("range").map(String::as_str)).collect();
    assert_eq!(ranges, [None, Some("bytes=60000-"), Some("bytes=110000-")]);
    let etags: Vec<_> = asked.iter().map(|asked| asked.headers.get("if-range").map(String::len)).collect();
    assert_eq!(etags, [None, Some(66), Some(66)], "the rest of that file, not of another");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_knows_no_ranges_begins_anew() -> Result<()> {
    let data = temporary();
    let repository = Repository::of_fixture("bert").without_ranges();
    let served = repository.clone();
    let server = HubServer::start(move |asked, _| {
        let reply = served.reply(asked);
        if asked.path.ends_with(WEIGHTS) && !asked.headers.contains_key("range") { reply.cut_after(60_000) } else { reply }
    });
    let session = session(data.path(), &server).await?;
    rows(&session, &create(&server, "")).await?;
    embeds_right(&session).await?;
    assert_eq!(server.sent(WEIGHTS), repository.size(WEIGHTS) + 60_000);
    Ok(())
}

/// A hub whose weights stop after so many bytes, as long as it is told to.
fn stopping(repository: &Repository, num_bytes: usize) -> (HubServer, Arc<AtomicBool>) {
    let stops = Arc::new(AtomicBool::new(true));
    let (served, is_stopping) = (repository.clone(), Arc::clone(&stops));
    let server = HubServer::start(move |asked, _| {
        let reply = served.reply(asked);
        if asked.path.ends_with(WEIGHTS) && is_stopping.load(Ordering::SeqCst) { reply.hang_after(num_bytes) } else { reply }
    });
    (server, stops)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_statement_leaves_what_the_next_takes_up() -> Result<()> {
    let data = temporary();
    let repository = Repository::of_fixture("bert");
    let (server, stops) = stopping(&repository, 70_000);
    let database = open(data.path(), &[server.url()]).await?;
    let session = database.session();
    rows(&session, "SET statement_timeout = '2s'").await?;
    let started = Instant::now();
    assert_eq!(rows(&session, &create(&server, "")).await.expect_err("it is over").sqlstate(), "57014");
    while server.given_up() == 0 && started.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(server.given_up(), 1, "the server sees it go");
    rows(&session, "SET statement_timeout = 0").await?;
    assert_eq!(rows(&session, "SELECT count(*) FROM rollout.models").await?, ["0"]);
    assert_eq!(files(&data.path().join("models")), Vec::<String>::new());
    let part = kept(data.path()).join(format!("{WEIGHTS}.part"));
    assert_eq!(std::fs::metadata(&part).expect("it is kept").len(), 70_000);
    stops.store(false, Ordering::SeqCst);
    let notices = Arc::new(std::sync::Mutex::new(Vec::new()));
    let heard = Arc::clone(&notices);
    session.set_notice_sink(Arc::new(move |notice: rolloutdb::engine::Notice| heard.lock().expect("no panic").push(notice.message)));
    rows(&session, &create(&server, "")).await?;
    embeds_right(&session).await?;
    assert_eq!(server.sent(WEIGHTS), repository.size(WEIGHTS), "no byte came twice");
    assert!(!part.exists());
    let told = notices.lock().expect("no panic").iter().any(|notice| notice.contains("are here already"));
    assert!(told, "{notices:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_leaves_what_the_next_takes_up() -> Result<()> {
    let data = temporary();
    let repository = Repository::of_fixture("bert");
    let (server, stops) = stopping(&repository, 80_000);
    drop(open(data.path(), &[]).await?);
    let child = start_unheard(
        sql_command(data.path(), "CREATE MODEL m FROM 'hf://org/model'")
            .args(["--allow-host", &server.url()])
            .env("HF_ENDPOINT", format!("{}/", server.url()))
            .env("HF_TOKEN", PLANTED),
    );
    let hub = data.path().join("hub");
    let len_of_part = || {
        let part = files(&hub).into_iter().find(|file| file.ends_with(&format!("{WEIGHTS}.part")));
        part.and_then(|part| std::fs::metadata(hub.join(part)).ok()).map_or(0, |metadata| metadata.len())
    };
    kill_when(child, "CREATE MODEL", || len_of_part() >= 80_000);
    // The one who starts the server gives it the hub and the token.
    assert!(server.asked().iter().all(|asked| asked.headers["authorization"] == format!("Bearer {PLANTED}")));

    stops.store(false, Ordering::SeqCst);
    let again = sql_command(data.path(), "CREATE MODEL m FROM 'hf://org/model'; SELECT source FROM rollout.models")
        .args(["--allow-host", &server.url()])
        .env("HF_ENDPOINT", server.url())
        .env("HF_TOKEN", PLANTED)
        .output()
        .expect("the binary runs");
    let said = format!("{}{}", String::from_utf8_lossy(&again.stdout), String::from_utf8_lossy(&again.stderr));
    assert!(again.status.success() && said.contains(&format!("hf://org/model@{COMMIT}")), "{said}");
    assert!(!said.contains(PLANTED));
    assert_eq!(server.sent(WEIGHTS), repository.size(WEIGHTS), "no byte came twice");
    let session = session(data.path(), &server).await?;
    embeds_right(&session).await?;
    assert_eq!(files_with(data.path(), PLANTED), Vec::<String>::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_is_seen_and_a_client_can_cancel() {
    let data = temporary();
    let repository = Repository::of_fixture("bert");
    let (server, _stops) = stopping(&repository, 70_000);
    let mut command = Command::new("sh");
    command.args(["-c", &format!("exec \"$0\" \"$@\" --allow-host {}", server.url()), &binary()]);
    let mut process = ServerProcess::start_by(command, data.path());
    let (client, watcher) = (process.connect().await, process.connect().await);
    let (cancel, statement) = (client.cancel_token(), create(&server, ""));
    let running = tokio::spawn(async move { client.batch_execute(&statement).await });
    let beside: usize = ["tokenizer.json", "tokenizer_config.json"].iter().map(|name| repository.size(name)).sum();
    let (started, wanted) = (Instant::now(), (beside + 70_000) as i64);
    let see = "SELECT model, source, bytes_total, bytes_done, bytes_per_second > 0, seconds_left > 0 FROM pg_stat_progress_download";
    let seen = loop {
        let seen = watcher.query_opt(see, &[]).await.expect("the view can be read");
        if let Some(seen) = seen.filter(|seen| seen.get::<_, i64>(3) == wanted) {
            break seen;
        }
        assert!(started.elapsed() < PATIENCE && !running.is_finished(), "nothing is seen");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!((seen.get::<_, &str>(0), seen.get::<_, String>(1)), ("m", format!("hf://org/model@{COMMIT}")));
    assert_eq!(
        (seen.get::<_, i64>(2), seen.get::<_, bool>(4), seen.get::<_, bool>(5)),
        ((beside + repository.size(WEIGHTS)) as i64, true, true)
    );
    cancel.cancel_query(tokio_postgres::NoTls).await.expect("it is heard");
    let ended = tokio::time::timeout(PATIENCE, running).await.expect("it ends in time").expect("no panic").expect_err("it is cancelled");
    assert_eq!(ended.code().map(|code| code.code()), Some("57014"));
    assert!(watcher.query_opt(see, &[]).await.expect("the view can be read").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_elsewhere_has_to_be_allowed_and_gets_no_token() -> Result<()> {
    let (data, secrets) = (temporary(), temporary());
    let key = secrets.path().join("key");
    std::fs::write(&key, format!("{PLANTED}\n")).expect("a temporary file is writable");
    let repository = Repository::of_fixture("bert");
    let store = HubServer::of(&repository);
    let (served, elsewhere) = (repository.clone(), store.url());
    // The hub tells what the file is, and leads to the store; a repository by its old name leads to the new one.
    let hub = HubServer::start(move |asked, _| {
        if let Some(rest) = asked.path.strip_prefix("/api/models/org/old") {
            return Reply::redirect(&format!("/api/models/org/model{rest}"));
        }
        if let Some(rest) = asked.path.strip_prefix("/org/old") {
            return Reply::redirect(&format!("/org/model{rest}"));
        }
        if asked.path.ends_with(WEIGHTS) { Reply::redirect(&format!("{elsewhere}{}", asked.path)) } else { served.reply(asked) }
    });
    let make = format!("CREATE MODEL m FROM 'hf://org/old' WITH (endpoint = '{}', secret = 'hub', retries = 0)", hub.url());
    {
        let session = session(data.path(), &hub).await?;
        rows(&session, &format!("CREATE SECRET hub FROM FILE '{}'", key.display())).await?;
        let error = rows(&session, &make).await.expect_err("the store is not allowed");
        assert_eq!(error.sqlstate(), "42501");
        assert!(error.to_string().contains("leads to another host") && error.to_string().contains("--allow-host"), "{error}");
        assert!(store.asked().is_empty() && !hub.asked_for(WEIGHTS).is_empty());
    }
    let database = open(data.path(), &[hub.url(), store.url()]).await?;
    let session = database.session();
    rows(&session, &make).await?;
    embeds_right(&session).await?;
    assert!(hub.asked().iter().all(|asked| asked.headers["authorization"] == format!("Bearer {PLANTED}")));
    assert_eq!(store.asked().len(), 1);
    assert!(store.asked().iter().all(|asked| !asked.headers.contains_key("authorization")), "the token is the hub's");
    let mut said = String::new();
    for statement in ["DESCRIBE MODEL m", "SELECT * FROM rollout.models", "SELECT * FROM rollout.secrets"] {
        said += &rows(&session, statement).await?.join(" ");
    }
    drop((session, database));
    assert!(!said.contains(&PLANTED[4..]), "{said}");
    assert_eq!(files_with(data.path(), PLANTED), Vec::<String>::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_token_opens_is_not_everybodys() -> Result<()> {
    let (data, secrets) = (temporary(), temporary());
    let key = secrets.path().join("key");
    std::fs::write(&key, PLANTED).expect("a temporary file is writable");
    let repository = Repository::of_fixture("bert");
    // Anybody sees what there is, as in a gated repository.
    let server = HubServer::start(move |asked, _| {
        let is_open = asked.path.starts_with("/api/") || asked.headers.contains_key("authorization");
        if is_open { repository.reply(asked) } else { Reply::error(401, "GatedRepo", "Access to model org/model is restricted") }
    });
    let database = open(data.path(), &[server.url()]).await?;
    let (session, ann) = (database.session(), database.session());
    rows(&session, &format!("CREATE SECRET hub FROM FILE '{}'; CREATE ROLE ann; GRANT CREATE ON DATABASE rolloutdb TO ann", key.display()))
        .await?;
    rows(&ann, "SET ROLE ann").await?;
    assert_eq!(rows(&session, &create(&server, ", secret = 'hbu'")).await.expect_err("there is none").sqlstate(), "42704");
    rows(&session, &create(&server, ", secret = 'hub'")).await?;
    let others = create(&server, "").replace("MODEL m", "MODEL anns");
    let error = rows(&ann, &others).await.expect_err("she has no token, though the files are here");
    assert_eq!(error.sqlstate(), "58000");
    assert!(error.to_string().contains("gated") && error.to_string().contains("is restricted"), "{error}");
    let with_secret = rows(&ann, &create(&server, ", secret = 'hub'").replace("MODEL m", "MODEL anns")).await;
    assert_eq!(with_secret.expect_err("only superusers may name one").sqlstate(), "42501");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_not_what_it_should_be_is_removed() -> Result<()> {
    let repository = Repository::of_fixture("bert");
    let (weights, config) = (vec![7; repository.size(WEIGHTS)], vec![b' '; repository.size("config.json")]);
    for (name, bytes) in [(WEIGHTS, weights), ("config.json", config)] {
        let data = temporary();
        let lies = Arc::new(AtomicBool::new(true));
        let (right, is_lying) = (repository.clone(), Arc::clone(&lies));
        let server = HubServer::start(move |asked, _| {
            let is_wrong = asked.path.ends_with(name) && is_lying.load(Ordering::SeqCst);
            if is_wrong { Reply::new(200, vec![], bytes.clone()) } else { right.reply(asked) }
        });
        let session = session(data.path(), &server).await?;
        let error = rows(&session, &create(&server, "")).await.expect_err("another content");
        assert_eq!(error.sqlstate(), "XX001", "{error}");
        assert!(error.to_string().contains(name) && error.to_string().contains("the hub says"), "{error}");
        let left = files(&data.path().join("hub"));
        assert!(!left.iter().any(|file| file.contains(name)), "{left:?}");
        assert_eq!(rows(&session, "SELECT count(*) FROM rollout.models").await?, ["0"]);
        lies.store(false, Ordering::SeqCst);
        rows(&session, &create(&server, "")).await?;
        embeds_right(&session).await?;
    }
    // A beginning that was damaged on this disk is no fault of the hub's: the file comes once more, whole.
    let data = temporary();
    let (server, stops) = stopping(&repository, 70_000);
    {
        let session = session(data.path(), &server).await?;
        rows(&session, "SET statement_timeout = '2s'").await?;
        rows(&session, &create(&server, "")).await.expect_err("it is over");
    }
    std::fs::write(kept(data.path()).join(format!("{WEIGHTS}.part")), vec![0; 70_000]).expect("it is writable");
    stops.store(false, Ordering::SeqCst);
    let session = session(data.path(), &server).await?;
    rows(&session, &create(&server, "")).await?;
    embeds_right(&session).await?;
    let ranges: Vec<_> = server.asked_for(WEIGHTS).iter().map(|asked| asked.headers.get("range").cloned()).collect();
    assert_eq!(ranges, [None, Some("bytes=70000-".to_owned()), None]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_that_tells_less_is_enough() -> Result<()> {
    let data = temporary();
    let repository = Repository::of_fixture("bert").without_blobs();
    let served = repository.clone();
    let server = HubServer::start(move |asked, number| {
        let reply = served.reply(asked);
        // The sizes and digests of the headers hold as those of the list do.
        if asked.path.ends_with(WEIGHTS) && number < 6 { reply.cut_after(60_000) } else { reply }
    });
    let session = session(data.path(), &server).await?;
    rows(&session, &create(&server, "")).await?;
    embeds_right(&session).await?;
    assert_eq!(server.sent(WEIGHTS), repository.size(WEIGHTS));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_passes_is_tried_again() -> Result<()> {
    let faults = [
        ("429", Reply::new(429, vec![("Retry-After", "1".to_owned())], "slow down")),
        ("500", Reply::error(500, "", "out of order")),
        ("a page", Reply::new(200, vec![], "<html>a portal</html>")),
        ("a cut list", Reply::new(200, vec![], Repository::of_fixture("bert").listing().to_string()).cut_after(100)),
        ("nothing in time", Reply::new(200, vec![], "x").hang_after(0)),
    ];
    for (what, fault) in faults {
        for at in [0, 1, 3] {
            let data = temporary();
            let (repository, fault) = (Repository::of_fixture("bert"), fault.clone());
            let server = HubServer::start(move |asked, number| if number == at { fault.clone() } else { repository.reply(asked) });
            let session = session(data.path(), &server).await?;
            rows(&session, &create(&server, ", timeout = 0.5")).await.unwrap_or_else(|error| panic!("{what} at {at}: {error}"));
            assert_eq!(server.asked().len(), 6, "{what} at {at}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stays_is_an_error_that_says_what_to_do() -> Result<()> {
    let html = "<html>a portal</html>";
    // (reply, retries, requests, SQLSTATE, words)
    let cases = [
        (Reply::error(404, "RepoNotFound", "Repository not found"), 5, 1, "58000", "no repository org/model"),
        (Reply::error(404, "RevisionNotFound", "Invalid rev id: main"), 5, 1, "58000", "no revision \"main\""),
        (Reply::error(401, "RepoNotFound", "Invalid username or password."), 5, 1, "58000", "HF_TOKEN"),
        (Reply::error(403, "GatedRepo", "You are not in the authorized list"), 5, 1, "58000", "ask for access"),
        (Reply::error(400, "", "bad words"), 5, 1, "58000", "bad words"),
        (Reply::error(503, "", "overloaded"), 1, 2, "58000", "overloaded"),
        (Reply::new(429, vec![("Retry-After", "3600".to_owned())], ""), 5, 1, "58000", "later"),
        (Reply::new(200, vec![], html), 1, 2, "58000", "speaks this API"),
        (Reply::new(200, vec![], json!({"sha": "../..", "siblings": []}).to_string()), 0, 1, "58000", "commit"),
        (Reply::new(302, vec![], ""), 5, 1, "58000", "leads nowhere"),
        (Reply::redirect("/api/again"), 5, 11, "58000", "redirects"),
        (Reply::redirect("https://user:pass@127.0.0.1/"), 5, 1, "42501", "leads to another host"),
        (Reply::redirect("http://169.254.169.254/latest/meta-data"), 5, 1, "42501", "--allow-host"),
        (Reply::redirect("file:///etc/passwd"), 5, 1, "42501", "leads to another host"),
        (Reply::new(200, vec![], "x").hang_after(0), 1, 2, "08006", "list of files"),
        (Reply::new(200, vec![], html).cut_after(5), 1, 2, "08006", "broke off"),
    ];
    for (reply, retries, requests, state, words) in cases {
        let data = temporary();
        let said = reply.clone();
        let server = HubServer::start(move |_, _| said.clone());
        let session = session(data.path(), &server).await?;
        let error = rows(&session, &create(&server, &format!(", retries = {retries}, timeout = 0.3"))).await.expect_err("it fails");
        let message = error.client_message();
        assert_eq!(error.sqlstate(), state, "{reply:?}: {message}");
        assert!(message.contains(words) && message.contains("hf://org/model@main"), "{reply:?}: {message}");
        assert_eq!(server.asked().len(), requests, "{reply:?}");
        assert_eq!(files(&data.path().join("hub")), Vec::<String>::new());
    }
    // Nobody is there.
    let gone = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        format!("http://{}", listener.local_addr().expect("it is bound"))
    };
    let data = temporary();
    let session = open(data.path(), std::slice::from_ref(&gone)).await?.session();
    let make = format!("CREATE MODEL m FROM 'hf://org/model' WITH (endpoint = '{gone}', retries = 1)");
    let error = rows(&session, &make).await.expect_err("nobody is there");
    assert_eq!((error.sqlstate(), error.to_string().contains("tried 2 times")), ("08006", true), "{error}");
    // And hosts that were not allowed are not asked.
    let server = HubServer::of(&Repository::of_fixture("bert"));
    assert_eq!(rows(&session, &create(&server, "")).await.expect_err("it is not allowed").sqlstate(), "42501");
    assert_eq!(rows(&session, "CREATE MODEL m FROM 'hf://org/model'").await.expect_err("nor is the hub itself").sqlstate(), "42501");
    assert!(server.asked().is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_hub_stays_in_its_folder() -> Result<()> {
    let bert = Repository::of_fixture("bert");
    let index = |shard: &str| json!({"weight_map": {"a": shard}}).to_string();
    let sharded = |shard: &str| {
        Repository::of_fixture("bert").without(WEIGHTS).with("model.safetensors.index.json", index(shard)).with(shard, "evil")
    };
    let huge = |size: u64| {
        let mut listing = bert.listing();
        for sibling in listing["siblings"].as_array_mut().expect("a list") {
            if sibling["rfilename"] == WEIGHTS {
                sibling["size"] = json!(size);
                sibling["lfs"]["size"] = json!(size);
            }
        }
        Reply::new(200, vec![], listing.to_string())
    };
    let cases = [
        ("a shard above", sharded("../evil.safetensors"), None, "XX001"),
        ("a shard far above", sharded("../../../../../../../evil.safetensors"), None, "XX001"),
        ("an absolute shard", sharded("/tmp/evil.safetensors"), None, "XX001"),
        ("a shard in a folder", sharded("sub/evil.safetensors"), None, "XX001"),
        ("more than fits on any disk", bert.clone(), Some(huge(1 << 60)), "53100"),
        ("more than announced", bert.clone(), Some(huge(1000)), "58000"),
        ("no weights", Repository::of_fixture("bert").without(WEIGHTS), None, "0A000"),
        ("an architecture that we have not", Repository::of_fixture("bert").with("config.json", r#"{"model_type": "t5"}"#), None, "0A000"),
    ];
    for (what, repository, listing, state) in cases {
        let home = temporary();
        let data = home.path().join("data");
        let server = HubServer::start(move |asked, _| match &listing {
            Some(listing) if asked.path.starts_with("/api/") => listing.clone(),
            _ => repository.reply(asked),
        });
        let session = session(&data, &server).await?;
        let error = rows(&session, &create(&server, ", retries = 0")).await.expect_err(what);
        assert_eq!(error.sqlstate(), state, "{what}: {error}");
        // Of more than was announced the answer has begun.
        assert!(state == "58000" || server.sent(WEIGHTS) + server.sent("evil.safetensors") == 0, "{what}");
        let outside: Vec<String> =
            files(home.path()).into_iter().filter(|file| file.contains("evil") || !file.starts_with("data/")).collect();
        assert_eq!(outside, Vec::<String>::new(), "{what}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_is_named_is_the_one_that_comes() -> Result<()> {
    let data = temporary();
    let repository = Repository::of_fixture("bert");
    // Whatever it is asked for, it has one commit.
    let server = HubServer::start(move |asked, _| {
        if asked.path.starts_with("/api/") { Reply::new(200, vec![], repository.listing().to_string()) } else { repository.reply(asked) }
    });
    let session = session(data.path(), &server).await?;
    let pinned = |commit: &str| create(&server, "").replace("org/model", &format!("org/model@{commit}"));
    let other = "beef".repeat(10);
    let error = rows(&session, &pinned(&other)).await.expect_err("another commit");
    let message = error.client_message();
    assert_eq!(error.sqlstate(), "58000", "{message}");
    assert!([other.as_str(), COMMIT, "nothing was fetched"].iter().all(|words| message.contains(words)), "{message}");
    assert_eq!((server.asked().len(), files(&data.path().join("hub"))), (1, Vec::new()));
    rows(&session, &pinned(&COMMIT.to_uppercase())).await?;
    embeds_right(&session).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_size_that_an_answer_tells_has_to_fit_on_the_disk() -> Result<()> {
    let data = temporary();
    let repository = Repository::of_fixture("bert").without_blobs();
    let server = HubServer::start(move |asked, _| {
        let headers = [("Transfer-Encoding", "chunked"), ("X-Linked-Size", "1152921504606846976")];
        let headers = headers.map(|(name, value)| (name, value.to_owned())).to_vec();
        if asked.path.ends_with(WEIGHTS) { Reply::new(200, headers, "5\r\nbytes\r\n").hang_after(10) } else { repository.reply(asked) }
    });
    let session = session(data.path(), &server).await?;
    let error = rows(&session, &create(&server, ", retries = 0")).await.expect_err("more than fits on any disk");
    let message = error.client_message();
    assert_eq!(error.sqlstate(), "53100", "{message}");
    assert!(message.contains("no space left") && message.contains("still to come"), "{message}");
    let left = files(&data.path().join("hub"));
    assert!(!left.iter().any(|file| file.contains(WEIGHTS)), "{left:?}");
    Ok(())
}
