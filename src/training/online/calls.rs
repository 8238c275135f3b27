//! The policy calls of a step, in one list: what the losses of tokens are computed over.

use std::ops::Range;

use super::trajectory::{PolicyCall, SampledTrajectory};
use crate::models::DecoderConfig;
use crate::training::batch::Batch;
use crate::training::estimate::Estimate;
use crate::training::example::Sequence;
use crate::training::options::RunOptions;
use crate::training::plan::all_in_batches;
use crate::training::sharing::Sharing;

/// All calls of all trajectories, one after the other, and which trajectory each one belongs to.
#[derive(Debug)]
pub(super) struct StepCalls<'a> {
    pub calls: Vec<&'a PolicyCall>,
    /// By call.
    pub trajectory: Vec<usize>,
    /// Tokens that the policy wrote, by trajectory.
    pub num_tokens: Vec<usize>,
}

/// What an optimiser step learns from: some of the questions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub calls: Range<usize>,
    pub trajectories: Range<usize>,
}

impl<'a> StepCalls<'a> {
    pub fn of(groups: &'a [Vec<SampledTrajectory>]) -> Self {
        let (mut calls, mut owner): (Vec<&PolicyCall>, Vec<usize>) = (Vec::new(), Vec::new());
        let trajectories = groups.iter().flatten();
        for (index, trajectory) in trajectories.clone().enumerate() {
            calls.extend(&trajectory.calls);
            owner.resize(calls.len(), index);
        }
        Self { calls, trajectory: owner, num_tokens: trajectories.map(SampledTrajectory::num_tokens).collect() }
    }

    /// The step in `num_parts` parts, or in as many as it has questions, which differ by one question at most; in order, one after the other.
    pub fn parts(&self, groups: &[Vec<SampledTrajectory>], num_parts: usize) -> Vec<Part> {
        let num_parts = num_parts.clamp(1, groups.len().max(1));
        let first_trajectory = |part: usize| groups[..part * groups.len() / num_parts].iter().map(Vec::len).sum::<usize>();
        let first_call = |trajectory: usize| self.trajectory.partition_point(|owner| *owner < trajectory);
        let part = |part: usize| {
            let trajectories = first_trajectory(part)..first_trajectory(part + 1);
            Part { calls: first_call(trajectories.start)..first_call(trajectories.end), trajectories }
        };
        (0..num_parts).map(part).collect()
    }

    /// What goes through a model: each call is a sequence whose completion counts, token for token.
    pub fn sequences(&self) -> Vec<Sequence<'a>> {
        let sequence = |call: &&'a PolicyCall| Sequence {
            prompt: &call.prompt,
            completion: &call.completion,
            mask: &[],
            prompt_weight: 0.0,
            completion_weight: 1.0,
        };
        self.calls.iter().map(sequence).collect()
    }

    /// That the policy wrote in all trajectories.
    #[cfg(test)]
    pub fn total_tokens(&self) -> usize {
        self.num_tokens.iter().sum()
    }
}

/// Floating-point operations of one forward pass over all calls of these trajectories, in the batches of an update.
pub fn forward_flops_of(groups: &[Vec<SampledTrajectory>], config: &DecoderConfig, run: &RunOptions) -> f64 {
    let sequences = StepCalls::of(groups).sequences();
    let costs: Vec<usize> = sequences.iter().map(Sequence::num_inputs).collect();
    let sharing = run.tree_packing.then(|| Sharing::new(sequences.iter().map(std::slice::from_ref)));
    Estimate::forward_flops(config, &costs, sharing.as_ref(), run)
}

/// How sequences pass a decoder.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Passes<'a> {
    /// `batch_tokens`, `tree_packing`, `stop`.
    pub run: &'a RunOptions,
    pub recompute: bool,
}

impl Passes<'_> {
    /// The batch of these sequences, row ranges in this order.
    pub fn batch(&self, sequences: &[Sequence<'_>], calls: &[usize]) -> Batch {
        Batch::of(calls.iter().map(|&call| &sequences[call]), self.run.tree_packing)
    }

    /// Cuts these `selected` sequences into batches; those that begin alike come together where a batch has a common beginning once.
    pub fn batches(&self, sequences: &[Sequence<'_>], selected: &[usize]) -> Vec<Vec<usize>> {
        let chosen: Vec<Sequence<'_>> = selected.iter().map(|&call| sequences[call]).collect();
        let costs: Vec<usize> = chosen.iter().map(Sequence::num_inputs).collect();
        let sharing = self.run.tree_packing.then(|| Sharing::new(chosen.iter().map(std::slice::from_ref)));
        let batches = all_in_batches(&costs, sharing.as_ref(), self.run);
        batches.into_iter().map(|batch| batch.into_iter().map(|index| selected[index]).collect()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(prompt: &[u32], completion: &[u32]) -> PolicyCall {
        PolicyCall { prompt: prompt.to_vec(), completion: completion.to_vec(), ..PolicyCall::default() }
    }

    #[test]
    fn calls_know_their_trajectories() {
        let trajectory = |calls: Vec<PolicyCall>| SampledTrajectory { calls, ..SampledTrajectory::default() };
        let groups = [
            vec![trajectory(vec![call(&[1], &[2, 3]), call(&[1, 2, 3, 4], &[5])]), trajectory(vec![])],
            vec![trajectory(vec![call(&[7], &[8])])],
        ];
        let calls = StepCalls::of(&groups);
        assert_eq!((calls.trajectory.as_slice(), calls.num_tokens.as_slice()), (&[0, 0, 2][..], &[3, 0, 1][..]));
        assert_eq!(calls.total_tokens(), 4);
        let part = |calls, trajectories| Part { calls, trajectories };
        assert_eq!(calls.parts(&groups, 1), [part(0..3, 0..3)]);
        assert_eq!(calls.parts(&groups, 2), [part(0..2, 0..2), part(2..3, 2..3)]);
        assert_eq!(calls.parts(&groups, 9), calls.parts(&groups, 2), "a question is not cut");
        let sequences = calls.sequences();
        assert_eq!((sequences[1].prompt, sequences[1].completion, sequences[1].num_inputs()), (&[1, 2, 3, 4][..], &[5][..], 4));
    }

    #[test]
    fn batches_hold_the_selected_calls_once() {
        let calls = vec![call(&[1, 2, 3], &[4]), call(&[9], &[9]), call(&[1, 2, 3], &[5, 6]), call(&[7, 7], &[8]), call(&[1, 2, 3], &[4])];
        let groups = [vec![SampledTrajectory { calls, ..SampledTrajectory::default() }]];
        let step = StepCalls::of(&groups);
        let sequences = step.sequences();
        let batches = |tree_packing| {
            let run = RunOptions { batch_tokens: 4, tree_packing, ..RunOptions::default() };
            Passes { run: &run, recompute: false }.batches(&sequences, &[0, 2, 3, 4])
        };
        for cut in [batches(true), batches(false)] {
            let mut all = cut.concat();
            all.sort_unstable();
            assert_eq!(all, [0, 2, 3, 4]);
        }
        // Three calls have one prompt, and one of them a token behind it.
        assert!(batches(true).len() < batches(false).len());
        assert_eq!(batches(false), [vec![0], vec![2], vec![3], vec![4]]);
    }
}
