//! What in the metrics of a training speaks against its model. None of it is an error: the model is there, and a person decides.

use super::task::Method;
use crate::training::StepMetrics;

/// Fewer steps say nothing: the rows of two steps differ by more.
const STEPS_MIN: usize = 10;
/// The last steps are this share of all.
const LAST_SHARE: usize = 10;
/// Rewards at the first step, where policy and reference are one, in units of `beta` times the log-probability of a completion: more is no rounding.
const SAME_MODEL: f64 = 1e-2;
/// The fall of the chosen completions' log-probability, as a share of where it began.
const FALL_MAX: f64 = 0.5;

/// What a DPO is known by when its metrics are there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Watched {
    beta: f64,
    /// The query gave the reference's log-probabilities, and the loss compares with them.
    reference_is_given: bool,
}

impl Watched {
    /// `None` for other methods: nothing in their metrics speaks against a model by itself.
    pub fn of(method: &Method, reference_is_given: bool) -> Option<Self> {
        let Method::Dpo(options) = method else { return None };
        let preference = &options.preference;
        Some(Self { beta: preference.beta, reference_is_given: reference_is_given && preference.loss.needs_reference() })
    }

    /// One sentence for each thing that is wrong.
    pub fn warnings(&self, steps: &[StepMetrics]) -> Vec<String> {
        [self.other_reference(steps), fallen_logps(steps), low_accuracy(steps)].into_iter().flatten().collect()
    }

    /// At the first step the policy is the base. Where it is not the reference, that may be meant; it is told.
    fn other_reference(&self, steps: &[StepMetrics]) -> Option<String> {
        let first = steps.first().filter(|_| self.reference_is_given)?;
        let is_other = |reward: &str, logps: &str| {
            let (reward, logps) = (first.get(reward)?, first.get(logps)?);
            (reward.abs() > SAME_MODEL * self.beta * logps.abs().max(1.0)).then_some(reward)
        };
        let reward = is_other("chosen_reward", "chosen_logps").or_else(|| is_other("rejected_reward", "rejected_logps"))?;
        Some(format!(
            "the reference columns are of another model than the base: a reward is {reward:.4} at the first step, where it would be 0; leave the columns \
             out to compare with the base"
        ))
    }
}

fn mean_of_last(steps: &[StepMetrics], name: &str) -> Option<f64> {
    let num_last = (steps.len() / LAST_SHARE).max(1);
    let values: Vec<f64> = steps[steps.len().saturating_sub(num_last)..].iter().filter_map(|step| step.get(name)).collect();
    (steps.len() >= STEPS_MIN && !values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// A margin that grows because both completions become unlikely.
fn fallen_logps(steps: &[StepMetrics]) -> Option<String> {
    let (first, last) = (steps.first()?.get("chosen_logps")?, mean_of_last(steps, "chosen_logps")?);
    (last < first - FALL_MAX * first.abs()).then(|| {
        format!(
            "the log-probability of the chosen completions fell from {first:.2} to {last:.2}: the policy forgets them too; lower learning_rate, raise beta, or \
             add sft_weight"
        )
    })
}

fn low_accuracy(steps: &[StepMetrics]) -> Option<String> {
    let accuracy = mean_of_last(steps, "reward_accuracy").filter(|accuracy| *accuracy < 0.5)?;
    Some(format!(
        "at the end the chosen completion has the larger reward in {:.0}% of the pairs only: the preferences are not learned; look at the pairs, or raise \
         learning_rate",
        accuracy * 100.0
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::training::{DpoOptions, SftOptions};

    /// `chosen_logps` and `reward_accuracy` of each step; the reward at the first one.
    fn steps(reward: f64, values: &[(f64, f64)]) -> Vec<StepMetrics> {
        let step = |(index, (logps, accuracy)): (usize, &(f64, f64))| StepMetrics {
            step: index + 1,
            num_steps: values.len(),
            metrics: vec![
                ("loss", 0.5),
                ("chosen_reward", if index == 0 { reward } else { 1.0 }),
                ("chosen_logps", *logps),
                ("reward_accuracy", *accuracy),
            ],
            is_replayed: false,
        };
        values.iter().enumerate().map(step).collect()
    }

    fn warnings(reference_is_given: bool, steps: &[StepMetrics]) -> usize {
        let watched = Watched::of(&Method::Dpo(DpoOptions::default()), reference_is_given).expect("a DPO is watched");
        watched.warnings(steps).len()
    }

    #[test]
    fn each_warning_has_its_reason() {
        let good = |count: usize| vec![(-10.0, 0.9); count];
        assert_eq!(warnings(true, &steps(1e-5, &good(20))), 0);
        assert_eq!(warnings(true, &steps(0.1, &good(20))), 1, "another reference");
        assert_eq!(warnings(false, &steps(0.1, &good(20))), 0, "none was given");
        let fallen = [good(18), vec![(-16.0, 0.9); 2]].concat();
        assert_eq!(warnings(false, &steps(0.0, &fallen)), 1);
        let kept = [good(18), vec![(-14.0, 0.9); 2]].concat();
        assert_eq!(warnings(false, &steps(0.0, &kept)), 0);
        let unlearned = [good(18), vec![(-16.0, 0.4); 2]].concat();
        assert_eq!(warnings(false, &steps(0.0, &unlearned)), 2);
        assert_eq!(warnings(false, &steps(0.0, &[(-10.0, 0.0), (-90.0, 0.0)])), 0, "two steps say nothing");
        assert_eq!(warnings(false, &[]), 0);
        assert_eq!(Watched::of(&Method::Sft(SftOptions::default()), true), None);
    }
}
