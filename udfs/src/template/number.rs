//! Numbers by a pattern, as PostgreSQL's `NUM_processor` writes them.

use super::pattern::{Part, number_parts};
use super::{ordinal, refused};
use crate::Error;

/// Digits that a double keeps for sure.
const DOUBLE_DIGITS: usize = 15;
/// The same of a `real`.
const REAL_DIGITS: usize = 6;

/// A number with all its digits, or one in binary.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Number {
    /// As it is written: `-12.50`.
    Exact(String),
    Double(f64),
    Real(f32),
}

/// Where the sign stands that `S` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Anchor {
    Before,
    Behind,
}

/// What the words of a pattern say together.
#[derive(Debug, Default)]
struct Description {
    /// Digits before the point, and behind it.
    before: usize,
    behind: usize,
    has_point: bool,
    is_filled: bool,
    /// The first `0` before the point, counted from 0.
    zero_start: Option<usize>,
    /// Digits up to the last `0`.
    zero_end: usize,
    anchor: Option<Anchor>,
    /// Digits before `S`.
    before_anchor: usize,
    has_minus: bool,
    has_plus: bool,
    has_brackets: bool,
    has_ordinal: bool,
}

impl Description {
    /// # Errors
    /// [`Error::Pattern`] for words that contradict each other, [`Error::PatternPart`] for one that is not done here.
    fn of(parts: &[Part]) -> Result<Self, Error> {
        let mut found = Self::default();
        let wrong = |reason: &'static str| Err(Error::Pattern { function: "to_char", reason });
        for part in parts {
            let Part::Word(word) = part else { continue };
            let has_others = found.has_minus || found.has_plus || found.has_brackets;
            match word.name.to_ascii_uppercase().as_str() {
                "9" | "0" if found.has_brackets => return wrong("digits must stand before PR"),
                "9" if found.has_point => found.behind += 1,
                "9" => found.before += 1,
                "0" => found.zero(),
                "." | "D" if found.has_point => return wrong("it has two decimal points"),
                "." | "D" => found.has_point = true,
                "FM" => found.is_filled = true,
                "S" if found.anchor.is_some() => return wrong("it has S twice"),
                "S" if has_others => return wrong("S does not go with PL, MI, SG and PR"),
                "S" if found.has_point => found.anchor = Some(Anchor::Behind),
                "S" => (found.anchor, found.before_anchor) = (Some(Anchor::Before), found.before),
                "MI" | "PL" | "SG" if found.anchor.is_some() => return wrong("S does not go with PL, MI, SG and PR"),
                "MI" => found.has_minus = true,
                "PL" => found.has_plus = true,
                "SG" => (found.has_minus, found.has_plus) = (true, true),
                "PR" if found.anchor.is_some() || found.has_plus || found.has_minus => {
                    return wrong("PR does not go with S, PL, MI and SG");
                }
                "PR" => found.has_brackets = true,
                "TH" => found.has_ordinal = true,
                "," | "G" => {}
                _ => return Err(refused("to_char of a number", word.name)),
            }
        }
        Ok(found)
    }

    fn zero(&mut self) {
        if self.has_point {
            self.behind += 1;
        } else {
            self.zero_start.get_or_insert(self.before);
            self.before += 1;
        }
        self.zero_end = self.before + self.behind;
    }

    fn has_sign_of_its_own(&self) -> bool {
        self.has_minus || self.has_plus
    }
}

/// What `to_char` gives. `None` for an empty pattern, as in PostgreSQL.
///
/// # Errors
/// [`Error::Pattern`], [`Error::PatternPart`].
pub(super) fn write_number(number: &Number, pattern: &str) -> Result<Option<String>, Error> {
    if pattern.is_empty() {
        return Ok(None);
    }
    let parts = number_parts(pattern);
    let mut description = Description::of(&parts)?;
    if description.has_ordinal && description.before + description.behind == 0 {
        return Err(Error::Pattern { function: "to_char", reason: "TH stands behind digits" });
    }
    let (is_negative, digits) = digits(number, &mut description)?;
    let whole = digits.find('.').unwrap_or(digits.len());
    let blanks = description.before.saturating_sub(whole);
    // More digits than places for them.
    let digits = match whole > description.before {
        true => format!("{}.{}", "#".repeat(description.before), "#".repeat(description.behind)),
        false => digits,
    };
    let mut writer = Writer::new(description, is_negative, digits, blanks);
    for part in &parts {
        match part {
            Part::Word(word) => writer.word(word.name),
            Part::Space(character) | Part::Separator(character) | Part::Character(character) => writer.out.push(*character),
        }
    }
    let end = writer.end.unwrap_or(writer.out.len());
    writer.out.truncate(end);
    Ok(Some(writer.out))
}

