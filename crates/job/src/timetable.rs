//! A rate limit that changes with the time of day: `08:00-18:00 200Mbit, else 5Gbit`.

use std::fmt;

use crate::rate::parse_rate;

/// The limit of the rate at each minute of a day.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timetable {
    windows: Vec<Window>,
    otherwise: Option<u64>,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    /// The first minute, and the one after the last, maybe past midnight.
    from: u16,
    to: u16,
    bytes_per_s: Option<u64>,
}

/// A minute of the day (0 to 1439).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MinuteOfDay(u16);

impl MinuteOfDay {
    /// Takes a time, if a clock shows it.
    pub fn new(hour: u16, minute: u16) -> Option<Self> {
        (hour < 24 && minute < 60).then_some(Self(hour * 60 + minute))
    }
}

impl Window {
    fn has(&self, minute: u16) -> bool {
        if self.from < self.to {
            (self.from..self.to).contains(&minute)
        } else {
            minute >= self.from || minute < self.to
        }
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, .. } = self;
        write!(f, "{:02}:{:02}-{:02}:{:02}", from / 60, from % 60, to / 60, to % 60)
    }
}

impl Timetable {
    /// Makes a constant limit, or none.
    pub fn always(bytes_per_s: Option<u64>) -> Self {
        Self { otherwise: bytes_per_s, ..Self::default() }
    }

    /// The limit in bytes per second; `None`: no limit.
    pub fn at(&self, MinuteOfDay(minute): MinuteOfDay) -> Option<u64> {
        self.windows.iter().find(|window| window.has(minute)).map_or(self.otherwise, |window| window.bytes_per_s)
    }

    /// Whether the limit changes with time.
    pub fn changes(&self) -> bool {
        !self.windows.is_empty()
    }

    /// The typed words, if any.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Parses `--rate`: a rate with unit, `unlimited`, or a timetable.
pub fn parse_timetable(text: &str) -> Result<Timetable, String> {
    if text.len() > MAX_TEXT_BYTES {
        return Err("that is too long".to_owned());
    }
    let mut table = Timetable { text: text.trim().to_owned(), ..Timetable::default() };
    if !text.contains([':', ',']) && !text.trim_start().starts_with(ELSE) {
        return Ok(Timetable { otherwise: limit(text.trim())?, ..table });
    }
    let mut has_else = false;
    for part in text.split(',').map(str::trim) {
        if has_else {
            return Err("'else RATE' comes last, and once".to_owned());
        }
        if let Some(rate) = part.strip_prefix(ELSE) {
            (table.otherwise, has_else) = (limit(rate.trim())?, true);
            continue;
        }
        let window = window(part)?;
        if let Some(other) = table.windows.iter().find(|other| (0..DAY).any(|at| other.has(at) && window.has(at))) {
            return Err(format!("the windows {other} and {window} overlap"));
        }
        if table.windows.len() == MAX_WINDOWS {
            return Err(format!("more than {MAX_WINDOWS} windows"));
        }
        table.windows.push(window);
    }
    if table.windows.is_empty() {
        return Err("'else' has no window before it, as in \"08:00-18:00 200Mbit, else 5Gbit\"".to_owned());
    }
    Ok(table)
}

fn window(part: &str) -> Result<Window, String> {
    let wrong = || format!("'{part}' is no window such as '08:00-18:00 200Mbit'");
    let (times, rate) = part.split_once(char::is_whitespace).ok_or_else(wrong)?;
    let (from, to) = times.split_once('-').ok_or_else(wrong)?;
    let (from, to) = (minute(from).ok_or_else(wrong)?, minute(to).ok_or_else(wrong)?);
    let (from, to) = (from % DAY, if to == DAY && from != 0 { 0 } else { to });
    if from == to {
        return Err(format!("the window '{times}' has no length; a rate without a window holds all day"));
    }
    Ok(Window { from, to, bytes_per_s: limit(rate.trim())? })
}

fn minute(text: &str) -> Option<u16> {
    let (hour, minute) = text.split_once(':')?;
    let number = |digits: &str, most: usize| {
        let is_number = (1..=most).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| digits.parse::<u16>().ok()).flatten()
    };
    let (hour, minute) = (number(hour, 2)?, number(minute, 2).filter(|_| minute.len() == 2)?);
    if (hour, minute) == (24, 0) { Some(DAY) } else { MinuteOfDay::new(hour, minute).map(|at| at.0) }
}

fn limit(text: &str) -> Result<Option<u64>, String> {
    if NO_LIMIT.contains(&text) { Ok(None) } else { parse_rate(text).map(Some) }
}

