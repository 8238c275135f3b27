//! The prompt sets of the question alone.

use crate::agent::prompts::PromptRow;
use crate::agent::protocol::State::{self, AnswerGeneration};

pub fn builtin() -> Vec<PromptRow> {
    PromptRow::sets("direct", &DEFAULT, &SHORT)
}

const SHORT: [(State, &str); 1] = [(AnswerGeneration, "Question: {question}\nAnswer:")];

const DEFAULT: [(State, &str); 1] = [(AnswerGeneration, DEFAULT_ANSWER_GENERATION)];

const DEFAULT_ANSWER_GENERATION: &str = "\
Answer the question. Write nothing but the answer, as short as possible: a name, a number, a date, yes or no.

Question: {question}
Answer:";
