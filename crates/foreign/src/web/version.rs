//! The version and part in an answer: `ETag`, `Last-Modified`, lengths and ranges (RFC 9110).

use std::time::{Duration, UNIX_EPOCH};

use haul_store::{FileId, Kind, Stat, Time, Version as FileVersion};

use http::header::{
    ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_RANGE, DATE, ETAG, IF_MATCH, IF_UNMODIFIED_SINCE, LAST_MODIFIED,
};
use http::{HeaderName, HeaderValue, response};

use crate::http_client::fields::text;

/// One state of a resource. All data of a copy is of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) size: u64,
    /// The server's own text, to be sent back.
    modified: Option<String>,
    tag: Option<Tag>,
    /// The answer is at least a second younger than the last change: a later change has another time (RFC 9110, section 8.8.2.2).
    is_settled: bool,
    /// The server's coding. Nothing is ever decoded.
    coding: Option<String>,
    /// The time of the copied file, as rclone, s3fs and haul keep it beside an object.
    kept_time: Option<Time>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Tag {
    opaque: String,
    is_weak: bool,
}

impl Version {
    pub(crate) fn of(head: &response::Parts, size: u64) -> Version {
        let coding = text(&head.headers, &CONTENT_ENCODING).filter(|coding| !coding.eq_ignore_ascii_case("identity"));
        let modified = text(&head.headers, &LAST_MODIFIED).filter(|text| seconds(text).is_some());
        let answered = text(&head.headers, &DATE).and_then(seconds);
        Version {
            size,
            is_settled: answered > modified.and_then(seconds) && modified.is_some(),
            modified: modified.map(str::to_owned),
            tag: text(&head.headers, &ETAG).and_then(Tag::parse),
            coding: coding.map(str::to_owned),
            kept_time: text(&head.headers, &KEPT_TIME).and_then(kept_time),
        }
    }

    /// The version in a list. Servers write tags in lists differently, so it has none.
    pub(crate) fn listed(head: &response::Parts, size: u64, modified: Option<String>) -> Version {
        let modified = modified.filter(|text| seconds(text).is_some());
        let answered = text(&head.headers, &DATE).and_then(seconds);
        let is_settled = modified.is_some() && answered > modified.as_deref().and_then(seconds);
        Version { size, modified, tag: None, is_settled, coding: None, kept_time: None }
    }

    /// The version in a list with size and time, at this time of the server's clock. `None`: before 1970.
    pub(crate) fn told(size: u64, mtime: Time, answered: Option<i64>) -> Option<Version> {
        let since = Duration::from_secs(u64::try_from(mtime.s).ok()?.min(LAST_SECOND));
        let modified = httpdate::fmt_http_date(UNIX_EPOCH + since);
        let is_settled = answered.is_some_and(|answered| answered > mtime.s);
        Some(Version { size, modified: Some(modified), tag: None, is_settled, coding: None, kept_time: None })
    }

    /// Whether a list's version may mean the other.
    pub(crate) fn is_list_of(&self, other: &Version) -> bool {
        self.is_like(&Version { coding: self.coding.clone(), ..other.clone() })
    }

    /// Whether an answer may be of this version. A missing field does not count: RFC 9110 lets a 206 leave out what the client
    /// knows.
    pub(crate) fn is_like(&self, other: &Version) -> bool {
        let agree = |one: Option<&String>, other: Option<&String>| one.is_none() || other.is_none() || one == other;
        let tags = [&self.tag, &other.tag].map(|tag| tag.as_ref().map(|tag| &tag.opaque));
        self.size == other.size
            && self.coding == other.coding
            && agree(tags[0], tags[1])
            && agree(self.modified.as_ref(), other.modified.as_ref())
    }

    /// The field against other versions. A weak tag is for no range (RFC 9110, section 13.1.1).
    pub(crate) fn condition(&self) -> Option<(HeaderName, HeaderValue)> {
        let strong = self.tag.as_ref().filter(|tag| !tag.is_weak);
        let of_tag = strong.and_then(|tag| Some((IF_MATCH, HeaderValue::from_str(&tag.opaque).ok()?)));
        of_tag.or_else(|| Some((IF_UNMODIFIED_SINCE, HeaderValue::from_str(self.modified.as_ref()?).ok()?)))
    }

