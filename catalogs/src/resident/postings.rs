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

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

const K1: f32 = 1.2;
const B: f32 = 0.75;

/// Documents of a segment: as many as 16 bits of a posting tell apart.
const SEGMENT_DOCUMENTS: usize = 1 << 16;
/// A segment with this many codes is full. The other half of what 16 bits can name is left for its last document: 32,768
/// different frequencies in one document take more text than Arrow's 2 GiB of one string.
const SEGMENT_CODES: usize = 1 << 15;
/// A segment with this many postings, or bytes of different terms, is full; their offsets are `u32`.
const SEGMENT_OFFSETS: usize = 1 << 31;

/// Stands for the score of a document that holds no term. `UNTOUCHED + x` is x for every score x, and as `i32` its bits are
/// the only negative ones; scores order as their bits do.
const UNTOUCHED: f32 = -0.0;
/// How far the average length may move before the greatest weight of a list is found anew, and the factor that this can add.
const AVERAGE_DRIFT: f32 = 0.005;
const AVERAGE_SLACK: f64 = 1.0102;
/// Finding a document in a list costs about as much as adding up this many postings.
const LOOKUP_COST: usize = 64;
/// A list is left out if it is longer than those that are not, together, by this factor.
const OPTIONAL_GAIN: usize = 16;
/// Longer queries are not pruned: the margin for their rounding errors grows with them.
const PRUNED_TERMS_MAX: usize = 256;
/// Walking through all scores of a segment is as fast as picking one in this many.
const SCAN_GAIN: usize = 8;

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

/// The postings of a term of the query in a segment.
#[derive(Debug, Clone, Copy)]
struct List<'a> {
    part: usize,
    /// In the query.
    place: usize,
    /// In the dictionary of the segment.
    term: u32,
    /// With the boost of the term.
    idf: f32,
    postings: &'a [u32],
}

impl List<'_> {
    fn len(&self) -> usize {
        self.postings.len()
    }

    /// What the term adds to the score of `document`, if it holds the term.
    fn score(&self, document: u32, weights: &[f32]) -> Option<f32> {
        let posting = find(self.postings, document)?;
        Some(self.idf * weights[code_of(posting)])
    }
}

fn document_of(posting: u32) -> usize {
    (posting >> 16) as usize
}

fn code_of(posting: u32) -> usize {
    (posting & 0xffff) as usize
}

fn find(postings: &[u32], document: u32) -> Option<u32> {
    let at = postings.partition_point(|posting| posting >> 16 < document);
    postings.get(at).copied().filter(|posting| posting >> 16 == document)
}

/// The best documents so far.
struct Best {
    k: usize,
    /// At least all that score `least` or more.
    hits: Vec<(f32, u32)>,
    /// The k-th best score; 0 until there are k.
    least: f32,
    /// Number of hits to tighten at.
    hits_max: usize,
}

impl Best {
    const SPARE: usize = 16;

    fn new(k: usize) -> Self {
        Self { k, hits: Vec::new(), least: 0.0, hits_max: k.saturating_add(Self::SPARE) }
    }

    fn insert(&mut self, score: f32, document: u32) {
        self.hits.push((score, document));
        if self.hits.len() >= self.hits_max {
            self.tighten();
        }
    }

    /// Raises `least` to the k-th best score and drops what is below.
    fn tighten(&mut self) {
        if self.hits.len() < self.k {
            return;
        }
        let (_, kth, _) = self.hits.select_nth_unstable_by(self.k - 1, |a, b| b.0.total_cmp(&a.0));
        self.least = kth.0;
        self.hits.retain(|hit| hit.0 >= self.least);
        // Ties may be many: the work of the next call has to be paid by as many insertions.
        self.hits_max = (2 * self.hits.len()).max(self.k.saturating_add(Self::SPARE));
    }

    fn into_sorted(mut self) -> Vec<(f32, u32)> {
        self.tighten();
        self.hits.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        self.hits
    }
}

/// Sums per document of a segment, all [`UNTOUCHED`] between two uses. A thread keeps one.
struct Scores(Box<[f32; SEGMENT_DOCUMENTS]>);

thread_local! {
    static SCORES: Cell<Option<Scores>> = const { Cell::new(None) };
}

impl Scores {
    fn borrow() -> Self {
        SCORES.take().unwrap_or_else(|| {
            let scores = vec![UNTOUCHED; SEGMENT_DOCUMENTS].into_boxed_slice();
            Self(scores.try_into().expect("as long as the array"))
        })
    }

    fn give_back(self) {
        SCORES.set(Some(self));
    }

    fn add(&mut self, list: &List<'_>, weights: &[f32]) {
        for posting in list.postings {
            self.0[document_of(*posting)] += list.idf * weights[code_of(*posting)];
        }
    }

