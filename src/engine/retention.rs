//! How long a version of a table can be read after the next one was written.

use std::time::Duration;

/// As Delta Lake keeps files of old versions.
pub const VERSION_RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);

/// `7 days`, `12 hours`, `30 minutes`, `45 seconds` (or their first letters, as `7d`), or `0`.
///
/// # Errors
/// A sentence that says what is expected.
pub fn parse_retention(text: &str) -> Result<Duration, String> {
    let wrong = || format!("\"{text}\" is not a time: expected a whole number of days, hours, minutes or seconds, as \"7 days\"");
    let trimmed = text.trim();
    let digits = trimmed.find(|sign: char| !sign.is_ascii_digit()).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let seconds = match unit.trim().to_ascii_lowercase().as_str() {
        "d" | "day" | "days" => 24 * 3600,
        "h" | "hour" | "hours" => 3600,
        "m" | "min" | "minute" | "minutes" => 60,
        "s" | "sec" | "second" | "seconds" => 1,
        "" if number == 0 => 1,
        _ => return Err(wrong()),
    };
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_numbers_with_units() {
        for (text, seconds) in
            [("7 days", 604_800), ("1day", 86_400), ("12h", 43_200), (" 30 Minutes ", 1_800), ("45 s", 45), ("0", 0), ("0d", 0)]
        {
            assert_eq!(parse_retention(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "7", "days", "-1 days", "1.5 hours", "7 weeks", "99999999999999999 days"] {
            assert!(parse_retention(text).is_err(), "{text}");
        }
    }
}
