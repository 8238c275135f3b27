//! `sum` of integers that fails where a bigint has no place for it (22003), where DataFusion's wraps around. PostgreSQL's is a numeric there; `sum(value::numeric)` is
//! one here too.
//!
//! It is added up in 128 bits, which no number of rows fills, so that neither the order nor the parts of an aggregation decide whether it fails.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef, Int64Type};
use arrow::error::ArrowError;
use datafusion::common::utils::take_function_args;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, Expr, GroupsAccumulator, Operator, ReversedUDAF, SetMonotonicity,
    Signature,
};
use datafusion::scalar::ScalarValue;

/// Of the sums that are not whole yet.
const WIDE: DataType = DataType::Decimal128(38, 0);

/// `sum`, checked where it is of integers; `inner`: DataFusion's.
#[must_use]
pub fn checked_sum(inner: &Arc<AggregateUDF>) -> AggregateUDF {
    AggregateUDF::new_from_impl(CheckedSum { inner: Arc::clone(inner) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct CheckedSum {
    inner: Arc<AggregateUDF>,
}

impl CheckedSum {
    fn wide() -> FieldRef {
        Arc::new(Field::new("sum", WIDE, true))
    }
}

fn is_of_integers(args: &AccumulatorArgs) -> bool {
    args.return_field.data_type() == &DataType::Int64
}

impl AggregateUDFImpl for CheckedSum {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arg_types)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match (is_of_integers(&args), args.is_distinct) {
            (false, _) => self.inner.accumulator(args),
            (true, false) => Ok(Box::<Sum>::default()),
            (true, true) => {
                let inner = self.inner.accumulator(AccumulatorArgs { return_field: Self::wide(), ..args })?;
                Ok(Box::new(DistinctSum(inner)))
            }
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match is_of_integers(&args) && !args.is_distinct {
            true => Ok(Box::<Sum>::default()),
            false => self.inner.create_sliding_accumulator(args),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        match args.return_field.data_type() {
            DataType::Int64 => self.inner.state_fields(StateFieldsArgs { return_field: Self::wide(), ..args }),
            _ => self.inner.state_fields(args),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        if !is_of_integers(&args) {
            return self.inner.create_groups_accumulator(args);
        }
        let inner = self.inner.create_groups_accumulator(AccumulatorArgs { return_field: Self::wide(), ..args })?;
        Ok(Box::new(GroupSums(inner)))
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

fn out_of_range() -> DataFusionError {
    DataFusionError::from(ArrowError::ArithmeticOverflow("bigint out of range".to_owned()))
}

fn narrow(sum: i128) -> Result<i64> {
    i64::try_from(sum).map_err(|_| out_of_range())
}

/// Of the values of one group, or of a window that slides.
#[derive(Debug, Default)]
struct Sum {
    sum: i128,
    /// Of the values that are not NULL.
    count: u64,
}

fn added(values: &Int64Array) -> (i128, u64) {
    let sum = match values.null_count() {
        0 => values.values().iter().map(|value| i128::from(*value)).sum(),
        _ => values.iter().flatten().map(i128::from).sum(),
    };
    (sum, (values.len() - values.null_count()) as u64)
}

impl Accumulator for Sum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [values] = take_function_args("sum", values)?;
        let (sum, count) = added(values.as_primitive::<Int64Type>());
        self.sum += sum;
        self.count += count;
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [values] = take_function_args("sum", values)?;
        let (sum, count) = added(values.as_primitive::<Int64Type>());
        self.sum -= sum;
        self.count -= count;
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [sums] = take_function_args("sum", states)?;
        for sum in sums.as_primitive::<Decimal128Type>().iter().flatten() {
            self.sum += sum;
            self.count += 1;
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::Decimal128((self.count > 0).then_some(self.sum), 38, 0)])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Int64((self.count > 0).then(|| narrow(self.sum)).transpose()?))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// `sum(DISTINCT ..)`, which keeps the values.
#[derive(Debug)]
struct DistinctSum(Box<dyn Accumulator>);

impl Accumulator for DistinctSum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.update_batch(&widened(values)?)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.0.merge_batch(states)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.0.state()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        match self.0.evaluate()? {
            ScalarValue::Decimal128(sum, ..) => Ok(ScalarValue::Int64(sum.map(narrow).transpose()?)),
            other => Err(DataFusionError::Internal(format!("a sum is {other}"))),
        }
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.0.size()
    }
}

/// The sums of many groups.
struct GroupSums(Box<dyn GroupsAccumulator>);

impl GroupsAccumulator for GroupSums {
    fn update_batch(&mut self, values: &[ArrayRef], groups: &[usize], filter: Option<&BooleanArray>, num_groups: usize) -> Result<()> {
        self.0.update_batch(&widened(values)?, groups, filter, num_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let sums = self.0.evaluate(emit_to)?;
        let narrowed = sums.as_primitive::<Decimal128Type>().iter().map(|sum| sum.map(narrow).transpose());
        Ok(Arc::new(narrowed.collect::<Result<Int64Array>>()?))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.0.state(emit_to)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], filter: Option<&BooleanArray>, num_groups: usize) -> Result<()> {
        self.0.merge_batch(states, groups, filter, num_groups)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        self.0.convert_to_state(&widened(values)?, filter)
    }

    fn supports_convert_to_state(&self) -> bool {
        self.0.supports_convert_to_state()
    }

    fn size(&self) -> usize {
        self.0.size()
    }
}

fn widened(values: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
    values.iter().map(|values| Ok(cast(values, &WIDE)?)).collect()
}
