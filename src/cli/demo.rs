//! `rolloutdb demo`: the main job on HopWorld, from corpus to a trained policy, measured on questions of an unseen world.
//!
//! Every step is a statement that one can type; what is printed was measured in this run.

use std::path::PathBuf;
use std::time::Instant;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Float64Type;
use arrow::util::pretty::pretty_format_batches;
use datafusion::error::DataFusionError;
use rolloutdb::{Database, Error, Result, Session};

use super::show_notices;
use super::sql::rows;

#[derive(clap::Args)]
pub struct Arguments {
    /// Data directory to build in; a temporary one if not given
    #[arg(long)]
    data: Option<PathBuf>,
    /// Seeds; one run of rollouts, training and evaluation each
    #[arg(long, value_delimiter = ',', default_value = "1")]
    seeds: Vec<u64>,
    /// Train questions to search
    #[arg(long, default_value_t = 300)]
    questions: usize,
    /// Questions of the unseen world to evaluate on
    #[arg(long, default_value_t = 300)]
    test_questions: usize,
}

pub async fn run(arguments: Arguments) -> Result<()> {
    let temporary;
    let directory = match &arguments.data {
        Some(directory) => directory.clone(),
        None => {
            temporary = tempfile::tempdir().map_err(|source| Error::Io { path: std::env::temp_dir(), source })?;
            temporary.path().to_owned()
        }
    };
    let database = Database::open(&directory).await?;
    let session = database.session();
    show_notices(&session);
    let started = Instant::now();
    let mut gains = Vec::new();
    for seed in &arguments.seeds {
        let demo = Demo { session: &session, seed: *seed, arguments: &arguments };
        gains.push(demo.run(*seed == arguments.seeds[0]).await?);
    }
    println!("\nBefore and after, on {} questions of a world that was never trained on:\n", arguments.test_questions);
    print_gains(&gains);
    print_queries(&arguments, &directory);
    println!("\nTook {:.0} s.", started.elapsed().as_secs_f64());
    Ok(())
}

/// The measurements of one policy: mean and half width of the 95 % interval.
#[derive(Debug, Clone)]
struct Scores {
    exact_match: (f64, f64),
    f1: (f64, f64),
    steps: (f64, f64),
    retrievals: (f64, f64),
}

struct Gain {
    seed: u64,
    before: Scores,
    after: Scores,
}

struct Demo<'a> {
    session: &'a Session,
    seed: u64,
    arguments: &'a Arguments,
}

