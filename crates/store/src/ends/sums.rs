//! Sums that the server of a source gives of its files, and what has been compared with them.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Result;

/// A sum of a file's content that servers give.
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

    /// The name for people and reports.
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
    /// Files whose server gave no sum, or that were not read from end to end.
    pub without: u64,
}

impl SumCounts {
    /// The kinds that were compared, each with its number of files.
    pub fn compared(&self) -> impl Iterator<Item = (SumKind, u64)> {
        SumKind::ALL.into_iter().zip(self.compared).filter(|(_, files)| *files > 0)
    }

    /// All files that were compared.
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
    /// A file has the sum that its server gave.
    pub fn compared(&self, kind: SumKind) {
        let at = SumKind::ALL.iter().position(|of| *of == kind).expect("every kind is listed");
        self.compared[at].fetch_add(1, Ordering::Relaxed);
    }

    /// A file was not compared.
    pub fn without(&self) {
        self.without.fetch_add(1, Ordering::Relaxed);
    }

    /// The numbers so far.
    pub fn counts(&self) -> SumCounts {
        let compared = std::array::from_fn(|at| self.compared[at].load(Ordering::Relaxed));
        SumCounts { compared, without: self.without.load(Ordering::Relaxed) }
    }
}

/// The server's sum of one file. The source compares it while it reads, where it can. Otherwise the finished draft is read
/// once more before it gets its name.
pub trait ServerSum: Debug + Send + Sync {
    /// The data as it stands at the target has yet to be compared.
    fn is_open(&self) -> bool;

    /// Reads all of the file, block after block, and compares it. `read` fills
    /// a buffer from an offset on; fewer bytes mean the end of the file.
    ///
    /// The content agrees with the server's sum if there is none.
    ///
    /// # Errors
    /// The content cannot be read.
    fn compare(
        &self,
        read: &mut dyn FnMut(&mut [u8], u64) -> Result<usize>,
    ) -> Result<std::result::Result<(), SumDiffers>>;
}

/// The content of a file has another sum than its server says. Sources wrap it in an [`io::Error`](std::io::Error).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its {} is not the one that its server gives: the file is damaged, or the server's sum is old", .0.name())]
pub struct SumDiffers(pub SumKind);
