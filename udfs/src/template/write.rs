//! Dates, times and intervals by a pattern.

use super::calendar::Fields;
use super::pattern::{Case, Part, Word, time_parts};
use super::{ordinal, refused};
use crate::Error;

const MONTHS: [&str; 12] =
    ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const ROMAN: [&str; 12] = ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"];

/// The width of the names of months and days.
const NAME_WIDTH: usize = 9;

pub(super) fn month_names() -> &'static [&'static str] {
    &MONTHS
}

/// What `to_char` gives. `None` for an empty pattern, as in PostgreSQL.
///
/// # Errors
/// [`Error::PatternPart`] for a part that means nothing for an interval.
pub fn write_fields(fields: &Fields, pattern: &str) -> Result<Option<String>, Error> {
    if pattern.is_empty() {
        return Ok(None);
    }
    let mut out = String::new();
    for part in time_parts(pattern) {
        match part {
            Part::Word(word) => write_word(fields, &word, &mut out)?,
            Part::Space(character) | Part::Separator(character) | Part::Character(character) => out.push(character),
        }
    }
    Ok(Some(out))
}

/// Words that say nothing of an interval; PostgreSQL refuses the first ones too.
const OF_DATES: &[&str] = &[
    "A.D.", "AD", "B.C.", "BC", "MONTH", "MON", "DAY", "DY", "D", "ID", "TZ", "TZH", "TZM", "OF", "IYYY", "IYY", "IY", "I", "IW", "IDDD",
    "DDD", "WW", "W", "J",
];

/// Words whose width is that of the digits, without a sign.
const SIGNED: &[&str] = &["YYYY", "YYY", "YY", "IYYY", "IYY", "IY", "CC", "MM", "HH24", "HH12", "HH", "MI", "SS"];

fn write_word(fields: &Fields, word: &Word, out: &mut String) -> Result<(), Error> {
    let name = word.name.to_ascii_uppercase();
    if fields.is_interval && OF_DATES.contains(&name.as_str()) {
        return Err(refused("to_char of an interval", word.name));
    }
    if let Some(text) = text(fields, word, &name) {
        out.push_str(&text);
        return Ok(());
    }
    let Some((number, width)) = number(fields, &name) else { return Ok(()) };
    let width = match word.is_filled && !name.starts_with("FF") && !matches!(name.as_str(), "MS" | "US") {
        true => 0,
        false => width + usize::from(number < 0 && SIGNED.contains(&name.as_str())),
    };
    let start = out.len();
    match name.as_str() {
        "Y,YYY" => out.push_str(&format!("{},{:03}", number / 1_000, number % 1_000)),
        _ => out.push_str(&format!("{number:0width$}")),
    }
    match word.ordinal {
        Some(Case::Upper) => out.push_str(ordinal(&out[start..])),
        Some(Case::Lower) => out.push_str(&ordinal(&out[start..]).to_lowercase()),
        None => {}
    }
    Ok(())
}

/// Of the words that stand for names and signs. `None`: for another word, or for nothing.
fn text(fields: &Fields, word: &Word, name: &str) -> Option<String> {
    let is_afternoon = fields.hour % 24 >= 12;
    let is_before_christ = fields.year <= 0;
    let sized = |text: &str, width: usize| if word.is_filled { text.to_owned() } else { format!("{text:<width$}") };
    // Translated names are not filled up.
    let name_width = if word.is_translated { 0 } else { NAME_WIDTH };
    let month = usize::try_from(fields.month - 1).ok().and_then(|index| MONTHS.get(index));
    let day = || DAYS[usize::try_from(fields.weekday()).unwrap_or(0)];
    let text = match name {
        "AM" | "PM" => if is_afternoon { "PM" } else { "AM" }.to_owned(),
        "A.M." | "P.M." => if is_afternoon { "P.M." } else { "A.M." }.to_owned(),
        "AD" | "BC" => if is_before_christ { "BC" } else { "AD" }.to_owned(),
        "A.D." | "B.C." => if is_before_christ { "B.C." } else { "A.D." }.to_owned(),
        "MONTH" => sized(month?, name_width),
        "MON" => month?[..3].to_owned(),
        "DAY" => sized(day(), name_width),
        "DY" => day()[..3].to_owned(),
        "RM" => sized(&roman(fields)?, 4),
        "TZ" => if fields.has_zone { "UTC" } else { "" }.to_owned(),
        "TZH" => "+00".to_owned(),
        "TZM" => "00".to_owned(),
        "OF" => if word.is_filled { "+0" } else { "+00" }.to_owned(),
        _ => return None,
    };
    // `Month` and `Day` are as they stand above.
    let letters: Vec<char> = word.name.chars().filter(char::is_ascii_alphabetic).take(2).collect();
    Some(match letters.as_slice() {
        [first, ..] if first.is_ascii_lowercase() => text.to_lowercase(),
        [_, second] if second.is_ascii_uppercase() => text.to_uppercase(),
        _ => text,
    })
}

