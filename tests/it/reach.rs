//! What statements may reach: a list of everything that takes a path or a URL, and an attack on each.
//!
//! The list is checked against the grammar and the functions: one that is new fails the test until it stands here, and `docs/security.md` names it.
//! `cargo test --test it reach -- --nocapture` prints the attacks with their outcomes.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::Path;

use futures::TryStreamExt;
use rolloutdb::agent::{AgentOptions, RewardOptions, SearchOptions};
use rolloutdb::engine::Response;
use rolloutdb::models::embedder_settings::EmbeddingOptions;
use rolloutdb::models::hub::HubOptions;
use rolloutdb::models::remote::RemoteOptions;
use rolloutdb::server::sqlstate;
use rolloutdb::training::{DpoOptions, ONLINE_STATEMENT_OPTIONS, OnlineOptions, PrmOptions, RftOptions, STATEMENT_OPTIONS, SftOptions};
use rolloutdb::{Database, DatabaseOptions, Result, Session};

use crate::{files_below, project};

/// Statements that take a path or a URL, with `PATH` for it.
const STATEMENTS: [(&str, &str); 5] = [
    ("COPY FROM", "COPY t FROM 'PATH' (FORMAT csv)"),
    ("COPY TO", "COPY t TO 'PATH' (FORMAT csv)"),
    ("COPY query TO", "COPY (SELECT 1 AS a) TO 'PATH' (FORMAT csv)"),
    ("CREATE MODEL", "CREATE MODEL m FROM 'PATH'"),
    ("CREATE SECRET", "CREATE SECRET s FROM FILE 'PATH'"),
];

/// Options of `WITH` that take a path, in a statement with `PATH` for it.
const PATH_OPTIONS: [(&str, &str); 1] =
    [("tensorboard", "TRAIN SFT MODEL m FROM policy USING (SELECT 'a' AS prompt, 'b' AS completion) WITH (tensorboard = 'PATH')")];

/// Files of the grammar in which no statement has a field for a path or a URL: their texts are names, conditions and words.
const WITHOUT_PATHS: &[&str] = &[
    "alter_owner",
    "alter_table",
    "clear_cache",
    "comment",
    "create_agent",
    "create_extension",
    "create_index",
    "create_schema",
    "create_table",
    "create_view",
    "cursor",
    "delete",
    "describe",
    "drop",
    "explain",
    "generate_rollouts",
    "grant",
    "insert",
    "job",
    "like_table",
    "maintenance",
    "merge",
    "mod",
    "prepare",
    "print",
    "role",
    "savepoint",
    "set",
    "show",
    "target",
    "train",
    "transaction",
    "truncate",
    "unload_model",
    "update",
];
const WITH_PATHS: &[&str] = &["copy", "create_model", "secret"];

/// Arguments of table functions that are texts and no paths, by what they are.
const TEXTS: &[&str] = &[
    "agent",
    "by",
    "column",
    "columns",
    "corpus",
    "corpus_version",
    "delimiter",
    "filter",
    "format",
    "fusion",
    "json",
    "kind",
    "metric",
    "mode",
    "model",
    "name",
    "nodes",
    "on_error",
    "operator",
    "policy",
    "prompts",
    "protocol",
    "query",
    "question",
    "question_id",
    "rerank",
    "rerank_column",
    "retriever",
    "split",
    "text",
    "version",
];
/// Arguments that are numbers, or true or false.
const NUMBERS: &[&str] = &[
    "candidates",
    "comparison",
    "count",
    "distractors_max",
    "distractors_min",
    "early_answer",
    "evidence_repeat",
    "exact",
    "fault_weight",
    "forced_answer",
    "fuzziness",
    "header",
    "k",
    "max_steps",
    "max_tokens",
    "min_gap",
    "min_p",
    "missing_gold",
    "num_books",
    "num_cities",
    "num_companies",
    "num_countries",
    "num_films",
    "num_people",
    "one_hop",
    "overlap",
    "prefix_length",
    "question_seed",
    "questions_per_world",
    "repetition_penalty",
    "rrf_k",
    "sample_size",
    "seed",
    "size",
    "slop",
    "temperature",
    "three_hop",
    "top_k",
    "top_p",
    "two_hop",
    "vector_weight",
    "wasted",
    "worlds",
    "wrong_bridge",
];

