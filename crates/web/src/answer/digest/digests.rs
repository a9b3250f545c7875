//! The digests of a file in one state.

use haul_store::{FileId, Stat, Version};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Digests {
    /// The checksum that grids compare (RFC 1950). It finds accidents, not intent.
    pub(crate) adler32: u32,
    pub(crate) sha256: [u8; 32],
    pub(crate) blake3: [u8; 32],
    pub(crate) md5: Option<[u8; 16]>,
}

/// Which digests are computed. MD5 takes as long as all others together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    AllButMd5,
    All,
}

impl Digests {
    pub(super) fn has(&self, which: Which) -> bool {
        which == Which::AllButMd5 || self.md5.is_some()
    }
}

pub(crate) type State = (FileId, u64, Version);

pub(super) fn state(stat: &Stat) -> State {
    (stat.id, stat.size, stat.version)
}
