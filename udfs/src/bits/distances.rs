//! pgvector's distances between strings of bits of one length.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array};
use arrow::datatypes::DataType;
use datafusion::error::Result;

use crate::Error;
use crate::arguments::Arguments;
use crate::function::{Function, Interface, Kind, Parameter, Returns};

use super::parse;

const PARAMETERS: &[Parameter] = &[
    Parameter { name: "left", kind: Kind::Text, description: "A string of bits." },
    Parameter { name: "right", kind: Kind::Text, description: "One of the same length." },
];

pub(crate) static HAMMING: Function = Function {
    interface: Interface {
        name: "hamming_distance",
        section: super::SECTION,
        description: "How many bits differ; also `left <~> right`. NULL if one of them is NULL.",
        parameters: PARAMETERS,
        required: 2,
        example: ("SELECT hamming_distance('111', '100')", "2.0"),
    },
    returns: Returns::Always(DataType::Float64),
    kernel: |arguments| map_pairs(arguments, |counts| f64::from(counts.only_one)),
};

pub(crate) static JACCARD: Function = Function {
    interface: Interface {
        name: "jaccard_distance",
        section: super::SECTION,
        description: "1 less the bits that both have, as a part of those that one has; also `left <%> right`. 1 if none is in both. NULL if one of \
            them is NULL.",
        parameters: PARAMETERS,
        required: 2,
        example: ("SELECT jaccard_distance('1111', '1100')", "0.5"),
    },
    returns: Returns::Always(DataType::Float64),
    kernel: |arguments| {
        map_pairs(arguments, |Counts { both, only_one }| if both == 0 { 1.0 } else { 1.0 - f64::from(both) / f64::from(both + only_one) })
    },
};

/// Of the ones of two strings.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    both: u32,
    only_one: u32,
}

fn map_pairs(arguments: &Arguments, distance: fn(Counts) -> f64) -> Result<ArrayRef> {
    let (lefts, rights) = (arguments.text(0)?, arguments.text(1)?);
    let mut distances = Float64Array::builder(arguments.num_rows());
    for row in 0..arguments.num_rows() {
        let counts = lefts.get(row).zip(rights.get(row)).map(|(left, right)| counted(&parse(left)?, &parse(right)?)).transpose()?;
        distances.append_option(counts.map(distance));
    }
    Ok(Arc::new(distances.finish()))
}

fn counted(left: &str, right: &str) -> Result<Counts, Error> {
    if left.len() != right.len() {
        return Err(Error::BitLengths { left: left.len(), right: right.len() });
    }
    // The digits are ASCII, and their last bit is the bit.
    let add = |counts: Counts, (a, b): (u8, u8)| Counts {
        both: counts.both + u32::from(a & b & 1),
        only_one: counts.only_one + u32::from((a ^ b) & 1),
    };
    Ok(left.bytes().zip(right.bytes()).fold(Counts::default(), add))
}
