//! A full disk: a clear error (53100), the table as it was, nothing left of the statement. On a small file system of its own, which takes root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rolloutdb::server::sqlstate::{message, sqlstate};
use rolloutdb::{Database, DatabaseOptions, Result};

use crate::database::{number, run};
use crate::hub_server::{HubServer, Repository};

/// A file system in memory, gone when dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// 48 MB. `None` where this process may not mount, which skips the test and says so.
    fn mount() -> Option<Self> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=48m", "tmpfs"]).arg(directory.path()).output();
        let disk = mounted.is_ok_and(|output| output.status.success()).then_some(Self(directory));
        if disk.is_none() {
            let _ = std::io::Write::write_all(&mut std::io::stderr(), b"skipped: this process may not mount a small file system\n");
        }
        disk
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Leaves this much room.
    fn fill(&self, kilobytes_left: u64) -> PathBuf {
        let ballast = self.path().join("ballast");
        let mut bytes: u64 = 0;
        let df = Command::new("df").args(["--output=avail", "-k"]).arg(self.path()).output().expect("df runs");
        let available = String::from_utf8_lossy(&df.stdout).lines().last().and_then(|line| line.trim().parse::<u64>().ok());
        bytes += available.expect("df tells").saturating_sub(kilobytes_left) * 1024;
        fs::write(&ballast, vec![1; bytes as usize]).expect("it fits");
        ballast
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).output();
    }
}

fn little_memory() -> DatabaseOptions {
    DatabaseOptions { memory_limit: Some(64 << 20), ..DatabaseOptions::default() }
}

/// Every file below a folder with its size, but for what Lance notes of a commit that did not come about.
fn files(directory: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => found.extend(files(&path)),
            Ok(metadata) if path.extension().is_none_or(|extension| extension != "txn") => found.push((path, metadata.len())),
            _ => {}
        }
    }
    found.sort();
    found
}

/// Rows that take some 40 bytes each however they are packed.
fn rows(count: usize) -> String {
    format!("SELECT value AS id, md5(CAST(value AS text)) AS text FROM generate_series(1000, {}) s(value)", 1000 + count)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_stops_the_statement_and_harms_nothing() -> Result<()> {
    let Some(disk) = SmallDisk::mount() else { return Ok(()) };
    let elsewhere = tempfile::tempdir().expect("a temporary directory");
    let data = disk.path().join("data");
    let source = elsewhere.path().join("big.csv");
    let options = little_memory();
    let database = Database::open_with(&data, options.clone()).await?;
    let session = database.session();
    run(&session, "CREATE TABLE t (id bigint PRIMARY KEY, text text)").await?;
    run(&session, &format!("INSERT INTO t {}", rows(50_000))).await?;
    run(&session, "CREATE INDEX t_text ON t USING bm25 (text)").await?;
    run(&session, &format!("COPY ({}) TO '{}'", rows(200_000), source.display())).await?;
    run(&session, "CREATE TABLE loaded (id bigint, text text)").await?;
    let ballast = disk.fill(600);

    let target = disk.path().join("out.csv");
    let statements = [
        "INSERT INTO t SELECT id + 10000000, text FROM t UNION ALL SELECT id + 20000000, text FROM t".to_owned(),
        format!("COPY loaded FROM '{}'", source.display()),
        format!("COPY (SELECT * FROM t a CROSS JOIN generate_series(1, 10) b(value)) TO '{}'", target.display()),
        "CREATE TABLE u AS SELECT * FROM t".to_owned(),
        "UPDATE t SET text = reverse(text)".to_owned(),
        "CREATE INDEX t_words ON t USING bm25 (text)".to_owned(),
        "REINDEX TABLE t".to_owned(),
        "ALTER TABLE t ADD COLUMN more text GENERATED ALWAYS AS (md5(text)) STORED".to_owned(),
        "SELECT a.id, a.text || b.text FROM t a JOIN generate_series(1, 8) g(value) ON true JOIN t b ON a.id = b.id ORDER BY 2".to_owned(),
    ];
    for statement in &statements {
        let before = files(disk.path());
        let error = run(&session, statement).await.expect_err(statement);
        assert_eq!(sqlstate(&error), "53100", "{statement}: {error:?}");
        assert!(message(&error).contains("no space left"), "{statement}: {}", message(&error));
        assert_eq!(number(&session, "SELECT count(*) FROM t").await?, 50_001, "{statement}");
        assert_eq!(number(&session, "SELECT count(*) FROM t WHERE text = md5(CAST(id AS text))").await?, 50_001, "{statement}");
        let left: Vec<_> = files(disk.path()).into_iter().filter(|file| !before.contains(file)).collect();
        let small = left.iter().map(|(_, bytes)| bytes).sum::<u64>() < 64 << 10;
        assert!(small && !target.exists(), "{statement} left {left:?}");
    }
    assert!(run(&session, "SELECT * FROM u").await.is_err(), "a half-made table is no table");
    assert_eq!(number(&session, "SELECT count(*) FROM loaded").await?, 0);

    fs::remove_file(ballast).expect("the ballast goes");
    run(&session, "INSERT INTO t VALUES (1, 'one')").await?;
    run(&session, "UPDATE t SET text = reverse(text) WHERE id = 1").await?;
    run(&session, "CREATE INDEX t_id ON t USING btree (id)").await?;
    drop((session, database));
    let database = Database::open_with(&data, options).await?;
    let session = database.session();
    assert_eq!(number(&session, "SELECT count(*) FROM t").await?, 50_002);
    assert_eq!(number(&session, "SELECT count(*) FROM t WHERE id = 1 AND text = 'eno'").await?, 1);
    Ok(())
}

const BASE: &str = "CREATE MODEL seedling FROM 'random://qwen2' USING (SELECT completion FROM hopworld_demonstrations(worlds => 1, questions_per_world => 20))
    WITH (task = 'generate', vocab_size = 400, hidden_size = 64, intermediate_size = 128, num_hidden_layers = 2, num_attention_heads = 4,
    num_key_value_heads = 2, seed = 1)";

/// The whole checkpoints of all trainings: one that is being written has another name until it is whole.
fn checkpoints(data: &Path) -> Vec<PathBuf> {
    let below = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect::<Vec<_>>();
    let is_whole = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("step-"));
    below(&data.join("training")).iter().flat_map(|run| below(run)).filter(is_whole).collect()
}

