//! Dates and times as PostgreSQL writes and reads them in ISO style: years of any length, `BC`, `infinity`, fractions without zeros at the end.
//!
//! A date counts days and an instant microseconds from 1970-01-01; the largest and the smallest value are the two infinities.

use super::datetime_in::{Fault, read_date, read_time, read_timestamp};
use super::decimal::write_natural;
use crate::Error;

pub(crate) const MICROS_PER_SECOND: i64 = 1_000_000;
pub(crate) const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;

const INFINITY: &str = "infinity";
const NEGATIVE_INFINITY: &str = "-infinity";

pub(super) fn write_date(days: i32, out: &mut Vec<u8>) {
    match days {
        i32::MAX => out.extend_from_slice(INFINITY.as_bytes()),
        i32::MIN => out.extend_from_slice(NEGATIVE_INFINITY.as_bytes()),
        days => {
            let year = write_day(i64::from(days), out);
            write_era(year, out);
        }
    }
}

/// `has_zone`: an instant, which is shown in the session's time zone: UTC.
pub(super) fn write_timestamp(micros: i64, has_zone: bool, out: &mut Vec<u8>) {
    match micros {
        i64::MAX => out.extend_from_slice(INFINITY.as_bytes()),
        i64::MIN => out.extend_from_slice(NEGATIVE_INFINITY.as_bytes()),
        micros => {
            let year = write_day(micros.div_euclid(MICROS_PER_DAY), out);
            out.push(b' ');
            write_time(micros.rem_euclid(MICROS_PER_DAY), out);
            if has_zone {
                out.extend_from_slice(b"+00");
            }
            write_era(year, out);
        }
    }
}

/// As XML and JSON have instants: `2024-02-29T12:34:56.5+00:00`.
pub(super) fn write_iso_timestamp(micros: i64, has_zone: bool, out: &mut Vec<u8>) {
    if matches!(micros, i64::MAX | i64::MIN) {
        return write_timestamp(micros, has_zone, out);
    }
    let year = write_day(micros.div_euclid(MICROS_PER_DAY), out);
    out.push(b'T');
    write_time(micros.rem_euclid(MICROS_PER_DAY), out);
    if has_zone {
        out.extend_from_slice(b"+00:00");
    }
    write_era(year, out);
}

/// `micros`: since midnight, not negative.
pub(super) fn write_time(micros: i64, out: &mut Vec<u8>) {
    let micros = micros.unsigned_abs();
    let seconds = micros / 1_000_000;
    write_clock(seconds, micros % 1_000_000, out);
}

/// `04:05:06.789`; hours may have more than two digits.
pub(super) fn write_clock(seconds: u64, micros: u64, out: &mut Vec<u8>) {
    write_natural(seconds / 3_600, 2, out);
    out.push(b':');
    write_natural(seconds / 60 % 60, 2, out);
    out.push(b':');
    write_natural(seconds % 60, 2, out);
    if micros > 0 {
        out.push(b'.');
        write_natural(micros, 6, out);
        while out.last() == Some(&b'0') {
            out.pop();
        }
    }
}

/// Writes `2024-02-29` and gives the year, which is below 1 before Christ.
fn write_day(days: i64, out: &mut Vec<u8>) -> i64 {
    let (year, month, day) = civil_of_days(days);
    let shown = if year > 0 { year } else { 1 - year };
    write_natural(shown.unsigned_abs(), 4, out);
    out.push(b'-');
    write_natural(month.unsigned_abs(), 2, out);
    out.push(b'-');
    write_natural(day.unsigned_abs(), 2, out);
    year
}

fn write_era(year: i64, out: &mut Vec<u8>) {
    if year <= 0 {
        out.extend_from_slice(b" BC");
    }
}

/// Year, month and day in the Gregorian calendar (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").
pub(crate) fn civil_of_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// The inverse. `None` for a day that there is not.
pub(crate) fn days_of_civil(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let shifted = year - i64::from(month <= 2);
    let era = shifted.div_euclid(400);
    let year_of_era = shifted.rem_euclid(400);
    let day_of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = era * 146_097 + day_of_era - 719_468;
    (civil_of_days(days) == (year, month, day)).then_some(days)
}

