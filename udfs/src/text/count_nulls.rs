//! `num_nulls` and `num_nonnulls`

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int32Array};
use arrow::datatypes::DataType;
use datafusion::error::Result;

use super::SECTION;
use crate::arguments::Arguments;
use crate::function::{Function, Interface, Kind, Parameter, Returns};

const VALUES: &[Parameter] = &[Parameter { name: "values", kind: Kind::Rest, description: "Values of any types." }];

pub(crate) static NULLS: Function = Function {
    interface: Interface {
        name: "num_nulls",
        section: SECTION,
        description: "How many of the values are NULL.",
        parameters: VALUES,
        required: 1,
        example: ("SELECT num_nulls(1, NULL, 'a')", "1"),
    },
    returns: Returns::Always(DataType::Int32),
    kernel: |arguments| count(arguments, true),
};

pub(crate) static NONNULLS: Function = Function {
    interface: Interface {
        name: "num_nonnulls",
        section: SECTION,
        description: "How many of the values are not NULL.",
        parameters: VALUES,
        required: 1,
        example: ("SELECT num_nonnulls(1, NULL, 'a')", "2"),
    },
    returns: Returns::Always(DataType::Int32),
    kernel: |arguments| count(arguments, false),
};

fn count(arguments: &Arguments, counts_nulls: bool) -> Result<ArrayRef> {
    let mut counts = vec![0; arguments.num_rows()];
    for index in 0..arguments.count() {
        let column = arguments.column(index)?;
        let nulls = column.array().logical_nulls();
        for (row, count) in counts.iter_mut().enumerate() {
            let at = if column.is_constant() { 0 } else { row };
            let is_null = nulls.as_ref().is_some_and(|nulls| nulls.is_null(at));
            *count += i32::from(is_null == counts_nulls);
        }
    }
    Ok(Arc::new(Int32Array::from(counts)))
}
