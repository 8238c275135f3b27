//! Weights of single tokens in the loss of a demonstration, by the texts that they write: ProRAG's SFT weighs its tags more than what is between them.

use std::ops::Range;

use serde_json::Value as Json;

use super::options::{invalid, text};
use crate::error::Result;
use crate::value::Value;

/// The name of ProRAG's weights in SQL.
const PRORAG: &str = "prorag";
/// Of ProRAG's fine-tuning (arXiv:2601.21912): the answer's tags, those of sub-questions and their answers, and the end of a step; all else weighs 1.
const PRORAG_WEIGHTS: &[(&str, f32)] = &[
    ("<answer>", 5.0),
    ("</answer>", 5.0),
    ("<subquery>", 3.0),
    ("</subquery>", 3.0),
    ("<subanswer>", 3.0),
    ("</subanswer>", 3.0),
    ("</step>", 2.0),
];

/// Texts, and the weight of the tokens that write them, 0 or more; any other token weighs 1.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TokenWeights(Vec<(String, f32)>);

impl TokenWeights {
    /// Reads `prorag`, or a JSON object of texts and weights.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`](crate::Error::InvalidParameter).
    pub(super) fn parse(name: &str, value: &Value) -> Result<Self> {
        let given = text(name, value)?;
        if given == PRORAG {
            return Ok(Self(PRORAG_WEIGHTS.iter().map(|(text, weight)| ((*text).to_owned(), *weight)).collect()));
        }
        let wrong = || {
            invalid(name, value, r#"'prorag', or a JSON object of texts and their weights, from 0 up: '{"<answer>": 5, "</answer>": 5}'"#)
        };
        let Ok(Json::Object(given)) = serde_json::from_str(given) else { return Err(wrong()) };
        let weight = |(text, weight): (String, Json)| {
            let weight = weight.as_f64().map(|weight| weight as f32).filter(|weight| *weight >= 0.0 && weight.is_finite());
            weight.filter(|_| !text.is_empty()).map(|weight| (text, weight))
        };
        let weights: Option<Vec<_>> = given.into_iter().map(weight).collect();
        weights.filter(|weights| !weights.is_empty()).map(Self).ok_or_else(wrong)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As they would be written, for who asks what was in force.
    pub fn to_json(&self) -> Json {
        self.0.iter().map(|(text, weight)| (text.clone(), Json::from(*weight))).collect::<serde_json::Map<_, _>>().into()
    }

    /// The weight of each token of `text`; `tokens`: where it stands there, in bytes. A token that has a part of one of the texts has its weight; of several the
    /// largest.
    pub fn of_tokens(&self, text: &str, tokens: &[Range<usize>]) -> Vec<f32> {
        let mut weights: Vec<Option<f32>> = vec![None; tokens.len()];
        for (part, weight) in &self.0 {
            for (start, _) in text.match_indices(part.as_str()) {
                let end = start + part.len();
                let touched = tokens.iter().zip(&mut weights).filter(|(token, _)| token.start < end && token.end > start);
                touched.for_each(|(_, known)| *known = Some(known.map_or(*weight, |known| known.max(*weight))));
            }
        }
        weights.into_iter().map(|weight| weight.unwrap_or(1.0)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(given: &str) -> Result<TokenWeights> {
        TokenWeights::parse("token_weights", &Value::Text(given.to_owned()))
    }

    #[test]
    fn tokens_weigh_what_the_texts_do_that_they_are_part_of() {
        let weights = parsed("prorag").expect("it is known");
        let text = "<step>a</step><answer>b</answer>";
        let tokens = [0..6, 6..7, 7..10, 10..14, 14..15, 15..22, 22..25, 25..32];
        assert_eq!(weights.of_tokens(text, &tokens), [1.0, 1.0, 2.0, 2.0, 5.0, 5.0, 5.0, 5.0], "22..25 is `b</`");
        assert_eq!(weights.of_tokens("no tag", &[0..2, 2..6]), [1.0, 1.0]);
        let own = parsed(r#"{"a": 0.5, "ab": 0.25, "c": 0}"#).expect("texts and weights");
        assert_eq!(own.of_tokens("xabc", &[0..1, 1..2, 2..3, 3..4]), [1.0, 0.5, 0.25, 0.0]);
        assert_eq!(TokenWeights::default().of_tokens("a", std::slice::from_ref(&(0..1))), [1.0]);
    }

    #[test]
    fn what_is_no_weight_is_refused() {
        for given in ["", "ProRAG", "5", "{}", "[1]", r#"{"": 1}"#, r#"{"a": -1}"#, r#"{"a": "5"}"#, r#"{"a": 1e300}"#, r#"{"a": null}"#] {
            assert!(parsed(given).is_err(), "{given}");
        }
        assert!(TokenWeights::parse("token_weights", &Value::Int(5)).is_err());
    }
}
