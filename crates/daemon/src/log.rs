//! Lines on standard error, each with its time, safe for a terminal whatever a peer called itself.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::limits::MAX_LINE_BYTES;

/// Where the daemon says what happens.
pub(crate) struct Log {
    /// Only what needs somebody's attention is said.
    pub(crate) quiet: bool,
}

impl Log {
    /// What happens in the ordinary course.
    pub(crate) fn say(&self, text: &str) {
        if !self.quiet {
            self.warn(text);
        }
    }

    /// The one or the other.
    pub(crate) fn tell(&self, text: &str, matters: bool) {
        if matters { self.warn(text) } else { self.say(text) }
    }

    /// What somebody should look at.
    pub(crate) fn warn(&self, text: &str) {
        let line = line(SystemTime::now(), text);
        // A daemon whose log is gone serves on.
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    }
}

/// One line, however long a path a peer named.
fn line(now: SystemTime, text: &str) -> String {
    let end = (0..=MAX_LINE_BYTES.min(text.len())).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    let told = &text[..end];
    let more = if told.len() < text.len() { " ..." } else { "" };
    format!("{} {}{more}\n", timestamp(now), escaped(told.as_bytes()))
}

/// The bytes as text of one line that cannot drive a terminal.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if haul_transfer::drives_terminal(c) {
                let _ = write!(text, "\\u{{{:x}}}", c as u32);
            } else {
                text.push(c);
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// The time in UTC, as RFC 3339 has it.
fn timestamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let (days, second_of_day) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since.subsec_millis())
}

/// Year, month and day of a day since 1970, by way of years that begin in March, so that leap days come last
/// (H. Hinnant, "chrono-compatible low-level date algorithms", `civil_from_days`).
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        let at = |seconds, ms| timestamp(UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_millis(ms));
        assert_eq!(at(0, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(951_782_399, 999), "2000-02-28T23:59:59.999Z");
        assert_eq!(at(951_782_400, 0), "2000-02-29T00:00:00.000Z");
        assert_eq!(at(1_735_689_600, 7), "2025-01-01T00:00:00.007Z");
        assert_eq!(at(4_107_542_400, 0), "2100-03-01T00:00:00.000Z");
    }

    #[test]
    fn a_peer_cannot_write_lines_of_its_own() {
        assert_eq!(escaped("two\nlines \x1b[31m ünï \u{202e}".as_bytes()), r"two\u{a}lines \u{1b}[31m ünï \u{202e}");
        assert_eq!(escaped(b"\xff."), r"\xff.");
        let line = line(UNIX_EPOCH, &"ü\n".repeat(1 << 20));
        assert!(line.len() < 4 * MAX_LINE_BYTES && line.ends_with(" ...\n"), "{} bytes", line.len());
        assert_eq!(line.matches('\n').count(), 1);
    }
}
