//! Counts what each key has moved, and keeps it to its line's rate and bytes in a day.
//!
//! ```text
//!   ~/.local/state/haul/key-days     "day N", then "KEY BYTES" for each key that has a limit and moved something that day
//! ```
//! A day begins at midnight UTC. All sessions of a key count together, in both directions. The file is written every few seconds:
//! a restarted daemon goes on counting.

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use haul_job::{Error, Fault};
use haul_net::PublicKey;
use haul_transfer::own::{self, OwnDirectory, Weight};

use crate::limits::{DAYS_WRITTEN_EVERY, MAX_LIST_BYTES, RATE_BURST};
use crate::log::Log;

/// The limits of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyLimits {
    /// Bytes per second of all its sessions together.
    pub rate_bytes_per_s: Option<u64>,
    /// Sessions at once.
    pub sessions: Option<usize>,
    /// Bytes in a day of all its sessions together.
    pub day_bytes: Option<u64>,
}

pub(crate) struct Allowances {
    keys: Mutex<HashMap<PublicKey, Arc<Allowance>>>,
    file: Option<PathBuf>,
    written: Mutex<Instant>,
}

#[derive(Default)]
pub(crate) struct Allowance(Mutex<Count>);

#[derive(Clone, Copy, Default)]
struct Count {
    limits: KeyLimits,
    spent_until: Option<Instant>,
    /// Days since 1970.
    day: u64,
    bytes: u64,
    is_new: bool,
}

impl Allowances {
    /// Continues today's counts of an earlier daemon from this file.
    pub(crate) fn open(file: Option<PathBuf>, now: SystemTime) -> Self {
        let mut keys = HashMap::new();
        let text = file.as_deref().and_then(|file| read(file).ok()).unwrap_or_default();
        let mut lines = text.lines();
        let today = day(now);
        if lines.next().and_then(|line| line.strip_prefix("day ")) == Some(today.to_string().as_str()) {
            for (key, bytes) in lines.filter_map(|line| line.split_once(' ')) {
                if let (Ok(key), Ok(bytes)) = (key.parse(), bytes.parse()) {
                    let count = Count { day: today, bytes, ..Count::default() };
                    keys.insert(key, Arc::new(Allowance(Mutex::new(count))));
                }
            }
        }
        Self { keys: Mutex::new(keys), file, written: Mutex::new(Instant::now()) }
    }

    pub(crate) fn of(&self, key: &PublicKey, limits: KeyLimits) -> Arc<Allowance> {
        let allowance = Arc::clone(lock(&self.keys).entry(*key).or_default());
        lock(&allowance.0).limits = limits;
        allowance
    }

    pub(crate) fn write_down(&self, at_once: bool, log: &Log) {
        let Some(file) = &self.file else { return };
        let mut written = lock(&self.written);
        if !at_once && written.elapsed() < DAYS_WRITTEN_EVERY {
            return;
        }
        *written = Instant::now();
        let today = day(SystemTime::now());
        let (mut text, mut is_new) = (format!("day {today}\n"), false);
        for (key, allowance) in &*lock(&self.keys) {
            let mut count = lock(&allowance.0);
            is_new |= std::mem::take(&mut count.is_new);
            if count.limits.day_bytes.is_some() && count.day == today {
                text.push_str(&format!("{key} {}\n", count.bytes));
            }
        }
        if is_new && let Err(error) = write(file, &text) {
            log.warn(&format!("warning: what keys have moved today cannot be kept in {}: {error}", file.display()));
        }
    }
}

