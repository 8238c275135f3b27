//! EXPLAIN says why an index over vectors is not used.

use arrow::array::{AsArray, RecordBatch};
use futures::TryStreamExt;
use rolloutdb::{Database, Session};

async fn explain(session: &Session, query: &str) -> Vec<String> {
    let stream = session.sql(&format!("EXPLAIN {query}")).await.unwrap_or_else(|error| panic!("{query}: {error}"));
    let batches: Vec<RecordBatch> = stream.try_collect().await.expect("a plan");
    batches.iter().flat_map(|batch| batch.column(0).as_string::<i32>().iter().flatten().map(str::to_owned).collect::<Vec<_>>()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_says_why_an_index_is_not_used() {
    let directory = tempfile::tempdir().expect("a directory");
    let session = Database::open(directory.path()).await.expect("a fresh database opens").session();
    for statement in [
        "CREATE TABLE v (id bigint PRIMARY KEY, kind text, embedding vector(2))",
        "INSERT INTO v SELECT value, 'odd', [cos(value), sin(value)] FROM generate_series(1, 50) AS g(value)",
        "CREATE INDEX v_emb ON v USING hnsw (embedding vector_l2_ops)",
    ] {
        drop(session.sql(statement).await.unwrap_or_else(|error| panic!("{statement}: {error}")));
    }
    let used = [
        "v WHERE embedding <-> '[1,0]' < 0.3 AND kind = 'odd' ORDER BY embedding <-> '[1,0]' LIMIT 3",
        "v ORDER BY embedding <-> '[1,0]', id LIMIT 3",
        "v ORDER BY embedding <-> '[1,0]' NULLS FIRST LIMIT 3",
        "v WHERE upper(kind) = 'ODD' ORDER BY embedding <-> '[1,0]' LIMIT 3",
    ];
    for query in used {
        let plan = explain(&session, &format!("SELECT v.id FROM {query}")).await;
        assert!(plan.iter().any(|line| line.contains("NearestRowsExec") && line.contains("index v_emb")), "{query}: {plan:#?}");
        assert!(!plan.iter().any(|line| line.contains("is not used")), "{query}: {plan:#?}");
    }
    let plan = explain(&session, "SELECT id FROM v ORDER BY embedding <=> '[1,0]' LIMIT 3").await;
    assert!(plan.iter().any(|line| line.contains("every vector, no cosine index: v_emb is for l2")), "{plan:#?}");

    let reasons = [
        ("v ORDER BY embedding <-> '[1,0]' DESC LIMIT 3", "the farthest come first"),
        ("v ORDER BY (embedding <-> '[1,0]') * 2 LIMIT 3", "the first sort key is an expression over the distance"),
        ("v ORDER BY embedding <-> '[1,0]'", "there is no LIMIT"),
        ("v ORDER BY kind, embedding <-> '[1,0]' LIMIT 3", "the first sort key is no distance"),
        ("v ORDER BY embedding <-> '[1,0]', kind LIMIT 3", "rows of one distance are ordered by something else than the primary key"),
        ("v WHERE random() < 0.5 ORDER BY embedding <-> '[1,0]' LIMIT 3", "has a function whose result changes by itself"),
        ("v ORDER BY (embedding <-> '[1,0]')::text LIMIT 3", "the first sort key is an expression over the distance"),
        ("v JOIN v AS w ON v.id = w.id ORDER BY v.embedding <-> '[1,0]' LIMIT 3", "a join stands between the table and the sort"),
    ];
    for (query, reason) in reasons {
        let plan = explain(&session, &format!("SELECT v.id FROM {query}")).await;
        let last = plan.last().map(String::as_str).unwrap_or_default();
        assert!(last.starts_with("Index v_emb on v (embedding) is not used: ") && last.contains(reason), "{query}: {plan:#?}");
    }
}
