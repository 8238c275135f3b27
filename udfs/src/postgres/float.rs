//! Floating-point numbers as PostgreSQL writes them: the shortest digits that read back as the same number, with an exponent where it is large.

use std::fmt::{self, LowerExp, Write};
use std::str::FromStr;

/// A number has an exponent from this power of ten on: digits that a double keeps in any case.
const EXPONENT_FROM_F64: i32 = 15;
const EXPONENT_FROM_F32: i32 = 6;
/// And below this one.
const FIXED_FROM: i32 = -4;

/// Digits that tell any two doubles apart.
const DIGITS_MAX: usize = 17;

pub(super) fn write_f64(value: f64, out: &mut Vec<u8>) {
    write_float(value, EXPONENT_FROM_F64, out);
}

pub(super) fn write_f32(value: f32, out: &mut Vec<u8>) {
    write_float(value, EXPONENT_FROM_F32, out);
}

fn write_float<F: Float>(value: F, exponent_from: i32, out: &mut Vec<u8>) {
    if value.is_negative() {
        out.push(b'-');
    }
    match value.class() {
        Class::NotANumber => out.extend_from_slice(b"NaN"),
        Class::Infinite => out.extend_from_slice(b"Infinity"),
        Class::Zero => out.push(b'0'),
        Class::Finite => Digits::shortest(value.magnitude()).write(exponent_from, out),
    }
}

enum Class {
    NotANumber,
    Infinite,
    Zero,
    Finite,
}

trait Float: Copy + LowerExp + FromStr + PartialEq {
    fn class(self) -> Class;
    /// Of NaN: no.
    fn is_negative(self) -> bool;
    fn magnitude(self) -> Self;
    /// Mantissa and power of two of a number above 0, and whether the next smaller one is nearer than the next larger one.
    fn parts(self) -> (u64, i32, bool);
}

macro_rules! float {
    ($type:ty, $mantissa_bits:expr, $bias:expr) => {
        impl Float for $type {
            fn class(self) -> Class {
                if self.is_nan() {
                    Class::NotANumber
                } else if self.is_infinite() {
                    Class::Infinite
                } else if self == 0.0 {
                    Class::Zero
                } else {
                    Class::Finite
                }
            }

            fn is_negative(self) -> bool {
                self.is_sign_negative() && !self.is_nan()
            }

            fn magnitude(self) -> Self {
                self.abs()
            }

            fn parts(self) -> (u64, i32, bool) {
                let bits = u64::from(self.to_bits());
                let fraction = bits & ((1 << $mantissa_bits) - 1);
                let exponent = (bits >> $mantissa_bits) as i32;
                if exponent == 0 {
                    return (fraction, 1 - $bias - $mantissa_bits, false);
                }
                (fraction | (1 << $mantissa_bits), exponent - $bias - $mantissa_bits, fraction == 0 && exponent > 1)
            }
        }
    };
}

float!(f64, 52, 1023);
float!(f32, 23, 127);

/// `d.ddd` times ten to the power of `exponent`, without zeros at the end.
struct Digits {
    digits: [u8; DIGITS_MAX],
    count: usize,
    exponent: i32,
}

impl Digits {
    /// The shortest digits that PostgreSQL takes: those that lie half way to a neighbour, which read back too where the mantissa is even, it does not.
    fn shortest<F: Float>(value: F) -> Self {
        let mut found = Self::read(format_args!("{value:e}"));
        let mut count = found.count;
        while count < DIGITS_MAX && found.is_half_way(value.parts()) {
            found = Self::read(format_args!("{value:.count$e}"));
            count += 1;
            let mut text = Short::default();
            let reads_back = found.write_scientific(&mut text).is_ok() && text.as_str().parse().is_ok_and(|read: F| read == value);
            if !reads_back {
                found = Self { digits: [b'0'; DIGITS_MAX], count: 0, exponent: 0 };
            }
        }
        found
    }

    /// From the standard library's form, `1.5e-7`.
    fn read(formatted: fmt::Arguments<'_>) -> Self {
        let mut text = Short::default();
        text.write_fmt(formatted).expect("a number has no more digits than fit");
        let (mantissa, exponent) = text.as_str().split_once('e').expect("the form has an exponent");
        let mut found = Self { digits: [b'0'; DIGITS_MAX], count: 0, exponent: exponent.parse().expect("an exponent is an integer") };
        for digit in mantissa.bytes().filter(u8::is_ascii_digit) {
            found.digits[found.count] = digit;
            found.count += 1;
        }
        while found.count > 1 && found.digits[found.count - 1] == b'0' {
            found.count -= 1;
        }
        found
    }

    fn digits(&self) -> &[u8] {
        &self.digits[..self.count]
    }

    /// Whether the digits are exactly between a number and one of its neighbours; no digits are.
    fn is_half_way(&self, (mantissa, power, is_uneven): (u64, i32, bool)) -> bool {
        if self.count == 0 {
            return true;
        }
        // Only the neighbours of an even mantissa round to it from half way.
        if mantissa % 2 == 1 {
            return false;
        }
        let integer = self.digits().iter().fold(0, |value, digit| value * 10 + u128::from(digit - b'0'));
        let tens = self.exponent + 1 - self.count as i32;
        let above = (u128::from(mantissa) * 2 + 1, power - 1);
        let below = if is_uneven { (u128::from(mantissa) * 4 - 1, power - 2) } else { (u128::from(mantissa) * 2 - 1, power - 1) };
        [above, below].into_iter().any(|(odd, twos)| is_equal(integer, tens, odd, twos))
    }