/// The same of a number that has all its digits: `-12.50`.
///
/// # Errors
/// [`Error::Pattern`], [`Error::PatternPart`].
pub fn write_exact(number: &str, pattern: &str) -> Result<Option<String>, Error> {
    write_number(&Number::Exact(number.to_owned()), pattern)
}

/// Whether the number is below zero, and its digits with as many behind the point as the pattern has.
fn digits(number: &Number, description: &mut Description) -> Result<(bool, String), Error> {
    let text = match number {
        Number::Exact(text) => rounded(text, description.behind),
        Number::Double(number) => of_binary(*number, format!("{:.0}", number.abs()).len(), DOUBLE_DIGITS, description)?,
        Number::Real(number) => of_binary(f64::from(*number), format!("{:.0}", number.abs()).len(), REAL_DIGITS, description)?,
    };
    Ok(match text.strip_prefix('-') {
        Some(digits) => (true, digits.to_owned()),
        None => (false, text),
    })
}

fn of_binary(number: f64, whole: usize, kept: usize, description: &Description) -> Result<String, Error> {
    if !number.is_finite() {
        return Err(refused("to_char of a number that is not finite", "9"));
    }
    if description.behind > kept.saturating_sub(whole) {
        let reason = "it has more digits than a binary number keeps; cast the number to numeric";
        return Err(Error::Pattern { function: "to_char", reason });
    }
    Ok(format!("{number:.*}", description.behind))
}