/// Options of `WITH` that take a URL, in a statement with `URL` for it.
const URL_OPTIONS: [(&str, &str); 3] = [
    ("base_url", "CREATE MODEL u FROM 'openai://tiny' WITH (base_url = 'URL', retries = 0, timeout = 5)"),
    ("base_url", "CREATE MODEL u FROM 'openai://tiny' WITH (base_url = ['https://allowed.example/v1', 'URL'], retries = 0, timeout = 5)"),
    ("endpoint", "CREATE MODEL u FROM 'hf://org/name' WITH (endpoint = 'URL', retries = 0, timeout = 5)"),
];
/// Options that are names, words, numbers, or true or false.
const OTHER_OPTIONS: &[&str] = &[
    "adam_beta1",
    "adam_beta2",
    "advantage_scaling",
    "agent",
    "alpha",
    "api",
    "batch_size",
    "batch_tokens",
    "beta",
    "cache",
    "checkpoint_every",
    "children",
    "clip_high",
    "clip_low",
    "concurrency",
    "context_length",
    "corpus",
    "corpus_version",
    "critic_learning_rate",
    "device",
    "early_stopping",
    "early_stopping_metric",
    "empty_search_penalty",
    "entropy_weight",
    "epochs",
    "estimator",
    "evaluate_every",
    "exploration",
    "extra",
    "file",
    "format_reward",
    "gae_scope",
    "gamma",
    "gradient_accumulation",
    "group_by_prefix",
    "group_size",
    "idle_timeout",
    "judge",
    "judge_prompt",
    "k",
    "kl_weight",
    "label_smoothing",
    "lambda",
    "learning_rate",
    "length_normalization",
    "likelihood_guard",
    "logprobs",
    "long_prompts",
    "lora_alpha",
    "lora_keep",
    "lora_rank",
    "lora_rslora",
    "lora_targets",
    "loss",
    "loss_normalization",
    "margin",
    "max_depth",
    "max_grad_norm",
    "max_length",
    "max_steps",
    "max_tokens",
    "method",
    "min_p",
    "min_reward",
    "min_score",
    "mini_batches",
    "normalize",
    "on_divergence",
    "parallel",
    "passage_prompt",
    "per_prompt",
    "policy",
    "pooling",
    "preset",
    "price_cached",
    "price_input",
    "price_output",
    "prm",
    "prompt_weight",
    "prompts",
    "protocol",
    "query_prompt",
    "recompute",
    "redundant_search_penalty",
    "repetition_penalty",
    "requests_per_minute",
    "resume",
    "retries",
    "retriever",
    "returns",
    "reward",
    "reward_variant",
    "rollout_temperature",
    "rollouts_per_node",
    "samples_per_request",
    "schedule",
    "secret",
    "seed",
    "selection",
    "sft_weight",
    "shuffle",
    "simulations",
    "step_format",
    "step_tokens",
    "step_weight",
    "stream",
    "task",
    "temperature",
    "temperatures",
    "timeout",
    "token_weights",
    "top_k",
    "top_p",
    "tree_packing",
    "updates_per_batch",
    "value",
    "value_clip",
    "warmup_ratio",
    "weight_decay",
    "whiten_advantages",
];

