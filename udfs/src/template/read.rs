//! Dates and instants from texts by a pattern, as PostgreSQL's `DCH_from_char` and `do_to_timestamp` read them.

use super::pattern::{Part, Word, is_separator, is_space, time_parts};
use super::{refused, write};
use crate::Error;
use crate::postgres::days_of_civil;

const MICROS_PER_DAY: i64 = 86_400_000_000;

/// A pattern for reading, in parts.
pub(super) struct Reader {
    function: &'static str,
    parts: Vec<Part>,
}

/// What was found in a text.
#[derive(Debug, Default)]
struct Found {
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    hour: Option<i64>,
    minute: Option<i64>,
    second: Option<i64>,
    millis: Option<i64>,
    micros: Option<i64>,
    seconds_of_day: Option<i64>,
    is_afternoon: Option<i64>,
    is_before_christ: Option<i64>,
    has_twelve_hours: bool,
}

impl Reader {
    /// # Errors
    /// [`Error::PatternPart`] for a word that is not read here.
    pub fn new(function: &'static str, pattern: &str) -> Result<Self, Error> {
        let parts = time_parts(pattern);
        for part in &parts {
            if let Part::Word(word) = part
                && !is_read(word)
            {
                return Err(refused(function, word.name));
            }
        }
        Ok(Self { function, parts })
    }

    /// Microseconds since 1970.
    ///
    /// # Errors
    /// [`Error::TimeByPattern`] for a text that does not fit, [`Error::ValueRange`] for a date or time that there is not.
    pub fn instant(&self, text: &str) -> Result<i64, Error> {
        let found = Scan { reader: self, text, rest: text, extra: 0, is_exact: false, found: Found::default() }.run()?;
        let out_of_range = || Error::TimeRange { text: text.chars().take(60).collect() };
        // As in PostgreSQL, 0 is as if nothing was given.
        let or_first = |value: Option<i64>| value.filter(|value| *value != 0).unwrap_or(1);
        let days = days_of_civil(found.year(self.function)?, or_first(found.month), or_first(found.day)).ok_or_else(out_of_range)?;
        let time = found.time(self, text)?.ok_or_else(out_of_range)?;
        days.checked_mul(MICROS_PER_DAY).and_then(|micros| micros.checked_add(time)).ok_or_else(out_of_range)
    }

    fn wrong(&self, text: &str, part: &str, reason: String) -> Error {
        Error::TimeByPattern { part: part.to_owned(), text: text.chars().take(60).collect(), reason }
    }
}

/// Whether the word is one of those that are read here.
fn is_read(word: &Word) -> bool {
    let name = word.name.to_ascii_uppercase();
    !word.is_translated
        && matches!(
            name.as_str(),
            "YYYY"
                | "YYY"
                | "YY"
                | "Y"
                | "MM"
                | "MON"
                | "MONTH"
                | "DD"
                | "HH24"
                | "HH12"
                | "HH"
                | "MI"
                | "SS"
                | "SSSS"
                | "SSSSS"
                | "MS"
                | "US"
                | "AM"
                | "PM"
                | "A.M."
                | "P.M."
                | "AD"
                | "BC"
                | "A.D."
                | "B.C."
                | "FX"
                | "FF1"
                | "FF2"
                | "FF3"
                | "FF4"
                | "FF5"
                | "FF6"
        )
}

impl Found {
    fn year(&self, function: &'static str) -> Result<i64, Error> {
        match self.year {
            // Without a year PostgreSQL takes the one before 1, which nobody means.
            None | Some(0) => Err(refused(function, "a text without a year")),
            // There is no year 0 between 1 before Christ and 1.
            Some(year) if self.is_before_christ == Some(1) => Ok(1 - year),
            Some(year) if year < 0 => Ok(year + 1),
            Some(year) => Ok(year),
        }
    }

