use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field};

use crate::Error;
use crate::bits;
use crate::function::{Function, Interface, Kind, Parameter, Returns, is_text, type_name};
use crate::text_type::TextType;

const NAME: &str = "bitwise_not";

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: NAME,
        section: super::SECTION,
        description: "An integer, or a string of bits, with every bit turned; also `~ value`.",
        parameters: &[Parameter { name: "value", kind: Kind::Any, description: "An integer or a string of bits." }],
        required: 1,
        example: ("SELECT bitwise_not(5)", "-6"),
    },
    returns: Returns::Field(|fields, _| match (TextType::of(&fields[0]), fields[0].data_type()) {
        (Some(bits), _) if bits.is_bits() => Ok(bits.field("", true)),
        (None, DataType::Null) => Ok(Field::new("", DataType::Int64, true)),
        (None, integer) if integer.is_integer() => Ok(Field::new("", integer.clone(), true)),
        (_, found) => {
            Err(Error::ArgumentType { function: NAME, argument: "value", found: type_name(found), expected: "an integer or bits" }.into())
        }
    }),
    kernel: |arguments| {
        if is_text(arguments.return_type()) {
            let texts = arguments.text(0)?;
            let rows = (0..arguments.num_rows()).map(|row| texts.get(row).map(bits::turned).transpose());
            return Ok(Arc::new(rows.collect::<Result<StringArray, Error>>()?) as ArrayRef);
        }
        let integers = arguments.integer(0)?;
        let turned: Int64Array = (0..arguments.num_rows()).map(|row| integers.get(row).map(|integer| !integer)).collect();
        Ok(cast(&(Arc::new(turned) as ArrayRef), arguments.return_type())?)
    },
};
