//! Padding-free batches: sequences as trees or end to end, and the rows whose next token, or whose score, counts in the loss.

use std::ops::Range;

use super::example::{Reads, ScoredSequence, Sequence};
use super::forest::Packed;
use crate::models::ops::Forest;

/// N tokens of several sequences, and the R rows that predict a token of non-zero weight.
///
/// The row of a sequence's token `t` predicts its token `t + 1`. The last token of a sequence predicts nothing and is left out. Of
/// sequences that share a row each has a row of its own among the R, since what follows may differ, and so may its weight.
///
/// Of a sequence that is scored all tokens are there, and the row of the last one is its only one.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Batch {
    /// `[N]`
    pub tokens: Vec<u32>,
    /// Of the N tokens.
    pub layout: Forest,
    /// Tokens of each sequence; their sum is N, or more where sequences share a beginning.
    pub lengths: Vec<usize>,
    /// `[R]`, positions among the N tokens, sequence after sequence.
    pub rows: Vec<u32>,
    /// `[R]`, the token that each row predicts; empty where rows are scored.
    pub targets: Vec<u32>,
    /// `[R]`, > 0.
    pub weights: Vec<f64>,
    /// Which of the R rows belong to each sequence.
    pub row_ranges: Vec<Range<usize>>,
}

impl Batch {
    /// Lays the sequences out as trees, so that what they begin with in common is there once.
    #[cfg(test)]
    pub fn pack<'a>(sequences: impl IntoIterator<Item = &'a Sequence<'a>>) -> Self {
        Self::of(sequences, true)
    }

    /// Lays the sequences out as trees, or end to end.
    pub fn of<'a>(sequences: impl IntoIterator<Item = &'a Sequence<'a>>, tree_packing: bool) -> Self {
        let sequences: Vec<&Sequence<'a>> = sequences.into_iter().collect();
        let (mut batch, packed) = Self::laid_out(&sequences, tree_packing);
        for (index, sequence) in sequences.into_iter().enumerate() {
            batch.push(sequence, packed.rows(index));
        }
        Self { tokens: packed.tokens, layout: packed.layout, ..batch }
    }

    /// Lays sequences that are scored out as trees, or end to end. None is empty.
    pub fn of_scored<'a>(sequences: impl IntoIterator<Item = &'a ScoredSequence<'a>>, tree_packing: bool) -> Self {
        let sequences: Vec<&ScoredSequence<'a>> = sequences.into_iter().collect();
        let (batch, packed) = Self::laid_out(&sequences, tree_packing);
        let rows = (0..sequences.len()).filter_map(|index| packed.rows(index).last()).map(|row| row as u32).collect();
        Self {
            rows,
            weights: vec![1.0; sequences.len()],
            row_ranges: (0..sequences.len()).map(|row| row..row + 1).collect(),
            tokens: packed.tokens,
            layout: packed.layout,
            ..batch
        }
    }

    /// A batch without rows, and where the tokens of each sequence are.
    fn laid_out<S: Reads>(sequences: &[&S], tree_packing: bool) -> (Self, Packed) {
        let inputs: Vec<Vec<u32>> = sequences.iter().map(|sequence| sequence.read().collect()).collect();
        let lengths = inputs.iter().map(Vec::len).collect();
        (Self { lengths, ..Self::default() }, Packed::of(&inputs, tree_packing))
    }

    /// `rows`: of the sequence's tokens.
    fn push(&mut self, sequence: &Sequence<'_>, rows: impl Iterator<Item = usize>) {
        let first_row = self.rows.len();
        for ((position, target), row) in sequence.tokens().enumerate().skip(1).zip(rows) {
            let weight = sequence.weight(position);
            if weight > 0.0 {
                self.rows.push(row as u32);
                self.targets.push(target);
                self.weights.push(weight);
            }
        }
        self.row_ranges.push(first_row..self.rows.len());
    }
}
