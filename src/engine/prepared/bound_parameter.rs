//! A parameter in a physical plan that runs with many values.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::expr::{Placeholder, ScalarFunction};
use datafusion::logical_expr::{ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use rolloutdb_catalogs::Parameters;

/// A placeholder as a function that reads its value.
pub fn bound_expression(expression: Expr, parameters: &Parameters) -> Transformed<Expr> {
    match expression {
        Expr::Placeholder(Placeholder { id, field: Some(field) }) => {
            let function = BoundParameter {
                id,
                data_type: field.data_type().clone(),
                parameters: parameters.clone(),
                signature: Signature::exact(vec![], Volatility::Volatile),
            };
            Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(ScalarUDF::new_from_impl(function)), vec![])))
        }
        other => Transformed::no(other),
    }
}

/// A parameter as a function without arguments, whose value is another in each run.
#[derive(Debug)]
struct BoundParameter {
    id: String,
    data_type: DataType,
    parameters: Parameters,
    signature: Signature,
}

impl PartialEq for BoundParameter {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && self.parameters.identity() == other.parameters.identity()
    }
}

impl Eq for BoundParameter {}

impl std::hash::Hash for BoundParameter {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (&self.id, self.parameters.identity()).hash(state);
    }
}

impl ScalarUDFImpl for BoundParameter {
    fn name(&self) -> &str {
        &self.id
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(self.data_type.clone())
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        match self.parameters.get(&self.id) {
            Some(value) => Ok(ColumnarValue::Scalar(value)),
            None => datafusion::common::internal_err!("{} has no value", self.id),
        }
    }
}
