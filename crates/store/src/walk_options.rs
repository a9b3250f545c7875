//! The options of a walk.

use std::fmt;
use std::sync::Arc;

use crate::files_from::FileList;
use crate::filter::Filter;

/// The options of a walk.
#[derive(Debug, Default)]
pub struct WalkOptions {
    /// The rules, for paths relative to the target.
    pub filter: Filter,
    /// Only these paths beneath the one source, and directories on the way.
    pub files_from: Option<Arc<FileList>>,
    /// Yield further names of a file or link as [`EntryKind::HardLink`](crate::EntryKind::HardLink).
    pub hard_links: bool,
    /// Read extended attributes.
    pub xattrs: bool,
    /// Read ACLs.
    pub acls: bool,
    /// List only directories on their source's file system. Others end incomplete: the target's entries there stay.
    pub one_file_system: bool,
    /// Yield directories without content, except sources that mean it.
    pub dirs: bool,
    /// Yield no empty directory, except the root and those that a rule protects at the target.
    pub prune_empty_dirs: bool,
    /// Yield devices, not skip them.
    pub devices: bool,
    /// Yield FIFOs and sockets, not skip them.
    pub specials: bool,
    /// Only check that directories can be listed, and skip files of reported type.
    pub listing_only: bool,
    /// The files whose content is wanted for sure, if known: a server sends metadata and content in one answer.
    pub surely_wanted: Option<SurelyWanted>,
}

/// Says of a file at this path, relative to the target, whether its content is wanted for sure.
#[derive(Clone)]
pub struct SurelyWanted(Arc<IsWanted>);

type IsWanted = dyn Fn(&[u8]) -> bool + Send + Sync;

impl SurelyWanted {
    /// Asks this.
    pub fn by(is_wanted: impl Fn(&[u8]) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(is_wanted))
    }

    /// Several threads may ask.
    pub fn has(&self, path: &[u8]) -> bool {
        (self.0)(path)
    }
}

impl fmt::Debug for SurelyWanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SurelyWanted")
    }
}
