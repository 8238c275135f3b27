//! One query in one part, and the best documents over all of them.

use std::cell::Cell;
use std::cmp::Reverse;

use super::part::{AVERAGE_SLACK, Part};
use super::segment::{LOOKUP_COST, SEGMENT_DOCUMENTS, code_of, document_of, find};
use crate::resident::bits::{count, ones, ones_of, word_from};

/// Stands for the score of a document that holds no term. `UNTOUCHED + x` is x for every score x, and as `i32` its bits are
/// the only negative ones; scores order as their bits do.
const UNTOUCHED: f32 = -0.0;
/// A list is left out if it is longer than those that are not, together, by this factor.
const OPTIONAL_GAIN: usize = 16;
/// Longer queries are not pruned: the margin for their rounding errors grows with them.
pub(super) const PRUNED_TERMS_MAX: usize = 256;
/// Walking through all scores of a segment is as fast as picking one in this many.
const SCAN_GAIN: usize = 8;

/// The postings of a term of the query in a segment.
#[derive(Debug, Clone, Copy)]
pub(super) struct List<'a> {
    pub(super) part: usize,
    /// In the query.
    pub(super) place: usize,
    /// In the dictionary of the segment.
    pub(super) term: u32,
    /// With the boost of the term.
    pub(super) idf: f32,
    pub(super) postings: &'a [u32],
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

/// The best documents so far.
pub(super) struct Best {
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

    pub(super) fn new(k: usize) -> Self {
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

    pub(super) fn into_sorted(mut self) -> Vec<(f32, u32)> {
        self.tighten();
        self.hits.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        self.hits
    }
}

/// Sums per document of a segment, all [`UNTOUCHED`] between two uses. A thread keeps one.
pub(super) struct Scores(Box<[f32; SEGMENT_DOCUMENTS]>);

thread_local! {
    static SCORES: Cell<Option<Scores>> = const { Cell::new(None) };
}

impl Scores {
    pub(super) fn borrow() -> Self {
        SCORES.take().unwrap_or_else(|| {
            let scores = vec![UNTOUCHED; SEGMENT_DOCUMENTS].into_boxed_slice();
            Self(scores.try_into().expect("as long as the array"))
        })
    }

    pub(super) fn give_back(self) {
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
pub(super) struct PartSearch<'a> {
    pub(super) part: &'a Part,
    /// In the order of the query; the same list twice for a repeated term.
    pub(super) lists: &'a [List<'a>],
    pub(super) accept: Option<&'a [u64]>,
    pub(super) may_prune: bool,
}

/// A list and the most that it can add to a score.
pub(super) struct Bounded<'a> {
    pub(super) list: &'a List<'a>,
    bound: f64,
}

impl PartSearch<'_> {
    pub(super) fn run(&self, scores: &mut Scores, best: &mut Best) {
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
    pub(super) fn margin(&self) -> f64 {
        1.0 + 2.0 * self.lists.len() as f64 * f64::from(f32::EPSILON)
    }

    /// Lists that even together cannot lift a document to `least`, the longest first. Empty if leaving them out does not pay.
    ///
    /// The idea of MaxScore (Turtle and Flood 1995): only documents of the other lists can be among the best, and only those
    /// that come close enough have to be looked up in these.
    pub(super) fn optional(&self, least: f64) -> Vec<Bounded<'_>> {
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
