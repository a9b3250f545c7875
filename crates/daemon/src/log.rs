//! Writes the log, each line with its time and safe for a terminal, whatever a peer called itself.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use haul_net::PublicKey;
use haul_web::Answered;

use crate::limits::{
    ENTRY_BYTES_PER_KEY_AND_MINUTE, LOGGED_BYTES_PER_KEY_AND_MINUTE, MAX_LINE_BYTES, MAX_SOON_BYTES,
    REFUSALS_LOGGED_PER_MINUTE,
};

/// Takes a line of the log with its line feed. Threads of sessions call it, so it returns at once.
pub type WriteLine = dyn Fn(String) + Send + Sync;

/// The form of the lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// The time, and words.
    #[default]
    Text,
    /// One JSON object a line: `time`, `level` (`info`, `warning`, `error`), `event`, `message`, the known of `key`, `name`,
    /// `address`, `class`, `session`, and the event's own fields.
    Json,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Client {
    pub(crate) name: String,
    pub(crate) from: SocketAddr,
    pub(crate) class: Option<String>,
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, from, class } = self;
        match class {
            Some(class) => write!(f, "{name} ({from}, class {class})"),
            None => write!(f, "{name} ({from})"),
        }
    }
}

pub(crate) struct Visitor<'a> {
    pub(crate) key: &'a PublicKey,
    pub(crate) number: u64,
    pub(crate) who: &'a Client,
}

#[derive(Clone, Debug)]
pub(crate) enum Field {
    Number(u64),
    /// Text that is safe for a terminal.
    Text(String),
}

