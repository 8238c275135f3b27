use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array};
use arrow::datatypes::DataType;

use super::SECTION;
use crate::Error;
use crate::function::{Function, Interface, Kind, Parameter, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "get_byte",
        section: SECTION,
        description: "One of several bytes as a number.",
        parameters: &[
            Parameter { name: "bytes", kind: Kind::Any, description: "Bytes, or a text that is read as such." },
            Parameter { name: "index", kind: Kind::Integer, description: "Which, from 0." },
        ],
        required: 2,
        example: ("SELECT get_byte(bytea_in('\\x1234567890'), 4)", "144"),
    },
    returns: Returns::Always(DataType::Int32),
    kernel: |arguments| {
        let (bytes, indexes) = (arguments.bytes(0)?, arguments.integer(1)?);
        let byte = |(bytes, index): (&[u8], i64)| {
            let found = usize::try_from(index).ok().and_then(|index| bytes.get(index));
            found.map(|byte| i32::from(*byte)).ok_or(Error::Subscript {
                what: "index of a byte",
                found: index,
                last: bytes.len() as i64 - 1,
            })
        };
        let found = (0..arguments.num_rows()).map(|row| bytes.get(row).zip(indexes.get(row)).map(byte).transpose());
        Ok(Arc::new(found.collect::<Result<Int32Array, Error>>()?) as ArrayRef)
    },
};
