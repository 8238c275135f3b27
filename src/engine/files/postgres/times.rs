//! Dates and times as PostgreSQL writes them (ISO).

use std::io::Write;

use arrow::datatypes::IntervalMonthDayNano;

use super::DAY_MICROS;

/// `2024-02-29`, and `0044-03-15 BC`; `days` since 1970-01-01.
pub fn push_date(days: i64, out: &mut Vec<u8>) {
    let year = push_day(days, out);
    push_era(year, out);
}

/// `2024-02-29 12:34:56.5`, with `+00` behind it for an instant.
pub fn push_timestamp(micros: i64, has_zone: bool, out: &mut Vec<u8>) {
    let year = push_day(micros.div_euclid(DAY_MICROS), out);
    out.push(b' ');
    push_time(micros.rem_euclid(DAY_MICROS), out);
    if has_zone {
        out.extend(b"+00");
    }
    push_era(year, out);
}

/// `12:34:56.5`; no more digits than the fraction has.
pub fn push_time(micros: i64, out: &mut Vec<u8>) {
    let (seconds, fraction) = (micros / 1_000_000, micros % 1_000_000);
    put(out, format_args!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60));
    if fraction != 0 {
        put(out, format_args!(".{fraction:06}"));
        while out.last() == Some(&b'0') {
            out.pop();
        }
    }
}

/// `1 year 2 mons 3 days -04:05:06`; what is less than a microsecond is cut off.
pub fn push_interval(interval: IntervalMonthDayNano, out: &mut Vec<u8>) {
    let start = out.len();
    let counts = [(interval.months / 12, "year"), (interval.months % 12, "mon"), (interval.days, "day")];
    for (count, unit) in counts {
        if count != 0 {
            let (blank, plural) = (if out.len() > start { " " } else { "" }, if count == 1 { "" } else { "s" });
            put(out, format_args!("{blank}{count} {unit}{plural}"));
        }
    }
    let micros = interval.nanoseconds / 1000;
    if micros != 0 || out.len() == start {
        put(out, format_args!("{}{}", if out.len() > start { " " } else { "" }, if micros < 0 { "-" } else { "" }));
        push_time(micros.abs(), out);
    }
}

/// Year, month and day; gives the year, of which those before 1 are BC.
fn push_day(days: i64, out: &mut Vec<u8>) -> i64 {
    let (year, month, day) = civil(days);
    put(out, format_args!("{:04}-{month:02}-{day:02}", if year > 0 { year } else { 1 - year }));
    year
}

fn push_era(year: i64, out: &mut Vec<u8>) {
    if year <= 0 {
        out.extend(b" BC");
    }
}

/// Year, month and day of the Gregorian calendar (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days).
fn civil(days: i64) -> (i64, i64, i64) {
    // Eras of 400 years, which begin on the 1st of March: a leap day is the last day of its year.
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Formats into memory, which takes everything.
pub fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing into memory does not fail");
}