    /// Hands out the documents that score `least` or more, and clears all scores. `take` gets document and score and says
    /// the least score to go on with.
    ///
    /// Only the documents of `lists` are touched. `admitted`: a bit for each of the documents from 64 times its argument on;
    /// it may spare `take` some of those without a bit.
    fn drain(
        &mut self,
        lists: &[&List<'_>],
        num_words: usize,
        admitted: impl Fn(usize) -> u64,
        least: f32,
        take: impl FnMut(u32, f32) -> f32,
    ) {
        let num_postings: usize = lists.iter().map(|list| list.len()).sum();
        if num_postings < num_words * 64 / SCAN_GAIN {
            self.drain_lists(lists, least, take);
        } else {
            self.drain_all(num_words, admitted, least, take);
        }
    }

    fn drain_lists(&mut self, lists: &[&List<'_>], mut least: f32, mut take: impl FnMut(u32, f32) -> f32) {
        for posting in lists.iter().flat_map(|list| list.postings) {
            let document = document_of(*posting);
            let score = std::mem::replace(&mut self.0[document], UNTOUCHED);
            if is_at_least(score, least) {
                least = take(document as u32, score);
            }
        }
    }

    fn drain_all(&mut self, num_words: usize, admitted: impl Fn(usize) -> u64, mut least: f32, mut take: impl FnMut(u32, f32) -> f32) {
        for (number, chunk) in self.0.chunks_mut(64).take(num_words).enumerate() {
            // Neither of the two passes branches per score, where a processor would guess wrong.
            if chunk.iter().fold(false, |any, score| any | is_at_least(*score, least)) {
                let bits = chunk.iter().enumerate().fold(0, |bits, (at, score)| bits | u64::from(is_at_least(*score, least)) << at);
                for at in ones_of(bits & admitted(number)) {
                    let score = chunk[at as usize];
                    if is_at_least(score, least) {
                        least = take(number as u32 * 64 + at, score);
                    }
                }
            }
            chunk.fill(UNTOUCHED);
        }
    }
}

/// Whether a document was touched and scores `least` or more.
fn is_at_least(score: f32, least: f32) -> bool {
    score.to_bits().cast_signed() >= least.to_bits().cast_signed()
}

/// One query in one part.
struct PartSearch<'a> {
    part: &'a Part,
    /// In the order of the query; the same list twice for a repeated term.
    lists: &'a [List<'a>],
    accept: Option<&'a [u64]>,
    may_prune: bool,
}

/// A list and the most that it can add to a score.
struct Bounded<'a> {
    list: &'a List<'a>,
    bound: f64,
}

