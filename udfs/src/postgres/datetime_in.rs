//! Dates and times in the forms that people type, as PostgreSQL reads them with `DateStyle` at `ISO, MDY`: `Sep 29 2001`, `9/29/2001 3:00 PM`,
//! `20010929T030000Z`, `2001-09-29 03:00 America/New_York`.
//!
//! A text is cut into fields by their looks, and each field says what it can be of what is still missing.

use std::str::FromStr;

use arrow::array::timezone::Tz;
use chrono::{NaiveDate, Offset, TimeZone};

use super::datetime::{MICROS_PER_DAY, MICROS_PER_SECOND, days_of_civil, seconds_of_zone, take_fraction};

/// What is wrong with a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It has no such form.
    Syntax,
    /// It names a day or a time that there is not.
    Range,
}

/// What the fields of a text say.
#[derive(Debug, Default)]
struct Found {
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    /// Numbers of a date whose order is not known yet.
    is_year_short: bool,
    is_before_christ: bool,
    micros: Option<i64>,
    half: Option<Half>,
    zone: Option<Zone>,
    is_time_next: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Half {
    Morning,
    Afternoon,
}

#[derive(Debug, Clone, Copy)]
enum Zone {
    /// Seconds east of Greenwich.
    Offset(i64),
    Named(Tz),
}

const MONTHS: [&str; 12] =
    ["january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december"];
const DAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

/// Abbreviations of time zones that PostgreSQL knows by default, with their hours.
const ZONES: [(&str, i64); 20] = [
    ("z", 0),
    ("zulu", 0),
    ("utc", 0),
    ("gmt", 0),
    ("ut", 0),
    ("wet", 0),
    ("west", 1),
    ("bst", 1),
    ("cet", 1),
    ("cest", 2),
    ("eet", 2),
    ("eest", 3),
    ("est", -5),
    ("edt", -4),
    ("cst", -6),
    ("cdt", -5),
    ("mst", -7),
    ("mdt", -6),
    ("pst", -8),
    ("pdt", -7),
];

/// Days since 1970-01-01. A time behind the date is read and dropped.
pub(super) fn read_date(text: &str) -> Result<i64, Fault> {
    let found = Found::read(text)?;
    found.time()?;
    found.days()
}

/// Microseconds since 1970-01-01. A zone counts only for an instant.
pub(super) fn read_timestamp(text: &str, has_zone: bool) -> Result<i64, Fault> {
    let found = Found::read(text)?;
    let (days, time) = (found.days()?, found.time()?.unwrap_or(0));
    let local = days.checked_mul(MICROS_PER_DAY).and_then(|micros| micros.checked_add(time)).ok_or(Fault::Range)?;
    match found.zone {
        Some(zone) if has_zone => zone.instant(local),
        _ => Ok(local),
    }
}

/// Microseconds since midnight. A date before it is read and dropped.
pub(super) fn read_time(text: &str) -> Result<i64, Fault> {
    let mut found = Found { is_time_next: true, ..Found::default() };
    found.read_fields(text)?;
    if found.year.is_some() || found.month.is_some() || found.day.is_some() {
        found.days()?;
    }
    found.time()?.ok_or(Fault::Syntax)
}

/// The instant at which clocks in a zone show a time; `None`: there is no such zone. Of a time that they show twice the later instant, of one that they
/// leave out the one that it would be an hour later, as in PostgreSQL.
#[must_use]
pub fn instant_of_local(zone: &str, local: i64) -> Option<Result<i64, Fault>> {
    Some(zone_of(zone)?.instant(local))
}

/// What clocks in a zone show at an instant; `None`: there is no such zone.
#[must_use]
pub fn local_of_instant(zone: &str, instant: i64) -> Option<Result<i64, Fault>> {
    Some(zone_of(zone)?.local(instant))
}

fn zone_of(name: &str) -> Option<Zone> {
    let name = name.trim();
    let lower = name.to_ascii_lowercase();
    if let Some((_, hours)) = ZONES.iter().find(|(known, _)| *known == lower) {
        return Some(Zone::Offset(hours * 3_600));
    }
    if name.starts_with(['+', '-']) {
        // As POSIX has it, which `AT TIME ZONE '+02'` follows in PostgreSQL: the sign says how far Greenwich is, not the zone.
        return seconds_of_zone(name).map(|seconds| Zone::Offset(-seconds));
    }
    named_zone(name)
}

/// Names of zones in any case.
fn named_zone(name: &str) -> Option<Zone> {
    if !name.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return None;
    }
    let capitalized = || {
        let mut is_first = true;
        let letters = name.chars().map(|letter| {
            let cased = if is_first { letter.to_ascii_uppercase() } else { letter.to_ascii_lowercase() };
            is_first = !letter.is_ascii_alphabetic();
            cased
        });
        letters.collect::<String>()
    };
    let zone = Tz::from_str(name).or_else(|_| Tz::from_str(&capitalized())).or_else(|_| Tz::from_str(&name.to_ascii_uppercase()));
    zone.ok().map(Zone::Named)
}

