//! Lines of the log, each with its time. Whatever a peer called itself, they are safe for a terminal.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use haul_net::PublicKey;

use crate::limits::{LOGGED_BYTES_PER_KEY_AND_MINUTE, MAX_LINE_BYTES, MAX_SOON_BYTES, REFUSALS_LOGGED_PER_MINUTE};

/// Takes a line of the log, with its line feed. It has to return at once, because threads of handshakes and sessions
/// call it.
pub type WriteLine = dyn Fn(String) + Send + Sync;

/// The form of the lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// The time, and words.
    #[default]
    Text,
    /// One JSON object a line: `time`, `level` (`info` or `warning`), `message`, and where they are known `key`, `session`, `client`. The end
    /// of a session has `files`, `bytes`, `failed` and `took_ms`.
    Json,
}

/// Whose session a line is about.
pub(crate) struct Visitor<'a> {
    pub(crate) key: &'a PublicKey,
    pub(crate) number: u64,
    pub(crate) who: &'a str,
}

/// A line, before it has a form.
struct Entry<'a> {
    text: &'a str,
    /// The operator should look at it.
    matters: bool,
    key: Option<&'a PublicKey>,
    session: Option<&'a Visitor<'a>>,
    numbers: &'a [(&'static str, u64)],
}

impl<'a> Entry<'a> {
    fn new(text: &'a str, matters: bool) -> Self {
        Self { text, matters, key: None, session: None, numbers: &[] }
    }
}

/// The log of the daemon.
pub(crate) struct Log {
    write: Box<WriteLine>,
    form: Form,
    /// Only warnings are logged.
    quiet: bool,
    minute: Mutex<Minute>,
    /// Lines that [`Log::flush`] writes together.
    soon: Mutex<String>,
}

impl Log {
    pub(crate) fn new(quiet: bool, form: Form, write: Box<WriteLine>) -> Log {
        Log { write, form, quiet, minute: Mutex::default(), soon: Mutex::default() }
    }

    /// Whether ordinary events are left out.
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Logs an ordinary event.
    pub(crate) fn say(&self, text: &str) {
        if !self.quiet {
            self.put(&Entry::new(text, false));
        }
    }

    /// Logs an ordinary event of which there may be thousands in a second: with the next [`Log::flush`]. A line of its
    /// own wakes the thread that writes, which costs more than a small answer.
    pub(crate) fn say_soon(&self, text: &str) {
        if self.quiet {
            return;
        }
        let line = self.line(&Entry::new(text, false));
        let mut soon = self.soon.lock().unwrap_or_else(PoisonError::into_inner);
        soon.push_str(&line);
        if soon.len() >= MAX_SOON_BYTES {
            (self.write)(std::mem::take(&mut *soon));
        }
    }

    /// Writes the lines that wait.
    pub(crate) fn flush(&self) {
        let soon = std::mem::take(&mut *self.soon.lock().unwrap_or_else(PoisonError::into_inner));
        if !soon.is_empty() {
            (self.write)(soon);
        }
    }

    /// Logs a warning if the event matters, and else an ordinary event.
    pub(crate) fn tell(&self, text: &str, matters: bool) {
        if matters { self.warn(text) } else { self.say(text) }
    }

    /// Logs a warning, for the operator to look at.
    pub(crate) fn warn(&self, text: &str) {
        self.put(&Entry::new(text, true));
    }

    fn put(&self, entry: &Entry<'_>) {
        (self.write)(self.line(entry));
    }

    fn line(&self, entry: &Entry<'_>) -> String {
        let now = SystemTime::now();
        match self.form {
            Form::Text => match entry.session {
                Some(Visitor { number, who, .. }) => line(now, &format!("session {number}: {who} {}", entry.text)),
                None => line(now, entry.text),
            },
            Form::Json => json_line(now, entry),
        }
    }

    /// Logs a warning about a peer whose key is not in the list.
    pub(crate) fn warn_of_stranger(&self, text: &str) {
        if self.minute().has_room_for_stranger(Instant::now()) {
            self.warn(text);
        }
    }

    /// Logs what a key of the list did, as a warning if it matters.
    pub(crate) fn tell_of(&self, key: &PublicKey, text: &str, matters: bool) {
        self.put_of(key, &Entry { key: Some(key), ..Entry::new(text, matters) });
    }

