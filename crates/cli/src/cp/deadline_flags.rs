//! `--by` and `--within`: when a copy shall be done.

use std::time::{Duration, SystemTime};

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// The next time that a local clock shows this.
    Clock(Time),
    Local(DateTime),
    /// The same moment everywhere.
    At(Timestamp),
    Within(Duration),
}

/// `--by`: `06:00`, `2026-12-01 08:00`, `2026-12-01T08:00Z`.
pub fn parse_by(text: &str) -> Result<Deadline, String> {
    let text = text.trim();
    let clock = text.len() <= 8 && text.contains(':') && !text.contains('-');
    let deadline = if clock {
        text.parse().map(Deadline::Clock).ok()
    } else {
        text.parse().map(Deadline::At).ok().or_else(|| local(text))
    };
    deadline.ok_or_else(|| {
        format!(
            "'{text}' is no time: write 06:00 for the next time a clock here shows that, '2026-12-01 08:00' for a day, or \
             2026-12-01T08:00Z for a moment in UTC; --within takes how long it may last, like 4h"
        )
    })
}

/// A text with a zone that names no moment is an error, not a local time.
fn local(text: &str) -> Option<Deadline> {
    let has_zone = text.ends_with(['Z', 'z']) || text.rfind(['+', '[']).is_some();
    if has_zone { None } else { text.parse().map(Deadline::Local).ok() }
}

/// `--within`: `4h`, `90m`, `1h30m`.
pub fn parse_within(text: &str) -> Result<Deadline, String> {
    let wrong = || format!("'{text}' is no length of time: write 4h, 90m, 1h30m or 45s");
    let length: SignedDuration = text.trim().parse().map_err(|_| wrong())?;
    let length = Duration::try_from(length).map_err(|_| wrong())?;
    if length < LEAST {
        return Err(format!("'{text}' is too short for a deadline: a second is the least"));
    }
    Ok(Deadline::Within(length))
}

impl Deadline {
    pub fn moment(self, now: &Zoned) -> Result<SystemTime, String> {
        let zone = now.time_zone();
        let moment = match self {
            Self::At(moment) => moment,
            Self::Local(local) => in_zone(local, zone)?,
            Self::Clock(time) => {
                let today = in_zone(now.date().to_datetime(time), zone)?;
                if today > now.timestamp() {
                    today
                } else {
                    let tomorrow = now.date().tomorrow().map_err(|error| error.to_string())?;
                    in_zone(tomorrow.to_datetime(time), zone)?
                }
            }
            Self::Within(length) => return Ok(SystemTime::from(now.timestamp()) + length),
        };
        if moment <= now.timestamp() {
            return Err(format!("{moment} has passed: it is {} now", now.strftime("%Y-%m-%d %H:%M %Z")));
        }
        Ok(SystemTime::from(moment))
    }
}

/// A time skipped in spring is an hour later; of two in autumn, the first counts.
fn in_zone(local: DateTime, zone: &TimeZone) -> Result<Timestamp, String> {
    let zoned = zone.to_zoned(local).map_err(|error| format!("{local} is out of range: {error}"))?;
    Ok(zoned.timestamp())
}

const LEAST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Zoned {
        text.parse().unwrap()
    }

    fn moment(deadline: &str, now: &str) -> String {
        let moment = parse_by(deadline).unwrap().moment(&at(now)).unwrap();
        Timestamp::try_from(moment).unwrap().to_string()
    }

    const EVENING: &str = "2026-11-24T22:15[+01:00]";

    #[test]
    fn a_clock_time_is_the_next_time_that_clocks_show_it() {
        assert_eq!(moment("06:00", EVENING), "2026-11-25T05:00:00Z");
        assert_eq!(moment("23:00", EVENING), "2026-11-24T22:00:00Z");
        assert_eq!(moment("22:15", EVENING), "2026-11-25T21:15:00Z", "now is over");
        assert_eq!(moment("22:15:30", EVENING), "2026-11-24T21:15:30Z");
    }

    #[test]
    fn a_day_is_that_of_the_local_clocks_and_utc_is_utc() {
        assert_eq!(moment("2026-12-01 08:00", EVENING), "2026-12-01T07:00:00Z");
        assert_eq!(moment("2026-12-01T08:00", EVENING), "2026-12-01T07:00:00Z");
        assert_eq!(moment("2026-12-01T08:00Z", EVENING), "2026-12-01T08:00:00Z");
        assert_eq!(moment("2026-12-01T08:00+09:00", EVENING), "2026-11-30T23:00:00Z");
    }

    #[test]
    fn what_is_no_time_or_has_passed_is_an_error_that_helps() {
        for wrong in ["", "6", "tomorrow", "25:00", "2026-13-01T08:00Z", "4h", "06:00Z"] {
            assert!(parse_by(wrong).is_err_and(|why| why.contains("06:00")), "{wrong}");
        }
        let why = parse_by("2026-11-24 08:00").unwrap().moment(&at(EVENING)).unwrap_err();
        assert!(why.contains("has passed"), "{why}");
    }

    #[test]
    fn a_length_of_time_counts_from_the_start() {
        for (text, seconds) in [("4h", 14_400), ("90m", 5_400), ("1h30m", 5_400), ("45s", 45), ("2d", 0)] {
            match (parse_within(text), seconds) {
                (Err(why), 0) => assert!(why.contains("1h30m"), "{why}"),
                (Ok(Deadline::Within(length)), seconds) => assert_eq!(length, Duration::from_secs(seconds), "{text}"),
                (other, _) => panic!("{text}: {other:?}"),
            }
        }
        for wrong in ["", "-4h", "4", "0s", "06:00"] {
            assert!(parse_within(wrong).is_err(), "{wrong}");
        }
    }
}
