//! `judge(model, question, golds, answer [, prompts, max_tokens])`: whether an answer is correct, as a language model says that is shown the gold answers;
//! `judge_reply` of the same arguments: what the model wrote.
//!
//! A verdict that could not be read is NULL and never 0, so that an evaluation can count how many there are.

use std::fmt::Debug;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, StringArray};
use arrow::datatypes::{DataType, Float64Type};
use async_trait::async_trait;
use datafusion::error::Result;
use datafusion::logical_expr::ScalarUDF;
use datafusion::scalar::ScalarValue;

use crate::Error;
use crate::arguments::Arguments;
use crate::function::{Interface, Kind, Parameter};

use super::ModelRuntime;
use super::call::{ModelCall, required_model, udf};
use super::distinct::Distinct;

pub(crate) static JUDGE: Interface = Interface {
    name: "judge",
    section: super::SECTION,
    description: "1 if a language model, shown the gold answers, says that the answer is correct, 0 if it says that it is wrong. NULL if its verdict cannot be \
        read (it is asked once more, less greedily) or if it cannot read all that it is asked: `count(*) - count(verdict)` of an evaluation says how often. Equal \
        cases are judged once. An answer that is NULL or blank is wrong without being judged; NULL without a question or a gold answer.",
    parameters: PARAMETERS,
    required: 4,
    example: ("SELECT judge('gpt4o', 'When was Ada Lovelace born?', ARRAY['1815', '10 December 1815'], 'In the year 1815.')", "1"),
};

pub(crate) static JUDGE_REPLY: Interface = Interface {
    name: "judge_reply",
    section: super::SECTION,
    description: "What the model of `judge` wrote, its reasons and its verdict; of a verdict that could not be read, the last try. The model is not asked again for \
        what it was just asked. NULL where it is not asked.",
    parameters: PARAMETERS,
    required: 4,
    example: ("SELECT judge_reply('gpt4o', 'When was Ada Lovelace born?', '1815', 'In 1852.')", "a text"),
};

const PARAMETERS: &[Parameter] = &[
    Parameter { name: "model", kind: Kind::Text, description: "Name of a generating model, `name` or `name@version`; a constant." },
    Parameter { name: "question", kind: Kind::Text, description: "The question." },
    Parameter { name: "golds", kind: Kind::Texts, description: "The gold answer, or an array of them, any one of which is enough." },
    Parameter { name: "answer", kind: Kind::Text, description: "The answer to judge." },
    Parameter {
        name: "prompts",
        kind: Kind::Text,
        description: "Prompt set of `rollout.prompts`, protocol judge, state answer; 'default' unless given; a constant.",
    },
    Parameter {
        name: "max_tokens",
        kind: Kind::Integer,
        description: "Most tokens of a reply, 1 or more; 256 unless given; a constant. A model that thinks before it speaks needs more.",
    },
];

const DEFAULT_PROMPTS: &str = "default";

/// A reason of two sentences and a verdict.
const DEFAULT_MAX_TOKENS: usize = 256;

