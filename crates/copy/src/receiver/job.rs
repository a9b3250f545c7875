//! What a receiver has to do.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use haul_engine::at_risk::CHECKPOINT_BYTES;
use haul_engine::flush_choice::DIRTY_BYTES_MAX;
use haul_kept::surroundings::Surroundings;
use haul_net::Outbound;
use haul_store::{DIRECT_FROM_BYTES, SourceTree, StoreError, TargetTree};
use haul_striping::movers::Movers;
use haul_wire::control as wire;

use crate::asked_for::AskedFor;
use crate::hand_over::HandOver;
use crate::sums::SumsToCompare;

/// The place for what arrives.
pub enum Target {
    /// A path.
    Path(Vec<u8>),
    /// An open tree.
    Open(Arc<dyn TargetTree>),
    /// A tree opened once it is known what comes.
    Other(Box<dyn OpenTarget>),
}

/// A target at another end, whose path may be the new name of a single file.
pub trait OpenTarget: Send + Sync {
    /// Opens the tree by cp's rule; a single file may get a new name.
    ///
    /// # Errors
    /// It is no directory, or cannot be made.
    fn open(&self, selection: &wire::Selection, single_file: bool) -> Result<OpenedTarget, StoreError>;

    /// The typed path, for messages.
    fn typed(&self) -> &[u8];

    /// The connections by which data will leave for a server, for whoever marks them.
    fn outbound(&self) -> Option<Arc<Outbound>> {
        None
    }

    /// Shows the sources' tree: their server may send the files by itself ([`haul_store::ThirdParty`]).
    fn meets(&self, _source: &Arc<dyn SourceTree>) {}

    /// The files that go there at once, if the end knows a number.
    fn lanes(&self) -> Option<u16> {
        None
    }
}

/// A tree, and the single file's new name.
pub type OpenedTarget = (Arc<dyn TargetTree>, Option<Vec<u8>>);

/// A receiver's task.
pub struct ReceiverJob {
    /// The place of arriving data.
    pub target: Target,
    /// The directory above the target (a daemon's client).
    pub confine: Option<PathBuf>,
    /// The job's demands on the sender; `None`: checked by who chose it.
    pub asked_for: Option<AskedFor>,
    /// Whether it serves a peer, and gives up rights outside its tree.
    pub far: bool,
    /// The copied selection.
    pub selection: wire::Selection,
    /// The listed part of the sources.
    pub listed: wire::Listed,
    /// Whether kept files are hashed, too.
    pub hash_kept: bool,
    /// The carriage.
    pub carriage: wire::Carriage,
    /// The limits.
    pub bounds: Bounds,
    /// Sums for finished drafts from a sender in this process.
    pub sums: Option<Arc<SumsToCompare>>,
    /// Data from a sender in this process.
    pub hand_over: Option<Arc<HandOver>>,
    /// The sending movers that this side reached.
    pub movers: Movers,
    /// The user's files.
    pub surroundings: Surroundings,
}

/// A receiver's limits.
#[derive(Clone, Copy)]
pub struct Bounds {
    /// See [`CHECKPOINT_BYTES`].
    pub checkpoint_bytes: u64,
    /// See [`DIRECT_FROM_BYTES`].
    pub past_cache_from_bytes: u64,
    /// See [`MAX_SEARCH`].
    pub search: Duration,
    /// See [`FLUSH_TOGETHER_FROM_FILES`].
    pub flush_together_from_files: usize,
    /// See [`DIRTY_BYTES_MAX`].
    pub dirty_bytes_max: u64,
    /// See [`MAX_IDLE_ITEMS`].
    pub idle_items: u64,
    /// See [`FirstNames`](super::first_names::FirstNames).
    pub foreign_names: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            checkpoint_bytes: CHECKPOINT_BYTES,
            past_cache_from_bytes: DIRECT_FROM_BYTES,
            search: MAX_SEARCH,
            flush_together_from_files: FLUSH_TOGETHER_FROM_FILES,
            dirty_bytes_max: DIRTY_BYTES_MAX,
            idle_items: MAX_IDLE_ITEMS,
            foreign_names: MAX_FOREIGN,
        }
    }
}

/// Bounds items that leave nothing here (skipped, failed), or stand in no directory of the manifest. The disk bounds all
/// others, because a name comes once.
const MAX_IDLE_ITEMS: u64 = 1 << 24;

/// Remembered foreign files: 16 MiB.
const MAX_FOREIGN: usize = 1 << 20;

/// Small files worth a flush of the whole file system, with what others wrote.
const FLUSH_TOGETHER_FROM_FILES: usize = 16;

/// The longest search in a tree without a selected entry: some hundred million entries.
const MAX_SEARCH: Duration = Duration::from_secs(24 * 60 * 60);
