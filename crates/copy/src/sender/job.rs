//! What a sender has to do.

use std::path::PathBuf;
use std::sync::Arc;

use haul_engine::integrity::Hash;
use haul_govern::hooks::Hooks;
use haul_kept::class_policy::Permits;
use haul_kept::known_paths::KnownPaths;
use haul_store::{FileList, SourceTree, StoreError};
use haul_striping::movers::Movers;
use haul_wire::control as wire;

use crate::hand_over::HandOver;
use crate::sums::SumsToCompare;

use super::early_look::EarlyLook;

/// The sources of a sender.
pub enum Sources {
    /// Files and trees at these paths.
    Paths(Vec<Vec<u8>>),
    /// A tree that is open already.
    Open(OpenSource),
}

impl Sources {
    /// The receiver in the same process will read complete drafts once more, where files have sums that were not compared before.
    pub fn shared_with_receiver(mut self) -> Self {
        if let Sources::Open(open) = &mut self {
            open.sums = open.tree.sums().map(|_| Arc::default());
        }
        self
    }

    /// The sums for that receiver.
    pub fn sums(&self) -> Option<Arc<SumsToCompare>> {
        match self {
            Sources::Open(open) => open.sums.clone(),
            Sources::Paths(_) => None,
        }
    }
}

/// A tree that was opened before the session.
pub struct OpenSource {
    /// The tree that is read.
    pub tree: Arc<dyn SourceTree>,
    /// The hash that its only file has to have, where that is known.
    pub recorded: Option<Hash>,
    /// A word about it for the user.
    pub warning: Option<String>,
    /// The sources that are not there, beside those that are.
    pub missing: Vec<StoreError>,
    /// The receiver in the same process compares with these.
    pub sums: Option<Arc<SumsToCompare>>,
}

impl OpenSource {
    /// Nothing more is known of it.
    pub fn of(tree: Arc<dyn SourceTree>) -> Self {
        Self { tree, recorded: None, warning: None, missing: Vec::new(), sums: None }
    }
}

/// The work of a sender.
pub struct SenderJob {
    /// The sources that it reads.
    pub sources: Sources,
    /// Only these paths of the one source.
    pub listed: Option<Arc<FileList>>,
    /// All sources lie beneath this directory (a daemon's client).
    pub confine: Option<PathBuf>,
    /// Sources come from afar: wildcards are ours to expand.
    pub expand_globs: bool,
    /// What earlier jobs of this host found of the path shall be used.
    pub remembers: Option<KnownPaths>,
    /// The meaning of `~` in a path.
    pub home: Option<PathBuf>,
    /// Files of so many bytes are read past the page cache, as far as they are not in it.
    pub direct_from_bytes: u64,
    /// The hashes that were made before there were lanes.
    pub early: Option<EarlyLook>,
    /// The receiver in the same process takes its data here.
    pub hand_over: Option<Arc<HandOver>>,
    /// Further hosts of the far end, which this side has reached.
    pub movers: Movers,
    /// The sender runs for a peer, and gives up what lies outside of its sources.
    pub far: bool,
    /// Another host of this end leads: it says which chunks are to be sent.
    pub is_mover: bool,
    /// The selection of what is copied.
    pub selection: wire::Selection,
    /// How it travels.
    pub carriage: wire::Carriage,
    /// The classes that networks may be asked for.
    pub permits: Permits,
    /// The programs that ask for it, where a mark is not enough.
    pub hooks: Option<Hooks>,
}