    fn write(&self, exponent_from: i32, out: &mut Vec<u8>) {
        if self.exponent < FIXED_FROM || self.exponent >= exponent_from {
            let mut text = Short::default();
            self.write_scientific(&mut text).expect("it fits");
            out.extend_from_slice(text.as_str().as_bytes());
        } else if self.exponent < 0 {
            out.extend_from_slice(b"0.");
            out.extend(std::iter::repeat_n(b'0', (-self.exponent - 1) as usize));
            out.extend_from_slice(self.digits());
        } else {
            let whole = self.exponent as usize + 1;
            let (before, behind) = self.digits().split_at(whole.min(self.count));
            out.extend_from_slice(before);
            out.extend(std::iter::repeat_n(b'0', whole.saturating_sub(self.count)));
            if !behind.is_empty() {
                out.push(b'.');
                out.extend_from_slice(behind);
            }
        }
    }

    /// `1.5e-07`: a sign, and at least two digits.
    fn write_scientific(&self, out: &mut Short) -> fmt::Result {
        let (first, rest) = self.digits().split_at(1.min(self.count));
        out.push(first)?;
        if !rest.is_empty() {
            out.push(b".")?;
            out.push(rest)?;
        }
        write!(out, "e{}{:02}", if self.exponent < 0 { '-' } else { '+' }, self.exponent.unsigned_abs())
    }
}

/// Whether `integer * 10^tens == odd * 2^twos`; `odd` is odd.
fn is_equal(integer: u128, tens: i32, odd: u128, twos: i32) -> bool {
    // A product that does not fit has an odd part that the other side, below 2^58, has not.
    let fives = 5_u128.checked_pow(tens.unsigned_abs());
    let (left, right) = if tens >= 0 {
        (fives.and_then(|fives| integer.checked_mul(fives)), Some(odd))
    } else {
        (Some(integer), fives.and_then(|fives| odd.checked_mul(fives)))
    };
    let (Some(left), Some(right)) = (left, right) else { return false };
    let zeros = left.trailing_zeros();
    left >> zeros == right && zeros as i32 + tens == twos
}

/// A text of few characters, without an allocation.
struct Short {
    bytes: [u8; 40],
    length: usize,
}

impl Default for Short {
    fn default() -> Self {
        Self { bytes: [0; 40], length: 0 }
    }
}

impl Short {
    fn push(&mut self, bytes: &[u8]) -> fmt::Result {
        let end = self.length + bytes.len();
        self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?.copy_from_slice(bytes);
        self.length = end;
        Ok(())
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).expect("numbers are ASCII")
    }
}

impl Write for Short {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).expect("ASCII")
    }

    /// From PostgreSQL 15: `SELECT value::float8`.
    #[test]
    fn doubles_are_written_as_in_postgres() {
        for (value, expected) in [
            (1.0, "1"),
            (-0.0, "-0"),
            (0.1, "0.1"),
            (1e20, "1e+20"),
            (1e-5, "1e-05"),
            (1e-4, "0.0001"),
            (1e14, "100000000000000"),
            (1e15, "1e+15"),
            (123_456_789_012_345.0, "123456789012345"),
            (1_234_567_890_123_456.0, "1.234567890123456e+15"),
            (1.0 / 3.0, "0.3333333333333333"),
            (1e23, "9.999999999999999e+22"),
            (9_007_199_254_740_993.0, "9.007199254740992e+15"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::MIN_POSITIVE, "2.2250738585072014e-308"),
            (5e-324, "5e-324"),
            (f64::NAN, "NaN"),
            (-f64::NAN, "NaN"),
            (f64::INFINITY, "Infinity"),
            (f64::NEG_INFINITY, "-Infinity"),
            (-1.5e-7, "-1.5e-07"),
        ] {
            assert_eq!(text(|out| write_f64(value, out)), expected);
        }
    }

    /// From PostgreSQL 15: `SELECT value::float4`.
    #[test]
    fn reals_are_written_as_in_postgres() {
        for (value, expected) in [
            (0.1_f32, "0.1"),
            (123_456.0, "123456"),
            (1_234_567.0, "1.234567e+06"),
            (16_777_216.0, "1.6777216e+07"),
            (1e-5, "1e-05"),
            (f32::MAX, "3.4028235e+38"),
            (1e-45, "1e-45"),
            (33_554_432.0, "3.3554432e+07"),
            (f32::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(text(|out| write_f32(value, out)), expected);
        }
    }

    #[test]
    fn every_double_reads_back() {
        // A walk over all exponents with mantissas that are even, odd, and powers of two.
        let mut bits = 1_u64;
        for step in 0..20_000_u64 {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let bits = if step % 3 == 0 { bits & (0xfff << 52) } else { bits };
            let value = f64::from_bits(bits);
            if value.is_finite() {
                assert_eq!(text(|out| write_f64(value, out)).parse::<f64>().expect("a number").to_bits(), bits, "{value:e}");
                let single = value as f32;
                let read = text(|out| write_f32(single, out)).replace("Infinity", "inf").parse::<f32>().expect("a number");
                assert_eq!(read.to_bits(), single.to_bits(), "{single:e}");
            }
        }
    }
}
