//! Numbers of JSON, compared by all of their digits: `1e400` and `9007199254740993` are beyond what double precision keeps.

use std::borrow::Cow;
use std::cmp::Ordering;

/// A number as its digits: `0.0120` is 12 with the first of them two places behind the point.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Number<'a> {
    is_negative: bool,
    /// The power of ten of the first digit; that of 0 says nothing.
    power: i64,
    /// Without zeros at the ends; none of 0.
    digits: Cow<'a, str>,
}

impl<'a> Number<'a> {
    /// `text`: a number of a well-formed document.
    pub fn of(text: &'a str) -> Self {
        let (is_negative, text) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all: Cow<'a, str> = if fraction.is_empty() { whole.into() } else { format!("{whole}{fraction}").into() };
        let Some(leading) = all.find(|digit| digit != '0') else { return Self { is_negative: false, power: 0, digits: "".into() } };
        // An exponent of more digits than that has no number of anybody's behind it.
        let limit = || if exponent.starts_with('-') { -(i64::MAX >> 1) } else { i64::MAX >> 1 };
        let power =
            exponent.parse().unwrap_or_else(|_| limit()).clamp(-(i64::MAX >> 1), i64::MAX >> 1) + whole.len() as i64 - 1 - leading as i64;
        let digits = match all {
            Cow::Borrowed(all) => all[leading..].trim_end_matches('0').into(),
            Cow::Owned(all) => all[leading..].trim_end_matches('0').to_owned().into(),
        };
        Self { is_negative, power, digits }
    }

    /// Bytes that are in the order of the numbers, and end by themselves.
    pub fn write_order(&self, out: &mut Vec<u8>) {
        if self.is_zero() {
            return out.push(1);
        }
        out.push(if self.is_negative { 0 } else { 2 });
        let start = out.len();
        out.extend((self.power ^ i64::MIN).to_be_bytes());
        out.extend_from_slice(self.digits.as_bytes());
        out.push(0);
        if self.is_negative {
            out[start..].iter_mut().for_each(|byte| *byte = !*byte);
        }
    }

    fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }
}

impl Ord for Number<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let sign = |number: &Self| {
            if number.is_zero() {
                0
            } else if number.is_negative {
                -1
            } else {
                1
            }
        };
        // Digits are compared as a fraction's are: those of the shorter one go on with zeros.
        let magnitude = || self.power.cmp(&other.power).then_with(|| self.digits.cmp(&other.digits));
        sign(self).cmp(&sign(other)).then_with(|| match sign(self) {
            0 => Ordering::Equal,
            1 => magnitude(),
            _ => magnitude().reverse(),
        })
    }
}

impl PartialOrd for Number<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_digits_count() {
        let texts = [
            "-1e400",
            "-10",
            "-9.5",
            "-0.1",
            "0",
            "1e-400",
            "0.1",
            "0.10000000000000000001",
            "1",
            "9007199254740992",
            "9007199254740993",
            "1e400",
            "1.5e400",
        ];
        for (left, small) in texts.iter().enumerate() {
            for (right, large) in texts.iter().enumerate() {
                assert_eq!(Number::of(small).cmp(&Number::of(large)), left.cmp(&right), "{small} and {large}");
            }
        }
        for (one, other) in [("1.0", "1"), ("0.1", "0.10"), ("-0", "0.0e5"), ("100", "1e2"), ("1e400", "10e399"), ("0.0120", "12e-3")] {
            assert_eq!(Number::of(one), Number::of(other), "{one} and {other}");
        }
    }
}
