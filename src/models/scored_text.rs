//! How a decoder with a score reads a prompt and the step that followed it. There is one way, for training and for scoring: a reward model that is trained on
//! texts of one form and asked about texts of another gives scores of something else.
//!
//! `prompt · step · end of text`: the tokens of the prompt as a policy reads it, then those of the step, encoded for itself, then the token that ends a text. The
//! score stands at the last token that is no padding, as transformers finds it. Where the end of text is the padding too, transformers would not see it, and it
//! is left out; that is what the reward trainer of TRL comes to.

use super::config::{DecoderConfig, OutputHead, ScoreConfig};
use super::tokenizer::Tokenizer;
use crate::error::{Error, Result};

/// The form of the texts of one model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScoredText {
    padding: Option<u32>,
    /// What stands behind a step.
    end: Option<u32>,
}

impl ScoredText {
    /// The form that a score was made for.
    pub fn new(tokenizer: &Tokenizer, score: ScoreConfig) -> Self {
        let padding = score.pad_token_id;
        Self { padding, end: tokenizer.eos_token_id().filter(|end| Some(*end) != padding) }
    }

    /// The form for a reward model that is trained from a model: the same if it has a score; of a policy the padding is that of its tokenizer, else the
    /// token that ends a text.
    pub fn of_base(config: &DecoderConfig, tokenizer: &Tokenizer) -> Self {
        let of_tokenizer = || ScoreConfig { pad_token_id: tokenizer.pad_token_id().or(tokenizer.eos_token_id()), ..ScoreConfig::default() };
        Self::new(
            tokenizer,
            match config.head {
                OutputHead::Score(score) => score,
                OutputHead::Vocabulary => of_tokenizer(),
            },
        )
    }

    /// The token that fills up shorter texts of a batch; the score stands before it.
    pub fn padding(self) -> Option<u32> {
        self.padding
    }

    /// The tokens of a step.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn step(self, tokenizer: &Tokenizer, step: &str) -> Result<Vec<u32>> {
        let mut ids = tokenizer.encode(step)?;
        ids.extend(self.end);
        self.trim(&mut ids);
        Ok(ids)
    }

    /// The tokens of a prompt and a step. If they are more than `max_tokens`, the prompt loses its beginning; `None` if the step alone is too long.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`]; [`Error::InvalidParameter`] if there is no token to score.
    pub fn sequence(self, tokenizer: &Tokenizer, prompt: &str, step: &str, max_tokens: usize) -> Result<Option<Vec<u32>>> {
        let step = self.step(tokenizer, step)?;
        let Some(room) = max_tokens.checked_sub(step.len()) else { return Ok(None) };
        let prompt = tokenizer.encode_prompt(prompt)?;
        let mut ids = prompt[prompt.len().saturating_sub(room)..].to_vec();
        ids.extend(step);
        // Of a step without a token the score is that of the prompt.
        self.trim(&mut ids);
        if ids.is_empty() {
            return Err(Error::InvalidParameter {
                name: "texts to score".to_owned(),
                found: "none that has a token".to_owned(),
                expected: "a text that is not empty".to_owned(),
            });
        }
        Ok(Some(ids))
    }

    /// What stands behind the score is not read.
    fn trim(self, ids: &mut Vec<u32>) {
        let len = ids.iter().rposition(|id| Some(*id) != self.padding).map_or(0, |last| last + 1);
        ids.truncate(len);
    }
}