/// A date: `2024-02-29`, `0044-03-15 BC`, `infinity`, and the forms that people type. `None` for other forms and for dates that there are not.
#[must_use]
pub fn parse_date(text: &str) -> Option<i32> {
    date(text).ok()
}

/// A timestamp in microseconds, `2024-02-29 12:34:56.789`, with a zone or without; a day alone is its midnight. A zone counts only for an instant, as
/// in PostgreSQL. `None` for other forms, for days that there are not, and beyond what microseconds count.
#[must_use]
pub fn parse_timestamp(text: &str, has_zone: bool) -> Option<i64> {
    timestamp(text, has_zone).ok()
}

/// A time of day in microseconds: `12:34:56.789`, to `24:00:00`.
#[must_use]
pub fn parse_time(text: &str) -> Option<i64> {
    time(text).ok()
}

/// As [`parse_date`].
///
/// # Errors
/// [`Error::TimeText`] for another form, [`Error::TimeRange`] for a day that there is not.
pub fn date_of(text: &str) -> Result<i32, Error> {
    date(text).map_err(|fault| error_of(fault, "date", text))
}

/// As [`parse_timestamp`].
///
/// # Errors
/// As [`date_of`].
pub fn timestamp_of(text: &str, has_zone: bool) -> Result<i64, Error> {
    let type_name = if has_zone { "timestamp with time zone" } else { "timestamp" };
    timestamp(text, has_zone).map_err(|fault| error_of(fault, type_name, text))
}

/// As [`parse_time`].
///
/// # Errors
/// As [`date_of`].
pub fn time_of(text: &str) -> Result<i64, Error> {
    time(text).map_err(|fault| error_of(fault, "time", text))
}

fn error_of(fault: Fault, type_name: &'static str, text: &str) -> Error {
    let text = text.chars().take(60).collect();
    match fault {
        Fault::Syntax => Error::TimeText { type_name, text },
        Fault::Range => Error::TimeRange { text },
    }
}

fn date(text: &str) -> Result<i32, Fault> {
    match text.trim().to_ascii_lowercase().as_str() {
        INFINITY => return Ok(i32::MAX),
        NEGATIVE_INFINITY => return Ok(i32::MIN),
        "epoch" => return Ok(0),
        _ => {}
    }
    let days = match iso_date(text) {
        Some(days) => days,
        None => read_date(text)?,
    };
    i32::try_from(days).ok().filter(|days| !matches!(*days, i32::MIN | i32::MAX)).ok_or(Fault::Range)
}

fn timestamp(text: &str, has_zone: bool) -> Result<i64, Fault> {
    match text.trim().to_ascii_lowercase().as_str() {
        INFINITY => return Ok(i64::MAX),
        NEGATIVE_INFINITY => return Ok(i64::MIN),
        "epoch" => return Ok(0),
        _ => {}
    }
    match iso_timestamp(text, has_zone) {
        Some(micros) => Ok(micros),
        None => read_timestamp(text, has_zone),
    }
}

fn time(text: &str) -> Result<i64, Fault> {
    match take_clock(text.trim()) {
        Some((micros, "")) => Ok(micros),
        _ => read_time(text),
    }
}

/// The form in which programs write dates, which is read fast.
fn iso_date(text: &str) -> Option<i64> {
    let (text, is_before_christ) = without_era(text.trim());
    let (days, rest) = take_day(text, is_before_christ)?;
    // The time of a timestamp is dropped, as in PostgreSQL; it has to be one.
    if !rest.is_empty() {
        let (_, rest) = take_clock(rest.strip_prefix([' ', 'T'])?.trim_start())?;
        seconds_of_zone(rest.trim_start())?;
    }
    Some(days)
}