impl Demo<'_> {
    async fn run(&self, is_first: bool) -> Result<Gain> {
        let seed = self.seed;
        heading(&format!("Seed {seed}: a corpus and its index"));
        self.build_worlds().await?;
        if is_first {
            heading("One question, step by step");
            self.show_steps().await?;
        }
        heading("The base policy on an unseen world");
        let before = self.evaluate("tinyhop").await?;
        heading("Rollouts: one search tree per train question");
        self.rollouts().await?;
        heading("Preference pairs and DPO");
        self.train().await?;
        heading("The trained policy on the same questions");
        let after = self.evaluate(&format!("better{seed}")).await?;
        Ok(Gain { seed, before, after })
    }

    /// Train and test worlds share no entity: the test world's names come from the other half of the name space.
    async fn build_worlds(&self) -> Result<()> {
        let (seed, count, test_count) = (self.seed, self.arguments.questions, self.arguments.test_questions);
        self.say("CREATE MODEL IF NOT EXISTS tinyhop FROM 'builtin://tinyhop' WITH (task = 'generate')").await?;
        for (split, count) in [("train", count), ("test", test_count)] {
            let size = "num_people => 120, num_films => 80, num_books => 60, num_companies => 40, num_cities => 60, num_countries => 24";
            self.say(&format!(
                "CREATE TABLE {split}{seed}_passages AS SELECT id, contents FROM hopworld_passages(seed => {seed}, split => '{split}', {size})"
            ))
            .await?;
            self.say(&format!("CREATE INDEX {split}{seed}_bm25 ON {split}{seed}_passages USING bm25 (contents)")).await?;
            self.say(&format!(
                "CREATE TABLE {split}{seed}_questions AS SELECT * FROM hopworld_questions(seed => {seed}, split => '{split}', {size}, count => {count})"
            ))
            .await?;
            self.say(&format!(
                "CREATE AGENT {split}{seed}_agent WITH (policy = 'tinyhop', corpus = '{split}{seed}_passages', retriever = 'text', k = 3, \
                 prompts = 'short', max_steps = 12, max_tokens = 64)"
            ))
            .await?;
        }
        Ok(())
    }

    async fn show_steps(&self) -> Result<()> {
        let seed = self.seed;
        let questions = rows(
            self.session,
            &format!("SELECT question, golden_answers[1] AS gold FROM test{seed}_questions WHERE hops = 2 ORDER BY id LIMIT 1"),
        )
        .await?;
        let Some(batch) = questions.first().filter(|batch| batch.num_rows() > 0) else { return Ok(()) };
        let question = batch.column(0).as_string::<i32>().value(0).replace('\'', "''");
        println!("Question: {question}\nGold answer: {}\n", batch.column(1).as_string::<i32>().value(0));
        self.show(&format!(
            "SELECT step, action, trim(response) AS response FROM answer_steps('{question}', agent => 'test{seed}_agent') ORDER BY step"
        ))
        .await
    }

    async fn evaluate(&self, policy: &str) -> Result<Scores> {
        let seed = self.seed;
        let sql = format!(
            "SELECT avg(em) AS em, ci95(em) AS em_ci, avg(f1) AS f1, ci95(f1) AS f1_ci, avg(steps) AS steps, ci95(steps) AS steps_ci, \
             avg(retrievals) AS retrievals, ci95(retrievals) AS retrievals_ci \
             FROM (SELECT exact_match(a.answer, q.golden_answers) AS em, f1_score(a.answer, q.golden_answers) AS f1, \
             CAST(a.steps AS double precision) AS steps, CAST(a.retrievals AS double precision) AS retrievals \
             FROM test{seed}_questions q CROSS JOIN LATERAL answer(q.question, agent => 'test{seed}_agent', policy => '{policy}') a) scored"
        );
        println!("{sql}\n");
        let batches = rows(self.session, &sql).await?;
        println!("{}\n", pretty_format_batches(&batches).map_err(DataFusionError::from)?);
        let batch = batches.first().filter(|batch| batch.num_rows() == 1).ok_or_else(|| Error::Internal("no scores".to_owned()))?;
        let pair = |first: usize| (float(batch, first), float(batch, first + 1));
        Ok(Scores { exact_match: pair(0), f1: pair(2), steps: pair(4), retrievals: pair(6) })
    }

    async fn rollouts(&self) -> Result<()> {
        let seed = self.seed;
        self.show(&format!(
            "GENERATE ROLLOUTS INTO rollouts{seed} USING AGENT train{seed}_agent \
             FROM (SELECT id, question, golden_answers FROM train{seed}_questions) \
             WITH (simulations = 12, children = 3, alpha = 0.9, max_depth = 10, temperature = 1.0, top_p = 1.0, concurrency = 64, seed = {seed})"
        ))
        .await
    }

    async fn train(&self) -> Result<()> {
        let seed = self.seed;
        self.say(&format!("CREATE TABLE pairs{seed} AS SELECT * FROM preference_pairs(rollouts{seed}, min_gap => 0.05)")).await?;
        self.show(&format!("SELECT chosen_action, rejected_action, count(*) AS pairs FROM pairs{seed} GROUP BY 1, 2 ORDER BY 3 DESC"))
            .await?;
        self.show(&format!(
            "TRAIN DPO MODEL better{seed} FROM tinyhop USING (SELECT prompt, chosen, rejected FROM pairs{seed}) \
             WITH (beta = 0.1, learning_rate = 5e-5, epochs = 2, batch_size = 32, batch_tokens = 8192, seed = {seed})"
        ))
        .await
    }

    /// Prints a statement and runs it for its effect.
    async fn say(&self, sql: &str) -> Result<()> {
        println!("{sql};");
        rows(self.session, sql).await.map(|_| ())
    }

    /// Prints a statement and its rows.
    async fn show(&self, sql: &str) -> Result<()> {
        println!("{sql};\n");
        let batches = rows(self.session, sql).await?;
        println!("{}\n", pretty_format_batches(&batches).map_err(DataFusionError::from)?);
        Ok(())
    }
}

fn heading(text: &str) {
    println!("\n── {text} ──\n");
}

fn float(batch: &RecordBatch, column: usize) -> f64 {
    batch.column(column).as_primitive::<Float64Type>().value(0)
}

fn print_gains(gains: &[Gain]) {
    println!("{:>6}  {:<8} {:>15} {:>15} {:>15} {:>15}", "seed", "policy", "EM %", "F1 %", "steps", "retrievals");
    for gain in gains {
        for (name, scores) in [("before", &gain.before), ("after", &gain.after)] {
            let percent = |(mean, half): (f64, f64)| format!("{:.1} ± {:.1}", mean * 100.0, half * 100.0);
            let plain = |(mean, half): (f64, f64)| format!("{mean:.2} ± {half:.2}");
            println!(
                "{:>6}  {name:<8} {:>15} {:>15} {:>15} {:>15}",
                gain.seed,
                percent(scores.exact_match),
                percent(scores.f1),
                plain(scores.steps),
                plain(scores.retrievals)
            );
        }
    }
}

fn print_queries(arguments: &Arguments, directory: &std::path::Path) {
    let seed = arguments.seeds[0];
    if arguments.data.is_none() {
        println!(
            "\nWith --data DIR the database stays; then `rolloutdb serve --data DIR`, `psql -h 127.0.0.1 -p 5433 rolloutdb`, and for example:"
        );
    } else {
        println!("\nThe database stays in {}; serve it, connect with psql, and try:", directory.display());
    }
    println!(
        "
-- the tree of one question, root first
SELECT node_id, parent_id, depth, action, visit_count, round(process_reward, 3) AS reward, trim(response) AS response
FROM rollouts{seed} WHERE question_id = (SELECT min(question_id) FROM rollouts{seed}) ORDER BY node_id;

-- which decisions the search found better
SELECT chosen_action, rejected_action, count(*), round(avg(chosen_reward - rejected_reward), 3) AS gap FROM pairs{seed} GROUP BY 1, 2 ORDER BY 3 DESC;

-- how the training went
SELECT step, max(value) FILTER (WHERE metric = 'loss') AS loss, max(value) FILTER (WHERE metric = 'reward_accuracy') AS accuracy
FROM rollout.training_metrics WHERE model = 'better{seed}' GROUP BY step ORDER BY step;"
    );
}
