//! Which examples begin alike: how many tokens they are as trees, the order in which they fill batches, and groups that are shuffled as
//! one.
//!
//! The sequences of all examples are put in lexicographic order once. What two of them have in common is then the least of what the
//! neighbours between them have in common, and a tree grows by what a new sequence does not share with the nearer of its neighbours.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use super::example::{DpoExample, Reads, Sequence, SftExample, dpo_sequences, sft_sequences};
use super::options::RunOptions;
use crate::error::Result;

/// What the sequences of examples have in common at their beginnings.
#[derive(Debug, Clone)]
pub struct Sharing {
    /// By example: the places of its sequences in lexicographic order.
    places: Vec<Vec<usize>>,
    /// By example: tokens of its prompt.
    prompts: Vec<usize>,
    /// By place: tokens of the sequence that go through the model.
    lengths: Vec<u32>,
    /// By place: how many of these it has in common with the sequence at the place before.
    common: Minima,
    /// By place: the tree to which the sequence belongs. Sequences of two trees differ in their first token.
    trees: Vec<usize>,
}

/// What examples are in one pass.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Size {
    pub num_tokens: usize,
    /// Twice the sum over all tokens of how many tokens each sees: about the square of the length of a sequence.
    pub squares: f64,
}

/// Trees that grow example by example, as far as their size goes.
struct Trees<'a> {
    sharing: &'a Sharing,
    places: BTreeSet<usize>,
    size: Size,
}

impl Sharing {
    /// What demonstrations share, if `run` asks for that; those of weight 0 are left out.
    ///
    /// # Errors
    /// As [`train_sft`](super::train_sft) for its examples.
    pub fn of_demonstrations(examples: &[SftExample], prompt_weight: f64, run: &RunOptions) -> Result<Option<Self>> {
        let sharing = || -> Result<Self> { Ok(Self::new(sft_sequences(examples, prompt_weight, run)?.iter().map(std::slice::from_ref))) };
        Self::is_asked_for(run).then(sharing).transpose()
    }

