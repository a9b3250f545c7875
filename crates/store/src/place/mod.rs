//! A tree as a place to look at and to change by hand: `haul ls`, `du`, `stat`, `mkdir`, `mv`, `rm`, `cat`.
//!
//! ```text
//!   operand    what a typed path means; wildcards      facts   what the file system knows of an entry
//!   listing    the entries of directories              usage   what a tree takes
//!   files      the files of a tree, to hash them         leftovers  what dead copies left
//!   descent    one directory after the other           change  make, move, remove
//! ```
//! What is found goes to the caller line by line. A caller that has enough ends it.

mod change;
mod descent;
mod facts;
mod files;
mod leftovers;
mod listing;
mod operand;
mod usage;

use std::ops::ControlFlow;
use std::path::PathBuf;

use crate::ends::reading::SourceFile;
use crate::error::{Result, StoreError};
use crate::kernel_files::KernelFiles;
use crate::resolve::SourceLimits;
use crate::typed::Typed;

pub use change::{Moved, Removal};
pub use facts::{EntryFacts, NodeKind};
pub use listing::ListOptions;
pub use operand::{Operand, is_answer_to};
pub use usage::Counted;

/// How typed paths are understood.
#[derive(Debug, Clone, Default)]
pub struct SiteOptions {
    /// All paths are beneath this directory and no link leads out of it; `/x` means `x` beneath it.
    pub confine: Option<PathBuf>,
    /// What `~` stands for.
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
    /// Names of one directory that are sorted, with 16 bytes for each: a million names of 30 bytes take 46 MB. A directory with more
    /// is told in its own order.
    pub sorted_bytes: usize,
    /// Names of directories that are still to be entered, at all depths together.
    pub held_bytes: usize,
    /// Inodes with several names that are remembered, so that they count once: 24 bytes each.
    pub inodes: usize,
}

impl Default for SiteBounds {
    fn default() -> Self {
        Self { sorted_bytes: 64 << 20, held_bytes: 64 << 20, inodes: 1 << 20 }
    }
}

/// Where typed paths begin, and how they are understood.
pub struct Site {
    /// For what is looked at.
    typed: Typed,
    /// For what is changed.
    changed: Typed,
    kernel_files: KernelFiles,
    options: SiteOptions,
    /// Names that wildcards may still be compared with.
    names_left: usize,
}

/// What is found of one operand, line by line. Paths lie beneath the operand; the empty path is the operand itself.
#[derive(Debug)]
pub enum Line {
    /// The next entries stand in this directory.
    In(Vec<u8>),
    /// It has too many names to be sorted.
    Unsorted,
    /// An entry.
    Entry(Vec<u8>, Option<EntryFacts>),
    /// What it takes with all beneath it: blocks of 512 bytes, and the sizes of all.
    Usage(Vec<u8>, u64, u64),
    /// It was removed, or would be.
    Removed(Vec<u8>),
    /// A regular file, open to read.
    File(Vec<u8>, SourceFile),
    /// A draft or journal of a dead copy, and its size. It is gone, if that was asked for.
    Left(Vec<u8>, u64),
    /// Nothing new: the work goes on, if it is still wanted.
    Busy,
    /// Something beneath the operand could not be done.
    Failed(StoreError),
}

/// Takes a line. [`ControlFlow::Break`]: no more is wanted.
pub type Tell<'a> = &'a mut dyn FnMut(Line) -> ControlFlow<()>;

impl Site {
    /// Opens the directory that paths are confined to.
    pub fn open(options: SiteOptions) -> Result<Site> {
        let typed = Typed::new(options.confine.as_deref(), options.home.as_deref())?;
        let changed = Typed::new(options.confine.as_deref(), options.home.as_deref())?.trusted();
        let is_confined = options.confine.is_some();
        // A user with an account may use the host for any time anyway.
        let names_left = if is_confined { options.limits.names_listed } else { usize::MAX };
        Ok(Site { typed, changed, kernel_files: KernelFiles::of(is_confined), options, names_left })
    }
}