impl PartSearch<'_> {
    fn run(&self, scores: &mut Scores, best: &mut Best) {
        let num_postings: usize = self.lists.iter().map(List::len).sum();
        let num_accepted = self.accept.map_or(usize::MAX, |accept| count(accept, self.part.first, self.part.num_documents()));
        if num_accepted.saturating_mul(self.lists.len() * LOOKUP_COST) < num_postings {
            self.look_up_accepted(best);
        } else {
            self.add_up(scores, best);
        }
        best.tighten();
    }

    /// Few documents are accepted: each finds its own postings.
    fn look_up_accepted(&self, best: &mut Best) {
        let Some(accept) = self.accept else { return };
        for document in ones(accept, self.part.first, self.part.num_documents()) {
            self.offer(document, self.score(document), best);
        }
    }

    /// Adds up the postings of all lists, or of as few as decide.
    fn add_up(&self, scores: &mut Scores, best: &mut Best) {
        let least = f64::from(best.least) / self.margin();
        let optional = self.optional(least);
        let is_essential = |list: &&List<'_>| optional.iter().all(|bounded| bounded.list.place != list.place);
        let essential: Vec<&List<'_>> = self.lists.iter().filter(is_essential).collect();
        essential.iter().for_each(|list| scores.add(list, &self.part.weights));
        if optional.is_empty() {
            scores.drain(
                &essential,
                self.num_words(),
                |word| self.admitted(word),
                best.least,
                |document, score| {
                    self.offer(document, score, best);
                    best.least
                },
            );
        } else {
            self.refine(least, &essential, &optional, scores, best);
        }
    }

    /// The sums of f32 values in two orders differ by less than this factor: n additions are off by a factor of
    /// (1 + 2^-24)^(n - 1) at most, each way.
    fn margin(&self) -> f64 {
        1.0 + 2.0 * self.lists.len() as f64 * f64::from(f32::EPSILON)
    }

    /// Lists that even together cannot lift a document to `least`, the longest first. Empty if leaving them out does not pay.
    ///
    /// The idea of MaxScore (Turtle and Flood 1995): only documents of the other lists can be among the best, and only those
    /// that come close enough have to be looked up in these.
    fn optional(&self, least: f64) -> Vec<Bounded<'_>> {
        if !self.may_prune || least == 0.0 {
            return Vec::new();
        }
        let mut optional: Vec<Bounded<'_>> = self.lists.iter().map(|list| self.bounded(list)).collect();
        optional.sort_by_key(|bounded| Reverse(bounded.list.len()));
        let (mut rest, mut num_essential) = (0.0, 0);
        optional.retain(|Bounded { list, bound }| {
            let is_optional = rest + bound < least;
            rest += if is_optional { *bound } else { 0.0 };
            num_essential += if is_optional { 0 } else { list.len() };
            is_optional
        });
        // A short list is as soon added up, and then it sorts out documents before they are looked up in others.
        optional.retain(|bounded| bounded.list.len() > OPTIONAL_GAIN * num_essential);
        optional
    }

    fn bounded<'a>(&self, list: &'a List<'a>) -> Bounded<'a> {
        Bounded { list, bound: f64::from(list.idf * self.part.greatest_weight(list)) * AVERAGE_SLACK }
    }

    /// Looks the documents whose `essential` sums come close to `least` up in the `optional` lists. Those that reach it get
    /// their score anew, in the order of the query.
    fn refine(&self, least: f64, essential: &[&List<'_>], optional: &[Bounded<'_>], scores: &mut Scores, best: &mut Best) {
        let mut rest: f64 = optional.iter().map(|list| list.bound).sum();
        let mut candidates = Vec::new();
        let close = ((least - rest) as f32).next_down().max(0.0);
        scores.drain(
            essential,
            self.num_words(),
            |word| self.admitted(word),
            close,
            |document, sum| {
                candidates.push((document, f64::from(sum)));
                close
            },
        );
        for Bounded { list, bound } in optional {
            rest -= bound;
            candidates.retain_mut(|(document, sum)| {
                *sum += list.score(*document, &self.part.weights).map_or(0.0, f64::from);
                *sum + rest >= least
            });
        }
        candidates.iter().for_each(|(document, _)| self.offer(*document, self.score(*document), best));
    }

    fn score(&self, document: u32) -> f32 {
        let of_lists = self.lists.iter().filter_map(|list| list.score(document, &self.part.weights));
        of_lists.fold(UNTOUCHED, |sum, score| sum + score)
    }

    fn offer(&self, document: u32, score: f32, best: &mut Best) {
        let is_admitted = || self.admitted(document as usize / 64) >> (document % 64) & 1 == 1;
        if is_at_least(score, best.least) && is_admitted() {
            best.insert(score, (self.part.first + document as usize) as u32);
        }
    }

    fn num_words(&self) -> usize {
        self.part.num_documents().div_ceil(64)
    }

    /// A bit for each of the documents `word * 64..` that are live and accepted.
    fn admitted(&self, word: usize) -> u64 {
        let live = self.part.dead.as_ref().map_or(u64::MAX, |dead| !dead.bits[word]);
        self.accept.map_or(live, |accept| live & word_from(accept, self.part.first + word * 64))
    }
}

fn bit(words: &[u64], at: usize) -> bool {
    words.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
}

/// The 64 bits from bit `start` on; 0 beyond the end.
fn word_from(words: &[u64], start: usize) -> u64 {
    let word = |at: usize| words.get(at).copied().unwrap_or(0);
    match start % 64 {
        0 => word(start / 64),
        shift => word(start / 64) >> shift | word(start / 64 + 1) << (64 - shift),
    }
}

/// The bits `start..start + len`, in words of their own.
fn slice(words: &[u64], start: usize, len: usize) -> impl Iterator<Item = u64> {
    let end = start + len;
    (start..end).step_by(64).map(move |at| word_from(words, at) & if end - at < 64 { (1 << (end - at)) - 1 } else { u64::MAX })
}

fn count(words: &[u64], start: usize, len: usize) -> usize {
    slice(words, start, len).map(|word| word.count_ones() as usize).sum()
}

/// Places of the set bits of `start..start + len`, counted from `start`.
fn ones(words: &[u64], start: usize, len: usize) -> impl Iterator<Item = u32> {
    slice(words, start, len).zip((0..).step_by(64)).flat_map(|(word, first)| ones_of(word).map(move |at| first + at))
}

fn ones_of(word: u64) -> impl Iterator<Item = u32> {
    let without_lowest = |word: &u64| Some(word & word.checked_sub(1)?);
    std::iter::successors(Some(word), without_lowest).take_while(|word| *word != 0).map(u64::trailing_zeros)
}

/// A segment in its place, and what of it depends on the other documents.
#[derive(Debug, Clone)]
struct Part {
    segment: Arc<Segment>,
    /// The number of the first document.
    first: usize,
    dead: Option<Arc<Dead>>,
    average_length: f32,
    /// Per code of a posting.
    weights: Arc<[f32]>,
    greatest: Arc<GreatestWeights>,
}

impl Part {
    fn new(segment: Arc<Segment>, first: usize) -> Self {
        Self { segment, first, dead: None, average_length: f32::NAN, weights: Arc::default(), greatest: Arc::default() }
    }

