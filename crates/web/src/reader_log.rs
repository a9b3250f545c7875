//! Lines of the log about readers. Nobody can fill the disk with them, or hide behind the lines of another.
//!
//! A stranger has so many bytes of the log in a minute by address, all strangers together have more, and the holder of a line has the most.
//! What is left out is counted, and told at the end of the minute.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::limits::{LOGGED_BYTES_PER_HOLDER_AND_MINUTE, LOGGED_BYTES_PER_MINUTE, LOGGED_BYTES_PER_SOURCE_AND_MINUTE};

/// Takes a line for the log: its text, and whether it matters to an operator who reads only warnings.
pub type Tell = Arc<dyn Fn(&str, bool) + Send + Sync>;

/// The log, as far as it is about readers.
pub(crate) struct ReaderLog {
    /// `None`: requests are not logged.
    tell: Option<Tell>,
    minute: Mutex<Minute>,
}

/// Whom a line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum About {
    /// Anybody, by address.
    Stranger(IpAddr),
    /// The holder of a line of the list, by its name.
    Holder(u64),
}

impl About {
    pub(crate) fn holder(name: &str) -> About {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        About::Holder(hasher.finish())
    }
}

#[derive(Default)]
struct Minute {
    begun: Option<Instant>,
    of_strangers: usize,
    bytes: HashMap<About, usize>,
    left_out: u64,
    /// The first stranger of whom a line was left out.
    first_left_out: Option<IpAddr>,
}

impl ReaderLog {
    pub(crate) fn new(tell: Option<Tell>) -> ReaderLog {
        ReaderLog { tell, minute: Mutex::default() }
    }

    /// Logs a line, if there is room for it.
    pub(crate) fn about(&self, whom: About, now: Instant, line: impl FnOnce() -> String) {
        let Some(tell) = &self.tell else { return };
        self.end_minute(now);
        if !self.lock().has_room(whom) {
            return;
        }
        let line = line();
        self.lock().count(whom, line.len());
        tell(&line, false);
    }

    /// Logs a line for the operator to look at. It is no reader's to cause often.
    pub(crate) fn warn(&self, line: &str) {
        if let Some(tell) = &self.tell {
            tell(line, true);
        }
    }

    /// Tells what was left out of a minute that is over.
    pub(crate) fn end_minute(&self, now: Instant) {
        let Some(tell) = &self.tell else { return };
        let mut minute = self.lock();
        if minute.begun.is_some_and(|begun| now.saturating_duration_since(begun) < MINUTE) {
            return;
        }
        let Minute { left_out, first_left_out, .. } =
            std::mem::replace(&mut *minute, Minute { begun: Some(now), ..Minute::default() });
        drop(minute);
        if left_out > 0 {
            let first = first_left_out.map_or_else(|| "a holder".to_owned(), |address| address.to_string());
            tell(
                &format!("web: {left_out} lines about readers were left out in a minute, the first about {first}"),
                true,
            );
        }
    }

    fn lock(&self) -> MutexGuard<'_, Minute> {
        self.minute.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Minute {
    fn has_room(&mut self, whom: About) -> bool {
        let logged = self.bytes.get(&whom).copied().unwrap_or(0);
        let has_room = match whom {
            About::Stranger(_) => {
                logged < LOGGED_BYTES_PER_SOURCE_AND_MINUTE && self.of_strangers < LOGGED_BYTES_PER_MINUTE
            }
            About::Holder(_) => logged < LOGGED_BYTES_PER_HOLDER_AND_MINUTE,
        };
        if !has_room {
            self.left_out += 1;
            if let (About::Stranger(address), None) = (whom, self.first_left_out) {
                self.first_left_out = Some(address);
            }
        }
        has_room
    }

    fn count(&mut self, whom: About, bytes: usize) {
        *self.bytes.entry(whom).or_default() += bytes;
        if matches!(whom, About::Stranger(_)) {
            self.of_strangers += bytes;
        }
    }
}

const MINUTE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn stranger(number: u16) -> About {
        let [high, low] = number.to_be_bytes();
        About::Stranger(Ipv4Addr::new(198, 51, high, low).into())
    }

    #[test]
    fn a_flood_of_requests_fills_no_disk_and_hides_nobody() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&lines);
        let log = ReaderLog::new(Some(Arc::new(move |line, _| told.lock().unwrap().push(line.to_owned()))));
        let begun = Instant::now();
        let line = || "x".repeat(128);
        for _ in 0..10_000 {
            log.about(stranger(1), begun, line);
        }
        let of_one = LOGGED_BYTES_PER_SOURCE_AND_MINUTE / 128;
        assert_eq!(lines.lock().unwrap().len(), of_one);
        log.about(stranger(2), begun, || "another".to_owned());
        assert_eq!(lines.lock().unwrap().last().unwrap(), "another");
        for number in 3..1_000 {
            for _ in 0..100 {
                log.about(stranger(number), begun, line);
            }
        }
        let logged: usize = lines.lock().unwrap().iter().map(String::len).sum();
        assert!((LOGGED_BYTES_PER_MINUTE..LOGGED_BYTES_PER_MINUTE + 256).contains(&logged), "{logged}");
        log.about(About::holder("lab"), begun, || "a holder".to_owned());
        assert_eq!(lines.lock().unwrap().last().unwrap(), "a holder", "strangers do not hide who is known");
        log.end_minute(begun + MINUTE / 2);
        assert_eq!(lines.lock().unwrap().last().unwrap(), "a holder");
        log.end_minute(begun + MINUTE);
        let told = lines.lock().unwrap().last().unwrap().clone();
        assert!(told.contains("lines about readers were left out") && told.ends_with("198.51.0.1"), "{told}");
        log.about(stranger(1), begun + MINUTE, || "a new minute".to_owned());
        assert_eq!(lines.lock().unwrap().last().unwrap(), "a new minute");
    }
}
