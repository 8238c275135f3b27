//! A query is searched for once, for each version of the corpus, retriever and k: within a batch, in other statements and sessions.

use rolloutdb::{Database, Result, Session};

use crate::database::{number, run, temporary};
use crate::project;

/// Searches since the database was opened, and queries that needed none.
async fn searches(session: &Session) -> Result<(i64, i64)> {
    let known = "SELECT hits + shared FROM rollout.retrieval_cache";
    Ok((number(session, "SELECT searches FROM rollout.retrieval_cache").await?, number(session, known).await?))
}

/// A corpus, questions about it, an agent that searches for each question once, and one that a policy leads.
async fn database(directory: &tempfile::TempDir) -> Result<Database> {
    let database = Database::open(directory.path()).await?;
    run(
        &database.session(),
        "CREATE MODEL policy FROM 'builtin://tinyhop' WITH (task = 'generate');
         CREATE TABLE wiki AS SELECT id, contents FROM hopworld_passages(seed => 3);
         CREATE INDEX wiki_text ON wiki USING bm25 (contents);
         CREATE TABLE questions AS SELECT id, question, golden_answers FROM hopworld_questions(seed => 3, count => 6);
         CREATE AGENT reader WITH (policy = 'policy', corpus = 'wiki', retriever = 'text', k = 3, prompts = 'short', protocol = 'naive_rag', max_tokens = 8);
         CREATE AGENT qa WITH (policy = 'policy', corpus = 'wiki', retriever = 'text', k = 3, prompts = 'short', max_tokens = 48)",
    )
    .await?;
    Ok(database)
}

const ANSWERS: &str = "SELECT count(a.retrievals) FROM (SELECT q.question FROM questions q UNION ALL SELECT q.question FROM questions q) q
    CROSS JOIN LATERAL answer(q.question, agent => 'reader') a";

#[tokio::test(flavor = "multi_thread")]
async fn the_same_question_is_searched_once_while_the_corpus_stands() -> Result<()> {
    let directory = temporary();
    let database = database(&directory).await?;
    let session = database.session();
    let questions = number(&session, "SELECT count(DISTINCT question) FROM questions").await?;
    // Twice each in one batch.
    run(&session, ANSWERS).await?;
    assert_eq!(searches(&session).await?, (questions, questions));
    // In another statement and session.
    run(&database.session(), ANSWERS).await?;
    assert_eq!(searches(&session).await?, (questions, 3 * questions));
    // Another k is another search.
    run(&session, &ANSWERS.replace("'reader'", "'reader', k => 2")).await?;
    assert_eq!(searches(&session).await?.0, 2 * questions);
    // Another version too, and the one before it is not kept any more.
    let before = number(&session, "SELECT max(version) FROM rollout.table_versions WHERE table_name = 'wiki'").await?;
    run(&session, "INSERT INTO wiki VALUES ('new', 'Nothing of note.')").await?;
    run(&session, ANSWERS).await?;
    assert_eq!(searches(&session).await?.0, 3 * questions);
    assert_eq!(number(&session, "SELECT queries FROM rollout.retrieval_cache").await?, questions);
    run(&session, &ANSWERS.replace("'reader'", &format!("'reader', corpus_version => '{before}'"))).await?;
    assert_eq!(searches(&session).await?.0, 4 * questions);
    // A table of the same name is another.
    run(&session, "DROP TABLE wiki").await?;
    assert_eq!(number(&session, "SELECT queries FROM rollout.retrieval_cache").await?, 0);
    run(
        &session,
        "CREATE TABLE wiki AS SELECT 'other ' || id AS id, contents FROM hopworld_passages(seed => 3);
         CREATE INDEX wiki_text ON wiki USING bm25 (contents)",
    )
    .await?;
    let of_others = "SELECT count(*) FROM questions q CROSS JOIN LATERAL answer_steps(q.question, agent => 'reader') s
        WHERE s.passage_ids[1] NOT LIKE 'other %'";
    assert_eq!(number(&session, of_others).await?, 0);
    assert_eq!(searches(&session).await?.0, 5 * questions);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rollouts_search_for_each_query_once() -> Result<()> {
    let directory = temporary();
    let database = database(&directory).await?;
    let session = database.session();
    let generate = |table: &str, seed: u32| {
        format!(
            "GENERATE ROLLOUTS INTO {table} USING AGENT qa FROM (SELECT * FROM questions)
             WITH (method = 'sample', simulations = 8, temperature = 1.0, seed = {seed})"
        )
    };
    let distinct = "SELECT DISTINCT query FROM {table} WHERE passage_ids IS NOT NULL";
    let queries = |table: &str| distinct.replace("{table}", table);
    run(&session, &generate("first", 7)).await?;
    let after_first = searches(&session).await?;
    assert_eq!(after_first.0, number(&session, &format!("SELECT count(*) FROM ({})", queries("first"))).await?);
    assert!(after_first.1 > 0, "eight trajectories of a question share some queries");
    run(&session, &generate("second", 8)).await?;
    let new = format!("SELECT count(*) FROM ({} EXCEPT {})", queries("second"), queries("first"));
    assert_eq!(searches(&session).await?.0 - after_first.0, number(&session, &new).await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_kept_is_for_those_who_may_ask_the_agent() -> Result<()> {
    let directory = temporary();
    let database = database(&directory).await?;
    let session = database.session();
    run(&session, ANSWERS).await?;
    run(&session, "CREATE ROLE alice; GRANT SELECT ON questions TO alice; SET ROLE alice").await?;
    let refused = run(&session, ANSWERS).await.expect_err("it is not her agent");
    assert!(refused.to_string().contains("reader"), "{refused}");
    run(&session, "RESET ROLE; GRANT USAGE ON AGENT reader TO alice; SET ROLE alice").await?;
    run(&session, ANSWERS).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_retriever_finds_its_own_passages() -> Result<()> {
    let directory = temporary();
    let session = database(&directory).await?.session();
    let encoder = project().join("tests/fixtures/models/xlm_roberta");
    run(
        &session,
        &format!(
            "CREATE MODEL encoder FROM '{}' WITH (task = 'embed');
             CREATE TABLE films (id text PRIMARY KEY, contents text, embedding vector(32) GENERATED ALWAYS AS (embed('encoder', contents)) STORED);
             INSERT INTO films (id, contents) VALUES ('jaws', 'Jaws was directed by Steven Spielberg.'), ('alien', 'Alien is a film.'), ('amour', 'A film.');
             CREATE INDEX films_text ON films USING bm25 (contents)",
            encoder.display()
        ),
    )
    .await?;
    let found = |retriever: &str| {
        format!(
            "SELECT count(*) FROM answer_steps('Who directed Jaws?', agent => 'reader', corpus => 'films', retriever => '{retriever}', k => 2) s
             JOIN {retriever}_search(films, 'Who directed Jaws?', k => 2) f ON f.id = s.passage_ids[f.rank]"
        )
    };
    // The words are in one of the films only.
    for (num_searches, (retriever, num_found)) in (1..).zip([("text", 1), ("vector", 2), ("hybrid", 2)]) {
        for _ in 0..2 {
            assert_eq!(number(&session, &found(retriever)).await?, num_found, "{retriever}");
        }
        assert_eq!(searches(&session).await?, (num_searches, num_searches), "{retriever}");
    }
    Ok(())
}
