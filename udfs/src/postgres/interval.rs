//! Intervals as PostgreSQL writes them in its own style: `1 year 2 mons 3 days 04:05:06.789`, and as it and clients write them for reading.

use arrow::datatypes::IntervalMonthDayNano;

use super::datetime::{take_fraction, write_clock};
use super::decimal::write_integer;

const NANOS_PER_SECOND: i64 = 1_000_000_000;
const MICROS_PER_SECOND: i64 = 1_000_000;
const DAYS_PER_MONTH: i64 = 30;

pub(super) fn write_interval(interval: IntervalMonthDayNano, out: &mut Vec<u8>) {
    let start = out.len();
    let mut is_after_negative = false;
    let parts = [(interval.months / 12, "year"), (interval.months % 12, "mon"), (interval.days, "day")];
    for (value, unit) in parts.into_iter().filter(|(value, _)| *value != 0) {
        if out.len() > start {
            out.push(b' ');
        }
        // What follows a negative part has its sign, so that nobody reads the minus for all of it.
        if is_after_negative && value > 0 {
            out.push(b'+');
        }
        write_integer(i64::from(value), out);
        out.push(b' ');
        out.extend_from_slice(unit.as_bytes());
        if value != 1 {
            out.push(b's');
        }
        is_after_negative = value < 0;
    }
    let micros = interval.nanoseconds / 1_000;
    if micros == 0 && out.len() > start {
        return;
    }
    if out.len() > start {
        out.push(b' ');
    }
    if micros < 0 {
        out.push(b'-');
    } else if is_after_negative {
        out.push(b'+');
    }
    let micros = micros.unsigned_abs();
    write_clock(micros / 1_000_000, micros % 1_000_000, out);
}

/// An interval as PostgreSQL writes it (`-1 years +2 mons 3 days -04:05:06.7`), with units in words (`1 hour 30 mins ago`) or in ISO 8601
/// (`P1Y2M3DT4H5M6.7S`). `None` for other forms and for what its parts cannot hold.
#[must_use]
pub fn parse_interval(text: &str) -> Option<IntervalMonthDayNano> {
    let text = text.trim().trim_start_matches('@').trim_start().to_ascii_lowercase();
    let mut parts = Parts::default();
    match text.strip_prefix('p') {
        Some(iso) => parts.read_iso(iso)?,
        None => parts.read_words(&text)?,
    }
    parts.interval()
}

#[derive(Default)]
struct Parts {
    months: i64,
    days: i64,
    nanos: i64,
}

impl Parts {
    fn read_words(&mut self, text: &str) -> Option<()> {
        let (text, is_ago) = text.strip_suffix(" ago").map_or((text, false), |rest| (rest, true));
        let mut words = text.split([' ', '\t', ',']).filter(|word| !word.is_empty()).peekable();
        words.peek()?;
        while let Some(word) = words.next() {
            if word.contains(':') {
                self.add_clock(word)?;
                continue;
            }
            if let Some(months) = years_and_months(word) {
                self.months = self.months.checked_add(months?)?;
                continue;
            }
            let number_end = word.find(|character: char| character.is_ascii_alphabetic()).unwrap_or(word.len());
            let (number, unit) = word.split_at(number_end);
            let number = Number::parse(number)?;
            // A number without a unit counts days before a time of day, else seconds.
            let alone = if words.peek().is_some_and(|word| word.contains(':')) { "day" } else { "second" };
            let unit = if unit.is_empty() { words.next_if(|word| !starts_number(word)).unwrap_or(alone) } else { unit };
            self.add(number, unit)?;
        }
        if is_ago {
            *self = Self { months: self.months.checked_neg()?, days: self.days.checked_neg()?, nanos: self.nanos.checked_neg()? };
        }
        Some(())
    }

    fn read_iso(&mut self, text: &str) -> Option<()> {
        let (date, time) = text.split_once('t').unwrap_or((text, ""));
        if date.is_empty() && time.is_empty() {
            return None;
        }
        for (mut rest, is_time) in [(date, false), (time, true)] {
            while !rest.is_empty() {
                let end = rest.find(|character: char| character.is_ascii_alphabetic())?;
                let unit = match (&rest[end..=end], is_time) {
                    ("y", false) => "year",
                    ("m", false) => "month",
                    ("w", false) => "week",
                    ("d", false) => "day",
                    ("h", true) => "hour",
                    ("m", true) => "minute",
                    ("s", true) => "second",
                    _ => return None,
                };
                self.add(Number::parse(&rest[..end])?, unit)?;
                rest = &rest[end + 1..];
            }
        }
        Some(())
    }