    /// The time kept beside a copied file, or the resource's own.
    pub(crate) fn modified(&self) -> Option<Time> {
        self.kept_time.or_else(|| self.changed())
    }

    fn changed(&self) -> Option<Time> {
        self.modified.as_deref().and_then(seconds).map(|s| Time { s, ns: 0 })
    }

    pub(crate) fn tells_its_time(&self) -> bool {
        self.modified.is_some()
    }

    /// The metadata. A missing time becomes `begun`: the file never seems unchanged.
    pub(crate) fn stat(&self, begun: Time) -> Stat {
        let changed = self.changed().unwrap_or(begun);
        let mtime = self.modified().unwrap_or(begun);
        let number = self.tag.as_ref().map_or(0, |tag| {
            u64::from_le_bytes(
                *blake3::hash(tag.opaque.as_bytes()).as_bytes().first_chunk().expect("a hash has 32 bytes"),
            )
        });
        Stat {
            kind: Kind::File,
            mode: 0o644,
            size: self.size,
            blocks: self.size.div_ceil(512),
            mtime,
            id: FileId { dev: 0, ino: number },
            version: FileVersion::new(changed, number),
            nlink: 1,
            uid: 0,
            gid: 0,
        }
    }

    /// Whether another version of the same length surely differs. Else no later copy goes on with this data.
    pub(crate) fn tells_changes(&self) -> bool {
        self.is_settled || self.tag.as_ref().is_some_and(|tag| !tag.is_weak)
    }
}

impl Tag {
    fn parse(text: &str) -> Option<Tag> {
        let opaque = text.strip_prefix("W/").unwrap_or(text);
        (!opaque.is_empty()).then(|| Tag { opaque: opaque.to_owned(), is_weak: opaque.len() < text.len() })
    }
}

pub(crate) const KEPT_TIME: HeaderName = HeaderName::from_static("x-amz-meta-mtime");

/// Reads `SECONDS.NANOSECONDS` or `SECONDS`, as rclone and s3fs write times.
pub(crate) fn kept_time(text: &str) -> Option<Time> {
    let (seconds, fraction) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
    let is_negative = seconds.starts_with('-');
    let s: i64 = seconds.parse().ok()?;
    if fraction.len() > 9 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let ns: u32 = format!("{fraction:0<9}").parse().ok()?;
    match is_negative && ns > 0 {
        true => Some(Time { s: s.checked_sub(1)?, ns: 1_000_000_000 - ns }),
        false => Some(Time { s, ns }),
    }
}

pub(crate) fn kept_time_text(time: Time) -> String {
    match time.s < 0 && time.ns > 0 {
        true if time.s == -1 => format!("-0.{:09}", 1_000_000_000 - time.ns),
        true => format!("{}.{:09}", time.s + 1, 1_000_000_000 - time.ns),
        false => format!("{}.{:09}", time.s, time.ns),
    }
}

/// Dates of HTTP end with the year 9999.
const LAST_SECOND: u64 = 253_402_300_799;

pub(crate) fn seconds(date: &str) -> Option<i64> {
    let time = httpdate::parse_http_date(date).ok()?;
    i64::try_from(time.duration_since(std::time::UNIX_EPOCH).ok()?.as_secs()).ok()
}

/// Whether the server takes ranges. `None`: it does not say.
pub(crate) fn accepts_ranges(head: &response::Parts) -> Option<bool> {
    match text(&head.headers, &ACCEPT_RANGES)? {
        "none" => Some(false),
        units => units.split(',').any(|unit| unit.trim() == "bytes").then_some(true),
    }
}

/// `Content-Range`: a part from `start` to before `end`, and the whole length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) total: Option<u64>,
}

