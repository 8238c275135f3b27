//! What a text search looks for: words, misspelt words, a phrase, or clauses that must, may and must not match.

use lance_index::scalar::inverted::query::{
    BooleanQuery, FtsQuery, MatchQuery, Occur as LanceOccur, Operator as LanceOperator, PhraseQuery,
};
use lance_index::scalar::inverted::tokenizer::document_tokenizer::LanceTokenizer;
use lance_tokenizer::TokenStream;

/// A query of a text search. Its texts are split by the analyzer of the index; what that leaves nothing of (stop words, punctuation) is ignored, so that
/// any text is a query.
#[derive(Debug, Clone, PartialEq)]
pub enum TextQuery {
    /// Rows with any, or with all, of the words.
    Words { words: String, operator: Operator },
    /// As [`Self::Words`], where a word of a row counts if few edits make it one of these.
    Fuzzy { words: String, operator: Operator, edits: Edits },
    /// Rows in which the words follow each other, with up to `slop` other words between each two.
    Phrase { words: String, slop: u32 },
    /// Rows that every [`Occur::Must`] matches and no [`Occur::MustNot`]; without a `Must`, those that some [`Occur::Should`] matches. The scores of the
    /// clauses add up. Clauses that only exclude match nothing.
    Boolean(Vec<Clause>),
}

/// How the words of a query combine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Operator {
    #[default]
    Or,
    And,
}

/// How far a word may be from one of the query. An edit inserts, removes or replaces a letter, or swaps two neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Edits {
    /// Most edits; when absent 0 for words of up to 2 letters, 1 up to 5, else 2.
    pub max: Option<usize>,
    /// Letters at the beginning that have to be the same.
    pub prefix_length: usize,
}

/// A part of [`TextQuery::Boolean`].
#[derive(Debug, Clone, PartialEq)]
pub struct Clause {
    pub occur: Occur,
    /// Words or a phrase.
    pub query: TextQuery,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occur {
    Must,
    Should,
    MustNot,
}

impl Edits {
    /// Most edits of a word of `num_letters`.
    pub(crate) fn of_word(self, num_letters: usize) -> usize {
        self.max.unwrap_or(match num_letters {
            0..=2 => 0,
            3..=5 => 1,
            _ => 2,
        })
    }
}

impl TextQuery {
    /// Reads `+film -book "exact phrase"~2 other`: a plus before what must match, a minus before what must not, quotes round a phrase, and after these
    /// `~` and its slop. The rest may match, or must if `operator` is [`Operator::And`]. Nothing is a mistake: a quote that is not closed ends with
    /// the text.
    #[must_use]
    pub fn boolean(text: &str, operator: Operator) -> Self {
        let default = match operator {
            Operator::Or => Occur::Should,
            Operator::And => Occur::Must,
        };
        let mut clauses = Vec::new();
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let (occur, after_sign) = match rest.chars().next() {
                Some('+') => (Occur::Must, &rest[1..]),
                Some('-') => (Occur::MustNot, &rest[1..]),
                _ => (default, rest),
            };
            let (query, after) = match after_sign.strip_prefix('"') {
                Some(quoted) => phrase(quoted),
                None => word(after_sign, occur),
            };
            clauses.push(Clause { occur, query });
            rest = after.trim_start();
        }
        Self::Boolean(clauses)
    }

    /// Whether words in memory answer it.
    pub(crate) fn is_bag_of_words(&self) -> bool {
        matches!(self, Self::Words { .. } | Self::Fuzzy { .. })
    }

    pub(crate) fn is_fuzzy(&self) -> bool {
        matches!(self, Self::Fuzzy { .. })
    }

    /// The query as Lance takes it; `None` if the analyzer leaves nothing to look for.
    pub(crate) fn to_lance(&self, column: &str, analyzer: &mut Box<dyn LanceTokenizer>) -> Option<FtsQuery> {
        let of_column = Some(column.to_owned());
        match self {
            Self::Words { words, operator } | Self::Fuzzy { words, operator, .. } => {
                let operator = match operator {
                    Operator::Or => LanceOperator::Or,
                    Operator::And => LanceOperator::And,
                };
                let is_empty = num_tokens(words, analyzer) == 0;
                (!is_empty).then(|| MatchQuery::new(words.clone()).with_column(of_column).with_operator(operator).into())
            }
            Self::Phrase { words, slop } => match num_tokens(words, analyzer) {
                0 => None,
                1 => Some(MatchQuery::new(words.clone()).with_column(of_column).into()),
                _ => Some(PhraseQuery::new(words.clone()).with_column(of_column).with_slop(*slop).into()),
            },
            Self::Boolean(clauses) => {
                let clauses = clauses.iter().filter_map(|clause| Some((clause.occur, clause.query.to_lance(column, analyzer)?)));
                let clauses: Vec<(Occur, FtsQuery)> = clauses.collect();
                let has_positive = clauses.iter().any(|(occur, _)| *occur != Occur::MustNot);
                let clauses = clauses.into_iter().map(|(occur, query)| (occur.to_lance(), query));
                has_positive.then(|| BooleanQuery::new(clauses).into())
            }
        }
    }
}

