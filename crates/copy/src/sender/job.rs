//! What a sender has to do.

use std::path::PathBuf;
use std::sync::Arc;

use haul_engine::integrity::Hash;
use haul_govern::hooks::Hooks;
use haul_kept::class_policy::Permits;
use haul_kept::known_paths::KnownPaths;
use haul_net::Outbound;
use haul_store::{FileList, SourceTree, StoreError};
use haul_striping::movers::Movers;
use haul_wire::control as wire;

use crate::hand_over::HandOver;
use crate::sums::SumsToCompare;

use super::early_look::EarlyLook;

/// A sender's sources.
pub enum Sources {
    /// Paths of files and trees.
    Paths(Vec<Vec<u8>>),
    /// An open tree.
    Open(OpenSource),
}

impl Sources {
    /// Shares sums with a receiver in this process, which reads drafts that were not compared before.
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

/// A tree opened before the session.
pub struct OpenSource {
    /// The tree.
    pub tree: Arc<dyn SourceTree>,
    /// The known hash of its only file.
    pub recorded: Option<Hash>,
    /// A word for the user.
    pub warning: Option<String>,
    /// The missing sources.
    pub missing: Vec<StoreError>,
    /// Sums for a receiver in this process.
    pub sums: Option<Arc<SumsToCompare>>,
}

impl OpenSource {
    /// Takes a tree of which nothing more is known.
    pub fn of(tree: Arc<dyn SourceTree>) -> Self {
        Self { tree, recorded: None, warning: None, missing: Vec::new(), sums: None }
    }
}

/// A sender's work.
pub struct SenderJob {
    /// The sources.
    pub sources: Sources,
    /// The only paths of the one source.
    pub listed: Option<Arc<FileList>>,
    /// The directory above all sources (a daemon's client).
    pub confine: Option<PathBuf>,
    /// Whether to expand wildcards: sources from afar.
    pub expand_globs: bool,
    /// Known paths to use.
    pub remembers: Option<KnownPaths>,
    /// The meaning of `~`.
    pub home: Option<PathBuf>,
    /// The size from which files are read past the page cache, as far as not in it.
    pub direct_from_bytes: u64,
    /// Hashes from before the lanes.
    pub early: Option<EarlyLook>,
    /// A receiver in this process takes data here.
    pub hand_over: Option<Arc<HandOver>>,
    /// The connections by which that receiver sends to a server.
    pub outbound: Option<Arc<Outbound>>,
    /// The movers that this side reached.
    pub movers: Movers,
    /// Whether it serves a peer, and gives up rights outside its sources.
    pub far: bool,
    /// Whether another host of this end leads.
    pub is_mover: bool,
    /// The copied selection.
    pub selection: wire::Selection,
    /// The carriage.
    pub carriage: wire::Carriage,
    /// The permitted classes.
    pub permits: Permits,
    /// Programs that ask for a class where a mark is not enough.
    pub hooks: Option<Hooks>,
}
