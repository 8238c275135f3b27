//! Casts between strings of bits and integers, in two's complement.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, StringArray};
use arrow::datatypes::DataType;
use datafusion::scalar::ScalarValue;

use crate::Error;
use crate::function::{Function, Interface, Kind, Parameter, Returns};
use crate::text_type::TextType;

use super::parse;

pub(crate) static FROM_INTEGER: Function = Function {
    interface: Interface {
        name: "integer_to_bit",
        section: super::SECTION,
        description: "The last n bits of an integer; `integer::bit(n)` does the same. NULL for NULL.",
        parameters: &[
            Parameter { name: "value", kind: Kind::Integer, description: "An integer." },
            Parameter { name: "n", kind: Kind::Integer, description: "How many bits, a constant." },
        ],
        required: 2,
        example: ("SELECT integer_to_bit(5, 4)", "0101"),
    },
    returns: Returns::Field(|_, literals| {
        let n = match literals.get(1).copied().flatten().map(|n| n.cast_to(&DataType::Int64)).transpose()? {
            Some(ScalarValue::Int64(Some(n))) => n,
            _ => {
                let reason = "because it decides the type of the result: integer_to_bit(5, 4)";
                return Err(Error::NotConstant { function: "integer_to_bit", argument: "n", reason }.into());
            }
        };
        Ok(TextType::bit(u64::try_from(n).unwrap_or(0))?.field("", true))
    }),
    kernel: |arguments| {
        let (values, lengths) = (arguments.integer(0)?, arguments.integer(1)?);
        let bits = |value: i64, length: usize| {
            // Beyond 64 bits stands the sign.
            let bit = |place: usize| if (value >> place.min(63)) & 1 == 1 { '1' } else { '0' };
            (0..length).rev().map(bit).collect::<String>()
        };
        let rows = (0..arguments.num_rows()).map(|row| {
            let length = usize::try_from(lengths.get(row)?).ok()?;
            Some(bits(values.get(row)?, length))
        });
        Ok(Arc::new(rows.collect::<StringArray>()) as ArrayRef)
    },
};

pub(crate) static TO_INTEGER: Function = Function {
    interface: Interface {
        name: "bit_to_integer",
        section: super::SECTION,
        description: "A string of at most 64 bits as an integer; `bits::bigint` does the same. NULL for NULL.",
        parameters: &[Parameter { name: "bits", kind: Kind::Text, description: "A string of bits." }],
        required: 1,
        example: ("SELECT bit_to_integer('101')", "5"),
    },
    returns: Returns::Always(DataType::Int64),
    kernel: |arguments| {
        let texts = arguments.text(0)?;
        let integer = |text: &str| -> Result<i64, Error> {
            let bits = parse(text)?;
            if bits.len() > 64 {
                return Err(Error::ValueRange { type_name: "bigint", text: bits });
            }
            // All 64 bits are there, of which the first is the sign.
            Ok(bits.bytes().fold(0_u64, |number, bit| (number << 1) | u64::from(bit & 1)).cast_signed())
        };
        let rows = (0..arguments.num_rows()).map(|row| texts.get(row).map(integer).transpose());
        Ok(Arc::new(rows.collect::<Result<Int64Array, Error>>()?) as ArrayRef)
    },
};