/// Reads what models say of answers.
#[async_trait]
pub trait AnswerJudge: Send + Sync + Debug {
    /// One ruling per case, in their order.
    async fn rule(&self, model: &str, cases: &[JudgedAnswer<'_>], options: &JudgeOptions) -> Result<Vec<Ruling>>;
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JudgeOptions {
    /// Name of the set of prompts.
    pub prompts: String,
    /// Most tokens of a reply, >= 1.
    pub max_tokens: usize,
}

/// What came of a case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ruling {
    /// None if it could not be read.
    pub is_correct: Option<bool>,
    /// The reply that was read, or the last one; None if the model cannot read what it would have been asked.
    pub reply: Option<String>,
}

pub(crate) fn functions(runtime: &Arc<dyn ModelRuntime>, judge: &Arc<dyn AnswerJudge>) -> [ScalarUDF; 2] {
    [Output::Verdict, Output::Reply].map(|output| udf(Judge { judge: Arc::clone(judge), output }, Arc::clone(runtime)))
}

#[derive(Debug)]
struct Judge {
    judge: Arc<dyn AnswerJudge>,
    output: Output,
}

#[derive(Debug, Clone, Copy)]
enum Output {
    Verdict,
    Reply,
}

#[async_trait]
impl ModelCall for Judge {
    fn interface(&self) -> &'static Interface {
        match self.output {
            Output::Verdict => &JUDGE,
            Output::Reply => &JUDGE_REPLY,
        }
    }

    fn return_type(&self, _: &dyn ModelRuntime, _: &str, _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(match self.output {
            Output::Verdict => DataType::Float64,
            Output::Reply => DataType::Utf8,
        })
    }

    async fn call(&self, runtime: &dyn ModelRuntime, arguments: &Arguments<'_>) -> Result<ArrayRef> {
        let (questions, golds, answers) = (arguments.text(1)?, arguments.texts(2)?, arguments.text(3)?);
        let rows = || 0..arguments.num_rows();
        let golds: Vec<Option<Vec<&str>>> = rows().map(|row| golds.get(row).filter(|golds| !golds.is_empty())).collect();
        let answer = |row| answers.get(row).filter(|answer| !answer.trim().is_empty());
        let case = |row: usize| {
            let (question, golds) = questions.get(row).zip(golds[row].as_deref())?;
            Some(JudgedAnswer { question, golds, answer: answer(row)? })
        };
        let distinct = Distinct::new(rows().map(case));
        let rulings = match distinct.inputs.as_slice() {
            [] => Vec::new(),
            cases => {
                let (model, options) = (required_model(arguments)?, options(arguments)?);
                runtime.note_repeats(distinct.num_repeats());
                self.judge.rule(&model, cases, &options).await?
            }
        };
        let name = self.interface().name;
        if let Output::Reply = self.output {
            return distinct.scatter(name, &rulings.iter().map(|ruling| ruling.reply.as_deref()).collect::<StringArray>());
        }
        let verdicts = rulings.iter().map(|ruling| ruling.is_correct.map(f64::from)).collect::<Float64Array>();
        let verdicts = distinct.scatter(name, &verdicts)?;
        let verdicts = verdicts.as_primitive::<Float64Type>();
        // No answer is a wrong one, as in the other metrics: else an average would reward a policy that stays silent.
        let is_silence = |row: usize| questions.get(row).is_some() && golds[row].is_some() && answer(row).is_none();
        let verdict = |row: usize| if is_silence(row) { Some(0.0) } else { verdicts.is_valid(row).then(|| verdicts.value(row)) };
        Ok(Arc::new(rows().map(verdict).collect::<Float64Array>()))
    }
}

fn options(arguments: &Arguments) -> Result<JudgeOptions> {
    let given = |index: usize| arguments.has(index).then_some(index);
    let prompts = given(4).map(|index| arguments.constant_text(index)).transpose()?.flatten();
    let max_tokens = given(5).map(|index| constant_max_tokens(arguments, index)).transpose()?.flatten();
    Ok(JudgeOptions {
        prompts: prompts.unwrap_or_else(|| DEFAULT_PROMPTS.to_owned()),
        max_tokens: max_tokens.unwrap_or(DEFAULT_MAX_TOKENS),
    })
}

/// The number of a call with at least one row; None if it is NULL.
fn constant_max_tokens(arguments: &Arguments, index: usize) -> Result<Option<usize>> {
    let column = arguments.integer(index)?;
    let found = column.get(0);
    if !column.is_constant() && (1..arguments.num_rows()).any(|row| column.get(row) != found) {
        let function = arguments.interface.name;
        return Err(Error::NotConstant { function, argument: "max_tokens", reason: "but its rows differ" }.into());
    }
    let refused = |found| arguments.interface.argument_error(index, found, "1 or more");
    let count = |found: i64| usize::try_from(found).ok().filter(|count| *count > 0).ok_or_else(|| refused(found));
    Ok(found.map(count).transpose()?)
}
