//! The options of a walk.

use std::sync::Arc;

use crate::files_from::FileList;
use crate::filter::Filter;

/// The options of a walk.
#[derive(Debug, Default)]
pub struct WalkOptions {
    /// The rules that decide which entries are wanted; they see paths relative to the target.
    pub filter: Filter,
    /// Only these paths beneath the one source directory, and the directories that lead to them.
    pub files_from: Option<Arc<FileList>>,
    /// Yield further names of a file or symbolic link as [`EntryKind::HardLink`].
    pub hard_links: bool,
    /// Read extended attributes.
    pub xattrs: bool,
    /// Read ACLs.
    pub acls: bool,
    /// List only directories on the file system of their source. Others are yielded with an incomplete end, so the
    /// target's entries there stay.
    pub one_file_system: bool,
    /// Yield directories without their content, except sources that mean the contents of a directory.
    pub dirs: bool,
    /// Yield no directory in which nothing is yielded, except the root and directories that a rule protects at the
    /// target.
    pub prune_empty_dirs: bool,
    /// Yield devices; else they are skipped.
    pub devices: bool,
    /// Yield FIFOs and sockets; else they are skipped.
    pub specials: bool,
    /// Only check that all directories can be listed. Files are skipped where their directory reports their type.
    pub listing_only: bool,
}