/// The month in Roman numbers; of an interval, a year's twelfth month is its end.
fn roman(fields: &Fields) -> Option<String> {
    if fields.month == 0 && fields.year == 0 {
        return None;
    }
    let index = match fields.month {
        0 if fields.year > 0 => 11,
        0 => 0,
        month if month < 0 => 12 + month,
        month => month - 1,
    };
    ROMAN.get(usize::try_from(index).ok()?).map(|number| (*number).to_owned())
}

/// Of the words that stand for numbers: the number, and the width up to which zeros come before it.
fn number(fields: &Fields, name: &str) -> Option<(i64, usize)> {
    // There is no year 0: the one before 1 is 1 before Christ.
    let shown = |year: i64| if fields.is_interval || year > 0 { year } else { 1 - year };
    let year = shown(fields.year);
    let twelfths = fields.hour % 12;
    Some(match name {
        "YYYY" => (year, 4),
        "Y,YYY" => (year, 0),
        "YYY" => (year % 1_000, 3),
        "YY" => (year % 100, 2),
        "Y" => (year % 10, 1),
        "IYYY" => (shown(fields.iso().0), 4),
        "IYY" => (shown(fields.iso().0) % 1_000, 3),
        "IY" => (shown(fields.iso().0) % 100, 2),
        "I" => (shown(fields.iso().0) % 10, 1),
        "CC" => (century(fields), 2),
        "Q" if fields.month == 0 => return None,
        "Q" => ((fields.month - 1) / 3 + 1, 1),
        "MM" => (fields.month, 2),
        "DDD" => (fields.day_of_year(), 3),
        "IDDD" => (fields.iso().2, 3),
        "DD" => (fields.day, 2),
        "D" => (fields.weekday() + 1, 1),
        "ID" => ((fields.weekday() + 6) % 7 + 1, 1),
        "WW" => ((fields.day_of_year() - 1) / 7 + 1, 2),
        "W" => ((fields.day - 1) / 7 + 1, 1),
        "IW" => (fields.iso().1, 2),
        "J" => (fields.julian_day(), 1),
        "HH24" => (fields.hour, 2),
        "HH12" | "HH" => (if twelfths == 0 { 12 } else { twelfths }, 2),
        "MI" => (fields.minute, 2),
        "SS" => (fields.second, 2),
        "SSSS" | "SSSSS" => (fields.hour * 3_600 + fields.minute * 60 + fields.second, 1),
        "MS" | "FF3" => (fields.micros / 1_000, 3),
        "US" | "FF6" => (fields.micros, 6),
        "FF1" => (fields.micros / 100_000, 1),
        "FF2" => (fields.micros / 10_000, 2),
        "FF4" => (fields.micros / 100, 4),
        "FF5" => (fields.micros / 10, 5),
        // `FX` is for reading.
        _ => return None,
    })
}

fn century(fields: &Fields) -> i64 {
    match fields.year {
        year if fields.is_interval => year / 100,
        year if year > 0 => (year - 1) / 100 + 1,
        year => year / 100 - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checked against PostgreSQL 15.
    #[test]
    fn instants_are_written_as_in_postgres() {
        let instant = Fields::of_instant(1_709_210_096_045_600, true).expect("finite");
        for (pattern, expected) in [
            ("YYYY-MM-DD HH24:MI:SS.MS US", "2024-02-29 12:34:56.045 045600"),
            ("FMDay, DDth FMMonth YYYY", "Thursday, 29th February 2024"),
            ("DAY|Day|day|DY|Dy|dy", "THURSDAY |Thursday |thursday |THU|Thu|thu"),
            ("MONTH|Month|month|MON|Mon|mon", "FEBRUARY |February |february |FEB|Feb|feb"),
            ("HH:MI AM a.m. P.M.", "12:34 PM p.m. P.M."),
            ("DDD WW IW IYYY ID D Q W J CC", "060 09 09 2024 4 5 1 5 2460370 21"),
            ("YYY YY Y Y,YYY IYY IY I", "024 24 4 2,024 024 24 4"),
            ("TZ tz OF TZH TZM", "UTC utc +00 +00 00"),
            ("RM|rm|FMRM", "II  |ii  |II"),
            ("\"YYYY\" \\YYYY x", "YYYY \\2024 x"),
            ("SSSS FF1 FF6", "45296 0 045600"),
            ("AD b.c. FMMM FMHH24", "AD a.d. 2 12"),
        ] {
            assert_eq!(write_fields(&instant, pattern).expect(pattern).as_deref(), Some(expected), "{pattern}");
        }
        assert_eq!(write_fields(&instant, ""), Ok(None));
    }

    #[test]
    fn intervals_have_no_days_of_the_week() {
        let interval = Fields::of_interval(14, 3, 100 * 3_600_000_000 + 61_500_000);
        let written = write_fields(&interval, "YYYY MM DD HH24:MI:SS.MS").expect("a pattern");
        assert_eq!(written.as_deref(), Some("0001 02 03 100:01:01.500"));
        assert!(matches!(write_fields(&interval, "Day"), Err(Error::PatternPart { .. })));
    }
}
