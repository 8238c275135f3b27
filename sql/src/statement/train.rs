//! `TRAIN DPO MODEL new FROM base USING (SELECT ...)`.
//!
//! `DRY RUN` and `ASYNC` stand at the end, one of them at most: a dry run answers at once.

use std::fmt;

use crate::ast::Query;
use crate::error::{Error, Result};
use crate::name::{Name, Reference};
use crate::options::Options;
use crate::parser::Parser;
use crate::suggest::did_you_mean;

/// `TRAIN method MODEL new FROM base USING (SELECT ...) [VALIDATE USING (SELECT ...)] [WITH (name = value, ...)] [DRY RUN]`
#[derive(Debug, Clone, PartialEq)]
pub struct Train {
    pub method: TrainMethod,
    /// The model that gets the new version.
    pub model: String,
    /// The model or version to start from: `policy`, `policy@3`.
    pub base: String,
    /// The examples.
    pub query: Box<Query>,
    /// Examples that are only measured.
    pub validate: Option<Box<Query>>,
    pub options: Options,
    /// Say what the training would take, and train nothing.
    pub dry_run: bool,
}

/// How to learn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TrainMethod {
    /// Supervised fine-tuning.
    Sft,
    /// Direct preference optimisation (arXiv:2305.18290).
    Dpo,
    /// A process reward model.
    Prm,
    /// Rejection-sampling fine-tuning.
    Rft,
    /// Group-relative policy optimisation (arXiv:2402.03300).
    Grpo,
    /// Proximal policy optimisation (arXiv:1707.06347).
    Ppo,
}

impl TrainMethod {
    /// Every method, in the order of the manual.
    pub const ALL: [Self; 6] = [Self::Sft, Self::Dpo, Self::Prm, Self::Rft, Self::Grpo, Self::Ppo];

    /// The word for it in SQL: `DPO`.
    pub const fn keyword(self) -> &'static str {
        match self {
            Self::Sft => "SFT",
            Self::Dpo => "DPO",
            Self::Prm => "PRM",
            Self::Rft => "RFT",
            Self::Grpo => "GRPO",
            Self::Ppo => "PPO",
        }
    }

    fn parse(parser: &mut Parser) -> Result<Self> {
        let keywords = Self::ALL.map(Self::keyword);
        match Self::ALL.into_iter().find(|method| parser.eat(method.keyword())) {
            Some(method) => Ok(method),
            None => {
                let hint = parser.peek_word(0).map(|word| did_you_mean(&word, &keywords)).unwrap_or_default();
                Err(parser.expected(&format!("a training method ({}){hint}", keywords.join(", "))))
            }
        }
    }
}

impl Train {
    pub(crate) fn parse(parser: &mut Parser) -> Result<Self> {
        parser.expect("TRAIN")?;
        let method = TrainMethod::parse(parser)?;
        parser.expect("MODEL")?;
        let model = parser.new_name("the new model's name")?;
        parser.expect("FROM")?;
        let base = parser.reference("the name of the model to start from")?;
        parser.expect("USING")?;
        let query = parser.parenthesized_query("a query that gives examples")?;
        let validate = parse_validate(parser)?;
        let options = Options::parse_with(parser)?;
        let dry_run = parse_dry_run(parser)?;
        Ok(Self { method, model, base, query, validate, options, dry_run })
    }
}

fn parse_dry_run(parser: &mut Parser) -> Result<bool> {
    if !parser.eat("DRY") {
        return Ok(false);
    }
    parser.expect("RUN")?;
    if parser.is_at("ASYNC") {
        return Err(Error::not_supported_but("TRAIN ... DRY RUN ASYNC", "a dry run answers at once; leave out ASYNC"));
    }
    Ok(true)
}

fn parse_validate(parser: &mut Parser) -> Result<Option<Box<Query>>> {
    if !parser.eat("VALIDATE") {
        return Ok(None);
    }
    parser.expect("USING")?;
    parser.parenthesized_query("a query that gives examples to measure on").map(Some)
}

impl fmt::Display for TrainMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.keyword())
    }
}

impl fmt::Display for Train {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, model, base, query, validate, options, dry_run } = self;
        write!(f, "TRAIN {method} MODEL {} FROM {} USING ({query})", Name(model), Reference(base))?;
        if let Some(query) = validate {
            write!(f, " VALIDATE USING ({query})")?;
        }
        write!(f, "{}", options.display_with())?;
        f.write_str(if *dry_run { " DRY RUN" } else { "" })
    }
}