fn iso_timestamp(text: &str, has_zone: bool) -> Option<i64> {
    let (text, is_before_christ) = without_era(text.trim());
    let (days, rest) = take_day(text, is_before_christ)?;
    let (time, rest) = match rest.strip_prefix([' ', 'T', 't']) {
        Some(rest) => take_clock(rest.trim_start())?,
        None => (0, rest),
    };
    let offset = seconds_of_zone(rest.trim_start())?;
    let micros = days.checked_mul(MICROS_PER_DAY)?.checked_add(time)?;
    if has_zone { micros.checked_sub(offset * MICROS_PER_SECOND) } else { Some(micros) }
}

fn without_era(text: &str) -> (&str, bool) {
    let end = text.len().checked_sub(3).filter(|end| text.is_char_boundary(*end));
    match end.map(|end| text.split_at(end)) {
        Some((date, era)) if era.eq_ignore_ascii_case(" bc") => (date, true),
        Some((date, era)) if era.eq_ignore_ascii_case(" ad") => (date, false),
        _ => (text, false),
    }
}

/// Days, and what stands behind.
fn take_day(text: &str, is_before_christ: bool) -> Option<(i64, &str)> {
    let (year, rest) = take_number(text, 4..=7)?;
    let (month, rest) = take_number(rest.strip_prefix('-')?, 1..=2)?;
    let (day, rest) = take_number(rest.strip_prefix('-')?, 1..=2)?;
    // There is no year 0 between 1 BC and 1.
    let year = if is_before_christ { 1 - year } else { year };
    let is_year = if is_before_christ { year <= 0 } else { year > 0 };
    if !is_year {
        return None;
    }
    Some((days_of_civil(year, month, day)?, rest))
}

/// Microseconds since midnight, and what stands behind. Digits beyond microseconds round.
fn take_clock(text: &str) -> Option<(i64, &str)> {
    let (hours, rest) = take_number(text, 1..=2)?;
    let (minutes, rest) = take_number(rest.strip_prefix(':')?, 2..=2)?;
    let (seconds, rest) = match rest.strip_prefix(':') {
        Some(rest) => take_number(rest, 2..=2)?,
        None => (0, rest),
    };
    let (micros, rest) = match rest.strip_prefix('.') {
        Some(rest) => take_fraction(rest),
        None => (0, rest),
    };
    let total = ((hours * 60 + minutes) * 60 + seconds) * MICROS_PER_SECOND + micros;
    (minutes < 60 && seconds <= 60 && total <= MICROS_PER_DAY).then_some((total, rest))
}

/// The digits behind a point as millionths, and what stands behind them.
pub(super) fn take_fraction(text: &str) -> (i64, &str) {
    let (digits, rest) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
    let millionths = digits.bytes().chain(std::iter::repeat(b'0')).take(6).fold(0, |value, digit| value * 10 + i64::from(digit - b'0'));
    let rounds_up = digits.as_bytes().get(6).is_some_and(|digit| *digit >= b'5');
    (millionths + i64::from(rounds_up), rest)
}

/// Seconds east of Greenwich of `Z`, `UTC`, `+02`, `-03:30`, `+05:30:15`; 0 of nothing.
pub(super) fn seconds_of_zone(text: &str) -> Option<i64> {
    if text.is_empty() || ["z", "utc", "gmt"].iter().any(|name| text.eq_ignore_ascii_case(name)) {
        return Some(0);
    }
    let (sign, rest) = match text.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let (hours, mut rest) = take_number(rest, 1..=2)?;
    let mut seconds = hours * 3_600;
    for unit in [60, 1] {
        if rest.is_empty() {
            break;
        }
        let (value, behind) = take_number(rest.strip_prefix(':')?, 2..=2)?;
        if value >= 60 {
            return None;
        }
        (seconds, rest) = (seconds + value * unit, behind);
    }
    (rest.is_empty() && hours < 16).then_some(sign * seconds)
}

