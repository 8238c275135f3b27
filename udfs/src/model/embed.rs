//! `embed(model, input [, kind])`.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, StringArray, new_null_array};
use arrow::datatypes::DataType;
use async_trait::async_trait;
use datafusion::error::Result;
use datafusion::logical_expr::ScalarUDF;
use datafusion::scalar::ScalarValue;

use crate::Error;
use crate::arguments::Arguments;
use crate::function::{Interface, Kind, Parameter};
use crate::vector::vector_type;

use super::call::{ModelCall, required_model, udf};
use super::distinct::Distinct;
use super::{EmbedKind, ModelRuntime};

pub(crate) static INTERFACE: Interface = Interface {
    name: "embed",
    section: super::SECTION,
    description: "The embedding of a text as a vector as wide as the model's. Equal texts are embedded once. NULL for NULL.",
    parameters: &[
        Parameter { name: "model", kind: Kind::Text, description: "Name of an embedding model, `name` or `name@version`; a constant." },
        Parameter { name: "input", kind: Kind::Text, description: "The text." },
        Parameter { name: "kind", kind: Kind::Text, description: "What the text is, 'passage' (the default) or 'query'; a constant." },
    ],
    required: 2,
    example: ("SELECT embed('minilm', 'who directed Jaws', kind => 'query')", "a vector(384)"),
};

pub(crate) fn function(runtime: Arc<dyn ModelRuntime>) -> ScalarUDF {
    udf(Embed, runtime)
}

#[derive(Debug)]
struct Embed;

#[async_trait]
impl ModelCall for Embed {
    fn interface(&self) -> &'static Interface {
        &INTERFACE
    }

    fn return_type(&self, runtime: &dyn ModelRuntime, model: &str, literals: &[Option<&ScalarValue>]) -> Result<DataType> {
        if let Some(Some(literal)) = literals.get(2) {
            parse_kind(literal.try_as_str().flatten())?;
        }
        Ok(vector_type(runtime.embedding_dim(model)?))
    }

    async fn call(&self, runtime: &dyn ModelRuntime, arguments: &Arguments<'_>) -> Result<ArrayRef> {
        let texts = arguments.text(1)?;
        let distinct = Distinct::new((0..arguments.num_rows()).map(|row| texts.get(row)));
        if distinct.inputs.is_empty() {
            return Ok(new_null_array(arguments.return_type(), arguments.num_rows()));
        }
        let model = required_model(arguments)?;
        let kind = if arguments.has(2) { arguments.constant_text(2)? } else { None };
        let inputs = StringArray::from_iter_values(&distinct.inputs);
        let vectors = runtime.embed(&model, &inputs, parse_kind(kind.as_deref())?).await?;
        runtime.note_repeats(distinct.num_repeats());
        check_type(&vectors, arguments.return_type())?;
        distinct.scatter(INTERFACE.name, &vectors)
    }
}

fn parse_kind(kind: Option<&str>) -> Result<EmbedKind, Error> {
    match kind {
        None | Some("passage") => Ok(EmbedKind::Passage),
        Some("query") => Ok(EmbedKind::Query),
        Some(other) => Err(INTERFACE.argument_error(2, format!("'{other}'"), "'query' or 'passage'")),
    }
}

fn check_type(vectors: &dyn Array, expected: &DataType) -> Result<(), Error> {
    if vectors.data_type() == expected {
        return Ok(());
    }
    let (found, expected) = (vectors.data_type().to_string(), expected.to_string());
    Err(Error::ModelResult { function: INTERFACE.name, found, expected })
}
