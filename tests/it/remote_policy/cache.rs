//! Answers that are kept: who shares them, and how they go.

use super::*;

async fn create(session: &Session, server: &OpenAiServer, name: &str, at_server: &str, options: &str) -> Result<()> {
    let create = format!("CREATE MODEL {name} FROM 'openai://{at_server}' WITH (base_url = '{}'{options})", server.base_url());
    rows(session, &create).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answers_of_a_model_are_cleared() -> Result<()> {
    let data = temporary();
    let server = OpenAiServer::start(|asked, _| Reply::chat(asked.prompt(), "stop"));
    let many = |model: &str| format!("SELECT count(DISTINCT generate('{model}', value::text)) FROM generate_series(1, 20) s(value)");
    {
        let session = open(data.path(), &[server.host()]).await?.session();
        create(&session, &server, "one", "tiny", "").await?;
        create(&session, &server, "other", "large", "").await?;
        number(&session, &many("one")).await?;
        number(&session, &many("other")).await?;
        let bytes = number(&session, "SELECT bytes FROM rollout.remote_cache").await?;
        let cleared = rows(&session, "CLEAR CACHE OF MODEL one").await?;
        assert_eq!(cleared[0], "20");
        let left = number(&session, "SELECT bytes FROM rollout.remote_cache").await?;
        assert_eq!(cleared[1], (bytes - left).to_string());
        assert_eq!(rows(&session, "SELECT answers, files FROM rollout.remote_cache").await?, ["20", "1"]);
        assert_eq!(rows(&session, "CLEAR CACHE OF MODEL one").await?, ["0", "0"]);
        // What the process had in memory went too.
        assert_eq!(server.num_asked(), 40);
        assert_eq!(rows(&session, "SELECT generate('one', '1'), generate('other', '1')").await?, ["1", "1"]);
        assert_eq!(server.num_asked(), 41);
    }
    // And nothing of it comes back.
    let session = open(data.path(), &[server.host()]).await?.session();
    assert_eq!(number(&session, "SELECT answers FROM rollout.remote_cache").await?, 21);
    number(&session, &many("other")).await?;
    assert_eq!(server.num_asked(), 41);
    number(&session, &many("one")).await?;
    assert_eq!(server.num_asked(), 60);
    let bytes = number(&session, "SELECT bytes FROM rollout.remote_cache").await?;
    assert_eq!(rows(&session, "CLEAR CACHE").await?, ["40".to_owned(), bytes.to_string()]);
    assert_eq!(rows(&session, "SELECT answers, bytes, files FROM rollout.remote_cache").await?, ["0", "0", "0"]);
    number(&session, &many("other")).await?;
    assert_eq!(server.num_asked(), 80);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn who_clears_answers_owns_all_models_that_have_them() -> Result<()> {
    let data = temporary();
    let server = OpenAiServer::start(|asked, _| Reply::chat(asked.prompt(), "stop"));
    let database = open(data.path(), &[server.host()]).await?;
    let session = database.session();
    create(&session, &server, "theirs", "tiny", "").await?;
    rows(&session, "SELECT generate('theirs', 'p')").await?;
    for statement in ["CREATE ROLE ann LOGIN", "GRANT CREATE ON DATABASE rolloutdb TO ann", "SET ROLE ann"] {
        rows(&session, statement).await?;
    }
    create(&session, &server, "own", "large", "").await?;
    create(&session, &server, "same", "tiny", ", api = 'chat', concurrency = 2").await?;
    let refused = |statement: &'static str| {
        let session = session.clone();
        async move { rows(&session, statement).await.expect_err(statement) }
    };
    for statement in ["CLEAR CACHE OF MODEL theirs", "CLEAR CACHE", "CLEAR CACHE OF MODEL same"] {
        assert_eq!(refused(statement).await.sqlstate(), "42501", "{statement}");
    }
    assert!(refused("CLEAR CACHE OF MODEL same").await.client_message().contains("\"theirs\""));
    assert_eq!(rows(&session, "CLEAR CACHE OF MODEL own").await?, ["0", "0"]);
    rows(&session, "RESET ROLE").await?;
    assert_eq!(number(&session, "SELECT answers FROM rollout.remote_cache").await?, 1);
    assert_eq!(rows(&session, "CLEAR CACHE OF MODEL same").await?[0], "1", "a superuser owns both");
    Ok(())
}

/// A model whose answers are kept needs one on the disk, and one that keeps none wants none from it.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_in_flight_is_shared_by_those_who_do_the_same_with_it() -> Result<()> {
    let data = temporary();
    let server = OpenAiServer::start(|asked, _| Reply::after(700, Reply::chat(asked.prompt(), "stop")));
    let database = open(data.path(), &[server.host()]).await?;
    let session = database.session();
    for (name, cache) in [("kept", true), ("fresh", false)] {
        create(&session, &server, name, "tiny", &format!(", cache = {cache}")).await?;
    }
    let ask = |model: &'static str| {
        let session = database.session();
        async move { rows(&session, &format!("SELECT generate('{model}', 'p')")).await }
    };
    for answer in join_all(["fresh", "kept", "fresh", "kept"].map(ask)).await {
        assert_eq!(answer?, ["p"]);
    }
    assert_eq!(server.num_asked(), 2);
    let tallies = "SELECT name, requests, shared FROM rollout.remote_models ORDER BY name";
    assert_eq!(rows(&session, tallies).await?, ["fresh", "1", "1", "kept", "1", "1"]);
    assert_eq!(number(&session, "SELECT answers FROM rollout.remote_cache").await?, 1);
    Ok(())
}

