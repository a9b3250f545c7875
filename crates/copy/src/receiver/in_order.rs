//! Does some things in the order of the manifest, each when everything before it is settled.

use std::sync::Arc;

use haul_store::SourceNames;
use haul_wire::RelPath;
use haul_wire::manifest::{Item, Time};

#[derive(Clone)]
pub(super) enum InOrder {
    /// The first name has to be there.
    HardLink(Arc<HardLink>),
    /// All entries have to be there: then its times hold, and the rest in it is extraneous.
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
    /// The run made it, so no killed run has left anything in it.
    pub(super) fresh: bool,
    /// Attributes and ACL stay.
    pub(super) keeps_xattrs: bool,
    /// The source could not read its names. Its mode must not close the directory to its owner here.
    pub(super) unread: bool,
    pub(super) is_source: bool,
    pub(super) is_empty: bool,
    pub(super) names: Option<SourceNames>,
}
