//! Values in PostgreSQL's text and binary forms, a column at a time: what COPY's formats text, csv and binary hold.

pub mod binary_in;
pub mod binary_out;
mod plain;
#[cfg(test)]
mod tests;
pub mod text_in;
pub mod text_out;

/// Writes the value of a row, which is not NULL.
pub type WriteValue = Box<dyn Fn(usize, &mut Vec<u8>) + Send + Sync>;

/// PostgreSQL counts times from 2000-01-01, Arrow from 1970-01-01.
const EPOCH_DAYS: i32 = 10_957;
const EPOCH_MICROS: i64 = EPOCH_DAYS as i64 * DAY_MICROS;
const DAY_MICROS: i64 = 86_400_000_000;

/// The ends of the range are `infinity` and `-infinity`, in both countings.
fn is_infinite_date(days: i32) -> bool {
    matches!(days, i32::MIN | i32::MAX)
}

fn is_infinite_time(micros: i64) -> bool {
    matches!(micros, i64::MIN | i64::MAX)
}
