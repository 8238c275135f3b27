//! Retrieval on published data: `../shared/data` next to the project, when it is there. Prints the table of `docs/retrieval.md`.
//!
//! The reference figures for full text are a plain BM25 (Lucene's idf, stemmed, stop words removed) on the same files; those for vectors come from
//! `tests/fixtures/make_retrieval_reference.py`, sentence-transformers with an exact search.

use std::io::Write;
use std::path::{Path, PathBuf};

use arrow::array::AsArray;
use arrow::datatypes::{Float64Type, Int64Type};
use rolloutdb::{Database, Result, Session};

use crate::database::run;
use crate::project;

/// In percent, of a question's supporting passages: at 2, 5 and 10.
type Recall = [f64; 3];

struct Reference {
    dataset: &'static str,
    /// Stop words and Porter's stemmer, k1 = 1.2, b = 0.75.
    bm25: Recall,
    minilm: Recall,
}

const REFERENCES: &[Reference] = &[
    Reference { dataset: "hotpotqa", bm25: [58.2, 77.0, 88.9], minilm: [60.0, 75.7, 85.2] },
    Reference { dataset: "2wikimultihopqa", bm25: [55.0, 64.2, 69.8], minilm: [47.8, 57.8, 64.0] },
    Reference { dataset: "musique", bm25: [36.7, 46.4, 53.5], minilm: [40.3, 52.5, 62.2] },
    Reference { dataset: "popqa", bm25: [50.6, 51.2, 51.7], minilm: [48.1, 49.5, 50.5] },
];

fn data() -> Option<PathBuf> {
    let data = project().join("../shared/data");
    data.is_dir().then_some(data)
}

/// One SELECT: the mean recall of the supporting passages among the first k found, over all questions.
async fn recall(session: &Session, search: &str) -> Result<Recall> {
    let sql = format!(
        "SELECT avg(recall_at_k(ids, gold, 2)) * 100 AS r2, avg(recall_at_k(ids, gold, 5)) * 100 AS r5, avg(recall_at_k(ids, gold, 10)) * 100 AS r10 \
         FROM (SELECT q.id, q.supporting_ids AS gold, array_agg(s.id ORDER BY s.rank) AS ids \
               FROM questions q CROSS JOIN LATERAL {search}(corpus, q.question, k => 10) s GROUP BY q.id, q.supporting_ids) found"
    );
    let found = run(session, &sql).await?;
    Ok([0, 1, 2].map(|column| found[0].column(column).as_primitive::<Float64Type>().value(0)))
}

/// `corpus` with its index and `questions`. With a model's directory the corpus embeds its contents as it is loaded.
async fn load(session: &Session, directory: &Path, minilm: Option<&Path>) -> Result<()> {
    let mut columns = "id text PRIMARY KEY, title text, contents text".to_owned();
    if let Some(minilm) = minilm {
        run(session, &format!("CREATE MODEL minilm FROM '{}' WITH (task = 'embed')", minilm.display())).await?;
        columns += ", embedding vector(384) GENERATED ALWAYS AS (embed('minilm', contents)) STORED";
    }
    run(session, &format!("CREATE TABLE corpus ({columns})")).await?;
    run(session, &format!("COPY corpus (id, title, contents) FROM '{}' (FORMAT jsonl)", directory.join("corpus.jsonl").display())).await?;
    run(session, "CREATE INDEX corpus_text ON corpus USING bm25 (contents)").await?;
    run(session, "CREATE TABLE raw_questions (id text PRIMARY KEY, question text, golden_answers text[], metadata text)").await?;
    run(session, &format!("COPY raw_questions FROM '{}' (FORMAT jsonl)", directory.join("questions.jsonl").display())).await?;
    run(
        session,
        "CREATE TABLE questions AS SELECT id, question, golden_answers, json_texts(metadata, 'supporting_ids') AS supporting_ids FROM raw_questions",
    )
    .await?;
    Ok(())
}

fn assert_within(points: f64, found: Recall, expected: Recall, what: &str) {
    let is_near = found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() <= points);
    assert!(is_near, "{what}: recall@2/5/10 {found:?}, expected {expected:?} within {points} points");
}