    /// `[+-]hours:minutes[:seconds[.fraction]]`
    fn add_clock(&mut self, text: &str) -> Option<()> {
        let (sign, digits) = match text.strip_prefix('-') {
            Some(digits) => (-1, digits),
            None => (1, text.strip_prefix('+').unwrap_or(text)),
        };
        let mut fields = digits.splitn(3, ':');
        let hours = natural(fields.next()?)?;
        let minutes = natural(fields.next()?)?;
        let (seconds, micros) = match fields.next().map(|seconds| seconds.split_once('.').unwrap_or((seconds, ""))) {
            Some((seconds, fraction)) => match take_fraction(fraction) {
                (micros, "") => (natural(seconds)?, micros),
                _ => return None,
            },
            None => (0, 0),
        };
        if minutes >= 60 || seconds > 60 {
            return None;
        }
        let seconds = hours.checked_mul(3_600)?.checked_add(minutes * 60 + seconds)?;
        let nanos = seconds.checked_mul(NANOS_PER_SECOND)?.checked_add(micros * 1_000)?;
        self.nanos = self.nanos.checked_add(sign * nanos)?;
        Some(())
    }

    fn add(&mut self, number: Number, unit: &str) -> Option<()> {
        match unit {
            "millennium" | "millennia" | "mils" | "mil" => self.add_months(number, 12_000),
            "century" | "centuries" | "cent" | "c" => self.add_months(number, 1_200),
            "decade" | "decades" | "dec" | "decs" => self.add_months(number, 120),
            "year" | "years" | "yr" | "yrs" | "y" => self.add_months(number, 12),
            "month" | "months" | "mon" | "mons" => self.add_months(number, 1),
            "week" | "weeks" | "w" => self.add_days(number, 7),
            "day" | "days" | "d" => self.add_days(number, 1),
            "hour" | "hours" | "hr" | "hrs" | "h" => self.add_micros(number, 3_600 * MICROS_PER_SECOND),
            "minute" | "minutes" | "min" | "mins" | "m" => self.add_micros(number, 60 * MICROS_PER_SECOND),
            "second" | "seconds" | "sec" | "secs" | "s" => self.add_micros(number, MICROS_PER_SECOND),
            "millisecond" | "milliseconds" | "msec" | "msecs" | "ms" => self.add_micros(number, 1_000),
            "microsecond" | "microseconds" | "usec" | "usecs" | "us" => self.add_micros(number, 1),
            _ => None,
        }
    }

    /// A part of a year is whole months, a part of a month days of which it has thirty, as in PostgreSQL.
    fn add_months(&mut self, number: Number, months: i64) -> Option<()> {
        self.months = self.months.checked_add(number.whole.checked_mul(months)?)?;
        if months > 1 {
            self.months = self.months.checked_add(number.millionths * months / MICROS_PER_SECOND)?;
            return Some(());
        }
        self.add_days(number.behind_the_point(), DAYS_PER_MONTH)
    }

    /// A part of a day is time.
    fn add_days(&mut self, number: Number, days: i64) -> Option<()> {
        self.days = self.days.checked_add(number.whole.checked_mul(days)?)?;
        let millionths = number.millionths * days;
        self.days = self.days.checked_add(millionths / MICROS_PER_SECOND)?;
        self.add_micros(Number { whole: millionths % MICROS_PER_SECOND, millionths: 0 }, 86_400)
    }

    fn add_micros(&mut self, number: Number, micros: i64) -> Option<()> {
        let behind = i128::from(number.millionths) * i128::from(micros) / i128::from(MICROS_PER_SECOND);
        let total = i128::from(number.whole) * i128::from(micros) + behind;
        self.nanos = self.nanos.checked_add(i64::try_from(total * 1_000).ok()?)?;
        Some(())
    }

    fn interval(&self) -> Option<IntervalMonthDayNano> {
        Some(IntervalMonthDayNano::new(i32::try_from(self.months).ok()?, i32::try_from(self.days).ok()?, self.nanos))
    }
}

/// The months of `1-2`, a year and two months in the SQL standard's form. `None`: another form; inner `None`: it has too many of them.
fn years_and_months(word: &str) -> Option<Option<i64>> {
    let (sign, digits) = match word.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, word.strip_prefix('+').unwrap_or(word)),
    };
    let (years, months) = digits.split_once('-')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(years) || !is_number(months) {
        return None;
    }
    let total = || natural(years)?.checked_mul(12)?.checked_add(natural(months).filter(|months| *months < 12)?);
    Some(total().map(|total| sign * total))
}

/// A decimal number; both parts have its sign.
#[derive(Clone, Copy)]
struct Number {
    whole: i64,
    millionths: i64,
}

