//! A linear layer of a decoder: weights in f32, packed in panels, or encoded as the file has them, or some of both side by side.

use super::encoded::EncodedMatrix;
use super::panels::PackedMatrix;

/// The weights of a matrix `[output, input]`, row by row.
#[derive(Debug)]
pub enum Matrix {
    Values(Vec<f32>),
    Encoded(EncodedMatrix),
}

/// `x Wᵀ + b`, where the rows of W are those of one or several matrices.
#[derive(Debug)]
pub struct Linear {
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
    /// The values of row `index`, written to `out` `[input]`.
    pub fn copy_row(&self, index: usize, out: &mut [f32]) {
        match self {
            Self::Values(values) => out.copy_from_slice(&values[index * out.len()..][..out.len()]),
            Self::Encoded(matrix) => matrix.copy_row(index, out),
        }
    }

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
            return Self { parts: vec![Part::Packed(PackedMatrix::new(input, &values, &biases))], bias: None };
        }
        let part = |matrix: Matrix| match matrix {
            Matrix::Values(values) => Part::Packed(PackedMatrix::new(input, &[&values], &[])),
            Matrix::Encoded(matrix) => Part::Encoded(matrix),
        };
        Self { parts: matrices.into_iter().map(part).collect(), bias: (!biases.is_empty()).then(|| biases.concat()) }
    }

    /// Row `index` of the weights, written to `out` `[input]`.
    pub fn copy_row(&self, mut index: usize, out: &mut [f32]) {
        for part in &self.parts {
            if index < part.output() {
                return part.copy_row(index, out);
            }
            index -= part.output();
        }
    }

    /// `x` `[rows, input]`, gives `[rows, output]`.
    pub fn multiply(&self, x: &[f32]) -> Vec<f32> {
        let mut out = match self.parts.as_slice() {
            [part] => part.multiply(x),
            parts => side_by_side(parts, x),
        };
        if let Some(bias) = &self.bias {
            for row in out.chunks_exact_mut(bias.len()) {
                row.iter_mut().zip(bias).for_each(|(out, bias)| *out += bias);
            }
        }
        out
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

    fn multiply(&self, x: &[f32]) -> Vec<f32> {
        match self {
            Self::Packed(matrix) => matrix.multiply(x),
            Self::Encoded(matrix) => matrix.multiply(x),
        }
    }
}

/// The products of all parts, each row of which is the rows of the parts one after the other.
fn side_by_side(parts: &[Part], x: &[f32]) -> Vec<f32> {
    let products: Vec<(Vec<f32>, usize)> = parts.iter().map(|part| (part.multiply(x), part.output())).collect();
    let mut out = Vec::with_capacity(products.iter().map(|(product, _)| product.len()).sum());
    let rows = products.first().map_or(0, |(product, output)| product.len() / output);
    for row in 0..rows {
        products.iter().for_each(|(product, output)| out.extend_from_slice(&product[row * output..][..*output]));
    }
    out
}
