//! `ci95`, the aggregate that says how far a mean of scores can be trusted.

use std::mem::size_of_val;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::cast::{as_float64_array, as_uint64_array};
use datafusion::common::utils::take_function_args;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, DocSection, Documentation, Signature, Volatility};
use datafusion::scalar::ScalarValue;

/// The 97.5 % point of the standard normal distribution.
const Z: f64 = 1.959963984540054;

pub(crate) fn function() -> AggregateUDF {
    AggregateUDF::new_from_impl(Ci95 {
        signature: Signature::exact(vec![DataType::Float64], Volatility::Immutable),
        documentation: documentation(),
    })
}

fn documentation() -> Documentation {
    let section = DocSection { include: true, label: super::SECTION, description: None };
    let description = "Half width of the normal 95 % confidence interval of the mean: `1.96 * stddev / sqrt(count)` with the \
        sample standard deviation. The mean lies in `avg(x) ± ci95(x)`. NULLs are left out; NULL with fewer than two values.";
    Documentation::builder(section, description, "ci95(x)")
        .with_argument("x", "The values, for example the scores of an evaluation.")
        .with_sql_example("```sql\nSELECT round(ci95(x), 3) FROM (VALUES (0.0), (1.0), (1.0), (1.0)) t(x);\n-- 0.49\n```")
        .build()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Ci95 {
    signature: Signature,
    documentation: Documentation,
}

impl AggregateUDFImpl for Ci95 {
    fn name(&self) -> &str {
        "ci95"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if args.is_distinct {
            return Err(DataFusionError::NotImplemented("ci95(DISTINCT ...) is not supported; aggregate a SELECT DISTINCT".into()));
        }
        Ok(Box::<Moments>::default())
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let field = |name, data_type| Arc::new(Field::new(format_state_name(args.name, name), data_type, true));
        Ok(vec![field("count", DataType::UInt64), field("mean", DataType::Float64), field("squares", DataType::Float64)])
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.documentation)
    }
}

/// Count, mean and sum of squared deviations from the mean.
///
/// Merged by Chan, Golub & LeVeque 1979; sums of plain squares would cancel for scores that hardly differ.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Moments {
    count: u64,
    mean: f64,
    squares: f64,
}

impl Moments {
    fn merge(&mut self, other: Self) {
        if other.count == 0 {
            return;
        }
        let count = self.count + other.count;
        let delta = other.mean - self.mean;
        let share = other.count as f64 / count as f64;
        self.squares += other.squares + delta * delta * self.count as f64 * share;
        self.mean += delta * share;
        self.count = count;
    }

    fn half_width(&self) -> Option<f64> {
        let count = self.count as f64;
        (self.count > 1).then(|| Z * (self.squares / (count - 1.0) / count).sqrt())
    }
}

impl Accumulator for Moments {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [values] = take_function_args("ci95", values)?;
        for value in as_float64_array(values)?.iter().flatten() {
            self.merge(Self { count: 1, mean: value, squares: 0.0 });
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [counts, means, squares] = take_function_args("ci95", states)?;
        let (counts, means, squares) = (as_uint64_array(counts)?, as_float64_array(means)?, as_float64_array(squares)?);
        for row in 0..counts.len() {
            self.merge(Self { count: counts.value(row), mean: means.value(row), squares: squares.value(row) });
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.count.into(), self.mean.into(), self.squares.into()])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(self.half_width()))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

#[cfg(test)]
mod tests {
    use super::{Moments, Z};

    fn moments(values: &[f64]) -> Moments {
        let mut moments = Moments::default();
        values.iter().for_each(|value| moments.merge(Moments { count: 1, mean: *value, squares: 0.0 }));
        moments
    }

    #[test]
    fn is_z_times_the_standard_error() {
        let half_width = moments(&[0.0, 1.0, 1.0, 1.0]).half_width().expect("four values");
        assert!((half_width - Z * 0.5 / 2.0).abs() < 1e-12, "sample deviation 0.5, four values: {half_width}");
        assert_eq!(moments(&[1.0]).half_width(), None);
        assert_eq!(moments(&[]).half_width(), None);
    }

    #[test]
    fn merging_parts_equals_the_whole() {
        let values: Vec<f64> = (0..100).map(|i| 1e9 + f64::from(i % 7)).collect();
        let (left, right) = values.split_at(33);
        let mut merged = moments(left);
        merged.merge(Moments::default());
        merged.merge(moments(right));
        let (merged, whole) = (merged.half_width().expect("values"), moments(&values).half_width().expect("values"));
        assert!((merged - whole).abs() < 1e-6, "{merged} {whole}");
    }
}
