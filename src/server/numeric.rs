//! Postgres' binary form of `numeric`: four `i16` (number of digits, weight, sign, display scale), then digits in base 10000.
//!
//! `weight` is the power of 10000 of the first digit. See `numeric_send` in PostgreSQL's `src/backend/utils/adt/numeric.c`.

const SIGN_POSITIVE: i16 = 0;
const SIGN_NEGATIVE: i16 = 0x4000;

/// The binary form of a decimal such as `-12.340`, which must have a digit and nothing but a sign, digits and a point.
pub(super) fn to_binary(decimal: &str) -> Vec<u8> {
    let (negative, digits) = decimal.strip_prefix('-').map_or((false, decimal), |digits| (true, digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let whole = whole.trim_start_matches('0');
    let padded_whole = format!("{}{whole}", "0".repeat(whole.len().next_multiple_of(4) - whole.len()));
    let padded_fraction = format!("{fraction}{}", "0".repeat(fraction.len().next_multiple_of(4) - fraction.len()));
    let groups = base_10000(&padded_whole).chain(base_10000(&padded_fraction)).collect::<Vec<_>>();
    let leading = groups.iter().take_while(|group| **group == 0).count();
    let trailing = groups[leading..].iter().rev().take_while(|group| **group == 0).count();
    let kept = &groups[leading..groups.len() - trailing];
    let weight = if kept.is_empty() { 0 } else { (padded_whole.len() / 4) as i16 - 1 - leading as i16 };
    let sign = if negative && !kept.is_empty() { SIGN_NEGATIVE } else { SIGN_POSITIVE };
    [kept.len() as i16, weight, sign, fraction.len() as i16].iter().chain(kept).flat_map(|word| word.to_be_bytes()).collect()
}

/// The decimal of a binary form. `None` if it is damaged, not a number or infinite.
pub(super) fn from_binary(bytes: &[u8]) -> Option<String> {
    if !bytes.len().is_multiple_of(2) {
        return None;
    }
    let words = bytes.chunks_exact(2).map(|word| i16::from_be_bytes([word[0], word[1]])).collect::<Vec<_>>();
    let [count, weight, sign, scale, groups @ ..] = words.as_slice() else { return None };
    let valid = groups.len() == usize::try_from(*count).ok()? && groups.iter().all(|group| (0..10_000).contains(group));
    if !valid || !matches!(*sign, SIGN_POSITIVE | SIGN_NEGATIVE) || *scale < 0 {
        return None;
    }
    let group = |power: i32| usize::try_from(i32::from(*weight) - power).ok().and_then(|index| groups.get(index)).copied().unwrap_or(0);
    let whole = (0..=i32::from(*weight)).rev().map(|power| format!("{:04}", group(power))).collect::<String>();
    let scale = usize::try_from(*scale).ok()?;
    let mut fraction = (1..=scale.div_ceil(4) as i32).map(|power| format!("{:04}", group(-power))).collect::<String>();
    fraction.truncate(scale);
    let whole = whole.trim_start_matches('0');
    let sign = if *sign == SIGN_NEGATIVE { "-" } else { "" };
    let point = if scale == 0 { "" } else { "." };
    Some(format!("{sign}{}{point}{fraction}", if whole.is_empty() { "0" } else { whole }))
}

fn base_10000(digits: &str) -> impl Iterator<Item = i16> + '_ {
    digits.as_bytes().chunks(4).map(|four| four.iter().fold(0, |value, digit| value * 10 + i16::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binary_form_is_that_of_postgres() {
        // From PostgreSQL 16: SELECT encode(numeric_send('-12345.678'), 'hex').
        assert_eq!(to_binary("-12345.678"), [0, 3, 0, 1, 0x40, 0, 0, 3, 0, 1, 0x09, 0x29, 0x1a, 0x7c]);
        assert_eq!(to_binary("0.00"), [0, 0, 0, 0, 0, 0, 0, 2]);
    }

    #[test]
    fn a_decimal_reads_back_from_its_binary_form() {
        for decimal in [
            "0",
            "1",
            "-1",
            "9999",
            "10000",
            "100000000",
            "0.1",
            "-0.0001",
            "0.00001",
            "12345.678",
            "10000.0001",
            "1.50",
            "99999999999999999999999999999999999999",
            "-0.12345678901234567890123456789012345678",
        ] {
            assert_eq!(from_binary(&to_binary(decimal)).as_deref(), Some(decimal));
        }
    }

    #[test]
    fn damaged_bytes_are_refused() {
        let good = to_binary("12345.678");
        for length in 0..good.len() {
            assert_eq!(from_binary(&good[..length]), None, "{length} bytes");
        }
        let not_a_number = [0, 0, 0, 0, 0xc0, 0, 0, 0];
        assert_eq!(from_binary(&not_a_number), None);
    }
}
