//! How a typed target path is understood, and what is kept.

use std::path::PathBuf;

use crate::error::Result;
use crate::typed::Typed;

/// How a typed target path is understood, and what is kept.
#[derive(Debug, Clone, Default)]
pub struct TargetOptions {
    /// The directory that confines the path: no link leads out of it, and `/x` means `x` beneath it.
    pub confine: Option<PathBuf>,
    /// The directory that `~` means.
    pub home: Option<PathBuf>,
    /// Make missing directories of the target path.
    pub make: bool,
    /// One file is copied, so the path may be its new name.
    pub single_file: bool,
    /// Make nothing; a missing target is an empty tree.
    pub dry_run: bool,
    /// Extended attributes are kept.
    pub xattrs: bool,
    /// ACLs are kept.
    pub acls: bool,
    /// The tree is only read, so links of other users on the typed path are followed, as cp follows them.
    pub read_only: bool,
    /// Follow symbolic links to directories where directories come.
    pub keep_dirlinks: bool,
}

impl TargetOptions {
    pub(super) fn typed(&self) -> Result<Typed> {
        let typed = Typed::new(self.confine.as_deref(), self.home.as_deref())?;
        Ok(if self.read_only { typed } else { typed.trusted() })
    }
}
