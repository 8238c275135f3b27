//! BM25 over a corpus in memory: the words of every document, for bag-of-words queries that take microseconds.
//!
//! A [`PostingsBuilder`] takes documents in order, [`Postings`] answers [`Postings::search`] and grows by
//! [`Postings::append`]. Documents are numbers (their positions) and texts are tokens: splitting text, stemming, primary
//! keys and files are the caller's.
//!
//! The corpus is cut into immutable segments of at most 65,536 documents, which versions of a `Postings` share, so cloning
//! and appending are cheap. A posting is one `u32`: the document within the segment, and a code for its pair of term
//! frequency and document length. That pair is all that BM25 wants to know of a document, and a segment has a few thousand
//! different ones: weights are computed per pair whenever the average length moves, never per posting.
//!
//! # The score
//!
//! That of Lance's inverted index with blocks of 128 documents, its default (lance-index 14.0.2,
//! `src/scalar/inverted/scorer.rs`), in f32 and in this order, for a query of tokens `q` and a document `d`:
//!
//! ```text
//! norm(d)      = K1 * (1 - B + B * length(d) / (total_tokens / num_documents))
//! idf(q)       = ln((num_documents - df(q) + 0.5) / (df(q) + 0.5) + 1)
//! weight(q, d) = (K1 + 1) * frequency(q, d) / (frequency(q, d) + norm(d))
//! score(d)     = sum over q, in the order of the query, of idf(q) * weight(q, d)
//! ```
//!
//! with K1 = 1.2, B = 0.75. `length` counts every token, `df` the documents that hold the token, and documents without
//! tokens are not counted. A token that is repeated in the query counts each time. Lance takes these statistics over all
//! partitions of an index and the rows that are not indexed yet, so our scores are its scores bit for bit as long as nothing
//! was deleted. It goes on counting deleted rows until the index is rebuilt; here only live documents count. (Its numbers in
//! that case too are those of a search that has the live documents as `accept`, without [`Postings::set_live`].)
//!
//! Terms that stand for one word of a query, such as its misspellings ([`Term::group`]), share the frequency of the most frequent one: a rare misspelling
//! must not count more than the word itself (the idea of Lucene's `TopTermsBlendedFreqScoringRewrite`).
//!
//! What this leaves out: tokens at one position, such as synonyms, whose scores Lance adds to each other first; phrases. There is room for 2^32
//! documents.

mod part;
mod search;
mod segment;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use part::Part;
use search::{Best, List, PRUNED_TERMS_MAX, PartSearch, Scores};
use segment::{SEGMENT_DOCUMENTS, Segment, SegmentBuilder, document_of, hash};

const K1: f32 = 1.2;
const B: f32 = 0.75;

/// A term of a query.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Term<'a> {
    pub(crate) text: &'a str,
    /// Factor of what it adds to a score; 1 leaves the score alone.
    pub(crate) boost: f32,
    /// Terms of one group share one document frequency, the greatest of theirs.
    pub(crate) group: Option<usize>,
}

impl<'a> From<&'a str> for Term<'a> {
    fn from(text: &'a str) -> Self {
        Self { text, boost: 1.0, group: None }
    }
}

/// Collects documents in order for [`Postings`].
#[derive(Debug)]
pub(crate) struct PostingsBuilder {
    segment_documents: usize,
    full: Vec<Arc<Segment>>,
    open: SegmentBuilder,
}

impl PostingsBuilder {
    pub(crate) fn new() -> Self {
        Self::with_segments_of(SEGMENT_DOCUMENTS)
    }

    /// Tests cut smaller segments.
    fn with_segments_of(segment_documents: usize) -> Self {
        Self { segment_documents, full: Vec::new(), open: SegmentBuilder::default() }
    }

    /// Adds a token to the document at hand.
    pub(crate) fn push_token(&mut self, token: &str) {
        self.open.push_token(token);
    }

    /// Ends the document at hand. One without tokens has a number too, but is never found nor counted.
    pub(crate) fn end_document(&mut self) {
        self.open.end_document();
        if self.open.lengths.len() >= self.segment_documents || self.open.is_full() {
            self.full.push(Arc::new(std::mem::take(&mut self.open).seal()));
        }
    }