fn read(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    own::open(file, Weight::Obeyed)?.take(MAX_LIST_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

fn write(file: &Path, text: &str) -> io::Result<()> {
    let directory = OwnDirectory::make(file.parent().unwrap_or(Path::new("/")))?;
    let mut out = directory.begin(file.file_name().unwrap_or_default(), 0o600)?;
    out.write_all(text.as_bytes())?;
    out.publish()
}

impl Allowance {
    /// Counts bytes about to be moved, and returns how long to wait first.
    ///
    /// # Errors
    /// The key has moved all that it may today.
    pub(crate) fn spend(&self, bytes: u64, now: Instant, time: SystemTime) -> Result<Duration, Error> {
        let mut count = lock(&self.0);
        let KeyLimits { rate_bytes_per_s, day_bytes, .. } = count.limits;
        if let Some(most) = day_bytes {
            count.turn_to(day(time));
            count.bytes = count.bytes.saturating_add(bytes);
            count.is_new = true;
            if count.bytes > most {
                return Err(spent(most, time));
            }
        }
        let Some(rate) = rate_bytes_per_s else { return Ok(Duration::ZERO) };
        let cost_ns = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
        let cost = Duration::from_nanos(u64::try_from(cost_ns).unwrap_or(u64::MAX));
        // A late timer may catch up.
        let earliest = now.checked_sub(RATE_BURST).unwrap_or(now);
        let until = count.spent_until.map_or(now, |until| until.max(earliest)) + cost;
        count.spent_until = Some(until);
        Ok(until.saturating_duration_since(now))
    }
}

impl Count {
    fn turn_to(&mut self, day: u64) {
        if self.day != day {
            (self.day, self.bytes) = (day, 0);
        }
    }
}

fn spent(most: u64, time: SystemTime) -> Error {
    let left_min = (DAY_S - seconds(time) % DAY_S).div_ceil(60);
    let left = match (left_min / 60, left_min % 60) {
        (0, minutes) => format!("{minutes} min"),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    };
    Error::new(Fault::Allowance, "this key has moved all the bytes that it may in a day")
        .because(format!("the daemon lets it move {most} bytes a day"))
        .try_this(format!(
            "run the same command again after midnight UTC (in {left}): what is verified is not sent again"
        ))
}

const DAY_S: u64 = 24 * 60 * 60;

fn day(time: SystemTime) -> u64 {
    seconds(time) / DAY_S
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const KEY: PublicKey = PublicKey([7; 32]);

    fn at(day: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs((day + 1) * DAY_S - 76 * 60)
    }

    #[test]
    fn all_lanes_of_a_key_share_its_rate() {
        let limits = KeyLimits { rate_bytes_per_s: Some(1_000_000), ..KeyLimits::default() };
        let allowances = Allowances::open(None, at(1));
        let (one, two) = (allowances.of(&KEY, limits), allowances.of(&KEY, limits));
        let now = Instant::now();
        let wait = |of: &Allowance| of.spend(250_000, now, at(1)).unwrap().as_millis();
        assert_eq!([wait(&one), wait(&two), wait(&one), wait(&two)], [250, 500, 750, 1000]);
        let other = allowances.of(&PublicKey([8; 32]), KeyLimits::default());
        assert_eq!(wait(&other), 0);
    }

    #[test]
    fn a_day_ends_at_midnight_and_goes_on_with_the_next_daemon() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("state/key-days");
        let limits = KeyLimits { day_bytes: Some(1000), ..KeyLimits::default() };
        let today = day(SystemTime::now());
        let allowances = Allowances::open(Some(file.clone()), at(today));
        let spend = |of: &Allowances, bytes, day| of.of(&KEY, limits).spend(bytes, Instant::now(), at(day));
        assert_eq!(spend(&allowances, 600, today), Ok(Duration::ZERO));
        let log = Log::new(true, crate::log::Form::Text, Box::new(drop));
        allowances.write_down(true, &log);
        let next = Allowances::open(Some(file.clone()), at(today));
        assert_eq!(spend(&next, 400, today), Ok(Duration::ZERO), "what it may, to the last byte");
        let refused = spend(&next, 1, today).unwrap_err();
        assert_eq!(refused.fault, Fault::Allowance);
        assert!(refused.hint.unwrap().contains("after midnight UTC (in 1 h 16 min)"));
        assert!(refused.cause.unwrap().contains("1000 bytes a day"));
        assert_eq!(spend(&next, 1000, today + 1), Ok(Duration::ZERO));
        assert_eq!(spend(&Allowances::open(Some(file.clone()), at(today + 1)), 1000, today + 1), Ok(Duration::ZERO));
        fs::write(&file, format!("day {today}\nnonsense\n{KEY} much\n")).unwrap();
        assert_eq!(spend(&Allowances::open(Some(file), at(today)), 1000, today), Ok(Duration::ZERO));
    }
}