    /// What pairs share, if `run` asks for that.
    ///
    /// # Errors
    /// As [`train_dpo`](super::train_dpo) for its examples.
    pub fn of_pairs(examples: &[DpoExample], run: &RunOptions) -> Result<Option<Self>> {
        let sharing = || -> Result<Self> { Ok(Self::new(dpo_sequences(examples, run)?.iter().map(<[Sequence<'_>; 2]>::as_slice))) };
        Self::is_asked_for(run).then(sharing).transpose()
    }

    /// Whether a run with these options looks at what examples share.
    pub(crate) fn is_asked_for(run: &RunOptions) -> bool {
        run.tree_packing || run.group_by_prefix
    }

    /// The sequences of each example, at least one.
    pub(crate) fn new<'s, S: Reads + 's>(examples: impl IntoIterator<Item = &'s [S]>) -> Self {
        let mut sequences: Vec<&S> = Vec::new();
        let (mut ends, mut prompts) = (Vec::new(), Vec::new());
        for example in examples {
            sequences.extend(example);
            ends.push(sequences.len());
            prompts.push(example.first().map_or(0, Reads::num_prompt));
        }
        let mut order: Vec<usize> = (0..sequences.len()).collect();
        // Stable: equal ones stay in the order of their examples.
        order.sort_by(|&one, &other| sequences[one].read().cmp(sequences[other].read()));
        let mut places = vec![0; order.len()];
        order.iter().enumerate().for_each(|(place, &sequence)| places[sequence] = place);
        let starts = [0].into_iter().chain(ends.iter().copied());
        let in_common = |pair: &[usize]| num_common(sequences[pair[0]], sequences[pair[1]]) as u32;
        let common: Vec<u32> = order.iter().take(1).map(|_| 0).chain(order.windows(2).map(in_common)).collect();
        let number_of_tree = common.iter().scan(0_usize, |number, &common| {
            *number += usize::from(common == 0);
            Some(*number)
        });
        Self {
            places: starts.zip(&ends).map(|(start, &end)| places[start..end].to_vec()).collect(),
            prompts,
            lengths: order.iter().map(|&sequence| sequences[sequence].num_read() as u32).collect(),
            trees: number_of_tree.collect(),
            common: Minima::new(common),
        }
    }

    /// Tokens of all examples as trees.
    pub(crate) fn num_tokens(&self) -> usize {
        let sum = |counts: &[u32]| counts.iter().map(|&count| count as usize).sum::<usize>();
        sum(&self.lengths) - sum(self.common.values())
    }

    /// What these examples are as trees.
    pub(crate) fn size(&self, examples: &[usize]) -> Size {
        let mut trees = Trees::new(self);
        examples.iter().for_each(|&example| trees.add(example));
        trees.size
    }

    /// Cuts examples into batches whose trees have at most `batch_tokens` tokens; an example that has more is a batch of its own.
    ///
    /// Those of one tree follow each other in lexicographic order, and trees come in the order of their first examples: examples that share
    /// nothing keep their order.
    pub(crate) fn batches(&self, examples: &[usize], batch_tokens: usize) -> Vec<Vec<usize>> {
        let mut batches: Vec<Vec<usize>> = Vec::new();
        let mut trees = Trees::new(self);
        for example in self.sharers_together(examples) {
            trees.add(example);
            match batches.last_mut() {
                Some(batch) if trees.size.num_tokens <= batch_tokens => batch.push(example),
                _ => {
                    trees = Trees::new(self);
                    trees.add(example);
                    batches.push(vec![example]);
                }
            }
        }
        batches
    }

    /// The group of each example, numbered from 0: neighbours whose prompts have half of the shorter one in common.
    ///
    /// What a prompt shares with strangers, such as the instruction that all prompts begin with, does not count. Strangers are the examples
    /// a quarter, a half and three quarters of the lexicographic order further on. Where a few prompts are all there are, these may be
    /// none; then groups are smaller, which costs time and nothing else.
    pub(crate) fn groups(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.places.len()).collect();
        order.sort_by_key(|&example| self.place(example));
        let mut groups = vec![0; order.len()];
        let mut group = 0;
        for index in 1..order.len() {
            group += usize::from(!self.is_of_the_group_before(&order, index));
            groups[order[index]] = group;
        }
        groups
    }

    fn is_of_the_group_before(&self, order: &[usize], index: usize) -> bool {
        let (before, example) = (order[index - 1], order[index]);
        let strangers = (1..4).map(|quarters| order[(index + quarters * order.len() / 4) % order.len()]);
        let with_strangers = strangers.filter(|&other| other != example).map(|other| self.common_prompt(example, other)).max();
        let own = |num_tokens: usize| num_tokens.saturating_sub(with_strangers.unwrap_or(0));
        2 * own(self.common_prompt(before, example)) >= own(self.prompts[before].min(self.prompts[example]))
    }

    fn common_prompt(&self, one: usize, other: usize) -> usize {
        self.in_common(self.place(one), self.place(other)).min(self.prompts[one]).min(self.prompts[other])
    }

    fn sharers_together(&self, examples: &[usize]) -> Vec<usize> {
        let tree = |example: usize| self.trees[self.place(example)];
        let mut first: HashMap<usize, usize> = HashMap::new();
        for (index, &example) in examples.iter().enumerate() {
            first.entry(tree(example)).or_insert(index);
        }
        let mut order = examples.to_vec();
        order.sort_by_key(|&example| (first[&tree(example)], self.place(example)));
        order
    }

    /// Of the first sequence of an example.
    fn place(&self, example: usize) -> usize {
        self.places[example][0]
    }

    /// Tokens that the sequences at two places have in common at their beginnings.
    fn in_common(&self, one: usize, other: usize) -> usize {
        match one.cmp(&other) {
            std::cmp::Ordering::Less => self.common.least(one + 1..other + 1) as usize,
            std::cmp::Ordering::Equal => self.lengths[one] as usize,
            std::cmp::Ordering::Greater => self.in_common(other, one),
        }
    }
}

impl<'a> Trees<'a> {
    fn new(sharing: &'a Sharing) -> Self {
        Self { sharing, places: BTreeSet::new(), size: Size::default() }
    }

    /// Adds the sequences of an example.
    fn add(&mut self, example: usize) {
        for &place in &self.sharing.places[example] {
            let neighbours = [self.places.range(..place).next_back(), self.places.range(place..).next()];
            let shared = neighbours.into_iter().flatten().map(|&neighbour| self.sharing.in_common(neighbour, place)).max().unwrap_or(0);
            let length = self.sharing.lengths[place] as usize;
            self.size.num_tokens += length - shared;
            self.size.squares += length as f64 * length as f64 - shared as f64 * shared as f64;
            self.places.insert(place);
        }
    }
}

fn num_common(one: &impl Reads, other: &impl Reads) -> usize {
    one.read().zip(other.read()).take_while(|(one, other)| one == other).count()
}

/// The least of any run of numbers, by a table of the least of every `2^n` numbers that follow each other.
#[derive(Debug, Clone)]
struct Minima(Vec<Vec<u32>>);

impl Minima {
    fn new(values: Vec<u32>) -> Self {
        let mut levels = vec![values];
        let mut width = 1;
        while let Some(below) = levels.last().filter(|below| below.len() > width) {
            let level = below.iter().zip(&below[width..]).map(|(one, other)| *one.min(other)).collect();
            levels.push(level);
            width *= 2;
        }
        Self(levels)
    }

    fn values(&self) -> &[u32] {
        &self.0[0]
    }

    /// `range` is not empty.
    fn least(&self, range: Range<usize>) -> u32 {
        let level = range.len().ilog2();
        let least = &self.0[level as usize];
        least[range.start].min(least[range.end - (1 << level)])
    }
}