/// The options of statements, as the code has them for its messages, with the file of each list.
const OPTION_LISTS: [(&str, &[&str]); 14] = [
    ("src/agent/options.rs", AgentOptions::NAMES),
    ("src/agent/search_options.rs", SearchOptions::NAMES),
    ("src/agent/reward.rs", &RewardOptions::NAMES),
    ("src/models/embedder_settings.rs", &EmbeddingOptions::NAMES),
    ("src/models/hub/options.rs", HubOptions::NAMES),
    ("src/models/remote/options.rs", RemoteOptions::NAMES),
    ("src/training/options.rs", SftOptions::NAMES),
    ("src/training/options.rs", RftOptions::NAMES),
    ("src/training/options.rs", DpoOptions::NAMES),
    ("src/training/options.rs", PrmOptions::NAMES),
    ("src/training/options.rs", STATEMENT_OPTIONS),
    ("src/training/online/options.rs", OnlineOptions::GRPO_NAMES),
    ("src/training/online/options.rs", OnlineOptions::PPO_NAMES),
    ("src/training/online/options.rs", ONLINE_STATEMENT_OPTIONS),
];
/// Files that read a URL: those that say which may be asked, those of the options that take one, and a test with servers of its own.
const URL_READERS: &[&str] = &[
    "src/engine/gate.rs",
    "src/engine/outbound.rs",
    "src/models/hub/options.rs",
    "src/models/remote/endpoints.rs",
    "src/models/remote/options.rs",
];

async fn run(session: &Session, sql: &str) -> Result<()> {
    for statement in session.parse(sql)? {
        if let Response::Rows { stream, .. } = session.execute(&statement, vec![]).await? {
            stream.try_collect::<Vec<_>>().await?;
        }
    }
    Ok(())
}

/// Every way to say a path, by name, with `PATH` for it.
fn ways(database: &Database) -> Vec<(String, String)> {
    let mut ways: Vec<(String, String)> = STATEMENTS.iter().map(|(name, sql)| ((*name).to_owned(), (*sql).to_owned())).collect();
    ways.extend(PATH_OPTIONS.iter().map(|(option, sql)| (format!("option `{option}`"), (*sql).to_owned())));
    for (function, arguments) in database.table_functions() {
        for argument in arguments {
            if argument == "path" {
                ways.push((format!("{function}()"), format!("SELECT * FROM {function}('PATH')")));
            } else {
                let is_known = TEXTS.contains(&argument) || NUMBERS.contains(&argument);
                assert!(is_known, "is {argument} of {function}() a path or a URL? Then attack it here, else add it to the lists");
            }
        }
    }
    ways
}

#[test]
fn every_statement_with_a_path_is_in_the_list() {
    let known: BTreeSet<&str> = WITHOUT_PATHS.iter().chain(WITH_PATHS).copied().collect();
    let files = files_below(&project().join("sql/src/statement"));
    assert!(!files.is_empty(), "the grammar is there");
    for path in files {
        let name = path.file_stem().expect("a file has a name").to_string_lossy().into_owned();
        assert!(
            known.contains(name.as_str()),
            "does a statement of {name}.rs take a path or a URL? Then attack it here, else add it to the list"
        );
        let text = std::fs::read_to_string(&path).expect("the grammar is readable");
        let has_path = text.lines().any(|line| {
            let line = line.trim_start();
            ["pub path", "pub url", "pub location", "pub file", "pub source: String", "File(String)", "Url(String)"]
                .iter()
                .any(|field| line.starts_with(field))
        });
        assert!(!has_path || WITH_PATHS.contains(&name.as_str()), "{name}.rs has a field for a path");
    }
}

#[test]
fn every_option_with_a_url_or_a_path_is_in_the_list() {
    for (file, names) in OPTION_LISTS {
        assert!(!names.is_empty(), "{file}");
        for name in names {
            let takes = |options: &[(&str, &str)]| options.iter().any(|(option, _)| option == name);
            let is_known = OTHER_OPTIONS.contains(name) || takes(&URL_OPTIONS) || takes(&PATH_OPTIONS);
            assert!(is_known, "is the option {name} of {file} a URL or a path? Then attack it here, else add it to the list");
        }
    }
    let source = |path: &str| std::fs::read_to_string(project().join(path)).expect("the source is readable");
    for (option, file) in [("base_url", "src/models/remote/options.rs"), ("endpoint", "src/models/hub/options.rs")] {
        let is_set = format!("\"{option}\" => self.");
        assert!(source(file).contains(&is_set), "{option} is read there");
    }
    // A list of options, or a reader of URLs, that is not looked at here would be passed over.
    for path in files_below(&project().join("src")) {
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let path = path.strip_prefix(project()).expect("it is below").display().to_string();
        let text = source(&path);
        if text.contains("pub const NAMES:") {
            assert!(OPTION_LISTS.iter().any(|(file, _)| *file == path), "{path} has a list of options: it belongs here");
        }
        if text.contains("Url::parse(") {
            assert!(URL_READERS.contains(&path.as_str()), "{path} reads a URL: is it one of a statement? Then attack it here");
        }
    }
}