/// Such a server draws anew each time: what it said for a seed is what this seed has said.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_may_know_no_seed() -> Result<()> {
    let data = temporary();
    let server = OpenAiServer::start(|asked, number| match asked.body.get("seed") {
        Some(_) => Reply::error(400, "unknown field seed"),
        None => Reply::chat(&format!("draw {number}"), "stop"),
    });
    let ask = |seed: u64| format!("SELECT generate('m', 'p', temperature => 0.8, seed => {seed})");
    {
        let (_database, session) = with_model(data.path(), &server, r#", extra = '{"seed": null}'"#).await?;
        for seed in [1, 2, 1] {
            assert_eq!(rows(&session, &ask(seed)).await?, [format!("draw {}", seed - 1)]);
        }
    }
    let session = open(data.path(), &[server.host()]).await?.session();
    assert_eq!(rows(&session, &ask(2)).await?, ["draw 1"]);
    assert_eq!(server.num_asked(), 2);
    assert_eq!(server.asked()[0].body, server.asked()[1].body);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_behind_what_is_damaged() -> Result<()> {
    let data = temporary();
    let remote = data.path().join("remote");
    let server = OpenAiServer::start(|asked, _| Reply::chat(&format!("planted {}", asked.prompt()), "stop"));
    {
        let session = open(data.path(), &[server.host()]).await?.session();
        create(&session, &server, "one", "tiny", "").await?;
        for prompt in ["a", "b", "c"] {
            rows(&session, &format!("SELECT generate('one', '{prompt}')")).await?;
        }
    }
    let kept = files_with(&remote, "planted c");
    assert_eq!(kept.len(), 1, "{kept:?}");
    let mut text = std::fs::read(&kept[0]).expect("a file");
    text[0] ^= 1;
    std::fs::write(&kept[0], text).expect("a temporary file is writable");

    let session = open(data.path(), &[server.host()]).await?.session();
    assert_eq!(number(&session, "SELECT answers FROM rollout.remote_cache").await?, 2, "those behind it are there");
    assert_eq!(rows(&session, "CLEAR CACHE").await?[0], "2");
    assert_eq!(files_with(&remote, "planted"), Vec::<String>::new());
    assert_eq!(rows(&session, "SELECT answers, bytes, files FROM rollout.remote_cache").await?, ["0", "0", "0"]);
    Ok(())
}