/// A decimal number with so many digits behind its point; half of the last one rounds away from zero. A zero has no sign.
fn rounded(text: &str, behind: usize) -> String {
    let (sign, digits) = text.strip_prefix('-').map_or(("", text), |digits| ("-", digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let kept = &fraction[..fraction.len().min(behind)];
    let mut all = format!("{whole}{kept}{}", "0".repeat(behind - kept.len())).into_bytes();
    if fraction.as_bytes().get(behind).is_some_and(|digit| *digit >= b'5') {
        let carried = all.iter_mut().rev().all(|digit| {
            *digit = if *digit == b'9' { b'0' } else { *digit + 1 };
            *digit == b'0'
        });
        if carried {
            all.insert(0, b'1');
        }
    }
    let sign = if all.iter().all(|digit| *digit == b'0') { "" } else { sign };
    let all = String::from_utf8_lossy(&all);
    let (whole, fraction) = all.split_at(all.len() - behind);
    if behind == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

/// Writes a number from left to right.
struct Writer {
    description: Description,
    is_negative: bool,
    /// Of the number, with its point.
    digits: Vec<u8>,
    /// The next one of them.
    next: usize,
    /// Places of the pattern that come before the number's digits.
    blanks: usize,
    /// Places of the pattern that were written.
    places: usize,
    /// One more than the places up to the end, with that of the sign.
    num_places: usize,
    /// The last digit, or the point, that FM leaves.
    last: Option<usize>,
    is_sign_written: bool,
    /// Whether the last place was a digit, behind which a comma is one.
    is_in_number: bool,
    out: String,
    /// Where the text ends whatever comes behind: at a point in the pattern that the number has not.
    end: Option<usize>,
}

impl Writer {
    fn new(mut description: Description, is_negative: bool, digits: String, blanks: usize) -> Self {
        let digits = digits.into_bytes();
        let is_sign_written = if description.has_sign_of_its_own() {
            description.has_minus
        } else {
            if !is_negative && description.is_filled {
                description.has_brackets = false;
            }
            if description.anchor == Some(Anchor::Before) && description.before == description.before_anchor {
                description.anchor = Some(Anchor::Behind);
            }
            !is_negative && description.is_filled && description.anchor.is_none()
        };
        let has_room_for_sign = !is_sign_written && blanks == 0;
        let num_places =
            description.before + description.behind + usize::from(has_room_for_sign || blanks > 0) + usize::from(description.has_point);
        let mut last = None;
        if description.is_filled && description.has_point {
            last = last_relevant(&digits);
            if let (Some(found), true) = (last, description.zero_end > blanks) {
                last = Some(found.max((digits.len() - 1).min(description.zero_end - blanks)));
            }
        }
        Self {
            description,
            is_negative,
            digits,
            next: 0,
            blanks,
            places: 0,
            num_places,
            last,
            is_sign_written,
            is_in_number: false,
            out: String::new(),
            end: None,
        }
    }

    fn word(&mut self, name: &str) {
        let is_filled = self.description.is_filled;
        let blank = |out: &mut String| {
            if !is_filled {
                out.push(' ')
            }
        };
        match name.to_ascii_uppercase().as_str() {
            "9" | "." | "D" => self.place(false),
            "0" => self.place(true),
            "," | "G" if self.is_in_number => self.out.push(','),
            "," | "G" => blank(&mut self.out),
            "MI" if self.is_negative => self.out.push('-'),
            "PL" if !self.is_negative => self.out.push('+'),
            "MI" | "PL" => blank(&mut self.out),
            "SG" => self.out.push(if self.is_negative { '-' } else { '+' }),
            "TH" if self.digits.first() == Some(&b'#') || self.is_negative || self.description.has_point => {}
            "TH" => {
                let ordinal = ordinal(&String::from_utf8_lossy(&self.digits));
                self.out.push_str(&if name == "th" { ordinal.to_lowercase() } else { ordinal.to_owned() });
            }
            _ => {}
        }
    }

    /// Whether the next digit is the 0 before the point of a number below 1, in whose place a blank stands.
    fn is_before_point(&self) -> bool {
        self.description.zero_start.is_none() && self.next == 0 && self.digits.first() == Some(&b'0') && self.description.behind != 0
    }

    fn ends_at_point(&self) -> bool {
        self.last.is_some_and(|last| self.digits[last] == b'.')
    }

    /// A place for a digit or for the point.
    fn place(&mut self, is_zero: bool) {
        self.is_in_number = false;
        let from_zeros = self.description.zero_start.is_some_and(|start| start <= self.places);
        self.sign();
        if self.places < self.blanks && !from_zeros {
            if !self.description.is_filled {
                self.out.push(' ');
            }
        } else if self.places < self.blanks {
            self.out.push('0');
            self.is_in_number = true;
        } else {
            self.digit(is_zero);
        }
        self.close();
        self.places += 1;
    }

    fn sign(&mut self) {
        let is_first_zero = self.description.zero_start == Some(self.places);
        let is_at_number = self.places >= self.blanks || is_first_zero;
        if self.is_sign_written || !is_at_number || (self.is_before_point() && !self.ends_at_point()) {
            return;
        }
        match self.description.anchor {
            Some(Anchor::Before) => self.out.push(if self.is_negative { '-' } else { '+' }),
            Some(Anchor::Behind) => return,
            None if self.description.has_brackets => self.out.push(if self.is_negative { '<' } else { ' ' }),
            None if self.is_negative => self.out.push('-'),
            None if !self.description.is_filled => self.out.push(' '),
            None => {}
        }
        self.is_sign_written = true;
    }

    fn digit(&mut self, is_zero: bool) {
        match self.digits.get(self.next) {
            Some(b'.') => {
                if !self.ends_at_point() || self.description.is_filled {
                    self.out.push('.');
                }
            }
            Some(_) if self.last.is_some_and(|last| self.next > last) && !is_zero => {}
            Some(_) if self.is_before_point() => {
                if !self.description.is_filled {
                    self.out.push(' ');
                } else if self.ends_at_point() {
                    self.out.push('0');
                }
            }
            Some(digit) => {
                self.out.push(char::from(*digit));
                self.is_in_number = true;
            }
            // PostgreSQL ends its text there.
            None => {
                self.end.get_or_insert(self.out.len());
                return;
            }
        }
        self.next += 1;
    }

    /// What stands behind the last place.
    fn close(&mut self) {
        let end = match self.last {
            // PostgreSQL writes nothing there, not even a sign that the pattern has behind.
            Some(last) if last == self.next => self.places,
            _ => self.num_places,
        };
        if self.places + 2 != end {
            return;
        }
        if self.is_sign_written && self.description.has_brackets {
            self.out.push(if self.is_negative { '>' } else { ' ' });
        } else if self.description.anchor == Some(Anchor::Behind) {
            self.out.push(if self.is_negative { '-' } else { '+' });
        }
    }
}

/// The last digit behind the point that is no 0, or the point. `None` without one.
fn last_relevant(digits: &[u8]) -> Option<usize> {
    let point = digits.iter().position(|digit| *digit == b'.')?;
    digits.iter().rposition(|digit| *digit != b'0' && *digit != b'.').filter(|last| *last > point).or(Some(point))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(number: &str, pattern: &str) -> String {
        write_number(&Number::Exact(number.to_owned()), pattern).expect(pattern).expect("a pattern")
    }

    /// From PostgreSQL's documentation; more is checked against PostgreSQL 15.
    #[test]
    fn numbers_are_written_as_in_postgres() {
        for (number, pattern, expected) in [
            ("-0.1", "99.99", "  -.10"),
            ("-0.1", "FM9.99", "-.1"),
            ("-0.1", "FM90.99", "-0.1"),
            ("0.1", "0.9", " 0.1"),
            ("12", "9990999.9", "    0012.0"),
            ("12", "FM9990999.9", "0012."),
            ("485", "999", " 485"),
            ("-485", "999", "-485"),
            ("485", "9 9 9", " 4 8 5"),
            ("1485", "9,999", " 1,485"),
            ("1485", "9G999", " 1,485"),
            ("148.5", "999.999", " 148.500"),
            ("148.5", "FM999.999", "148.5"),
            ("148.5", "FM999.990", "148.500"),
            ("148.5", "999D999", " 148.500"),
            ("3148.5", "9G999D999", " 3,148.500"),
            ("-485", "999S", "485-"),
            ("-485", "999MI", "485-"),
            ("485", "999MI", "485 "),
            ("485", "FM999MI", "485"),
            ("485", "PL999", "+ 485"),
            ("485", "SG999", "+485"),
            ("-485", "SG999", "-485"),
            ("-485", "9SG99", "4-85"),
            ("-485", "999PR", "<485>"),
            ("482", "999th", " 482nd"),
            ("485", "\"Good number:\"999", "Good number: 485"),
            ("485.8", "\"Pre:\"999\" Post:\" .999", "Pre: 485 Post: .800"),
            ("1234", "99", " ##"),
            ("0.5", ".99", " .##"),
            ("0.125", "0.99", " 0.13"),
            ("-0.4", "9", " 0"),
        ] {
            assert_eq!(exact(number, pattern), expected, "{number} {pattern}");
        }
        assert_eq!(
            write_number(&Number::Double(0.125), "0.99").expect("a pattern").as_deref(),
            Some(" 0.12"),
            "binary numbers round to even"
        );
    }

    #[test]
    fn what_is_not_done_is_refused() {
        for pattern in ["RN", "9.99EEEE", "L99", "99V99", "B9", "SP"] {
            assert!(matches!(write_number(&Number::Exact("1".to_owned()), pattern), Err(Error::PatternPart { .. })), "{pattern}");
        }
        for pattern in ["9.9.9", "S9S", "SMI9", "PR9", "SPL9"] {
            let refused = write_number(&Number::Exact("1".to_owned()), pattern);
            assert!(matches!(refused, Err(Error::Pattern { .. } | Error::PatternPart { .. })), "{pattern}");
        }
        assert!(write_number(&Number::Double(f64::NAN), "9").is_err());
        assert!(write_number(&Number::Double(0.5), "9.9999999999999999").is_err());
    }
}