/// URLs that lead elsewhere than to `https://allowed.example`, the only host that may be asked, and the code of their refusal. At the port somebody
/// listens on this machine.
fn urls(port: u16) -> Vec<(&'static str, String, &'static str)> {
    vec![
        ("host that is not allowed", "https://example.org/v1".to_owned(), "42501"),
        ("allowed host as the end of a name", "https://evilallowed.example/v1".to_owned(), "42501"),
        ("allowed host as the beginning of a name", "https://allowed.example.evil.test/v1".to_owned(), "42501"),
        ("allowed host without TLS", "http://allowed.example/v1".to_owned(), "42501"),
        ("this machine", format!("https://127.0.0.1:{port}/v1"), "42501"),
        ("this machine without TLS", format!("http://127.0.0.1:{port}/v1"), "42501"),
        ("this machine by another of its addresses", format!("http://127.8.8.8:{port}/v1"), "42501"),
        ("this machine by no address", format!("http://0.0.0.0:{port}/v1"), "42501"),
        ("this machine by name", format!("http://localhost:{port}/v1"), "42501"),
        ("this machine by name with a dot", format!("http://localhost.:{port}/v1"), "42501"),
        ("this machine in IPv6", format!("http://[::1]:{port}/v1"), "42501"),
        ("this machine as IPv4 in IPv6", format!("http://[::ffff:127.0.0.1]:{port}/v1"), "42501"),
        ("address as one number", format!("http://2130706433:{port}/v1"), "42501"),
        ("address in hexadecimal", format!("http://0x7f000001:{port}/v1"), "42501"),
        ("address in parts in hexadecimal", format!("http://0x7f.0x0.0x0.0x1:{port}/v1"), "42501"),
        ("address in octal", format!("http://0177.0.0.1:{port}/v1"), "42501"),
        ("address with parts left out", format!("http://127.1:{port}/v1"), "42501"),
        ("address in percent signs", format!("http://%31%32%37.0.0.1:{port}/v1"), "42501"),
        ("address in wide digits", format!("http://\u{ff11}\u{ff12}\u{ff17}.0.0.1:{port}/v1"), "42501"),
        ("local network", "https://10.0.0.1/v1".to_owned(), "42501"),
        ("metadata of a cloud", "http://169.254.169.254/latest/meta-data/".to_owned(), "42501"),
        ("file://", "file:///etc/passwd".to_owned(), "22023"),
        ("ftp://", "ftp://allowed.example/v1".to_owned(), "22023"),
        ("unix://", "unix:///var/run/docker.sock".to_owned(), "22023"),
        ("data:", "data:application/json,{}".to_owned(), "22023"),
        ("no scheme", format!("//127.0.0.1:{port}/v1"), "22023"),
        ("no host", "https:///v1".to_owned(), "42501"),
        ("user and password", "https://user:planted@allowed.example/v1".to_owned(), "22023"),
        ("allowed host as a user", format!("https://allowed.example@127.0.0.1:{port}/v1"), "22023"),
        ("query", "https://allowed.example/v1?url=http://127.0.0.1/".to_owned(), "22023"),
        ("fragment", "https://allowed.example/v1#@127.0.0.1".to_owned(), "22023"),
        ("line break in the path", "https://allowed.example/v1\r\nHost: 127.0.0.1\r\n\r\nx".to_owned(), "22023"),
        ("line break in the host", format!("https://allowed.example\r\n@127.0.0.1:{port}/v1"), "22023"),
        ("line break in the scheme", format!("ht\ntp://127.0.0.1:{port}/v1"), "22023"),
        ("tab", "https://allowed\t.example/v1".to_owned(), "22023"),
        ("zero byte of a URL", "https://allowed.example/v1\0x".to_owned(), "22023"),
        ("empty URL", String::new(), "22023"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn no_url_leads_to_a_host_that_is_not_allowed() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("it can be asked whether somebody came");
    let port = listener.local_addr().expect("it has an address").port();
    let nobody_came = || listener.accept().is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    let manual = std::fs::read_to_string(project().join("docs/security.md")).expect("the page is there");
    let open = |hosts: &[String]| {
        let options = DatabaseOptions { allowed_hosts: hosts.to_vec(), ..DatabaseOptions::default() };
        Database::open_with(home.path().join("data"), options)
    };
    {
        let session = open(&["allowed.example".to_owned()]).await.expect("a database").session();
        for (option, sql) in URL_OPTIONS {
            assert!(manual.contains(&format!("`{option}`")), "docs/security.md does not name {option}");
            for (attack, url, expected) in urls(port) {
                let error = run(&session, &sql.replace("URL", &url)).await.expect_err(&format!("{option}: {attack}"));
                let code = sqlstate(&error);
                println!("{option:16} {attack:42} {code}");
                assert_eq!(code, expected, "{option}: {attack}: {error}");
                assert!(!error.to_string().contains("planted"), "{option}: {attack}: {error}");
                assert!(manual.contains(&format!("| {attack} |")), "docs/security.md does not name the attack {attack}");
                assert!(nobody_came(), "{option}: {attack}");
            }
        }
        run(&session, "DROP MODEL u").await.expect_err("no attack has made a model");
        run(&session, "CREATE MODEL u FROM 'openai://tiny' WITH (base_url = 'https://allowed.example/v1')").await.expect("it is allowed");
        run(&session, "DROP MODEL u").await.expect("it was made");
    }
    // A name that is allowed leads to an address that is not: it is looked up when somebody connects.
    let session = open(&[format!("http://localhost:{port}")]).await.expect("a database").session();
    let url = format!("http://localhost:{port}");
    for (option, sql) in URL_OPTIONS {
        let made = run(&session, &sql.replace("'https://allowed.example/v1', ", "").replace("URL", &url)).await;
        let asked = match made {
            Ok(()) => run(&session, "SELECT generate('u', 'p')").await,
            refused => refused,
        };
        let error = asked.expect_err(option);
        assert_eq!(sqlstate(&error), "42501", "{option}: {error}");
        assert!(nobody_came(), "{option}");
        let _ = run(&session, "DROP MODEL IF EXISTS u").await;
    }
}

struct Place {
    home: tempfile::TempDir,
    database: Database,
}

impl Place {
    /// A root, a folder beside it with the same files, links between them, and a database that serves the root alone.
    async fn new() -> Self {
        let home = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| home.path().join(name);
        for folder in ["allowed", "beside"] {
            std::fs::create_dir(path(folder)).expect("a folder");
            std::fs::write(path(folder).join("a.csv"), "a\n1\n").expect("a file");
            for format in ["jsonl", "parquet", "arrow"] {
                std::fs::write(path(folder).join(format!("a.{format}")), "{\"a\": 1}\n").expect("a file");
            }
        }
        symlink(path("beside"), path("allowed/folder")).expect("a link");
        symlink(path("beside/a.csv"), path("allowed/link.csv")).expect("a link");
        symlink(path("beside/made.csv"), path("allowed/nowhere.csv")).expect("a link");
        let options = DatabaseOptions { file_roots: Some(vec![path("allowed")]), ..DatabaseOptions::default() };
        let database = Database::open_with(path("data"), options).await.expect("a database");
        Self { home, database }
    }

    fn attacks(&self) -> Vec<(&'static str, String)> {
        let home = self.home.path().display();
        vec![
            ("absolute path outside", format!("{home}/beside/a.csv")),
            ("absolute path of the system", "/etc/passwd".to_owned()),
            ("..", format!("{home}/allowed/../beside/a.csv")),
            (".. of the working directory", "../../../../../../../../etc/passwd".to_owned()),
            ("link to a file", format!("{home}/allowed/link.csv")),
            ("link to a folder", format!("{home}/allowed/folder/a.csv")),
            ("link to what could be made", format!("{home}/allowed/nowhere.csv")),
            ("pattern through a link", format!("{home}/allowed/folder/*.csv")),
            ("pattern with ..", format!("{home}/allowed/*/../../beside/a.csv")),
            ("file://", format!("file://{home}/beside/a.csv")),
            ("file:// with %2e%2e", format!("file://{home}/allowed/%2e%2e/beside/a.csv")),
            ("file:// with a host", format!("file://elsewhere{home}/allowed/a.csv")),
            ("http://", "http://127.0.0.1:1/a.csv".to_owned()),
            ("https:// of a cloud's metadata", "https://169.254.169.254/latest/meta-data/".to_owned()),
            ("s3://", "s3://bucket/a.csv".to_owned()),
            ("zero byte", format!("{home}/allowed/a.csv\0.jsonl")),
            ("device", "/dev/zero".to_owned()),
            ("device of the process", "/dev/stdin".to_owned()),
            ("environment of the process", "/proc/self/environ".to_owned()),
            ("memory of the process", "/proc/self/mem".to_owned()),
            ("open file of the process", "/proc/self/fd/0".to_owned()),
            ("kernel's file", "/sys/kernel/version".to_owned()),
            ("data directory", format!("{home}/data/tables")),
            ("file of the data directory", format!("{home}/data/roles.json")),
            ("data directory through ..", format!("{home}/allowed/../data/privileges.json")),
            ("empty name", String::new()),
        ]
    }
}

/// Refused by the gate: not allowed, not a name of a file, not supported. What a file that was opened would lead to is none of these.
const REFUSALS: [&str; 4] = ["42501", "22023", "0A000", "58P01"];

#[tokio::test(flavor = "multi_thread")]
async fn no_path_leads_out_of_the_roots() {
    let place = Place::new().await;
    let session = place.database.session();
    run(&session, "CREATE TABLE t (a bigint)").await.expect("a table");
    let manual = std::fs::read_to_string(project().join("docs/security.md")).expect("the page is there");
    let ways = ways(&place.database);
    assert!(ways.len() >= STATEMENTS.len() + 4, "{ways:?}");
    let before = contents(&place.home.path().join("beside"));
    for (way, sql) in &ways {
        assert!(manual.contains(way.as_str()), "docs/security.md does not name {way}");
        for (attack, path) in place.attacks() {
            let error = run(&session, &sql.replace("PATH", &path)).await.expect_err(&format!("{way}: {attack}"));
            let code = sqlstate(&error);
            println!("{way:16} {attack:34} {code}");
            assert!(REFUSALS.contains(&code), "{way}: {attack}: {code} {error}");
            assert!(manual.contains(&format!("| {attack} |")), "docs/security.md does not name the attack {attack}");
            // Who may not look is not told what is there.
            if attack == "absolute path outside" {
                assert_eq!(code, "42501", "{way}");
            }
        }
    }
    assert_eq!(contents(&place.home.path().join("beside")), before, "nothing was written outside");
    // The same ways lead to what is inside.
    let inside = |name: &str| place.home.path().join("allowed").join(name).display().to_string();
    run(&session, &format!("COPY t FROM '{}'", inside("a.csv"))).await.expect("a file of the root");
    run(&session, &format!("COPY t TO '{}'", inside("out.csv"))).await.expect("a file of the root");
    run(&session, &format!("SELECT * FROM read_csv('file://{}')", inside("a.csv"))).await.expect("a file of the root");
}

fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).expect("it is readable").map(|entry| entry.expect("it is readable").path());
    let mut files: Vec<_> = entries.map(|path| (path.display().to_string(), std::fs::read(&path).expect("a file"))).collect();
    files.sort();
    files
}

