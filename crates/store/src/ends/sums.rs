//! Sums of files by a source's server, and what was compared with them.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Result;

/// A sum of content that servers give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SumKind {
    /// Adler-32 (RFC 1950), which grids compare. It finds accidents, but no intent.
    Adler32,
    /// MD5.
    Md5,
    /// SHA-1.
    Sha1,
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
}

impl SumKind {
    /// Every kind, in the order of [`SumCounts`].
    pub const ALL: [SumKind; 5] = [SumKind::Adler32, SumKind::Md5, SumKind::Sha1, SumKind::Sha256, SumKind::Sha512];

    /// How many files were compared with their server's sums.
    pub fn name(self) -> &'static str {
        match self {
            SumKind::Adler32 => "adler32",
            SumKind::Md5 => "MD5",
            SumKind::Sha1 => "SHA-1",
            SumKind::Sha256 => "SHA-256",
            SumKind::Sha512 => "SHA-512",
        }
    }
}

/// How many files of a source were compared with a sum of their server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SumCounts {
    compared: [u64; SumKind::ALL.len()],
    /// Files without a sum, or not read whole.
    pub without: u64,
}

impl SumCounts {
    /// The compared kinds, each with its files.
    pub fn compared(&self) -> impl Iterator<Item = (SumKind, u64)> {
        SumKind::ALL.into_iter().zip(self.compared).filter(|(_, files)| *files > 0)
    }

    /// All compared files.
    pub fn files(&self) -> u64 {
        self.compared.iter().sum()
    }
}

/// Counts files while threads copy them.
#[derive(Debug, Default)]
pub struct SumCounter {
    compared: [AtomicU64; SumKind::ALL.len()],
    without: AtomicU64,
}

impl SumCounter {
    /// Counts a file that has its server's sum.
    pub fn compared(&self, kind: SumKind) {
        let at = SumKind::ALL.iter().position(|of| *of == kind).expect("every kind is listed");
        self.compared[at].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a file that was not compared.
    pub fn without(&self) {
        self.without.fetch_add(1, Ordering::Relaxed);
    }

    /// The numbers so far.
    pub fn counts(&self) -> SumCounts {
        let compared = std::array::from_fn(|at| self.compared[at].load(Ordering::Relaxed));
        SumCounts { compared, without: self.without.load(Ordering::Relaxed) }
    }
}

/// The server's sum of one file, compared while reading, or with the finished draft before it gets its name.
pub trait ServerSum: Debug + Send + Sync {
    /// Whether the target's data has yet to be compared.
    fn is_open(&self) -> bool;

    /// Reads and compares all of the file. `read` fills a buffer from an offset on. Without a sum the content agrees. Fails
    /// if it cannot be read.
    fn compare(
        &self,
        read: &mut dyn FnMut(&mut [u8], u64) -> Result<usize>,
    ) -> Result<std::result::Result<(), SumDiffers>>;
}

/// The content has not its server's sum. Sources wrap it in an [`io::Error`](std::io::Error).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its {} is not the one that its server gives: the file is damaged, or the server's sum is old", .0.name())]
pub struct SumDiffers(pub SumKind);
