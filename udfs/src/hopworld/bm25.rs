//! A small BM25 over a world's passages, to find the passages that a real search would show beside the gold one.

use std::collections::BTreeMap;

const K1: f64 = 1.2;
const B: f64 = 0.75;

/// Words that almost every passage or query has.
const STOP_WORDS: [&str; 22] = [
    "a", "an", "and", "are", "as", "by", "did", "does", "first", "had", "has", "in", "is", "its", "of", "the", "to", "was", "when",
    "where", "which", "who",
];

pub(super) struct Index {
    /// Per term: (document, occurrences), documents ascending.
    postings: BTreeMap<String, Vec<(usize, u32)>>,
    /// `K1 * (1 - B + B * length / mean length)` of each document.
    norms: Vec<f64>,
}

impl Index {
    pub(super) fn new<'a>(documents: impl Iterator<Item = &'a str>) -> Self {
        let mut postings: BTreeMap<String, Vec<(usize, u32)>> = BTreeMap::new();
        let mut lengths = Vec::new();
        for (document, text) in documents.enumerate() {
            let mut length = 0;
            for term in terms(text) {
                length += 1;
                let list = postings.entry(term).or_default();
                match list.last_mut() {
                    Some((last, count)) if *last == document => *count += 1,
                    _ => list.push((document, 1)),
                }
            }
            lengths.push(f64::from(length));
        }
        let mean = (lengths.iter().sum::<f64>() / lengths.len().max(1) as f64).max(1.0);
        let norms = lengths.iter().map(|length| K1 * (1.0 - B + B * length / mean)).collect();
        Self { postings, norms }
    }

    /// The documents that share a term with the query, best first, ties by number.
    pub(super) fn search(&self, query: &str) -> Vec<usize> {
        let mut scores = vec![0.0_f64; self.norms.len()];
        for list in terms(query).filter_map(|term| self.postings.get(&term)) {
            let weight = self.rarity(list.len());
            for &(document, count) in list {
                let count = f64::from(count);
                scores[document] += weight * count * (K1 + 1.0) / (count + self.norms[document]);
            }
        }
        let mut found: Vec<usize> = (0..scores.len()).filter(|&document| scores[document] > 0.0).collect();
        found.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
        found
    }

    /// Inverse document frequency in quarter bits. An integer logarithm: `ln` may differ in its last bit between machines, and a
    /// corpus must not.
    fn rarity(&self, documents: usize) -> f64 {
        let ratio = (1.0 + self.norms.len() as f64 / documents as f64) as u64;
        f64::from((ratio * ratio * ratio * ratio).ilog2())
    }
}

fn terms(text: &str) -> impl Iterator<Item = String> {
    text.split(|character: char| !character.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .filter(|word| !STOP_WORDS.contains(&word.as_str()))
}
