//! `generate_series(first, last [, step])`: whole numbers to the ends of bigint, and instants by steps of an interval.
//!
//! DataFusion's function counts on past the largest number, and its instants are in nanoseconds.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, IntervalMonthDayNano, Schema, SchemaRef, TimeUnit};
use datafusion::catalog::streaming::StreamingTable;
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::{SendableRecordBatchStream, SessionState, TaskContext};
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{Expr, SortExpr, col};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use futures::stream;
use rolloutdb_udfs::later;
use rolloutdb_udfs::postgres::timestamp_of;

use crate::engine::casts;
use crate::error::{Error, Result};

pub const NAME: &str = "generate_series";

/// The column of its rows, until the query names it.
const COLUMN: &str = "value";

/// What is left of a series.
#[derive(Debug, Clone)]
enum Series {
    /// An argument is NULL.
    Empty(DataType),
    Integers {
        next: Option<i64>,
        last: i64,
        step: i64,
    },
    Instants {
        next: Option<i64>,
        last: i64,
        step: IntervalMonthDayNano,
        data_type: DataType,
    },
}

impl Series {
    /// # Errors
    /// [`Error::InvalidParameter`] for a step of nothing, [`Error::WrongType`] for other arguments.
    fn new(arguments: &[ScalarValue]) -> Result<Self> {
        let (first, last, step) = match arguments {
            [first, last] => (first, last, None),
            [first, last, step] => (first, last, Some(step)),
            _ => {
                let syntax = format!("{NAME}(first, last[, step])");
                return Err(rolloutdb_udfs::Error::ArgumentCount { found: arguments.len(), syntax }.into());
            }
        };
        let is_time = |value: &ScalarValue| matches!(value.data_type(), DataType::Date32 | DataType::Timestamp(..));
        if is_time(first) || is_time(last) {
            return Self::of_instants(first, last, step);
        }
        let integer = |value: &ScalarValue| match value.data_type() {
            found if found.is_integer() || found.is_null() => Ok(value.cast_to(&DataType::Int64)?),
            found => Err(wrong(&found, "a whole number, a date or a timestamp")),
        };
        let numbers = [Some(first), Some(last), step].into_iter().flatten().map(integer).collect::<Result<Vec<_>>>()?;
        let numbers: Option<Vec<i64>> =
            numbers.into_iter().map(|number| if let ScalarValue::Int64(number) = number { number } else { None }).collect();
        let (first, last, step) = match numbers.as_deref() {
            Some([first, last]) => (*first, *last, 1),
            Some([first, last, step]) => (*first, *last, *step),
            _ => return Ok(Self::Empty(DataType::Int64)),
        };
        if step == 0 {
            return Err(no_step());
        }
        Ok(Self::Integers { next: Some(first), last, step })
    }

    fn of_instants(first: &ScalarValue, last: &ScalarValue, step: Option<&ScalarValue>) -> Result<Self> {
        let zone = [first, last].into_iter().find_map(|value| match value.data_type() {
            DataType::Timestamp(_, zone) => zone,
            _ => None,
        });
        let data_type = DataType::Timestamp(TimeUnit::Microsecond, zone);
        let step = step.ok_or_else(|| Error::WrongType {
            what: format!("{NAME} over dates and timestamps"),
            found: "a call without a step".to_owned(),
            expected: "an interval as its third argument".to_owned(),
        })?;
        let step = match step.cast_to(&DataType::Interval(arrow::datatypes::IntervalUnit::MonthDayNano)) {
            Ok(ScalarValue::IntervalMonthDayNano(step)) => step,
            _ => return Err(wrong(&step.data_type(), "an interval as its step")),
        };
        let has_zone = matches!(data_type, DataType::Timestamp(_, Some(_)));
        let (Some(first), Some(last), Some(step)) = (instant(first, has_zone)?, instant(last, has_zone)?, step) else {
            return Ok(Self::Empty(data_type));
        };
        if step == IntervalMonthDayNano::ZERO {
            return Err(no_step());
        }
        Ok(Self::Instants { next: Some(first), last, step, data_type })
    }

