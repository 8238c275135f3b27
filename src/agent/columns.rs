//! Arrow columns from rows. All columns of the agent's tables are nullable, as those of `CREATE TABLE` are.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float32Builder, Int32Array, Int32Builder, Int64Array, ListBuilder, StringArray, StringBuilder};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

pub fn schema(columns: &[(&str, DataType)]) -> SchemaRef {
    let fields: Vec<Field> = columns.iter().map(|(name, data_type)| Field::new(*name, data_type.clone(), true)).collect();
    Arc::new(Schema::new(fields))
}

pub fn list_of(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(item, true)))
}

pub fn text<'a>(rows: impl Iterator<Item = Option<&'a str>>) -> ArrayRef {
    Arc::new(rows.collect::<StringArray>())
}

/// A tally or a length; more than 2^31 - 1 is written as 2^31 - 1.
pub fn int4(rows: impl Iterator<Item = usize>) -> ArrayRef {
    Arc::new(rows.map(|value| Some(saturating_int4(value))).collect::<Int32Array>())
}

/// A tally or a node id; more than 2^63 - 1 is written as 2^63 - 1.
pub fn int8(rows: impl Iterator<Item = Option<u64>>) -> ArrayRef {
    Arc::new(rows.map(|value| value.map(|value| i64::try_from(value).unwrap_or(i64::MAX))).collect::<Int64Array>())
}

pub fn text_list<'a, I>(rows: impl Iterator<Item = Option<I>>) -> ArrayRef
where
    I: IntoIterator<Item = &'a str>,
{
    let mut list = ListBuilder::new(StringBuilder::new());
    for row in rows {
        let is_valid = row.is_some();
        row.into_iter().flatten().for_each(|item| list.values().append_value(item));
        list.append(is_valid);
    }
    Arc::new(list.finish())
}

pub fn int4_list(rows: impl Iterator<Item = Option<impl AsRef<[u32]>>>) -> ArrayRef {
    let mut list = ListBuilder::new(Int32Builder::new());
    for row in rows {
        let items: &[u32] = row.as_ref().map(AsRef::as_ref).unwrap_or_default();
        items.iter().for_each(|item| list.values().append_value(i32::try_from(*item).unwrap_or(i32::MAX)));
        list.append(row.is_some());
    }
    Arc::new(list.finish())
}

pub fn float4_list<'a>(rows: impl Iterator<Item = Option<&'a [f32]>>) -> ArrayRef {
    let mut list = ListBuilder::new(Float32Builder::new());
    for row in rows {
        list.values().append_slice(row.unwrap_or_default());
        list.append(row.is_some());
    }
    Arc::new(list.finish())
}

fn saturating_int4(value: usize) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}