impl Occur {
    fn to_lance(self) -> LanceOccur {
        match self {
            Self::Must => LanceOccur::Must,
            Self::Should => LanceOccur::Should,
            Self::MustNot => LanceOccur::MustNot,
        }
    }
}

/// Whether it takes the positions of words to answer.
pub(crate) fn has_phrase(query: &FtsQuery) -> bool {
    match query {
        FtsQuery::Phrase(_) => true,
        FtsQuery::Boolean(BooleanQuery { should, must, must_not }) => should.iter().chain(must).chain(must_not).any(has_phrase),
        _ => false,
    }
}

/// The phrase up to the closing quote, and what comes after it and its slop.
fn phrase(text: &str) -> (TextQuery, &str) {
    let (words, after) = text.split_once('"').unwrap_or((text, ""));
    let digits = after.strip_prefix('~').map_or("", |after| &after[..after.bytes().take_while(u8::is_ascii_digit).count()]);
    let (slop, after) = match digits.parse() {
        Ok(slop) => (slop, &after[1 + digits.len()..]),
        Err(_) => (0, after),
    };
    (TextQuery::Phrase { words: words.to_owned(), slop }, after)
}

/// The word up to white space or a quote. The analyzer may split it (`well-known`): a sign before it then stands before all its parts.
fn word(text: &str, occur: Occur) -> (TextQuery, &str) {
    let end = text.find(|letter: char| letter.is_whitespace() || letter == '"').unwrap_or(text.len());
    let operator = if occur == Occur::Should { Operator::Or } else { Operator::And };
    (TextQuery::Words { words: text[..end].to_owned(), operator }, &text[end..])
}

fn num_tokens(words: &str, analyzer: &mut Box<dyn LanceTokenizer>) -> usize {
    let mut stream = analyzer.token_stream_for_search(words);
    std::iter::from_fn(|| stream.advance().then_some(())).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clauses(text: &str) -> Vec<String> {
        let TextQuery::Boolean(clauses) = TextQuery::boolean(text, Operator::Or) else { panic!("a boolean query") };
        let show = |clause: Clause| {
            let occur = match clause.occur {
                Occur::Must => "+",
                Occur::Should => "",
                Occur::MustNot => "-",
            };
            match clause.query {
                TextQuery::Phrase { words, slop } => format!("{occur}[{words}]~{slop}"),
                TextQuery::Words { words, .. } => format!("{occur}{words}"),
                other => panic!("{other:?}"),
            }
        };
        clauses.into_iter().map(show).collect()
    }

    #[test]
    fn signs_quotes_and_slop_are_read_and_nothing_is_a_mistake() {
        assert_eq!(clauses("+film -book  other"), ["+film", "-book", "other"]);
        assert_eq!(clauses("\"exact phrase\" +\"a b\"~2 -\"c d\""), ["[exact phrase]~0", "+[a b]~2", "-[c d]~0"]);
        assert_eq!(clauses("well-known +-"), ["well-known", "+-"]);
        assert_eq!(clauses("\"not closed"), ["[not closed]~0"]);
        assert_eq!(clauses("\"a b\"~x \"c\"~ tail"), ["[a b]~0", "~x", "[c]~0", "~", "tail"]);
        assert_eq!(clauses("東京\"a\"é"), ["東京", "[a]~0", "é"]);
        assert_eq!(clauses(" \t"), Vec::<String>::new());
        assert_eq!(clauses("\"a b\"~99999999999"), ["[a b]~0", "~99999999999"]);
    }

    #[test]
    fn words_of_more_letters_may_have_more_edits() {
        let edits = Edits::default();
        assert_eq!([2, 3, 5, 6].map(|letters| edits.of_word(letters)), [0, 1, 1, 2]);
        assert_eq!(Edits { max: Some(1), prefix_length: 0 }.of_word(20), 1);
    }
}