const ELSE: &str = "else ";

const NO_LIMIT: [&str; 2] = ["unlimited", "none"];

/// Minutes.
const DAY: u16 = 24 * 60;

/// One for each half hour.
const MAX_WINDOWS: usize = 48;

/// Holds so many windows, with some space.
const MAX_TEXT_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    const MBIT: u64 = 125_000;

    #[track_caller]
    fn check(text: &str, expected: &[(u16, u16, Option<u64>)]) {
        let table = parse_timetable(text).unwrap();
        for (hour, minute, mbit) in expected {
            let at = table.at(MinuteOfDay::new(*hour, *minute).unwrap());
            assert_eq!(at, mbit.map(|mbit| mbit * MBIT), "{text} at {hour}:{minute:02}");
        }
    }

    #[test]
    fn each_window_has_its_limit_and_else_has_the_rest() {
        check(
            "08:00-18:00 200Mbit, else 5Gbit",
            &[(7, 59, Some(5000)), (8, 0, Some(200)), (17, 59, Some(200)), (18, 0, Some(5000)), (0, 0, Some(5000))],
        );
        check(
            "08:00-12:00 1Mbit,13:00-18:00 2Mbit",
            &[(8, 0, Some(1)), (12, 30, None), (13, 0, Some(2)), (20, 0, None)],
        );
        check("8:00-18:00 unlimited, else 1 Mbit", &[(9, 0, None), (19, 0, Some(1))]);
        check("8:00-18:00 1Mbit, else unlimited", &[(9, 0, Some(1)), (19, 0, None)]);
    }

    #[test]
    fn a_window_may_go_over_midnight_or_end_with_the_day() {
        check(
            "22:00-06:00 1Mbit",
            &[(21, 59, None), (22, 0, Some(1)), (0, 0, Some(1)), (5, 59, Some(1)), (6, 0, None)],
        );
        check("18:00-24:00 1Mbit, 00:00-08:00 2Mbit", &[(23, 59, Some(1)), (0, 0, Some(2)), (8, 0, None)]);
        check("00:00-24:00 1Mbit", &[(0, 0, Some(1)), (12, 0, Some(1)), (23, 59, Some(1))]);
    }

    #[test]
    fn a_plain_rate_holds_all_day() {
        check("200Mbit", &[(0, 0, Some(200)), (23, 59, Some(200))]);
        check("none", &[(0, 0, None)]);
        assert!(!parse_timetable("200Mbit").unwrap().changes());
    }

    #[test]
    fn what_is_no_timetable_is_refused_with_a_word() {
        for (text, why) in [
            ("08:00-18:00 1Mbit, 17:00-19:00 2Mbit", "the windows 08:00-18:00 and 17:00-19:00 overlap"),
            ("22:00-06:00 1Mbit, 05:00-07:00 2Mbit", "the windows 22:00-06:00 and 05:00-07:00 overlap"),
            ("08:00-08:00 1Mbit", "the window '08:00-08:00' has no length; a rate without a window holds all day"),
            ("08:00-18:00", "'08:00-18:00' is no window such as '08:00-18:00 200Mbit'"),
            ("8-18 1Mbit, else 2Mbit", "'8-18 1Mbit' is no window such as '08:00-18:00 200Mbit'"),
            ("08:00-25:00 1Mbit", "'08:00-25:00 1Mbit' is no window such as '08:00-18:00 200Mbit'"),
            ("08:60-09:00 1Mbit", "'08:60-09:00 1Mbit' is no window such as '08:00-18:00 200Mbit'"),
            ("+8:00-09:00 1Mbit", "'+8:00-09:00 1Mbit' is no window such as '08:00-18:00 200Mbit'"),
            ("else 1Mbit, 08:00-18:00 2Mbit", "'else RATE' comes last, and once"),
            ("08:00-18:00 1Mbit, else 2Mbit, else 3Mbit", "'else RATE' comes last, and once"),
            ("else 1Mbit", "'else' has no window before it, as in \"08:00-18:00 200Mbit, else 5Gbit\""),
            ("08:00-18:00 1Mbit,", "'' is no window such as '08:00-18:00 200Mbit'"),
            ("08:00-18:00 100, else 2Mbit", "a rate needs a unit: 100Mbit is bits per second, 100MB bytes per second"),
        ] {
            assert_eq!(parse_timetable(text).unwrap_err(), why, "{text}");
        }
        assert!(parse_timetable(&"0".repeat(5000)).is_err());
    }
}
