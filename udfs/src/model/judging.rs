//! What the functions have in common by which a language model judges.

use std::fmt::Debug;

use async_trait::async_trait;
use datafusion::error::Result;

use crate::arguments::Arguments;
use crate::function::{Kind, Parameter};

const DEFAULT_PROMPTS: &str = "default";

/// A reason of two sentences and a verdict.
const DEFAULT_MAX_TOKENS: usize = 256;

pub(super) const MODEL: Parameter =
    Parameter { name: "model", kind: Kind::Text, description: "Name of a generating model, `name` or `name@version`; a constant." };

pub(super) const MAX_TOKENS: Parameter = Parameter {
    name: "max_tokens",
    kind: Kind::Integer,
    description: "Most tokens of a reply, 1 or more; 256 unless given; a constant. A model that thinks before it speaks needs more.",
};

/// Asks a model, and reads what it says.
#[async_trait]
pub trait ModelJudge: Send + Sync + Debug {
    /// Whether answers are correct, 1 or 0. One ruling per case, in their order.
    async fn rule(&self, model: &str, cases: &[JudgedAnswer<'_>], options: &JudgeOptions) -> Result<Vec<Ruling>>;

    /// How relevant is what steps found, 0 to 1. One ruling per case, in their order.
    async fn grade(&self, model: &str, cases: &[JudgedStep<'_>], options: &JudgeOptions) -> Result<Vec<Ruling>>;
}

/// An answer to be judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct JudgedAnswer<'a> {
    pub question: &'a str,
    /// At least one.
    pub golds: &'a [&'a str],
    /// Not blank.
    pub answer: &'a str,
}

/// A step that searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct JudgedStep<'a> {
    pub question: &'a str,
    /// What the policy wrote.
    pub step: &'a str,
    /// What it found, best first; at least one.
    pub passages: &'a [&'a str],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JudgeOptions {
    /// Name of the set of prompts.
    pub prompts: String,
    /// Most tokens of a reply, >= 1.
    pub max_tokens: usize,
}

/// What came of a case.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ruling {
    /// None if it could not be read.
    pub verdict: Option<f64>,
    /// The reply that was read, or the last one; None if the model cannot read what it would have been asked.
    pub reply: Option<String>,
}

/// Those of a call whose arguments 4 and 5 are the prompts and `max_tokens`.
pub(super) fn options(arguments: &Arguments) -> Result<JudgeOptions> {
    let given = |index: usize| arguments.has(index).then_some(index);
    let prompts = given(4).map(|index| arguments.constant_text(index)).transpose()?.flatten();
    let max_tokens = given(5).map(|index| arguments.constant_integer(index)).transpose()?.flatten();
    let max_tokens = max_tokens.map(|found| arguments.interface.positive(5, found)).transpose()?;
    Ok(JudgeOptions {
        prompts: prompts.unwrap_or_else(|| DEFAULT_PROMPTS.to_owned()),
        max_tokens: max_tokens.unwrap_or(DEFAULT_MAX_TOKENS),
    })
}