    /// The postings of the documents pushed so far.
    pub(crate) fn finish(self) -> Postings {
        let segment_documents = self.segment_documents;
        let mut postings = Postings { segment_documents, parts: Vec::new(), dead: Vec::new(), num_documents: 0, num_counted: 0 };
        postings.append(self);
        postings
    }

    fn into_segments(mut self) -> Vec<Arc<Segment>> {
        if !self.open.lengths.is_empty() {
            self.full.push(Arc::new(self.open.seal()));
        }
        self.full
    }
}

/// The words of a corpus; the [module](self) tells the score. Clones share what does not change.
#[derive(Debug, Clone)]
pub(crate) struct Postings {
    segment_documents: usize,
    parts: Vec<Part>,
    /// A bit per document that is not live, as far as [`Postings::set_live`] told.
    dead: Vec<u64>,
    num_documents: usize,
    /// Live documents with tokens: those that the statistics count.
    num_counted: usize,
}

impl Postings {
    /// All documents, live or not, with tokens or without; also the number of the next one.
    pub(crate) fn num_documents(&self) -> usize {
        self.num_documents
    }

    /// Bytes held, those shared with clones included.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&self.dead[..]) + self.parts.iter().map(Part::memory_bytes).sum::<usize>()
    }

    /// Continues with the documents of `more`, which start at number [`Self::num_documents`]. They are live.
    ///
    /// Costs what they cost, and now and then joins small segments of earlier calls: a document takes part in 30 such joins
    /// at most, so appending one by one is affordable, and better in thousands.
    pub(crate) fn append(&mut self, more: PostingsBuilder) {
        let mut segments = self.segments();
        for segment in more.into_segments() {
            segments.push(segment);
            join_small(&mut segments, self.segment_documents);
        }
        self.set_segments(segments);
    }

    /// Says which documents are live: a bit per document, the lowest bit of a word first; documents beyond the words are
    /// live. The others are not found, and count in no statistic.
    ///
    /// Costs a pass over the words, and over the pairs of frequency and length.
    pub(crate) fn set_live(&mut self, live: &[u64]) {
        let mask = |word: usize| match self.num_documents.saturating_sub(word * 64) {
            num_bits @ 0..64 => (1 << num_bits) - 1,
            _ => u64::MAX,
        };
        self.dead = live.iter().enumerate().map(|(number, word)| !word & mask(number)).collect();
        self.set_segments(self.segments());
    }

    /// The `k` best live documents that hold at least one of `terms`: score and number, best first, equal ones by number.
    /// All documents that tie with the k-th are there, so there can be more than `k`; fewer if fewer match.
    ///
    /// `terms`: tokens in the order of the query; a repeated one counts each time, an unknown one never, and none has a boost above 1. `accept`: a bit per
    /// document as in [`Self::set_live`], but documents beyond the words are not accepted; it restricts the result and
    /// leaves the statistics alone.
    pub(crate) fn search(&self, terms: &[Term<'_>], k: usize, accept: Option<&[u64]>) -> Vec<(f32, u32)> {
        self.search_with(terms, k, accept, true)
    }

    /// `may_prune`: leave out what cannot be among the best. The result is the same bits either way.
    fn search_with(&self, terms: &[Term<'_>], k: usize, accept: Option<&[u64]>, may_prune: bool) -> Vec<(f32, u32)> {
        if k == 0 {
            return Vec::new();
        }
        let may_prune = may_prune && terms.len() <= PRUNED_TERMS_MAX;
        let mut best = Best::new(k);
        let mut scores = Scores::borrow();
        for lists in self.lists(terms).chunk_by(|a, b| a.part == b.part) {
            PartSearch { part: &self.parts[lists[0].part], lists, accept, may_prune }.run(&mut scores, &mut best);
        }
        scores.give_back();
        best.into_sorted()
    }

    /// Calls `found` with every document, live or not, that holds at least one of `terms`; with some of them several times.
    pub(crate) fn for_each_holder(&self, terms: &[Term<'_>], mut found: impl FnMut(usize)) {
        for list in self.lists(terms) {
            let first = self.parts[list.part].first;
            list.postings.iter().for_each(|posting| found(first + document_of(*posting)));
        }
    }

    /// Every term there is or was; one of several segments several times.
    pub(crate) fn terms(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().flat_map(|part| part.segment.dictionary.terms())
    }

    /// The lists of `terms`, ordered by part, then as the query is.
    fn lists(&self, terms: &[Term<'_>]) -> Vec<List<'_>> {
        let hashes: Vec<u32> = terms.iter().map(|term| hash(term.text)).collect();
        let mut document_frequencies = vec![0; terms.len()];
        let mut lists = Vec::with_capacity(terms.len() * self.parts.len());
        for (number, part) in self.parts.iter().enumerate() {
            for (place, term) in terms.iter().enumerate() {
                let Some(term) = part.segment.dictionary.find(term.text, hashes[place]) else { continue };
                let postings = part.segment.postings(term);
                document_frequencies[place] += part.num_live(term, postings);
                lists.push(List { part: number, place, term, idf: 0.0, postings });
            }
        }
        lists.retain(|list| document_frequencies[list.place] > 0);
        share_frequencies(terms, &mut document_frequencies);
        for list in &mut lists {
            list.idf = terms[list.place].boost * idf(document_frequencies[list.place], self.num_counted);
        }
        lists
    }

    fn segments(&self) -> Vec<Arc<Segment>> {
        self.parts.iter().map(|part| part.segment.clone()).collect()
    }

    /// Puts `segments` in place, and what hangs on the live documents and their average length.
    fn set_segments(&mut self, segments: Vec<Arc<Segment>>) {
        let mut old = std::mem::take(&mut self.parts);
        let mut first = 0;
        for segment in segments {
            let known = old.iter().position(|part| Arc::ptr_eq(&part.segment, &segment)).map(|at| old.swap_remove(at));
            let num_documents = segment.lengths.len();
            let mut part = known.unwrap_or_else(|| Part::new(segment, first));
            part.set_dead(&self.dead);
            self.parts.push(part);
            first += num_documents;
        }
        self.num_documents = first;
        self.num_counted = self.parts.iter().map(Part::num_counted).sum();
        let total_tokens: u64 = self.parts.iter().map(Part::total_tokens).sum();
        let average = total_tokens as f32 / self.num_counted as f32;
        self.parts.iter_mut().for_each(|part| part.set_average(average));
    }
}

/// Joins the last segment with those before it that are less than twice as large, as far as one segment holds them: so
/// there are few small ones.
fn join_small(segments: &mut Vec<Arc<Segment>>, segment_documents: usize) {
    let mut start = segments.len() - 1;
    let mut num_documents = segments[start].lengths.len();
    while start > 0 && segments[start - 1].lengths.len() < 2 * num_documents {
        start -= 1;
        num_documents += segments[start].lengths.len();
    }
    while !Segment::fit_together(&segments[start..], segment_documents) {
        start += 1;
    }
    if start + 1 < segments.len() {
        let joined = Segment::join(&segments[start..]);
        segments.truncate(start);
        segments.push(Arc::new(joined));
    }
}

/// Gives the terms of each group the greatest frequency among them.
fn share_frequencies(terms: &[Term<'_>], document_frequencies: &mut [usize]) {
    let mut greatest: HashMap<usize, usize> = HashMap::new();
    for (term, frequency) in terms.iter().zip(document_frequencies.iter()) {
        if let Some(group) = term.group {
            let greatest = greatest.entry(group).or_default();
            *greatest = (*greatest).max(*frequency);
        }
    }
    for (term, frequency) in terms.iter().zip(document_frequencies) {
        *frequency = term.group.and_then(|group| greatest.get(&group).copied()).unwrap_or(*frequency);
    }
}

/// Never negative.
fn idf(document_frequency: usize, num_documents: usize) -> f32 {
    let (document_frequency, num_documents) = (document_frequency as f32, num_documents as f32);
    ((num_documents - document_frequency + 0.5) / (document_frequency + 0.5) + 1.0).ln()
}

/// Saturates a frequency, relative to the document's length; below K1 + 1 but for rounding.
fn weight(frequency: u32, length: u32, average_length: f32) -> f32 {
    let norm = K1 * (1.0 - B + B * length as f32 / average_length);
    (K1 + 1.0) * frequency as f32 / (frequency as f32 + norm)
}
