//! Padding-free batches: sequences laid end to end, and the rows whose next token counts in the loss.

use std::ops::Range;

use super::example::Sequence;

/// N tokens of several sequences, end to end, and the R positions ("rows") that predict a token of non-zero weight.
///
/// Row `t` of a sequence predicts its token `t + 1`. The last token of a sequence predicts nothing and is left out.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Batch {
    /// `[N]`
    pub tokens: Vec<u32>,
    /// Tokens of each sequence; their sum is N.
    pub lengths: Vec<usize>,
    /// `[R]`, positions among the N tokens, ascending.
    pub rows: Vec<u32>,
    /// `[R]`, the token that each row predicts.
    pub targets: Vec<u32>,
    /// `[R]`, > 0.
    pub weights: Vec<f64>,
    /// Which of the R rows belong to each sequence.
    pub row_ranges: Vec<Range<usize>>,
}

impl Batch {
    /// Lays the sequences end to end, in order.
    pub fn pack<'a>(sequences: impl IntoIterator<Item = &'a Sequence<'a>>) -> Self {
        let mut batch = Self::default();
        for sequence in sequences {
            batch.push(sequence);
        }
        batch
    }

    fn push(&mut self, sequence: &Sequence<'_>) {
        let start = self.tokens.len();
        let first_row = self.rows.len();
        let num_inputs = sequence.num_inputs();
        self.tokens.extend(sequence.prompt.iter().chain(sequence.completion).take(num_inputs));
        self.lengths.push(num_inputs);
        for (position, &target) in sequence.prompt.iter().chain(sequence.completion).enumerate().skip(1) {
            let weight = sequence.weight(position);
            if weight > 0.0 {
                self.rows.push((start + position - 1) as u32);
                self.targets.push(target);
                self.weights.push(weight);
            }
        }
        self.row_ranges.push(first_row..self.rows.len());
    }
}
