//! How many inputs reach a model: as few as the result needs, each once.

use arrow::array::AsArray;
use rolloutdb::{Database, Result, Session};

use crate::database::{run, temporary};
use crate::project;

/// What EXPLAIN ANALYZE says of a statement: the inputs that models were given, and those whose answers were kept.
async fn asked(session: &Session, sql: &str) -> Result<(usize, usize)> {
    let plan = run(session, &format!("EXPLAIN ANALYZE {sql}")).await?;
    let plan = plan[0].column(plan[0].num_columns() - 1).as_string::<i32>().iter().flatten().collect::<Vec<_>>().join("\n");
    let sum =
        |name: &str| plan.split(&format!("{name}=")).skip(1).filter_map(|rest| rest.split([',', ']']).next()?.parse::<usize>().ok()).sum();
    Ok((sum("model_inputs"), sum("cache_hits")))
}

async fn database(directory: &tempfile::TempDir) -> Result<Database> {
    let database = Database::open(directory.path()).await?;
    let session = database.session();
    let models = project().join("tests/fixtures/models");
    let models = models.display();
    run(
        &session,
        &format!(
            "CREATE MODEL encoder FROM '{models}/bert'; CREATE MODEL judge FROM '{models}/bert_reranker';
             CREATE TABLE t AS SELECT n AS id, 'film ' || n AS text FROM generate_series(1, 500) s(n)"
        ),
    )
    .await?;
    Ok(database)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_is_asked_no_more_than_the_result_needs_and_nothing_twice() -> Result<()> {
    let directory = temporary();
    let database = database(&directory).await?;
    let session = database.session();
    // A prefix of its own for each, so that nothing is there already.
    let cases = [
        ("SELECT embed('encoder', 'a' || text) FROM t LIMIT 3", 3),
        ("SELECT id, embed('encoder', 'b' || text) FROM t ORDER BY id LIMIT 3", 3),
        ("SELECT id, embed('encoder', 'c' || text) AS v FROM t ORDER BY id DESC LIMIT 3 OFFSET 2", 5),
        ("SELECT id FROM t WHERE id < 4 AND rerank('judge', 'd', text) > 0", 3),
        ("SELECT * FROM (SELECT id, embed('encoder', 'e' || text) AS v FROM t) s WHERE id BETWEEN 7 AND 9", 3),
        ("SELECT count(*) FROM (SELECT id, embed('encoder', 'f' || text) AS v FROM t) s", 0),
        ("SELECT embed('encoder', 'g' || (id % 7)) FROM t", 7),
        ("SELECT embed('encoder', 'h' || (id % 7)), vector_dims(embed('encoder', 'h' || (id % 7))) FROM t", 7),
        ("SELECT max(rerank('judge', 'i', text)), min(rerank('judge', 'i', text)) FROM t WHERE id <= 20", 20),
        ("SELECT id FROM t ORDER BY rerank('judge', 'j', text) LIMIT 1", 500),
    ];
    for (sql, inputs) in cases {
        assert_eq!(asked(&session, sql).await?.0, inputs, "{sql}");
    }
    assert_eq!(asked(&session, cases[6].0).await?, (0, 7), "the answers are kept");
    let other = database.session();
    assert_eq!(asked(&other, cases[6].0).await?, (0, 7), "for other sessions too");
    assert_eq!(asked(&other, "SELECT embed('encoder', 'g0', kind => 'query')").await?.0, 1, "a query is no passage");
    // A model that takes the name of a dropped one is another.
    let models = project().join("tests/fixtures/models");
    run(&session, &format!("DROP MODEL encoder; CREATE MODEL encoder FROM '{}/bert'", models.display())).await?;
    assert_eq!(asked(&session, cases[6].0).await?, (7, 0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_embeds_each_question_and_reads_each_pair_once() -> Result<()> {
    let directory = temporary();
    let session = database(&directory).await?.session();
    run(&session, "CREATE INDEX t_text ON t USING bm25 (text)").await?;
    let search = "SELECT s.id FROM (VALUES ('film 1'), ('film 2'), ('film 1')) q(text) CROSS JOIN LATERAL text_search(t, q.text, k => 2, rerank => 'judge', candidates => 5) s";
    let (inputs, hits) = asked(&session, search).await?;
    assert_eq!(inputs + hits, 15, "five candidates for each question");
    assert_eq!(asked(&session, search).await?, (0, 15));
    Ok(())
}
