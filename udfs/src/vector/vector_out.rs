use std::sync::Arc;

use arrow::array::{ArrayRef, StringBuilder};
use arrow::datatypes::DataType;

use crate::function::{Function, Interface, Kind, Parameter, Returns};
use crate::postgres::write_vector;

use super::column::Vectors;

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "vector_out",
        section: super::SECTION,
        description: "A vector in pgvector's text form, each number as short as it reads back the same; `vector::text` does the same. NULL for NULL.",
        parameters: &[Parameter { name: "vector", kind: Kind::Vector, description: "A vector." }],
        required: 1,
        example: ("SELECT vector_out(vector_in('[1, 2.50]', 2))", "[1,2.5]"),
    },
    returns: Returns::Always(DataType::Utf8),
    kernel: |arguments| {
        let vectors = Vectors::new(arguments, 0)?;
        let mut texts = StringBuilder::new();
        for row in 0..arguments.num_rows() {
            texts.append_option(vectors.get(row).map(text_of));
        }
        Ok(Arc::new(texts.finish()) as ArrayRef)
    },
};

fn text_of(vector: &[f32]) -> String {
    let mut text = Vec::with_capacity(2 + 10 * vector.len());
    write_vector(vector, &mut text);
    String::from_utf8(text).expect("numbers are ASCII")
}
