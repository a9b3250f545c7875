//! What a walk is asked for.

use std::sync::Arc;

use crate::files_from::FileList;
use crate::filter::Filter;

/// Options of a walk.
#[derive(Debug, Default)]
pub struct WalkOptions {
    /// Which entries are wanted; it sees paths relative to the target.
    pub filter: Filter,
    /// Only these paths beneath the one source directory, and the directories that lead to them.
    pub files_from: Option<Arc<FileList>>,
    /// Yield further names of a file or symbolic link as [`EntryKind::HardLink`].
    pub hard_links: bool,
    /// Read extended attributes.
    pub xattrs: bool,
    /// Read ACLs.
    pub acls: bool,
    /// List no directory of another file system than that of its source. It is yielded, and its end is incomplete: what
    /// stands in its place at the target stays.
    pub one_file_system: bool,
    /// Directories come without their content, but for sources that mean the contents of a directory.
    pub dirs: bool,
    /// Yield no directory in which nothing is yielded, but for the root and for what a rule protects at the target.
    pub prune_empty_dirs: bool,
    /// Yield devices; else they are skipped.
    pub devices: bool,
    /// Yield FIFOs and sockets; else they are skipped.
    pub specials: bool,
    /// Only check that all directories can be listed. Files are skipped where their directory reports their type.
    pub listing_only: bool,
}
