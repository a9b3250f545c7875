//! A receiver does some things in the order of the manifest, each when everything before it is settled.

use std::sync::Arc;

use haul_store::SourceNames;
use haul_wire::RelPath;
use haul_wire::manifest::{Item, Time};

#[derive(Clone)]
pub(super) enum InOrder {
    /// The first name has to be there.
    HardLink(Arc<HardLink>),
    /// All entries have to be there: then its times hold, and what else stands in it is extraneous.
    DirectoryEnd(Arc<DirectoryEnd>),
}

pub(super) struct HardLink {
    pub(super) path: Vec<u8>,
    pub(super) first: RelPath,
    pub(super) mtime: Time,
}

pub(super) struct DirectoryEnd {
    pub(super) path: Vec<u8>,
    pub(super) directory: Option<Arc<Item>>,
    /// A directory of this run is empty at first: no killed run before it can have left anything in it.
    pub(super) fresh: bool,
    /// The directory's attributes and ACL stay as they are.
    pub(super) keeps_xattrs: bool,
    /// The source could not read the names in this directory. Its mode must not close the directory to its owner here.
    pub(super) unread: bool,
    /// It is a whole source, and not a directory within one.
    pub(super) is_source: bool,
    /// The source has nothing in it.
    pub(super) is_empty: bool,
    /// The names of the source are known when others are to be deleted.
    pub(super) names: Option<SourceNames>,
}
