//! What makes two answers equal, and what their words are: the definitions of published systems, side by side.

use datafusion::error::Result;
use serde::{Deserialize, Serialize};
use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory};

use super::word::word;
use crate::arguments::Arguments;

/// Whose definition a score follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Variant {
    /// SQuAD's, the default: [`Variant::FlashRag`], but a gold answer that normalises to nothing is in no other text.
    #[default]
    Squad,
    /// FlashRAG's (arXiv:2405.13576): lower case, no ASCII punctuation, no articles, single spaces; `yes`, `no` and `noanswer`
    /// have no word in common with anything else.
    FlashRag,
    /// ProRAG's (arXiv:2601.21912): lower case and nothing else.
    ProRag,
    /// R3-RAG's (arXiv:2505.23794): lower case, no articles, single spaces, and then no ASCII punctuation: the gaps that it
    /// leaves stay, so `paris .` is not `paris`.
    R3Rag,
    /// Of ReasonRAG's script for rewards (arXiv:2505.14069): as [`Variant::FlashRag`] with the articles, and without the rule for `yes` and `no`.
    ReasonRag,
}

/// Those that have exact match and word overlap.
pub(super) const ALL: &[(&str, Variant)] = &[
    ("squad", Variant::Squad),
    ("flashrag", Variant::FlashRag),
    ("prorag", Variant::ProRag),
    ("r3rag", Variant::R3Rag),
    ("reasonrag", Variant::ReasonRag),
];

impl Variant {
    /// Those that have exact match and word overlap, by name.
    pub const ALL: &'static [(&'static str, Self)] = ALL;

    /// The variant that argument `index` names, one of `known`; [`Variant::Squad`] if it is NULL or not given.
    pub(super) fn of(arguments: &Arguments, index: usize, known: &[(&'static str, Self)]) -> Result<Self> {
        Ok(word(arguments, index, known)?.unwrap_or_default())
    }

    /// The form in which answers are compared.
    pub fn normalize(self, text: &str) -> String {
        let lower = text.to_lowercase();
        match self {
            Self::Squad | Self::FlashRag => single_spaces(&without_articles(&without_punctuation(&lower))),
            Self::ProRag => lower,
            Self::R3Rag => without_punctuation(&single_spaces(&without_articles(&lower))),
            Self::ReasonRag => single_spaces(&without_punctuation(&lower)),
        }
    }

    /// Whether `yes`, `no` and `noanswer` must match exactly: "no" is no partial credit for "no idea".
    pub(super) fn has_verdicts(self) -> bool {
        matches!(self, Self::Squad | Self::FlashRag)
    }
}

/// What white space separates.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(is_space).filter(|word| !word.is_empty())
}

fn single_spaces(text: &str) -> String {
    words(text).collect::<Vec<_>>().join(" ")
}

fn without_punctuation(text: &str) -> String {
    text.chars().filter(|c| !c.is_ascii_punctuation()).collect()
}

/// Replaces each article by one space, so that its neighbours do not grow together.
///
/// A word ends beside anything but a letter, a number and `_`.
fn without_articles(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    for piece in text.split_inclusive(|c| !is_word(c)) {
        let word = piece.trim_end_matches(|c| !is_word(c));
        kept.push_str(if matches!(word, "a" | "an" | "the") { " " } else { word });
        kept.push_str(&piece[word.len()..]);
    }
    kept
}

/// As `\w` of Python has it, in which the systems are written: the letters and numbers of Unicode's general categories. Vowel signs of Indic scripts
/// and letters in circles, which [`char::is_alphanumeric`] takes in too, are none.
fn is_word(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_alphanumeric() || c == '_';
    }
    matches!(c.general_category_group(), GeneralCategoryGroup::Letter | GeneralCategoryGroup::Number)
}

/// As Python's `str.split` has it: also the four separators of ASCII.
fn is_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{1c}'..='\u{1f}')
}

#[cfg(test)]
mod tests {
    use super::Variant::{FlashRag, ProRag, R3Rag, ReasonRag, Squad};

    #[test]
    fn each_is_kept_by_its_name() {
        for (name, variant) in super::ALL {
            assert_eq!(serde_json::to_value(variant).expect("a name"), *name);
        }
    }

    #[test]
    fn each_has_its_order() {
        let text = "  The U.S. of a .";
        let normalized = [Squad, FlashRag, ProRag, R3Rag, ReasonRag].map(|variant| variant.normalize(text));
        assert_eq!(normalized, ["us of", "us of", "  the u.s. of a .", "us of ", "the us of a"]);
    }

    /// Expected values by Python's `re`.
    #[test]
    fn an_article_goes_where_no_letter_or_number_is_beside_it() {
        let cases = [
            ("the_a", "thea"),
            ("théa", "théa"),
            ("the\u{301}", "\u{301}"),
            ("a\u{93f}", "\u{93f}"),
            ("a\u{905}", "a\u{905}"),
            ("Ⓐthe", "ⓐ"),
            ("the½", "the½"),
            ("theⅫ", "theⅻ"),
            ("an²", "an²"),
            ("a’an", "’"),
        ];
        for (text, expected) in cases {
            assert_eq!(FlashRag.normalize(text), expected, "{text:?}");
        }
    }
}
