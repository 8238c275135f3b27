//! What the queries of agents found, kept: a version of a corpus never changes, so that the same search of it finds the same passages.
//!
//! Trajectories ask the same again and again: those of one tree, whose steps differ in what follows a query, and those of one benchmark under several
//! policies. Equal searches at the same time are one (`src/flights.rs`), and fail as one; later ones read what was found, in other batches, statements
//! and sessions.
//! Rights play no part here: whoever searches was let in when the agent was bound to its corpus.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::error::DataFusionError;
use rolloutdb_catalogs::TableIdentity;

use super::system::count;
use crate::agent::Passage;
use crate::error::{Error, Result};
use crate::flights::{Flights, Joined};
use crate::models::counted_here;

/// The SQLSTATE of a search that was cancelled.
const CANCELLED: &str = "57014";

/// What a search found, best first.
pub type Passages = Arc<[Passage]>;

/// What all who wait for a search get.
type Outcome = std::result::Result<Passages, Arc<Error>>;

/// What is searched and how: all that decides, beside a query and k, what a search finds.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct SearchedCorpus {
    pub table: TableIdentity,
    pub version: u64,
    /// The retriever with its options and the versions of its models.
    pub retriever: String,
}

/// Where the passages of a query came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    Searched,
    /// From an equal search, in flight or before.
    Known,
}

/// The cache of a database.
pub struct RetrievalCache {
    kept: Mutex<Kept>,
    flights: Flights<Key, Outcome>,
    bytes_max: usize,
    searches: AtomicU64,
    hits: AtomicU64,
    shared: AtomicU64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    corpus: Arc<SearchedCorpus>,
    k: usize,
    /// As it was asked, to the letter.
    query: Arc<str>,
}

/// What the last searches found, by two generations: a full new one becomes the old one, which is forgotten, and what is asked for again moves to the
/// new one.
#[derive(Default)]
struct Kept {
    new: HashMap<Key, Passages>,
    old: HashMap<Key, Passages>,
    new_bytes: usize,
    old_bytes: usize,
    /// The newest version of each corpus that was opened.
    newest: HashMap<TableIdentity, u64>,
}

impl fmt::Debug for RetrievalCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetrievalCache").field("bytes_max", &self.bytes_max).finish_non_exhaustive()
    }
}

