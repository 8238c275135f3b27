//! `||` of any number of texts, or of bytes: NULL if one of them is.

use std::any::Any;
use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, AsArray, GenericStringArray, OffsetSizeTrait};
use arrow::compute::cast;
use arrow::compute::kernels::concat_elements::{concat_element_binary, concat_elements_utf8_many};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use super::bounded::Bounded;

/// In the place of DataFusion's operator, which has two operands: a chain of many would copy what is on the left once for each.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Concatenation {
    signature: Signature,
}

static FUNCTION: LazyLock<Arc<ScalarUDF>> =
    LazyLock::new(|| Arc::new(ScalarUDF::from(Concatenation { signature: Signature::variadic_any(Volatility::Immutable) })));

impl Concatenation {
    pub fn function() -> Arc<ScalarUDF> {
        Arc::clone(&FUNCTION)
    }

    /// Whether it is a call of this function, within its bounds.
    pub fn is_function(call: &ScalarFunction) -> bool {
        let bounded = (call.func.inner().as_ref() as &dyn Any).downcast_ref::<Bounded>();
        bounded.is_some_and(|bounded| (bounded.of().inner().as_ref() as &dyn Any).is::<Self>())
    }

    /// Whether values of the type can be its operands, if all are of it.
    pub fn takes(data_type: &DataType) -> bool {
        use DataType::{Binary, BinaryView, LargeBinary, LargeUtf8, Utf8, Utf8View};
        matches!(data_type, Utf8 | LargeUtf8 | Utf8View | Binary | LargeBinary | BinaryView)
    }
}

impl ScalarUDFImpl for Concatenation {
    fn name(&self) -> &str {
        "||"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        arguments.first().cloned().ok_or_else(|| DataFusionError::Internal("|| without operands".to_owned()))
    }

    /// NULL only where an operand is, as the operator: plans that were made for it say so.
    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let types: Vec<DataType> = arguments.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let is_nullable = arguments.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), self.return_type(&types)?, is_nullable)))
    }

    /// As the operator names its column.
    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        Ok(arguments.iter().map(|argument| argument.schema_name().to_string()).collect::<Vec<_>>().join(" || "))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_one = arguments.args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
        let num_rows = if is_one { 1 } else { arguments.number_rows };
        let operands = arguments.args.iter().map(|argument| argument.to_array(num_rows)).collect::<Result<Vec<_>>>()?;
        Ok(ColumnarValue::Array(joined(&operands, arguments.return_type())?))
    }
}

fn joined(operands: &[ArrayRef], data_type: &DataType) -> Result<ArrayRef> {
    let as_type = |wanted: &DataType| operands.iter().map(|operand| cast(operand, wanted)).collect::<Result<Vec<_>, _>>();
    Ok(match data_type {
        // A rule that comes after the types were settled may put a text of another width in.
        DataType::Utf8 => texts::<i32>(&as_type(data_type)?)?,
        DataType::LargeUtf8 => texts::<i64>(&as_type(data_type)?)?,
        DataType::Utf8View => cast(&texts::<i64>(&as_type(&DataType::LargeUtf8)?)?, data_type)?,
        _ => {
            let bytes = as_type(&DataType::LargeBinary)?;
            let Some((first, others)) = bytes.split_first() else {
                return Err(DataFusionError::Internal("|| without operands".to_owned()));
            };
            let mut result = first.as_binary::<i64>().clone();
            for other in others {
                result = concat_element_binary(&result, other.as_binary())?;
            }
            cast(&result, data_type)?
        }
    })
}

fn texts<Offset: OffsetSizeTrait>(operands: &[ArrayRef]) -> Result<ArrayRef> {
    let operands: Vec<&GenericStringArray<Offset>> = operands.iter().map(|operand| operand.as_string::<Offset>()).collect();
    Ok(Arc::new(concat_elements_utf8_many(&operands)?))
}
