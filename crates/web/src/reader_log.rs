//! Lines of the log about readers. No reader can fill the disk with them, or hide behind another's: each minute has bytes for a
//! stranger's address, more for the holder of a line, most for all strangers together. Lines left out are counted.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::limits::{LOGGED_BYTES_PER_HOLDER_AND_MINUTE, LOGGED_BYTES_PER_MINUTE, LOGGED_BYTES_PER_SOURCE_AND_MINUTE};

/// Takes a line for the log.
pub type Tell = Arc<dyn Fn(&Told<'_>) + Send + Sync>;

/// A line for the log.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    /// The whole line.
    pub text: &'a str,
    /// Whether it is a warning.
    pub matters: bool,
    /// The request of the line.
    pub request: Option<&'a Answered>,
}

impl<'a> Told<'a> {
    pub(crate) fn new(text: &'a str, matters: bool) -> Self {
        Self { text, matters, request: None }
    }
}

/// An answered request, for logs that have fields.
#[derive(Clone, Debug)]
pub struct Answered {
    /// The reader's name in the list, if it has shown something of the list.
    pub name: Option<String>,
    /// The address of the reader.
    pub from: SocketAddr,
    /// The network class of the address.
    pub class: Option<String>,
    /// The method of HTTP.
    pub method: String,
    /// The path, cut as in the text.
    pub path: String,
    /// The status of HTTP.
    pub status: u16,
    /// The bytes of the body that left.
    pub bytes: u64,
    /// The time until the last of them.
    pub took: Duration,
}

pub(crate) struct ReaderLog {
    tell: Option<Tell>,
    minute: Mutex<Minute>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum About {
    Stranger(IpAddr),
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
    first_left_out: Option<IpAddr>,
}

impl ReaderLog {
    pub(crate) fn new(tell: Option<Tell>) -> ReaderLog {
        ReaderLog { tell, minute: Mutex::default() }
    }

    pub(crate) fn about(&self, whom: About, now: Instant, line: impl FnOnce() -> (String, Option<Answered>)) {
        let Some(tell) = &self.tell else { return };
        self.end_minute(now);
        if !self.lock().has_room(whom) {
            return;
        }
        let (text, request) = line();
        self.lock().count(whom, text.len());
        tell(&Told { text: &text, matters: false, request: request.as_ref() });
    }

    /// Logs a line that no reader can cause often.
    pub(crate) fn warn(&self, line: &str) {
        if let Some(tell) = &self.tell {
            tell(&Told::new(line, true));
        }
    }

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
            let text =
                format!("web: {left_out} lines about readers were left out in a minute, the first about {first}");
            tell(&Told::new(&text, true));
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
        let log = ReaderLog::new(Some(Arc::new(move |line| told.lock().unwrap().push(line.text.to_owned()))));
        let begun = Instant::now();
        let line = || ("x".repeat(128), None);
        for _ in 0..10_000 {
            log.about(stranger(1), begun, line);
        }
        let of_one = LOGGED_BYTES_PER_SOURCE_AND_MINUTE / 128;
        assert_eq!(lines.lock().unwrap().len(), of_one);
        log.about(stranger(2), begun, || ("another".to_owned(), None));
        assert_eq!(lines.lock().unwrap().last().unwrap(), "another");
        for number in 3..1_000 {
            for _ in 0..100 {
                log.about(stranger(number), begun, line);
            }
        }
        let logged: usize = lines.lock().unwrap().iter().map(String::len).sum();
        assert!((LOGGED_BYTES_PER_MINUTE..LOGGED_BYTES_PER_MINUTE + 256).contains(&logged), "{logged}");
        log.about(About::holder("lab"), begun, || ("a holder".to_owned(), None));
        assert_eq!(lines.lock().unwrap().last().unwrap(), "a holder", "strangers do not hide who is known");
        log.end_minute(begun + MINUTE / 2);
        assert_eq!(lines.lock().unwrap().last().unwrap(), "a holder");
        log.end_minute(begun + MINUTE);
        let told = lines.lock().unwrap().last().unwrap().clone();
        assert!(told.contains("lines about readers were left out") && told.ends_with("198.51.0.1"), "{told}");
        log.about(stranger(1), begun + MINUTE, || ("a new minute".to_owned(), None));
        assert_eq!(lines.lock().unwrap().last().unwrap(), "a new minute");
    }
}