/// A model's directory may have links: each file goes through the gate.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_in_a_models_directory_leads_nowhere_else() {
    let place = Place::new().await;
    let (root, beside) = (place.home.path().join("allowed/model"), place.home.path().join("beside"));
    std::fs::create_dir(&root).expect("a folder");
    let fixture = project().join("tests/fixtures/models/bert");
    for name in ["model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(fixture.join(name), root.join(name)).expect("a fixture is copied");
    }
    std::fs::copy(fixture.join("config.json"), beside.join("config.json")).expect("a fixture is copied");
    symlink(beside.join("config.json"), root.join("config.json")).expect("a link");
    let create = format!("CREATE MODEL m FROM '{}'", root.display());
    let session = place.database.session();
    let error = run(&session, &create).await.expect_err("its configuration is elsewhere");
    assert_eq!(sqlstate(&error), "42501", "{error}");
    std::fs::remove_file(root.join("config.json")).expect("it was there");
    std::fs::copy(fixture.join("config.json"), root.join("config.json")).expect("a fixture is copied");
    run(&session, &create).await.expect("all files are inside");
}

/// So may one of adapters.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_in_a_directory_of_adapters_leads_nowhere_else() {
    let place = Place::new().await;
    let (root, beside) = (place.home.path().join("allowed/adapter"), place.home.path().join("beside"));
    let session = place.database.session();
    run(&session, "CREATE MODEL policy FROM 'builtin://tinyhop'").await.expect("a base");
    let create = format!("CREATE MODEL m FROM '{}' WITH (base = 'policy')", root.display());
    for linked in ["adapter_config.json", "adapter_model.safetensors"] {
        std::fs::create_dir(&root).expect("a folder");
        for name in ["adapter_config.json", "adapter_model.safetensors"] {
            let folder = if name == linked { &beside } else { &root };
            std::fs::copy(project().join("tests/fixtures/training/lora").join(name), folder.join(name)).expect("a fixture is copied");
        }
        symlink(beside.join(linked), root.join(linked)).expect("a link");
        let error = run(&session, &create).await.expect_err("a file of it is elsewhere");
        assert_eq!(sqlstate(&error), "42501", "{linked}: {error}");
        std::fs::remove_dir_all(&root).expect("it was there");
    }
}

