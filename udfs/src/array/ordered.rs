//! Items of an array that was put in order: what `percentile_disc` and `mode` are of the values that they aggregate.

use arrow::array::{Array, ArrayRef, UInt32Array, make_comparator, new_null_array};
use arrow::compute::{SortOptions, concat, take};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::error::Result;
use datafusion::scalar::ScalarValue;

use super::{ARRAY, SECTION, item_field};
use crate::Error;
use crate::arguments::Arguments;
use crate::function::{Function, Interface, Kind, Parameter, Returns};
use crate::named_type::NamedType;

pub(crate) static AT_FRACTION: Function = Function {
    interface: Interface {
        name: "item_at_fraction",
        section: SECTION,
        description: "The first item of an array in order up to which there is that part of its items; \
            `percentile_disc(fraction) WITHIN GROUP (ORDER BY value)` is that of the values which are not NULL. NULL if the array has none.",
        parameters: &[ARRAY, Parameter { name: "fraction", kind: Kind::Number, description: "From 0 to 1." }],
        required: 2,
        example: ("SELECT item_at_fraction(ARRAY[10, 20, 30, 40], 0.5)", "20"),
    },
    returns: Returns::Field(item),
    kernel: |arguments| {
        let fractions = arguments.number(1)?;
        items(arguments, |list, row| match fractions.get(row) {
            Some(fraction) => at_fraction(list.len(), fraction),
            None => Ok(None),
        })
    },
};

pub(crate) static MOST_FREQUENT: Function = Function {
    interface: Interface {
        name: "most_frequent",
        section: SECTION,
        description: "The item that an array in order has most often, the first of several; `mode() WITHIN GROUP (ORDER BY value)` is that of the values which are \
            not NULL. NULL if the array has none.",
        parameters: &[ARRAY],
        required: 1,
        example: ("SELECT most_frequent(ARRAY[1, 2, 2, 3])", "2"),
    },
    returns: Returns::Field(item),
    kernel: |arguments| items(arguments, |list, _| most_frequent(list)),
};

fn item(fields: &[FieldRef], _: &[Option<&ScalarValue>]) -> Result<Field> {
    let Some(found) = item_field(fields[0].data_type()) else { return Ok(Field::new("item", DataType::Null, true)) };
    let named = NamedType::of_field(&fields[0]).and_then(NamedType::item);
    Ok(named.map_or_else(|| Field::new("item", found.data_type().clone(), true), |named| named.field("item", found.data_type())))
}

/// Of each row the item whose place `choose` says.
fn items(arguments: &Arguments, choose: impl Fn(&ArrayRef, usize) -> Result<Option<usize>>) -> Result<ArrayRef> {
    let num_rows = arguments.num_rows();
    if arguments.return_type().is_null() {
        return Ok(new_null_array(&DataType::Null, num_rows));
    }
    let lists = arguments.lists(0)?;
    let mut parts: Vec<ArrayRef> = Vec::with_capacity(num_rows);
    for row in 0..num_rows {
        let list = lists.get(row);
        let place = list.as_ref().map_or(Ok(None), |list| choose(list, row))?;
        parts.push(match (list, place) {
            (Some(list), Some(place)) => take(&list, &UInt32Array::from_value(place as u32, 1), None)?,
            _ => new_null_array(arguments.return_type(), 1),
        });
    }
    let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
    Ok(if parts.is_empty() { new_null_array(arguments.return_type(), 0) } else { concat(&parts)? })
}

fn at_fraction(count: usize, fraction: f64) -> Result<Option<usize>> {
    if !(0.0..=1.0).contains(&fraction) {
        return Err(Error::ValueRange { type_name: "percentile", text: fraction.to_string() }.into());
    }
    let place = (fraction * count as f64).ceil() as usize;
    Ok((count > 0).then(|| place.clamp(1, count) - 1))
}

fn most_frequent(list: &ArrayRef) -> Result<Option<usize>> {
    let compare = make_comparator(list.as_ref(), list.as_ref(), SortOptions::default())?;
    let (mut best, mut most, mut first) = (None, 0, 0);
    for place in 0..list.len() {
        if compare(first, place).is_ne() {
            first = place;
        }
        if place - first + 1 > most {
            (best, most) = (Some(first), place - first + 1);
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::Int64Array;

    use super::*;

    #[test]
    fn a_percentile_is_the_first_value_up_to_which_there_are_enough() {
        for (count, fraction, expected) in [(4, 0.0, Some(0)), (4, 0.25, Some(0)), (4, 0.26, Some(1)), (4, 1.0, Some(3)), (0, 0.5, None)] {
            assert_eq!(at_fraction(count, fraction).expect("in range"), expected, "{fraction} of {count}");
        }
        assert!(at_fraction(4, 1.5).is_err() && at_fraction(4, f64::NAN).is_err());
    }

    #[test]
    fn of_values_that_come_equally_often_the_first_counts() {
        for (values, expected) in [(vec![1, 2, 2, 3, 3], Some(1)), (vec![7, 7, 8], Some(0)), (vec![5], Some(0)), (vec![], None)] {
            let list: ArrayRef = Arc::new(Int64Array::from(values));
            assert_eq!(most_frequent(&list).expect("numbers are compared"), expected);
        }
    }
}