impl Part {
    pub(crate) fn of(head: &response::Parts) -> Option<Part> {
        let (range, total) =
            text(&head.headers, &CONTENT_RANGE)?.strip_prefix("bytes")?.trim_start().split_once('/')?;
        let (start, last) = range.split_once('-')?;
        let (start, last): (u64, u64) = (start.trim().parse().ok()?, last.trim().parse().ok()?);
        let total = if total.trim() == "*" { None } else { Some(total.trim().parse().ok()?) };
        let end = last.checked_add(1)?;
        (start < end && total.is_none_or(|total| end <= total)).then_some(Part { start, end, total })
    }
}

/// Reads the length in a 416 (`bytes */LENGTH`).
pub(crate) fn length_of_refused_range(head: &response::Parts) -> Option<u64> {
    text(&head.headers, &CONTENT_RANGE)?.strip_prefix("bytes")?.trim_start().strip_prefix("*/")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(fields: &[(&str, &str)]) -> response::Parts {
        let mut response = http::Response::builder();
        for (name, value) in fields {
            response = response.header(*name, *value);
        }
        response.body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_part_says_where_it_begins_and_ends_or_counts_for_nothing() {
        let part = |text: &str| Part::of(&head(&[("content-range", text)]));
        assert_eq!(part("bytes 0-4/10"), Some(Part { start: 0, end: 5, total: Some(10) }));
        assert_eq!(part("bytes 5-9/*"), Some(Part { start: 5, end: 10, total: None }));
        for bad in [
            "bytes 5-4/10",
            "bytes 0-10/10",
            "bytes */10",
            "items 0-4/10",
            "bytes 0-/10",
            "bytes 0-18446744073709551615/*",
        ] {
            assert_eq!(part(bad), None, "{bad}");
        }
    }

    #[test]
    fn times_are_read_as_other_tools_write_them() {
        for (text, time) in [
            ("1700000000.123456789", Some((1_700_000_000, 123_456_789))),
            ("1700000000", Some((1_700_000_000, 0))),
            ("1.5", Some((1, 500_000_000))),
            ("-1.25", Some((-2, 750_000_000))),
            ("-0.25", Some((-1, 750_000_000))),
            ("x", None),
            ("1.1234567890", None),
            ("1.-5", None),
        ] {
            let time = time.map(|(s, ns)| Time { s, ns });
            assert_eq!(kept_time(text), time, "{text}");
            assert_eq!(time.map(kept_time_text).as_deref().and_then(kept_time), time, "{text}");
        }
    }

    #[test]
    fn versions_differ_by_each_thing_that_both_tell() {
        const FIRST: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
        let version = |fields: &[(&str, &str)], size| Version::of(&head(fields), size);
        let one = version(&[("etag", "\"a\""), ("last-modified", FIRST)], 5);
        assert!(one.is_like(&one) && one.is_like(&version(&[], 5)) && one.is_like(&version(&[("etag", "W/\"a\"")], 5)));
        assert!(!one.is_like(&version(&[("etag", "\"b\"")], 5)) && !one.is_like(&version(&[], 6)));
        assert!(!one.is_like(&version(&[("last-modified", "Sun, 06 Nov 1994 08:49:38 GMT")], 5)));
        assert!(!one.is_like(&version(&[("content-encoding", "gzip")], 5)));
        assert_eq!(one.condition().unwrap(), (IF_MATCH, HeaderValue::from_static("\"a\"")));
        let weak = version(&[("etag", "W/\"a\""), ("last-modified", FIRST)], 5);
        assert_eq!(weak.condition().unwrap(), (IF_UNMODIFIED_SINCE, HeaderValue::from_static(FIRST)));
        assert_eq!(weak.stat(Time::default()), one.stat(Time::default()), "the tag becomes strong a second later");
        assert!(one.tells_changes() && !weak.tells_changes());
        let later = |date: &str| version(&[("last-modified", FIRST), ("date", date)], 5).tells_changes();
        assert!(
            !later(FIRST) && later("Sun, 06 Nov 1994 08:49:38 GMT") && !version(&[("date", FIRST)], 5).tells_changes()
        );
        assert_eq!(version(&[("last-modified", "yesterday")], 5).condition(), None);
    }
}