/// A number of that many digits at the start of a text, and what stands behind them.
fn take_number(text: &str, num_digits: std::ops::RangeInclusive<usize>) -> Option<(i64, &str)> {
    let (digits, rest) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
    let value = num_digits.contains(&digits.len()).then(|| digits.parse().ok())??;
    Some((value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn days_are_written_and_read_as_in_postgres() {
        for (days, expected) in [
            (0, "1970-01-01"),
            (19_782, "2024-02-29"),
            (-719_162, "0001-01-01"),
            (-719_163, "0001-12-31 BC"),
            (2_932_897, "10000-01-01"),
            (-2_440_588, "4714-11-24 BC"),
            (i32::MAX, "infinity"),
            (i32::MIN, "-infinity"),
        ] {
            assert_eq!(text(|out| write_date(days, out)), expected);
            assert_eq!(parse_date(expected), Some(days));
        }
        for text in ["2024-02-30", "2023-02-29", "2024-13-01", "0000-01-01", "", "24-01-01", "2024-01-01 x", "2024-01-01 25:00"] {
            assert_eq!(parse_date(text), None, "{text}");
        }
        assert_eq!(parse_date("2024-02-29 12:00:00"), Some(19_782));
    }

    #[test]
    fn instants_are_written_and_read_as_in_postgres() {
        for (micros, expected) in [
            (0, "1970-01-01 00:00:00"),
            (1, "1970-01-01 00:00:00.000001"),
            (-500_000, "1969-12-31 23:59:59.5"),
            (1_709_210_096_789_000, "2024-02-29 12:34:56.789"),
            (253_402_300_800_000_000, "10000-01-01 00:00:00"),
            (-62_135_596_800_000_001, "0001-12-31 23:59:59.999999 BC"),
            (i64::MAX, "infinity"),
            (i64::MIN, "-infinity"),
        ] {
            assert_eq!(text(|out| write_timestamp(micros, false, out)), expected);
            assert_eq!(parse_timestamp(expected, false), Some(micros));
        }
        assert_eq!(text(|out| write_timestamp(-62_135_596_800_000_001, true, out)), "0001-12-31 23:59:59.999999+00 BC");
        assert_eq!(parse_timestamp("0001-12-31 23:59:59.999999+00 BC", true), Some(-62_135_596_800_000_001));
        assert_eq!(parse_timestamp("2024-02-29T12:34:56.789Z", true), Some(1_709_210_096_789_000));
        assert_eq!(parse_timestamp("2024-02-29 14:34:56.789+02", true), Some(1_709_210_096_789_000));
        assert_eq!(parse_timestamp("2024-02-29 18:04:56.789+05:30", true), Some(1_709_210_096_789_000));
        assert_eq!(parse_timestamp("2024-02-29 12:34:56.789+02", false), Some(1_709_210_096_789_000), "a zone means nothing there");
        assert_eq!(parse_timestamp("2024-02-29", false), Some(1_709_164_800_000_000));
        assert_eq!(parse_timestamp("2024-02-29 12:34", false), Some(1_709_210_040_000_000));
        for text in ["2024-02-29 12", "2024-02-29 12:61", "2024-02-29 12:34:56+99", "9999999-01-01", "now-ish", "2024-02-29 12:34:56 x"] {
            assert_eq!(parse_timestamp(text, true), None, "{text}");
        }
    }

    #[test]
    fn a_day_has_24_hours() {
        for (micros, expected) in [(0, "00:00:00"), (86_400_000_000, "24:00:00"), (45_296_000_001, "12:34:56.000001")] {
            assert_eq!(text(|out| write_time(micros, out)), expected);
            assert_eq!(parse_time(expected), Some(micros));
        }
        assert_eq!(parse_time("12:34"), Some(45_240_000_000));
        assert_eq!(parse_time("1234"), Some(45_240_000_000));
        for text in ["24:00:01", "12:60:00", "12345", "12:34:56 x", ""] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }

    #[test]
    fn every_day_of_two_eras_reads_back() {
        for days in (-1_000_000..1_000_000).step_by(97) {
            assert_eq!(parse_date(&text(|out| write_date(days, out))), Some(days));
        }
    }
}
