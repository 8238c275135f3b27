//! The prompt sets of chain of thought.

use crate::agent::prompts::PromptRow;
use crate::agent::protocol::State::{self, AnswerGeneration, BeginReasoning};

pub fn builtin() -> Vec<PromptRow> {
    PromptRow::sets("cot", &DEFAULT, &SHORT)
}

const SHORT: [(State, &str); 2] = [
    (BeginReasoning, "Question: {question}\nThought:"),
    (AnswerGeneration, "Question: {question}\nThought: {thoughts}\nSo the answer is:"),
];

const DEFAULT: [(State, &str); 2] = [(BeginReasoning, DEFAULT_BEGIN_REASONING), (AnswerGeneration, DEFAULT_ANSWER_GENERATION)];

const DEFAULT_BEGIN_REASONING: &str = "\
Answer the question. Think first, in a few short sentences, one step after the other, and then end with the answer, as short as \
possible, a name, a number, a date, yes or no, in this form:
So the answer is: the answer

Question: {question}
Thought:";

const DEFAULT_ANSWER_GENERATION: &str = "\
Answer the question now from what was thought about it. Write nothing but the answer, as short as possible: a name, a number, a date, \
yes or no.

Question: {question}
Thought: {thoughts}
So the answer is:";
