//! Lengths of arrays and places in them as integer.

use std::sync::Arc;

use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature};

/// The functions whose numbers are unsigned; in PostgreSQL they are integers.
pub const COUNTS: [&str; 4] = ["cardinality", "array_ndims", "array_position", "array_positions"];

/// The function with integers for its numbers, in an array too.
#[must_use]
pub fn with_integers(inner: &Arc<ScalarUDF>) -> ScalarUDF {
    ScalarUDF::new_from_impl(Integers { inner: Arc::clone(inner) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Integers {
    inner: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for Integers {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types).map(signed)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let field = self.inner.return_field_from_args(args)?;
        Ok(Arc::new(field.as_ref().clone().with_data_type(signed(field.data_type().clone()))))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let data_type = args.return_field.data_type().clone();
        let unsigned = args.return_field.as_ref().clone().with_data_type(unsigned(data_type.clone()));
        let args = ScalarFunctionArgs { return_field: Arc::new(unsigned), ..args };
        Ok(match self.inner.invoke_with_args(args)? {
            ColumnarValue::Array(array) => ColumnarValue::Array(cast(&array, &data_type)?),
            ColumnarValue::Scalar(value) => ColumnarValue::Scalar(value.cast_to(&data_type)?),
        })
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

fn signed(data_type: DataType) -> DataType {
    exchanged(data_type, &DataType::UInt64, &DataType::Int32)
}

fn unsigned(data_type: DataType) -> DataType {
    exchanged(data_type, &DataType::Int32, &DataType::UInt64)
}

fn exchanged(data_type: DataType, from: &DataType, to: &DataType) -> DataType {
    match data_type {
        DataType::List(item) => DataType::List(Arc::new(Field::clone(&item).with_data_type(exchanged(item.data_type().clone(), from, to)))),
        other if other == *from => to.clone(),
        other => other,
    }
}
