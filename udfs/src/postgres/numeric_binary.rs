//! PostgreSQL's binary form of `numeric`: four 16-bit words (number of digits, weight, sign, display scale), then digits in base 10000.
//!
//! `weight` is the power of 10000 of the first digit. See `numeric_send` in PostgreSQL's `src/backend/utils/adt/numeric.c`.

const SIGN_POSITIVE: u16 = 0;
const SIGN_NEGATIVE: u16 = 0x4000;
const SIGN_NAN: u16 = 0xc000;
const SIGN_INFINITY: u16 = 0xd000;
const SIGN_NEGATIVE_INFINITY: u16 = 0xf000;

/// Digits in base 10000 of the longest decimal: 76 decimal digits and the zeros of the smallest scale, -128.
const GROUPS_MAX: usize = 64;
/// The longest numbers that are read, in decimal digits before the point and behind it; longer ones fit no decimal.
const DIGITS_MAX: i32 = 76;

/// What a binary form holds.
#[derive(Debug, PartialEq)]
pub enum Number {
    /// `-12.340`
    Decimal(String),
    /// NaN and the infinities, which decimals have not.
    Float(f64),
    /// More digits than any decimal has.
    TooLarge,
}

/// Writes `value * 10^-scale`.
pub fn write(value: i128, scale: i8, out: &mut Vec<u8>) {
    let magnitude = value.unsigned_abs();
    let Ok(places) = u32::try_from(scale) else {
        // Arrow's negative scales: zeros before the point.
        let zeros = "0".repeat(usize::from(scale.unsigned_abs()));
        return write_text(format!("{value}{zeros}").as_bytes(), out);
    };
    let mut groups = Groups::default();
    // 10^38 is the largest power of ten that fits, and the largest scale.
    let unit = 10_u128.pow(places.min(38));
    groups.push_whole(magnitude / unit);
    let mut fraction = magnitude % unit;
    let mut unit = unit;
    let mut left = places;
    while left >= 4 {
        unit /= 10_000;
        groups.push((fraction / unit) as u16);
        fraction %= unit;
        left -= 4;
    }
    if left > 0 {
        groups.push(fraction as u16 * 10_u16.pow(4 - left));
    }
    groups.write(value < 0, places as u16, out);
}

/// The same of a number in text form, such as `-12.340`: a sign, digits and a point.
pub fn write_text(text: &[u8], out: &mut Vec<u8>) {
    let (is_negative, digits) = text.strip_prefix(b"-").map_or((false, text), |digits| (true, digits));
    let point = digits.iter().position(|byte| *byte == b'.').unwrap_or(digits.len());
    let (whole, fraction) = (&digits[..point], digits.get(point + 1..).unwrap_or_default());
    let value = |digits: &[u8]| digits.iter().fold(0, |value, digit| value * 10 + u16::from(digit - b'0'));
    let mut groups = Groups::default();
    let (first, rest) = whole.split_at(whole.len() % 4);
    if !first.is_empty() {
        groups.push(value(first));
    }
    rest.chunks_exact(4).for_each(|four| groups.push(value(four)));
    groups.end_whole();
    for four in fraction.chunks(4) {
        groups.push(value(four) * 10_u16.pow(4 - four.len() as u32));
    }
    groups.write(is_negative, fraction.len() as u16, out);
}

/// Digits in base 10000, from the first to the last.
struct Groups {
    digits: [u16; GROUPS_MAX],
    count: usize,
    num_whole: usize,
}

impl Default for Groups {
    fn default() -> Self {
        Self { digits: [0; GROUPS_MAX], count: 0, num_whole: 0 }
    }
}

impl Groups {
    fn push(&mut self, digit: u16) {
        self.digits[self.count] = digit;
        self.count += 1;
    }

    /// The digits before the point.
    fn push_whole(&mut self, value: u128) {
        let mut rest = value;
        while rest > 0 {
            // Dividing 64 bits is much faster, and most numbers fit.
            if let Ok(mut short) = u64::try_from(rest) {
                while short > 0 {
                    self.push((short % 10_000) as u16);
                    short /= 10_000;
                }
                break;
            }
            self.push((rest % 10_000) as u16);
            rest /= 10_000;
        }
        self.digits[..self.count].reverse();
        self.end_whole();
    }

    fn end_whole(&mut self) {
        self.num_whole = self.count;
    }

    /// Zeros at both ends are left out.
    fn write(&self, is_negative: bool, scale: u16, out: &mut Vec<u8>) {
        let digits = &self.digits[..self.count];
        let leading = digits.iter().take_while(|digit| **digit == 0).count();
        let trailing = digits[leading..].iter().rev().take_while(|digit| **digit == 0).count();
        let kept = &digits[leading..digits.len() - trailing];
        let weight = if kept.is_empty() { 0 } else { self.num_whole as i16 - 1 - leading as i16 };
        let sign = if is_negative && !kept.is_empty() { SIGN_NEGATIVE } else { SIGN_POSITIVE };
        out.extend_from_slice(&(kept.len() as u16).to_be_bytes());
        out.extend_from_slice(&weight.to_be_bytes());
        out.extend_from_slice(&sign.to_be_bytes());
        out.extend_from_slice(&scale.to_be_bytes());
        for digit in kept {
            out.extend_from_slice(&digit.to_be_bytes());
        }
    }
}

