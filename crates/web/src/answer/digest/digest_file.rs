//! Keeps digests beyond the process: a record for each state of a file.
//!
//! New records are appended. When there are too many, the file is written again with those still kept. A record whose check fails
//! is ignored.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use haul_store::{FileId, Time, Version};
use haul_sys::own::OwnDirectory;

use super::digests::{Digests, State};

#[derive(Debug)]
pub(crate) struct DigestFile {
    directory: OwnDirectory,
    name: String,
    file: File,
    records: usize,
    most: usize,
}

impl DigestFile {
    /// Opens the file and reads its digests, the oldest first.
    pub(crate) fn open(path: &Path, most: usize) -> io::Result<(DigestFile, Vec<(State, Digests)>)> {
        // Another user must not have written the digests.
        let directory = OwnDirectory::make(path.parent().unwrap_or(Path::new("/")))?;
        let name = path.file_name().and_then(|name| name.to_str()).ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        let mut file = directory.make_file_to_append(&name)?;
        let mut bytes = Vec::new();
        (&mut file).take((2 * most * RECORD_BYTES) as u64).read_to_end(&mut bytes)?;
        // A killed process may have left half a record.
        let whole = bytes.len() - bytes.len() % RECORD_BYTES;
        file.set_len(whole as u64)?;
        let known = bytes[..whole].chunks_exact(RECORD_BYTES).filter_map(parse).collect();
        Ok((DigestFile { directory, name, file, records: whole / RECORD_BYTES, most }, known))
    }

    /// Adds a digest. True: [`DigestFile::rewrite`] is due.
    pub(crate) fn add(&mut self, state: &State, digests: &Digests) -> io::Result<bool> {
        self.file.write_all(&record(state, digests))?;
        self.records += 1;
        Ok(self.records >= 2 * self.most)
    }

    pub(crate) fn rewrite<'a>(&mut self, kept: impl Iterator<Item = (&'a State, &'a Digests)>) -> io::Result<()> {
        let bytes: Vec<u8> = kept.flat_map(|(state, digests)| record(state, digests)).collect();
        let mut out = self.directory.begin(&self.name, OWN)?;
        out.write_all(&bytes)?;
        out.publish()?;
        self.file = self.directory.make_file_to_append(&self.name)?;
        self.records = bytes.len() / RECORD_BYTES;
        Ok(())
    }
}

/// Only this user may see which files were read.
const OWN: u32 = 0o600;

/// A record: device, inode, size, change (seconds, nanoseconds, number of the file), Adler-32, whether MD5 is known, three
/// digests, and a check. Numbers have eight bytes, little endian.
pub(crate) const RECORD_BYTES: usize = NUMBERS * 8 + 2 * 32 + 16 + CHECK_BYTES;
const NUMBERS: usize = 8;
const SHA256_AT: usize = NUMBERS * 8;
const BLAKE3_AT: usize = SHA256_AT + 32;
const MD5_AT: usize = BLAKE3_AT + 32;
const CHECK_AT: usize = MD5_AT + 16;
pub(crate) const CHECK_BYTES: usize = 8;

/// Keys the check. A new layout needs a new text.
const PURPOSE: &str = "haul 2026-11-26 digests of the web service, with MD5";

pub(crate) fn record((id, size, version): &State, digests: &Digests) -> [u8; RECORD_BYTES] {
    let changed = version.changed();
    let change = [changed.s.cast_unsigned(), changed.ns.into(), version.file()];
    let (has_md5, md5) = (digests.md5.is_some().into(), digests.md5.unwrap_or_default());
    let numbers: [u64; NUMBERS] =
        [id.dev, id.ino, *size, change[0], change[1], change[2], digests.adler32.into(), has_md5];
    let mut record = [0; RECORD_BYTES];
    for (place, number) in record.chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    record[SHA256_AT..BLAKE3_AT].copy_from_slice(&digests.sha256);
    record[BLAKE3_AT..MD5_AT].copy_from_slice(&digests.blake3);
    record[MD5_AT..CHECK_AT].copy_from_slice(&md5);
    let check = check(&record);
    record[CHECK_AT..].copy_from_slice(&check);
    record
}

