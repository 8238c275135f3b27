//! `judge(model, question, golds, answer [, prompts, max_tokens])`: whether an answer is correct, as a language model says that is shown the gold answers;
//! `judge_reply` of the same arguments: what the model wrote.
//!
//! A verdict that could not be read is NULL and never 0, so that an evaluation can count how many there are.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, StringArray};
use arrow::datatypes::{DataType, Float64Type};
use async_trait::async_trait;
use datafusion::error::Result;
use datafusion::logical_expr::ScalarUDF;
use datafusion::scalar::ScalarValue;

use crate::arguments::Arguments;
use crate::function::{Interface, Kind, Parameter};

use super::ModelRuntime;
use super::call::{ModelCall, required_model, udf};
use super::distinct::Distinct;
use super::judging::{JudgedAnswer, MAX_TOKENS, MODEL, ModelJudge, options};

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
    MODEL,
    Parameter { name: "question", kind: Kind::Text, description: "The question." },
    Parameter { name: "golds", kind: Kind::Texts, description: "The gold answer, or an array of them, any one of which is enough." },
    Parameter { name: "answer", kind: Kind::Text, description: "The answer to judge." },
    Parameter {
        name: "prompts",
        kind: Kind::Text,
        description: "Prompt set of `rollout.prompts`, protocol judge, state answer; 'default' unless given; a constant.",
    },
    MAX_TOKENS,
];

pub(crate) fn functions(runtime: &Arc<dyn ModelRuntime>, judge: &Arc<dyn ModelJudge>) -> [ScalarUDF; 2] {
    [Output::Verdict, Output::Reply].map(|output| udf(Judge { judge: Arc::clone(judge), output }, Arc::clone(runtime)))
}

#[derive(Debug)]
struct Judge {
    judge: Arc<dyn ModelJudge>,
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
                let rulings = self.judge.rule(&model, cases, &options).await?;
                runtime.note_repeats(distinct.num_repeats());
                rulings
            }
        };
        let name = self.interface().name;
        if let Output::Reply = self.output {
            return distinct.scatter(name, &rulings.iter().map(|ruling| ruling.reply.as_deref()).collect::<StringArray>());
        }
        let verdicts = rulings.iter().map(|ruling| ruling.verdict).collect::<Float64Array>();
        let verdicts = distinct.scatter(name, &verdicts)?;
        let verdicts = verdicts.as_primitive::<Float64Type>();
        // No answer is a wrong one, as in the other metrics: else an average would reward a policy that stays silent.
        let is_silence = |row: usize| questions.get(row).is_some() && golds[row].is_some() && answer(row).is_none();
        let verdict = |row: usize| if is_silence(row) { Some(0.0) } else { verdicts.is_valid(row).then(|| verdicts.value(row)) };
        Ok(Arc::new(rows().map(verdict).collect::<Float64Array>()))
    }
}
