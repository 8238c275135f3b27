//! The order of the examples: which go into which optimiser step, and how a step is cut into batches.

use super::options::RunOptions;
use crate::models::random::CounterRng;

/// The examples of one optimiser step, by index: batches that run one after the other and share one update.
pub(crate) type StepPlan = Vec<Vec<usize>>;

/// The steps of a training run, epoch by epoch. It holds one epoch at a time, so many epochs cost no memory.
///
/// With `batch_size`, a step is `batch_size · gradient_accumulation` examples, cut into as many batches as `batch_tokens`
/// asks for: the token bound does not change which examples share a step. Without it, a batch is as many examples, in order, as fit in
/// `batch_tokens`, and a step is `gradient_accumulation` of them. With `step_tokens`, whatever the other two say, a step takes
/// examples until their tokens reach it. No step reaches over the end of an epoch.
#[derive(Debug, Clone)]
pub(crate) struct Plan<'a> {
    costs: &'a [usize],
    run: &'a RunOptions,
    batch_size: Option<usize>,
    epoch: u64,
    num_examples_left: usize,
    steps_of_epoch: std::vec::IntoIter<StepPlan>,
}

impl<'a> Plan<'a> {
    /// `costs`: tokens of each example, each at most `run.batch_tokens`.
    pub fn new(costs: &'a [usize], run: &'a RunOptions, batch_size: Option<usize>) -> Self {
        let num_examples_left = ((costs.len() as f64 * run.epochs).ceil() as usize).max(1);
        Self { costs, run, batch_size, epoch: 0, num_examples_left, steps_of_epoch: Vec::new().into_iter() }
    }

    /// How many steps there are, `max_steps` respected. A resumed run has the same plan and skips the steps that are done.
    pub fn num_steps(&self) -> usize {
        let bound = self.run.max_steps.unwrap_or(usize::MAX);
        self.clone().take(bound).count()
    }

    fn next_epoch(&mut self) -> Vec<StepPlan> {
        let mut order: Vec<usize> = (0..self.costs.len()).collect();
        if self.run.shuffle {
            shuffle(&mut order, self.run.seed, self.epoch);
        }
        order.truncate(self.num_examples_left);
        self.num_examples_left -= order.len();
        self.epoch += 1;
        self.steps(&order)
    }

    fn steps(&self, order: &[usize]) -> Vec<StepPlan> {
        let accumulation = self.run.gradient_accumulation;
        match (self.run.step_tokens, self.batch_size) {
            (Some(step_tokens), _) => self.windows(order, step_tokens).into_iter().map(|window| self.pack(window)).collect(),
            (None, Some(batch_size)) => order.chunks(batch_size.saturating_mul(accumulation)).map(|window| self.pack(window)).collect(),
            (None, None) => self.pack(order).chunks(accumulation).map(<[_]>::to_vec).collect(),
        }
    }

    /// Cuts `order` behind each example with which the tokens since the last cut reach `step_tokens`.
    fn windows<'o>(&self, order: &'o [usize], step_tokens: usize) -> Vec<&'o [usize]> {
        let mut num_tokens = 0_usize;
        let is_last_of_step = |&example: &usize| {
            num_tokens = num_tokens.saturating_add(self.costs[example]);
            let is_last = num_tokens >= step_tokens;
            if is_last {
                num_tokens = 0;
            }
            is_last
        };
        order.split_inclusive(is_last_of_step).collect()
    }

    /// Cuts `order` where the next example would exceed `batch_tokens`.
    fn pack(&self, order: &[usize]) -> StepPlan {
        let mut batches: StepPlan = Vec::new();
        let mut num_tokens = usize::MAX;
        for &example in order {
            let cost = self.costs[example];
            num_tokens = num_tokens.saturating_add(cost);
            if num_tokens > self.run.batch_tokens {
                batches.push(Vec::new());
                num_tokens = cost;
            }
            if let Some(batch) = batches.last_mut() {
                batch.push(example);
            }
        }
        batches
    }
}

impl Iterator for Plan<'_> {
    type Item = StepPlan;

    fn next(&mut self) -> Option<StepPlan> {
        loop {
            if let Some(step) = self.steps_of_epoch.next() {
                return Some(step);
            }
            if self.num_examples_left == 0 || self.costs.is_empty() {
                return None;
            }
            self.steps_of_epoch = self.next_epoch().into_iter();
        }
    }
}

/// Fisher-Yates, with a random stream of its own for each epoch, so that an epoch's order does not depend on the ones before.
fn shuffle(order: &mut [usize], seed: u64, epoch: u64) {
    let rng = CounterRng::new(seed).stream(epoch);
    for end in (1..order.len()).rev() {
        // Multiply-shift maps 64 random bits to 0..=end; its bias is below 2^-32 for any set that fits in memory.
        let pick = (u128::from(rng.bits(end as u64)) * (end as u128 + 1)) >> 64;
        order.swap(end, pick as usize);
    }
}
