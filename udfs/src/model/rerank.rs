//! `rerank(model, query, passage)`.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::StringArray;
use arrow::datatypes::{DataType, Field, FieldRef};
use async_trait::async_trait;
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::logical_expr::async_udf::{AsyncScalarUDF, AsyncScalarUDFImpl};
use datafusion::logical_expr::{ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use crate::arguments::Arguments;
use crate::function::{Interface, Kind, Parameter};

use super::ModelRuntime;
use super::distinct::Distinct;
use super::embed::{literal_model, required_model};

pub(crate) static INTERFACE: Interface = Interface {
    name: "rerank",
    section: super::SECTION,
    description: "How well a passage answers a query, by a cross-encoder that reads both together; larger is better, on the scale of the model. Equal pairs \
        are scored once. NULL if either is NULL.",
    parameters: &[
        Parameter { name: "model", kind: Kind::Text, description: "Name of a reranking model, `name` or `name@version`; a constant." },
        Parameter { name: "query", kind: Kind::Text, description: "The search query or question." },
        Parameter { name: "passage", kind: Kind::Text, description: "The text that may answer it." },
    ],
    required: 3,
    example: ("SELECT rerank('judge', 'who directed Jaws', 'Jaws is a film by Steven Spielberg')", "a score"),
};

pub(crate) fn function(runtime: Arc<dyn ModelRuntime>) -> ScalarUDF {
    let rerank = Rerank { signature: INTERFACE.signature(Volatility::Volatile), runtime };
    AsyncScalarUDF::new(Arc::new(rerank)).into_scalar_udf()
}

/// Equal if the runtime is the same one.
#[derive(Debug)]
struct Rerank {
    signature: Signature,
    runtime: Arc<dyn ModelRuntime>,
}

impl PartialEq for Rerank {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.runtime, &other.runtime)
    }
}

impl Eq for Rerank {}

impl Hash for Rerank {
    fn hash<H: Hasher>(&self, state: &mut H) {
        INTERFACE.name.hash(state);
    }
}

impl ScalarUDFImpl for Rerank {
    fn name(&self) -> &str {
        INTERFACE.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        INTERFACE.check(arg_types)?;
        Ok(DataType::Float64)
    }

    /// # Errors
    /// [`crate::Error::NotConstant`] if the model is not a literal, [`crate::Error::ArgumentCount`] or [`crate::Error::ArgumentType`] for a wrong call.
    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let types: Vec<_> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let data_type = self.return_type(&types)?;
        literal_model(&INTERFACE, args.scalar_arguments)?;
        Ok(Arc::new(Field::new(self.name(), data_type, true)))
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        internal_err!("rerank is asynchronous")
    }
}

#[async_trait]
impl AsyncScalarUDFImpl for Rerank {
    async fn invoke_async_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arguments = Arguments::new(&INTERFACE, &args, args.number_rows);
        let (queries, passages) = (arguments.text(1)?, arguments.text(2)?);
        let distinct = Distinct::new((0..args.number_rows).map(|row| queries.get(row).zip(passages.get(row))));
        let (queries, passages): (Vec<&str>, Vec<&str>) = distinct.inputs.iter().copied().unzip();
        let scores = match queries.is_empty() {
            true => arrow::array::Float64Array::from(Vec::<f64>::new()),
            false => self.runtime.rerank(&required_model(&arguments)?, &StringArray::from(queries), &StringArray::from(passages)).await?,
        };
        Ok(ColumnarValue::Array(distinct.scatter(INTERFACE.name, &scores)?))
    }
}
