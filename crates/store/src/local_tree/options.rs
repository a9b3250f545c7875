//! How a typed target path is understood, and what is kept.

use std::path::PathBuf;

use crate::error::Result;
use crate::typed::Typed;

/// The options for a target.
#[derive(Debug, Clone, Default)]
pub struct TargetOptions {
    /// The confining directory: no link leads out, and `/x` is `x` beneath it.
    pub confine: Option<PathBuf>,
    /// The meaning of `~`.
    pub home: Option<PathBuf>,
    /// Make the path's missing directories.
    pub make: bool,
    /// One file is copied: the path may be its new name.
    pub single_file: bool,
    /// Make nothing; a missing target is an empty tree.
    pub dry_run: bool,
    /// Extended attributes are kept.
    pub xattrs: bool,
    /// ACLs are kept.
    pub acls: bool,
    /// The tree is only read: other users' links on the typed path are followed, as in cp.
    pub read_only: bool,
    /// Follow links to directories where directories come.
    pub keep_dirlinks: bool,
}

impl TargetOptions {
    pub(super) fn typed(&self) -> Result<Typed> {
        let typed = Typed::new(self.confine.as_deref(), self.home.as_deref())?;
        Ok(if self.read_only { typed } else { typed.trusted() })
    }
}
