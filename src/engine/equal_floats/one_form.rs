//! The function that gives floats the one form in which equal ones have equal bits, and bounds for comparisons with a column that keeps its bits.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, FixedSizeListArray, GenericListArray, OffsetSizeTrait, PrimitiveArray, StructArray};
use arrow::datatypes::{ArrowPrimitiveType, DataType, FieldRef, Float16Type, Float32Type, Float64Type};
use datafusion::common::ScalarValue;
use datafusion::common::utils::take_function_args;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

/// What becomes of a zero; a NaN loses its sign in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Zero {
    /// 0.0: the one form of both zeros, and the greater of them in Arrow's order.
    Positive,
    /// -0.0, the lesser.
    Negative,
}

/// Round what is compared with something of the same form.
pub fn one_form(expression: Expr) -> Expr {
    called(Zero::Positive, expression)
}

/// A constant whose zero is of that sign: a constant in the plan at once, another one when it is known.
pub fn with_zero(zero: Zero, constant: Expr) -> Expr {
    match constant {
        Expr::Literal(value, metadata) => Expr::Literal(scalar(zero, value), metadata),
        other => called(zero, other),
    }
}

fn called(zero: Zero, expression: Expr) -> Expr {
    static POSITIVE: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Arc::new(ScalarUDF::new_from_impl(OneForm::new(Zero::Positive))));
    static NEGATIVE: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Arc::new(ScalarUDF::new_from_impl(OneForm::new(Zero::Negative))));
    match &expression {
        Expr::ScalarFunction(function) if function.name() == zero.name() => expression,
        _ => {
            let function = if zero == Zero::Positive { &POSITIVE } else { &NEGATIVE };
            Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(function), vec![expression]))
        }
    }
}

/// The expression within [`one_form`], for those that look for a shape of sort keys.
pub fn without_one_form(expression: &Expr) -> &Expr {
    match expression {
        Expr::ScalarFunction(function) if function.name() == Zero::Positive.name() && function.args.len() == 1 => &function.args[0],
        other => other,
    }
}

fn scalar(zero: Zero, value: ScalarValue) -> ScalarValue {
    match value {
        ScalarValue::Float64(Some(number)) => ScalarValue::Float64(Some(of_double(zero, number))),
        ScalarValue::Float32(Some(number)) => ScalarValue::Float32(Some(of_single(zero, number))),
        ScalarValue::Float16(Some(number)) => ScalarValue::Float16(Some(of_half(zero, number))),
        other => other,
    }
}

impl Zero {
    fn name(self) -> &'static str {
        match self {
            Self::Positive => "one_zero",
            Self::Negative => "lower_zero",
        }
    }
}

/// It is in plans alone.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OneForm {
    zero: Zero,
    signature: Signature,
}

impl OneForm {
    fn new(zero: Zero) -> Self {
        Self { zero, signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for OneForm {
    fn name(&self) -> &str {
        self.zero.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let [data_type] = take_function_args(self.name(), types)?;
        Ok(data_type.clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let [field] = take_function_args(self.name(), args.arg_fields)?;
        Ok(Arc::new(field.as_ref().clone().with_name(self.name())))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value] = take_function_args(self.name(), args.args)?;
        Ok(match value {
            ColumnarValue::Scalar(value) if !value.data_type().is_nested() => ColumnarValue::Scalar(scalar(self.zero, value)),
            ColumnarValue::Scalar(value) => ColumnarValue::Scalar(ScalarValue::try_from_array(&column(self.zero, &value.to_array()?)?, 0)?),
            ColumnarValue::Array(array) => ColumnarValue::Array(column(self.zero, &array)?),
        })
    }
}

fn of_double(zero: Zero, number: f64) -> f64 {
    match number {
        0.0 => {
            if zero == Zero::Positive {
                0.0
            } else {
                -0.0
            }
        }
        number if number.is_nan() => f64::NAN,
        number => number,
    }
}

fn of_single(zero: Zero, number: f32) -> f32 {
    match number {
        0.0 => {
            if zero == Zero::Positive {
                0.0
            } else {
                -0.0
            }
        }
        number if number.is_nan() => f32::NAN,
        number => number,
    }
}

type Half = <Float16Type as ArrowPrimitiveType>::Native;

fn of_half(zero: Zero, number: Half) -> Half {
    Half::from_f32(of_single(zero, number.to_f32()))
}

fn column(zero: Zero, array: &ArrayRef) -> Result<ArrayRef> {
    Ok(match array.data_type() {
        DataType::Float64 => numbers(array.as_primitive::<Float64Type>(), |number| of_double(zero, number)),
        DataType::Float32 => numbers(array.as_primitive::<Float32Type>(), |number| of_single(zero, number)),
        DataType::Float16 => numbers(array.as_primitive::<Float16Type>(), |number| of_half(zero, number)),
        DataType::List(_) => list(zero, array.as_list::<i32>())?,
        DataType::LargeList(_) => list(zero, array.as_list::<i64>())?,
        DataType::FixedSizeList(item, width) => {
            let vectors = array.as_fixed_size_list();
            let values = column(zero, vectors.values())?;
            Arc::new(FixedSizeListArray::try_new(Arc::clone(item), *width, values, vectors.nulls().cloned())?)
        }
        DataType::Struct(fields) => {
            let rows = array.as_struct();
            let columns = rows.columns().iter().map(|values| column(zero, values)).collect::<Result<Vec<_>>>()?;
            Arc::new(StructArray::try_new_with_length(fields.clone(), columns, rows.nulls().cloned(), rows.len())?)
        }
        _ => Arc::clone(array),
    })
}

fn numbers<T: ArrowPrimitiveType>(array: &PrimitiveArray<T>, form: impl Fn(T::Native) -> T::Native) -> ArrayRef {
    Arc::new(array.unary::<_, T>(form))
}

fn list<O: OffsetSizeTrait>(zero: Zero, lists: &GenericListArray<O>) -> Result<ArrayRef> {
    let (DataType::List(item) | DataType::LargeList(item)) = lists.data_type() else { unreachable!("it is a list") };
    let values = column(zero, lists.values())?;
    Ok(Arc::new(GenericListArray::<O>::try_new(Arc::clone(item), lists.offsets().clone(), values, lists.nulls().cloned())?))
}
