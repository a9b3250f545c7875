//! Sizes and times as in coreutils.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use haul_transfer::place::Moment;

/// `1.5K`, `234M`: powers of 1024, rounded up, as `ls -h` and `du -h`.
pub fn human(n: u64) -> String {
    const UNITS: [&str; 6] = ["K", "M", "G", "T", "P", "E"];
    if n < 1024 {
        return n.to_string();
    }
    let n = u128::from(n);
    let mut unit: u128 = 1024;
    for name in UNITS {
        let (tenths, whole) = ((n * 10).div_ceil(unit), n.div_ceil(unit));
        if tenths < 100 {
            return format!("{}.{}{name}", tenths / 10, tenths % 10);
        }
        if whole < 1024 || name == "E" {
            return format!("{whole}{name}");
        }
        unit *= 1024;
    }
    unreachable!("64 bits end with E")
}

pub fn kib(bytes: u64) -> u64 {
    bytes.div_ceil(1024)
}

/// Half a mean year: older times, and future ones, show their year.
const RECENT: SignedDuration = SignedDuration::from_secs(31_556_952 / 2);

/// `ls -l`'s form, in this host's time zone.
pub fn listed(moment: Moment, now: Timestamp, zone: &TimeZone) -> String {
    let Some(at) = timestamp(moment) else { return moment.s.to_string() };
    let is_recent = at > now - RECENT && at <= now;
    at.to_zoned(zone.clone()).strftime(if is_recent { "%b %e %H:%M" } else { "%b %e  %Y" }).to_string()
}

/// `stat`'s form, with nanoseconds and the zone's offset.
pub fn whole(moment: Moment, zone: &TimeZone) -> String {
    let Some(at) = timestamp(moment) else { return moment.s.to_string() };
    at.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S.%9f %z").to_string()
}

/// RFC 3339 in UTC; `None` outside its years.
pub fn rfc3339(moment: Moment) -> Option<String> {
    timestamp(moment).map(|at| at.to_string())
}

fn timestamp(moment: Moment) -> Option<Timestamp> {
    // Nanoseconds count on from the second, also before 1970.
    Timestamp::from_second(moment.s).ok()?.checked_add(SignedDuration::from_nanos(moment.ns.into())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_for_people_are_those_of_coreutils() {
        for (n, expected) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10_137, "9.9K"),
            (10_138, "10K"),
            (10 << 20, "10M"),
            ((1 << 20) - 1, "1.0M"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(human(n), expected, "{n}");
        }
    }

    #[test]
    fn a_time_of_this_half_year_has_no_year() {
        let now: Timestamp = "2026-11-25T12:00:00Z".parse().unwrap();
        let shown = |text: &str| {
            let at: Timestamp = text.parse().unwrap();
            listed(Moment { s: at.as_second(), ns: 0 }, now, &TimeZone::UTC)
        };
        assert_eq!(shown("2026-11-05T03:04:05Z"), "Nov  5 03:04");
        assert_eq!(shown("2026-05-01T03:04:05Z"), "May  1  2026");
        assert_eq!(shown("2026-11-26T03:04:05Z"), "Nov 26  2026");
        assert_eq!(whole(Moment { s: -1, ns: 5 }, &TimeZone::UTC), "1969-12-31 23:59:59.000000005 +0000");
        assert_eq!(listed(Moment { s: i64::MAX, ns: 0 }, now, &TimeZone::UTC), i64::MAX.to_string());
    }
}