/// The number of a binary form. `None` if it is damaged.
#[must_use]
pub fn read(bytes: &[u8]) -> Option<Number> {
    let (words, rest) = bytes.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let words = words.iter().map(|word| u16::from_be_bytes(*word)).collect::<Vec<_>>();
    let [count, weight, sign, scale, groups @ ..] = words.as_slice() else { return None };
    if groups.len() != usize::from(*count) || groups.iter().any(|group| *group >= 10_000) || *scale > 0x3fff {
        return None;
    }
    let is_negative = match *sign {
        SIGN_POSITIVE => false,
        SIGN_NEGATIVE => true,
        SIGN_NAN => return Some(Number::Float(f64::NAN)),
        SIGN_INFINITY => return Some(Number::Float(f64::INFINITY)),
        SIGN_NEGATIVE_INFINITY => return Some(Number::Float(f64::NEG_INFINITY)),
        _ => return None,
    };
    let (weight, scale) = (i32::from(weight.cast_signed()), i32::from(*scale));
    // A zero has no digits, whatever its weight; the size of a number follows from words that no length bounds.
    let weight = if groups.is_empty() { -1 } else { weight };
    if weight >= DIGITS_MAX / 4 || (!groups.is_empty() && weight < -(DIGITS_MAX / 4)) || scale > DIGITS_MAX {
        return Some(Number::TooLarge);
    }
    Some(Number::Decimal(decimal(groups, weight, scale, is_negative)))
}

fn decimal(groups: &[u16], weight: i32, scale: i32, is_negative: bool) -> String {
    let group = |power: i32| usize::try_from(weight - power).ok().and_then(|index| groups.get(index)).copied().unwrap_or(0);
    let whole = (0..=weight).rev().map(|power| format!("{:04}", group(power))).collect::<String>();
    let num_fraction_groups = (scale + 3) / 4;
    let mut fraction = (1..=num_fraction_groups).map(|power| format!("{:04}", group(-power))).collect::<String>();
    // At most as long as it is: four digits a group, all ASCII.
    fraction.truncate(usize::try_from(scale).unwrap_or(0));
    let whole = whole.trim_start_matches('0');
    let sign = if is_negative { "-" } else { "" };
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{}{point}{fraction}", if whole.is_empty() { "0" } else { whole })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binary(value: i128, scale: i8) -> Vec<u8> {
        let mut out = Vec::new();
        write(value, scale, &mut out);
        out
    }

    #[test]
    fn the_binary_form_is_that_of_postgres() {
        // From PostgreSQL 15: SELECT encode(numeric_send('-12345.678'), 'hex').
        assert_eq!(binary(-12_345_678, 3), [0, 3, 0, 1, 0x40, 0, 0, 3, 0, 1, 0x09, 0x29, 0x1a, 0x7c]);
        assert_eq!(binary(0, 2), [0, 0, 0, 0, 0, 0, 0, 2]);
        assert_eq!(binary(5, -3), binary(5_000, 0));
    }

    #[test]
    fn a_decimal_reads_back_from_its_binary_form() {
        for (value, scale, text) in [
            (0, 0, "0"),
            (1, 0, "1"),
            (-1, 0, "-1"),
            (9_999, 0, "9999"),
            (10_000, 0, "10000"),
            (100_000_000, 0, "100000000"),
            (1, 1, "0.1"),
            (-1, 4, "-0.0001"),
            (1, 5, "0.00001"),
            (12_345_678, 3, "12345.678"),
            (100_000_001, 4, "10000.0001"),
            (150, 2, "1.50"),
            (99_999_999_999_999_999_999_999_999_999_999_999_999, 0, "99999999999999999999999999999999999999"),
            (-12_345_678_901_234_567_890_123_456_789_012_345_678, 38, "-0.12345678901234567890123456789012345678"),
            (i128::MAX, 17, "1701411834604692317316.87303715884105727"),
        ] {
            assert_eq!(read(&binary(value, scale)), Some(Number::Decimal(text.to_owned())));
            let mut from_text = Vec::new();
            write_text(text.as_bytes(), &mut from_text);
            assert_eq!(from_text, binary(value, scale), "{text}");
        }
    }

    #[test]
    fn numbers_that_decimals_have_not_are_told() {
        assert!(matches!(read(&[0, 0, 0, 0, 0xc0, 0, 0, 0]), Some(Number::Float(nan)) if nan.is_nan()));
        assert_eq!(read(&[0, 0, 0, 0, 0xf0, 0, 0, 0]), Some(Number::Float(f64::NEG_INFINITY)));
        assert_eq!(read(&[0, 1, 0x7f, 0xff, 0, 0, 0, 0, 0, 1]), Some(Number::TooLarge));
        assert_eq!(read(&[0, 1, 0x80, 0, 0, 0, 0x3f, 0xff, 0, 1]), Some(Number::TooLarge));
        assert_eq!(read(&[0, 0, 0x7f, 0xff, 0, 0, 0, 2]), Some(Number::Decimal("0.00".to_owned())));
    }

    #[test]
    fn damaged_bytes_are_refused() {
        let good = binary(12_345_678, 3);
        for length in 0..good.len() {
            assert_eq!(read(&good[..length]), None, "{length} bytes");
        }
        for damaged in [[0, 1, 0, 0, 0, 0, 0, 0, 0x27, 0x10], [0, 1, 0, 0, 0x12, 0, 0, 0, 0, 1], [0, 2, 0, 0, 0, 0, 0, 0, 0, 1]] {
            assert_eq!(read(&damaged), None);
        }
    }
}