impl Zone {
    fn instant(self, local: i64) -> Result<i64, Fault> {
        let seconds = match self {
            Self::Offset(seconds) => seconds,
            Self::Named(zone) => {
                let local = naive(local)?;
                let found = zone.offset_from_local_datetime(&local);
                let offset = found.latest().or_else(|| {
                    let before = local.checked_sub_signed(chrono::TimeDelta::hours(3))?;
                    zone.offset_from_local_datetime(&before).latest()
                });
                i64::from(offset.ok_or(Fault::Range)?.fix().local_minus_utc())
            }
        };
        local.checked_sub(seconds * MICROS_PER_SECOND).ok_or(Fault::Range)
    }

    fn local(self, instant: i64) -> Result<i64, Fault> {
        let seconds = match self {
            Self::Offset(seconds) => seconds,
            Self::Named(zone) => i64::from(zone.offset_from_utc_datetime(&naive(instant)?).fix().local_minus_utc()),
        };
        instant.checked_add(seconds * MICROS_PER_SECOND).ok_or(Fault::Range)
    }
}

/// Beyond the years that the tables of zones know their last rule holds.
fn naive(micros: i64) -> Result<chrono::NaiveDateTime, Fault> {
    let days = i32::try_from(micros.div_euclid(MICROS_PER_DAY)).map_err(|_| Fault::Range)?;
    let date = NaiveDate::from_ymd_opt(1970, 1, 1).and_then(|first| first.checked_add_signed(chrono::TimeDelta::days(i64::from(days))));
    let time = micros.rem_euclid(MICROS_PER_DAY);
    let (seconds, rest) = ((time / MICROS_PER_SECOND) as u32, (time % MICROS_PER_SECOND) as u32);
    date.and_then(|date| date.and_hms_micro_opt(seconds / 3_600, seconds / 60 % 60, seconds % 60, rest)).ok_or(Fault::Range)
}

impl Found {
    fn read(text: &str) -> Result<Self, Fault> {
        let mut found = Self::default();
        found.read_fields(text)?;
        Ok(found)
    }

    fn read_fields(&mut self, text: &str) -> Result<(), Fault> {
        let mut rest = text.trim();
        if rest.is_empty() {
            return Err(Fault::Syntax);
        }
        while let Some(first) = rest.chars().next() {
            rest = match first {
                ' ' | '\t' | '\n' | ',' => &rest[1..],
                '0'..='9' => self.read_number(rest)?,
                '+' | '-' => self.read_offset(rest)?,
                first if first.is_ascii_alphabetic() => self.read_word(rest)?,
                _ => return Err(Fault::Syntax),
            };
        }
        Ok(())
    }

