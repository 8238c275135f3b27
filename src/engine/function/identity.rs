//! The numbers of an identity column, as an expression of the INSERT's plan.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::Int64Array;
use arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use rolloutdb_catalogs::Table;

/// One number for each row, each given away once.
pub fn identity_numbers(table: &Table, column: &str) -> Expr {
    let numbers = IdentityNumbers { table: table.clone(), column: column.to_owned(), signature: Signature::nullary(Volatility::Volatile) };
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(ScalarUDF::new_from_impl(numbers)), vec![]))
}

#[derive(Debug)]
struct IdentityNumbers {
    table: Table,
    column: String,
    signature: Signature,
}

impl PartialEq for IdentityNumbers {
    fn eq(&self, other: &Self) -> bool {
        (self.table.schema_name(), self.table.name(), &self.column) == (other.table.schema_name(), other.table.name(), &other.column)
    }
}

impl Eq for IdentityNumbers {}

impl Hash for IdentityNumbers {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.table.name(), &self.column).hash(state);
    }
}

impl ScalarUDFImpl for IdentityNumbers {
    fn name(&self) -> &str {
        "identity_numbers"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let numbers = self.table.next_numbers(&self.column, args.number_rows)?;
        Ok(ColumnarValue::Array(Arc::new(Int64Array::from_iter_values(numbers))))
    }
}
