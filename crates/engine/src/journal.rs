//! The ledger of one file as bytes on disk, so that a killed transfer goes on where it was.
//!
//! ```text
//!   header   magic (8) | identity of the source (8 x 4 bytes of fields) | chunk size | identity of the part file | crc
//!   record   chunk (4) | hash (32) | crc over header crc, chunk and hash (4)
//! ```
//! A record is appended only after the chunk's data was flushed. A damaged record ends the journal: later chunks are sent again.
//! A header alone marks a file not finished in place.

use alloc::vec::Vec;

use haul_wire::manifest::{Identity, Time};

use crate::compare::same_time;
use crate::integrity::Hash;

const MAGIC: [u8; 8] = *b"HAULJNL2";

/// Magic, size, two times, inode, chunk size, device, inode, crc.
pub const HEADER_BYTES: usize = 8 + 8 + 12 + 12 + 8 + 8 + 8 + 8 + 4;

/// Bytes of one record.
pub const RECORD_BYTES: usize = 4 + 32 + 4;

/// The file that the journal belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// State of the source file.
    pub identity: Identity,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// The part's device and inode: a journal is worth nothing beside another. [`NOTHING`]: none was there.
    pub part: (u64, u64),
}

/// The [`Header::part`] of a file made in place.
pub const NOTHING: (u64, u64) = (0, 0);

impl Header {
    /// Encodes, with its check sum.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&self.identity.size.to_le_bytes());
        for time in [self.identity.mtime, self.identity.ctime] {
            out.extend_from_slice(&time.s.to_le_bytes());
            out.extend_from_slice(&time.ns.to_le_bytes());
        }
        for word in [self.identity.inode, self.chunk_bytes, self.part.0, self.part.1] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, crc) = bytes.get(..HEADER_BYTES)?.split_at(HEADER_BYTES - 4);
        if body[..8] != MAGIC || crc32fast::hash(body).to_le_bytes() != crc {
            return None;
        }
        let mut fields = Fields(&body[8..]);
        let size = fields.u64();
        let mtime = fields.time();
        let ctime = fields.time();
        let inode = fields.u64();
        let chunk_bytes = fields.u64();
        let part = (fields.u64(), fields.u64());
        Some(Self { identity: Identity { size, mtime, ctime, inode }, chunk_bytes, part })
    }

    /// Encodes one record of this journal.
    pub fn record(&self, chunk: u32, hash: &Hash) -> [u8; RECORD_BYTES] {
        record(header_crc(&self.encode()), chunk, hash)
    }
}

/// Whether a file (device and inode) was not finished in place, by its journal without a part. The last step gives it the
/// source's size and time. A damaged journal tells only that something was unfinished.
pub fn is_unfinished(journal: &[u8], file: (u64, u64), size: u64, mtime: Time) -> bool {
    Header::decode(journal).is_none_or(|header| {
        let is_about_it = header.part == file || header.part == NOTHING;
        is_about_it && (size != header.identity.size || !same_time(mtime, header.identity.mtime))
    })
}

/// Encodes records for one append.
pub fn encode_records(header: &Header, chunks: &[(u32, Hash)]) -> Vec<u8> {
    let seed = header_crc(&header.encode());
    chunks.iter().flat_map(|(chunk, hash)| record(seed, *chunk, hash)).collect()
}

/// All records up to the first damaged one; `None`: no readable header.
pub fn decode(bytes: &[u8]) -> Option<(Header, Vec<(u32, Hash)>)> {
    let header = Header::decode(bytes)?;
    let seed = header_crc(bytes);
    let records = bytes[HEADER_BYTES..]
        .chunks_exact(RECORD_BYTES)
        .map_while(|bytes| {
            let chunk = u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"));
            let hash: Hash = bytes[4..36].try_into().expect("32 bytes");
            (record(seed, chunk, &hash) == *bytes).then_some((chunk, hash))
        })
        .collect();
    Some((header, records))
}

fn header_crc(header: &[u8]) -> [u8; 4] {
    header[HEADER_BYTES - 4..HEADER_BYTES].try_into().expect("four bytes")
}

/// An older journal's records do not pass: the header's check sum is mixed in.
fn record(seed: [u8; 4], chunk: u32, hash: &Hash) -> [u8; RECORD_BYTES] {
    let mut out = [0; RECORD_BYTES];
    out[..4].copy_from_slice(&chunk.to_le_bytes());
    out[4..36].copy_from_slice(hash);
    let mut crc = crc32fast::Hasher::new();
    crc.update(&seed);
    crc.update(&out[..36]);
    out[36..].copy_from_slice(&crc.finalize().to_le_bytes());
    out
}