    /// A clock, a date with signs between its parts, or digits alone.
    fn read_number<'a>(&mut self, text: &'a str) -> Result<&'a str, Fault> {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, behind) = text.split_at(end);
        match behind.chars().next() {
            Some(':') => self.read_clock(text),
            Some(sign @ ('-' | '/' | '.')) if self.day.is_none() && !self.is_time_next => self.read_parts(text, sign),
            _ => self.read_digits(digits, behind),
        }
    }

    fn read_clock<'a>(&mut self, text: &'a str) -> Result<&'a str, Fault> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != ':' && c != '.').unwrap_or(text.len());
        let (clock, rest) = text.split_at(end);
        let (whole, fraction) = clock.split_once('.').unwrap_or((clock, ""));
        let fields: Vec<i64> = whole.split(':').map(|field| short(field, 2)).collect::<Option<_>>().ok_or(Fault::Syntax)?;
        let (hours, minutes, seconds) = match fields.as_slice() {
            [hours, minutes] => (*hours, *minutes, 0),
            [hours, minutes, seconds] => (*hours, *minutes, *seconds),
            _ => return Err(Fault::Syntax),
        };
        let (micros, left) = take_fraction(fraction);
        if !left.is_empty() {
            return Err(Fault::Syntax);
        }
        self.set_clock(hours, minutes, seconds, micros)?;
        Ok(rest)
    }

    fn set_clock(&mut self, hours: i64, minutes: i64, seconds: i64, micros: i64) -> Result<(), Fault> {
        if self.micros.is_some() {
            return Err(Fault::Syntax);
        }
        let total = ((hours * 60 + minutes) * 60 + seconds) * MICROS_PER_SECOND + micros;
        if minutes > 59 || seconds > 60 || total > MICROS_PER_DAY {
            return Err(Fault::Range);
        }
        self.micros = Some(total);
        self.is_time_next = false;
        Ok(())
    }

    /// `2001-09-29`, `9/29/2001`, `29-Sep-2001`
    fn read_parts<'a>(&mut self, text: &'a str, sign: char) -> Result<&'a str, Fault> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == sign;
        let end = text.find(|c: char| !is_part(c)).unwrap_or(text.len());
        // The T of ISO 8601 ends a date.
        let end = text[..end].find(['T', 't']).filter(|at| text[at + 1..].starts_with(|c: char| c.is_ascii_digit())).unwrap_or(end);
        let (date, rest) = text.split_at(end);
        let parts: Vec<&str> = date.split(sign).collect();
        let [first, second, third] = parts.as_slice() else { return Err(Fault::Syntax) };
        if self.year.is_some() || self.month.is_some() {
            return Err(Fault::Syntax);
        }
        if let Some(month) = month_of(second) {
            let (year, day) = if first.len() > 2 { (first, third) } else { (third, first) };
            return self.set_date(year, month, day).map(|()| rest);
        }
        if let Some(month) = month_of(first) {
            return self.set_date(third, month, second).map(|()| rest);
        }
        let (year, month, day) = if first.len() > 2 { (first, second, third) } else { (third, first, second) };
        let month = short(month, 2).ok_or(Fault::Syntax)?;
        self.set_date(year, month, day).map(|()| rest)
    }

    fn set_date(&mut self, year: &str, month: i64, day: &str) -> Result<(), Fault> {
        self.set_year(year)?;
        self.month = Some(month);
        self.day = Some(short(day, 2).ok_or(Fault::Syntax)?);
        Ok(())
    }

    fn set_year(&mut self, digits: &str) -> Result<(), Fault> {
        if self.year.is_some() {
            return Err(Fault::Syntax);
        }
        self.year = Some(short(digits, 7).ok_or(Fault::Syntax)?);
        self.is_year_short = digits.len() <= 2;
        Ok(())
    }

    /// Digits without signs: a date or time written in one, or a part of a date.
    fn read_digits<'a>(&mut self, digits: &str, behind: &'a str) -> Result<&'a str, Fault> {
        let number = |range: std::ops::Range<usize>| short(&digits[range], 7).ok_or(Fault::Syntax);
        let is_date_complete = self.year.is_some() && self.month.is_some() && self.day.is_some();
        if self.is_time_next || is_date_complete {
            let (micros, rest) = match behind.strip_prefix('.') {
                Some(fraction) if digits.len() == 6 => take_fraction(fraction),
                _ => (0, behind),
            };
            match digits.len() {
                4 => self.set_clock(number(0..2)?, number(2..4)?, 0, micros)?,
                6 => self.set_clock(number(0..2)?, number(2..4)?, number(4..6)?, micros)?,
                1 | 2 if self.is_half_next(behind) => self.set_clock(number(0..digits.len())?, 0, 0, 0)?,
                _ => return Err(Fault::Syntax),
            }
            return Ok(rest);
        }
        let has_none = self.year.is_none() && self.month.is_none() && self.day.is_none();
        match digits.len() {
            8 if has_none => self.set_date(&digits[..4], number(4..6)?, &digits[6..])?,
            6 if has_none => self.set_date(&digits[..2], number(2..4)?, &digits[4..])?,
            3.. => self.set_year(digits)?,
            _ if self.month.is_none() => self.month = Some(number(0..digits.len())?),
            _ if self.day.is_none() => self.day = Some(number(0..digits.len())?),
            _ => self.set_year(digits)?,
        }
        Ok(behind)
    }

    fn is_half_next(&self, behind: &str) -> bool {
        let behind = behind.trim_start().to_ascii_lowercase();
        behind.starts_with("am") || behind.starts_with("pm")
    }

    fn read_offset<'a>(&mut self, text: &'a str) -> Result<&'a str, Fault> {
        if self.micros.is_none() || self.zone.is_some() {
            return Err(Fault::Syntax);
        }
        let end = text[1..].find(|c: char| !c.is_ascii_digit() && c != ':').map_or(text.len(), |end| end + 1);
        let (offset, rest) = text.split_at(end);
        // Hours and minutes may stand together.
        let offset = match offset.len() {
            5 if !offset.contains(':') => format!("{}:{}", &offset[..3], &offset[3..]),
            _ => offset.to_owned(),
        };
        self.zone = Some(Zone::Offset(seconds_of_zone(&offset).ok_or(Fault::Syntax)?));
        Ok(rest)
    }

    fn read_word<'a>(&mut self, text: &'a str) -> Result<&'a str, Fault> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '-');
        let end = text.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(text.len());
        let (word, behind) = text.split_at(end);
        let lower = word.to_ascii_lowercase();
        if lower == "t" && behind.starts_with(|c: char| c.is_ascii_digit()) {
            self.is_time_next = true;
            return Ok(behind);
        }
        if let Some(month) = month_of(word) {
            if let Some(sign @ ('-' | '/' | '.')) = behind.chars().next()
                && behind[1..].starts_with(|c: char| c.is_ascii_digit())
                && behind[1..].contains(sign)
            {
                return self.read_parts(text, sign);
            }
            // `29 Sep 2001`: the number before was the day.
            if let (Some(day), None) = (self.month, self.day) {
                self.day = Some(day);
                self.month = None;
            }
            if self.month.replace(month).is_some() {
                return Err(Fault::Syntax);
            }
            return Ok(behind);
        }
        if is_abbreviated(&DAYS, &lower).is_some() {
            return Ok(behind);
        }
        match lower.as_str() {
            "am" | "a" if self.micros.is_some() => self.half = Some(Half::Morning),
            "pm" | "p" if self.micros.is_some() => self.half = Some(Half::Afternoon),
            "ad" => {}
            "bc" => self.is_before_christ = true,
            _ => {
                let end = text.find(|c: char| !is_part(c)).unwrap_or(text.len());
                let (name, rest) = text.split_at(end);
                let is_first = self.zone.is_none() && self.micros.is_some();
                self.zone = Some(zone_of(name).filter(|_| is_first).ok_or(Fault::Syntax)?);
                return Ok(rest);
            }
        }
        Ok(behind)
    }

    fn days(&self) -> Result<i64, Fault> {
        let (Some(year), Some(month), Some(day)) = (self.year, self.month, self.day) else { return Err(Fault::Syntax) };
        let year = match (self.is_before_christ, self.is_year_short) {
            (true, _) if year > 0 => 1 - year,
            (false, true) if year < 70 => year + 2_000,
            (false, true) => year + 1_900,
            (false, false) if year > 0 => year,
            _ => return Err(Fault::Range),
        };
        days_of_civil(year, month, day).ok_or(Fault::Range)
    }

    fn time(&self) -> Result<Option<i64>, Fault> {
        const NOON: i64 = MICROS_PER_DAY / 2;
        let hour = |micros: i64| micros / (3_600 * MICROS_PER_SECOND);
        match (self.micros, self.half) {
            (Some(micros), Some(_)) if hour(micros) > 12 => Err(Fault::Range),
            (Some(micros), Some(Half::Morning)) if hour(micros) == 12 => Ok(Some(micros - NOON)),
            (Some(micros), Some(Half::Afternoon)) if hour(micros) < 12 => Ok(Some(micros + NOON)),
            (micros, _) => Ok(micros),
        }
    }
}