/// Takes what is left of a disk, again and again: a process that removes a file of its own gives room back.
async fn keep_full(disk: &Path) {
    let mut ballast = fs::File::create(disk.join("ballast")).expect("a file can be made");
    loop {
        while std::io::Write::write_all(&mut ballast, &[1; 4096]).is_ok() {}
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

/// An agent that acts with the model that is trained.
const WORLD: &str = "CREATE TABLE wiki AS SELECT id, contents FROM hopworld_passages(seed => 3); CREATE INDEX wiki_text ON wiki USING bm25 (contents);
    CREATE TABLE questions AS SELECT * FROM hopworld_questions(seed => 3, count => 4);
    CREATE AGENT qa WITH (policy = 'seedling', corpus = 'wiki', retriever = 'text', k = 1, prompts = 'short', max_steps = 2, max_tokens = 4)";

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_stops_a_training_at_its_last_good_checkpoint() -> Result<()> {
    let rows =
        "SELECT 'Who? ' || value AS prompt, 'He.' AS completion, 'He.' AS chosen, 'She.' AS rejected FROM generate_series(1, 8) s(value)";
    let of_rows = |method: &str| {
        format!(
            "TRAIN {method} MODEL m FROM seedling USING ({rows}) WITH (epochs = 10000, max_steps = 300, batch_size = 1, checkpoint_every = 2)"
        )
    };
    for method in ["SFT", "DPO", "PRM"] {
        check_stops_and_goes_on("SELECT 1", &of_rows(method), 300).await?;
    }
    for method in ["GRPO", "PPO"] {
        let online = format!(
            "TRAIN {method} MODEL m FROM seedling USING (SELECT question, golden_answers FROM questions) \
             WITH (agent = 'qa', batch_size = 1, group_size = 2, epochs = 10000, max_steps = 80, checkpoint_every = 1)"
        );
        check_stops_and_goes_on(WORLD, &online, 80).await?;
    }
    Ok(())
}

/// A training whose disk fills at a checkpoint leaves no model, and goes on once there is room.
async fn check_stops_and_goes_on(setup: &str, train: &str, num_steps: i64) -> Result<()> {
    let Some(disk) = SmallDisk::mount() else { return Ok(()) };
    let data = disk.path().join("data");
    let session = Database::open_with(&data, little_memory()).await?.session();
    run(&session, BASE).await?;
    run(&session, setup).await?;
    let filled = async {
        while checkpoints(&data).is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
        keep_full(disk.path()).await;
    };
    let stopped = tokio::select! {
        stopped = run(&session, train) => stopped,
        () = filled => unreachable!("the disk is kept full for ever"),
    };
    let error = stopped.expect_err("there is no room for the next checkpoint");
    assert_eq!(sqlstate(&error), "53100", "{train}: {error:?}");
    let told = message(&error);
    assert!(told.contains("no space left") && told.contains("the same training goes on at that of step"), "{train}: {told}");
    assert_eq!(number(&session, "SELECT count(*) FROM rollout.models").await?, 1, "half a training is no model");
    fs::remove_file(disk.path().join("ballast")).expect("the ballast goes");
    let left = checkpoints(&data);
    assert!(!left.is_empty() && left.iter().all(|path| path.join("SHA256SUMS").exists()), "the last good one stays: {left:?}");

    // It goes on there, and its rows are those of one run.
    run(&session, train).await?;
    let resumed = "SELECT (lineage::json ->> 'resumed_at')::bigint FROM rollout.models WHERE name = 'm'";
    assert!(number(&session, resumed).await? >= 1, "{train}");
    assert_eq!(number(&session, "SELECT count(*) FROM rollout.training_metrics WHERE metric = 'loss' AND version = 1").await?, num_steps);
    assert_eq!(number(&session, "SELECT count(DISTINCT run) FROM rollout.training_metrics").await?, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_makes_no_half_model() -> Result<()> {
    let Some(disk) = SmallDisk::mount() else { return Ok(()) };
    let data = disk.path().join("data");
    let session = Database::open_with(&data, little_memory()).await?.session();
    run(&session, BASE).await?;
    // The weights have some 400 kB.
    let ballast = disk.fill(150);
    let before = files(&data.join("models"));
    let train =
        "TRAIN SFT MODEL m FROM seedling USING (SELECT 'Who?' AS prompt, 'He.' AS completion) WITH (max_steps = 1, checkpoint_every = 0)";
    let error = run(&session, train).await.expect_err("there is no room for the weights");
    assert_eq!(sqlstate(&error), "53100", "{error:?}");
    let told = message(&error);
    assert!(told.contains("no space left") && told.contains("there is no new version"), "{told}");
    assert_eq!(files(&data.join("models")), before, "nothing of it is left");
    assert_eq!(number(&session, "SELECT count(*) FROM rollout.models").await?, 1);
    fs::remove_file(ballast).expect("the ballast goes");
    run(&session, train).await?;
    assert_eq!(number(&session, "SELECT count(*) FROM rollout.models").await?, 2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_stops_a_download_and_is_not_left_full() -> Result<()> {
    let Some(disk) = SmallDisk::mount() else { return Ok(()) };
    let weights = "model.safetensors";
    // Where the hub lists the size, the file is not asked for; else its answer tells it, and nothing of that is written.
    for tells in [true, false] {
        let repository = Repository::of_fixture("bert").with(weights, vec![0; 80 << 20]);
        let server = HubServer::of(&if tells { repository } else { repository.without_blobs() });
        let data = disk.path().join(if tells { "told" } else { "untold" });
        let options = DatabaseOptions { allowed_hosts: vec![server.url()], ..little_memory() };
        let session = Database::open_with(&data, options).await?.session();
        let create = format!("CREATE MODEL m FROM 'hf://org/model' WITH (endpoint = '{}')", server.url());
        let error = run(&session, &create).await.expect_err("it does not fit");
        assert_eq!(sqlstate(&error), "53100", "{error:?}");
        assert!(message(&error).contains("no space left"), "{}", message(&error));
        assert_eq!(server.asked_for(weights).is_empty(), tells);
        let left: Vec<_> = files(disk.path()).into_iter().filter(|(path, _)| path.display().to_string().contains(weights)).collect();
        assert_eq!(left, [], "nothing of it is left");
        run(&session, "CREATE TABLE t AS SELECT 1 AS id").await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_others_fill_stops_a_download() -> Result<()> {
    let Some(disk) = SmallDisk::mount() else { return Ok(()) };
    let weights = "model.safetensors";
    let repository = Repository::of_fixture("bert").with(weights, vec![0; 20 << 20]);
    let ballast = disk.path().join("ballast");
    // The connection breaks off, and before the rest comes there is no room for it.
    let server = HubServer::start(move |asked, _| {
        let reply = repository.reply(asked);
        match (asked.path.ends_with(weights), asked.headers.contains_key("range")) {
            (true, false) => return reply.cut_after(8 << 20),
            (true, true) => fs::write(&ballast, vec![1; 30 << 20]).expect("it fits"),
            (false, _) => {}
        }
        reply
    });
    let options = DatabaseOptions { allowed_hosts: vec![server.url()], ..little_memory() };
    let session = Database::open_with(&disk.path().join("data"), options).await?.session();
    let create = format!("CREATE MODEL m FROM 'hf://org/model' WITH (endpoint = '{}')", server.url());
    let error = run(&session, &create).await.expect_err("it does not fit any more");
    assert_eq!(sqlstate(&error), "53100", "{error:?}");
    assert!(message(&error).contains("still to come"), "{}", message(&error));
    assert_eq!(server.asked_for(weights).len(), 2);
    let left: Vec<_> = files(disk.path()).into_iter().filter(|(path, _)| path.display().to_string().contains(weights)).collect();
    assert_eq!(left, [], "nothing of it is left");
    run(&session, "CREATE TABLE t AS SELECT 1 AS id").await?;
    Ok(())
}
