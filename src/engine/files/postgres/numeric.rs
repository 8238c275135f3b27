//! PostgreSQL's binary form of `numeric`: four 16-bit numbers (number of digits, weight, sign, display scale), then digits in base 10000.
//!
//! `weight` is the power of 10000 of the first digit. See `numeric_send` in PostgreSQL's `src/backend/utils/adt/numeric.c`.

const SIGN_NEGATIVE: u16 = 0x4000;
/// Larger exponents are damage: a `numeric` here has 38 digits, PostgreSQL's has 131072 before the point.
const WEIGHT_MAX: i16 = 64;
const SCALE_MAX: i16 = 256;

/// Writes `value` / 10^`scale`.
pub fn push(value: i128, scale: u8, out: &mut Vec<u8>) {
    let magnitude = value.unsigned_abs();
    let unit = 10_u128.pow(u32::from(scale));
    let (mut whole, mut fraction) = (magnitude / unit, magnitude % unit);
    // From the last digit to the first. The last one of the fraction is filled up with zeros.
    let mut digits = Vec::with_capacity(12);
    let num_odd = u32::from(scale % 4);
    if num_odd > 0 {
        digits.push((fraction % 10_u128.pow(num_odd) * 10_u128.pow(4 - num_odd)) as u16);
        fraction /= 10_u128.pow(num_odd);
    }
    for _ in 0..scale / 4 {
        digits.push((fraction % 10_000) as u16);
        fraction /= 10_000;
    }
    let num_fraction = digits.len();
    while whole > 0 {
        digits.push((whole % 10_000) as u16);
        whole /= 10_000;
    }
    while digits.last() == Some(&0) {
        digits.pop();
    }
    let weight = if digits.is_empty() { 0 } else { digits.len() as i16 - num_fraction as i16 - 1 };
    let num_trailing = digits.iter().take_while(|digit| **digit == 0).count();
    let kept = &digits[num_trailing..];
    let sign = if value < 0 { SIGN_NEGATIVE } else { 0 };
    out.extend((kept.len() as u16).to_be_bytes());
    out.extend(weight.to_be_bytes());
    out.extend(sign.to_be_bytes());
    out.extend(u16::from(scale).to_be_bytes());
    out.extend(kept.iter().rev().flat_map(|digit| digit.to_be_bytes()));
}

/// The decimal of a binary form. `None` if it is damaged, not a number, infinite or beyond what any column holds.
pub fn read(bytes: &[u8]) -> Option<String> {
    let (words, rest) = bytes.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let words: Vec<i16> = words.iter().map(|word| i16::from_be_bytes(*word)).collect();
    let [count, weight, sign, scale, digits @ ..] = words.as_slice() else { return None };
    let is_sound = usize::try_from(*count) == Ok(digits.len()) && digits.iter().all(|digit| (0..10_000).contains(digit));
    if !is_sound || !matches!(*sign, 0 | 0x4000) || !(0..=SCALE_MAX).contains(scale) || !(-WEIGHT_MAX..=WEIGHT_MAX).contains(weight) {
        return None;
    }
    let digit = |power: i16| usize::try_from(*weight - power).ok().and_then(|index| digits.get(index)).copied().unwrap_or(0);
    let whole: String = (0..=*weight).rev().map(|power| format!("{:04}", digit(power))).collect();
    let scale = usize::try_from(*scale).ok()?;
    let mut fraction: String = (1..=scale.div_ceil(4) as i16).map(|power| format!("{:04}", digit(-power))).collect();
    fraction.truncate(scale);
    let whole = whole.trim_start_matches('0');
    let sign = if *sign == 0x4000 { "-" } else { "" };
    Some(format!("{sign}{}{}{fraction}", if whole.is_empty() { "0" } else { whole }, if scale == 0 { "" } else { "." }))
}
