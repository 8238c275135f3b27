//! The postings of some documents in a row, and the numbers of their terms.

use std::collections::HashMap;
use std::sync::Arc;

/// Documents of a segment: as many as 16 bits of a posting tell apart.
pub(super) const SEGMENT_DOCUMENTS: usize = 1 << 16;
/// A segment with this many codes is full. The other half of what 16 bits can name is left for its last document: 32,768
/// different frequencies in one document take more text than Arrow's 2 GiB of one string.
const SEGMENT_CODES: usize = 1 << 15;
/// A segment with this many postings, or bytes of different terms, is full; their offsets are `u32`.
const SEGMENT_OFFSETS: usize = 1 << 31;
/// Finding a document in a list costs about as much as adding up this many postings.
pub(super) const LOOKUP_COST: usize = 64;

/// The postings of some documents in a row. Never changes.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) dictionary: Dictionary,
    /// Term t has `postings[offsets[t]..offsets[t + 1]]`, ordered by document.
    offsets: Vec<u32>,
    /// The document in the upper 16 bits, the code in the lower.
    postings: Vec<u32>,
    /// Term frequency and document length of each code.
    pub(super) pairs: Vec<(u32, u32)>,
    /// Tokens of each document.
    pub(super) lengths: Vec<u32>,
    pub(super) num_counted: usize,
    pub(super) total_tokens: u64,
}

impl Segment {
    pub(super) fn memory_bytes(&self) -> usize {
        let dictionary = size_of_val(&self.dictionary.slots[..]) + size_of_val(&self.dictionary.ends[..]) + self.dictionary.text.len();
        let postings = size_of_val(&self.offsets[..]) + size_of_val(&self.postings[..]);
        dictionary + postings + size_of_val(&self.pairs[..]) + size_of_val(&self.lengths[..])
    }

    pub(super) fn postings(&self, term: u32) -> &[u32] {
        let term = term as usize;
        &self.postings[self.offsets[term] as usize..self.offsets[term + 1] as usize]
    }

    pub(super) fn fit_together(segments: &[Arc<Self>], segment_documents: usize) -> bool {
        let sum = |size: fn(&Self) -> usize| segments.iter().map(|segment| size(segment)).sum::<usize>();
        segments.len() < 2
            || sum(|segment| segment.lengths.len()) <= segment_documents
                && sum(|segment| segment.pairs.len()) <= SEGMENT_CODES
                && sum(|segment| segment.postings.len()) <= SEGMENT_OFFSETS
                && sum(|segment| segment.dictionary.text.len()) <= SEGMENT_OFFSETS
    }

    pub(super) fn join(segments: &[Arc<Self>]) -> Self {
        let mut builder = SegmentBuilder::default();
        segments.iter().for_each(|segment| builder.extend(segment));
        builder.seal()
    }
}

#[derive(Debug, Default)]
pub(super) struct SegmentBuilder {
    dictionary: Dictionary,
    /// Terms and postings, ordered by document.
    entries: Vec<(u32, u32)>,
    /// Where those of the document at hand begin, and its tokens so far.
    first_entry: usize,
    length: u32,
    codes: HashMap<(u32, u32), u16>,
    pairs: Vec<(u32, u32)>,
    pub(super) lengths: Vec<u32>,
    /// Per term its frequency in the document at hand, 0 between documents.
    frequencies: Vec<u32>,
}

impl SegmentBuilder {
    pub(super) fn is_full(&self) -> bool {
        self.pairs.len() >= SEGMENT_CODES || self.entries.len().max(self.dictionary.text.len()) >= SEGMENT_OFFSETS
    }

    pub(super) fn push_token(&mut self, token: &str) {
        let term = self.dictionary.insert(token);
        self.frequencies.resize(self.dictionary.len(), 0);
        if self.frequencies[term as usize] == 0 {
            self.entries.push((term, (self.lengths.len() as u32) << 16));
        }
        self.frequencies[term as usize] += 1;
        self.length += 1;
    }

    pub(super) fn end_document(&mut self) {
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
    pub(super) fn seal(mut self) -> Segment {
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
pub(super) struct Dictionary {
    /// The terms, one after the other.
    text: String,
    /// Where each term ends in `text`.
    ends: Vec<u32>,
    /// Hash in the upper half, 1 + term in the lower; 0 is free. As many as a power of two.
    slots: Vec<u64>,
}

impl Dictionary {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    fn term(&self, number: usize) -> &str {
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        &self.text[start..self.ends[number] as usize]
    }

    pub(super) fn terms(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|number| self.term(number))
    }

    pub(super) fn find(&self, term: &str, hash: u32) -> Option<u32> {
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
pub(super) fn hash(term: &str) -> u32 {
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

pub(super) fn document_of(posting: u32) -> usize {
    (posting >> 16) as usize
}

pub(super) fn code_of(posting: u32) -> usize {
    (posting & 0xffff) as usize
}

pub(super) fn find(postings: &[u32], document: u32) -> Option<u32> {
    let at = postings.partition_point(|posting| posting >> 16 < document);
    postings.get(at).copied().filter(|posting| posting >> 16 == document)
}
