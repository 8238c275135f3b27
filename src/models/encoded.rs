//! Weight matrices that stay in memory as a GGUF file has them, and are decoded for every product.
//!
//! A few rows of weights at a time become f32 in the processor's caches and meet all rows of x there, which share the decoding. Activations are
//! not rounded, so a product is that of the decoded weights. As in `panels.rs` each result is one sum in a fixed order, and a sequence decodes to
//! the same bits alone and in a batch.

use rayon::prelude::*;

use super::decoding::decode;
use super::dots::multiply_encoded;
use super::encoding::Encoding;
use super::scratch::Scratch;

/// Multiply-adds below which a product stays on the calling thread; decoding makes them dearer than those of `panels.rs`.
const PARALLEL_WORK: usize = 1 << 19;
/// Outputs per parallel task; a multiple of the rows that are decoded together.
const OUTPUTS_PER_TASK: usize = 32;

/// A weight matrix `[output, input]`, row by row.
#[derive(Debug)]
pub struct EncodedMatrix {
    encoding: Encoding,
    bytes: Vec<u8>,
    input: usize,
    row_bytes: usize,
}

impl EncodedMatrix {
    /// A matrix of the rows in `bytes`; `None` if they are not whole rows, or a row is not whole blocks.
    pub fn new(encoding: Encoding, input: usize, bytes: Vec<u8>) -> Option<Self> {
        let row_bytes = encoding.bytes(input).filter(|row_bytes| *row_bytes > 0 && bytes.len().is_multiple_of(*row_bytes))?;
        Some(Self { encoding, bytes, input, row_bytes })
    }

    /// Number of output columns.
    pub fn output(&self) -> usize {
        self.bytes.len() / self.row_bytes
    }

    /// The values of row `index`, written to `out` `[input]`.
    pub fn copy_row(&self, index: usize, out: &mut [f32]) {
        decode(self.encoding, &self.bytes[index * self.row_bytes..][..self.row_bytes], out);
    }

    /// `x Wᵀ`: `x` `[rows, input]`, gives `[rows, output]`.
    #[cfg(test)]
    pub fn multiply(&self, x: &[f32]) -> Vec<f32> {
        let mut out = vec![0.0; x.len() / self.input * self.output()];
        self.multiply_into(x, &mut out);
        out
    }

    /// `x Wᵀ` to `out` `[rows, output]`, all of which is written; `x` `[rows, input]`.
    pub fn multiply_into(&self, x: &[f32], out: &mut [f32]) {
        match x.len() / self.input {
            0 => {}
            1 => self.multiply_columns(x, 1, out),
            rows => {
                let mut columns = Scratch::new(out.len());
                self.multiply_columns(x, rows, &mut columns);
                transpose(&columns, rows, out);
            }
        }
    }

    /// `W xᵀ`: `columns` `[output, rows]`.
    fn multiply_columns(&self, x: &[f32], rows: usize, columns: &mut [f32]) {
        let multiply = |decoded: &mut Vec<f32>, (weights, columns): (&[u8], &mut [f32])| {
            multiply_encoded(self.encoding, weights, x, self.input, decoded, columns);
        };
        if rows * self.input * self.output() < PARALLEL_WORK || rayon::current_num_threads() == 1 {
            multiply(&mut Vec::new(), (self.bytes.as_slice(), columns));
        } else {
            let weights = self.bytes.par_chunks(OUTPUTS_PER_TASK * self.row_bytes);
            weights.zip(columns.par_chunks_mut(OUTPUTS_PER_TASK * rows)).for_each_init(Vec::new, multiply);
        }
    }
}

/// `[output, rows]` to `[rows, output]`.
fn transpose(columns: &[f32], rows: usize, out: &mut [f32]) {
    let output = columns.len() / rows;
    for (index, column) in columns.chunks_exact(rows).enumerate() {
        column.iter().enumerate().for_each(|(row, value)| out[row * output + index] = *value);
    }
}
