//! `coalesce` and its kin with a constant in quotes beside a date, an array or a vector. DataFusion finds no common type and refuses the query when it is
//! planned. This lets it plan, so that [`inner_of`] can be called with the constant as a value of the other type.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::error::Result;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// The functions whose arguments are of one type.
pub const OF_ONE_TYPE: [&str; 4] = ["coalesce", "nullif", "greatest", "least"];

/// The function that takes texts beside values of another type too, for planning alone.
#[must_use]
pub fn beside_texts(inner: &Arc<ScalarUDF>) -> ScalarUDF {
    ScalarUDF::new_from_impl(BesideTexts { inner: Arc::clone(inner), signature: Signature::user_defined(Volatility::Immutable) })
}

/// What [`beside_texts`] was made of.
#[must_use]
pub fn inner_of(function: &ScalarUDF) -> Option<&Arc<ScalarUDF>> {
    function.inner().downcast_ref::<BesideTexts>().map(|function| &function.inner)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct BesideTexts {
    inner: Arc<ScalarUDF>,
    signature: Signature,
}

/// Whether DataFusion has texts of this type.
fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn coerced(types: &[DataType], function: &ScalarUDF) -> Result<Vec<DataType>> {
    let fields: Vec<FieldRef> = types.iter().map(|data_type| Arc::new(Field::new("", data_type.clone(), true))).collect();
    Ok(fields_with_udf(&fields, function)?.iter().map(|field| field.data_type().clone()).collect())
}

impl ScalarUDFImpl for BesideTexts {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        coerced(types, &self.inner).or_else(|error| {
            let others: Vec<DataType> = types.iter().filter(|data_type| !is_text(data_type)).cloned().collect();
            let Some(first) = others.iter().find(|data_type| !data_type.is_null()).filter(|_| others.len() < types.len()) else {
                return Err(error);
            };
            let is_one = others.iter().all(|other| other == first || other.is_null());
            let common = if is_one { first.clone() } else { coerced(&others, &self.inner)?.swap_remove(0) };
            Ok(types.iter().map(|data_type| if is_text(data_type) { data_type.clone() } else { common.clone() }).collect())
        })
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types.iter().find(|data_type| !is_text(data_type)) {
            Some(other) if types.iter().any(is_text) => Ok(other.clone()),
            _ => self.inner.return_type(types),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let is_of_text = |field: &&FieldRef| is_text(field.data_type());
        match args.arg_fields.iter().find(|field| !is_of_text(field)) {
            Some(other) if args.arg_fields.iter().any(|field| is_of_text(&field)) => {
                Ok(Arc::new(other.as_ref().clone().with_name(self.name()).with_nullable(true)))
            }
            _ => self.inner.return_field_from_args(args),
        }
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.inner.simplify(args, info)
    }

    fn short_circuits(&self) -> bool {
        self.inner.short_circuits()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.inner.invoke_with_args(args)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}
