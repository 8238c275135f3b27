//! The words of a text column, split as its index splits them.

use std::sync::{Mutex, PoisonError};

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use lance_index::scalar::inverted::InvertedIndexParams;
use lance_index::scalar::inverted::tokenizer::document_tokenizer::LanceTokenizer;
use lance_tokenizer::TokenStream;

use super::Bits;
use super::misspelling::misspellings;
use super::postings::{Postings, PostingsBuilder, Term};
use crate::index::TextIndex;
use crate::search::{Operator, TextQuery};
use crate::{Error, Result};

/// Texts and queries are split by a thread each once there are so many.
const TEXTS_PER_THREAD: usize = 2_048;
const QUERIES_PER_THREAD: usize = 16;

/// Postings of one column and the analyzer of its index.
#[derive(Debug)]
pub(crate) struct Words {
    /// The number of the column.
    field: i32,
    params: InvertedIndexParams,
    analyzers: Analyzers,
    postings: Postings,
    /// The rows that the statistics count.
    live: Option<Bits>,
}

impl Words {
    /// # Errors
    /// [`Error::Storage`] when the index has no analyzer here.
    pub(crate) fn new(table: &str, index: &TextIndex) -> Result<Self> {
        let analyzer = index.params.build().map_err(|source| Error::storage(table, source))?;
        let params = index.params.clone();
        Ok(Self { field: index.field, params, analyzers: Analyzers::new(analyzer), postings: PostingsBuilder::new().finish(), live: None })
    }

    /// Whether the index is over these texts, and splits them as these were split.
    pub(crate) fn is_of(&self, index: &TextIndex) -> bool {
        self.field == index.field && self.params == index.params
    }

    /// Rows whose words are here.
    pub(crate) fn num_rows(&self) -> usize {
        self.postings.num_documents()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.postings.memory_bytes()
    }

    /// Appends the texts of a segment; a NULL is a document without words.
    pub(crate) fn push_segment(&mut self, texts: &ArrayRef) {
        let texts = texts.as_string::<i32>();
        for builder in by_threads(texts.len(), TEXTS_PER_THREAD, |rows| self.split(&texts.slice(rows.start, rows.len()))) {
            self.postings.append(builder);
        }
        self.live = None;
    }

    fn split(&self, texts: &StringArray) -> PostingsBuilder {
        let mut builder = PostingsBuilder::new();
        self.analyzers.with(|analyzer| {
            for text in texts {
                if let Some(text) = text {
                    let mut stream = analyzer.token_stream_for_doc(text);
                    while stream.advance() {
                        builder.push_token(&stream.token().text);
                    }
                }
                builder.end_document();
            }
        });
        builder
    }

    /// Says which rows there are.
    pub(crate) fn set_live(&mut self, live: &Bits) {
        if self.live.as_ref() != Some(live) {
            self.postings.set_live(live.words());
            self.live = Some(live.clone());
        }
    }

    /// The best rows of each query as score and row, and all that tie with the k-th. Phrases and boolean queries find nothing here.
    pub(crate) fn search_all(&self, queries: &[TextQuery], k: usize, accepted: Option<&Bits>) -> Vec<Vec<(f32, u32)>> {
        let search = |query: &TextQuery| self.search(query, k, accepted);
        let of_part = by_threads(queries.len(), QUERIES_PER_THREAD, |part| queries[part].iter().map(search).collect::<Vec<_>>());
        of_part.into_iter().flatten().collect()
    }

    fn search(&self, query: &TextQuery, k: usize, accepted: Option<&Bits>) -> Vec<(f32, u32)> {
        let (words, operator) = match query {
            TextQuery::Words { words, operator } | TextQuery::Fuzzy { words, operator, .. } => (words, *operator),
            TextQuery::Phrase { .. } | TextQuery::Boolean(_) => return Vec::new(),
        };
        let words = self.split_query(words);
        let misspelt: Vec<Vec<(&str, f32)>> = match query {
            TextQuery::Fuzzy { edits, .. } => words.iter().map(|word| misspellings(word, self.postings.terms(), *edits)).collect(),
            _ => Vec::new(),
        };
        // What stands for each word of the query.
        let of_words: Vec<Vec<Term<'_>>> = match misspelt.as_slice() {
            [] => words.iter().map(|word| vec![Term::from(word.as_str())]).collect(),
            misspelt => misspelt.iter().enumerate().map(|(group, words)| words.iter().map(|word| term(*word, group)).collect()).collect(),
        };
        let accepted = match operator {
            Operator::And if of_words.len() > 1 => Some(self.holders_of_all(&of_words, accepted)),
            _ => accepted.cloned(),
        };
        self.postings.search(&of_words.concat(), k, accepted.as_ref().map(Bits::words))
    }

    fn split_query(&self, query: &str) -> Vec<String> {
        let mut words = Vec::new();
        self.analyzers.with(|analyzer| {
            let mut stream = analyzer.token_stream_for_search(query);
            while stream.advance() {
                words.push(stream.token().text.clone());
            }
        });
        words
    }

    /// Of the accepted rows those that hold at least one term of each word.
    fn holders_of_all(&self, of_words: &[Vec<Term<'_>>], accepted: Option<&Bits>) -> Bits {
        let mut holders = accepted.cloned().unwrap_or_else(|| Bits::all(self.num_rows()));
        for terms in of_words {
            let mut of_word = Bits::none(self.num_rows());
            self.postings.for_each_holder(terms, |row| of_word.insert(row));
            holders.intersect(&of_word);
        }
        holders
    }
}

fn term((text, boost): (&str, f32), group: usize) -> Term<'_> {
    Term { text, boost, group: Some(group) }
}

/// Calls `work` with `0..count` in parts of at least `least`, each in a thread of its own, and gives the results in order.
fn by_threads<T: Send>(count: usize, least: usize, work: impl Fn(std::ops::Range<usize>) -> T + Sync) -> Vec<T> {
    let threads = super::threads().min(count / least).max(1);
    let share = count.div_ceil(threads);
    let part = |number: usize| (number * share).min(count)..((number + 1) * share).min(count);
    std::thread::scope(|scope| {
        let work = &work;
        let others: Vec<_> = (1..threads).map(|number| scope.spawn(move || work(part(number)))).collect();
        let mut results = vec![work(part(0))];
        results.extend(others.into_iter().map(|other| other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))));
        results
    })
}

/// Analyzers in waiting: copying one copies its lists of words, which takes longer than a search.
#[derive(Debug)]
struct Analyzers {
    original: Box<dyn LanceTokenizer>,
    waiting: Mutex<Vec<Box<dyn LanceTokenizer>>>,
}

impl Analyzers {
    fn new(original: Box<dyn LanceTokenizer>) -> Self {
        Self { original, waiting: Mutex::default() }
    }

    fn with(&self, work: impl FnOnce(&mut Box<dyn LanceTokenizer>)) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut analyzer = waiting.unwrap_or_else(|| self.original.clone());
        work(&mut analyzer);
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(analyzer);
    }
}