    /// Microseconds since midnight. `None`: there is no such time.
    fn time(&self, reader: &Reader, text: &str) -> Result<Option<i64>, Error> {
        let given = |value: Option<i64>, otherwise: i64| value.filter(|value| *value != 0).unwrap_or(otherwise);
        let of_day = self.seconds_of_day.unwrap_or(0);
        let mut hour = given(self.hour, of_day / 3_600);
        let (minute, second) = (given(self.minute, of_day / 60 % 60), given(self.second, of_day % 60));
        if self.has_twelve_hours {
            if !(1..=12).contains(&hour) {
                return Err(reader.wrong(text, "HH12", format!("hour \"{hour}\" is invalid for the 12-hour clock; HH24 counts to 23")));
            }
            let is_afternoon = self.is_afternoon == Some(1);
            hour = if is_afternoon { hour % 12 + 12 } else { hour % 12 };
        }
        let micros = self.millis.unwrap_or(0) * 1_000 + self.micros.unwrap_or(0);
        let is_time = (0..24).contains(&hour) && (0..60).contains(&minute) && (0..60).contains(&second) && (0..1_000_000).contains(&micros);
        Ok(is_time.then_some(((hour * 60 + minute) * 60 + second) * 1_000_000 + micros))
    }
}

/// A text as it is read from left to right.
struct Scan<'a> {
    reader: &'a Reader,
    text: &'a str,
    rest: &'a str,
    /// Blanks that were passed over beyond those of the pattern.
    extra: i64,
    /// From `FX` on blanks count.
    is_exact: bool,
    found: Found,
}

impl<'a> Scan<'a> {
    fn run(mut self) -> Result<Found, Error> {
        let reader = self.reader;
        for (position, part) in reader.parts.iter().enumerate() {
            if self.rest.is_empty() {
                break;
            }
            let is_mark = matches!(part, Part::Word(word) if word.name.eq_ignore_ascii_case("FX"));
            if !self.is_exact && !is_mark && (position == 0 || matches!(part, Part::Word(_))) {
                self.skip_spaces();
            }
            match part {
                _ if is_mark => self.is_exact = true,
                Part::Space(_) | Part::Separator(_) if self.is_exact => self.skip(),
                Part::Space(_) | Part::Separator(_) => {
                    self.extra -= 1;
                    if self.rest.starts_with(|next| is_space(next) || is_separator(next)) {
                        self.skip();
                        self.extra += 1;
                    }
                }
                Part::Character(_) if !self.is_exact && self.extra > 0 => self.extra -= 1,
                Part::Character(_) => self.skip(),
                Part::Word(word) => {
                    self.word(word, position)?;
                    if !self.is_exact {
                        self.extra = 0;
                        self.skip_spaces();
                    }
                }
            }
        }
        Ok(self.found)
    }

    fn skip(&mut self) {
        let mut characters = self.rest.chars();
        characters.next();
        self.rest = characters.as_str();
    }

    fn skip_spaces(&mut self) {
        let trimmed = self.rest.trim_start_matches(is_space);
        self.extra += (self.rest.len() - trimmed.len()) as i64;
        self.rest = trimmed;
    }

