//! What is written of a date, a time or an interval.

use crate::postgres::{civil_of_days, days_of_civil};

const MICROS_PER_SECOND: i64 = 1_000_000;
const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;

/// Of 1970-01-01, as astronomers count days.
const JULIAN_EPOCH: i64 = 2_440_588;

/// An instant, or an interval, in the parts that a pattern names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fields {
    /// Of an instant, 0 is the year before 1.
    pub(super) year: i64,
    /// From 1; of an interval what is beyond years.
    pub(super) month: i64,
    pub(super) day: i64,
    pub(super) hour: i64,
    pub(super) minute: i64,
    pub(super) second: i64,
    pub(super) micros: i64,
    pub(super) is_interval: bool,
    /// Whether it is shown in a zone: UTC.
    pub(super) has_zone: bool,
}

impl Fields {
    /// Of microseconds since 1970. `None` for the two infinities.
    #[must_use]
    pub fn of_instant(micros: i64, has_zone: bool) -> Option<Self> {
        if matches!(micros, i64::MAX | i64::MIN) {
            return None;
        }
        let (year, month, day) = civil_of_days(micros.div_euclid(MICROS_PER_DAY));
        Some(Self { year, month, day, has_zone, is_interval: false, ..Self::of_time(micros.rem_euclid(MICROS_PER_DAY)) })
    }

    /// Months become years with what is left; days and time stay what they are.
    #[must_use]
    pub fn of_interval(months: i64, days: i64, micros: i64) -> Self {
        Self { year: months / 12, month: months % 12, day: days, ..Self::of_time(micros) }
    }

    fn of_time(micros: i64) -> Self {
        let seconds = micros / MICROS_PER_SECOND;
        Self {
            year: 0,
            month: 0,
            day: 0,
            hour: seconds / 3_600,
            minute: seconds / 60 % 60,
            second: seconds % 60,
            micros: micros % MICROS_PER_SECOND,
            is_interval: true,
            has_zone: false,
        }
    }

    pub(super) fn days(&self) -> i64 {
        days_of_civil(self.year, self.month, self.day).unwrap_or_default()
    }

    pub(super) fn julian_day(&self) -> i64 {
        self.days() + JULIAN_EPOCH
    }

    /// From 0 for Sunday.
    pub(super) fn weekday(&self) -> i64 {
        (self.days() + 4).rem_euclid(7)
    }

    pub(super) fn day_of_year(&self) -> i64 {
        self.days() - first_day(self.year) + 1
    }

    /// Year, week and day of ISO 8601: week 1 has the year's first Thursday.
    pub(super) fn iso(&self) -> (i64, i64, i64) {
        let days = self.days();
        let year = [self.year + 1, self.year].into_iter().find(|year| days >= first_iso_day(*year)).unwrap_or(self.year - 1);
        let day = days - first_iso_day(year);
        (year, day / 7 + 1, day + 1)
    }
}

fn first_day(year: i64) -> i64 {
    days_of_civil(year, 1, 1).unwrap_or_default()
}

/// The Monday of the week with 4 January.
fn first_iso_day(year: i64) -> i64 {
    let fourth = first_day(year) + 3;
    fourth - (fourth + 3).rem_euclid(7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weeks_begin_on_mondays_and_belong_to_the_year_of_their_thursday() {
        let at = |year, month, day| Fields { year, month, day, ..Fields::of_time(0) };
        for (date, expected) in [
            (at(2021, 1, 3), (2020, 53, 371)),
            (at(2021, 1, 4), (2021, 1, 1)),
            (at(2024, 12, 30), (2025, 1, 1)),
            (at(2024, 2, 29), (2024, 9, 60)),
        ] {
            assert_eq!(date.iso(), expected, "{date:?}");
        }
        assert_eq!((at(2024, 2, 29).weekday(), at(2024, 3, 3).weekday(), at(2024, 12, 31).day_of_year()), (4, 0, 366));
        assert_eq!(at(2000, 1, 1).julian_day(), 2_451_545);
    }

    #[test]
    fn an_interval_has_months_below_twelve_and_any_hours() {
        let fields = Fields::of_interval(-14, 3, -100 * 3_600 * MICROS_PER_SECOND - 1);
        assert_eq!((fields.year, fields.month, fields.day, fields.hour, fields.second, fields.micros), (-1, -2, 3, -100, 0, -1));
    }
}
