//! A file as its sender has it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use haul_engine::plan::ChunkLayout;
use haul_engine::sending::Offered;
use haul_store::{AsCopied, SourceFile, SourceTree};
use haul_wire::control::Portion;
use haul_wire::manifest::{Identity, Item, ItemKind};

use crate::sync::lock;

use super::changes::ChangesLeft;
use super::early_look::{ChunkHasher, EarlyLook, FileHashes};
use super::young_stamp;

/// Where the store found a file.
#[derive(Clone, Default)]
pub(super) struct Origin {
    pub(super) source: u32,
    /// Relative to the source.
    pub(super) path: Vec<u8>,
    /// Its inode tells when it changed.
    pub(super) tells_changes: bool,
    /// What it was when it was found.
    pub(super) copied: AsCopied,
}

/// A file of the manifest that is still open.
pub(super) struct SourceItem {
    pub(super) index: u64,
    pub(super) identity: Identity,
    pub(super) layout: ChunkLayout,
    pub(super) sparse: bool,
    pub(super) origin: Origin,
    /// As the walk found it. `None` where another host walks.
    pub(super) listed: Option<Item>,
    pub(super) changes_left: ChangesLeft,
    /// Only its hash is wanted.
    pub(super) hash_only: AtomicBool,
    /// How often a chunk of it was sent again because the target's medium had lost it.
    pub(super) repairs: AtomicU32,
    /// How often a chunk of it was sent again because a lane that died had it last.
    pub(super) voids: AtomicU32,
    /// Hashes of its chunks that were computed before there were lanes.
    pub(super) early: Option<Arc<FileHashes>>,
    /// Kept open while chunks of a large file are carried.
    file: Mutex<Option<Arc<SourceFile>>>,
}

impl SourceItem {
    /// Of a file that the walk found. `None`: it is something else.
    pub(super) fn listed(
        item: &Item,
        index: u64,
        origin: Origin,
        early: Option<&EarlyLook>,
        changes_left: ChangesLeft,
    ) -> Option<Arc<Self>> {
        let listed = Item { kind: item.kind.as_file()?, ..item.clone() };
        let ItemKind::File { identity, hole_bytes, .. } = &listed.kind else { return None };
        Some(Arc::new(SourceItem {
            index,
            identity: *identity,
            layout: ChunkLayout::of(identity.size),
            sparse: *hole_bytes > 0,
            origin,
            listed: Some(listed.clone()),
            changes_left,
            hash_only: AtomicBool::new(false),
            repairs: AtomicU32::new(0),
            voids: AtomicU32::new(0),
            early: early.and_then(|early| early.of(identity)),
            file: Mutex::new(None),
        }))
    }

    /// Of a file that another host found.
    pub(super) fn of_portion(portion: &Portion) -> Arc<Self> {
        let Portion { index, source, path, identity, .. } = portion;
        Arc::new(SourceItem {
            index: *index,
            identity: *identity,
            layout: ChunkLayout::of(identity.size),
            sparse: false,
            origin: Origin { source: *source, path: path.clone(), tells_changes: true, copied: AsCopied::default() },
            listed: None,
            changes_left: ChangesLeft::AT_FIRST,
            hash_only: AtomicBool::new(false),
            repairs: AtomicU32::new(0),
            voids: AtomicU32::new(0),
            early: None,
            file: Mutex::new(None),
        })
    }

    /// The open file: shared between the chunks of a large file, opened for the moment for a whole one. What the page cache does not have
    /// of a file of at least `direct_from_bytes` is looked at.
    pub(super) fn open(
        &self,
        sources: &dyn SourceTree,
        direct_from_bytes: Option<u64>,
    ) -> haul_store::Result<Arc<SourceFile>> {
        young_stamp::outlast(self.identity.ctime);
        if self.layout.is_whole() {
            return sources.open(self.origin.source, &self.origin.path).map(Arc::new);
        }
        let mut file = lock(&self.file);
        if let Some(file) = &*file {
            return Ok(Arc::clone(file));
        }
        let mut opened = sources.open(self.origin.source, &self.origin.path)?;
        let looks_from_bytes = direct_from_bytes.filter(|_| !self.hash_only.load(Ordering::Relaxed));
        opened.prepare(self.identity.size, looks_from_bytes);
        let opened = Arc::new(opened);
        *file = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// Whether it is worth a look where its holes are. Space that was allocated and never written is a hole, too, and shows in no size.
    pub(super) fn may_have_holes(&self) -> bool {
        self.sparse || self.identity.size >= HOLES_FROM_BYTES
    }

    /// For one chunk, that is then read and sent.
    pub(super) fn hasher(&self, chunk: u32) -> ChunkHasher {
        ChunkHasher::new(&self.layout, chunk, self.early.as_deref())
    }
}

impl Offered for SourceItem {
    fn layout(&self) -> ChunkLayout {
        self.layout
    }
}

/// From here on a look for holes costs nothing beside the data, also over a network's file system.
const HOLES_FROM_BYTES: u64 = 64 << 10;
