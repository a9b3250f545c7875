//! Conditions of a request (RFC 9110, section 13), and the tags and times they compare.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use haul_store::{Stat, Time};
use http::HeaderMap;
use http::header::{HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE};

use crate::limits::FRESH;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Validators {
    /// The text between the tag's quotes.
    pub(crate) tag: String,
    /// The file has just changed: a next state could look alike.
    pub(crate) is_weak: bool,
    /// `Last-Modified`, in whole seconds and at least one second ago.
    pub(crate) modified: SystemTime,
    written: SystemTime,
    changed: SystemTime,
    /// The second of the change is over: no other state will have its date.
    has_strong_date: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Carried out, with or without its ranges.
    Proceed { with_ranges: bool },
    /// Status 304.
    NotModified,
    /// Status 412.
    Failed,
}

impl Validators {
    /// `variant` tells apart representations of one file.
    pub(crate) fn of(stat: &Stat, variant: &str, now: SystemTime) -> Validators {
        let changed = stat.version.changed();
        let mut hasher = blake3::Hasher::new();
        for number in [stat.size, stat.version.file(), changed.s as u64, stat.mtime.s as u64] {
            hasher.update(&number.to_le_bytes());
        }
        hasher.update(&changed.ns.to_le_bytes()).update(&stat.mtime.ns.to_le_bytes()).update(variant.as_bytes());
        let mut tag = hasher.finalize().to_hex().to_string();
        tag.truncate(TAG_CHARS);
        let age = now.duration_since(moment(changed)).unwrap_or_else(|ahead| ahead.duration());
        // Within the second of a change a reader gets an earlier date than later states, so no two states share a date (RFC 9110,
        // section 8.8.2.2).
        let modified = whole_second(moment(stat.mtime).min(now.checked_sub(DATE_STEP).unwrap_or(UNIX_EPOCH)));
        let written = whole_second(moment(stat.mtime));
        let changed = written.max(whole_second(moment(changed)));
        let has_strong_date = now.duration_since(changed).is_ok_and(|age| age >= DATE_STEP + FRESH);
        Validators { tag, is_weak: age < FRESH, modified, written, changed, has_strong_date }
    }

    pub(crate) fn etag(&self) -> String {
        format!("{}\"{}\"", if self.is_weak { "W/" } else { "" }, self.tag)
    }

    /// Judges GET and HEAD in the order of section 13.2.2.
    pub(crate) fn judge(&self, header: &HeaderMap) -> Outcome {
        if header.contains_key(IF_MATCH) {
            if !any_matches(header, &IF_MATCH, |tag| !self.is_weak && !tag.is_weak && tag.text == self.tag.as_bytes()) {
                return Outcome::Failed;
            }
        } else if single_date(header, &IF_UNMODIFIED_SINCE).is_some_and(|date| self.written > date) {
            return Outcome::Failed;
        }
        if header.contains_key(IF_NONE_MATCH) {
            if any_matches(header, &IF_NONE_MATCH, |tag| tag.text == self.tag.as_bytes()) {
                return Outcome::NotModified;
            }
        } else if single_date(header, &IF_MODIFIED_SINCE).is_some_and(|date| self.is_not_newer_than(date)) {
            return Outcome::NotModified;
        }
        Outcome::Proceed { with_ranges: self.holds_for_range(header) }
    }

    fn is_not_newer_than(&self, date: SystemTime) -> bool {
        self.modified <= date && (self.has_strong_date || self.changed < date)
    }

    /// Whether `If-Range` holds: a strong tag, or the exact time of a file old enough for times to tell states apart.
    fn holds_for_range(&self, header: &HeaderMap) -> bool {
        let mut values = header.get_all(IF_RANGE).iter();
        let Some(value) = values.next() else { return true };
        if values.next().is_some() {
            return false;
        }
        match Tag::parse(value.as_bytes().trim_ascii()) {
            Some((tag, b"")) => !self.is_weak && !tag.is_weak && tag.text == self.tag.as_bytes(),
            _ => self.has_strong_date && date(value.as_bytes()).is_some_and(|date| date == self.modified),
        }
    }
}

/// Dates of HTTP count whole seconds.
const DATE_STEP: Duration = Duration::from_secs(1);

/// 128 bits.
const TAG_CHARS: usize = 32;

