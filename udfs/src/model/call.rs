//! What the functions that call a model have in common: a [`ModelCall`] says what is its own, [`udf`] makes DataFusion's function of it.

use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, FieldRef};
use async_trait::async_trait;
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::logical_expr::async_udf::{AsyncScalarUDF, AsyncScalarUDFImpl};
use datafusion::logical_expr::{ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use datafusion::scalar::ScalarValue;

use super::ModelRuntime;
use crate::Error;
use crate::arguments::Arguments;
use crate::function::Interface;

/// A function whose first argument names a model.
#[async_trait]
pub(super) trait ModelCall: Debug + Send + Sync + 'static {
    fn interface(&self) -> &'static Interface;

    /// The type of the result. `literals`: the arguments, where they are constants.
    ///
    /// # Errors
    /// What is wrong with the constants, and what the runtime says about the model.
    fn return_type(&self, runtime: &dyn ModelRuntime, model: &str, literals: &[Option<&ScalarValue>]) -> Result<DataType>;

    /// One result per row.
    async fn call(&self, runtime: &dyn ModelRuntime, arguments: &Arguments<'_>) -> Result<ArrayRef>;
}

/// `call` as a function that answers through `runtime`.
pub(super) fn udf(call: impl ModelCall, runtime: Arc<dyn ModelRuntime>) -> ScalarUDF {
    let signature = call.interface().signature(Volatility::Volatile);
    AsyncScalarUDF::new(Arc::new(ModelFunction { call, signature, runtime })).into_scalar_udf()
}

/// The model of a call with at least one row.
///
/// # Errors
/// [`Error::NotConstant`] if two rows name different ones, [`Error::Argument`] if it is NULL.
pub(super) fn required_model(arguments: &Arguments) -> Result<String> {
    let model = arguments.constant_text(0)?;
    Ok(model.ok_or_else(|| no_model(arguments.interface))?)
}

/// The model that a call names, needed in planning.
fn literal_model<'a>(interface: &Interface, literals: &[Option<&'a ScalarValue>]) -> Result<&'a str> {
    let Some(Some(literal)) = literals.first() else {
        let reason = "such as 'policy', because a statement is planned for one model";
        return Err(Error::NotConstant { function: interface.name, argument: "model", reason }.into());
    };
    Ok(literal.try_as_str().flatten().ok_or_else(|| no_model(interface))?)
}

fn no_model(interface: &Interface) -> Error {
    interface.argument_error(0, "NULL", "the name of a model")
}

/// Equal if it is the same function of the same runtime.
#[derive(Debug)]
struct ModelFunction<C> {
    call: C,
    signature: Signature,
    runtime: Arc<dyn ModelRuntime>,
}

impl<C: ModelCall> PartialEq for ModelFunction<C> {
    fn eq(&self, other: &Self) -> bool {
        self.call.interface().name == other.call.interface().name && Arc::ptr_eq(&self.runtime, &other.runtime)
    }
}

impl<C: ModelCall> Eq for ModelFunction<C> {}

impl<C: ModelCall> Hash for ModelFunction<C> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.call.interface().name.hash(state);
    }
}

impl<C: ModelCall> ScalarUDFImpl for ModelFunction<C> {
    fn name(&self) -> &str {
        self.call.interface().name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        internal_err!("the type of {} may depend on the model: return_field_from_args gives it", self.name())
    }

    /// # Errors
    /// [`Error::ArgumentCount`], [`Error::ArgumentType`], [`Error::NotConstant`] if the model is not a literal, and those of the call.
    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let interface = self.call.interface();
        let types: Vec<_> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        interface.check(&types)?;
        let model = literal_model(interface, args.scalar_arguments)?;
        let data_type = self.call.return_type(self.runtime.as_ref(), model, args.scalar_arguments)?;
        Ok(Arc::new(Field::new(interface.name, data_type, true)))
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        internal_err!("{} is asynchronous", self.name())
    }
}

#[async_trait]
impl<C: ModelCall> AsyncScalarUDFImpl for ModelFunction<C> {
    async fn invoke_async_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arguments = Arguments::new(self.call.interface(), &args, args.number_rows);
        Ok(ColumnarValue::Array(self.call.call(self.runtime.as_ref(), &arguments).await?))
    }
}