pub(crate) fn check(record: &[u8]) -> [u8; CHECK_BYTES] {
    let check = blake3::derive_key(PURPOSE, &record[..RECORD_BYTES - CHECK_BYTES]);
    std::array::from_fn(|at| check[at])
}

pub(crate) fn parse(record: &[u8]) -> Option<(State, Digests)> {
    if record.len() != RECORD_BYTES || record[CHECK_AT..] != check(record) {
        return None;
    }
    let number = |at: usize| Some(u64::from_le_bytes(record.get(at * 8..at * 8 + 8)?.try_into().ok()?));
    let changed = Time { s: number(3)?.cast_signed(), ns: u32::try_from(number(4)?).ok()? };
    let state = (FileId { dev: number(0)?, ino: number(1)? }, number(2)?, Version::new(changed, number(5)?));
    let digests = Digests {
        adler32: u32::try_from(number(6)?).ok()?,
        sha256: record[SHA256_AT..BLAKE3_AT].try_into().ok()?,
        blake3: record[BLAKE3_AT..MD5_AT].try_into().ok()?,
        md5: match (number(7)?, record[MD5_AT..CHECK_AT].try_into().ok()?) {
            (0, md5) if md5 == [0; 16] => None,
            (1, md5) => Some(md5),
            _ => return None,
        },
    };
    Some((state, digests))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn one(number: u64) -> (State, Digests) {
        let version = Version::new(Time { s: -5, ns: 999_999_999 }, number);
        let digest = [number as u8; 32];
        let md5 = number.is_multiple_of(2).then_some([number as u8; 16]);
        let digests = Digests { adler32: number as u32, sha256: digest, blake3: digest, md5 };
        ((FileId { dev: 1, ino: number }, 1 << 40, version), digests)
    }

    #[test]
    fn a_record_is_read_in_one_way_only() {
        let (state, digests) = one(2);
        let with = |at: usize, byte: u8| {
            let mut bytes = record(&state, &digests);
            bytes[at] = byte;
            let check = check(&bytes);
            bytes[CHECK_AT..].copy_from_slice(&check);
            parse(&bytes)
        };
        let has_md5_at = (NUMBERS - 1) * 8;
        assert!(with(has_md5_at, 1).is_some());
        assert!(with(has_md5_at, 2).is_none(), "there is or there is not");
        assert!(with(has_md5_at, 0).is_none(), "a hash that is not known is nothing but zeros");
    }

    #[test]
    fn what_was_added_is_there_for_the_next_process_and_the_file_stays_small() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state/digests");
        let (mut file, known) = DigestFile::open(&path, 2).unwrap();
        assert!(known.is_empty());
        let due: Vec<bool> = (1..=4).map(|number| file.add(&one(number).0, &one(number).1).unwrap()).collect();
        assert_eq!(due, [false, false, false, true]);
        let kept = [one(3), one(4)];
        file.rewrite(kept.iter().map(|(state, digests)| (state, digests))).unwrap();
        assert!(!file.add(&one(5).0, &one(5).1).unwrap());
        let (_, known) = DigestFile::open(&path, 2).unwrap();
        assert_eq!(known, [one(3), one(4), one(5)]);
    }

    #[test]
    fn half_a_record_and_an_altered_one_count_as_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("digests");
        let (mut file, _) = DigestFile::open(&path, 8).unwrap();
        assert!((1..=3).all(|number| !file.add(&one(number).0, &one(number).1).unwrap()));
        let mut bytes = fs::read(&path).unwrap();
        bytes[RECORD_BYTES + 90] ^= 1;
        bytes.truncate(3 * RECORD_BYTES - 1);
        fs::write(&path, &bytes).unwrap();
        let (mut file, known) = DigestFile::open(&path, 8).unwrap();
        assert_eq!(known, [one(1)]);
        assert!(!file.add(&one(4).0, &one(4).1).unwrap());
        assert_eq!(DigestFile::open(&path, 8).unwrap().1, [one(1), one(4)], "what follows half a record is found");
    }

    #[test]
    fn any_bytes_are_a_file_without_digests() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("digests");
        fs::write(&path, vec![0xa5; 10_000]).unwrap();
        assert!(DigestFile::open(&path, 8).unwrap().1.is_empty());
    }
}