impl RetrievalCache {
    /// `bytes_max`: of queries and passages.
    pub fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            kept: Mutex::default(),
            flights: Flights::default(),
            bytes_max,
            searches: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            shared: AtomicU64::new(0),
        })
    }

    /// Notes a corpus that is opened. The first time that a version is the newest, what older ones of the table gave is let go; an agent that is held to
    /// an older one finds it anew.
    pub fn open(&self, corpus: &SearchedCorpus) {
        let mut kept = self.lock();
        kept.forget_dropped();
        let newest = kept.newest.entry(corpus.table.clone()).or_insert(corpus.version);
        if *newest < corpus.version {
            *newest = corpus.version;
            kept.retain(|key| key.corpus.table != corpus.table || key.corpus.version >= corpus.version);
        }
    }

    /// Lets go of what tables gave that are dropped.
    pub fn forget_dropped(&self) {
        self.lock().forget_dropped();
    }

    /// The passages of a query: those that are kept, those of an equal search in flight, or what `search` finds. Dropping the future gives the search
    /// up, unless others wait for it.
    ///
    /// # Errors
    /// Those of `search`, which all who wait for it get. But one that was cancelled says nothing to the others: one of them searches again.
    pub async fn passages<F>(
        self: &Arc<Self>,
        corpus: &Arc<SearchedCorpus>,
        query: &str,
        k: usize,
        search: impl Fn() -> F,
    ) -> Result<(Passages, Origin)>
    where
        F: Future<Output = Result<Passages>> + Send + 'static,
    {
        let key = Key { corpus: Arc::clone(corpus), k, query: query.into() };
        loop {
            if let Some(passages) = self.get(&key) {
                self.hits.fetch_add(1, Ordering::Relaxed);
                return Ok((passages, Origin::Known));
            }
            let ask = counted_here(Arc::clone(self).search(key.clone(), search()));
            let (flight, origin) = match self.flights.join(key.clone(), || self.contains(&key), ask) {
                Joined::New(flight) => (flight, Origin::Searched),
                Joined::Shared(flight) => (flight, Origin::Known),
                // Kept since it was looked for; it may be gone again.
                Joined::Known => continue,
            };
            let outcome = flight.outcome().await.ok_or_else(|| Error::Internal("a search of a corpus panicked".to_owned()))?;
            match outcome {
                Ok(passages) => {
                    self.shared.fetch_add(u64::from(origin == Origin::Known), Ordering::Relaxed);
                    return Ok((passages, origin));
                }
                Err(error) if origin == Origin::Known && error.sqlstate() == CANCELLED => {}
                Err(error) => return Err(Error::Shared(error)),
            }
        }
    }

    /// A search that others may wait for; what it finds is kept.
    async fn search(self: Arc<Self>, key: Key, search: impl Future<Output = Result<Passages>>) -> Outcome {
        self.searches.fetch_add(1, Ordering::Relaxed);
        let passages = search.await.map_err(Arc::new)?;
        self.lock().insert(key, Arc::clone(&passages), self.bytes_max);
        Ok(passages)
    }

    fn get(&self, key: &Key) -> Option<Passages> {
        self.lock().get(key, self.bytes_max)
    }

    fn contains(&self, key: &Key) -> bool {
        let kept = self.lock();
        kept.new.contains_key(key) || kept.old.contains_key(key)
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of `rollout.retrieval_cache`.
    pub fn schema() -> SchemaRef {
        Arc::new(Schema::new(["searches", "hits", "shared", "queries", "bytes", "bytes_max"].map(count).to_vec()))
    }

    /// Its one row: what was asked since the database was opened, and what is kept.
    ///
    /// # Errors
    /// None that a caller could cause.
    pub fn rows(&self) -> Result<RecordBatch> {
        let (queries, bytes) = {
            let kept = self.lock();
            (kept.new.len() + kept.old.len(), kept.new_bytes + kept.old_bytes)
        };
        let tally = |tally: &AtomicU64| tally.load(Ordering::Relaxed) as i64;
        let numbers = [tally(&self.searches), tally(&self.hits), tally(&self.shared), queries as i64, bytes as i64, self.bytes_max as i64];
        let columns = numbers.map(|number| Arc::new(Int64Array::from(vec![number])) as ArrayRef).to_vec();
        Ok(RecordBatch::try_new(Self::schema(), columns).map_err(DataFusionError::from)?)
    }
}

impl Kept {
    fn get(&mut self, key: &Key, bytes_max: usize) -> Option<Passages> {
        if let Some(passages) = self.new.get(key) {
            return Some(Arc::clone(passages));
        }
        let (key, passages) = self.old.remove_entry(key)?;
        self.old_bytes -= bytes(&key, &passages);
        self.insert(key, Arc::clone(&passages), bytes_max);
        Some(passages)
    }

    fn insert(&mut self, key: Key, passages: Passages, bytes_max: usize) {
        let added = bytes(&key, &passages);
        // A generation has half of the room. A table that was dropped while it was searched has been forgotten, and nobody would do so again.
        if added > bytes_max / 2 || key.corpus.table.is_dropped() {
            return;
        }
        if self.new_bytes + added > bytes_max / 2 {
            self.old = std::mem::take(&mut self.new);
            self.old_bytes = std::mem::take(&mut self.new_bytes);
        }
        self.new_bytes += added;
        if let Some(replaced) = self.new.insert(key.clone(), passages) {
            self.new_bytes -= bytes(&key, &replaced);
        }
    }

    fn forget_dropped(&mut self) {
        let num_known = self.newest.len();
        self.newest.retain(|table, _| !table.is_dropped());
        if self.newest.len() < num_known {
            self.retain(|key| !key.corpus.table.is_dropped());
        }
    }

    fn retain(&mut self, is_kept: impl Fn(&Key) -> bool) {
        for (generation, generation_bytes) in [(&mut self.new, &mut self.new_bytes), (&mut self.old, &mut self.old_bytes)] {
            generation.retain(|key, _| is_kept(key));
            *generation_bytes = generation.iter().map(|(key, passages)| bytes(key, passages)).sum();
        }
    }
}