pub(crate) type Fields = [(&'static str, Field)];

struct Entry<'a> {
    event: &'static str,
    text: &'a str,
    matters: bool,
    key: Option<&'a PublicKey>,
    from: Option<SocketAddr>,
    session: Option<&'a Visitor<'a>>,
    fields: &'a Fields,
}

impl<'a> Entry<'a> {
    fn new(text: &'a str, matters: bool) -> Self {
        Self { event: "daemon", text, matters, key: None, from: None, session: None, fields: &[] }
    }
}

pub(crate) struct Log {
    write: Box<WriteLine>,
    form: Form,
    quiet: bool,
    minute: Mutex<Minute>,
    soon: Mutex<String>,
}

impl Log {
    pub(crate) fn new(quiet: bool, form: Form, write: Box<WriteLine>) -> Log {
        Log { write, form, quiet, minute: Mutex::default(), soon: Mutex::default() }
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    pub(crate) fn say(&self, text: &str) {
        if !self.quiet {
            self.put(&Entry::new(text, false));
        }
    }

    /// Logs with the next [`Log::flush`]: waking the writing thread costs more than a small answer.
    pub(crate) fn say_soon(&self, text: &str) {
        if self.quiet {
            return;
        }
        self.put_soon(&self.line(&Entry::new(text, false)));
    }

    fn put_soon(&self, line: &str) {
        let mut soon = self.soon.lock().unwrap_or_else(PoisonError::into_inner);
        soon.push_str(line);
        if soon.len() >= MAX_SOON_BYTES {
            (self.write)(std::mem::take(&mut *soon));
        }
    }

    pub(crate) fn flush(&self) {
        let soon = std::mem::take(&mut *self.soon.lock().unwrap_or_else(PoisonError::into_inner));
        if !soon.is_empty() {
            (self.write)(soon);
        }
    }

    pub(crate) fn tell(&self, text: &str, matters: bool) {
        if matters { self.warn(text) } else { self.say(text) }
    }

    pub(crate) fn warn(&self, text: &str) {
        self.put(&Entry::new(text, true));
    }

    pub(crate) fn request(&self, text: &str, request: &Answered) {
        if self.quiet {
            return;
        }
        let Answered { name, from, class, method, path, status, bytes, took } = request;
        let direction = if method == "GET" || method == "HEAD" { "read" } else { "none" };
        let mut fields = vec![
            ("direction", Field::text(direction)),
            ("method", Field::text(method)),
            ("path", Field::text(path)),
            ("status", Field::Number((*status).into())),
            ("bytes", Field::Number(*bytes)),
            ("took_ms", Field::ms(*took)),
        ];
        fields.extend(name.as_ref().map(|name| ("name", Field::text(name))));
        fields.extend(class.as_ref().map(|class| ("class", Field::text(class))));
        let entry = Entry { event: "request", from: Some(*from), fields: &fields, ..Entry::new(text, false) };
        self.put_soon(&self.line(&entry));
    }

    /// Logs what clients have to know. Text goes to standard output, for copying.
    pub(crate) fn introduce(&self, text: &str, fields: &Fields) -> bool {
        let in_log = self.form == Form::Json;
        if in_log {
            self.put(&Entry { event: "identity", fields, ..Entry::new(text, false) });
        }
        in_log
    }

    fn put(&self, entry: &Entry<'_>) {
        // Lines that wait are older.
        self.flush();
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

    pub(crate) fn refused_stranger(&self, text: &str, key: &PublicKey, from: SocketAddr) {
        if self.minute().has_room_for_stranger(Instant::now()) {
            let (key, from) = (Some(key), Some(from));
            self.put(&Entry { event: "refused", key, from, ..Entry::new(text, true) });
        }
    }

    pub(crate) fn turned_away(&self, text: &str, key: &PublicKey, from: SocketAddr) {
        let (known, from) = (Some(key), Some(from));
        self.put_of(key, &Entry { event: "refused", key: known, from, ..Entry::new(text, true) });
    }

    /// `fields` stand in JSON alone.
    pub(crate) fn tell_of_session(
        &self,
        visitor: &Visitor<'_>,
        (event, text): (&'static str, &str),
        matters: bool,
        fields: &Fields,
    ) {
        let (key, session, from) = (Some(visitor.key), Some(visitor), Some(visitor.who.from));
        self.put_of(visitor.key, &Entry { event, text, matters, key, from, session, fields });
    }

    /// Logs one entry of a copy. False: the key's minute has no room left.
    pub(crate) fn tell_of_entry(&self, visitor: &Visitor<'_>, text: &str, matters: bool, fields: &Fields) -> bool {
        if self.quiet && !matters {
            return true;
        }
        let (key, session, from) = (Some(visitor.key), Some(visitor), Some(visitor.who.from));
        let line = self.line(&Entry { event: "file", text, matters, key, from, session, fields });
        let has_room = self.minute().has_room_for_entry(visitor.key, line.len(), Instant::now());
        if has_room {
            self.put_soon(&line);
        }
        has_room
    }

    fn put_of(&self, key: &PublicKey, entry: &Entry<'_>) {
        if self.quiet && !entry.matters {
            return;
        }
        let line = self.line(entry);
        let room = self.minute().room_for(key, line.len(), Instant::now());
        match room {
            Room::Enough => {
                self.flush();
                (self.write)(line);
            }
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

/// The bytes that peers have caused in this minute: no peer may fill the disk, or hide behind another's lines.
#[derive(Default)]
struct Minute {
    begun: Option<Instant>,
    strangers: u32,
    keys: HashMap<PublicKey, usize>,
    entries: HashMap<PublicKey, usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    Enough,
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

    fn has_room_for_entry(&mut self, key: &PublicKey, bytes: usize, now: Instant) -> bool {
        self.begin(now);
        let logged = self.entries.entry(*key).or_default();
        let has_room = *logged + bytes <= ENTRY_BYTES_PER_KEY_AND_MINUTE;
        if has_room {
            *logged += bytes;
        }
        has_room
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
    let level = match (entry.event, entry.matters) {
        ("error", _) => "error",
        (_, true) => "warning",
        (_, false) => "info",
    };
    add("level", level.into());
    if let Some(key) = entry.key {
        add("key", key.to_string().into());
    }
    add("event", entry.event.into());
    if let Some(from) = entry.from {
        add("address", from.to_string().into());
    }
    if let Some(Visitor { number, who, .. }) = entry.session {
        add("session", (*number).into());
        add("client", cut(&who.to_string()).into());
        add("name", cut(&who.name).into());
        if let Some(class) = &who.class {
            add("class", cut(class).into());
        }
    }
    add("message", cut(entry.text.trim_start_matches("warning: ")).into());
    for (name, field) in entry.fields {
        add(
            name,
            match field {
                Field::Number(number) => (*number).into(),
                Field::Text(text) => text.as_str().into(),
            },
        );
    }
    format!("{}\n", serde_json::Value::Object(object))
}

impl Field {
    pub(crate) fn text(text: &str) -> Self {
        Self::Text(cut(text))
    }

    pub(crate) fn ms(time: Duration) -> Self {
        Self::Number(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }
}

/// Makes the last line of a JSON log: the error that ended the daemon.
pub fn last_line(what: &str, cause: Option<&str>, hint: Option<&str>, exit_code: u8) -> String {
    let fields = [("cause", cause), ("hint", hint)];
    let fields = fields.into_iter().filter_map(|(name, text)| Some((name, Field::text(text?))));
    let fields: Vec<_> = fields.chain([("exit_code", Field::Number(exit_code.into()))]).collect();
    let entry = Entry { event: "error", fields: &fields, ..Entry::new(what, true) };
    json_line(SystemTime::now(), &entry)
}

/// Makes the line in place of lost ones.
pub fn lost_lines(form: Form, lost: u64) -> String {
    let text = format!("{lost} lines of the log were lost here: nobody read them");
    match form {
        Form::Text => format!("{text}\n"),
        Form::Json => {
            let fields = [("lost", Field::Number(lost))];
            json_line(SystemTime::now(), &Entry { event: "lost", fields: &fields, ..Entry::new(&text, true) })
        }
    }
}

fn cut(text: &str) -> String {
    let end = (0..=MAX_LINE_BYTES.min(text.len())).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    let told = &text[..end];
    let more = if told.len() < text.len() { " ..." } else { "" };
    format!("{}{more}", escaped(told.as_bytes()))
}

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

/// Writes the time in UTC (RFC 3339).
fn timestamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let (days, second_of_day) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since.subsec_millis())
}

/// Dates a day since 1970. Years begin in March, so leap days come last (H. Hinnant, "chrono-compatible low-level date
/// algorithms", `civil_from_days`).
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
    use std::sync::Arc;

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
        let from = "10.0.0.1:5000".parse().unwrap();
        let who = Client { name: "alice \u{1b}[1m".to_owned(), from, class: Some("inside".to_owned()) };
        let visitor = Visitor { key: &key, number: 7, who: &who };
        let fields = [("bytes", Field::Number(5)), ("path", Field::text("a\nb"))];
        let (session, from) = (Some(&visitor), Some(from));
        let entry =
            Entry { event: "file", key: Some(&key), session, from, fields: &fields, ..Entry::new("a\nb", true) };
        let line = json_line(UNIX_EPOCH, &entry);
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        let expected = serde_json::json!({
            "time": "1970-01-01T00:00:00.000Z", "level": "warning", "event": "file", "key": key.to_string(),
            "session": 7, "client": "alice \\u{1b}[1m (10.0.0.1:5000, class inside)", "name": "alice \\u{1b}[1m", "address": "10.0.0.1:5000", "class": "inside",
            "message": "a\\u{a}b", "bytes": 5, "path": "a\\u{a}b",
        });
        assert_eq!((value, line.matches('\n').count()), (expected, 1));
        let line = json_line(UNIX_EPOCH, &Entry::new("warning: listening", true));
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        let expected = serde_json::json!({
            "time": "1970-01-01T00:00:00.000Z", "level": "warning", "event": "daemon", "message": "listening",
        });
        assert_eq!(value, expected);
    }

    #[test]
    fn each_line_of_a_log_in_json_is_an_object() {
        let lines = [last_line("no \u{1b}port", Some("it is taken"), None, 10), lost_lines(Form::Json, 3)];
        let values = lines.map(|line| {
            assert_eq!(line.matches('\n').count(), 1, "{line}");
            serde_json::from_str::<serde_json::Value>(&line).unwrap()
        });
        let field = |value: usize, name: &str| values[value][name].clone();
        assert_eq!((field(0, "level"), field(0, "exit_code")), ("error".into(), 10.into()));
        assert_eq!((field(0, "message"), field(0, "cause")), ("no \\u{1b}port".into(), "it is taken".into()));
        assert_eq!((field(1, "event"), field(1, "lost")), ("lost".into(), 3.into()));
    }

    #[test]
    fn entries_of_one_key_fill_neither_the_disk_nor_the_room_of_another() {
        let (mut minute, now) = (Minute::default(), Instant::now());
        let (busy, other) = (PublicKey([1; 32]), PublicKey([2; 32]));
        let logged = (0..1_000_000).filter(|_| minute.has_room_for_entry(&busy, 200, now)).count();
        assert_eq!(logged, ENTRY_BYTES_PER_KEY_AND_MINUTE / 200);
        assert!(minute.has_room_for_entry(&other, 200, now));
        assert_eq!(minute.room_for(&busy, 100, now), Room::Enough, "how its session ends is logged all the same");
        assert!(minute.has_room_for_entry(&busy, 200, now + MINUTE));
    }

    #[test]
    fn lines_that_wait_stand_before_what_happened_later() {
        let lines = Arc::new(Mutex::new(String::new()));
        let written = Arc::clone(&lines);
        let log = Log::new(false, Form::Text, Box::new(move |line| written.lock().unwrap().push_str(&line)));
        log.say_soon("first");
        log.say("second");
        let lines = lines.lock().unwrap();
        assert!(lines.find("first") < lines.find("second") && lines.contains("first"), "{lines}");
    }
}
