//! Checks paths beneath a root, and names the files in progress.
//!
//! A file being written is `.haul-<hash>.part` beside its final name, its journal `.haul-<hash>.journal`. The hash of the
//! final name keeps these within 46 bytes, and finds them after a crash.

use std::io;

use rustix::io::Errno;

use crate::error::refusal;

/// The name of the unfinished content of `file_name`.
pub fn part_name(file_name: &[u8]) -> Vec<u8> {
    format!("{PREFIX}{:032x}{PART_SUFFIX}", name_hash(file_name)).into_bytes()
}

/// The name of the journal of an unfinished `file_name`.
pub fn journal_name(file_name: &[u8]) -> Vec<u8> {
    format!("{PREFIX}{:032x}{JOURNAL_SUFFIX}", name_hash(file_name)).into_bytes()
}

/// 128 bits of the BLAKE3 of a name or path: nobody can make two names with one hash, and pass one file's part for
/// another's. A change would lose earlier versions' parts.
pub fn name_hash(name: &[u8]) -> u128 {
    let hash = blake3::hash(name);
    u128::from_be_bytes(*hash.as_bytes().first_chunk().expect("a hash has 32 bytes"))
}

/// The hash in a part's or journal's name; earlier 64-bit ones count, but match no file.
pub fn parse_haul_name(name: &[u8]) -> Option<u128> {
    let rest = name.strip_prefix(PREFIX.as_bytes())?;
    let digits = rest.strip_suffix(PART_SUFFIX.as_bytes()).or_else(|| rest.strip_suffix(JOURNAL_SUFFIX.as_bytes()))?;
    let is_hash = HASH_DIGITS.contains(&digits.len());
    let exact = is_hash && digits.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    exact.then(|| u128::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()).flatten()
}

pub(crate) fn is_journal_name(name: &[u8]) -> bool {
    name.ends_with(JOURNAL_SUFFIX.as_bytes()) && parse_haul_name(name).is_some()
}

/// Whether haul gives this name to something unfinished: a part, a journal, a directory for them, or a file named when whole
/// (`.NAME.haul-PROCESS`).
pub(crate) fn is_draft_name(name: &[u8]) -> bool {
    let ends_in_process = || {
        let at = name.windows(BESIDE.len()).rposition(|part| part == BESIDE.as_bytes())?;
        let process = &name[at + BESIDE.len()..];
        Some(at > 1 && name[0] == b'.' && !process.is_empty() && process.iter().all(u8::is_ascii_digit))
    };
    name.starts_with(PREFIX.as_bytes()) || ends_in_process().unwrap_or(false)
}

/// The name of a part's journal.
pub fn journal_of_part(name: &[u8]) -> Option<Vec<u8>> {
    parse_haul_name(name)?;
    let stem = name.strip_suffix(PART_SUFFIX.as_bytes())?;
    Some([stem, JOURNAL_SUFFIX.as_bytes()].concat())
}

/// Accepts an entry's path beneath a root, or the empty path. Refuses empty, `.` and `..` components, a leading or trailing
/// slash, and NUL.
pub fn check_path(path: &[u8]) -> io::Result<()> {
    if path.is_empty() {
        return Ok(());
    }
    if path.contains(&0) {
        return Err(Errno::INVAL.into());
    }
    match path.split(|&byte| byte == b'/').any(|part| matches!(part, b"" | b"." | b"..")) {
        true => Err(refusal(io::ErrorKind::InvalidInput, "the path is not plainly beneath the root")),
        false => Ok(()),
    }
}

/// [`check_path`] for a new entry, not named like our unfinished files.
pub fn check_new_path(path: &[u8]) -> io::Result<()> {
    check_path(path)?;
    match parse_haul_name(split(path).1) {
        Some(_) => Err(refusal(io::ErrorKind::InvalidInput, "the name is reserved for unfinished files of haul")),
        None => Ok(()),
    }
}

pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

pub(crate) fn join(parent: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(parent.len() + 1 + name.len());
    path.extend_from_slice(parent);
    if !parent.is_empty() && !name.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

const PREFIX: &str = ".haul-";
/// Stands before a process number (`haul_sys::whole_file`).
const BESIDE: &str = ".haul-";
const PART_SUFFIX: &str = ".part";
const JOURNAL_SUFFIX: &str = ".journal";

/// 64 bits were too few: two names with one FNV-1a hash can be made.
const HASH_DIGITS: [usize; 2] = [32, 16];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_parts_are_short_stable_and_recognised() {
        assert_eq!(part_name(b"foobar"), b".haul-aa51dcd43d5c6c5203ee16906fd6b35d.part");
        assert_eq!(journal_name(b"foobar"), b".haul-aa51dcd43d5c6c5203ee16906fd6b35d.journal");
        for name in [part_name(b"foobar"), journal_name(b"foobar")] {
            assert_eq!(parse_haul_name(&name), Some(name_hash(b"foobar")));
        }
        assert_eq!(parse_haul_name(b".haul-85944171f73967e8.part"), Some(0x8594_4171_f739_67e8), "of earlier versions");
        assert!(journal_name(&[b'x'; 255]).len() <= 46);
        for other in
            [".haul-.part", ".haul-85944171F73967E8.part", ".haul-85944171f73967e8", ".haul-+5944171f73967e8.part"]
        {
            assert_eq!(parse_haul_name(other.as_bytes()), None, "{other}");
        }
        assert_eq!(journal_of_part(&part_name(b"foobar")), Some(journal_name(b"foobar")));
        assert_eq!(journal_of_part(&journal_name(b"foobar")), None);
        assert_eq!(journal_of_part(b".haul-x.part"), None);
    }

    #[test]
    fn names_that_were_made_to_have_one_hash_have_two() {
        for (one, other) in [
            (&b"8yn0iYCKYHlIj4-BwPqk"[..], &b"GReLUrM4wMqfg9yzV3KQ"[..]),
            (b"gMPflVXtwGDXbIhP73TX", b"LtHf1prlU1bCeYZEdqWf"),
        ] {
            assert_ne!(part_name(one), part_name(other));
        }
    }

    #[test]
    fn only_plain_relative_paths_are_accepted() {
        for good in ["", "a", "a/b", ".a", "..a", "a..", "a b\nc"] {
            assert!(check_path(good.as_bytes()).is_ok(), "{good:?}");
        }
        for bad in ["/", "/a", "a/", "a//b", ".", "..", "a/..", "../a", "a/./b", "a\0b"] {
            assert!(check_path(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(check_new_path(&join(b"a", &part_name(b"x"))).is_err());
    }
}