pub(crate) fn moment(time: Time) -> SystemTime {
    let since = Duration::new(time.s.unsigned_abs(), 0);
    let second = if time.s < 0 { UNIX_EPOCH.checked_sub(since) } else { UNIX_EPOCH.checked_add(since) };
    second.and_then(|second| second.checked_add(Duration::from_nanos(time.ns.into()))).unwrap_or(UNIX_EPOCH)
}

fn whole_second(time: SystemTime) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

fn date(text: &[u8]) -> Option<SystemTime> {
    httpdate::parse_http_date(std::str::from_utf8(text).ok()?).ok()
}

/// Ignores repeated or malformed dates.
fn single_date(header: &HeaderMap, name: &HeaderName) -> Option<SystemTime> {
    let mut values = header.get_all(name).iter();
    let value = values.next()?;
    values.next().is_none().then(|| date(value.as_bytes()))?
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tag<'a> {
    text: &'a [u8],
    is_weak: bool,
}

impl<'a> Tag<'a> {
    fn parse(text: &'a [u8]) -> Option<(Tag<'a>, &'a [u8])> {
        let (is_weak, quoted) = match text.strip_prefix(b"W/") {
            Some(quoted) => (true, quoted),
            None => (false, text),
        };
        let inner = quoted.strip_prefix(b"\"")?;
        let end = inner.iter().position(|byte| *byte == b'"')?;
        Some((Tag { text: &inner[..end], is_weak }, &inner[end + 1..]))
    }
}

