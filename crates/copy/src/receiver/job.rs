//! What a receiver has to do.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use haul_engine::at_risk::CHECKPOINT_BYTES;
use haul_engine::flush_choice::DIRTY_BYTES_MAX;
use haul_kept::surroundings::Surroundings;
use haul_store::{DIRECT_FROM_BYTES, StoreError, TargetTree};
use haul_striping::movers::Movers;
use haul_wire::control as wire;

use crate::asked_for::AskedFor;
use crate::hand_over::HandOver;
use crate::sums::SumsToCompare;

/// Where a receiver puts what arrives.
pub enum Target {
    /// The meaning of this path.
    Path(Vec<u8>),
    /// A tree that is open already.
    Open(Arc<dyn TargetTree>),
    /// A tree that is opened once it is known what comes.
    Other(Box<dyn OpenTarget>),
}

/// A target at another end, which is opened once it is known whether a single file comes: its path may be the new name.
pub trait OpenTarget: Send + Sync {
    /// Opens it by cp's rule: the tree, and the name in it if the path is the new name of the single file.
    ///
    /// # Errors
    /// It is no directory, or cannot be made.
    fn open(&self, selection: &wire::Selection, single_file: bool) -> Result<OpenedTarget, StoreError>;

    /// The path as it was typed, for messages.
    fn typed(&self) -> &[u8];

    /// How many files go there at once, where nobody asks for a number, and the end knows one.
    fn lanes(&self) -> Option<u16> {
        None
    }
}

/// A tree, and the new name of the single file in it.
pub type OpenedTarget = (Arc<dyn TargetTree>, Option<Vec<u8>>);

/// The task of a receiver.
pub struct ReceiverJob {
    /// Where it puts what arrives.
    pub target: Target,
    /// The target lies beneath this directory (a daemon's client).
    pub confine: Option<PathBuf>,
    /// A sender that brings anything else is refused. `None`: who chose the sender sees to that.
    pub asked_for: Option<AskedFor>,
    /// The receiver runs for a peer, and gives up what lies outside of its tree.
    pub far: bool,
    /// The selection of what is copied.
    pub selection: wire::Selection,
    /// The part of the sources that the sender was asked for.
    pub listed: wire::Listed,
    /// The hash of kept files is asked for, too.
    pub hash_kept: bool,
    /// How it travels.
    pub carriage: wire::Carriage,
    /// The limits of its work.
    pub bounds: Bounds,
    /// The sender in the same process enters sums here that finished drafts have to have.
    pub sums: Option<Arc<SumsToCompare>>,
    /// The sender in the same process hands its data over here.
    pub hand_over: Option<Arc<HandOver>>,
    /// Further hosts of the far end that send, which this side has reached.
    pub movers: Movers,
    /// Where its user keeps things.
    pub surroundings: Surroundings,
}

/// The limits of a receiver.
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
    /// Most items of a job that make nothing here, or stand in no directory of the manifest.
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

/// A job may have so many items that leave nothing here (skipped, failed), or that stand in no directory of the manifest. The disk bounds all other items, because a name comes once.
const MAX_IDLE_ITEMS: u64 = 1 << 24;

/// Files that are remembered because another one stays at the target under their name: 16 MiB.
const MAX_FOREIGN: usize = 1 << 20;

/// So many small files are worth a flush of their whole file system, which writes what others have written there, too.
const FLUSH_TOGETHER_FROM_FILES: usize = 16;

/// A sender may search this long through a tree in which nothing is selected: some hundred million entries. It only says that
/// it is alive meanwhile. After that it counts as a sender that has nothing to copy.
const MAX_SEARCH: Duration = Duration::from_secs(24 * 60 * 60);
