use arrow::array::{Array, ArrayRef, new_null_array};
use datafusion::error::Result;

use super::{ARRAY, SECTION, item_field, lists};
use crate::Error;
use crate::function::{Function, Interface, Kind, Parameter, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "trim_array",
        section: SECTION,
        description: "The array without its last items.",
        parameters: &[ARRAY, Parameter { name: "count", kind: Kind::Integer, description: "How many, from 0 to the length." }],
        required: 2,
        example: ("SELECT trim_array(ARRAY[1, 2, 3, 4], 2)", "[1, 2]"),
    },
    returns: Returns::Computed(|types, _| Ok(types[0].clone())),
    kernel: |arguments| {
        let found = arguments.column(0)?.array().data_type().clone();
        let Some(item) = item_field(&found) else { return Ok(new_null_array(arguments.return_type(), arguments.num_rows())) };
        let (arrays, counts) = (arguments.lists(0)?, arguments.integer(1)?);
        let trimmed = |row: usize| -> Result<Option<ArrayRef>> {
            let Some((items, count)) = arrays.get(row).zip(counts.get(row)) else { return Ok(None) };
            let kept = usize::try_from(count).ok().and_then(|count| items.len().checked_sub(count));
            let last = items.len() as i64;
            let kept = kept.ok_or(Error::Subscript { what: "number of elements to trim", found: count, last })?;
            Ok(Some(items.slice(0, kept)))
        };
        lists(item, &(0..arguments.num_rows()).map(trimmed).collect::<Result<Vec<_>>>()?)
    },
};
