//! What the journal gives back: after kills at any moment, after damage, to other runs.

use std::fs;
use std::sync::atomic::AtomicUsize;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use futures::TryStreamExt;
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::Notify;

use super::*;
use crate::Database;
use crate::agent::testing::{FilmPolicy, MemoryCorpus, agent_with, born_question, born_questions};
use crate::agent::{Generated, Judge, Method, ProcessRewardModel, Sampling, Search, SearchOptions, SearchTree};
use crate::engine::progress::Notice;

fn key(number: u8) -> Key {
    [number; 32]
}

fn answer(number: u8) -> Vec<u8> {
    format!("\"answer {number}\"").repeat(usize::from(number) + 1).into_bytes()
}

/// The file of a tree that has had three answers.
fn three_answers(folder: &Path) -> Vec<u8> {
    let path = folder.join("whole");
    let tree = TreeJournal::new(path.clone());
    for number in 0..3 {
        assert!(tree.put(&key(number), &answer(number)).expect("it is written") > 32);
    }
    assert_eq!(tree.get(&key(0)), None, "a search asks once");
    fs::read(path).expect("it is there")
}

#[test]
fn a_torn_end_costs_the_torn_answer_alone() -> IoResult<()> {
    let home = tempfile::tempdir()?;
    let whole = three_answers(home.path());
    let last = whole.len() as u64 - TreeJournal::new(home.path().join("last")).put(&key(2), &answer(2))?;
    for end in last..whole.len() as u64 {
        let path = home.path().join("torn");
        fs::write(&path, &whole[..end as usize])?;
        let tree = TreeJournal::open(path.clone())?;
        assert_eq!((tree.num_known(), tree.bytes(), tree.damaged_bytes()), (2, last, end - last));
        assert_eq!((tree.get(&key(0)), tree.get(&key(1)), tree.get(&key(2))), (Some(answer(0)), Some(answer(1)), None));
        tree.put(&key(2), &answer(2))?;
        let again = TreeJournal::open(path)?;
        assert_eq!((again.get(&key(1)), again.get(&key(2)), again.damaged_bytes()), (Some(answer(1)), Some(answer(2)), 0));
    }
    Ok(())
}

#[test]
fn a_changed_byte_is_never_an_answer() -> IoResult<()> {
    let home = tempfile::tempdir()?;
    let whole = three_answers(home.path());
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 0x40;
        let path = home.path().join("changed");
        fs::write(&path, &changed)?;
        let tree = TreeJournal::open(path)?;
        let found = (0..3).filter(|number| tree.get(&key(*number)).is_some_and(|found| found == answer(*number))).count();
        assert_eq!(found, 2, "byte {at}: one answer is lost, and none is another");
    }
    Ok(())
}

#[test]
fn nothing_is_written_for_a_tree_that_is_committed_or_refused() -> IoResult<()> {
    let home = tempfile::tempdir()?;
    let tree = TreeJournal::new(home.path().join("tree"));
    let written = tree.put(&key(1), &answer(1))?;
    assert_eq!((tree.remove(), tree.put(&key(2), &answer(2))?, fs::read_dir(home.path())?.count()), (written, 0, 0));
    let nowhere = TreeJournal::new(home.path().join("no folder/tree"));
    assert!(nowhere.put(&key(1), &answer(1)).is_err());
    assert_eq!((nowhere.put(&key(1), &answer(1))?, nowhere.bytes()), (0, 0));
    Ok(())
}

/// A table whose rollouts are searched, and what its client is told.
struct World {
    _directory: TempDir,
    _database: Database,
    table: Arc<Table>,
    notices: Notices,
    told: Arc<Mutex<Vec<String>>>,
}

impl World {
    async fn new() -> Result<Self> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let database = Database::open(directory.path()).await?;
        database.session().sql("CREATE TABLE run (id bigint)").await?.try_collect::<Vec<_>>().await?;
        let (notices, told) = (Notices::default(), Arc::<Mutex<Vec<String>>>::default());
        let kept = Arc::clone(&told);
        notices.set_sink(Arc::new(move |notice: Notice| kept.lock().expect("no panic").push(notice.message)));
        Ok(Self { table: database.table("run").await?, _directory: directory, _database: database, notices, told })
    }

    /// As the statement opens it; only one at a time is open.
    async fn open(&self, options: &Json) -> RunJournal {
        RunJournal::open(&self.table, options, &born_questions(), &self.notices).await.expect("the disk takes it")
    }

    fn told(&self) -> Vec<String> {
        std::mem::take(&mut self.told.lock().expect("no panic"))
    }
}

