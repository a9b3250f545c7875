//! The options of a walk.

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
}
