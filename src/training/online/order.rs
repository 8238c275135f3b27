//! Which questions a step samples: epoch by epoch, each question once in an epoch, in a new order each time.

use crate::training::options::RunOptions;
use crate::training::plan::shuffle;

/// A function of the options alone, so that a run that goes on finds its place by the number of its step.
#[derive(Debug)]
pub(super) struct QuestionOrder<'a> {
    num_questions: usize,
    batch_size: usize,
    run: &'a RunOptions,
}

impl<'a> QuestionOrder<'a> {
    /// `batch_size`: questions of a step; the last one of an epoch may have fewer.
    pub fn new(num_questions: usize, batch_size: usize, run: &'a RunOptions) -> Self {
        Self { num_questions, batch_size, run }
    }

    /// All steps, `max_steps` respected.
    pub fn num_steps(&self) -> usize {
        let (num_draws, num_questions) = (self.num_draws(), self.num_questions.max(1));
        let (whole, rest) = (num_draws / num_questions, num_draws % num_questions);
        let num_steps = whole * self.steps_per_epoch() + rest.div_ceil(self.batch_size);
        self.run.max_steps.map_or(num_steps, |bound| bound.min(num_steps))
    }

    /// The questions of this step, which counts from 0.
    pub fn questions(&self, step: usize) -> Vec<usize> {
        let (epoch, step) = (step / self.steps_per_epoch(), step % self.steps_per_epoch());
        let mut order: Vec<usize> = (0..self.num_questions).collect();
        if self.run.shuffle {
            shuffle(&mut order, self.run.seed, epoch as u64);
        }
        // The last epoch may be a part of one.
        order.truncate(self.num_draws().saturating_sub(epoch * self.num_questions));
        order.into_iter().skip(step * self.batch_size).take(self.batch_size).collect()
    }

    /// How many [`Self::questions`] there are.
    pub fn num_questions(&self, step: usize) -> usize {
        let (epoch, step) = (step / self.steps_per_epoch(), step % self.steps_per_epoch());
        let of_epoch = self.num_draws().saturating_sub(epoch * self.num_questions).min(self.num_questions);
        of_epoch.saturating_sub(step * self.batch_size).min(self.batch_size)
    }

    /// Questions of all epochs.
    fn num_draws(&self) -> usize {
        ((self.num_questions as f64 * self.run.epochs).ceil() as usize).max(1)
    }

    fn steps_per_epoch(&self) -> usize {
        self.num_questions.div_ceil(self.batch_size).max(1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        /// Every epoch has each question once, and the steps are as many as there are questions for.
        #[test]
        fn an_epoch_has_each_question_once(
            num_questions in 1_usize..30,
            batch_size in 1_usize..12,
            epochs in 1_usize..4,
            seed in 0_u64..9,
        ) {
            let run = RunOptions { epochs: epochs as f64, seed, ..RunOptions::default() };
            let order = QuestionOrder::new(num_questions, batch_size, &run);
            let num_steps = order.num_steps();
            prop_assert_eq!(num_steps, epochs * num_questions.div_ceil(batch_size));
            let steps: Vec<Vec<usize>> = (0..num_steps).map(|step| order.questions(step)).collect();
            prop_assert!(steps.iter().all(|questions| (1..=batch_size).contains(&questions.len())));
            let counted: Vec<usize> = (0..num_steps).map(|step| order.num_questions(step)).collect();
            prop_assert_eq!(counted, steps.iter().map(Vec::len).collect::<Vec<_>>());
            for epoch in steps.chunks(num_questions.div_ceil(batch_size)) {
                let mut drawn = epoch.concat();
                drawn.sort_unstable();
                prop_assert_eq!(drawn, (0..num_questions).collect::<Vec<_>>());
            }
        }

        #[test]
        fn no_step_of_a_part_of_an_epoch_is_empty(num_questions in 1_usize..30, batch_size in 1_usize..12, epochs in 0.01_f64..3.0) {
            let run = RunOptions { epochs, ..RunOptions::default() };
            let order = QuestionOrder::new(num_questions, batch_size, &run);
            let num_draws: usize = (0..order.num_steps()).map(|step| order.questions(step).len()).sum();
            prop_assert_eq!(num_draws, ((num_questions as f64 * epochs).ceil() as usize).max(1));
            prop_assert!((0..order.num_steps()).all(|step| !order.questions(step).is_empty()));
        }
    }

    #[test]
    fn the_order_of_the_query_stays_where_it_is_asked_for() {
        let run = RunOptions { epochs: 2.0, shuffle: false, max_steps: Some(3), ..RunOptions::default() };
        let order = QuestionOrder::new(3, 2, &run);
        assert_eq!(order.num_steps(), 3);
        assert_eq!([0, 1, 2].map(|step| order.questions(step)), [vec![0, 1], vec![2], vec![0, 1]]);
    }
}