    fn num_documents(&self) -> usize {
        self.segment.lengths.len()
    }

    fn num_counted(&self) -> usize {
        self.segment.num_counted - self.dead.as_ref().map_or(0, |dead| dead.num_counted)
    }

    fn total_tokens(&self) -> u64 {
        self.segment.total_tokens - self.dead.as_ref().map_or(0, |dead| dead.total_tokens)
    }

    /// Live documents with a term.
    fn num_live(&self, term: u32, postings: &[u32]) -> usize {
        postings.len() - self.dead.as_ref().map_or(0, |dead| dead.num_with(term, postings))
    }

    /// `dead`: a bit per document of the corpus. What was found out about the same dead documents before is kept.
    fn set_dead(&mut self, dead: &[u64]) {
        let is_same = match &self.dead {
            Some(known) => known.bits.iter().copied().eq(slice(dead, self.first, self.num_documents())),
            None => count(dead, self.first, self.num_documents()) == 0,
        };
        if !is_same {
            self.dead = Dead::new(&self.segment, slice(dead, self.first, self.num_documents()).collect()).map(Arc::new);
        }
    }

    fn set_average(&mut self, average_length: f32) {
        if self.average_length == average_length {
            return;
        }
        self.average_length = average_length;
        self.weights = self.segment.pairs.iter().map(|(frequency, length)| weight(*frequency, *length, average_length)).collect();
        let drift = (average_length / self.greatest.average_length - 1.0).abs();
        if drift.is_nan() || drift > AVERAGE_DRIFT {
            self.greatest = Arc::new(GreatestWeights { average_length, of_terms: OnceLock::new() });
        }
    }

    /// At least 1 / [`AVERAGE_SLACK`] of the greatest weight in `list`.
    fn greatest_weight(&self, list: &List<'_>) -> f32 {
        let of_terms = self.greatest.of_terms.get_or_init(|| zeros(self.segment.dictionary.len()));
        let known = f32::from_bits(of_terms[list.term as usize].load(Relaxed));
        if known > 0.0 {
            return known;
        }
        let greatest = list.postings.iter().fold(0.0, |greatest: f32, posting| greatest.max(self.weights[code_of(*posting)]));
        of_terms[list.term as usize].store(greatest.to_bits(), Relaxed);
        greatest
    }

    fn memory_bytes(&self) -> usize {
        let dead = self.dead.as_ref().map_or(0, |dead| size_of_val(&dead.bits[..]) + size_of_val(&dead.frequencies[..]));
        let greatest = self.greatest.of_terms.get().map_or(0, |of_terms| size_of_val(&of_terms[..]));
        self.segment.memory_bytes() + size_of_val(&self.weights[..]) + dead + greatest
    }
}

/// The greatest weight in each list of a segment, found when first asked for; 0 until then.
///
/// A weight grows by the factor of the average length at most, so they hold, give or take, for averages near the one that they
/// were found at: a row more or less does not send every query through its lists again.
#[derive(Debug, Default)]
struct GreatestWeights {
    average_length: f32,
    of_terms: OnceLock<Vec<AtomicU32>>,
}

fn zeros(len: usize) -> Vec<AtomicU32> {
    std::iter::repeat_with(AtomicU32::default).take(len).collect()
}

/// The documents of a segment that are not live.
#[derive(Debug)]
struct Dead {
    bits: Vec<u64>,
    documents: Vec<u32>,
    num_counted: usize,
    total_tokens: u64,
    /// Per term 1 + how many of these documents hold it, counted when first asked for; 0 until then.
    frequencies: Vec<AtomicU32>,
}

impl Dead {
    fn new(segment: &Segment, bits: Vec<u64>) -> Option<Self> {
        let documents: Vec<u32> = ones(&bits, 0, segment.lengths.len()).collect();
        if documents.is_empty() {
            return None;
        }
        let lengths = || documents.iter().map(|document| segment.lengths[*document as usize]);
        let num_counted = lengths().filter(|length| *length > 0).count();
        let total_tokens = lengths().map(u64::from).sum();
        Some(Self { bits, num_counted, total_tokens, documents, frequencies: zeros(segment.dictionary.len()) })
    }

    fn num_with(&self, term: u32, postings: &[u32]) -> usize {
        let known = &self.frequencies[term as usize];
        if known.load(Relaxed) == 0 {
            let frequency = if self.documents.len() * LOOKUP_COST < postings.len() {
                self.documents.iter().filter(|document| find(postings, **document).is_some()).count()
            } else {
                postings.iter().filter(|posting| bit(&self.bits, document_of(**posting))).count()
            };
            known.store(1 + frequency as u32, Relaxed);
        }
        known.load(Relaxed) as usize - 1
    }
}

