//! What in the metrics of a training speaks against its model, told as soon as it shows. None of it is an error: the training goes on, and
//! a person decides.
//!
//! A metric is looked at by its name, whatever method gives it. Steps differ by their rows, so that the means of a few of them are
//! compared: the first with the last, or the last with the best.

use std::collections::{BTreeSet, VecDeque};

use super::task::Method;
use crate::training::StepMetrics;

/// Steps in a mean. The first and the last mean have no step in common.
const WINDOW: usize = 5;
/// Fewer steps say nothing about the end: the rows of two steps differ by more.
const STEPS_MIN: usize = 2 * WINDOW;
/// The last steps are this share of all.
const LAST_SHARE: usize = 10;
/// Rewards at the first step, where policy and reference are one, in units of `beta` times the log-probability of a completion: more is no
/// rounding.
const SAME_MODEL: f64 = 1e-2;

/// The fall of the log-probability of good completions, as a share of where it began, and at least so many nats. It precedes the collapse
/// of a policy (arXiv:2512.04220).
const LOGPS_FALL_MAX: f64 = 0.5;
const LOGPS_FALL_MIN: f64 = 0.1;
/// What is left of the entropy of a policy whose samples have become alike; where it began lower than this (in nats), there was none to
/// lose.
const ENTROPY_LEFT_MIN: f64 = 0.2;
const ENTROPY_MIN: f64 = 0.05;
/// The fall of the share of well-formed trajectories below the best.
const WELL_FORMED_FALL_MAX: f64 = 0.2;
/// The share of tokens whose probabilities have moved beyond what the objective follows.
const CLIP_FRACTION_MAX: f64 = 0.3;

/// A loss above this many times that of the first step, and so much more, has not been learned from.
const LOSS_RISE_MAX: f64 = 2.0;
const LOSS_RISE_MIN: f64 = 0.5;

/// What a DPO compares with.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Comparison {
    beta: f64,
    /// The query gave the reference's log-probabilities, and the loss compares with them.
    reference_is_given: bool,
}

/// Watches the steps of one training.
#[derive(Debug, Default)]
pub struct Watch {
    comparison: Option<Comparison>,
    /// Then the loss is to fall, and the entropy may; of a policy gradient the one need not, and the other should not.
    learns_from_examples: bool,
    num_steps: usize,
    loss: Curve,
    chosen_logps: Curve,
    correct_logps: Curve,
    entropy: Curve,
    well_formed: Curve,
    clip_fraction: Curve,
    /// What was told already.
    told: BTreeSet<&'static str>,
}

/// The values of one metric so far, as means of [`WINDOW`] steps.
#[derive(Debug, Default)]
struct Curve {
    first: Vec<f64>,
    last: VecDeque<f64>,
    num_values: usize,
    best: Option<f64>,
}

impl Watch {
    /// `reference_is_given`: the rows have log-probabilities of the reference. Of methods without one nothing but their metrics is looked
    /// at, which [`Self::default`] does too.
    pub fn of(method: &Method, reference_is_given: bool) -> Self {
        let comparison = match method {
            Method::Dpo(options) => {
                let preference = &options.preference;
                let reference_is_given = reference_is_given && preference.loss.needs_reference();
                Some(Comparison { beta: preference.beta, reference_is_given })
            }
            _ => None,
        };
        Self { comparison, learns_from_examples: true, ..Self::default() }
    }

    /// Takes in the next step, and gives one sentence for each thing that is wrong and was not told yet.
    pub fn step(&mut self, step: &StepMetrics) -> Vec<String> {
        self.num_steps += 1;
        let curves = [
            ("loss", &mut self.loss),
            ("chosen_logps", &mut self.chosen_logps),
            ("correct_logps", &mut self.correct_logps),
            ("entropy", &mut self.entropy),
            ("well_formed", &mut self.well_formed),
            ("clip_fraction", &mut self.clip_fraction),
        ];
        for (name, curve) in curves {
            step.get(name).into_iter().for_each(|value| curve.add(value));
        }
        let found = [
            ("reference", self.other_reference(step)),
            ("loss", self.risen_loss()),
            ("chosen_logps", self.fallen_chosen_logps()),
            ("correct_logps", self.fallen_correct_logps()),
            ("entropy", self.lost_entropy()),
            ("well_formed", self.malformed()),
            ("clip_fraction", self.clipped()),
        ];
        let new = found.into_iter().filter_map(|(kind, warning)| Some((kind, warning?))).filter(|(kind, _)| self.told.insert(*kind));
        new.map(|(_, warning)| warning).collect()
    }