    /// The same of one of its sessions. `numbers` are fields of their own in JSON.
    pub(crate) fn tell_of_session(
        &self,
        visitor: &Visitor<'_>,
        text: &str,
        matters: bool,
        numbers: &[(&'static str, u64)],
    ) {
        let (key, session) = (Some(visitor.key), Some(visitor));
        self.put_of(visitor.key, &Entry { text, matters, key, session, numbers });
    }

    fn put_of(&self, key: &PublicKey, entry: &Entry<'_>) {
        if self.quiet && !entry.matters {
            return;
        }
        let line = self.line(entry);
        let room = self.minute().room_for(key, line.len(), Instant::now());
        match room {
            Room::Enough => (self.write)(line),
            Room::NoMore => {
                self.warn(&format!("the key {key} causes more than is logged in a minute; the rest is left out"))
            }
            Room::None => {}
        }
    }

    fn minute(&self) -> std::sync::MutexGuard<'_, Minute> {
        self.minute.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How much peers have caused in this minute. No peer may fill the disk of the log, or hide behind the lines of
/// another peer.
#[derive(Default)]
struct Minute {
    begun: Option<Instant>,
    strangers: u32,
    /// Bytes for each key of the list.
    keys: HashMap<PublicKey, usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    Enough,
    /// This line is the first without room.
    NoMore,
    None,
}

impl Minute {
    fn has_room_for_stranger(&mut self, now: Instant) -> bool {
        self.begin(now);
        self.strangers += 1;
        self.strangers <= REFUSALS_LOGGED_PER_MINUTE
    }

    fn room_for(&mut self, key: &PublicKey, bytes: usize, now: Instant) -> Room {
        self.begin(now);
        let logged = self.keys.entry(*key).or_default();
        if *logged > LOGGED_BYTES_PER_KEY_AND_MINUTE {
            return Room::None;
        }
        *logged += bytes;
        if *logged > LOGGED_BYTES_PER_KEY_AND_MINUTE { Room::NoMore } else { Room::Enough }
    }

    fn begin(&mut self, now: Instant) {
        if self.begun.is_none_or(|begun| now.duration_since(begun) >= MINUTE) {
            *self = Minute { begun: Some(now), ..Minute::default() };
        }
    }
}

const MINUTE: Duration = Duration::from_secs(60);

fn line(now: SystemTime, text: &str) -> String {
    format!("{} {}\n", timestamp(now), cut(text))
}

fn json_line(now: SystemTime, entry: &Entry<'_>) -> String {
    let mut object = serde_json::Map::new();
    let mut add = |name: &str, value: serde_json::Value| drop(object.insert(name.to_owned(), value));
    add("time", timestamp(now).into());
    add("level", if entry.matters { "warning" } else { "info" }.into());
    if let Some(key) = entry.key {
        add("key", key.to_string().into());
    }
    if let Some(Visitor { number, who, .. }) = entry.session {
        add("session", (*number).into());
        add("client", cut(who).into());
    }
    add("message", cut(entry.text).into());
    entry.numbers.iter().for_each(|(name, number)| add(name, (*number).into()));
    format!("{}\n", serde_json::Value::Object(object))
}

/// Safe for a terminal, and cut where a peer sent a very long path.
fn cut(text: &str) -> String {
    let end = (0..=MAX_LINE_BYTES.min(text.len())).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    let told = &text[..end];
    let more = if told.len() < text.len() { " ..." } else { "" };
    format!("{}{more}", escaped(told.as_bytes()))
}

/// The bytes as text of one line. A terminal obeys nothing in it.
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

/// The time in UTC, in the form of RFC 3339.
fn timestamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let (days, second_of_day) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since.subsec_millis())
}

/// Year, month and day of a day since 1970. It counts in years that begin in March, so that leap days come last (H.
/// Hinnant, "chrono-compatible low-level date algorithms", `civil_from_days`).
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
    fn a_flood_of_refusals_does_not_flood_the_log() {
        let (mut minute, now) = (Minute::default(), Instant::now());
        let lines = (0..1000).filter(|_| minute.has_room_for_stranger(now)).count();
        assert_eq!(lines, REFUSALS_LOGGED_PER_MINUTE as usize);
        assert!(minute.has_room_for_stranger(now + MINUTE));
    }

    #[test]
    fn no_key_floods_the_log_nor_hides_what_another_does() {
        let (mut minute, now) = (Minute::default(), Instant::now());
        let (busy, other) = (PublicKey([1; 32]), PublicKey([2; 32]));
        for bytes in [100, MAX_LINE_BYTES] {
            let rooms: Vec<Room> = (0..10_000).map(|_| minute.room_for(&busy, bytes, now)).collect();
            let enough = LOGGED_BYTES_PER_KEY_AND_MINUTE / bytes;
            assert!(rooms[..enough].iter().all(|room| *room == Room::Enough));
            assert_eq!(rooms[enough], Room::NoMore, "it is said once that there is more");
            assert!(rooms[enough + 1..].iter().all(|room| *room == Room::None));
            assert_eq!(minute.room_for(&other, bytes, now), Room::Enough);
            assert!(minute.has_room_for_stranger(now));
            minute.begin(now + MINUTE);
            assert!(minute.keys.is_empty());
            minute.begun = Some(now);
        }
    }

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

    #[test]
    fn a_line_of_json_has_what_is_known_in_fields() {
        let key = PublicKey([1; 32]);
        let visitor = Visitor { key: &key, number: 7, who: "alice (\u{1b}[1m)" };
        let entry =
            Entry { key: Some(&key), session: Some(&visitor), numbers: &[("bytes", 5)], ..Entry::new("a\nb", true) };
        let line = json_line(UNIX_EPOCH, &entry);
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        let expected = serde_json::json!({
            "time": "1970-01-01T00:00:00.000Z", "level": "warning", "key": key.to_string(), "session": 7,
            "client": "alice (\\u{1b}[1m)", "message": "a\\u{a}b", "bytes": 5,
        });
        assert_eq!((value, line.matches('\n').count()), (expected, 1));
        let line = json_line(UNIX_EPOCH, &Entry::new("listening", false));
        assert_eq!(line, "{\"level\":\"info\",\"message\":\"listening\",\"time\":\"1970-01-01T00:00:00.000Z\"}\n");
    }
}
