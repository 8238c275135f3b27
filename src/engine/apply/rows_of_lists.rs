//! `unnest` of lists that are columns of the relations before it, or whose elements get numbers.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array, UInt64Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::logical_expr::{Expr, ExprSchemable, cast, lit};
use rolloutdb_catalogs::Table;

use super::{Applied, ApplyFunction};
use crate::engine::typing::sql_type_name;
use crate::error::{Error, Result};

/// The name of a column of elements.
const ELEMENT: &str = "unnest";

/// A row for each element; of several lists side by side, with NULL where one is shorter.
#[derive(Debug)]
pub struct RowsOfLists {
    /// How deep the lists are, and what they are lists of.
    lists: Vec<(usize, FieldRef)>,
}

impl RowsOfLists {
    /// The function, and the lists as it takes them.
    ///
    /// # Errors
    /// [`Error::WrongType`] for what is no list.
    pub fn of(arguments: Vec<Expr>) -> DataFusionResult<(Self, Vec<Expr>)> {
        let schema = DFSchema::empty();
        let (mut lists, mut taken) = (Vec::new(), Vec::new());
        for argument in arguments {
            let (_, field) = argument.to_field(&schema)?;
            let (depth, element, list) = innermost(&field)?;
            lists.push((depth, element));
            taken.push(match list {
                Some(list) if list != *field.data_type() => cast(argument, list),
                Some(_) => argument,
                None => lit(ScalarValue::try_from(DataType::new_list(DataType::Utf8, true))?),
            });
        }
        Ok((Self { lists }, taken))
    }
}

/// The depth of a list, its element, and the type as which it is read; no type for a NULL.
fn innermost(list: &Field) -> DataFusionResult<(usize, FieldRef, Option<DataType>)> {
    let element = |field: &FieldRef| Arc::new(field.as_ref().clone().with_name(ELEMENT).with_nullable(true));
    match list.data_type() {
        DataType::Null => Ok((1, Arc::new(Field::new(ELEMENT, DataType::Utf8, true)), None)),
        DataType::FixedSizeList(item, _) | DataType::LargeList(item) | DataType::ListView(item) => {
            Ok((1, element(item), Some(DataType::List(Arc::clone(item)))))
        }
        DataType::List(item) if matches!(item.data_type(), DataType::List(_)) => {
            let (depth, innermost, _) = innermost(item)?;
            Ok((depth + 1, innermost, Some(list.data_type().clone())))
        }
        DataType::List(item) => Ok((1, element(item), Some(list.data_type().clone()))),
        other => {
            let (what, found) = ("the argument of unnest()".to_owned(), sql_type_name(other));
            Err(Error::WrongType { what, found, expected: "an array".to_owned() }.into())
        }
    }
}

#[async_trait]
impl ApplyFunction for RowsOfLists {
    fn name(&self) -> &str {
        ELEMENT
    }

    fn schema(&self) -> SchemaRef {
        Arc::new(Schema::new(self.lists.iter().map(|(_, element)| Arc::clone(element)).collect::<Vec<_>>()))
    }

    fn tables(&self) -> Option<Vec<Arc<Table>>> {
        Some(Vec::new())
    }

    fn batch_rows(&self) -> usize {
        1024
    }

    async fn call(&self, arguments: Vec<ArrayRef>, num_rows: usize) -> Result<Applied> {
        let lists: Vec<Elements> = arguments.iter().zip(&self.lists).map(|(list, (depth, _))| Elements::of(list, *depth)).collect();
        let (mut input_rows, mut taken) = (Vec::new(), vec![Vec::new(); lists.len()]);
        for row in 0..num_rows {
            let lengths: Vec<usize> = lists.iter().map(|list| list.ranges[row].len()).collect();
            let longest = lengths.iter().copied().max().unwrap_or(0);
            input_rows.extend(std::iter::repeat_n(row as u32, longest));
            for (list, taken) in lists.iter().zip(&mut taken) {
                let range = list.ranges[row].clone();
                taken.extend((0..longest).map(|place| range.clone().nth(place).map(|position| position as u64)));
            }
        }
        let columns = lists.iter().zip(taken).zip(&self.lists).map(|((list, positions), (_, element))| {
            let values = take(&list.values, &UInt64Array::from(positions), None)?;
            arrow::compute::cast(&values, element.data_type())
        });
        let columns = columns.collect::<std::result::Result<Vec<_>, _>>().map_err(DataFusionError::from)?;
        let batch = RecordBatch::try_new(self.schema(), columns).map_err(DataFusionError::from)?;
        Ok(Applied { batch, input_rows: UInt32Array::from(input_rows) })
    }
}

/// The elements of all rows, and where those of each are.
struct Elements {
    values: ArrayRef,
    ranges: Vec<std::ops::Range<usize>>,
}

impl Elements {
    fn of(list: &ArrayRef, depth: usize) -> Self {
        let list = list.as_list::<i32>();
        let offsets = list.value_offsets();
        let range = |row: usize| match list.is_null(row) {
            true => 0..0,
            false => offsets[row] as usize..offsets[row + 1] as usize,
        };
        let ranges: Vec<_> = (0..list.len()).map(range).collect();
        if depth == 1 {
            return Self { values: Arc::clone(list.values()), ranges };
        }
        // Ranges of lists that stand one after the other are one range of their elements; those of a NULL within are empty.
        let inner = Self::of(list.values(), depth - 1);
        let through = |range: std::ops::Range<usize>| {
            let within: Vec<_> = range.map(|place| inner.ranges[place].clone()).filter(|range| !range.is_empty()).collect();
            match (within.first(), within.last()) {
                (Some(first), Some(last)) => first.start..last.end,
                _ => 0..0,
            }
        };
        Self { ranges: ranges.into_iter().map(through).collect(), values: inner.values }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, ListArray};
    use arrow::datatypes::Int64Type;

    use super::*;

    #[tokio::test]
    async fn lists_stand_side_by_side_and_the_shorter_one_ends_in_nulls() -> Result<()> {
        let long: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1), None, Some(3)]), None]));
        let short: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(7)]), Some(vec![Some(8)])]));
        let element = Arc::new(Field::new(ELEMENT, DataType::Int64, true));
        let function = RowsOfLists { lists: vec![(1, Arc::clone(&element)), (1, element)] };
        let Applied { batch, input_rows } = function.call(vec![long, short], 2).await?;
        assert_eq!(input_rows.values(), &[0, 0, 0, 1]);
        assert_eq!(batch.column(0).as_primitive::<Int64Type>(), &Int64Array::from(vec![Some(1), None, Some(3), None]));
        assert_eq!(batch.column(1).as_primitive::<Int64Type>(), &Int64Array::from(vec![Some(7), None, None, Some(8)]));
        Ok(())
    }
}