/// The postings of some documents in a row. Never changes.
#[derive(Debug)]
struct Segment {
    dictionary: Dictionary,
    /// Term t has `postings[offsets[t]..offsets[t + 1]]`, ordered by document.
    offsets: Vec<u32>,
    /// The document in the upper 16 bits, the code in the lower.
    postings: Vec<u32>,
    /// Term frequency and document length of each code.
    pairs: Vec<(u32, u32)>,
    /// Tokens of each document.
    lengths: Vec<u32>,
    num_counted: usize,
    total_tokens: u64,
}

impl Segment {
    fn memory_bytes(&self) -> usize {
        let dictionary = size_of_val(&self.dictionary.slots[..]) + size_of_val(&self.dictionary.ends[..]) + self.dictionary.text.len();
        let postings = size_of_val(&self.offsets[..]) + size_of_val(&self.postings[..]);
        dictionary + postings + size_of_val(&self.pairs[..]) + size_of_val(&self.lengths[..])
    }

    fn postings(&self, term: u32) -> &[u32] {
        let term = term as usize;
        &self.postings[self.offsets[term] as usize..self.offsets[term + 1] as usize]
    }

    fn fit_together(segments: &[Arc<Self>], segment_documents: usize) -> bool {
        let sum = |size: fn(&Self) -> usize| segments.iter().map(|segment| size(segment)).sum::<usize>();
        segments.len() < 2
            || sum(|segment| segment.lengths.len()) <= segment_documents
                && sum(|segment| segment.pairs.len()) <= SEGMENT_CODES
                && sum(|segment| segment.postings.len()) <= SEGMENT_OFFSETS
                && sum(|segment| segment.dictionary.text.len()) <= SEGMENT_OFFSETS
    }

    fn join(segments: &[Arc<Self>]) -> Self {
        let mut builder = SegmentBuilder::default();
        segments.iter().for_each(|segment| builder.extend(segment));
        builder.seal()
    }
}

#[derive(Debug, Default)]
struct SegmentBuilder {
    dictionary: Dictionary,
    /// Terms and postings, ordered by document.
    entries: Vec<(u32, u32)>,
    /// Where those of the document at hand begin, and its tokens so far.
    first_entry: usize,
    length: u32,
    codes: HashMap<(u32, u32), u16>,
    pairs: Vec<(u32, u32)>,
    lengths: Vec<u32>,
    /// Per term its frequency in the document at hand, 0 between documents.
    frequencies: Vec<u32>,
}

impl SegmentBuilder {
    fn is_full(&self) -> bool {
        self.pairs.len() >= SEGMENT_CODES || self.entries.len().max(self.dictionary.text.len()) >= SEGMENT_OFFSETS
    }

    fn push_token(&mut self, token: &str) {
        let term = self.dictionary.insert(token);
        self.frequencies.resize(self.dictionary.len(), 0);
        if self.frequencies[term as usize] == 0 {
            self.entries.push((term, (self.lengths.len() as u32) << 16));
        }
        self.frequencies[term as usize] += 1;
        self.length += 1;
    }

    fn end_document(&mut self) {
        let length = std::mem::take(&mut self.length);
        for at in self.first_entry..self.entries.len() {
            let frequency = std::mem::take(&mut self.frequencies[self.entries[at].0 as usize]);
            self.entries[at].1 |= self.code(frequency, length);
        }
        self.first_entry = self.entries.len();
        self.lengths.push(length);
    }

    fn code(&mut self, frequency: u32, length: u32) -> u32 {
        let next = self.pairs.len();
        let code = *self.codes.entry((frequency, length)).or_insert_with(|| {
            self.pairs.push((frequency, length));
            u16::try_from(next).expect("a full segment takes no more documents")
        });
        u32::from(code)
    }

    /// Continues with the documents of `segment`.
    fn extend(&mut self, segment: &Segment) {
        let first = self.lengths.len() as u32;
        let codes: Vec<u32> = segment.pairs.iter().map(|(frequency, length)| self.code(*frequency, *length)).collect();
        for (number, term) in segment.dictionary.terms().enumerate() {
            let term = self.dictionary.insert(term);
            let moved = |posting: &u32| (((posting >> 16) + first) << 16) | codes[code_of(*posting)];
            self.entries.extend(segment.postings(number as u32).iter().map(|posting| (term, moved(posting))));
        }
        self.lengths.extend(&segment.lengths);
    }

    /// Sorts the entries by term; those of one term stay in order.
    fn seal(mut self) -> Segment {
        let mut offsets = vec![0; self.dictionary.len() + 1];
        self.entries.iter().for_each(|(term, _)| offsets[*term as usize + 1] += 1);
        for term in 1..offsets.len() {
            offsets[term] += offsets[term - 1];
        }
        let mut ends = offsets.clone();
        let mut postings = vec![0; self.entries.len()];
        for (term, posting) in self.entries {
            let end = &mut ends[term as usize];
            postings[*end as usize] = posting;
            *end += 1;
        }
        self.dictionary.shrink();
        self.pairs.shrink_to_fit();
        self.lengths.shrink_to_fit();
        let num_counted = self.lengths.iter().filter(|length| **length > 0).count();
        let total_tokens = self.lengths.iter().copied().map(u64::from).sum();
        Segment { dictionary: self.dictionary, offsets, postings, pairs: self.pairs, lengths: self.lengths, num_counted, total_tokens }
    }
}

