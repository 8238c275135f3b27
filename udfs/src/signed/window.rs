//! `row_number()` and its kin as bigint, and `ntile` as integer.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::compute::{SortOptions, cast};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::function::{ExpressionArgs, PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::{Documentation, LimitEffect, PartitionEvaluator, ReversedUDWF, Signature, WindowUDF, WindowUDFImpl};
use datafusion::physical_plan::PhysicalExpr;

/// The window functions whose numbers are unsigned, with PostgreSQL's types.
pub const WINDOW_NUMBERS: [(&str, DataType); 4] =
    [("row_number", DataType::Int64), ("rank", DataType::Int64), ("dense_rank", DataType::Int64), ("ntile", DataType::Int32)];

/// The window function with numbers of that type.
#[must_use]
pub fn with_numbers(inner: &Arc<WindowUDF>, data_type: DataType) -> WindowUDF {
    WindowUDF::new_from_impl(WindowNumbers { inner: Arc::clone(inner), data_type })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct WindowNumbers {
    inner: Arc<WindowUDF>,
    data_type: DataType,
}

impl WindowUDFImpl for WindowNumbers {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn expressions(&self, arguments: ExpressionArgs) -> Vec<Arc<dyn PhysicalExpr>> {
        self.inner.expressions(arguments)
    }

    fn partition_evaluator(&self, arguments: PartitionEvaluatorArgs) -> Result<Box<dyn PartitionEvaluator>> {
        let inner = self.inner.partition_evaluator_factory(arguments)?;
        Ok(Box::new(Evaluator { inner, data_type: self.data_type.clone() }))
    }

    fn field(&self, arguments: WindowUDFFieldArgs) -> Result<FieldRef> {
        let name = arguments.name().to_owned();
        let is_nullable = self.inner.field(arguments)?.is_nullable();
        Ok(Arc::new(Field::new(name, self.data_type.clone(), is_nullable)))
    }

    fn sort_options(&self) -> Option<SortOptions> {
        self.inner.sort_options()
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(arguments)
    }

    fn reverse_expr(&self) -> ReversedUDWF {
        self.inner.reverse_expr()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn limit_effect(&self, arguments: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        self.inner.inner().limit_effect(arguments)
    }
}

#[derive(Debug)]
struct Evaluator {
    inner: Box<dyn PartitionEvaluator>,
    data_type: DataType,
}

impl PartitionEvaluator for Evaluator {
    fn get_range(&self, index: usize, num_rows: usize) -> Result<Range<usize>> {
        self.inner.get_range(index, num_rows)
    }

    fn is_causal(&self) -> bool {
        self.inner.is_causal()
    }

    fn evaluate_all(&mut self, values: &[ArrayRef], num_rows: usize) -> Result<ArrayRef> {
        Ok(cast(&self.inner.evaluate_all(values, num_rows)?, &self.data_type)?)
    }

    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> Result<ScalarValue> {
        self.inner.evaluate(values, range)?.cast_to(&self.data_type)
    }

    fn evaluate_all_with_rank(&self, num_rows: usize, ranks: &[Range<usize>]) -> Result<ArrayRef> {
        Ok(cast(&self.inner.evaluate_all_with_rank(num_rows, ranks)?, &self.data_type)?)
    }

    fn supports_bounded_execution(&self) -> bool {
        self.inner.supports_bounded_execution()
    }

    fn uses_window_frame(&self) -> bool {
        self.inner.uses_window_frame()
    }

    fn include_rank(&self) -> bool {
        self.inner.include_rank()
    }
}
