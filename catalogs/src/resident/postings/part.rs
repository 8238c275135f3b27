//! A segment in its place in the corpus: which of its documents are live, and the weights that follow from the average length.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use super::search::List;
use super::segment::{LOOKUP_COST, Segment, code_of, document_of, find};
use super::weight;
use crate::resident::bits::{bit, count, ones, slice};

/// How far the average length may move before the greatest weight of a list is found anew, and the factor that this can add.
const AVERAGE_DRIFT: f32 = 0.005;
pub(super) const AVERAGE_SLACK: f64 = 1.0102;

/// A segment in its place, and what of it depends on the other documents.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) segment: Arc<Segment>,
    /// The number of the first document.
    pub(super) first: usize,
    pub(super) dead: Option<Arc<Dead>>,
    average_length: f32,
    /// Per code of a posting.
    pub(super) weights: Arc<[f32]>,
    greatest: Arc<GreatestWeights>,
}

impl Part {
    pub(super) fn new(segment: Arc<Segment>, first: usize) -> Self {
        Self { segment, first, dead: None, average_length: f32::NAN, weights: Arc::default(), greatest: Arc::default() }
    }

    pub(super) fn num_documents(&self) -> usize {
        self.segment.lengths.len()
    }

    pub(super) fn num_counted(&self) -> usize {
        self.segment.num_counted - self.dead.as_ref().map_or(0, |dead| dead.num_counted)
    }

    pub(super) fn total_tokens(&self) -> u64 {
        self.segment.total_tokens - self.dead.as_ref().map_or(0, |dead| dead.total_tokens)
    }

    /// Live documents with a term.
    pub(super) fn num_live(&self, term: u32, postings: &[u32]) -> usize {
        postings.len() - self.dead.as_ref().map_or(0, |dead| dead.num_with(term, postings))
    }

    /// `dead`: a bit per document of the corpus. What was found out about the same dead documents before is kept.
    pub(super) fn set_dead(&mut self, dead: &[u64]) {
        let is_same = match &self.dead {
            Some(known) => known.bits.iter().copied().eq(slice(dead, self.first, self.num_documents())),
            None => count(dead, self.first, self.num_documents()) == 0,
        };
        if !is_same {
            self.dead = Dead::new(&self.segment, slice(dead, self.first, self.num_documents()).collect()).map(Arc::new);
        }
    }

    pub(super) fn set_average(&mut self, average_length: f32) {
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
    pub(super) fn greatest_weight(&self, list: &List<'_>) -> f32 {
        let of_terms = self.greatest.of_terms.get_or_init(|| zeros(self.segment.dictionary.len()));
        let known = f32::from_bits(of_terms[list.term as usize].load(Relaxed));
        if known > 0.0 {
            return known;
        }
        let greatest = list.postings.iter().fold(0.0, |greatest: f32, posting| greatest.max(self.weights[code_of(*posting)]));
        of_terms[list.term as usize].store(greatest.to_bits(), Relaxed);
        greatest
    }

    pub(super) fn memory_bytes(&self) -> usize {
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
pub(super) struct Dead {
    pub(super) bits: Vec<u64>,
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