    fn word(&mut self, word: &Word, position: usize) -> Result<(), Error> {
        let name = word.name.to_ascii_uppercase();
        let name = name.as_str();
        match name {
            "AM" | "PM" => return self.one_of(word, &["am", "pm"]).and_then(|value| self.afternoon(word, value)),
            "A.M." | "P.M." => return self.one_of(word, &["a.m.", "p.m."]).and_then(|value| self.afternoon(word, value)),
            "AD" | "BC" | "A.D." | "B.C." => {
                let words: &[&str] = if name.len() == 2 { &["ad", "bc"] } else { &["a.d.", "b.c."] };
                let value = self.one_of(word, words)?;
                return self.set(word, value, |found| &mut found.is_before_christ);
            }
            "MONTH" => {
                let value = self.one_of(word, write::month_names())?;
                return self.set(word, value + 1, |found| &mut found.month);
            }
            "MON" => {
                let short: Vec<&str> = write::month_names().iter().map(|name| &name[..3]).collect();
                let value = self.one_of(word, &short)?;
                return self.set(word, value + 1, |found| &mut found.month);
            }
            _ => {}
        }
        let width = match name {
            "HH24" | "HH12" | "FF2" => 2,
            "MS" | "FF3" => 3,
            "FF1" => 1,
            "FF4" => 4,
            "FF5" => 5,
            "US" | "FF6" => 6,
            name => name.len(),
        };
        let (value, length) = self.number(word, position, width)?;
        // Of a fraction, 5 is 500 thousandths.
        let fraction = |width: usize| value.saturating_mul(10_i64.pow(u32::try_from(width.saturating_sub(length)).unwrap_or(0)));
        match name {
            "YYYY" => self.set(word, value, |found| &mut found.year),
            "YYY" | "YY" | "Y" => self.set(word, if length < 4 { near_2020(value) } else { value }, |found| &mut found.year),
            "MM" => self.set(word, value, |found| &mut found.month),
            "DD" => self.set(word, value, |found| &mut found.day),
            "HH24" => self.set(word, value, |found| &mut found.hour),
            "HH12" | "HH" => {
                self.found.has_twelve_hours = true;
                self.set(word, value, |found| &mut found.hour)
            }
            "MI" => self.set(word, value, |found| &mut found.minute),
            "SS" => self.set(word, value, |found| &mut found.second),
            "MS" => self.set(word, fraction(3), |found| &mut found.millis),
            "SSSS" | "SSSSS" => self.set(word, value, |found| &mut found.seconds_of_day),
            _ => self.set(word, fraction(6), |found| &mut found.micros),
        }?;
        if word.ordinal.is_some() {
            // Whatever it is.
            self.skip();
            self.skip();
        }
        Ok(())
    }

    fn afternoon(&mut self, word: &Word, value: i64) -> Result<(), Error> {
        self.found.has_twelve_hours = true;
        self.set(word, value, |found| &mut found.is_afternoon)
    }

    /// The number at the start, and how many bytes it takes with blanks before it.
    fn number(&mut self, word: &Word, position: usize, width: usize) -> Result<(i64, usize), Error> {
        let start = self.rest;
        let digits = start.trim_start_matches(is_space);
        let is_open = word.is_filled || self.is_next_apart(word, position);
        let limit = if is_open { digits.len() } else { digits.char_indices().nth(width).map_or(digits.len(), |(end, _)| end) };
        if !is_open && digits.len() < width {
            let reason = format!("the field needs {width} characters, but only {} remain", digits.len());
            return Err(self.reader.wrong(self.text, word.name, reason));
        }
        let length = number_length(&digits[..limit]);
        if length == 0 {
            return Err(self.reader.wrong(self.text, word.name, "its value must be an integer".to_owned()));
        }
        if !is_open && length < width {
            let reason = format!("the field needs {width} characters, but only {length} could be read");
            return Err(self.reader.wrong(self.text, word.name, reason));
        }
        let value = digits[..length].trim_start_matches('+').parse::<i32>();
        let value = value.map_err(|_| Error::TimeRange { text: self.text.chars().take(60).collect() })?;
        self.rest = &digits[length..];
        Ok((i64::from(value), start.len() - self.rest.len()))
    }

    /// Whether what follows in the pattern is no digit, so that a number goes on as long as its digits do.
    fn is_next_apart(&self, word: &Word, position: usize) -> bool {
        if word.ordinal.is_some() {
            return true;
        }
        match self.reader.parts.get(position + 1) {
            None => true,
            Some(Part::Word(next)) => !begins_with_digit(next),
            Some(Part::Character(next)) => !next.is_ascii_digit(),
            Some(Part::Space(_) | Part::Separator(_)) => true,
        }
    }