/// Whether a tag of the list matches; `*` matches every existing file. A malformed list matches nothing behind its first wrong
/// character.
fn any_matches(header: &HeaderMap, name: &HeaderName, is_it: impl Fn(Tag<'_>) -> bool) -> bool {
    header.get_all(name).iter().any(|value| list_matches(value.as_bytes(), &is_it))
}

fn list_matches(list: &[u8], is_it: impl Fn(Tag<'_>) -> bool) -> bool {
    let mut rest = list.trim_ascii();
    if rest == b"*" {
        return true;
    }
    while !rest.is_empty() {
        if let Some(behind) = rest.strip_prefix(b",") {
            rest = behind.trim_ascii_start();
            continue;
        }
        let Some((tag, behind)) = Tag::parse(rest) else { return false };
        if is_it(tag) {
            return true;
        }
        rest = behind.trim_ascii_start();
        if !rest.is_empty() && !rest.starts_with(b",") {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use haul_store::{FileId, Kind, Version};

    use super::*;

    fn stat() -> Stat {
        Stat {
            kind: Kind::File,
            mode: 0o644,
            size: 10,
            blocks: 8,
            mtime: Time { s: 784_111_777, ns: 5 },
            id: FileId { dev: 1, ino: 2 },
            version: Version::new(Time { s: 784_111_777, ns: 6 }, 2),
            nlink: 1,
            uid: 0,
            gid: 0,
        }
    }

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_700_000_000)
    }

    fn check(fields: &[(&str, &str)], expected: Outcome) {
        let validators = Validators::of(&stat(), "", now());
        let mut header = HeaderMap::new();
        for (name, value) in fields {
            let value = value.replace("TAG", &validators.etag());
            header.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        assert_eq!(validators.judge(&header), expected, "{fields:?}");
    }

    const ALL: Outcome = Outcome::Proceed { with_ranges: true };
    const NO_RANGES: Outcome = Outcome::Proceed { with_ranges: false };
    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const LATER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";
    const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";

    #[test]
    fn conditions_are_judged_in_the_order_of_the_standard() {
        check(&[], ALL);
        for list in ["TAG", "\"x\", TAG", "\"x\",,TAG ,\"y\"", "*", " * ", "\"a,b\", TAG"] {
            check(&[("if-match", list)], ALL);
            check(&[("if-none-match", list)], Outcome::NotModified);
        }
        for list in ["\"x\"", "", ",", "nonsense", "\"x", "\"x\" TAG", "W/\"x\"", "TA"] {
            check(&[("if-match", list)], Outcome::Failed);
            check(&[("if-none-match", list)], ALL);
        }
        check(&[("if-match", "W/TAG")], Outcome::Failed);
        check(&[("if-none-match", "W/TAG")], Outcome::NotModified);
        check(&[("if-match", "\"x\""), ("if-match", "TAG")], ALL);
        check(&[("if-unmodified-since", DATE)], ALL);
        check(&[("if-unmodified-since", EARLIER)], Outcome::Failed);
        check(&[("if-modified-since", DATE)], Outcome::NotModified);
        check(&[("if-modified-since", LATER)], Outcome::NotModified);
        check(&[("if-modified-since", EARLIER)], ALL);
        check(&[("if-modified-since", "Sunday, 06-Nov-94 08:49:37 GMT")], Outcome::NotModified);
        check(&[("if-modified-since", "Sun Nov  6 08:49:37 1994")], Outcome::NotModified);
        check(&[("if-modified-since", "yesterday")], ALL);
        check(&[("if-modified-since", DATE), ("if-modified-since", DATE)], ALL);
        check(&[("if-none-match", "\"x\""), ("if-modified-since", DATE)], ALL);
        check(&[("if-match", "TAG"), ("if-unmodified-since", EARLIER)], ALL);
        check(&[("if-match", "\"x\""), ("if-none-match", "TAG")], Outcome::Failed);
    }

    #[test]
    fn a_range_holds_only_for_the_same_state() {
        check(&[("if-range", "TAG")], ALL);
        check(&[("if-range", DATE)], ALL);
        for value in ["\"x\"", "W/TAG", LATER, EARLIER, "", "nonsense", "TAG, TAG"] {
            check(&[("if-range", value)], NO_RANGES);
        }
        check(&[("if-range", "TAG"), ("if-range", "TAG")], NO_RANGES);
    }

    #[test]
    fn a_tag_changes_with_each_mark_of_a_change_and_is_weak_just_after_one() {
        let tag = |stat: &Stat| Validators::of(stat, "", now()).tag;
        let old = tag(&stat());
        let others = [
            Stat { size: 11, ..stat() },
            Stat { mtime: Time { s: 784_111_777, ns: 6 }, ..stat() },
            Stat { version: Version::new(Time { s: 784_111_777, ns: 7 }, 2), ..stat() },
            Stat { version: Version::new(Time { s: 784_111_777, ns: 6 }, 3), ..stat() },
        ];
        assert!(others.iter().all(|other| tag(other) != old));
        assert_ne!(Validators::of(&stat(), "gz", now()).tag, old);
        let just_now = Validators::of(&stat(), "", UNIX_EPOCH + Duration::from_millis(784_111_777_050));
        assert!(just_now.is_weak && just_now.etag().starts_with("W/\""));
        let ahead = Stat { mtime: Time { s: 1_800_000_000, ns: 0 }, ..stat() };
        assert_eq!(Validators::of(&ahead, "", now()).modified, now() - DATE_STEP);
    }

    #[test]
    fn a_date_proves_nothing_within_the_second_of_a_change() {
        let second = UNIX_EPOCH + Duration::from_secs(784_111_777);
        let time = |ns| Time { s: 784_111_777, ns };
        let state = |ns| Stat { mtime: time(ns), version: Version::new(time(ns), 2), ..stat() };
        let at = |ms| second + Duration::from_millis(ms);
        let judged = |stat: &Stat, now, name: &str, value: &str| {
            let header =
                HeaderMap::from_iter([(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap())]);
            Validators::of(stat, "", now).judge(&header)
        };
        let (old, new) = (state(300_000_000), state(700_000_000));
        let held = Validators::of(&old, "", at(500)).modified;
        assert_eq!(Validators::of(&new, "", at(5_000)).modified, second);
        assert_eq!(held, second - DATE_STEP);
        let held = httpdate::fmt_http_date(held);
        for (now, date, holds) in [
            (at(800), DATE, false),
            (at(800), held.as_str(), false),
            (at(1_050), DATE, false),
            (at(1_100), DATE, true),
            (at(5_000), held.as_str(), false),
        ] {
            let (range, since) = (judged(&new, now, "if-range", date), judged(&new, now, "if-modified-since", date));
            assert_eq!(range, Outcome::Proceed { with_ranges: holds }, "{now:?} {date}");
            assert_eq!(since == Outcome::NotModified, holds, "{now:?} {date}");
        }
        let kept_time = Stat { version: Version::new(Time { s: 784_119_999, ns: 0 }, 2), ..state(0) };
        let then = UNIX_EPOCH + Duration::from_secs(784_119_999);
        assert_eq!(judged(&kept_time, then + FRESH, "if-range", DATE), NO_RANGES);
        assert_eq!(judged(&kept_time, then + 2 * DATE_STEP, "if-range", DATE), ALL);
    }
}
