//! `source AT TIME ZONE zone`: an instant as clocks show it, and the instant at which they show a time.

use std::sync::Arc;

use arrow::array::{ArrayRef, TimestampMicrosecondArray};
use datafusion::error::Result;

use super::{SECTION, TIME, TimeType, is_infinite, micros, timestamp_type, timestamptz_type};
use crate::Error;
use crate::function::{Function, Interface, Kind, Parameter, Returns};
use crate::postgres::{Fault, instant_of_local, local_of_instant};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "timezone",
        section: SECTION,
        description: "What clocks in a zone show at an instant, and of a timestamp without time zone the instant at which they show it; also \
            `source AT TIME ZONE zone`.",
        parameters: &[Parameter { name: "zone", kind: Kind::Text, description: "A zone: `Europe/Berlin`, `CET`, `UTC`." }, TIME],
        required: 2,
        example: ("SELECT timezone('America/New_York', TIMESTAMPTZ '2024-06-15 12:00:00+00')", "2024-06-15T08:00:00"),
    },
    returns: Returns::Computed(|types, _| {
        Ok(match TimeType::of_argument(&FUNCTION, 1, &types[1])? {
            TimeType::Timestamp => timestamptz_type(),
            _ => timestamp_type(),
        })
    }),
    kernel: |arguments| {
        let zones = arguments.text(0)?;
        let is_local = TimeType::of_argument(&FUNCTION, 1, arguments.column(1)?.array().data_type())? == TimeType::Timestamp;
        let times = micros(arguments, 1)?;
        let turned = |row: usize| {
            let Some((zone, micros)) = zones.get(row).zip(times.get(row)) else { return Ok(None) };
            if is_local { instant(zone, micros).map(Some) } else { local(zone, micros).map(Some) }
        };
        let turned = (0..arguments.num_rows()).map(turned).collect::<Result<TimestampMicrosecondArray, Error>>()?;
        Ok(Arc::new(turned.with_data_type(arguments.return_type().clone())) as ArrayRef)
    },
};

/// The instant at which clocks in a zone show a time.
///
/// # Errors
/// [`Error::UnknownZone`], [`Error::TimeOverflow`].
pub(super) fn instant(zone: &str, local: i64) -> Result<i64, Error> {
    if is_infinite(local) { Ok(local) } else { found(zone, instant_of_local(zone, local)) }
}

/// What clocks in a zone show at an instant.
///
/// # Errors
/// As [`instant`].
pub(super) fn local(zone: &str, instant: i64) -> Result<i64, Error> {
    if is_infinite(instant) { Ok(instant) } else { found(zone, local_of_instant(zone, instant)) }
}

fn found(zone: &str, turned: Option<Result<i64, Fault>>) -> Result<i64, Error> {
    let turned = turned.ok_or_else(|| Error::UnknownZone { zone: zone.chars().take(60).collect() })?;
    turned.map_err(|_| Error::TimeOverflow { type_name: "timestamp" })
}
