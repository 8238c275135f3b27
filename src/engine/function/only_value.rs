//! The only value of a list: how a subquery that may have several rows becomes one value.

use std::sync::Arc;

use arrow::array::{Array, AsArray, Int32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use crate::error::Error;

/// The value in the list; NULL for none. `field`: of the values.
pub fn only_value(list: Expr, field: &Field) -> Expr {
    let field = Arc::new(field.clone().with_nullable(true));
    let only_value = OnlyValue { field, signature: Signature::any(1, Volatility::Immutable) };
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(ScalarUDF::new_from_impl(only_value)), vec![list]))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OnlyValue {
    field: FieldRef,
    signature: Signature,
}

impl ScalarUDFImpl for OnlyValue {
    fn name(&self) -> &str {
        "only_value"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.field.data_type().clone())
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs) -> Result<FieldRef> {
        Ok(Arc::clone(&self.field))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let lists = args.args[0].to_array(args.number_rows)?;
        let lists = lists.as_list::<i32>();
        let mut positions = Vec::with_capacity(lists.len());
        for (row, first) in lists.value_offsets().iter().take(lists.len()).enumerate() {
            positions.push(match lists.value_length(row) {
                _ if lists.is_null(row) => None,
                0 => None,
                1 => Some(*first),
                _ => return Err(Error::SeveralRows.into()),
            });
        }
        Ok(ColumnarValue::Array(take(lists.values(), &Int32Array::from(positions), None)?))
    }
}
