//! Exact numbers as PostgreSQL writes them, and digits of whole numbers for every other form.

/// `value * 10^-scale`, with as many digits behind the point as the scale says.
pub(super) fn write_decimal(value: i128, scale: i8, out: &mut Vec<u8>) {
    if value < 0 {
        out.push(b'-');
    }
    let mut buffer = [0; 39];
    write_scaled(decimal_digits(value.unsigned_abs(), &mut buffer), scale, out);
}

/// The same of a number whose digits are there already, such as `-12340`.
pub(super) fn write_scaled_text(number: &str, scale: i8, out: &mut Vec<u8>) {
    let digits = match number.strip_prefix('-') {
        Some(digits) => {
            out.push(b'-');
            digits
        }
        None => number,
    };
    write_scaled(digits.as_bytes(), scale, out);
}

fn write_scaled(digits: &[u8], scale: i8, out: &mut Vec<u8>) {
    let Ok(scale) = usize::try_from(scale) else {
        out.extend_from_slice(digits);
        let zeros = if digits == b"0" { 0 } else { usize::from(scale.unsigned_abs()) };
        return out.extend(std::iter::repeat_n(b'0', zeros));
    };
    match digits.len().checked_sub(scale) {
        Some(whole) if whole > 0 => {
            out.extend_from_slice(&digits[..whole]);
            if scale > 0 {
                out.push(b'.');
                out.extend_from_slice(&digits[whole..]);
            }
        }
        _ => {
            out.extend_from_slice(b"0.");
            out.extend(std::iter::repeat_n(b'0', scale - digits.len()));
            out.extend_from_slice(digits);
        }
    }
}

pub(super) fn write_integer(value: i64, out: &mut Vec<u8>) {
    if value < 0 {
        out.push(b'-');
    }
    write_natural(value.unsigned_abs(), 1, out);
}

/// With zeros in front up to a number of digits.
pub(super) fn write_natural(value: u64, width: usize, out: &mut Vec<u8>) {
    let mut buffer = [0; 20];
    let mut start = buffer.len();
    let mut rest = value;
    loop {
        start -= 1;
        // A remainder by ten fits.
        buffer[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let digits = &buffer[start..];
    out.extend(std::iter::repeat_n(b'0', width.saturating_sub(digits.len())));
    out.extend_from_slice(digits);
}

fn decimal_digits(value: u128, buffer: &mut [u8; 39]) -> &[u8] {
    let mut start = buffer.len();
    let mut rest = value;
    // Most numbers are short, and dividing 64 bits is much faster.
    while rest > u128::from(u64::MAX) {
        start -= 1;
        buffer[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let mut rest = rest as u64;
    loop {
        start -= 1;
        buffer[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            return &buffer[start..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(value: i128, scale: i8) -> String {
        let mut out = Vec::new();
        write_decimal(value, scale, &mut out);
        let mut again = Vec::new();
        write_scaled_text(&value.to_string(), scale, &mut again);
        assert_eq!(out, again);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn the_point_is_where_the_scale_says() {
        for (value, scale, text) in [
            (0, 0, "0"),
            (0, 2, "0.00"),
            (5, 2, "0.05"),
            (-5, 2, "-0.05"),
            (12_340, 3, "12.340"),
            (-100, 2, "-1.00"),
            (7, -3, "7000"),
            (0, -3, "0"),
            (99_999_999_999_999_999_999_999_999_999_999_999_999, 10, "9999999999999999999999999999.9999999999"),
            (i128::MIN, 38, "-1.70141183460469231731687303715884105728"),
        ] {
            assert_eq!(decimal(value, scale), text);
        }
    }

    #[test]
    fn whole_numbers_reach_their_ends() {
        for value in [0, 7, -7, i64::MAX, i64::MIN] {
            let mut out = Vec::new();
            write_integer(value, &mut out);
            assert_eq!(out, value.to_string().into_bytes());
        }
    }
}
