//! Every function, called with what nobody should call it with, answers with a value or with an error that tells the caller what was wrong.

use std::collections::BTreeSet;
use std::sync::LazyLock;
use std::time::Duration;

use futures::TryStreamExt;
use regex::Regex;
use rolloutdb::server::sqlstate::{message, sqlstate};
use rolloutdb::{Database, Error, Session};

const VALUES: &[&str] = &[
    "NULL",
    "''",
    "'abc'",
    "-1",
    "0",
    "3",
    "9223372036854775807",
    "(-9223372036854775807 - 1)",
    "1.5",
    "1e300",
    "'NaN'::float8",
    "0.25::numeric",
    "ARRAY[1, 2]",
    "ARRAY['a', NULL]",
    "'[1,2]'::vector(2)",
    "true",
    "DATE 'infinity'",
    "TIMESTAMP '0001-01-01 BC'",
    "INTERVAL '1 month -1 day'",
    "'\\x41'::bytea",
    "'{\"a\": [1]}'::jsonb",
    "named_struct('a', 1)",
];

/// Calls of each function with two and with three arguments, and half of those with one, drawn from a seed; `DRAWN=50` in the environment asks for more.
const DRAWN: usize = 3;

/// What asks a model, waits, or holds something.
fn is_left_out(name: &str) -> bool {
    const LEFT_OUT: [&str; 12] = [
        "embed",
        "generate",
        "rerank",
        "judge",
        "judge_reply",
        "judge_relevance",
        "apply_chat_template",
        "pg_sleep",
        "random",
        "uuid",
        "gen_random_uuid",
        "setseed",
    ];
    // Series of all numbers have no end.
    LEFT_OUT.contains(&name)
        || name.contains("series")
        || name.contains("range")
        || name.contains("advisory")
        || !name.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_')
}

/// Knuth's linear congruential generator.
struct Random(u64);

impl Random {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % count
    }
}

fn calls(name: &str, is_aggregate: bool, random: &mut Random, drawn: usize) -> Vec<String> {
    let mut calls = vec![format!("{name}()")];
    for (count, times) in [(1, 2 * drawn), (2, drawn), (3, drawn)] {
        for _ in 0..times {
            let arguments: Vec<&str> = (0..count).map(|_| VALUES[random.below(VALUES.len())]).collect();
            calls.push(format!("{name}({})", arguments.join(", ")));
        }
    }
    let statement =
        |call: String| if is_aggregate { format!("SELECT {call} FROM (VALUES (1), (2)) t(x)") } else { format!("SELECT {call}") };
    calls.into_iter().map(statement).collect()
}

async fn fault(session: &Session, statement: &str) -> Option<String> {
    let run = async { session.sql(statement).await?.try_collect::<Vec<_>>().await.map_err(Error::from) };
    let error = match tokio::time::timeout(Duration::from_secs(30), run).await {
        Ok(Ok(_)) => return None,
        Ok(Err(error)) => error,
        Err(_) => return Some(format!("{statement}: it does not end")),
    };
    static INNER: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(
            r"\b(Utf8|Utf8View|LargeUtf8|Int(8|16|32|64)|UInt(8|16|32|64)|Float(16|32|64)|Date32|MonthDayNano|LanceError|ScalarValue|ColumnarValue)\b|\b(List|FixedSizeList|Struct|Timestamp|Decimal128|Interval)\(|(Arrow|DataFusion|Execution|Internal|Cast|Compute) error|\.rs\b|Did you mean|panicked|downcast",
        )
        .expect("a pattern")
    });
    let (code, text) = (sqlstate(&error), message(&error));
    let is_fault = code == "XX000" || INNER.is_match(&text) || text.len() > 2000;
    is_fault.then(|| format!("{statement}: ({code}) {}", text.chars().take(300).collect::<String>()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_of_a_function_is_a_bug_of_ours() {
    let directory = tempfile::tempdir().expect("a directory");
    let database = Database::open(directory.path()).await.expect("a fresh database opens");
    let session = database.session();
    let state = session.context().state();
    let scalar: BTreeSet<(String, bool)> = state.scalar_functions().keys().map(|name| (name.clone(), false)).collect();
    let aggregates = state.aggregate_functions().keys().map(|name| (name.clone(), true));
    let only = std::env::var("FUNCTION").ok();
    let drawn = std::env::var("DRAWN").ok().and_then(|drawn| drawn.parse().ok()).unwrap_or(DRAWN);
    let mut random = Random(7);
    let names =
        scalar.into_iter().chain(aggregates).filter(|(name, _)| !is_left_out(name) && only.as_ref().is_none_or(|only| only == name));
    let statements: Vec<String> = names.flat_map(|(name, is_aggregate)| calls(&name, is_aggregate, &mut random, drawn)).collect();
    assert!(only.is_some() || statements.len() > 3_000, "only {} statements", statements.len());
    let mut tasks = Vec::new();
    for part in statements.chunks(statements.len().div_ceil(2)) {
        let (part, session) = (part.to_vec(), database.session());
        tasks.push(tokio::spawn(async move {
            let mut faults = Vec::new();
            for statement in part {
                let session = session.clone();
                // A panic is one of the faults.
                let found = tokio::spawn(async move { (fault(&session, &statement).await, statement) });
                match found.await {
                    Ok((found, _)) => faults.extend(found),
                    Err(panic) => faults.push(format!("{panic}")),
                }
            }
            faults
        }));
    }
    let mut faults = Vec::new();
    for task in tasks {
        faults.extend(task.await.expect("panics are caught"));
    }
    assert!(faults.is_empty(), "{} of {} statements:\n{}", faults.len(), statements.len(), faults.join("\n"));
}
