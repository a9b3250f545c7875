//! What a receiver does in the order of the manifest.

use std::sync::Arc;

use haul_store::SourceNames;
use haul_wire::RelPath;
use haul_wire::manifest::{Item, Time};

/// What is done only when everything before it is settled.
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
    /// Of the file at the source.
    pub(super) mtime: Time,
}

pub(super) struct DirectoryEnd {
    pub(super) path: Vec<u8>,
    /// The directory's own item with its metadata.
    pub(super) directory: Option<Arc<Item>>,
    /// Made in this run: no killed run before it can have left anything in it.
    pub(super) fresh: bool,
    /// Its attributes and ACL stay as they are.
    pub(super) keeps_xattrs: bool,
    /// The source could not read the names in this directory. Its mode must not close the directory to its owner here.
    pub(super) unread: bool,
    /// The names that the source has, when others are to be deleted.
    pub(super) names: Option<SourceNames>,
}