/// Names become folders and files of the data directory, and stay there.
#[tokio::test(flavor = "multi_thread")]
async fn no_name_leads_out_of_the_data_directory() {
    let place = Place::new().await;
    let session = place.database.session();
    run(&session, "CREATE TABLE t (a bigint)").await.expect("a table");
    let before = contents(&place.home.path().join("beside"));
    for name in ["../../../beside/x", "..", "/etc/x", "a/b", "a\\b", ".", "%2e%2e"] {
        for statement in [
            format!("CREATE TABLE \"{name}\" (a bigint)"),
            format!("CREATE SCHEMA \"{name}\""),
            format!("CREATE VIEW \"{name}\" AS SELECT 1 AS a"),
            format!("CREATE MODEL \"{name}\" FROM 'builtin://tinyhop'"),
            format!("DROP MODEL \"{name}\""),
            format!("DESCRIBE MODEL \"{name}\""),
            format!("SELECT embed('{name}', 'a')"),
            format!("ALTER TABLE t CREATE TAG \"{name}\""),
            format!("ALTER TABLE t RENAME TO \"{name}\""),
            format!("CREATE ROLE \"{name}\""),
        ] {
            // Some names are fine, in a folder of an other name; whatever becomes of them, it is inside.
            let _ = run(&session, &statement).await;
            if run(&session, "SELECT * FROM t").await.is_err() {
                run(&session, &format!("ALTER TABLE \"{name}\" RENAME TO t")).await.expect("it was renamed");
            }
            // What was made makes room for the next that is called so.
            let _ = run(&session, &format!("DROP VIEW IF EXISTS \"{name}\"")).await;
            let _ = run(&session, &format!("DROP TABLE IF EXISTS \"{name}\"")).await;
        }
    }
    assert_eq!(contents(&place.home.path().join("beside")), before, "nothing was written outside");
    let mut folders: Vec<_> =
        std::fs::read_dir(place.home.path()).expect("it is readable").map(|entry| entry.expect("it is readable").file_name()).collect();
    folders.sort();
    assert_eq!(folders, ["allowed", "beside", "data"]);
    run(&session, "SELECT * FROM t").await.expect("the table has its name");
}
