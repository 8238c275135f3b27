//! `avg` and `sum` of vectors, as in pgvector; of every other type they are DataFusion's.

use std::mem::size_of_val;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type, UInt64Type};
use datafusion::common::plan_err;
use datafusion::common::utils::take_function_args;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, Expr, GroupsAccumulator, Operator, ReversedUDAF, SetMonotonicity,
    Signature, TypeSignature,
};
use datafusion::scalar::ScalarValue;

use half::f16;

use super::built::VectorsBuilder;
use super::column::Vectors;
use crate::Error;
use crate::function::type_name;
use crate::postgres::ValueType;

/// `avg` or `sum` that takes vectors too. NULLs are left out; of no vectors it is NULL.
#[must_use]
pub fn with_vectors(inner: &Arc<AggregateUDF>) -> AggregateUDF {
    let signature = inner.signature();
    let mut kinds = match &signature.type_signature {
        TypeSignature::OneOf(kinds) => kinds.clone(),
        other => vec![other.clone()],
    };
    // What it takes is in `coerce_types`.
    kinds.push(TypeSignature::UserDefined);
    let signature = Signature::one_of(kinds, signature.volatility);
    AggregateUDF::new_from_impl(OfVectors { is_mean: inner.name() == "avg", inner: Arc::clone(inner), signature })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfVectors {
    inner: Arc<AggregateUDF>,
    signature: Signature,
    is_mean: bool,
}

/// That of vectors, or of vectors of any width; of arrays of numbers too, which the field tells apart.
fn is_vector(data_type: &DataType) -> bool {
    match data_type {
        DataType::FixedSizeList(item, _) | DataType::List(item) => matches!(item.data_type(), DataType::Float32 | DataType::Float16),
        _ => false,
    }
}

fn is_vector_field(field: &Field) -> bool {
    matches!(ValueType::of(field), ValueType::Vector(_) | ValueType::Halfvec(_))
}

fn is_of_vectors(args: &AccumulatorArgs) -> bool {
    args.expr_fields.first().is_some_and(|field| is_vector(field.data_type()))
}

impl AggregateUDFImpl for OfVectors {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        match arg_types {
            [vector] if is_vector(vector) => Ok(arg_types.to_vec()),
            _ => plan_err!("function {} takes one number or one vector", self.name()),
        }
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match arg_types {
            [vector] if is_vector(vector) => Ok(vector.clone()),
            _ => self.inner.return_type(arg_types),
        }
    }

    /// Vectors of any width are told by their field.
    fn return_field(&self, arg_fields: &[FieldRef]) -> Result<FieldRef> {
        match arg_fields {
            [field] if is_vector_field(field) => Ok(Arc::new(field.as_ref().clone().with_name(self.name()).with_nullable(true))),
            [field] if is_vector(field.data_type()) => {
                plan_err!("function {}({}) does not exist; cast the array to vector", self.name(), type_name(field.data_type()))
            }
            _ => self.inner.inner().return_field(arg_fields),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if is_of_vectors(&args) { self.vectors(&args) } else { self.inner.accumulator(args) }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if is_of_vectors(&args) { self.vectors(&args) } else { self.inner.create_sliding_accumulator(args) }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        if !args.input_fields.first().is_some_and(|field| is_vector(field.data_type())) {
            return self.inner.state_fields(args);
        }
        let field = |name, data_type| Arc::new(Field::new(format_state_name(args.name, name), data_type, true));
        Ok(vec![field("count", DataType::UInt64), field("sums", DataType::new_list(DataType::Float64, true))])
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        !is_of_vectors(&args) && self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        self.inner.create_groups_accumulator(args)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.inner.inner().reverse_expr()
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.inner.inner().set_monotonicity(data_type)
    }

    fn simplify_expr_op_literal(
        &self,
        aggregate: &AggregateFunction,
        argument: &Expr,
        operator: Operator,
        literal: &Expr,
        is_left: bool,
    ) -> Result<Option<Expr>> {
        self.inner.simplify_expr_op_literal(aggregate, argument, operator, literal, is_left)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

impl OfVectors {
    fn vectors(&self, args: &AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if args.is_distinct {
            let message = format!("{}(DISTINCT ...) of vectors is not supported; aggregate a SELECT DISTINCT", self.name());
            return Err(DataFusionError::NotImplemented(message));
        }
        let data_type = args.expr_fields[0].data_type().clone();
        Ok(Box::new(Sums { data_type, is_mean: self.is_mean, count: 0, sums: Vec::new() }))
    }
}

/// Sums in double precision, so that neither the order nor the number of the vectors decides the result.
#[derive(Debug)]
struct Sums {
    /// Of the vectors and of the result.
    data_type: DataType,
    is_mean: bool,
    count: u64,
    /// One for each element; none before the first vector.
    sums: Vec<f64>,
}

impl Sums {
    fn add(&mut self, count: u64, vector: impl ExactSizeIterator<Item = f64>) -> Result<()> {
        if self.sums.is_empty() {
            self.sums.resize(vector.len(), 0.0);
        }
        if self.sums.len() != vector.len() {
            return Err(Error::Dimensions { left: self.sums.len(), right: vector.len() }.into());
        }
        self.sums.iter_mut().zip(vector).for_each(|(sum, number)| *sum += number);
        self.count += count;
        Ok(())
    }

    /// The numbers of the result.
    fn numbers(&self, is_half: bool) -> Result<Vec<f32>, Error> {
        let divisor = if self.is_mean { self.count as f64 } else { 1.0 };
        let numbers = self.sums.iter().map(|sum| {
            let number = (sum / divisor) as f32;
            let is_held = if is_half { f16::from_f32(number).is_finite() } else { number.is_finite() };
            // Of numbers that are none, as stored ones may be, the result says so.
            if is_held || !sum.is_finite() { Ok(number) } else { Err(Error::VectorRange { fault: "overflow" }) }
        });
        numbers.collect()
    }
}

impl Accumulator for Sums {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [values] = take_function_args("a vector", values)?;
        let vectors = Vectors::from_array(values)?;
        for vector in (0..values.len()).filter_map(|row| vectors.get(row)) {
            self.add(1, vector.iter().map(|number| f64::from(*number)))?;
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [values] = take_function_args("a vector", values)?;
        let vectors = Vectors::from_array(values)?;
        for vector in (0..values.len()).filter_map(|row| vectors.get(row)) {
            self.add(0, vector.iter().map(|number| -f64::from(*number)))?;
            self.count -= 1;
        }
        if self.count == 0 {
            self.sums.clear();
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [counts, sums] = take_function_args("a vector", states)?;
        let (counts, sums) = (counts.as_primitive::<UInt64Type>(), sums.as_list::<i32>());
        for row in 0..counts.len() {
            if sums.is_valid(row) && counts.value(row) > 0 {
                let part = sums.value(row);
                self.add(counts.value(row), part.as_primitive::<Float64Type>().values().iter().copied())?;
            }
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let sums: Vec<ScalarValue> = self.sums.iter().map(|sum| ScalarValue::Float64(Some(*sum))).collect();
        Ok(vec![ScalarValue::UInt64(Some(self.count)), ScalarValue::List(ScalarValue::new_list_nullable(&sums, &DataType::Float64))])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.count == 0 {
            return ScalarValue::try_from(&self.data_type);
        }
        let mut vectors = VectorsBuilder::new(&self.data_type, 1);
        vectors.push(Some(&self.numbers(vectors.kind().is_half)?))?;
        ScalarValue::try_from_array(&vectors.finish()?, 0)
    }

    fn size(&self) -> usize {
        size_of_val(self) + size_of_val(self.sums.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vector::{vector_literal, vector_type};

    fn sums(is_mean: bool) -> Sums {
        Sums { data_type: vector_type(2), is_mean, count: 0, sums: Vec::new() }
    }

    fn column(vectors: &[[f32; 2]]) -> ArrayRef {
        ScalarValue::iter_to_array(vectors.iter().map(|vector| vector_literal(vector))).expect("vectors of one width")
    }

    #[test]
    fn parts_make_the_whole_and_go_again() -> Result<()> {
        let mut mean = sums(true);
        mean.update_batch(&[column(&[[1.0, 2.0], [3.0, 6.0]])])?;
        let mut other = sums(true);
        other.update_batch(&[column(&[[5.0, 1.0]])])?;
        let state = other.state()?.iter().map(ScalarValue::to_array).collect::<Result<Vec<_>>>()?;
        mean.merge_batch(&state)?;
        assert_eq!(mean.evaluate()?, vector_literal(&[3.0, 3.0]));
        mean.retract_batch(&[column(&[[1.0, 2.0], [5.0, 1.0]])])?;
        assert_eq!(mean.evaluate()?, vector_literal(&[3.0, 6.0]));
        let mut sum = sums(false);
        assert!(sum.evaluate()?.is_null());
        sum.update_batch(&[column(&[[1.5, 2.0], [1.0, -2.0]])])?;
        assert_eq!(sum.evaluate()?, vector_literal(&[2.5, 0.0]));
        sum.update_batch(&[column(&[[f32::MAX, 0.0], [f32::MAX, 0.0]])])?;
        assert!(sum.evaluate().is_err(), "it is beyond single precision");
        Ok(())
    }
}