    /// The position of the word, in any case, that the text goes on with.
    fn one_of(&mut self, word: &Word, words: &[&str]) -> Result<i64, Error> {
        let found = words.iter().position(|word| self.rest.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word)));
        let Some(found) = found else {
            let reason = "the given value did not match any of the allowed values for this field".to_owned();
            return Err(self.reader.wrong(self.text, word.name, reason));
        };
        self.rest = &self.rest[words[found].len()..];
        Ok(found as i64)
    }

    fn set(&mut self, word: &Word, value: i64, field: impl Fn(&mut Found) -> &mut Option<i64>) -> Result<(), Error> {
        let field = field(&mut self.found);
        if field.is_some_and(|known| known != 0 && known != value) {
            return Err(self.reader.wrong(self.text, word.name, "it is given twice, with two values".to_owned()));
        }
        *field = Some(value);
        Ok(())
    }
}

/// Words that a number stands for.
fn begins_with_digit(word: &Word) -> bool {
    !matches!(
        word.name.to_ascii_uppercase().as_str(),
        "MON" | "MONTH" | "AM" | "PM" | "A.M." | "P.M." | "AD" | "BC" | "A.D." | "B.C." | "FX"
    )
}

/// The bytes of a sign and digits at the start of a text.
fn number_length(text: &str) -> usize {
    let sign = usize::from(text.starts_with(['+', '-']));
    let digits = text[sign..].bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 { 0 } else { sign + digits }
}

/// The year nearest to 2020 that ends so.
fn near_2020(year: i64) -> i64 {
    match year {
        ..70 => year + 2_000,
        70..100 => year + 1_900,
        100..520 => year + 2_000,
        520..1_000 => year + 1_000,
        _ => year,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, pattern: &str) -> Result<i64, Error> {
        Reader::new("to_timestamp", pattern)?.instant(text)
    }

    /// Checked against PostgreSQL 15.
    #[test]
    fn texts_are_read_as_in_postgres() {
        const NOON: i64 = 1_709_208_000_000_000;
        for (text, pattern) in [
            ("2024-02-29 12:00:00", "YYYY-MM-DD HH24:MI:SS"),
            ("20240229120000", "YYYYMMDDHH24MISS"),
            ("29 Feb 2024 12:00 PM", "DD Mon YYYY HH12:MI AM"),
            ("29. FEBRUARY 24, 12", "DD. month YY, HH24"),
            ("  2024/2/29   12", "YYYY-MM-DD HH"),
            ("2024-02-29T12", "YYYY-MM-DD\"T\"HH24"),
            ("Feb 29th 2024 12pm", "Mon DDth YYYY HHam"),
        ] {
            let noon = if pattern.ends_with("HH") { NOON - 43_200_000_000 } else { NOON };
            assert_eq!(read(text, pattern), Ok(noon), "{text} {pattern}");
        }
        assert_eq!(read("2024-02-29 12:00:00.5", "YYYY-MM-DD HH24:MI:SS.MS"), Ok(NOON + 500_000));
        assert_eq!(read("2024-02-29 12:00:00.000005", "YYYY-MM-DD HH24:MI:SS.US"), Ok(NOON + 5));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (text, pattern) in [("2024-02-30", "YYYY-MM-DD"), ("2024-13-01", "YYYY-MM-DD"), ("2024-01-01 25", "YYYY-MM-DD HH24")] {
            assert!(matches!(read(text, pattern), Err(Error::TimeRange { .. })), "{text}");
        }
        for (text, pattern) in
            [("x", "YYYY"), ("2024 Fex", "YYYY Mon"), ("2024 13", "YYYY HH12"), ("20241", "YYYYMMDD"), ("2024 2025", "YYYY YYYY")]
        {
            assert!(matches!(read(text, pattern), Err(Error::TimeByPattern { .. })), "{text}");
        }
        for (text, pattern) in [("2024-060", "YYYY-DDD"), ("2024 UTC", "YYYY TZ"), ("12", "HH24"), ("2024W01", "IYYY\"W\"IW")] {
            assert!(matches!(read(text, pattern), Err(Error::PatternPart { .. })), "{text}");
        }
    }
}
