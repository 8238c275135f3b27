use datafusion::error::Result;

use arrow::array::ArrayRef;

use crate::arguments::Arguments;
use crate::function::{Function, Interface, Kind, Parameter, Returns};

use super::built::{VectorKind, VectorsBuilder};
use super::column::Vectors;
use super::elements::check_width;

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "vector_concat",
        section: super::SECTION,
        description: "The numbers of one vector and then those of another; also `left || right`. NULL if one of them is NULL.",
        parameters: &[
            Parameter { name: "left", kind: Kind::Vector, description: "A vector or a halfvec." },
            Parameter { name: "right", kind: Kind::Vector, description: "Another one." },
        ],
        required: 2,
        example: ("SELECT vector_concat('[1,2]', '[3]')", "[1.0, 2.0, 3.0]"),
    },
    returns: Returns::Field(|fields, literals| {
        let [left, right] = VectorKind::of_both(fields, literals)?;
        let width = left.width.zip(right.width).map(|(left, right)| left + right);
        if let Some(width) = width {
            check_width(width, left.type_name())?;
        }
        Ok(VectorKind { width, ..left }.field())
    }),
    kernel,
};

fn kernel(arguments: &Arguments) -> Result<ArrayRef> {
    let (left, right) = (Vectors::new(arguments, 0)?, Vectors::new(arguments, 1)?);
    let mut vectors = VectorsBuilder::new(arguments.return_type(), arguments.num_rows());
    for row in 0..arguments.num_rows() {
        match left.get(row).zip(right.get(row)) {
            Some((left, right)) => vectors.push_numbers(left.iter().chain(right).copied())?,
            None => vectors.push_null(),
        }
    }
    vectors.finish()
}
