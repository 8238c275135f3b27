//! A linear layer of a decoder: weights in f32, packed in panels, or encoded as the file has them, or some of both side by side.

use super::encoded::EncodedMatrix;
use super::ops::Threads;
use super::panels::PackedMatrix;
use super::scratch::Scratch;

/// The weights of a matrix `[output, input]`, row by row.
#[derive(Debug)]
pub enum Matrix {
    Values(Vec<f32>),
    Encoded(EncodedMatrix),
}

/// `x Wᵀ + b`, where the rows of W are those of one or several matrices.
#[derive(Debug)]
pub struct Linear {
    input: usize,
    parts: Vec<Part>,
    /// Of all parts; none if the only part has it.
    bias: Option<Vec<f32>>,
}

#[derive(Debug)]
enum Part {
    Packed(PackedMatrix),
    Encoded(EncodedMatrix),
}

impl Matrix {
    fn values(&self) -> Option<&[f32]> {
        match self {
            Self::Values(values) => Some(values),
            Self::Encoded(_) => None,
        }
    }
}

impl Linear {
    /// The layer of the matrices `[output_i, input]`, stacked along the output, and of their biases.
    pub fn new(input: usize, matrices: Vec<Matrix>, biases: &[Vec<f32>]) -> Self {
        let values: Option<Vec<&[f32]>> = matrices.iter().map(Matrix::values).collect();
        if let Some(values) = values {
            let biases: Vec<&[f32]> = biases.iter().map(Vec::as_slice).collect();
            return Self { input, parts: vec![Part::Packed(PackedMatrix::new(input, &values, &biases))], bias: None };
        }
        let part = |matrix: Matrix| match matrix {
            Matrix::Values(values) => Part::Packed(PackedMatrix::new(input, &[&values], &[])),
            Matrix::Encoded(matrix) => Part::Encoded(matrix),
        };
        Self { input, parts: matrices.into_iter().map(part).collect(), bias: (!biases.is_empty()).then(|| biases.concat()) }
    }

    /// Row `index` of the weights, written to `out` `[input]`.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn copy_row(&self, mut index: usize, out: &mut [f32]) {
        assert!(index < self.output(), "the weights have no row {index}");
        for part in &self.parts {
            if index < part.output() {
                return part.copy_row(index, out);
            }
            index -= part.output();
        }
    }

    /// Number of output columns.
    fn output(&self) -> usize {
        self.parts.iter().map(Part::output).sum()
    }

    /// Whether some of the weights are decoded for each product, and so best for all rows at once.
    pub fn is_encoded(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Encoded(_)))
    }

    /// `x` `[rows, input]`, gives `[rows, output]`. Encoded weights are decoded on all threads in any case.
    pub fn multiply(&self, x: &[f32], threads: Threads) -> Scratch {
        let mut out = Scratch::new(x.len() / self.input * self.output());
        self.multiply_into(x, &mut out, threads);
        out
    }

    /// As [`Self::multiply`], to `out`, all of which is written.
    pub fn multiply_into(&self, x: &[f32], out: &mut [f32], threads: Threads) {
        match self.parts.as_slice() {
            [part] => part.multiply_into(x, out, threads),
            parts => side_by_side(parts, x, out, threads),
        }
        if let Some(bias) = &self.bias {
            for row in out.chunks_exact_mut(bias.len()) {
                row.iter_mut().zip(bias).for_each(|(out, bias)| *out += bias);
            }
        }
    }
}

impl Part {
    fn output(&self) -> usize {
        match self {
            Self::Packed(matrix) => matrix.output(),
            Self::Encoded(matrix) => matrix.output(),
        }
    }

    fn copy_row(&self, index: usize, out: &mut [f32]) {
        match self {
            Self::Packed(matrix) => matrix.copy_row(index, out),
            Self::Encoded(matrix) => matrix.copy_row(index, out),
        }
    }

    fn multiply_into(&self, x: &[f32], out: &mut [f32], threads: Threads) {
        match self {
            Self::Packed(matrix) => matrix.multiply_into(x, out, threads),
            Self::Encoded(matrix) => matrix.multiply_into(x, out),
        }
    }
}

/// The products of all parts, each row of which is the rows of the parts one after the other.
fn side_by_side(parts: &[Part], x: &[f32], out: &mut [f32], threads: Threads) {
    let width: usize = parts.iter().map(Part::output).sum();
    let rows = out.len() / width;
    let mut first = 0;
    for part in parts {
        let mut product = Scratch::new(rows * part.output());
        part.multiply_into(x, &mut product, threads);
        for (out, row) in out.chunks_exact_mut(width).zip(product.chunks_exact(part.output())) {
            out[first..first + part.output()].copy_from_slice(row);
        }
        first += part.output();
    }
}