    /// At the first step the policy is the base. Where it is not the reference, that may be meant; it is told.
    fn other_reference(&self, first: &StepMetrics) -> Option<String> {
        let Comparison { beta, .. } = self.comparison.filter(|comparison| self.num_steps == 1 && comparison.reference_is_given)?;
        let is_other = |reward: &str, logps: &str| {
            let (reward, logps) = (first.get(reward)?, first.get(logps)?);
            (reward.abs() > SAME_MODEL * beta * logps.abs().max(1.0)).then_some(reward)
        };
        let reward = is_other("chosen_reward", "chosen_logps").or_else(|| is_other("rejected_reward", "rejected_logps"))?;
        Some(format!(
            "the reference columns are of another model than the base, or of other tokens than those that are learned: a reward is {reward:.4} at the first step, where it would be 0; leave the columns \
             out to compare with the base"
        ))
    }

    /// The first step alone is before any update: a rate that is too high may have spoilt the ones after it.
    fn risen_loss(&self) -> Option<String> {
        let (first, last) = (*self.loss.first.first()?, self.loss.last_mean()?);
        (self.learns_from_examples && last > LOSS_RISE_MAX * first + LOSS_RISE_MIN)
            .then(|| format!("the loss rose from {first:.3} at the first step to {last:.3}: nothing is learned; lower learning_rate"))
    }

    /// A margin that grows because both completions become unlikely.
    fn fallen_chosen_logps(&self) -> Option<String> {
        let (first, last) = self.chosen_logps.fallen()?;
        Some(format!(
            "the log-probability of the chosen completions fell from {first:.2} to {last:.2}: the policy forgets them too; lower learning_rate, raise beta, \
             or add sft_weight"
        ))
    }

    fn fallen_correct_logps(&self) -> Option<String> {
        let (first, last) = self.correct_logps.fallen()?;
        Some(format!(
            "the log-probability of correct answers fell from {first:.2} to {last:.2}, which comes before a collapse; lower learning_rate, or set \
             likelihood_guard"
        ))
    }

    /// Samples that are all alike have the same reward, from which a group learns nothing.
    fn lost_entropy(&self) -> Option<String> {
        // By examples it is what is learned.
        let (first, last) = self.entropy.first_and_last().filter(|_| !self.learns_from_examples)?;
        (first >= ENTROPY_MIN && last < ENTROPY_LEFT_MIN * first).then(|| {
            format!(
                "the entropy of the policy fell from {first:.3} to {last:.3} nats: its samples become alike, and a group of them teaches nothing; raise \
                 temperature or clip_high, or lower learning_rate"
            )
        })
    }

    fn malformed(&self) -> Option<String> {
        let (best, last) = (self.well_formed.best?, self.well_formed.last_mean()?);
        (last < best - WELL_FORMED_FALL_MAX).then(|| {
            let (best, last) = (100.0 * best, 100.0 * last);
            format!(
                "{last:.0}% of the trajectories are well-formed, after {best:.0}% before: the policy forgets the protocol; lower learning_rate, or raise \
                 kl_weight"
            )
        })
    }

    fn clipped(&self) -> Option<String> {
        let share = self.clip_fraction.last_mean().filter(|share| *share > CLIP_FRACTION_MAX)?;
        Some(format!(
            "the objective is clipped for {:.0}% of the tokens: the policy moves further between two rollouts than it may; lower learning_rate or \
             updates_per_batch",
            100.0 * share
        ))
    }
}

impl Curve {
    fn add(&mut self, value: f64) {
        self.num_values += 1;
        if self.first.len() < WINDOW {
            self.first.push(value);
        }
        self.last.push_back(value);
        if self.last.len() > WINDOW {
            self.last.pop_front();
        }
        let best = self.best.into_iter().chain(self.last_mean()).reduce(f64::max);
        self.best = best;
    }

    /// Once there are enough values for one mean.
    fn last_mean(&self) -> Option<f64> {
        (self.num_values >= WINDOW).then(|| mean(self.last.iter().copied(), self.last.len()))
    }

