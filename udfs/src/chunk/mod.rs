//! Texts in pieces, as a corpus wants its passages: windows of so many words, characters or tokens, or whole sentences.
//!
//! All ranges are of bytes of the text. The pieces of one text come in order, cover it but for white space between them, and none lies within another.

mod sentences;
#[cfg(test)]
mod tests;

use std::ops::Range;

pub use sentences::sentences;

/// Windows of `size` units, each of which begins with the last `overlap` units of the one before; the last window ends with the text.
///
/// `units`: ascending. `overlap`: less than `size`.
pub fn windows(units: &[Range<usize>], size: usize, overlap: usize) -> Vec<Range<usize>> {
    let mut chunks = Vec::new();
    let mut first = 0;
    while first < units.len() {
        let last = (first + size).min(units.len());
        chunks.push(units[first].start..units[last - 1].end);
        if last == units.len() {
            break;
        }
        first += size - overlap.min(size - 1);
    }
    chunks
}

/// Whole sentences, as many as have at most `size` words together; a longer sentence is a piece of its own, and not cut. Each piece begins with the
/// last sentences of the one before, as many as have at most `overlap` words together and leave room for the next sentence.
pub fn packed_sentences(text: &str, size: usize, overlap: usize) -> Vec<Range<usize>> {
    let sentences = sentences(text);
    let lengths: Vec<usize> = sentences.iter().map(|sentence| words(&text[sentence.clone()]).len()).collect();
    let mut chunks = Vec::new();
    let (mut first, mut next) = (0, 0);
    while next < sentences.len() {
        let mut num_words = lengths[first..next].iter().sum::<usize>();
        while next < sentences.len() && (next == first || num_words + lengths[next] <= size) {
            num_words += lengths[next];
            next += 1;
        }
        chunks.push(sentences[first].start..sentences[next - 1].end);
        first = next;
        if let Some(length) = lengths.get(next) {
            let limit = overlap.min(size.saturating_sub(*length));
            let mut repeated = 0;
            while first > 0 && repeated + lengths[first - 1] <= limit {
                first -= 1;
                repeated += lengths[first];
            }
        }
    }
    chunks
}

/// What stands between white space.
pub fn words(text: &str) -> Vec<Range<usize>> {
    let start = |word: &str| word.as_ptr() as usize - text.as_ptr() as usize;
    text.split_whitespace().map(|word| start(word)..start(word) + word.len()).collect()
}

/// Code points, as `length()` counts them.
pub fn characters(text: &str) -> Vec<Range<usize>> {
    text.char_indices().map(|(start, character)| start..start + character.len_utf8()).collect()
}