/// What an entry takes, give or take the table that holds it.
fn bytes(key: &Key, passages: &[Passage]) -> usize {
    let text = |passage: &Passage| passage.id.len() + passage.title.as_ref().map_or(0, String::len) + passage.contents.len();
    let texts: usize = passages.iter().map(|passage| size_of::<Passage>() + text(passage)).sum();
    size_of::<(Key, Passages)>() + key.query.len() + texts
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::future::join_all;
    use rolloutdb_catalogs::{Catalog, TableDefinition};

    use super::*;

    struct World {
        _directory: tempfile::TempDir,
        catalog: Arc<Catalog>,
        cache: Arc<RetrievalCache>,
    }

    async fn world(bytes_max: usize) -> World {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let catalog = Catalog::open(directory.path()).await.expect("an empty folder");
        World { _directory: directory, catalog, cache: RetrievalCache::new(bytes_max) }
    }

    impl World {
        async fn corpus(&self, table: &str, version: u64) -> Arc<SearchedCorpus> {
            let schema = Schema::new(vec![count("id")]);
            let table = self.catalog.create_table("public", table, TableDefinition::new(&schema).expect("a column"), true);
            let table = table.await.expect("a table");
            let corpus = Arc::new(SearchedCorpus { table: table.identity(), version, retriever: "text".to_owned() });
            self.cache.open(&corpus);
            corpus
        }

        async fn ask(&self, corpus: &Arc<SearchedCorpus>, query: &str) -> Origin {
            self.ask_for(corpus, query, Duration::from_millis(1)).await
        }

        /// With a search that takes so long.
        async fn ask_for(&self, corpus: &Arc<SearchedCorpus>, query: &str, duration: Duration) -> Origin {
            let search = || {
                let text = query.to_owned();
                async move {
                    tokio::time::sleep(duration).await;
                    Ok(passages(&text))
                }
            };
            let (found, origin) = self.cache.passages(corpus, query, 3, search).await.expect("it finds");
            assert_eq!(found, passages(query));
            origin
        }

        fn counts(&self) -> Vec<i64> {
            let rows = self.cache.rows().expect("a row");
            let number = |column: &ArrayRef| column.as_any().downcast_ref::<Int64Array>().expect("a number").value(0);
            rows.columns().iter().map(number).collect()
        }
    }

    fn passages(text: &str) -> Passages {
        Arc::new([Passage { id: "1".to_owned(), title: None, contents: text.to_owned() }])
    }

    #[tokio::test]
    async fn a_query_is_searched_once_at_the_same_time_and_later() {
        let world = world(1 << 20).await;
        let corpus = world.corpus("wiki", 1).await;
        let origins = join_all((0..10).map(|number| world.ask(&corpus, if number < 9 { "jaws" } else { "Jaws" }))).await;
        assert_eq!(origins.iter().filter(|origin| **origin == Origin::Searched).count(), 2);
        assert_eq!(world.ask(&corpus, "jaws").await, Origin::Known);
        assert_eq!(world.counts()[..4], [2, 1, 8, 2]);
        // Another version, k or retriever is another search.
        let later = world.corpus("wiki", 2).await;
        assert_eq!(world.ask(&later, "jaws").await, Origin::Searched);
        let vectors = SearchedCorpus { table: later.table.clone(), version: 2, retriever: "vector".to_owned() };
        assert_eq!(world.ask(&Arc::new(vectors), "jaws").await, Origin::Searched);
        let more = world.cache.passages(&later, "jaws", 4, || async { Ok(passages("jaws")) }).await.expect("it finds");
        assert_eq!(more.1, Origin::Searched);
    }

    #[tokio::test]
    async fn a_search_that_one_gave_up_goes_on_for_the_others() {
        let world = world(1 << 20).await;
        let corpus = world.corpus("wiki", 1).await;
        let ask = || world.ask_for(&corpus, "jaws", Duration::from_millis(200));
        let (first, second) = tokio::join!(tokio::time::timeout(Duration::from_millis(1), ask()), ask());
        assert!(first.is_err());
        assert_eq!(second, Origin::Known);
        assert_eq!(world.ask(&corpus, "jaws").await, Origin::Known);
        assert_eq!(world.counts()[0], 1);
    }

    #[tokio::test]
    async fn a_search_fails_once_for_all_who_wait_and_the_error_is_not_kept() {
        let world = world(1 << 20).await;
        let corpus = world.corpus("wiki", 1).await;
        let fail = || async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            Err::<Passages, _>(Error::NotReady("no index".to_owned()))
        };
        for found in join_all((0..3).map(|_| world.cache.passages(&corpus, "jaws", 3, fail))).await {
            let error = found.expect_err("it fails");
            assert_eq!(
                (error.sqlstate(), error.client_message(), error.to_string()),
                ("55000", "no index".to_owned(), "no index".to_owned())
            );
        }
        assert_eq!(world.counts()[..3], [1, 0, 0]);
        assert_eq!(world.ask(&corpus, "jaws").await, Origin::Searched);
    }

    #[tokio::test]
    async fn who_is_cancelled_fails_alone() {
        let world = world(1 << 20).await;
        let corpus = world.corpus("wiki", 1).await;
        let num_asked = AtomicU64::new(0);
        let search = || {
            let is_first = num_asked.fetch_add(1, Ordering::Relaxed) == 0;
            async move {
                tokio::time::sleep(Duration::from_millis(1)).await;
                if is_first { Err(Error::Cancelled("statement")) } else { Ok(passages("jaws")) }
            }
        };
        let mut found = join_all((0..4).map(|_| world.cache.passages(&corpus, "jaws", 3, search))).await.into_iter();
        assert_eq!(found.next().and_then(Result::err).map(|error| error.sqlstate()), Some(CANCELLED));
        let origins: Vec<Origin> = found.map(|found| found.expect("it was not cancelled").1).collect();
        assert_eq!(origins.iter().filter(|origin| **origin == Origin::Searched).count(), 1);
        assert_eq!(world.counts()[..3], [2, 0, 2]);
    }

    #[tokio::test]
    async fn a_search_of_a_table_that_is_dropped_meanwhile_is_not_kept() {
        let world = world(1 << 20).await;
        let corpus = world.corpus("wiki", 1).await;
        let drop = async {
            world.catalog.drop_table("public", "wiki").await.expect("it is there");
            world.cache.forget_dropped();
        };
        let (origin, ()) = tokio::join!(world.ask_for(&corpus, "jaws", Duration::from_millis(500)), drop);
        assert_eq!((origin, world.counts()[3]), (Origin::Searched, 0));
    }

    #[tokio::test]
    async fn what_a_table_gave_goes_with_its_versions_and_with_itself() {
        let world = world(1 << 20).await;
        let (wiki, other) = (world.corpus("wiki", 1).await, world.corpus("other", 1).await);
        for corpus in [&wiki, &other] {
            world.ask(corpus, "jaws").await;
        }
        world.corpus("wiki", 2).await;
        assert_eq!(world.counts()[3], 1);
        // One that is held to an older version finds anew, and keeps it while no newer one comes.
        world.corpus("wiki", 1).await;
        assert_eq!((world.ask(&wiki, "jaws").await, world.ask(&wiki, "jaws").await), (Origin::Searched, Origin::Known));
        world.corpus("wiki", 2).await;
        assert_eq!(world.ask(&wiki, "jaws").await, Origin::Known);
        world.catalog.drop_table("public", "wiki").await.expect("it is there");
        world.cache.forget_dropped();
        assert_eq!(world.counts()[3], 1);
        let again = world.corpus("wiki", 1).await;
        assert_eq!((world.ask(&again, "jaws").await, world.ask(&other, "jaws").await), (Origin::Searched, Origin::Known));
    }

    #[tokio::test]
    async fn it_holds_no_more_than_its_bytes_and_what_is_asked_again_stays() {
        let world = world(4_000).await;
        let corpus = world.corpus("wiki", 1).await;
        world.ask(&corpus, "kept").await;
        for number in 0..100 {
            world.ask(&corpus, &format!("{number}")).await;
            assert_eq!(world.ask(&corpus, "kept").await, Origin::Known, "{number}");
            assert!(world.counts()[4] <= 4_000);
        }
        assert_eq!((world.ask(&corpus, "99").await, world.ask(&corpus, "0").await), (Origin::Known, Origin::Searched));
        let long = "x".repeat(5_000);
        assert_eq!((world.ask(&corpus, &long).await, world.ask(&corpus, &long).await), (Origin::Searched, Origin::Searched));
    }
}