fn print_row(dataset: &str, function: &str, recall: Recall) {
    println!("| {dataset} | `{function}` | {:.1} | {:.1} | {:.1} |", recall[0], recall[1], recall[2]);
}

/// Vectors need `ROLLOUTDB_MINILM`, the directory of all-MiniLM-L6-v2 (`make models`): embedding 20,443 passages takes many minutes on a CPU.
#[tokio::test(flavor = "multi_thread")]
async fn retrieval_finds_what_the_references_find() -> Result<()> {
    let Some(data) = data() else {
        tell("skipped: no folder ../shared/data beside the project");
        return Ok(());
    };
    let minilm = std::env::var_os("ROLLOUTDB_MINILM").map(PathBuf::from);
    if minilm.is_none() {
        tell("vector_search and hybrid_search are skipped: `make retrieval` fetches all-MiniLM-L6-v2 and runs them");
    }
    for Reference { dataset, bm25, minilm: expected } in REFERENCES {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let database = Database::open(directory.path()).await?;
        let session = database.session();
        load(&session, &data.join(dataset), minilm.as_deref()).await?;
        let text = recall(&session, "text_search").await?;
        print_row(dataset, "text_search", text);
        assert_within(2.0, text, *bm25, dataset);
        if minilm.is_some() {
            let vector = recall(&session, "vector_search").await?;
            print_row(dataset, "vector_search", vector);
            assert_within(0.5, vector, *expected, dataset);
            let hybrid = recall(&session, "hybrid_search").await?;
            print_row(dataset, "hybrid_search", hybrid);
            let worse = text[2].min(vector[2]);
            assert!(hybrid[2] >= worse, "{dataset}: the fusion finds {:.1}, less than each of its parts ({worse:.1})", hybrid[2]);
        }
    }
    Ok(())
}

/// Pieces of the sets in the form in which they are published: (file, rows, a condition that one of the rows meets).
const SAMPLES: &[(&str, usize, &str)] = &[
    ("search_r1_corpus.jsonl", 10, "id = '4' AND contents LIKE '\"Pavia Cathedral\"%'"),
    ("flashrag_nq_test.jsonl", 17, "golden_answers = ARRAY['Olivia', 'MFSK']"),
    ("original_hotpotqa.jsonl", 2, "answer = '1522' AND context LIKE '[[\"Lorton station (VRE)\", [\"Lorton station is%'"),
    ("original_2wikimultihopqa.jsonl", 2, "answer = 'Hythe' AND evidences LIKE '[[\"The Hi-Jackers\", \"director\",%'"),
    (
        "original_musique.jsonl",
        2,
        "answer = 'Keturah' AND answerable AND answer_aliases = ARRAY[]::text[] AND paragraphs LIKE '[{\"idx\": 0,%'",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn published_sets_are_tables_as_they_are() -> Result<()> {
    let Some(data) = data() else {
        tell("skipped: no folder ../shared/data beside the project");
        return Ok(());
    };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let database = Database::open(directory.path().join("data")).await?;
    let session = database.session();
    for (name, expected, condition) in SAMPLES {
        let lines = data.join("samples").join(name);
        // The originals of HotpotQA and 2Wiki are one array.
        let text = std::fs::read_to_string(&lines).expect("the sample is readable");
        let array = directory.path().join(name);
        std::fs::write(&array, format!("[{}]", text.trim().replace('\n', ",\n"))).expect("the array is written");
        for path in [&lines, &array] {
            let sql = format!("SELECT count(*), count(*) FILTER (WHERE {condition}) FROM read_jsonl('{}')", path.display());
            let counts = run(&session, &sql).await?;
            let count = |column| counts[0].column(column).as_primitive::<Int64Type>().value(0);
            assert_eq!((count(0), count(1)), (*expected as i64, 1), "{}", path.display());
        }
    }
    Ok(())
}

/// Past the test harness, which keeps what a passing test prints.
fn tell(message: &str) {
    let _ = writeln!(std::io::stderr(), "{message}");
}
