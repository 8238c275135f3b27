//! Phrases of three and more words with other words between them.
//!
//! Lance misses some of their rows: when the last words of a phrase are far from the first, it moves all positions on at once, over good ones (lance-index
//! 14.0.2, `src/scalar/inverted/wand.rs`, `check_positions`). So it is asked for all words, and the texts that it finds are read here.

use lance_index::scalar::inverted::tokenizer::document_tokenizer::LanceTokenizer;
use lance_tokenizer::TokenStream;

use super::text_query::{Clause, TextQuery};
use crate::{Error, Result};

#[derive(Debug)]
pub(crate) struct LoosePhrase {
    /// The words as the analyzer leaves them, and their places among all.
    words: Vec<(String, usize)>,
    slop: usize,
}

impl LoosePhrase {
    /// `None` for every other query, and for phrases that Lance finds.
    ///
    /// # Errors
    /// [`Error::NotSupported`] inside of a boolean query.
    pub(crate) fn of(query: &TextQuery, analyzer: &mut Box<dyn LanceTokenizer>) -> Result<Option<Self>> {
        match query {
            TextQuery::Phrase { words, slop } if *slop > 0 => {
                let words = tokens(analyzer.token_stream_for_search(words));
                Ok((words.len() > 2).then_some(Self { words, slop: *slop as usize }))
            }
            TextQuery::Boolean(clauses) => {
                for Clause { query, .. } in clauses {
                    if Self::of(query, analyzer)?.is_some() {
                        let reason =
                            "a phrase of three or more words with ~ is not supported in a boolean query; search for it in mode 'phrase'";
                        return Err(Error::NotSupported(reason.to_owned()));
                    }
                }
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// Whether the words follow each other in a text, with up to `slop` others between each two.
    pub(crate) fn is_in(&self, text: &str, analyzer: &mut Box<dyn LanceTokenizer>) -> bool {
        let text = tokens(analyzer.token_stream_for_doc(text));
        let Some((first, _)) = self.words.first() else { return false };
        let mut ends: Vec<usize> = places(&text, first).collect();
        for pair in self.words.windows(2) {
            let [(_, before), (word, place)] = pair else { return false };
            let step = place - before;
            let follows = |place: &usize| ends.iter().any(|end| (end + step..=end + step + self.slop).contains(place));
            ends = places(&text, word).filter(follows).collect();
        }
        !ends.is_empty()
    }
}

fn places<'a>(text: &'a [(String, usize)], word: &'a str) -> impl Iterator<Item = usize> + 'a {
    text.iter().filter(move |(other, _)| other == word).map(|(_, place)| *place)
}

fn tokens(mut stream: lance_tokenizer::BoxTokenStream<'_>) -> Vec<(String, usize)> {
    let mut tokens = Vec::new();
    while stream.advance() {
        tokens.push((stream.token().text.clone(), stream.token().position));
    }
    tokens
}

#[cfg(test)]
mod tests {
    use lance_index::scalar::InvertedIndexParams;

    use super::*;

    #[test]
    fn good_places_after_bad_ones_are_found() {
        let mut analyzer = InvertedIndexParams::default().build().unwrap();
        let phrase = |words: &str, slop| TextQuery::Phrase { words: words.to_owned(), slop };
        let loose = LoosePhrase::of(&phrase("sun moon star", 2), &mut analyzer).unwrap().unwrap();
        let mut is_in = |text: &str| loose.is_in(text, &mut analyzer);
        assert!(is_in("sun x moon x x x sun x x moon x x star"));
        assert!(!is_in("sun x x x moon star"));
        assert!(!is_in("moon sun star"));
        assert!(!is_in(""));
        assert!(LoosePhrase::of(&phrase("sun moon star", 0), &mut analyzer).unwrap().is_none());
        assert!(LoosePhrase::of(&phrase("sun moon", 2), &mut analyzer).unwrap().is_none());
    }
}