    fn data_type(&self) -> DataType {
        match self {
            Self::Integers { .. } => DataType::Int64,
            Self::Empty(data_type) | Self::Instants { data_type, .. } => data_type.clone(),
        }
    }

    /// Whether each row is later than the one before; `None` for instants by a step whose parts go both ways.
    fn ascends(&self) -> Option<bool> {
        match self {
            Self::Empty(_) => None,
            Self::Integers { step, .. } => Some(*step > 0),
            Self::Instants { step, .. } => {
                let parts = [i64::from(step.months), i64::from(step.days), step.nanoseconds];
                let is_one_way = parts.iter().all(|part| *part >= 0) || parts.iter().all(|part| *part <= 0);
                is_one_way.then(|| is_forward(*step))
            }
        }
    }

    /// The next values, at most so many; `None` at the end.
    ///
    /// # Errors
    /// An instant beyond timestamps (22008).
    fn take(&mut self, count: usize) -> Result<Option<ArrayRef>> {
        let mut values = Vec::new();
        match self {
            Self::Empty(_) => {}
            Self::Integers { next, last, step } => {
                while let Some(value) = next.filter(|value| if *step > 0 { *value <= *last } else { *value >= *last }) {
                    if values.len() == count {
                        break;
                    }
                    values.push(value);
                    // There is no number behind the last of bigint.
                    *next = value.checked_add(*step);
                }
            }
            Self::Instants { next, last, step, .. } => {
                let is_forward = is_forward(*step);
                while let Some(value) = next.filter(|value| if is_forward { *value <= *last } else { *value >= *last }) {
                    if values.len() == count {
                        break;
                    }
                    values.push(value);
                    let moved = later(value, *step)?;
                    // Nothing comes behind infinity.
                    *next = (moved != value).then_some(moved);
                }
            }
        }
        Ok((!values.is_empty()).then(|| match self.data_type() {
            DataType::Int64 => Arc::new(Int64Array::from(values)) as ArrayRef,
            data_type => Arc::new(TimestampMicrosecondArray::from(values).with_data_type(data_type)),
        }))
    }
}

/// As PostgreSQL has it: by what the step is compared with none, a month being 30 days.
fn is_forward(step: IntervalMonthDayNano) -> bool {
    const DAY: i128 = 86_400_000_000_000;
    (i128::from(step.months) * 30 + i128::from(step.days)) * DAY + i128::from(step.nanoseconds) >= 0
}

fn instant(value: &ScalarValue, has_zone: bool) -> Result<Option<i64>> {
    const DAY: i64 = 86_400_000_000;
    Ok(match value {
        ScalarValue::Null | ScalarValue::Date32(None) => None,
        ScalarValue::Date32(Some(i32::MAX)) => Some(i64::MAX),
        ScalarValue::Date32(Some(i32::MIN)) => Some(i64::MIN),
        ScalarValue::Date32(Some(day)) => {
            Some(i64::from(*day).checked_mul(DAY).ok_or(Error::Udf(rolloutdb_udfs::Error::DateBeyondTimestamp))?)
        }
        ScalarValue::TimestampMicrosecond(micros, _) => *micros,
        ScalarValue::Utf8(text) | ScalarValue::LargeUtf8(text) | ScalarValue::Utf8View(text) => {
            text.as_deref().map(|text| timestamp_of(text, has_zone)).transpose()?
        }
        other => match other.cast_to(&DataType::Timestamp(TimeUnit::Microsecond, None)) {
            Ok(ScalarValue::TimestampMicrosecond(micros, _)) => micros,
            _ => return Err(wrong(&other.data_type(), "a date or a timestamp")),
        },
    })
}

fn wrong(found: &DataType, expected: &str) -> Error {
    Error::WrongType {
        what: format!("an argument of {NAME}"),
        found: crate::engine::typing::sql_type_name(found),
        expected: expected.to_owned(),
    }
}

