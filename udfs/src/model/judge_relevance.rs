//! `judge_relevance(model, question, step, passages [, prompts, max_tokens])`: how relevant is what a step found, as a language model says.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array};
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
use super::judging::{JudgedStep, MAX_TOKENS, MODEL, ModelJudge, options};

pub(crate) static INTERFACE: Interface = Interface {
    name: "judge_relevance",
    section: super::SECTION,
    description: "How relevant a language model says the passages are that a step found, 0 to 1: R3-RAG's reward of a step (arXiv:2505.23794) is \
        `relevance_reward` of it. The model is shown the question, what the policy wrote, and the first 512 characters of each passage; it is asked for 0 to 100. \
        0 without being asked if nothing was found. NULL if the grade cannot be read (it is asked once more, less greedily), if the model cannot read all that it \
        is asked, and for a NULL. Equal cases are judged once.",
    parameters: &[
        MODEL,
        Parameter { name: "question", kind: Kind::Text, description: "The question of the trajectory." },
        Parameter { name: "step", kind: Kind::Text, description: "What the policy wrote: its analysis, and the query." },
        Parameter {
            name: "passages",
            kind: Kind::TextList,
            description: "What the query found, best first; NULL, of a step without a search, gives NULL.",
        },
        Parameter {
            name: "prompts",
            kind: Kind::Text,
            description: "Prompt set of `rollout.prompts`, protocol judge, state relevance; 'default' unless given; a constant.",
        },
        MAX_TOKENS,
    ],
    required: 4,
    example: (
        "SELECT judge_relevance('gpt4o', 'Who made Jaws?', 'The director is missing. <query>director of Jaws</query>', ARRAY['Jaws is a film by Spielberg.'])",
        "0.9",
    ),
};

pub(crate) fn function(runtime: &Arc<dyn ModelRuntime>, judge: &Arc<dyn ModelJudge>) -> ScalarUDF {
    udf(JudgeRelevance { judge: Arc::clone(judge) }, Arc::clone(runtime))
}

#[derive(Debug)]
struct JudgeRelevance {
    judge: Arc<dyn ModelJudge>,
}

#[async_trait]
impl ModelCall for JudgeRelevance {
    fn interface(&self) -> &'static Interface {
        &INTERFACE
    }

    fn return_type(&self, _: &dyn ModelRuntime, _: &str, _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    async fn call(&self, runtime: &dyn ModelRuntime, arguments: &Arguments<'_>) -> Result<ArrayRef> {
        let (questions, steps, passages) = (arguments.text(1)?, arguments.text(2)?, arguments.texts(3)?);
        let rows = || 0..arguments.num_rows();
        let passages: Vec<Option<Vec<&str>>> = rows().map(|row| passages.get(row)).collect();
        let written = |row: usize| questions.get(row).zip(steps.get(row));
        let case = |row: usize| {
            let ((question, step), passages) = written(row).zip(passages[row].as_deref())?;
            (!passages.is_empty()).then_some(JudgedStep { question, step, passages })
        };
        let distinct = Distinct::new(rows().map(case));
        let rulings = match distinct.inputs.as_slice() {
            [] => Vec::new(),
            cases => {
                let (model, options) = (required_model(arguments)?, options(arguments)?);
                let rulings = self.judge.grade(&model, cases, &options).await?;
                runtime.note_repeats(distinct.num_repeats());
                rulings
            }
        };
        let grades = rulings.iter().map(|ruling| ruling.verdict).collect::<Float64Array>();
        let grades = distinct.scatter(INTERFACE.name, &grades)?;
        let grades = grades.as_primitive::<Float64Type>();
        // A search that found nothing was of no use; to leave it out of an average would spare a policy its worst queries.
        let is_in_vain = |row: usize| written(row).is_some() && passages[row].as_ref().is_some_and(Vec::is_empty);
        let grade = |row: usize| if is_in_vain(row) { Some(0.0) } else { grades.is_valid(row).then(|| grades.value(row)) };
        Ok(Arc::new(rows().map(grade).collect::<Float64Array>()))
    }
}