/// Numbers for terms, in the order of their first appearance. A hash table with linear probing, at most two thirds full.
#[derive(Debug, Default)]
struct Dictionary {
    /// The terms, one after the other.
    text: String,
    /// Where each term ends in `text`.
    ends: Vec<u32>,
    /// Hash in the upper half, 1 + term in the lower; 0 is free. As many as a power of two.
    slots: Vec<u64>,
}

impl Dictionary {
    fn len(&self) -> usize {
        self.ends.len()
    }

    fn term(&self, number: usize) -> &str {
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        &self.text[start..self.ends[number] as usize]
    }

    fn terms(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|number| self.term(number))
    }

    fn find(&self, term: &str, hash: u32) -> Option<u32> {
        match self.slots.is_empty() {
            true => None,
            false => self.probe(term, hash).ok(),
        }
    }

    /// The number of `term`, a new one if it is new.
    fn insert(&mut self, term: &str) -> u32 {
        if 3 * (self.len() + 1) > 2 * self.slots.len() {
            self.grow();
        }
        let hash = hash(term);
        self.probe(term, hash).unwrap_or_else(|free| {
            let number = self.len() as u32;
            self.text.push_str(term);
            self.ends.push(self.text.len() as u32);
            self.slots[free] = u64::from(hash) << 32 | u64::from(number + 1);
            number
        })
    }

    /// The number of `term`, or the slot that is free for it. There must be a free one.
    fn probe(&self, term: &str, hash: u32) -> Result<u32, usize> {
        let mut at = hash as usize & (self.slots.len() - 1);
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                return Err(at);
            }
            let number = slot as u32 - 1;
            if (slot >> 32) as u32 == hash && self.term(number as usize) == term {
                return Ok(number);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    fn grow(&mut self) {
        let slots = vec![0; (2 * self.slots.len()).max(16)];
        let mask = slots.len() - 1;
        for slot in std::mem::replace(&mut self.slots, slots).into_iter().filter(|slot| *slot != 0) {
            let mut at = (slot >> 32) as usize & mask;
            while self.slots[at] != 0 {
                at = (at + 1) & mask;
            }
            self.slots[at] = slot;
        }
    }

    fn shrink(&mut self) {
        self.text.shrink_to_fit();
        self.ends.shrink_to_fit();
    }
}