fn no_step() -> Error {
    Error::InvalidParameter {
        name: "step".to_owned(),
        found: "zero".to_owned(),
        expected: "a step size that does not equal zero".to_owned(),
    }
}

/// The function in FROM.
#[derive(Debug)]
pub struct SeriesFunction;

impl TableFunctionImpl for SeriesFunction {
    fn call_with_args(&self, arguments: TableFunctionArgs) -> DataFusionResult<Arc<dyn TableProvider>> {
        let state = arguments.session().as_any().downcast_ref::<SessionState>();
        let values = arguments.exprs().iter().map(|argument| constant(argument, state)).collect::<Result<Vec<_>>>()?;
        let series = Series::new(&values)?;
        let schema = Arc::new(Schema::new(vec![Field::new(COLUMN, series.data_type(), false)]));
        let order: Vec<SortExpr> = series.ascends().map(|ascends| col(COLUMN).sort(ascends, false)).into_iter().collect();
        let rows = SeriesRows { series, schema: Arc::clone(&schema) };
        Ok(Arc::new(StreamingTable::try_new(schema, vec![Arc::new(rows)])?.with_sort_order(order)))
    }
}

/// The value of an argument; times in quotes are read as PostgreSQL reads them.
fn constant(argument: &Expr, state: Option<&SessionState>) -> Result<ScalarValue> {
    if let Expr::Literal(value, _) = argument {
        return Ok(value.clone());
    }
    let schema = DFSchema::empty();
    let simplified = match state {
        Some(state) => {
            let context = SimplifyContext::builder()
                .with_config_options(Arc::clone(state.config_options()))
                .with_query_execution_start_time(state.execution_props().query_execution_start_time)
                .build();
            let simplifier = ExprSimplifier::new(context);
            let typed = casts::typed_expression(argument.clone(), &schema, state)?;
            simplifier.coerce(typed, &schema).and_then(|typed| simplifier.simplify(typed))?
        }
        None => argument.clone(),
    };
    match simplified {
        Expr::Literal(value, _) => Ok(value),
        _ => {
            Err(Error::NotSupported(format!("{NAME}() in FROM takes constants; of columns write unnest({NAME}(..)) in the list of SELECT")))
        }
    }
}

#[derive(Debug)]
struct SeriesRows {
    series: Series,
    schema: SchemaRef,
}

impl PartitionStream for SeriesRows {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (schema, count) = (Arc::clone(&self.schema), context.session_config().batch_size());
        let batches = stream::try_unfold(self.series.clone(), move |mut series| {
            let schema = Arc::clone(&schema);
            async move {
                let Some(column) = series.take(count)? else { return Ok::<_, DataFusionError>(None) };
                Ok(Some((RecordBatch::try_new(schema, vec![column])?, series)))
            }
        });
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), batches))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::Int64Type;

    use super::*;

    fn integers(arguments: &[i64]) -> Vec<i64> {
        let arguments: Vec<ScalarValue> = arguments.iter().copied().map(ScalarValue::from).collect();
        let mut series = Series::new(&arguments).expect("a series");
        let mut values = Vec::new();
        while let Some(column) = series.take(2).expect("numbers") {
            values.extend_from_slice(column.as_primitive::<Int64Type>().values());
        }
        values
    }

    #[test]
    fn a_series_ends_at_the_ends_of_bigint() {
        assert_eq!(integers(&[i64::MAX - 2, i64::MAX]), [i64::MAX - 2, i64::MAX - 1, i64::MAX]);
        assert_eq!(integers(&[i64::MIN + 1, i64::MIN, -1]), [i64::MIN + 1, i64::MIN]);
        assert_eq!(integers(&[i64::MIN, i64::MAX, i64::MAX]), [i64::MIN, -1, i64::MAX - 1]);
        assert_eq!(integers(&[3, 1]), [0_i64; 0]);
        assert!(Series::new(&[1_i64.into(), 2_i64.into(), 0_i64.into()]).is_err());
    }
}