    /// Once there are enough values for two means.
    fn first_and_last(&self) -> Option<(f64, f64)> {
        let last = self.last_mean().filter(|_| self.num_values >= STEPS_MIN)?;
        Some((mean(self.first.iter().copied(), self.first.len()), last))
    }

    /// A log-probability that is clearly smaller than where it began.
    fn fallen(&self) -> Option<(f64, f64)> {
        self.first_and_last().filter(|(first, last)| first - last > LOGPS_FALL_MIN.max(LOGPS_FALL_MAX * first.abs()))
    }
}

fn mean(values: impl Iterator<Item = f64>, count: usize) -> f64 {
    values.sum::<f64>() / count as f64
}

/// What only the end shows: one sentence for each thing that is wrong.
pub fn at_the_end(steps: &[StepMetrics]) -> Vec<String> {
    nothing_to_learn(steps).into_iter().chain(unlearned_preferences(steps)).collect()
}

/// Of trajectories that are all too long, or never end, no token counts.
fn nothing_to_learn(steps: &[StepMetrics]) -> Option<String> {
    let is_nothing = !steps.is_empty() && steps.iter().all(|step| step.get("tokens") == Some(0.0));
    is_nothing.then(|| {
        "no step had a token to learn from, so that the model is as its base: look at answered and well_formed in rollout.training_metrics, and raise \
         max_length if the trajectories do not fit"
            .to_owned()
    })
}

