//! The number of threads decides nothing: trees are the same on one as on several, row by row.

use std::process::Command;

use crate::database::temporary;
use crate::process::sql_command;

const GENERATE: &str = "CREATE MODEL policy FROM 'builtin://tinyhop' WITH (task = 'generate');
    CREATE TABLE wiki AS SELECT id, contents FROM hopworld_passages(seed => 3);
    CREATE INDEX wiki_text ON wiki USING bm25 (contents);
    CREATE TABLE questions AS SELECT * FROM hopworld_questions(seed => 3, count => 6);
    CREATE AGENT qa WITH (policy = 'policy', corpus = 'wiki', retriever = 'text', k = 3, prompts = 'short', max_tokens = 48);
    GENERATE ROLLOUTS INTO run USING AGENT qa FROM (SELECT * FROM questions)
    WITH (simulations = 6, children = 4, parallel = 3, rollouts_per_node = 2, max_depth = 6, temperature = 1.0, seed = 5)";

/// Everything but the clock, and what a cache happened to hold.
const TREES: &str = "SELECT question_id, node_id, parent_id, depth, state, action, prompt, response, query, evidence, answer, passage_ids, visit_count, \
    value_sum, prior, process_reward, outcome_reward, is_terminal, token_ids, token_logprobs, seed, prompt_tokens, generated_tokens \
    FROM run ORDER BY question_id, node_id";

/// What a process with so many threads, of models and of everything else, prints.
fn printed(command: &mut Command, threads: usize) -> String {
    let threads = threads.to_string();
    let output = command.args(["--format", "csv"]).env("RAYON_NUM_THREADS", &threads).env("TOKIO_WORKER_THREADS", &threads).output();
    let output = output.expect("the binary starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("it is text")
}

#[test]
fn trees_do_not_depend_on_the_number_of_threads() {
    let trees = |threads: usize| {
        let data = temporary();
        printed(&mut sql_command(data.path(), GENERATE), threads);
        printed(&mut sql_command(data.path(), TREES), threads)
    };
    let on_one = trees(1);
    assert!(on_one.lines().count() > 60, "{} lines", on_one.lines().count());
    for threads in [2, 5] {
        assert!(trees(threads) == on_one, "{threads} threads make other trees than one");
    }
}
