//! `paired_test`, the aggregate that says whether two systems differ on the same questions.

use std::mem::size_of_val;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion::common::cast::{as_float64_array, as_list_array};
use datafusion::common::utils::{SingleRowListArrayBuilder, take_function_args};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, DocSection, Documentation, Signature, Volatility};
use datafusion::scalar::ScalarValue;

/// Resamples of the differences.
const NUM_RESAMPLES: u64 = 10_000;
/// The fewest, of very many pairs.
const NUM_RESAMPLES_MIN: u64 = 1_000;
/// Draws that one result may take: about two seconds.
const NUM_DRAWS: u64 = 1_000_000_000;

pub(crate) fn function() -> AggregateUDF {
    AggregateUDF::new_from_impl(PairedTest {
        signature: Signature::exact(vec![DataType::Float64, DataType::Float64], Volatility::Immutable),
        documentation: documentation(),
    })
}

fn documentation() -> Documentation {
    let section = DocSection { include: true, label: super::SECTION, description: None };
    let description = "Two-sided p-value of the paired bootstrap test that the mean of `a - b` is 0: the share of 10,000 resamples of the \
        differences (never fewer than 1,000, from 100,000 pairs on) whose mean lies as far from theirs as theirs from 0. Small \
        means that the two systems differ. The same pairs give the same value. Their difference lies in `avg(a - b) ± ci95(a - b)`. Pairs \
        with a NULL are left out; NULL with fewer than two pairs.";
    Documentation::builder(section, description, "paired_test(a, b)")
        .with_argument("a", "Scores of one system, a row for each question.")
        .with_argument("b", "Scores of the other, of the same question.")
        .with_sql_example("```sql\nSELECT paired_test(a, b) < 0.05 FROM (SELECT 1 AS a, i % 5 / 4 AS b FROM generate_series(1, 40) t(i)) s;\n-- true\n```")
        .build()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct PairedTest {
    signature: Signature,
    documentation: Documentation,
}

impl AggregateUDFImpl for PairedTest {
    fn name(&self) -> &str {
        "paired_test"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if args.is_distinct {
            return Err(DataFusionError::NotImplemented("paired_test(DISTINCT ...) is not supported; aggregate a SELECT DISTINCT".into()));
        }
        Ok(Box::<Differences>::default())
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let differences = DataType::new_list(DataType::Float64, true);
        Ok(vec![Arc::new(Field::new(format_state_name(args.name, "differences"), differences, true))])
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.documentation)
    }
}

/// `a - b` of every pair, in order of arrival.
#[derive(Debug, Default)]
struct Differences(Vec<f64>);

impl Accumulator for Differences {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [a, b] = take_function_args("paired_test", values)?;
        let pairs = as_float64_array(a)?.iter().zip(as_float64_array(b)?.iter());
        self.0.extend(pairs.filter_map(|(a, b)| Some(a? - b?)));
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [states] = take_function_args("paired_test", states)?;
        for state in as_list_array(states)?.iter().flatten() {
            self.0.extend_from_slice(state.as_primitive::<Float64Type>().values());
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let differences = Arc::new(Float64Array::from(self.0.clone()));
        Ok(vec![SingleRowListArrayBuilder::new(differences).build_list_scalar()])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(p_value(&mut self.0)))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.0.capacity() * size_of::<f64>()
    }
}

/// Two-sided p-value of the bootstrap test of a mean of 0 (Efron and Tibshirani 1993, algorithm 16.2, with the mean as the statistic).
///
/// The observed resample counts too, so that no p-value is 0 (Davison and Hinkley 1997, eq. 4.11). None with fewer than two
/// `differences`, or if one is not finite. They are sorted: the value must not depend on the order in which they came.
fn p_value(differences: &mut [f64]) -> Option<f64> {
    differences.sort_unstable_by(f64::total_cmp);
    let total: f64 = differences.iter().sum();
    if differences.len() < 2 || !total.is_finite() {
        return None;
    }
    let count = differences.len() as u64;
    let num_resamples = (NUM_DRAWS / count).clamp(NUM_RESAMPLES_MIN, NUM_RESAMPLES);
    // Sums of the same numbers in another order differ in their last digits.
    let least = total.abs() - 1e-9 * differences.iter().map(|difference| difference.abs()).sum::<f64>();
    let mut random = SplitMix64(count);
    let as_far = (0..num_resamples).filter(|_| (random.resample(differences) - total).abs() >= least).count();
    Some((as_far + 1) as f64 / (num_resamples + 1) as f64)
}

/// Steele, Lea and Flood 2014. Its seed is the number of differences.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Sum of as many of the `values` as there are, drawn with replacement.
    fn resample(&mut self, values: &[f64]) -> f64 {
        values.iter().map(|_| values[((u128::from(self.next()) * values.len() as u128) >> 64) as usize]).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::p_value;

    /// Share of all n^n resamples that lie as far from the mean as the mean from 0.
    fn exact(values: &[f64]) -> f64 {
        let (n, total) = (values.len(), values.iter().sum::<f64>());
        let resamples = n.pow(n as u32);
        let sum = |code: usize| (0..n).map(|place| values[code / n.pow(place as u32) % n]).sum::<f64>();
        let as_far = (0..resamples).filter(|code| (sum(*code) - total).abs() >= total.abs() - 1e-9).count();
        as_far as f64 / resamples as f64
    }

    #[test]
    fn is_near_the_exact_value() {
        for values in [
            vec![1.0, 0.0, 0.0, -1.0, 1.0, 1.0],
            vec![0.3, -0.1, 0.25, 0.5, 0.0],
            vec![1.0, -1.0, 0.5, -0.5],
            vec![0.0, 1.0, 0.0, 0.0, 0.0, 0.0],
        ] {
            let (found, exact) = (p_value(&mut values.clone()).expect("pairs"), exact(&values));
            assert!((found - exact).abs() < 0.015, "{values:?}: {found} {exact}");
        }
    }

    #[test]
    fn says_nothing_of_equal_systems_and_little_of_one_pair() {
        assert_eq!(p_value(&mut [0.0; 20]), Some(1.0));
        assert_eq!(p_value(&mut [0.5]), None);
        assert_eq!(p_value(&mut [0.5, f64::NAN]), None);
        assert!(p_value(&mut [0.1; 20]).expect("pairs") < 0.001, "always better by the same");
    }

    #[test]
    fn does_not_depend_on_the_order() {
        let mut values: Vec<f64> = (0..200).map(|i| f64::from(i % 7) / 7.0 - 0.4).collect();
        let first = p_value(&mut values);
        values.reverse();
        assert_eq!(first, p_value(&mut values));
    }

    /// A normal test of the mean, which the bootstrap nears with many pairs: z = 1.960 gives 0.05.
    #[test]
    fn nears_the_normal_test() {
        let spread: Vec<f64> = (0..400).map(|i| (f64::from(i) * 0.618_033_988_749_895).fract() - 0.5).collect();
        let mean = spread.iter().sum::<f64>() / 400.0;
        let deviation = (spread.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 400.0).sqrt();
        let mut shifted: Vec<f64> = spread.iter().map(|x| x - mean + 1.96 * deviation / 20.0).collect();
        let found = p_value(&mut shifted).expect("pairs");
        assert!((found - 0.05).abs() < 0.01, "{found}");
    }
}
