//! Arrow columns as values of catalog queries, and back.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float32Array, Float64Array, Int16Array, Int32Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema, TimeUnit, TimestampMicrosecondType};
use datafusion::common::ScalarValue;
use datafusion::error::DataFusionError;
use rolloutdb_udfs::postgres::{Column, ValueType};

use super::types::{PgType, column_type};
use super::value::{Row, Value};
use crate::error::{Error, Result};

/// The rows of a batch.
pub fn rows_of(batch: &RecordBatch) -> Result<Vec<Row>> {
    let columns = batch.columns().iter().map(values_of).collect::<Result<Vec<_>>>()?;
    Ok((0..batch.num_rows()).map(|row| columns.iter().map(|column| column[row].clone()).collect()).collect())
}

/// The values of a column.
pub fn values_of(array: &ArrayRef) -> Result<Vec<Value>> {
    let present = |read: &dyn Fn(usize) -> Value| -> Vec<Value> {
        (0..array.len()).map(|row| if array.is_null(row) { Value::Null } else { read(row) }).collect()
    };
    Ok(match array.data_type() {
        DataType::Null => vec![Value::Null; array.len()],
        DataType::Boolean => present(&|row| Value::Bool(array.as_boolean().value(row))),
        data_type if data_type.is_integer() => {
            let numbers = cast(array, &DataType::Int64).map_err(DataFusionError::from)?;
            present(&|row| Value::Int(numbers.as_primitive::<Int64Type>().value(row)))
        }
        data_type if data_type.is_floating() || data_type.is_decimal() => {
            let numbers = cast(array, &DataType::Float64).map_err(DataFusionError::from)?;
            present(&|row| Value::Float(numbers.as_primitive::<Float64Type>().value(row)))
        }
        DataType::Timestamp(_, zone) => {
            let micros = cast(array, &DataType::Timestamp(TimeUnit::Microsecond, zone.clone())).map_err(DataFusionError::from)?;
            present(&|row| Value::Int(micros.as_primitive::<TimestampMicrosecondType>().value(row)))
        }
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let items = (0..array.len()).map(|row| -> Result<Value> {
                match array.is_null(row) {
                    true => Ok(Value::Null),
                    false => Ok(Value::list(values_of(&list.value(row))?)),
                }
            });
            items.collect::<Result<_>>()?
        }
        DataType::Utf8 => present(&|row| Value::text(array.as_string::<i32>().value(row))),
        data_type => {
            let value_type = ValueType::of(&Field::new("value", data_type.clone(), true));
            let column = Column::new(&value_type, array).map_err(DataFusionError::from)?;
            present(&|row| {
                let mut text = Vec::new();
                column.write_text(row, &mut text);
                Value::text(String::from_utf8_lossy(&text))
            })
        }
    })
}

/// The value of a parameter.
pub fn value_of(scalar: &ScalarValue) -> Result<Value> {
    let values = values_of(&scalar.to_array()?)?;
    Ok(values.into_iter().next().unwrap_or(Value::Null))
}

/// The type of a column or argument as catalog queries know it.
pub fn type_of(field: &Field) -> PgType {
    column_type(field).0
}

/// The rows of a query as a batch with these columns.
pub fn batch_of(columns: &[(String, PgType)], rows: &[Row]) -> Result<RecordBatch> {
    let fields: Vec<Field> = columns.iter().map(|(name, pg_type)| pg_type.field(name)).collect();
    let arrays = columns.iter().zip(&fields).enumerate().map(|(position, ((_, pg_type), field))| {
        let values: Vec<&Value> = rows.iter().map(|row| &row[position]).collect();
        array_of(&values, pg_type, field.data_type())
    });
    let arrays = arrays.collect::<Result<Vec<_>>>()?;
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(rows.len()));
    let batch = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options);
    Ok(batch.map_err(DataFusionError::from)?)
}