fn unlearned_preferences(steps: &[StepMetrics]) -> Option<String> {
    let num_last = (steps.len() / LAST_SHARE).max(1);
    let last: Vec<f64> = steps[steps.len().saturating_sub(num_last)..].iter().filter_map(|step| step.get("reward_accuracy")).collect();
    if steps.len() < STEPS_MIN || last.is_empty() {
        return None;
    }
    let accuracy = mean(last.iter().copied(), last.len());
    let loss = |step: Option<&StepMetrics>| step.and_then(|step| step.get("loss"));
    let advice = if loss(steps.last()) > loss(steps.first()) { "lower" } else { "raise" };
    (accuracy < 0.5).then(|| {
        format!(
            "at the end the chosen completion has the larger reward in {:.0}% of the pairs only: the preferences are not learned; look at the pairs, or \
             {advice} learning_rate",
            accuracy * 100.0
        )
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::training::{DpoOptions, SftOptions};

    const NONE: [usize; 0] = [];

    /// Steps with these values of one metric.
    fn steps(name: &'static str, values: &[f64]) -> Vec<StepMetrics> {
        let step = |(index, value): (usize, &f64)| StepMetrics {
            step: index + 1,
            num_steps: values.len(),
            metrics: vec![("loss", 0.5), (name, *value)],
            is_replayed: false,
        };
        values.iter().enumerate().map(step).collect()
    }

    /// The steps at which something is told.
    fn told(mut watch: Watch, steps: &[StepMetrics]) -> Vec<usize> {
        let told = steps.iter().flat_map(|step| vec![step.step; watch.step(step).len()]);
        told.collect()
    }

    fn told_of(name: &'static str, values: &[f64]) -> Vec<usize> {
        told(Watch::default(), &steps(name, values))
    }

    #[test]
    fn a_likelihood_that_falls_is_told_once() {
        for name in ["chosen_logps", "correct_logps"] {
            assert_eq!(told_of(name, &[-10.0; 30]), NONE);
            assert_eq!(told_of(name, &[[-10.0; 10], [-14.0; 10]].concat()), NONE, "{name} falls a little");
            // The mean of the last five is below -15 with the third of them.
            assert_eq!(told_of(name, &[[-10.0; 10], [-20.0; 10], [-40.0; 10]].concat()), [13]);
            assert_eq!(told_of(name, &[[-0.01; 10], [-0.05; 10]].concat()), NONE, "a likelihood that is nearly 1 stays so");
            assert_eq!(told_of(name, &[-10.0, -90.0]), NONE, "two steps say nothing");
            assert_eq!(told_of(name, &[[-20.0; 10], [-10.0; 10]].concat()), NONE, "it rises");
        }
    }

    #[test]
    fn a_loss_that_rises_is_told() {
        let told_of = |watch: Watch, values: &[f64]| {
            let mut steps = steps("other", values);
            steps.iter_mut().zip(values).for_each(|(step, value)| step.metrics = vec![("loss", *value)]);
            told(watch, &steps)
        };
        let watch = || Watch::of(&Method::Sft(SftOptions::default()), false);
        assert_eq!(told_of(watch(), &[0.7, 90.0, 80.0, 70.0, 60.0, 50.0, 40.0]), [5]);
        assert_eq!(told_of(watch(), &[[0.7; 10], [1.7; 10]].concat()), NONE, "rows differ");
        assert_eq!(told_of(watch(), &[0.7, 90.0]), NONE, "two steps say nothing");
        assert_eq!(told_of(Watch::default(), &[0.0, 5.0, 5.0, 5.0, 5.0, 5.0]), NONE, "a policy gradient's need not fall");
    }

    #[test]
    fn entropy_format_and_clipping_are_watched() {
        assert_eq!(told_of("entropy", &[[1.0; 10], [0.3; 10]].concat()), NONE);
        assert_eq!(told_of("entropy", &[[1.0; 10], [0.1; 10]].concat()), [15]);
        assert_eq!(told_of("entropy", &[[0.04; 10], [0.0; 10]].concat()), NONE, "there was none to lose");
        for method in [Method::Sft(SftOptions::default()), Method::Dpo(DpoOptions::default())] {
            let watch = Watch::of(&method, false);
            assert_eq!(told(watch, &steps("entropy", &[[1.0; 10], [0.1; 10]].concat())), NONE, "examples are what is learned");
        }
        // It is learned first, and lost then.
        assert_eq!(told_of("well_formed", &[[0.2; 10], [0.9; 10], [0.75; 10]].concat()), NONE);
        assert_eq!(told_of("well_formed", &[[0.2; 10], [0.9; 10], [0.35; 10]].concat()), [22]);
        assert_eq!(told_of("clip_fraction", &[[0.1; 10], [0.25; 10]].concat()), NONE);
        assert_eq!(told_of("clip_fraction", &[[0.1; 10], [0.5; 10]].concat()), [13]);
    }

    #[test]
    fn another_reference_is_told_at_the_first_step() {
        let steps = |reward: f64| {
            let of = |step: usize, reward: f64| StepMetrics {
                step,
                num_steps: 2,
                metrics: vec![("loss", 0.5), ("chosen_reward", reward), ("chosen_logps", -10.0)],
                is_replayed: false,
            };
            [of(1, reward), of(2, 1.0)]
        };
        let watch = |reference_is_given| Watch::of(&Method::Dpo(DpoOptions::default()), reference_is_given);
        assert_eq!(told(watch(true), &steps(1e-5)), NONE);
        assert_eq!(told(watch(true), &steps(0.1)), [1]);
        assert_eq!(told(watch(false), &steps(0.1)), NONE, "none was given");
        assert_eq!(told(Watch::of(&Method::Sft(SftOptions::default()), true), &steps(0.1)), NONE);
    }

    #[test]
    fn preferences_that_are_not_learned_are_told_at_the_end() {
        let of = |values: &[f64]| at_the_end(&steps("reward_accuracy", values)).len();
        assert_eq!(of(&[0.9; 20]), 0);
        assert_eq!(of(&[vec![0.9; 18], vec![0.4; 2]].concat()), 1);
        assert_eq!(of(&[0.0, 0.0]), 0, "two steps say nothing");
        assert_eq!(of(&[]), 0);
        assert_eq!(at_the_end(&steps("loss", &[0.4; 20])).len(), 0);
    }

    #[test]
    fn steps_without_a_token_are_told_at_the_end() {
        assert_eq!(at_the_end(&steps("tokens", &[0.0, 0.0])).len(), 1);
        assert_eq!(at_the_end(&steps("tokens", &[0.0, 9.0])).len(), 0);
    }

    proptest! {
        /// Whatever the values are, each kind is told at most once, and a step without metrics changes nothing.
        #[test]
        fn no_warning_comes_twice(values in proptest::collection::vec(-50.0..1.0_f64, 0..80)) {
            for name in ["chosen_logps", "correct_logps", "entropy", "well_formed", "clip_fraction"] {
                let told = told_of(name, &values);
                prop_assert!(told.len() <= 1, "{name} is told at {told:?}");
                prop_assert!(told.iter().all(|step| *step >= WINDOW));
            }
        }
    }
}