/// Files of trees in a journal's folder.
fn num_files(journal: &RunJournal) -> usize {
    fs::read_dir(journal.0.work.folder()).map_or(0, Iterator::count)
}

fn options(simulations: usize) -> SearchOptions {
    SearchOptions { simulations, rollouts_per_node: 2, temperature: 1.0, seed: 7, ..SearchOptions::default() }
}

fn search(policy: &Arc<impl PolicyClient + 'static>, options: &SearchOptions, valuer: Valuer, journal: Option<&RunJournal>) -> Search {
    let policy: Arc<dyn PolicyClient> = policy.clone();
    let journal = journal.map(|journal| Arc::new(journal.clone()) as Arc<dyn Journal>);
    Search::new(agent_with(policy, MemoryCorpus::films()), options.clone(), valuer).journaled(journal)
}

async fn jaws(search: &Search) -> Result<RecordBatch> {
    search.tree(&born_question("Jaws", "1946")).await.map(|tree| rows(&tree))
}

/// All columns but the only one that a clock decides.
fn rows(tree: &SearchTree) -> RecordBatch {
    let batch = tree.to_record_batch("run").expect("a tree is rows");
    let latency = batch.schema().index_of("latency_ms").expect("the last column");
    batch.project(&(0..latency).collect::<Vec<_>>()).expect("columns of the batch")
}

fn num_calls(policy: &FilmPolicy) -> usize {
    policy.calls.load(Ordering::Relaxed)
}

/// Gives so many answers, and is then asked in vain.
struct Interrupted {
    policy: FilmPolicy,
    answers_max: usize,
    is_spent: Notify,
}

#[async_trait]
impl PolicyClient for Interrupted {
    async fn generate(&self, prompt: &str, sampling: &Sampling) -> Result<Generated> {
        if num_calls(&self.policy) >= self.answers_max {
            // Those that were asked before have come back then.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            self.is_spent.notify_one();
            return std::future::pending().await;
        }
        self.policy.generate(prompt, sampling).await
    }

