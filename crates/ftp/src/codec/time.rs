//! Times as MDTM, MLSD and MFMT write them: `YYYYMMDDHHMMSS[.sss]`, in UTC (RFC 3659, 2.3).

use haul_store::Time;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Reads a time, in whole seconds: servers tell fractions in one place and leave them out in another. A leap second is the one before it.
pub(crate) fn parse(text: &[u8]) -> Option<Time> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.len() != 14 || !whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = |from: usize, to: usize| whole[from..to].parse::<i16>().ok();
    let small = |from: usize| i8::try_from(number(from, from + 2)?).ok();
    let seconds = small(12)?.min(59);
    at(number(0, 4)?, small(4)?, small(6)?, small(8)?, small(10)?, seconds)
}

/// A time of a calendar in UTC. `None`: there is no such day.
pub(crate) fn at(year: i16, month: i8, day: i8, hour: i8, minute: i8, second: i8) -> Option<Time> {
    let date = DateTime::new(year, month, day, hour, minute, second, 0).ok()?;
    let s = date.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second();
    Some(Time { s, ns: 0 })
}

/// The year and the month of a time.
pub(crate) fn year_and_month(time: Time) -> Option<(i16, i8)> {
    let date = Timestamp::from_second(time.s).ok()?.to_zoned(TimeZone::UTC);
    Some((date.year(), date.month()))
}

/// Writes a time in whole seconds. `None`: FTP has no such year.
pub(crate) fn text(time: Time) -> Option<String> {
    let date = Timestamp::from_second(time.s).ok()?.to_zoned(TimeZone::UTC);
    let year = u16::try_from(date.year()).ok()?;
    let (month, day, hour, minute, second) = (date.month(), date.day(), date.hour(), date.minute(), date.second());
    Some(format!("{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_written() {
        for (text, time) in [
            ("19941106084937", Some((784_111_777, 0))),
            ("19941106084937.5", Some((784_111_777, 0))),
            ("19691231235959", Some((-1, 0))),
            ("20161231235960", Some((1_483_228_799, 0))),
            ("1994110608493", None),
            ("19941306084937", None),
            ("19941106084937.x", None),
            ("+9941106084937", None),
        ] {
            assert_eq!(parse(text.as_bytes()).map(|time| (time.s, time.ns)), time, "{text}");
        }
        assert_eq!(text(Time { s: 784_111_777, ns: 5 }).as_deref(), Some("19941106084937"));
        assert_eq!(text(Time { s: i64::MAX, ns: 0 }), None);
    }
}
