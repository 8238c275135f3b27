//! `embed(model, input [, kind])`.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, StringArray, new_null_array};
use arrow::datatypes::{DataType, Field, FieldRef};
use async_trait::async_trait;
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::logical_expr::async_udf::{AsyncScalarUDF, AsyncScalarUDFImpl};
use datafusion::logical_expr::{ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use datafusion::scalar::ScalarValue;

use crate::Error;
use crate::arguments::Arguments;
use crate::function::{Interface, Kind, Parameter};
use crate::vector::vector_type;

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
    let embed = Embed { signature: INTERFACE.signature(Volatility::Volatile), runtime };
    AsyncScalarUDF::new(Arc::new(embed)).into_scalar_udf()
}

/// Equal if the runtime is the same one.
#[derive(Debug)]
struct Embed {
    signature: Signature,
    runtime: Arc<dyn ModelRuntime>,
}

impl PartialEq for Embed {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.runtime, &other.runtime)
    }
}

impl Eq for Embed {}

impl Hash for Embed {
    fn hash<H: Hasher>(&self, state: &mut H) {
        INTERFACE.name.hash(state);
    }
}

impl ScalarUDFImpl for Embed {
    fn name(&self) -> &str {
        INTERFACE.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        internal_err!("the type of embed depends on the model: return_field_from_args gives it")
    }

    /// # Errors
    /// [`Error::NotConstant`] if the model is not a literal, [`Error::Argument`] for an unknown kind, and what the runtime
    /// says about the model.
    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let types: Vec<_> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        INTERFACE.check(&types)?;
        let model = literal_model(&INTERFACE, args.scalar_arguments)?;
        if let Some(Some(literal)) = args.scalar_arguments.get(2) {
            parse_kind(literal.try_as_str().flatten())?;
        }
        let width = self.runtime.embedding_dim(model)?;
        Ok(Arc::new(Field::new(self.name(), vector_type(width), true)))
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        internal_err!("embed is asynchronous")
    }
}

#[async_trait]
impl AsyncScalarUDFImpl for Embed {
    async fn invoke_async_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arguments = Arguments::new(&INTERFACE, &args, args.number_rows);
        let texts = arguments.text(1)?;
        let distinct = Distinct::new((0..args.number_rows).map(|row| texts.get(row)));
        if distinct.inputs.is_empty() {
            return Ok(ColumnarValue::Array(new_null_array(args.return_type(), args.number_rows)));
        }
        let model = required_model(&arguments)?;
        let kind = if arguments.has(2) { arguments.constant_text(2)? } else { None };
        let inputs = StringArray::from_iter_values(&distinct.inputs);
        let vectors = self.runtime.embed(&model, &inputs, parse_kind(kind.as_deref())?).await?;
        check_type(&vectors, args.return_type())?;
        Ok(ColumnarValue::Array(distinct.scatter(INTERFACE.name, &vectors)?))
    }
}

/// The model that a call names, needed in planning.
pub(super) fn literal_model<'a>(interface: &Interface, literals: &[Option<&'a ScalarValue>]) -> Result<&'a str> {
    let Some(Some(literal)) = literals.first() else {
        let reason = "such as 'policy', because a statement is planned for one model";
        return Err(Error::NotConstant { function: interface.name, argument: "model", reason }.into());
    };
    let name = literal.try_as_str().flatten();
    Ok(name.ok_or_else(|| interface.argument_error(0, "NULL", "the name of a model"))?)
}

/// The model of a call with at least one row.
pub(super) fn required_model(arguments: &Arguments) -> Result<String> {
    let model = arguments.constant_text(0)?;
    Ok(model.ok_or_else(|| arguments.interface.argument_error(0, "NULL", "the name of a model"))?)
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