/// Values of a type as an array of the Arrow type that stands for it.
pub fn array_of(values: &[&Value], pg_type: &PgType, data_type: &DataType) -> Result<ArrayRef> {
    let number = |value: &&Value| value.as_int();
    let narrowed = |fits: bool, what: &str| match fits {
        true => Ok(()),
        false => Err(Error::from(DataFusionError::from(arrow::error::ArrowError::ArithmeticOverflow(format!("{what} out of range"))))),
    };
    Ok(match data_type {
        DataType::Boolean => {
            Arc::new(values.iter().map(|value| if let Value::Bool(value) = value { Some(*value) } else { None }).collect::<BooleanArray>())
        }
        DataType::Int16 => {
            narrowed(values.iter().filter_map(number).all(|number| i16::try_from(number).is_ok()), "smallint")?;
            Arc::new(values.iter().map(|value| number(value).map(|number| number as i16)).collect::<Int16Array>())
        }
        DataType::Int32 => {
            narrowed(values.iter().filter_map(number).all(|number| i32::try_from(number).is_ok()), "integer")?;
            Arc::new(values.iter().map(|value| number(value).map(|number| number as i32)).collect::<Int32Array>())
        }
        DataType::Int64 => Arc::new(values.iter().map(number).collect::<Int64Array>()),
        DataType::Float32 => Arc::new(values.iter().map(|value| value.as_float().map(|value| value as f32)).collect::<Float32Array>()),
        DataType::Float64 => Arc::new(values.iter().map(|value| value.as_float()).collect::<Float64Array>()),
        DataType::Timestamp(_, zone) => {
            Arc::new(values.iter().map(number).collect::<TimestampMicrosecondArray>().with_timezone_opt(zone.clone()))
        }
        DataType::List(item) => {
            let lists: Vec<Option<&[Value]>> = values.iter().map(|value| value.as_list()).collect();
            let items: Vec<&Value> = lists.iter().copied().flatten().flatten().collect();
            let items = array_of(&items, &pg_type.item(), item.data_type())?;
            let lengths = lists.iter().map(|list| list.map_or(0, <[Value]>::len));
            let offsets = arrow::buffer::OffsetBuffer::from_lengths(lengths);
            let nulls = arrow::buffer::NullBuffer::from_iter(lists.iter().map(Option::is_some));
            let list = arrow::array::ListArray::try_new(Arc::clone(item), offsets, items, Some(nulls));
            Arc::new(list.map_err(DataFusionError::from)?)
        }
        DataType::Struct(fields) => {
            let types: &[(String, PgType)] = if let PgType::Record(types) = pg_type { types } else { &[] };
            let columns = fields.iter().zip(types).enumerate().map(|(position, (field, (_, of)))| {
                let cells: Vec<Value> = values.iter().map(|value| cell_of(value, position)).collect();
                array_of(&cells.iter().collect::<Vec<_>>(), of, field.data_type())
            });
            let nulls = arrow::buffer::NullBuffer::from_iter(values.iter().map(|value| matches!(value, Value::Record(_))));
            let records = arrow::array::StructArray::try_new(fields.clone(), columns.collect::<Result<_>>()?, Some(nulls));
            Arc::new(records.map_err(DataFusionError::from)?)
        }
        _ => Arc::new(values.iter().map(|value| value.to_text(pg_type)).collect::<StringArray>()),
    })
}

fn cell_of(record: &Value, position: usize) -> Value {
    match record {
        Value::Record(cells) => cells.get(position).cloned().unwrap_or(Value::Null),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::pg_catalog::types::Kind;

    #[test]
    fn rows_come_back_from_the_batch_they_became() {
        let columns = vec![
            ("oid".to_owned(), PgType::One(Kind::Oid)),
            ("name".to_owned(), PgType::One(Kind::Name)),
            ("keys".to_owned(), PgType::Many(Kind::Int2)),
            ("rows".to_owned(), PgType::One(Kind::Float4)),
        ];
        let rows = vec![
            vec![Value::Int(1259), Value::text("pg_class"), Value::list([Value::Int(1), Value::Null]), Value::Float(-1.0)],
            vec![Value::Null; 4],
        ];
        let batch = batch_of(&columns, &rows).expect("the values fit");
        assert_eq!(rows_of(&batch).expect("they are read"), rows);
        assert_eq!(batch.schema().field(0).metadata().get(rolloutdb_udfs::postgres::PG_TYPE).map(String::as_str), Some("oid"));
        let wrong = [("n".to_owned(), PgType::One(Kind::Int2))];
        assert!(batch_of(&wrong, &[vec![Value::Int(70_000)]]).is_err());
    }
}
