//! The parts of a time by their names, in all the spellings of PostgreSQL.

/// From the largest to the smallest, and then those that [`extract`](super::extract) alone knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Unit {
    Millennium,
    Century,
    Decade,
    Year,
    Quarter,
    Month,
    Week,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
    Microsecond,
    Timezone,
    TimezoneHour,
    TimezoneMinute,
    Epoch,
    Julian,
    Isoyear,
    Isodow,
    Dow,
    Doy,
}

impl Unit {
    /// `None`: there is no such part.
    pub fn of(name: &str) -> Option<Self> {
        Some(match name.trim().to_ascii_lowercase().as_str() {
            "millennium" | "millennia" | "mil" | "mils" => Self::Millennium,
            "century" | "centuries" | "cent" | "c" => Self::Century,
            "decade" | "decades" | "dec" | "decs" => Self::Decade,
            "year" | "years" | "yr" | "yrs" | "y" => Self::Year,
            "quarter" | "qtr" => Self::Quarter,
            "month" | "months" | "mon" | "mons" => Self::Month,
            "week" | "weeks" | "w" => Self::Week,
            "day" | "days" | "d" => Self::Day,
            "hour" | "hours" | "hr" | "hrs" | "h" => Self::Hour,
            "minute" | "minutes" | "min" | "mins" | "m" => Self::Minute,
            "second" | "seconds" | "sec" | "secs" | "s" => Self::Second,
            "millisecond" | "milliseconds" | "msec" | "msecs" | "ms" => Self::Millisecond,
            "microsecond" | "microseconds" | "usec" | "usecs" | "us" => Self::Microsecond,
            "timezone" => Self::Timezone,
            "timezone_hour" | "timezone_h" => Self::TimezoneHour,
            "timezone_minute" | "timezone_m" => Self::TimezoneMinute,
            "epoch" => Self::Epoch,
            "julian" | "jd" | "j" => Self::Julian,
            "isoyear" => Self::Isoyear,
            "isodow" => Self::Isodow,
            "dow" => Self::Dow,
            "doy" => Self::Doy,
            _ => return None,
        })
    }

    /// Whether a time is cut at it.
    pub fn is_cut(self) -> bool {
        self <= Self::Microsecond
    }
}

/// The number of the decade that a year is in; year 0 is 1 BC.
pub(super) fn decade(year: i64) -> i64 {
    if year >= 0 { year / 10 } else { -((8 - (year - 1)) / 10) }
}

/// The century, which ends with the year that has its number.
pub(super) fn century(year: i64) -> i64 {
    if year > 0 { (year + 99) / 100 } else { -((99 - (year - 1)) / 100) }
}

pub(super) fn millennium(year: i64) -> i64 {
    if year > 0 { (year + 999) / 1_000 } else { -((999 - (year - 1)) / 1_000) }
}
