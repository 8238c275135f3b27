//! `array_remove` and `array_replace`, of every item that is equal.

use arrow::array::{Array, ArrayRef, BooleanArray, Scalar, new_null_array};
use arrow::compute::kernels::zip::zip;
use arrow::compute::{filter, not};
use datafusion::error::Result;

use super::items::equal_items;
use super::{ARRAY, SECTION, item_field, lists, values};
use crate::Error;
use crate::arguments::{Arguments, Column};
use crate::function::{Function, Interface, Kind, Parameter, Returns, type_name};

pub(crate) static REMOVE: Function = Function {
    interface: Interface {
        name: "array_remove",
        section: SECTION,
        description: "The array without all items that are equal to a value; NULL removes the NULLs.",
        parameters: &[ARRAY, Parameter { name: "value", kind: Kind::Any, description: "A value of the items' type." }],
        required: 2,
        example: ("SELECT array_remove(ARRAY[1, 2, 3, 2], 2)", "[1, 3]"),
    },
    returns: Returns::Computed(|types, _| Ok(types[0].clone())),
    kernel: |arguments| {
        map(&REMOVE, arguments, |items, row| {
            let equal = row.equal(items, 1)?;
            Ok(filter(items, &not(&equal)?)?)
        })
    },
};

pub(crate) static REPLACE: Function = Function {
    interface: Interface {
        name: "array_replace",
        section: SECTION,
        description: "The array with another value in the place of all items that are equal to one; NULL is equal to NULL here.",
        parameters: &[
            ARRAY,
            Parameter { name: "from", kind: Kind::Any, description: "A value of the items' type." },
            Parameter { name: "to", kind: Kind::Any, description: "What takes its place." },
        ],
        required: 3,
        example: ("SELECT array_replace(ARRAY[1, 2, 5, 2], 2, 9)", "[1, 9, 5, 9]"),
    },
    returns: Returns::Computed(|types, _| Ok(types[0].clone())),
    kernel: |arguments| {
        map(&REPLACE, arguments, |items, row| {
            let equal = row.equal(items, 1)?;
            Ok(zip(&equal, &row.scalar(2), items)?)
        })
    },
};

/// The values beside the array in one row.
struct Row<'a> {
    values: &'a [Column<ArrayRef>],
    row: usize,
}

impl Row<'_> {
    /// Argument `index`: its array, and the row of it.
    fn value(&self, index: usize) -> (&ArrayRef, usize) {
        let column = &self.values[index - 1];
        (column.array(), if column.is_constant() { 0 } else { self.row })
    }

    fn scalar(&self, index: usize) -> Scalar<ArrayRef> {
        let (of, at) = self.value(index);
        Scalar::new(of.slice(at, 1))
    }

    fn equal(&self, items: &ArrayRef, index: usize) -> Result<BooleanArray> {
        let (of, at) = self.value(index);
        equal_items(items, of, of.is_valid(at).then_some(at))
    }
}

fn map(function: &'static Function, arguments: &Arguments, kernel: impl Fn(&ArrayRef, Row) -> Result<ArrayRef>) -> Result<ArrayRef> {
    let found = arguments.column(0)?.array().data_type().clone();
    let Some(item) = item_field(&found) else {
        if found.is_null() {
            return Ok(new_null_array(arguments.return_type(), arguments.num_rows()));
        }
        let found = type_name(&found);
        return Err(Error::ArgumentType { function: function.interface.name, argument: "array", found, expected: "an array" }.into());
    };
    let others = (1..arguments.count()).map(|index| values(arguments, index, item.data_type())).collect::<Result<Vec<_>>>()?;
    let arrays = arguments.lists(0)?;
    let row = |row: usize| arrays.get(row).map(|items| kernel(&items, Row { values: &others, row })).transpose();
    lists(item, &(0..arguments.num_rows()).map(row).collect::<Result<Vec<_>>>()?)
}
