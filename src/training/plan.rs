//! The order of the examples: which go into which optimiser step, and how a step is cut into batches.

use super::options::RunOptions;
use super::sharing::Sharing;
use crate::models::random::CounterRng;

/// The examples of one optimiser step, by index: batches that run one after the other and share one update.
pub(crate) type StepPlan = Vec<Vec<usize>>;

/// The random stream of the order of groups, beside that of the examples in them.
const GROUPS: u64 = 1;

/// The steps of a training run, epoch by epoch. It holds one epoch at a time, so many epochs cost no memory.
///
/// With `batch_size`, a step is `batch_size · gradient_accumulation` examples, cut into as many batches as `batch_tokens`
/// asks for: the token bound does not change which examples share a step. Without it, a batch is as many examples, in order, as fit in
/// `batch_tokens`, and a step is `gradient_accumulation` of them. With `step_tokens`, whatever the other two say, a step takes
/// examples until their tokens reach it. No step reaches over the end of an epoch.
///
/// With `tree_packing` the steps are the same: they are counted in examples, and in tokens of each example. Only then a step is cut anew,
/// with those that share a beginning next to each other, by the tokens that its batches have as trees, which makes fewer of them.
#[derive(Debug, Clone)]
pub(crate) struct Plan<'a> {
    costs: &'a [usize],
    run: &'a RunOptions,
    batch_size: Option<usize>,
    sharing: Option<&'a Sharing>,
    /// By example, where groups are shuffled as wholes.
    groups: Option<Vec<usize>>,
    epoch: u64,
    num_examples_left: usize,
    /// Examples of the steps of this epoch that are left.
    steps_of_epoch: std::vec::IntoIter<Vec<usize>>,
}

impl<'a> Plan<'a> {
    /// `costs`: tokens of each example, each at most `run.batch_tokens`.
    pub fn new(costs: &'a [usize], run: &'a RunOptions, batch_size: Option<usize>) -> Self {
        let num_examples_left = ((costs.len() as f64 * run.epochs).ceil() as usize).max(1);
        Self { costs, run, batch_size, sharing: None, groups: None, epoch: 0, num_examples_left, steps_of_epoch: Vec::new().into_iter() }
    }

    /// The same examples with what they share, for `run.tree_packing` and `run.group_by_prefix`.
    pub fn with_sharing(self, sharing: Option<&'a Sharing>) -> Self {
        let groups = sharing.filter(|_| self.run.group_by_prefix && self.run.shuffle).map(Sharing::groups);
        Self { sharing, groups, ..self }
    }

    /// How many steps there are, `max_steps` respected. A resumed run has the same plan and skips the steps that are done.
    pub fn num_steps(&self) -> usize {
        let mut plan = self.clone();
        let bound = self.run.max_steps.unwrap_or(usize::MAX);
        std::iter::from_fn(|| plan.next_step()).take(bound).count()
    }

    /// Tokens of the fullest batch that there can be.
    pub fn full_batch(&self) -> usize {
        let all = packing(self.sharing, self.run).map_or_else(|| self.costs.iter().sum(), Sharing::num_tokens);
        self.run.batch_tokens.min(all)
    }

    /// The examples of the next step, in the order of the epoch.
    fn next_step(&mut self) -> Option<Vec<usize>> {
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

    fn next_epoch(&mut self) -> Vec<Vec<usize>> {
        let mut order: Vec<usize> = (0..self.costs.len()).collect();
        if self.run.shuffle {
            shuffle(&mut order, self.run.seed, self.epoch);
        }
        if let Some(groups) = &self.groups {
            shuffle_groups(&mut order, groups, self.run.seed, self.epoch);
        }
        order.truncate(self.num_examples_left);
        self.num_examples_left -= order.len();
        self.epoch += 1;
        self.steps(&order).into_iter().map(<[_]>::to_vec).collect()
    }

    fn steps<'o>(&self, order: &'o [usize]) -> Vec<&'o [usize]> {
        let accumulation = self.run.gradient_accumulation;
        match (self.run.step_tokens, self.batch_size) {
            (Some(step_tokens), _) => self.windows(order, step_tokens),
            (None, Some(batch_size)) => order.chunks(batch_size.saturating_mul(accumulation)).collect(),
            (None, None) => {
                let mut rest = order;
                let batches = cut(order, self.costs, self.run.batch_tokens);
                let num_examples = batches.chunks(accumulation).map(|batches| batches.iter().map(|batch| batch.len()).sum::<usize>());
                let step = |num_examples: usize| {
                    let (step, after) = rest.split_at(num_examples);
                    rest = after;
                    step
                };
                num_examples.map(step).collect()
            }
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
}

impl Iterator for Plan<'_> {
    type Item = StepPlan;

    fn next(&mut self) -> Option<StepPlan> {
        self.next_step().map(|step| pack(&step, self.costs, self.sharing, self.run))
    }
}

/// All examples once, in few batches, whose order says nothing: for passes that learn nothing.
///
/// `costs`, `sharing`: as [`Plan`] has them.
pub(crate) fn all_in_batches(costs: &[usize], sharing: Option<&Sharing>, run: &RunOptions) -> StepPlan {
    let all: Vec<usize> = (0..costs.len()).collect();
    pack(&all, costs, sharing, run)
}

/// Cuts examples into batches of at most `batch_tokens`; without tree packing they keep their order.
fn pack(examples: &[usize], costs: &[usize], sharing: Option<&Sharing>, run: &RunOptions) -> StepPlan {
    match packing(sharing, run) {
        Some(sharing) => sharing.batches(examples, run.batch_tokens),
        None => cut(examples, costs, run.batch_tokens).into_iter().map(<[_]>::to_vec).collect(),
    }
}

/// What examples share, where batches are trees.
pub(super) fn packing<'s>(sharing: Option<&'s Sharing>, run: &RunOptions) -> Option<&'s Sharing> {
    sharing.filter(|_| run.tree_packing)
}

/// Cuts `order` where the next example would exceed `batch_tokens`.
fn cut<'o>(order: &'o [usize], costs: &[usize], batch_tokens: usize) -> Vec<&'o [usize]> {
    let mut num_tokens = order.first().map_or(0, |&first| costs[first]);
    let fits = |_: &usize, &next: &usize| {
        num_tokens = num_tokens.saturating_add(costs[next]);
        let fits = num_tokens <= batch_tokens;
        if !fits {
            num_tokens = costs[next];
        }
        fits
    };
    order.chunk_by(fits).collect()
}

/// Fisher-Yates, with a random stream of its own for each epoch, so that an epoch's order does not depend on the ones before.
pub(super) fn shuffle(order: &mut [usize], seed: u64, epoch: u64) {
    shuffle_by(order, CounterRng::new(seed).stream(epoch));
}

/// Puts groups together, in a random order of the groups; the examples of each stay in the order that they have.
fn shuffle_groups(order: &mut [usize], groups: &[usize], seed: u64, epoch: u64) {
    let mut places: Vec<usize> = (0..groups.iter().max().map_or(0, |last| last + 1)).collect();
    shuffle_by(&mut places, CounterRng::new(seed).stream(epoch).stream(GROUPS));
    order.sort_by_key(|&example| places[groups[example]]);
}

fn shuffle_by(order: &mut [usize], rng: CounterRng) {
    for end in (1..order.len()).rev() {
        // Multiply-shift maps 64 random bits to 0..=end; its bias is below 2^-32 for any set that fits in memory.
        let pick = (u128::from(rng.bits(end as u64)) * (end as u128 + 1)) >> 64;
        order.swap(end, pick as usize);
    }
}