impl Number {
    fn parse(text: &str) -> Option<Self> {
        let (sign, digits) = match text.strip_prefix('-') {
            Some(digits) => (-1, digits),
            None => (1, text.strip_prefix('+').unwrap_or(text)),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let whole = if whole.is_empty() { 0 } else { natural(whole)? };
        match take_fraction(fraction) {
            (millionths, "") => Some(Self { whole: sign * whole, millionths: sign * millionths }),
            _ => None,
        }
    }

    fn behind_the_point(self) -> Self {
        Self { whole: 0, millionths: self.millionths }
    }
}

fn natural(digits: &str) -> Option<i64> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

fn starts_number(word: &str) -> bool {
    word.starts_with(|character: char| character.is_ascii_digit() || matches!(character, '+' | '-' | '.'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(months: i32, days: i32, nanos: i64) -> String {
        let mut out = Vec::new();
        write_interval(IntervalMonthDayNano::new(months, days, nanos), &mut out);
        String::from_utf8(out).expect("ASCII")
    }

    /// From PostgreSQL 15, of intervals with these parts.
    #[test]
    fn intervals_are_written_and_read_as_in_postgres() {
        let clock = (4 * 3_600 + 5 * 60 + 6) * NANOS_PER_SECOND + 789_000_000;
        for (months, days, nanos, expected) in [
            (0, 0, 0, "00:00:00"),
            (14, 3, clock, "1 year 2 mons 3 days 04:05:06.789"),
            (-14, 3, -clock, "-1 years -2 mons +3 days -04:05:06.789"),
            (1, 0, 0, "1 mon"),
            (-1, 0, clock, "-1 mons +04:05:06.789"),
            (24, 1, 0, "2 years 1 day"),
            (0, -2, 0, "-2 days"),
            (0, 0, 1_000, "00:00:00.000001"),
            (0, 0, -500_000_000, "-00:00:00.5"),
            (0, 0, 100 * 3_600 * NANOS_PER_SECOND, "100:00:00"),
            (i32::MAX, i32::MIN, 0, "178956970 years 7 mons -2147483648 days"),
        ] {
            assert_eq!(written(months, days, nanos), expected);
            assert_eq!(parse_interval(expected), Some(IntervalMonthDayNano::new(months, days, nanos)), "{expected}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(months in any::<i32>(), days in any::<i32>(), micros in -9_000_000_000_000_000_i64..9_000_000_000_000_000) {
            let interval = IntervalMonthDayNano::new(months, days, micros * 1_000);
            let text = written(months, days, micros * 1_000);
            prop_assert_eq!(parse_interval(&text), Some(interval), "{}", text);
        }
    }

    #[test]
    fn what_clients_send_is_read() {
        for (text, months, days, nanos) in [
            ("P1Y2M3DT4H5M6S", 14, 3, 14_706 * NANOS_PER_SECOND),
            ("P1W", 0, 7, 0),
            ("PT0S", 0, 0, 0),
            ("PT-0.5S", 0, 0, -500_000_000),
            ("1 day, 2:03:04", 0, 1, 7_384 * NANOS_PER_SECOND),
            ("1 years 2 mons 3 days 4 hours 5 mins 6.0 secs", 14, 3, 14_706 * NANOS_PER_SECOND),
            ("90 minutes", 0, 0, 5_400 * NANOS_PER_SECOND),
            ("1.5 days", 0, 1, 43_200 * NANOS_PER_SECOND),
            ("1.5 months", 1, 15, 0),
            ("1.5 years", 18, 0, 0),
            ("2h 30m", 0, 0, 9_000 * NANOS_PER_SECOND),
            ("@ 1 hour ago", 0, 0, -3_600 * NANOS_PER_SECOND),
            ("7", 0, 0, 7 * NANOS_PER_SECOND),
            ("1-2", 14, 0, 0),
            ("-1-2 3 04:05", -14, 3, 14_700 * NANOS_PER_SECOND),
            ("04:05", 0, 0, 14_700 * NANOS_PER_SECOND),
            ("1 day ago", 0, -1, 0),
            ("1 year 2 mons -3 days +04:05:06.789", 14, -3, 14_706 * NANOS_PER_SECOND + 789_000_000),
            ("-00:00:01.5", 0, 0, -1_500_000_000),
        ] {
            assert_eq!(parse_interval(text), Some(IntervalMonthDayNano::new(months, days, nanos)), "{text}");
        }
        for text in [
            "",
            "P",
            "PT",
            "1 fortnight",
            "one day",
            "1:2:3:4",
            "1:60",
            "1-12",
            "1-2-3",
            "99999999999 years",
            "300000000 hours 1",
            "--1 day",
        ] {
            assert_eq!(parse_interval(text), None, "{text}");
        }
    }
}