/// A number of at most that many digits.
fn short(digits: &str, max: usize) -> Option<i64> {
    let is_number = (1..=max).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}

fn month_of(word: &str) -> Option<i64> {
    is_abbreviated(&MONTHS, &word.to_ascii_lowercase()).map(|index| index as i64 + 1)
}

/// Which of the names a word is: in full, by its first three letters, or by four of September, Tuesday and Thursday.
fn is_abbreviated(names: &[&str], word: &str) -> Option<usize> {
    let is_short = |name: &str| word.len() == 3 && name.starts_with(word);
    let is_longer = matches!(word, "sept" | "tues" | "thur" | "thurs" | "weds");
    let found = |name: &&str| **name == *word || is_short(name) || (is_longer && name.starts_with(&word[..3]));
    names.iter().position(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As PostgreSQL 15 answers with DateStyle ISO, MDY.
    #[test]
    fn forms_are_read_as_in_postgres() {
        let noon_to_three = 1_001_732_400_000_000;
        for text in [
            "2001-09-29 03:00",
            "2001-09-29 3:00 AM",
            "20010929 030000",
            "20010929T030000",
            "Sep 29 2001 03:00",
            "Saturday, September 29, 2001 3:00am",
            "29 Sep 2001 03:00:00",
            "29-Sep-2001 03:00",
            "Sep-29-2001 03:00",
            "2001/09/29 3:00",
            "9/29/2001 03:00",
            "9.29.2001 03:00",
            "9/29/01 03:00:00.0",
            "2001-Sep-29 3:00",
            "2001-09-29T03:00Z",
            "2001-09-29 03:00 AD",
        ] {
            assert_eq!(read_timestamp(text, false), Ok(noon_to_three), "{text}");
        }
        let hours = |hours: i64| hours * 3_600 * MICROS_PER_SECOND;
        for (text, later) in [
            ("2001-09-29 03:00 PM", -12),
            ("2001-09-29 03:00+02", 2),
            ("2001-09-29 03:00 -0330", -3),
            ("2001-09-29 03:00 EST", -5),
            ("2001-09-29 03:00 America/New_York", -4),
            ("2001-12-29 03:00 europe/berlin", 1),
        ] {
            let found = read_timestamp(text, true).expect(text);
            let days = if text.contains("-12-") { 91 } else { 0 };
            let half_hour = if text.contains("330") { hours(1) / 2 } else { 0 };
            assert_eq!(found, noon_to_three + hours(24) * days - hours(later) + half_hour, "{text}");
        }
    }

    #[test]
    fn what_there_is_not_is_told_from_what_is_no_date() {
        for text in ["2024-02-30", "2024-13-01", "29/9/2001", "2001-09-29 25:00", "2001-09-29 13:00 PM", "2001-09-29 10:61", "0000-01-01"] {
            assert_eq!(read_timestamp(text, false), Err(Fault::Range), "{text}");
        }
        for text in ["", "foo", "2001-09", "Sep 2001", "2001-09-29 x", "2001-09-29 3:0:0:0", "10:00", "2001-09-29 10:00 Mars/Phobos", "1.5"]
        {
            assert_eq!(read_timestamp(text, false), Err(Fault::Syntax), "{text}");
        }
    }

    #[test]
    fn times_stand_alone_or_behind_a_date() {
        let clock = |hours: i64, minutes: i64, seconds: i64| ((hours * 60 + minutes) * 60 + seconds) * MICROS_PER_SECOND;
        for (text, expected) in [
            ("10:30", clock(10, 30, 0)),
            ("1030", clock(10, 30, 0)),
            ("103015", clock(10, 30, 15)),
            ("10:30 PM", clock(22, 30, 0)),
            ("12:00 am", 0),
            ("04:05:06.789-08:00", clock(4, 5, 6) + 789_000),
            ("24:00", MICROS_PER_DAY),
        ] {
            assert_eq!(read_time(text), Ok(expected), "{text}");
        }
        assert_eq!(read_time("25:00"), Err(Fault::Range));
        assert_eq!(read_time("x"), Err(Fault::Syntax));
    }

    #[test]
    fn zones_turn_clocks_into_instants_and_back() {
        let noon = 1_718_452_800_000_000;
        let hour = 3_600 * MICROS_PER_SECOND;
        assert_eq!(local_of_instant("America/New_York", noon), Some(Ok(noon - 4 * hour)));
        assert_eq!(instant_of_local("America/New_York", noon), Some(Ok(noon + 4 * hour)));
        assert_eq!(local_of_instant("utc", noon), Some(Ok(noon)));
        assert_eq!(local_of_instant("+02", noon), Some(Ok(noon - 2 * hour)), "as POSIX has it");
        assert_eq!(local_of_instant("Mars/Phobos", noon), None);
    }
}
