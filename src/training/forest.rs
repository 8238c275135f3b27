//! Sequences as trees: a beginning that several of them share, token for token, is laid out once.
//!
//! Trees and branches come in the order of the first sequences that have them, depth first. Sequences that share nothing therefore lie end
//! to end, in order.

use std::collections::HashMap;
use std::ops::Range;

use crate::models::ops::Forest;

/// Sequences laid out for one pass.
#[derive(Debug)]
pub(crate) struct Packed {
    /// `[N]`
    pub tokens: Vec<u32>,
    pub layout: Forest,
    /// By sequence: runs of the rows of its tokens, in their order.
    paths: Vec<Vec<Range<usize>>>,
}

/// Sequences that are the same before `start` and have the same token there.
struct Branch {
    sequences: Vec<usize>,
    start: usize,
    level: usize,
}

impl Packed {
    /// Lays sequences out as trees, or end to end.
    pub fn of(sequences: &[Vec<u32>], tree_packing: bool) -> Self {
        if tree_packing { Self::trees(sequences) } else { Self::end_to_end(sequences) }
    }

    /// The rows of a sequence's tokens, in their order.
    pub fn rows(&self, sequence: usize) -> impl Iterator<Item = usize> {
        self.paths[sequence].iter().cloned().flatten()
    }

    fn end_to_end(sequences: &[Vec<u32>]) -> Self {
        let mut end = 0;
        let path = |sequence: &Vec<u32>| {
            let start = end;
            end += sequence.len();
            std::iter::once(start..end).collect::<Vec<_>>()
        };
        let paths = sequences.iter().map(path).collect();
        let lengths: Vec<usize> = sequences.iter().map(Vec::len).collect();
        Self { tokens: sequences.concat(), layout: Forest::sequences(&lengths), paths }
    }

    fn trees(sequences: &[Vec<u32>]) -> Self {
        let (mut tokens, mut segments) = (Vec::new(), Vec::new());
        let mut paths = vec![Vec::new(); sequences.len()];
        let all: Vec<usize> = (0..sequences.len()).collect();
        // What is still to be laid out, the next one last.
        let mut branches = branches(sequences, &all, 0, 0);
        branches.reverse();
        while let Some(branch) = branches.pop() {
            let run = branch.run(sequences);
            let (first_row, end) = (tokens.len(), branch.start + run.len());
            for &sequence in &branch.sequences {
                let num_rows = sequences[sequence].len().min(end) - branch.start;
                paths[sequence].push(first_row..first_row + num_rows);
            }
            tokens.extend_from_slice(run);
            segments.push((branch.level, run.len()));
            branches.extend(self::branches(sequences, &branch.sequences, end, branch.level + 1).into_iter().rev());
        }
        Self { tokens, layout: Forest::depth_first(segments), paths }
    }
}

impl Branch {
    /// The tokens from its start to where its sequences part, or to the end of the longest one.
    fn run<'s>(&self, sequences: &'s [Vec<u32>]) -> &'s [u32] {
        let rest = |&sequence: &usize| &sequences[sequence][self.start..];
        let longest = self.sequences.iter().map(rest).max_by_key(|rest| rest.len()).unwrap_or_default();
        // One that ends on the way parts from none.
        let parts_at = |other: &[u32]| longest.iter().zip(other).position(|(one, other)| one != other);
        &longest[..self.sequences.iter().map(rest).filter_map(parts_at).min().unwrap_or(longest.len())]
    }
}

/// Where sequences that are the same before `start` go on: by the next token, in the order of the first sequence of each. Those that end
/// there go nowhere.
fn branches(sequences: &[Vec<u32>], members: &[usize], start: usize, level: usize) -> Vec<Branch> {
    let mut branches: Vec<Branch> = Vec::new();
    let mut by_token: HashMap<u32, usize> = HashMap::new();
    for &sequence in members {
        let Some(&token) = sequences[sequence].get(start) else { continue };
        let index = *by_token.entry(token).or_insert(branches.len());
        match branches.get_mut(index) {
            Some(branch) => branch.sequences.push(sequence),
            None => branches.push(Branch { sequences: vec![sequence], start, level }),
        }
    }
    branches
}
