//! Words that are a few edits from a word of a query.

use crate::search::Edits;

/// Terms that stand for one word at most; nearer ones go before.
const TERMS_MAX: usize = 50;

/// The terms that few enough edits make of `word`, nearest first, then in the order of their letters, with a factor for their scores: 1 for the word
/// itself, and 1 - edits / letters of the shorter one for another, as in Lucene's fuzzy queries.
///
/// An edit inserts, removes or replaces a letter or swaps two neighbours, and no letter takes part in two (optimal string alignment).
pub(crate) fn misspellings<'a>(word: &str, terms: impl Iterator<Item = &'a str>, edits: Edits) -> Vec<(&'a str, f32)> {
    let letters: Vec<char> = word.chars().collect();
    let max = edits.of_word(letters.len());
    let mut table = Alignment::default();
    let mut found: Vec<(usize, &str, usize)> = Vec::new();
    for term in terms {
        let num_letters = if term.is_ascii() { term.len() } else { term.chars().count() };
        if num_letters.abs_diff(letters.len()) > max || !starts_alike(&letters, term, edits.prefix_length) {
            continue;
        }
        if let Some(distance) = table.distance(&letters, term, max) {
            found.push((distance, term, num_letters));
        }
    }
    found.sort_unstable();
    found.dedup();
    found.truncate(TERMS_MAX);
    let boost = |distance: usize, num_letters: usize| 1.0 - distance as f32 / letters.len().min(num_letters).max(1) as f32;
    let worth = found.into_iter().map(|(distance, term, num_letters)| (term, boost(distance, num_letters)));
    worth.filter(|(_, boost)| *boost > 0.0).collect()
}

/// Whether the first `count` letters are the same; all of them, if the word has no more.
fn starts_alike(letters: &[char], term: &str, count: usize) -> bool {
    let count = count.min(letters.len());
    term.chars().take(count).eq(letters[..count].iter().copied())
}

/// Three rows of the table of distances between beginnings of two words.
#[derive(Default)]
struct Alignment {
    before_last: Vec<usize>,
    last: Vec<usize>,
    row: Vec<usize>,
    other: Vec<char>,
}

impl Alignment {
    /// The number of edits, if it is at most `max`.
    fn distance(&mut self, letters: &[char], other: &str, max: usize) -> Option<usize> {
        self.other.clear();
        self.other.extend(other.chars());
        self.last.clear();
        self.last.extend(0..=self.other.len());
        self.before_last.clone_from(&self.last);
        for (at, letter) in letters.iter().enumerate() {
            self.row.clear();
            self.row.push(at + 1);
            for (place, found) in self.other.iter().enumerate() {
                let replaced = self.last[place] + usize::from(letter != found);
                let mut least = replaced.min(self.last[place + 1] + 1).min(self.row[place] + 1);
                if at > 0 && place > 0 && *letter == self.other[place - 1] && letters[at - 1] == *found {
                    least = least.min(self.before_last[place - 1] + 1);
                }
                self.row.push(least);
            }
            if self.row.iter().all(|distance| *distance > max) {
                return None;
            }
            std::mem::swap(&mut self.before_last, &mut self.last);
            std::mem::swap(&mut self.last, &mut self.row);
        }
        self.last.last().copied().filter(|distance| *distance <= max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(word: &str, terms: &[&'static str], max: Option<usize>, prefix_length: usize) -> Vec<&'static str> {
        misspellings(word, terms.iter().copied(), Edits { max, prefix_length }).into_iter().map(|(term, _)| term).collect()
    }

    #[test]
    fn every_kind_of_edit_counts_one() {
        let terms = ["spielberg", "spielbrg", "spielxerg", "spielberrg", "speilberg", "spilbreg", "moon"];
        assert_eq!(found("spielberg", &terms, Some(0), 0), ["spielberg"]);
        assert_eq!(found("spielberg", &terms, Some(1), 0), ["spielberg", "speilberg", "spielberrg", "spielbrg", "spielxerg"]);
        assert_eq!(found("spielberg", &terms, None, 0)[5..], ["spilbreg"]);
        assert_eq!(found("spielberg", &terms, Some(1), 3), ["spielberg", "spielberrg", "spielbrg", "spielxerg"]);
    }

    #[test]
    fn letters_are_counted_not_bytes() {
        assert_eq!(found("žluť", &["zluť", "žlut", "zlut", "žluťx"], Some(1), 0), ["zluť", "žlut", "žluťx"]);
        assert_eq!(found("東京", &["東亰", "東"], Some(1), 1), ["東亰"], "half of two letters is worth something, all of one is not");
    }

    #[test]
    fn a_nearer_word_is_worth_more() {
        let worth = misspellings("comet", ["comets", "comet", "comic"].into_iter(), Edits { max: Some(2), prefix_length: 0 });
        assert_eq!(worth, [("comet", 1.0), ("comets", 0.8), ("comic", 0.6)]);
        assert_eq!(misspellings("abcdef", ["abcdef", "abcdef"].into_iter(), Edits::default()).len(), 1);
    }
}