    fn reference(&self) -> (String, u32) {
        self.policy.reference()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_tree_goes_on_at_its_nodes() -> Result<()> {
    let world = World::new().await?;
    for (method, parallel) in [(Method::Mcts, 1), (Method::Mcts, 4), (Method::Sample, 1)] {
        let options = SearchOptions { method, parallel, ..options(24) };
        let undisturbed = Arc::new(FilmPolicy::default());
        let whole = jaws(&search(&undisturbed, &options, Valuer::Policy, None)).await?;
        let calls = num_calls(&undisturbed);
        for answers_max in [1, calls / 3, calls - 1] {
            let run = json!([format!("{method:?}"), parallel, answers_max]);
            {
                let journal = world.open(&run).await;
                let policy = Arc::new(Interrupted { policy: FilmPolicy::default(), answers_max, is_spent: Notify::new() });
                let search = search(&policy, &options, Valuer::Policy, Some(&journal));
                tokio::select! {
                    tree = jaws(&search) => panic!("it was not interrupted: {tree:?}"),
                    () = policy.is_spent.notified() => {}
                }
            }
            world.told();
            let journal = world.open(&run).await;
            assert_eq!(world.told(), [format!("trees that go on where they were: 1, with {answers_max} answers of models that are kept")]);
            let policy = Arc::new(FilmPolicy::default());
            assert_eq!(jaws(&search(&policy, &options, Valuer::Policy, Some(&journal))).await?, whole, "{run}");
            assert_eq!(num_calls(&policy), calls - answers_max, "{run}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_answered_with_other_options_is_not_found_and_goes() -> Result<()> {
    let world = World::new().await?;
    let policy = Arc::new(FilmPolicy::default());
    let ask = async |run: &Json, question: &Question| -> Result<(usize, usize)> {
        let before = num_calls(&policy);
        let journal = world.open(run).await;
        search(&policy, &options(8), Valuer::Policy, Some(&journal)).tree(question).await?;
        Ok((num_calls(&policy) - before, num_files(&journal)))
    };
    let (run, jaws, alien) = (json!({ "seed": 1 }), born_question("Jaws", "1946"), born_question("Alien", "1937"));
    let (calls, files) = ask(&run, &jaws).await?;
    assert!(calls > 8 && files == 1);
    assert_eq!(ask(&run, &jaws).await?, (0, 1));
    assert_eq!(ask(&run, &alien).await?.1, 2, "each question has a file");
    assert_eq!(ask(&json!({ "seed": 2 }), &jaws).await?, (calls, 1));
    assert_eq!(ask(&run, &jaws).await?, (calls, 1), "it went when other options came");

    // A question that is committed loses its file, and one that is done when the run is opened too.
    ask(&run, &alien).await?;
    let journal = world.open(&run).await;
    journal.forget(&[jaws.id.clone(), "never begun".to_owned()]);
    assert_eq!(num_files(&journal), 1);
    drop(journal);
    drop(RunJournal::open(&world.table, &run, &[jaws], &world.notices).await);
    let journal = world.open(&run).await;
    assert_eq!((num_files(&journal), journal.0.bytes.load(Ordering::Relaxed)), (0, 0));
    journal.finish();
    assert!(!journal.0.work.folder().exists());
    Ok(())
}

/// Likes every step but those about the weather, which it cannot read.
#[derive(Default)]
struct Valuing(AtomicUsize);

#[async_trait]
impl PolicyClient for Valuing {
    async fn generate(&self, prompt: &str, _: &Sampling) -> Result<Generated> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let text = if prompt.contains("weather") { "It rains." } else { "Score: 80" };
        Ok(Generated { text: text.to_owned(), ..Generated::default() })
    }

    fn reference(&self) -> (String, u32) {
        ("critic".to_owned(), 1)
    }
}

#[async_trait]
impl ProcessRewardModel for Valuing {
    async fn value(&self, _: &str, step: &str) -> Result<Option<f64>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok((!step.contains("weather")).then(|| step.len() as f64 / 1001.0))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn judges_and_reward_models_are_not_asked_again() -> Result<()> {
    let world = World::new().await?;
    let options = SearchOptions { children: 6, ..options(20) };
    for is_judge in [true, false] {
        let (policy, model) = (Arc::new(FilmPolicy::default()), Arc::new(Valuing::default()));
        let mut trees = Vec::new();
        for calls in ["new", "known"] {
            let valuer = match is_judge {
                true => Valuer::Judge(Judge::new(model.clone(), None)),
                false => Valuer::Prm(model.clone()),
            };
            let before = (num_calls(&policy), model.0.load(Ordering::Relaxed));
            let journal = world.open(&json!(is_judge)).await;
            trees.push(jaws(&search(&policy, &options, valuer, Some(&journal))).await?);
            let after = (num_calls(&policy), model.0.load(Ordering::Relaxed));
            assert_eq!(after != before, calls == "new", "{before:?} {after:?}");
        }
        assert_eq!(trees[0], trees[1]);
    }
    Ok(())
}

/// Draws samples together, some of whose probabilities are no numbers.
#[derive(Default)]
struct Odd {
    calls: AtomicUsize,
    keeps_answers: bool,
}

#[async_trait]
impl PolicyClient for Odd {
    async fn generate(&self, _: &str, sampling: &Sampling) -> Result<Generated> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let token_logprobs = vec![f32::NAN, f32::NEG_INFINITY, -0.1, sampling.seed as f32 / 7.0];
        Ok(Generated {
            text: "\"<a>\n\u{1}".to_owned(),
            stopped: true,
            token_ids: vec![0, u32::MAX],
            token_logprobs,
            cost: crate::price::Price::Known(0.1 + 0.2),
            ..Generated::default()
        })
    }

    fn keeps_answers(&self) -> bool {
        self.keeps_answers
    }

    fn reference(&self) -> (String, u32) {
        ("odd".to_owned(), 1)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn samples_come_back_bit_by_bit_and_each_call_is_known_by_all_that_decides_it() -> Result<()> {
    let world = World::new().await?;
    let odd = Arc::new(Odd::default());
    let policy: Arc<dyn PolicyClient> = odd.clone();
    let sampling = Sampling { seed: 3, ..Sampling::default() };
    let ask = async |prompt: &str, sampling: &Sampling, seeds: &[u64]| -> Result<(String, usize)> {
        let before = odd.calls.load(Ordering::Relaxed);
        let journal = world.open(&Json::Null).await;
        let (policy, _) = journal.models("jaws", &policy, &Valuer::Policy);
        let generated = match seeds {
            [] => vec![policy.generate(prompt, sampling).await?],
            _ => policy.generate_together(prompt, sampling, seeds).await?,
        };
        let bits: Vec<Vec<u32>> =
            generated.iter().map(|one| one.token_logprobs.iter().map(|logprob| logprob.to_bits()).collect()).collect();
        Ok((format!("{generated:?} {bits:?}"), odd.calls.load(Ordering::Relaxed) - before))
    };
    let calls: [&[u64]; 3] = [&[], &[1, 2, 3], &[1, 2]];
    for seeds in calls {
        let (new, calls) = ask("p", &sampling, seeds).await?;
        assert_eq!(calls, seeds.len().max(1));
        assert_eq!(ask("p", &sampling, seeds).await?, (new, 0));
    }
    assert_eq!(ask("q", &sampling, &[]).await?.1, 1);
    for other in [
        Sampling { seed: 4, ..sampling.clone() },
        Sampling { temperature: 0.5, ..sampling.clone() },
        Sampling { stop: vec!["a".to_owned()], ..sampling.clone() },
    ] {
        assert_eq!(ask("p", &other, &[]).await?.1, 1, "{other:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_keeps_its_answers_is_left_alone() -> Result<()> {
    let world = World::new().await?;
    let journal = world.open(&Json::Null).await;
    let policy: Arc<dyn PolicyClient> = Arc::new(Odd { keeps_answers: true, ..Odd::default() });
    let judge = Valuer::Judge(Judge::new(Arc::clone(&policy), None));
    let (asked, _) = journal.models("jaws", &policy, &judge);
    assert!(Arc::ptr_eq(&asked, &policy));
    asked.generate("p", &Sampling::default()).await?;
    assert_eq!(num_files(&journal), 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_goes_on_without_a_journal_that_is_full_or_gone() -> Result<()> {
    let world = World::new().await?;
    let policy = Arc::new(FilmPolicy::default());
    let whole = jaws(&search(&policy, &options(8), Valuer::Policy, None)).await?;
    let full = RunJournal::open_with(&world.table, &Json::Null, &born_questions(), &world.notices, 3_000).await?;
    assert_eq!(jaws(&search(&policy, &options(8), Valuer::Policy, Some(&full))).await?, whole);
    let bytes = full.0.bytes.load(Ordering::Relaxed);
    assert!((3_000..6_000).contains(&bytes), "{bytes}");
    let told = world.told();
    assert!(told.len() == 1 && told[0].starts_with("answers of models are not kept: no more than 3.0 kB of them"), "{told:?}");
    drop(full);

    let journal = world.open(&json!("another run")).await;
    fs::remove_dir(journal.0.work.folder()).expect("it is empty");
    assert_eq!(jaws(&search(&policy, &options(8), Valuer::Policy, Some(&journal))).await?, whole);
    let told = world.told();
    assert!(told.len() == 1 && told[0].starts_with("answers of models are not kept: No such file"), "{told:?}");
    journal.finish();
    drop(journal);

    // A folder that cannot be read, and a table that is gone.
    let work = world.table.unfinished_work().await?;
    fs::create_dir(work.folder().join("a folder")).expect("it is made");
    drop(work);
    assert!(RunJournal::open(&world.table, &Json::Null, &[], &world.notices).await.is_none());
    assert_eq!(world.told().len(), 1);
    Ok(())
}
