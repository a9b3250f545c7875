//! A sender keeps a file of the manifest here while it is open.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use haul_engine::plan::ChunkLayout;
use haul_engine::sending::Offered;
use haul_store::{AsCopied, SourceFile, SourceTree};
use haul_striping::lending::Lendable;
use haul_wire::control::{ChunkRange, Cut, Portion};
use haul_wire::manifest::{Identity, Item, ItemKind};

use haul_kept::sync::lock;

use super::changes::ChangesLeft;
use super::early_look::{ChunkHasher, EarlyLook, FileHashes};
use super::standing::StandingFile;
use super::young_stamp;

#[derive(Clone, Default)]
pub(super) struct Origin {
    pub(super) source: u32,
    pub(super) path: Vec<u8>,
    pub(super) tells_changes: bool,
    pub(super) copied: AsCopied,
}

pub(super) struct SourceItem {
    pub(super) index: u64,
    pub(super) identity: Identity,
    pub(super) layout: ChunkLayout,
    pub(super) sparse: bool,
    pub(super) origin: Origin,
    /// The walk's finding; `None`: another host walks.
    pub(super) listed: Option<Item>,
    pub(super) changes_left: ChangesLeft,
    pub(super) hash_only: AtomicBool,
    /// The file has grown, and counts as listed.
    pub(super) has_grown: AtomicBool,
    /// Chunks sent again because the target's medium lost them.
    pub(super) repairs: AtomicU32,
    /// Chunks sent again because a dead lane had them last.
    pub(super) voids: AtomicU32,
    pub(super) standing: OnceLock<StandingFile>,
    /// Hashes from before the lanes.
    pub(super) early: Option<Arc<FileHashes>>,
    /// The file is open while chunks of a large one are carried.
    file: Mutex<Option<Arc<SourceFile>>>,
}

impl SourceItem {
    pub(super) fn listed(
        item: &Item,
        index: u64,
        origin: Origin,
        early: Option<&EarlyLook>,
        changes_left: ChangesLeft,
        cut: Cut,
    ) -> Option<Arc<Self>> {
        let listed = Item { kind: item.kind.as_file()?, ..item.clone() };
        let ItemKind::File { identity, hole_bytes, .. } = &listed.kind else { return None };
        Some(Arc::new(SourceItem {
            index,
            identity: *identity,
            layout: ChunkLayout::by(cut, identity.size),
            sparse: *hole_bytes > 0,
            origin,
            listed: Some(listed.clone()),
            changes_left,
            hash_only: AtomicBool::new(false),
            has_grown: AtomicBool::new(false),
            repairs: AtomicU32::new(0),
            voids: AtomicU32::new(0),
            standing: OnceLock::new(),
            // Early looks cut by the usual rule.
            early: early.filter(|_| cut == Cut::USUAL).and_then(|early| early.of(identity)),
            file: Mutex::new(None),
        }))
    }

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
            has_grown: AtomicBool::new(false),
            repairs: AtomicU32::new(0),
            voids: AtomicU32::new(0),
            standing: OnceLock::new(),
            early: None,
            file: Mutex::new(None),
        })
    }

    /// Opens the file: chunks share a large one, a whole one is for the moment. From `direct_from_bytes` on, the page cache's
    /// gaps are looked up.
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

    /// Allocated space that was never written is a hole, too, and shows in no size. So a large file is worth a look.
    pub(super) fn may_have_holes(&self) -> bool {
        self.sparse || self.identity.size >= HOLES_FROM_BYTES
    }

    pub(super) fn hasher(&self, chunk: u32) -> ChunkHasher {
        ChunkHasher::new(&self.layout, chunk, self.early.as_deref())
    }
}

impl Offered for SourceItem {
    fn layout(&self) -> ChunkLayout {
        self.layout
    }
}

impl Lendable for SourceItem {
    fn portion(&self, chunks: ChunkRange) -> Portion {
        let Origin { source, path, .. } = &self.origin;
        Portion { index: self.index, source: *source, path: path.clone(), identity: self.identity, chunks }
    }
}

/// From here on a look for holes, two system calls, costs less than a hundredth of copying; at 64 KiB, a fortieth.
const HOLES_FROM_BYTES: u64 = 256 << 10;
