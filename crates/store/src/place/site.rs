//! Where the paths of questions begin, and what is told of entries, line by line.

use std::ops::ControlFlow;
use std::path::PathBuf;

use crate::ends::reading::SourceFile;
use crate::error::{Result, StoreError};
use crate::kernel_files::KernelFiles;
use crate::resolve::SourceLimits;
use crate::typed::Typed;

use super::facts::EntryFacts;

/// How typed paths are read.
#[derive(Debug, Clone, Default)]
pub struct SiteOptions {
    /// The directory that confines all paths: no link leads out of it, and `/x` means `x` beneath it.
    pub confine: Option<PathBuf>,
    /// The directory that `~` means.
    pub home: Option<PathBuf>,
    /// Expand wildcards, for paths that no shell has expanded.
    pub expand_globs: bool,
    /// How much a question may name.
    pub limits: SourceLimits,
    /// How much is held in memory at once.
    pub bounds: SiteBounds,
}

/// How much of a tree is held in memory at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SiteBounds {
    /// Names of one directory that are sorted, with 16 bytes for each: a million names of 30 bytes take 46 MB. A larger
    /// directory is told in its own order.
    pub sorted_bytes: usize,
    /// Names of directories still to be entered, at all depths together.
    pub held_bytes: usize,
    /// Remembered inodes with several names, so that they count once: 24 bytes each.
    pub inodes: usize,
}

impl Default for SiteBounds {
    fn default() -> Self {
        Self { sorted_bytes: 64 << 20, held_bytes: 64 << 20, inodes: 1 << 20 }
    }
}

/// The start of typed paths, and how they are read.
pub struct Site {
    /// Opens entries that are looked at.
    pub(super) typed: Typed,
    /// Opens entries that are changed.
    pub(super) changed: Typed,
    pub(super) kernel_files: KernelFiles,
    pub(super) options: SiteOptions,
    /// Names that wildcards may still be compared with.
    pub(super) names_left: usize,
}

/// A result for one operand. Paths lie beneath the operand; the empty path is the operand itself.
#[derive(Debug)]
pub enum Line {
    /// The next entries stand in this directory.
    In(Vec<u8>),
    /// The directory has too many names to be sorted.
    Unsorted,
    /// An entry.
    Entry(Vec<u8>, Option<EntryFacts>),
    /// The usage of an entry with all beneath it: blocks of 512 bytes, and the sum of sizes.
    Usage(Vec<u8>, u64, u64),
    /// The entry was removed, or would be.
    Removed(Vec<u8>),
    /// A regular file, open to read.
    File(Vec<u8>, SourceFile),
    /// A regular file at an end where no haul runs.
    FileAt(Vec<u8>),
    /// A draft or journal of a dead copy, and its size. It was removed, if that was asked for.
    Left(Vec<u8>, u64),
    /// Nothing new. The caller may stop the work here.
    Busy,
    /// An operation beneath the operand failed.
    Failed(StoreError),
}

/// Takes a line. [`ControlFlow::Break`] ends the work.
pub type Tell<'a> = &'a mut dyn FnMut(Line) -> ControlFlow<()>;

impl Site {
    /// Opens the directory that confines the paths.
    pub fn open(options: SiteOptions) -> Result<Site> {
        let typed = Typed::new(options.confine.as_deref(), options.home.as_deref())?;
        let changed = Typed::new(options.confine.as_deref(), options.home.as_deref())?.trusted();
        let is_confined = options.confine.is_some();
        // A user with an account may use the host for any time anyway.
        let names_left = if is_confined { options.limits.names_listed } else { usize::MAX };
        Ok(Site { typed, changed, kernel_files: KernelFiles::of(is_confined), options, names_left })
    }
}
