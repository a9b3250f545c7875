//! Where the paths of questions begin, and what is told of entries.

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
    /// The confining directory: no link leads out, and `/x` is `x` beneath it.
    pub confine: Option<PathBuf>,
    /// The meaning of `~`.
    pub home: Option<PathBuf>,
    /// Expand wildcards that no shell has expanded.
    pub expand_globs: bool,
    /// How much a question may name.
    pub limits: SourceLimits,
    /// How much is held in memory.
    pub bounds: SiteBounds,
}

/// How much of a tree is held in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SiteBounds {
    /// Sorted names of one directory, with 16 bytes each: a million names of 30 bytes take 46 MB. A larger directory comes
    /// unsorted.
    pub sorted_bytes: usize,
    /// Names of directories to be entered.
    pub held_bytes: usize,
    /// Remembered inodes with several names, to count once: 24 bytes each.
    pub inodes: usize,
}

impl Default for SiteBounds {
    fn default() -> Self {
        Self { sorted_bytes: 64 << 20, held_bytes: 64 << 20, inodes: 1 << 20 }
    }
}

/// The start of typed paths, and how they are read.
pub struct Site {
    pub(super) typed: Typed,
    pub(super) changed: Typed,
    pub(super) kernel_files: KernelFiles,
    pub(super) options: SiteOptions,
    pub(super) names_left: usize,
}

/// A result, with paths beneath the operand.
#[derive(Debug)]
pub enum Line {
    /// The directory of the next entries.
    In(Vec<u8>),
    /// The directory has too many names to sort.
    Unsorted,
    /// An entry.
    Entry(Vec<u8>, Option<EntryFacts>),
    /// The usage of an entry: blocks of 512 bytes, and the sum of sizes.
    Usage(Vec<u8>, u64, u64),
    /// The entry was removed, or would be.
    Removed(Vec<u8>),
    /// A regular file, open to read.
    File(Vec<u8>, SourceFile),
    /// A regular file at an end where no haul runs.
    FileAt(Vec<u8>),
    /// A dead copy's draft or journal, and its size; removed if asked for.
    Left(Vec<u8>, u64),
    /// A chance to stop the work.
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
        let names_left = if is_confined { options.limits.names_listed } else { usize::MAX };
        Ok(Site { typed, changed, kernel_files: KernelFiles::of(is_confined), options, names_left })
    }
}
