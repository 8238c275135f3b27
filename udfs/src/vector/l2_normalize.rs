use arrow::array::ArrayRef;
use datafusion::error::Result;

use crate::arguments::Arguments;
use crate::function::{Function, Interface, Kind, Parameter, Returns};

use super::built::{VectorKind, VectorsBuilder};
use super::column::Vectors;
use super::kernel::norm;

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "l2_normalize",
        section: super::SECTION,
        description: "The vector divided by its Euclidean length; a zero vector stays as it is. NULL for NULL.",
        parameters: &[Parameter {
            name: "vector",
            kind: Kind::Vector,
            description: "A vector or a halfvec, of which the result is one too.",
        }],
        required: 1,
        example: ("SELECT l2_normalize('[0,4]')", "[0.0, 1.0]"),
    },
    returns: Returns::Field(|fields, literals| Ok(VectorKind::of_argument(&fields[0], literals.first().copied().flatten())?.field())),
    kernel,
};

fn kernel(arguments: &Arguments) -> Result<ArrayRef> {
    let given = Vectors::new(arguments, 0)?;
    let mut vectors = VectorsBuilder::new(arguments.return_type(), arguments.num_rows());
    for row in 0..arguments.num_rows() {
        match given.get(row) {
            Some(vector) => vectors.push_numbers(normalized(vector))?,
            None => vectors.push_null(),
        }
    }
    vectors.finish()
}

fn normalized(vector: &[f32]) -> impl Iterator<Item = f32> {
    let length = norm(vector);
    let length = if length == 0.0 { 1.0 } else { length };
    vector.iter().map(move |value| (f64::from(*value) / length) as f32)
}
