use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Decimal128Type, DecimalType, Float32Type, Float64Type, Int64Type, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
    TimestampMicrosecondType, UInt64Type,
};
use datafusion::error::Result;

use super::calendar::Fields;
use super::number::{Number, write_number};
use super::write::write_fields;
use crate::Error;
use crate::function::{Function, Interface, Kind, Parameter, Returns, type_name};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "to_char",
        section: "Text",
        description: "A date, an instant, an interval or a number by a template pattern of PostgreSQL's: `YYYY-MM-DD HH24:MI:SS`, `FMDay, DDth Mon`, `FM9G990D00`. \
            A part that is not there yet is an error: of numbers `L`, `EEEE`, `RN`, `V` and `B`. NULL for NULL and for an empty pattern.",
        parameters: &[
            Parameter { name: "value", kind: Kind::Any, description: "A date, a timestamp, a time, an interval or a number." },
            Parameter { name: "pattern", kind: Kind::Text, description: "A template pattern." },
        ],
        required: 2,
        example: ("SELECT to_char(timestamp '2024-02-29 12:34:56', 'FMDay, DD Mon YYYY HH12:MI AM')", "Thursday, 29 Feb 2024 12:34 PM"),
    },
    returns: Returns::Computed(|types, _| {
        kind_of(&types[0])?;
        Ok(DataType::Utf8)
    }),
    kernel: |arguments| {
        let (values, patterns) = (arguments.column(0)?, arguments.text(1)?);
        let written = Values::of(values.array())?;
        let texts = (0..arguments.num_rows()).map(|row| {
            let at = if values.is_constant() { 0 } else { row };
            match patterns.get(row) {
                Some(pattern) => written.write(at, pattern),
                None => Ok(None),
            }
        });
        Ok(Arc::new(texts.collect::<Result<StringArray, Error>>()?) as ArrayRef)
    },
};

/// What a type is written as.
#[derive(Debug, Clone, Copy)]
enum Written {
    Instant { has_zone: bool },
    Interval,
    Time,
    Integer,
    Natural,
    Decimal(u8, i8),
    Real,
    Double,
    Null,
}

fn kind_of(data_type: &DataType) -> Result<Written, Error> {
    Ok(match data_type {
        // A date becomes an instant in the session's zone, as in PostgreSQL.
        DataType::Date32 | DataType::Date64 => Written::Instant { has_zone: true },
        DataType::Timestamp(_, zone) => Written::Instant { has_zone: zone.is_some() },
        DataType::Interval(_) | DataType::Duration(_) => Written::Interval,
        DataType::Time32(_) | DataType::Time64(_) => Written::Time,
        DataType::UInt64 => Written::Natural,
        integer if integer.is_integer() => Written::Integer,
        DataType::Decimal128(precision, scale) => Written::Decimal(*precision, *scale),
        DataType::Float16 | DataType::Float32 => Written::Real,
        DataType::Float64 => Written::Double,
        DataType::Null => Written::Null,
        other => {
            let expected = "a date, a timestamp, an interval or a number; write its type, as in to_char(timestamp '2024-01-31', 'YYYY')";
            return Err(Error::ArgumentType { function: "to_char", argument: "value", found: type_name(other), expected });
        }
    })
}

/// The values of a column in the one type that stands for its kind.
struct Values {
    kind: Written,
    array: ArrayRef,
}

impl Values {
    fn of(array: &ArrayRef) -> Result<Self> {
        let kind = kind_of(array.data_type())?;
        let wanted = match (kind, array.data_type()) {
            (Written::Instant { .. }, DataType::Timestamp(_, zone)) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
            (Written::Instant { .. }, _) => DataType::Timestamp(TimeUnit::Microsecond, None),
            (Written::Interval, DataType::Duration(_)) => DataType::Duration(TimeUnit::Microsecond),
            (Written::Interval, _) => DataType::Interval(IntervalUnit::MonthDayNano),
            (Written::Time, _) => DataType::Time64(TimeUnit::Microsecond),
            (Written::Integer, _) => DataType::Int64,
            (Written::Natural, _) => DataType::UInt64,
            (Written::Decimal(precision, scale), _) => DataType::Decimal128(precision, scale),
            (Written::Real, _) => DataType::Float32,
            (Written::Double, _) => DataType::Float64,
            (Written::Null, _) => DataType::Null,
        };
        Ok(Self { kind, array: cast(array, &wanted)? })
    }

    fn write(&self, row: usize, pattern: &str) -> Result<Option<String>, Error> {
        // An untyped NULL has no bitmap of its own.
        if matches!(self.kind, Written::Null) || self.array.is_null(row) {
            return Ok(None);
        }
        let array = &self.array;
        let number = match self.kind {
            Written::Instant { has_zone } => {
                let instant = Fields::of_instant(array.as_primitive::<TimestampMicrosecondType>().value(row), has_zone);
                return instant.map_or(Ok(None), |fields| write_fields(&fields, pattern));
            }
            Written::Interval | Written::Time => return write_fields(&self.interval(row), pattern),
            Written::Integer => Number::Exact(array.as_primitive::<Int64Type>().value(row).to_string()),
            Written::Natural => Number::Exact(array.as_primitive::<UInt64Type>().value(row).to_string()),
            Written::Decimal(precision, scale) => {
                Number::Exact(Decimal128Type::format_decimal(array.as_primitive::<Decimal128Type>().value(row), precision, scale))
            }
            Written::Real => Number::Real(array.as_primitive::<Float32Type>().value(row)),
            Written::Double => Number::Double(array.as_primitive::<Float64Type>().value(row)),
            Written::Null => return Ok(None),
        };
        write_number(&number, pattern)
    }

    fn interval(&self, row: usize) -> Fields {
        const MICROS_PER_DAY: i64 = 86_400_000_000;
        match self.array.data_type() {
            DataType::Interval(_) => {
                let interval = self.array.as_primitive::<IntervalMonthDayNanoType>().value(row);
                Fields::of_interval(i64::from(interval.months), i64::from(interval.days), interval.nanoseconds / 1_000)
            }
            // What is between two instants has whole days, as in PostgreSQL.
            DataType::Duration(_) => {
                let micros = self.array.as_primitive::<arrow::datatypes::DurationMicrosecondType>().value(row);
                Fields::of_interval(0, micros / MICROS_PER_DAY, micros % MICROS_PER_DAY)
            }
            _ => Fields::of_interval(0, 0, self.array.as_primitive::<arrow::datatypes::Time64MicrosecondType>().value(row)),
        }
    }
}