/// Takes fields off a slice of checked length.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self.0.split_first_chunk::<N>().expect("length was checked");
        self.0 = rest;
        *field
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    fn time(&mut self) -> Time {
        Time { s: i64::from_le_bytes(self.take()), ns: u32::from_le_bytes(self.take()) }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;

    fn header() -> Header {
        let identity = Identity {
            size: 1 << 40,
            mtime: Time { s: -3, ns: 999_999_999 },
            ctime: Time { s: 1_700_000_000, ns: 1 },
            inode: 42,
        };
        Header { identity, chunk_bytes: 16 << 20, part: (7, 8) }
    }

    fn journal(records: &[(u32, Hash)]) -> Vec<u8> {
        [header().encode(), encode_records(&header(), records)].concat()
    }

    #[test]
    fn a_journal_survives_the_disk() {
        let records = vec![(0, [1; 32]), (65_535, [2; 32])];
        assert_eq!(decode(&journal(&records)), Some((header(), records)));
    }

    #[test]
    fn a_damaged_header_is_no_journal() {
        let good = journal(&[]);
        for at in 0..HEADER_BYTES {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert_eq!(decode(&bad), None, "byte {at}");
        }
    }

    #[test]
    fn a_header_of_another_version_is_no_journal_though_its_check_sum_is_right() {
        let good = journal(&[]);
        let with_magic = |magic: &[u8; 8]| {
            let mut bytes = good.clone();
            bytes[..8].copy_from_slice(magic);
            let crc = crc32fast::hash(&bytes[..HEADER_BYTES - 4]).to_le_bytes();
            bytes[HEADER_BYTES - 4..].copy_from_slice(&crc);
            decode(&bytes)
        };
        assert_eq!(with_magic(&MAGIC), Some((header(), vec![])));
        for other in [b"HAULJNL1", b"HAULJNL3", b"HAULJNLx", &[0; 8]] {
            assert_eq!(with_magic(other), None);
        }
    }

    #[test]
    fn records_of_another_journal_do_not_count() {
        let other = Header { part: (7, 9), ..header() };
        let mixed = [header().encode(), encode_records(&other, &[(0, [1; 32])])].concat();
        assert_eq!(decode(&mixed), Some((header(), vec![])));
    }

    #[test]
    fn a_journal_tells_what_was_begun_in_place_from_what_is_finished() {
        let Identity { size, mtime, .. } = header().identity;
        let (begun, about_to_be_made) = (header().encode(), Header { part: NOTHING, ..header() }.encode());
        assert!(is_unfinished(&begun, (7, 8), size, Time::default()) && is_unfinished(&begun, (7, 8), 5, mtime));
        assert!(!is_unfinished(&begun, (7, 8), size, mtime), "only its journal was left");
        assert!(!is_unfinished(&begun, (7, 8), size, Time { ns: 0, ..mtime }), "times of whole seconds");
        assert!(!is_unfinished(&begun, (7, 9), 5, mtime), "another file by now, or the journal of a part");
        assert!(is_unfinished(&about_to_be_made, (7, 9), 0, Time::default()));
        assert!(is_unfinished(&begun[..HEADER_BYTES - 1], (7, 8), size, mtime));
    }

    proptest! {
        /// P3 of the fault catalogue: truncated, garbage appended, one bit flipped.
        #[test]
        fn damage_only_ever_shortens_a_journal(
            count in 0u32..20, cut in 0usize..1000, flip in 0usize..8000, garbage in proptest::collection::vec(any::<u8>(), 0..90)
        ) {
            let records: Vec<(u32, Hash)> = (0..count).map(|chunk| (chunk, [chunk as u8; 32])).collect();
            let mut bytes = journal(&records);
            let keep = bytes.len() - cut.min(bytes.len());
            bytes.truncate(keep);
            bytes.extend_from_slice(&garbage);
            let bits = bytes.len() * 8;
            if bits > 0 {
                bytes[flip % bits / 8] ^= 1 << (flip % 8);
            }
            if let Some((_, read)) = decode(&bytes) {
                prop_assert!(records.starts_with(&read));
            }
        }
    }
}
