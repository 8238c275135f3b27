//! Columns in the few types that have a form of their own; what has none becomes JSON text.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef, IntervalUnit, TimeUnit};
use datafusion::error::DataFusionError;

use crate::engine::files::write::json_texts;
use crate::error::Result;

/// The same values as boolean, smallint, integer, bigint, real, double precision, numeric, text, bytea, date, time, timestamp, interval, a vector,
/// or an array of one of the others.
pub fn column(array: &ArrayRef, field: &Field) -> Result<ArrayRef> {
    let Some(target) = plain_type(array.data_type()) else { return Ok(Arc::new(json_texts(array, field)?)) };
    if *array.data_type() == target {
        return Ok(Arc::clone(array));
    }
    // A value that does not fit is an error, and not NULL.
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    Ok(cast_with_options(array, &target, &strict).map_err(DataFusionError::from)?)
}

/// Whether values of this type have a form of their own and are not JSON.
pub fn has_own_form(data_type: &DataType) -> bool {
    plain_type(data_type).is_some()
}

/// `None`: JSON.
fn plain_type(data_type: &DataType) -> Option<DataType> {
    match data_type {
        DataType::FixedSizeList(item, _) if matches!(item.data_type(), DataType::Float16 | DataType::Float32) => Some(data_type.clone()),
        DataType::FixedSizeList(item, _) if item.data_type().is_floating() => None,
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => Some(DataType::List(plain_item(item)?)),
        DataType::Dictionary(_, values) => plain_type(values),
        scalar => plain_scalar(scalar),
    }
}

fn plain_item(item: &FieldRef) -> Option<FieldRef> {
    let data_type = plain_scalar(item.data_type())?;
    Some(Arc::new(item.as_ref().clone().with_data_type(data_type)))
}

fn plain_scalar(data_type: &DataType) -> Option<DataType> {
    Some(match data_type {
        DataType::Null | DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => DataType::Binary,
        DataType::Int8 | DataType::UInt8 => DataType::Int16,
        DataType::UInt16 => DataType::Int32,
        // As PostgreSQL's row_number(): bigint.
        DataType::UInt32 | DataType::UInt64 => DataType::Int64,
        DataType::Float16 => DataType::Float32,
        DataType::Date64 => DataType::Date32,
        DataType::Time32(_) | DataType::Time64(_) => DataType::Time64(TimeUnit::Microsecond),
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.as_ref().map(|_| "+00:00".into())),
        DataType::Interval(_) | DataType::Duration(_) => DataType::Interval(IntervalUnit::MonthDayNano),
        DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale) => DataType::Decimal128(38, *scale),
        DataType::Boolean
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Float32
        | DataType::Float64
        | DataType::Date32
        | DataType::Decimal128(..)
        | DataType::Decimal256(..) => data_type.clone(),
        _ => return None,
    })
}
