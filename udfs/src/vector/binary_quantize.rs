use std::sync::Arc;

use arrow::array::{ArrayRef, StringBuilder};

use crate::function::{Function, Interface, Kind, Parameter, Returns};
use crate::text_type::TextType;

use super::built::VectorKind;
use super::column::Vectors;

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "binary_quantize",
        section: super::SECTION,
        description: "A bit for each number of a vector, 1 for those greater than zero. NULL for NULL.",
        parameters: &[Parameter { name: "vector", kind: Kind::Vector, description: "A vector or a halfvec." }],
        required: 1,
        example: ("SELECT binary_quantize('[1,0,-1,2]')", "1001"),
    },
    returns: Returns::Field(|fields, literals| {
        let kind = VectorKind::of_argument(&fields[0], literals.first().copied().flatten())?;
        let width = kind.width.and_then(|width| u32::try_from(width).ok());
        Ok(width.map_or(TextType::Varbit(None), TextType::Bit).field("", true))
    }),
    kernel: |arguments| {
        let vectors = Vectors::new(arguments, 0)?;
        let mut bits = StringBuilder::new();
        for row in 0..arguments.num_rows() {
            let of_row = |vector: &[f32]| vector.iter().map(|number| if *number > 0.0 { '1' } else { '0' }).collect::<String>();
            bits.append_option(vectors.get(row).map(of_row));
        }
        Ok(Arc::new(bits.finish()) as ArrayRef)
    },
};
