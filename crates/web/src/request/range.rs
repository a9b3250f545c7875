//! The `Range` field (RFC 9110, section 14).

use crate::limits::MAX_RANGES;

/// The first byte, and the byte behind the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Part {
    pub(crate) fn len(self) -> u64 {
        self.end - self.start
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Whole,
    /// The wanted parts: at least one, none empty.
    Parts(Vec<Part>),
    /// No part has a byte of the file: 416.
    Nothing,
}

/// Reads the field. Another unit, wrong syntax and too many parts are ignored (section 14.2), and every range of an empty file,
/// as in nginx and Apache. Parts that touch become one.
pub(crate) fn wanted(field: &[u8], size: u64) -> Wanted {
    if size == 0 {
        return Wanted::Whole;
    }
    let Some(specs) = strip_unit(field) else { return Wanted::Whole };
    let mut parts = Vec::new();
    let mut count = 0;
    for spec in specs.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|spec| !spec.is_empty()) {
        count += 1;
        if count > MAX_RANGES {
            return Wanted::Whole;
        }
        match part(spec, size) {
            Ok(Some(part)) => parts.push(part),
            Ok(None) => {}
            Err(Malformed) => return Wanted::Whole,
        }
    }
    match (count, parts.is_empty()) {
        (0, _) => Wanted::Whole,
        (_, true) => Wanted::Nothing,
        (_, false) => Wanted::Parts(joined(parts)),
    }
}

fn strip_unit(field: &[u8]) -> Option<&[u8]> {
    let at = field.iter().position(|byte| *byte == b'=')?;
    field[..at].trim_ascii().eq_ignore_ascii_case(b"bytes").then(|| &field[at + 1..])
}

struct Malformed;

fn part(spec: &[u8], size: u64) -> Result<Option<Part>, Malformed> {
    let dash = spec.iter().position(|byte| *byte == b'-').ok_or(Malformed)?;
    let (first, last) = (spec[..dash].trim_ascii(), spec[dash + 1..].trim_ascii());
    let found = match (first, last) {
        (b"", b"") => return Err(Malformed),
        (b"", suffix) => Part { start: size.saturating_sub(number(suffix)?), end: size },
        (first, b"") => Part { start: number(first)?, end: size },
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            if last < first {
                return Err(Malformed);
            }
            Part { start: first, end: last.saturating_add(1).min(size) }
        }
    };
    Ok((found.start < found.end).then_some(found))
}

/// Reads a number. One beyond 2^64 lies behind every file.
fn number(text: &[u8]) -> Result<u64, Malformed> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return Err(Malformed);
    }
    let digit = |sum: u64, digit: &u8| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    Ok(text.iter().fold(0, digit))
}

fn joined(parts: Vec<Part>) -> Vec<Part> {
    let mut sorted = parts.clone();
    sorted.sort_by_key(|part| part.start);
    if sorted.windows(2).all(|two| two[0].end < two[1].start) {
        return parts;
    }
    let mut joined: Vec<Part> = Vec::with_capacity(sorted.len());
    for part in sorted {
        match joined.last_mut() {
            Some(last) if part.start <= last.end => last.end = last.end.max(part.end),
            _ => joined.push(part),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(field: &str, size: u64, expected: &[(u64, u64)]) {
        let parts = expected.iter().map(|&(start, end)| Part { start, end }).collect();
        assert_eq!(wanted(field.as_bytes(), size), Wanted::Parts(parts), "{field} of {size}");
    }

    #[test]
    fn parts_are_what_the_standard_says() {
        check("bytes=0-0", 10, &[(0, 1)]);
        check("bytes=0-499", 10_000, &[(0, 500)]);
        check("bytes=500-", 10_000, &[(500, 10_000)]);
        check("bytes=-500", 10_000, &[(9_500, 10_000)]);
        check("bytes=-500", 100, &[(0, 100)]);
        check("bytes=5-1000000000000000000000000", 10, &[(5, 10)]);
        check("BYTES = 1 - 2 , 8-9", 10, &[(1, 3), (8, 10)]);
        check("bytes=,0-0,, 9-9,", 10, &[(0, 1), (9, 10)]);
        check("bytes=9-9,0-0", 10, &[(9, 10), (0, 1)]);
        check("bytes=50-, 2-3", 10, &[(2, 4)]);
    }

    #[test]
    fn parts_that_overlap_become_one() {
        check("bytes=0-5,3-8", 10, &[(0, 9)]);
        check("bytes=5-9,0-4", 10, &[(0, 10)]);
        check("bytes=0-,0-,0-,0-", 10, &[(0, 10)]);
    }

    #[test]
    fn parts_behind_the_end_are_nothing_and_nonsense_is_ignored() {
        for field in ["bytes=10-", "bytes=10-20", "bytes=-0", "bytes=10-,11-,-0", "bytes=99999999999999999999-"] {
            assert_eq!(wanted(field.as_bytes(), 10), Wanted::Nothing, "{field}");
        }
        assert_eq!(wanted(b"bytes=0-", 0), Wanted::Whole);
        assert_eq!(wanted(b"bytes=-5", 0), Wanted::Whole);
        let many = format!("bytes={}", "0-0,".repeat(1000));
        for field in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=-",
            "bytes=a-b",
            "bytes=5-4",
            "bytes=1",
            "items=0-1",
            "bytes=+1-2",
            "bytes=0x1-2",
            "bytes=1-2-3",
            "bytes=--1",
            "bytes 0-1",
            &many,
        ] {
            assert_eq!(wanted(field.as_bytes(), 10), Wanted::Whole, "{field}");
        }
    }
}
