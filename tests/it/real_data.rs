//! Retrieval on published data: `../shared/data` next to the project, when it is there.
//!
//! The reference figures are a plain BM25 (Lucene's idf, stemmed, stop words removed) on the same files; ours must be within two points.

use std::path::{Path, PathBuf};

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Float64Type;
use futures::TryStreamExt;
use rolloutdb::{Database, Result, Session};

use crate::project;

/// Recall in percent at 2, 5 and 10: stop words and Porter's stemmer, k1 = 1.2, b = 0.75.
const REFERENCE: &[(&str, [f64; 3])] = &[
    ("hotpotqa", [58.2, 77.0, 88.9]),
    ("2wikimultihopqa", [55.0, 64.2, 69.8]),
    ("musique", [36.7, 46.4, 53.5]),
    ("popqa", [50.6, 51.2, 51.7]),
];

fn data() -> Option<PathBuf> {
    let data = project().join("../shared/data");
    data.is_dir().then_some(data)
}

async fn rows(session: &Session, sql: &str) -> Result<Vec<RecordBatch>> {
    Ok(session.sql(sql).await?.try_collect().await?)
}

/// The SELECT of `docs/retrieval.md`: mean recall of the supporting passages over the first k found.
fn recall_query(search: &str) -> String {
    format!(
        "SELECT avg(recall_at_k(ids, gold, 2)) * 100 AS r2, avg(recall_at_k(ids, gold, 5)) * 100 AS r5, avg(recall_at_k(ids, gold, 10)) * 100 AS r10 \
         FROM (SELECT q.id, q.supporting_ids AS gold, array_agg(s.id ORDER BY s.rank) AS ids \
               FROM questions q CROSS JOIN LATERAL {search} s GROUP BY q.id, q.supporting_ids) found"
    )
}

async fn load(session: &Session, directory: &Path) -> Result<()> {
    rows(session, "CREATE TABLE corpus (id text PRIMARY KEY, title text, contents text)").await?;
    rows(session, &format!("COPY corpus FROM '{}' (FORMAT jsonl)", directory.join("corpus.jsonl").display())).await?;
    rows(session, "CREATE INDEX corpus_text ON corpus USING bm25 (contents)").await?;
    rows(session, "CREATE TABLE raw_questions (id text PRIMARY KEY, question text, golden_answers text[], metadata text)").await?;
    rows(session, &format!("COPY raw_questions FROM '{}' (FORMAT jsonl)", directory.join("questions.jsonl").display())).await?;
    rows(
        session,
        "CREATE TABLE questions AS SELECT id, question, golden_answers, json_texts(metadata, 'supporting_ids') AS supporting_ids FROM raw_questions",
    )
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn bm25_finds_what_the_reference_finds() -> Result<()> {
    let Some(data) = data() else {
        println!("skipped: no folder ../shared/data beside the project");
        return Ok(());
    };
    for (name, expected) in REFERENCE {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let database = Database::open(directory.path()).await?;
        let session = database.session();
        load(&session, &data.join(name)).await?;
        let found = rows(&session, &recall_query("text_search(corpus, q.question, k => 10)")).await?;
        let recall = [0, 1, 2].map(|column| found[0].column(column).as_primitive::<Float64Type>().value(0));
        println!("{name}: recall@2/5/10 {:.1} {:.1} {:.1}", recall[0], recall[1], recall[2]);
        for (ours, reference) in recall.iter().zip(expected) {
            assert!((ours - reference).abs() <= 2.0, "{name}: {recall:?}, expected {expected:?} within 2 points");
        }
    }
    Ok(())
}
