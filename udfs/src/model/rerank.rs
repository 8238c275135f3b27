//! `rerank(model, query, passage)`.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray, new_null_array};
use arrow::datatypes::DataType;
use async_trait::async_trait;
use datafusion::error::Result;
use datafusion::logical_expr::ScalarUDF;
use datafusion::scalar::ScalarValue;

use crate::arguments::Arguments;
use crate::function::{Interface, Kind, Parameter};

use super::ModelRuntime;
use super::call::{ModelCall, required_model, udf};
use super::distinct::Distinct;

pub(crate) static INTERFACE: Interface = Interface {
    name: "rerank",
    section: super::SECTION,
    description: "How well a passage answers a query, by a cross-encoder that reads both together, or how good a step is after its prompt, by a reward model; \
        larger is better, on the scale of the model. Equal pairs are scored once. NULL if either is NULL, and for a step that alone is too long for a reward \
        model.",
    parameters: &[
        Parameter { name: "model", kind: Kind::Text, description: "Name of a reranking model, `name` or `name@version`; a constant." },
        Parameter { name: "query", kind: Kind::Text, description: "The search query or question." },
        Parameter { name: "passage", kind: Kind::Text, description: "The text that may answer it." },
    ],
    required: 3,
    example: ("SELECT rerank('judge', 'who directed Jaws', 'Jaws is a film by Steven Spielberg')", "a score"),
};

pub(crate) fn function(runtime: Arc<dyn ModelRuntime>) -> ScalarUDF {
    udf(Rerank, runtime)
}

#[derive(Debug)]
struct Rerank;

#[async_trait]
impl ModelCall for Rerank {
    fn interface(&self) -> &'static Interface {
        &INTERFACE
    }

    fn return_type(&self, _: &dyn ModelRuntime, _: &str, _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    async fn call(&self, runtime: &dyn ModelRuntime, arguments: &Arguments<'_>) -> Result<ArrayRef> {
        let (queries, passages) = (arguments.text(1)?, arguments.text(2)?);
        let distinct = Distinct::new((0..arguments.num_rows()).map(|row| queries.get(row).zip(passages.get(row))));
        if distinct.inputs.is_empty() {
            return Ok(new_null_array(&DataType::Float64, arguments.num_rows()));
        }
        let (queries, passages): (Vec<&str>, Vec<&str>) = distinct.inputs.iter().copied().unzip();
        let model = required_model(arguments)?;
        let scores = runtime.rerank(&model, &StringArray::from(queries), &StringArray::from(passages)).await?;
        runtime.note_repeats(distinct.num_repeats());
        distinct.scatter(INTERFACE.name, &scores)
    }
}