/// Products of eight bytes at a time, their halves folded (the idea of wyhash).
fn hash(term: &str) -> u32 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let fold = |value: u64| {
        let product = u128::from(value) * u128::from(FACTOR);
        product as u64 ^ (product >> 64) as u64
    };
    let mut state = fold(term.len() as u64 ^ FACTOR);
    for chunk in term.as_bytes().chunks(8) {
        let mut bytes = [0; 8];
        bytes[..chunk.len()].copy_from_slice(chunk);
        state = fold(state ^ u64::from_le_bytes(bytes));
    }
    (state >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Marsaglia's xorshift.
    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 11) as usize % bound
        }

        /// A word of fifty, the first ones far more often.
        fn word(&mut self) -> String {
            let bound = [2, 6, 50][self.below(3)];
            format!("word{}", self.below(bound))
        }

        fn document(&mut self) -> Vec<String> {
            let length = [0, 3, 3, 10, 40][self.below(5)];
            (0..length).map(|_| self.word()).collect()
        }

        fn bits(&mut self, len: usize, one_in: usize) -> Vec<bool> {
            (0..len).map(|_| self.below(one_in) == 0).collect()
        }
    }

    fn words(bits: &[bool]) -> Vec<u64> {
        bits.chunks(64).map(|chunk| chunk.iter().rev().fold(0, |word, bit| word << 1 | u64::from(*bit))).collect()
    }

    fn strs(words: &[String]) -> Vec<&str> {
        words.iter().map(String::as_str).collect()
    }

    fn of<'a>(terms: &[&'a str]) -> Vec<Term<'a>> {
        terms.iter().copied().map(Term::from).collect()
    }

    fn builder(documents: &[Vec<String>], segment_documents: usize) -> PostingsBuilder {
        let mut builder = PostingsBuilder::with_segments_of(segment_documents);
        documents.iter().for_each(|document| {
            document.iter().for_each(|token| builder.push_token(token));
            builder.end_document();
        });
        builder
    }

    /// The formula of the module, word by word.
    fn naive(documents: &[Vec<String>], live: &[bool], terms: &[&str], k: usize, accept: &[bool]) -> Vec<(f32, u32)> {
        let counted: Vec<_> = documents.iter().zip(live).filter(|(d, live)| **live && !d.is_empty()).map(|(d, _)| d).collect();
        let total_tokens: usize = counted.iter().map(|document| document.len()).sum();
        let average = total_tokens as f32 / counted.len() as f32;
        let holders = |term| counted.iter().filter(|document| document.iter().any(|word| word == term)).count() as f32;
        let idf = |holders: f32| ((counted.len() as f32 - holders + 0.5) / (holders + 0.5) + 1.0).ln();
        let idfs: Vec<f32> = terms.iter().map(|term| idf(holders(*term))).collect();
        let mut hits = Vec::new();
        for (number, document) in documents.iter().enumerate().filter(|(number, _)| live[*number] && accept[*number]) {
            let norm = 1.2_f32 * (1.0 - 0.75 + 0.75 * document.len() as f32 / average);
            let mut score = 0.0_f32;
            for (term, idf) in terms.iter().zip(&idfs) {
                let frequency = document.iter().filter(|word| word == term).count() as f32;
                score += idf * ((1.2 + 1.0) * frequency / (frequency + norm));
            }
            if document.iter().any(|word| terms.contains(&word.as_str())) {
                hits.push((score, number as u32));
            }
        }
        hits.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let least = k.checked_sub(1).map_or(f32::INFINITY, |last| hits.get(last).map_or(0.0, |hit| hit.0));
        hits.into_iter().filter(|hit| hit.0 >= least).collect()
    }

    fn assert_same_bits(found: &[(f32, u32)], expected: &[(f32, u32)], what: &str) {
        let bits = |hits: &[(f32, u32)]| hits.iter().map(|(score, document)| (score.to_bits(), *document)).collect::<Vec<_>>();
        assert_eq!(bits(found), bits(expected), "{what}\nfound {found:?}\nexpected {expected:?}");
    }

    /// Random queries: pruned or not, the results are those of `naive`.
    fn check_queries(random: &mut Random, postings: &Postings, documents: &[Vec<String>], live: &[bool], what: &str) {
        assert_eq!(postings.num_documents(), documents.len());
        for _ in 0..8 {
            let num_terms = [0, 1, 2, 5, 12][random.below(5)];
            let mut terms: Vec<String> = (0..num_terms).map(|_| random.word()).collect();
            if random.below(4) == 0 {
                terms.insert(0, "unknown".to_owned());
            }
            let terms = strs(&terms);
            let k = [0, 1, 3, 10, 1000, usize::MAX][random.below(6)];
            let one_in = [1, 2, 50][random.below(3)];
            let accept = random.bits(documents.len(), one_in);
            let filter = (one_in > 1).then(|| words(&accept));
            let expected = naive(documents, live, &terms, k, &accept);
            for may_prune in [true, false] {
                let found = postings.search_with(&of(&terms), k, filter.as_deref(), may_prune);
                assert_same_bits(&found, &expected, &format!("{what}, {terms:?}, k {k}, one in {one_in}, may_prune {may_prune}"));
            }
        }
    }

    #[test]
    fn as_the_naive_implementation() {
        for seed in 1..40 {
            let mut random = Random(seed * 0x9e37_79b9);
            let segment_documents = [5, 64, 100, SEGMENT_DOCUMENTS][random.below(4)];
            let mut documents: Vec<Vec<String>> = (0..random.below(300)).map(|_| random.document()).collect();
            let mut live = vec![true; documents.len()];
            let mut postings = builder(&documents, segment_documents).finish();
            for step in 0..4 {
                check_queries(&mut random, &postings, &documents, &live, &format!("seed {seed}, step {step}"));
                if step % 2 == 0 {
                    let one_in = [3, 100][random.below(2)];
                    let dead = random.bits(documents.len(), one_in);
                    live = dead.iter().map(|dead| !dead).collect();
                    postings.set_live(&words(&live));
                    check_queries(&mut random, &postings, &documents, &live, &format!("seed {seed}, step {step}, deleted"));
                }
                let num_more = [0, 1, 70][random.below(3)];
                let more: Vec<Vec<String>> = (0..num_more).map(|_| random.document()).collect();
                postings.append(builder(&more, segment_documents));
                documents.extend(more);
                live.resize(documents.len(), true);
            }
        }
    }

    /// Appending one by one keeps few segments, and leaves earlier clones as they were.
    #[test]
    fn appended_one_by_one() {
        let mut random = Random(7);
        let documents: Vec<Vec<String>> = (0..150).map(|_| random.document()).collect();
        let mut postings = builder(&[], 100).finish();
        let mut earlier = postings.clone();
        for (number, document) in documents.iter().enumerate() {
            postings.append(builder(std::slice::from_ref(document), 100));
            if number == 99 {
                earlier = postings.clone();
            }
        }
        assert!(postings.parts.len() <= 8, "{} segments", postings.parts.len());
        let whole = builder(&documents, 100).finish();
        let first = builder(&documents[..100], 100).finish();
        let terms = ["word1", "word5", "word20"];
        assert_same_bits(&postings.search(&of(&terms), 10, None), &whole.search(&of(&terms), 10, None), "all");
        assert_same_bits(&earlier.search(&of(&terms), 10, None), &first.search(&of(&terms), 10, None), "the first hundred");
    }

    /// A rare word decides, and the list of the frequent one is left out of all segments but the first.
    #[test]
    fn leaves_long_lists_out() {
        let mut random = Random(11);
        let mut documents: Vec<Vec<String>> = (0..2000).map(|_| vec!["frequent".to_owned(); 1 + random.below(5)]).collect();
        for number in (3..2000).step_by(50) {
            documents[number].extend(["rare".to_owned(), random.word()]);
        }
        let postings = builder(&documents, 500).finish();
        let terms = ["frequent", "rare", "frequent"];
        let lists = postings.lists(&of(&terms));
        let part = &postings.parts[0];
        let search = PartSearch { part, lists: &lists[..3], accept: None, may_prune: true };
        let hits = postings.search(&of(&terms), 10, None);
        let optional = search.optional(f64::from(hits[9].0) / search.margin());
        assert_eq!(optional.iter().map(|bounded| bounded.list.place).collect::<Vec<_>>(), [0, 2]);
        let live = vec![true; documents.len()];
        assert_same_bits(&hits, &naive(&documents, &live, &terms, 10, &live), "rare and frequent");
    }

    /// Equal documents all tie with the k-th, over the bounds of segments.
    #[test]
    fn ties_are_complete() {
        let documents: Vec<Vec<String>> = (0..1000).map(|number| vec!["same".to_owned(), format!("own{number}")]).collect();
        let postings = builder(&documents, 300).finish();
        let found = postings.search(&of(&["same"]), 1, None);
        assert_eq!(found.iter().map(|hit| hit.1).collect::<Vec<_>>(), (0..1000).collect::<Vec<_>>());
        let found = postings.search(&of(&["same", "own500"]), 1, None);
        assert_eq!(found.iter().map(|hit| hit.1).collect::<Vec<_>>(), [500]);
        assert!(postings.memory_bytes() > 1000 * 2 * 4);
    }

    /// Without a document there is nothing to find. A score of 0, which f32 gives to a term that tens of millions of documents
    /// all hold, is a match too.
    #[test]
    fn extremes() {
        let mut postings = PostingsBuilder::new().finish();
        assert_eq!(postings.search(&of(&["word"]), 10, None), []);
        postings.append(builder(&[vec!["word".to_owned()], vec![]], 10));
        postings.set_live(&[0]);
        assert_eq!(postings.search(&of(&["word"]), 10, None), []);
        postings.set_live(&[]);
        postings.parts[0].weights = [0.0].into();
        assert_eq!(postings.search(&of(&["word"]), 10, None), [(0.0, 0)]);
    }

    /// `tomx` counts as much as `tom`, times its boost; without a group it would count more, being rarer.
    #[test]
    fn a_group_shares_the_frequency_of_its_most_frequent_term() {
        let texts = ["tom", "tom", "tomx", "other"];
        let documents: Vec<Vec<String>> = texts.iter().map(|text| vec![(*text).to_owned()]).collect();
        let postings = builder(&documents, 3).finish();
        let term = |text, boost| Term { text, boost, group: Some(7) };
        let found = postings.search(&[term("tom", 1.0), term("tomx", 0.5)], 10, None);
        assert_eq!(found.iter().map(|hit| hit.1).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(found[2].0, found[0].0 * 0.5);
        assert!(postings.search(&of(&["tom", "tomx"]), 10, None)[0].1 == 2);
        let mut holders = Vec::new();
        postings.for_each_holder(&of(&["tomx", "other", "none"]), |document| holders.push(document));
        assert_eq!(holders, [2, 3]);
        assert_eq!(postings.terms().collect::<Vec<_>>(), ["tom", "tomx", "other"]);
    }

    /// Computed in Python with f64: `idf * 2.2 * f / (f + 1.2 * (0.25 + 0.75 * length / average))`.
    #[test]
    fn a_known_score() {
        let texts = ["a b b c", "a c c", "b d", ""];
        let documents: Vec<Vec<String>> = texts.iter().map(|text| text.split_whitespace().map(str::to_owned).collect()).collect();
        let found = builder(&documents, 10).finish().search(&of(&["b", "d", "b"]), 2, None);
        assert_eq!(found.iter().map(|hit| hit.1).collect::<Vec<_>>(), [2, 0]);
        assert!((found[0].0 - 2.224_126_5).abs() < 1e-6 && (found[1].0 - 1.181_723_4).abs() < 1e-6, "{found:?}");
    }
}
