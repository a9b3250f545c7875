//! Files and links of the source are removed once the target has them (`--remove-source-files`).
//!
//! ```text
//!   item -> expected here -> outcome: the target has it -> looked at again -> removed, if it is still what was announced
//! ```
//! The target first shows its tree, by a file with a random name. If that file stands in the source, too, both are one
//! directory (FUSE, a bind mount), removal would take both copies, and the job is refused.
//!
//! As with rsync, the target's word counts, given after it flushed file and name. What a rule leaves out stays, and so do
//! directories.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use haul_store::{AsCopied, Time};
use haul_wire::control::{Brought, Outcome, OutcomeKind, Selection};
use haul_wire::manifest::{Item, ItemKind};

use haul_kept::sync::lock;

use super::source_item::Origin;

#[derive(Default)]
pub(super) struct Removals {
    wanted: bool,
    /// An entry that stood at the target before is none of ours (`--ignore-existing`).
    only_new: bool,
    /// The open items bound their number.
    expected: Mutex<BTreeMap<u64, Origin>>,
    removed: AtomicU64,
    awaits_target: AtomicBool,
}

impl Removals {
    pub(super) fn new(selection: &Selection) -> Self {
        let wanted = selection.remove_source_files && !selection.dry_run;
        let awaits_target = AtomicBool::new(selection.shows_target());
        Self { wanted, only_new: selection.ignore_existing, awaits_target, ..Self::default() }
    }

    pub(super) fn are_wanted(&self) -> bool {
        self.wanted
    }

    pub(super) fn await_the_target(&self) -> bool {
        self.awaits_target.load(Ordering::Relaxed)
    }

    pub(super) fn target_is_known(&self) {
        self.awaits_target.store(false, Ordering::Relaxed);
    }

    pub(super) fn expect(&self, index: u64, item: &Item, origin: &Origin) {
        if !self.wanted {
            return;
        }
        let copied = match &item.kind {
            // A file goes as it was announced: if it has changed since, that is not as it was found.
            ItemKind::File { identity, .. } => AsCopied {
                size: identity.size,
                mtime: Time { s: identity.mtime.s, ns: identity.mtime.ns },
                file: identity.inode,
            },
            ItemKind::Symlink { .. } | ItemKind::HardLink { .. } | ItemKind::FurtherName { .. } => origin.copied,
            ItemKind::Directory
            | ItemKind::DirectoryEnd { .. }
            | ItemKind::Skipped { .. }
            | ItemKind::Failed { .. }
            | ItemKind::Special(_) => return,
        };
        lock(&self.expected).insert(index, Origin { copied, ..origin.clone() });
    }

    /// Returns what the outcome lets go.
    pub(super) fn take(&self, outcome: &Outcome) -> Option<Origin> {
        if !self.wanted {
            return None;
        }
        let origin = lock(&self.expected).remove(&outcome.index)?;
        let is_there = match outcome.result {
            OutcomeKind::Copied { .. } | OutcomeKind::Brought { how: Brought::ByServer, .. } | OutcomeKind::Made => {
                true
            }
            OutcomeKind::Kept { .. }
            | OutcomeKind::Touched { .. }
            | OutcomeKind::Brought { .. }
            | OutcomeKind::Nothing => !self.only_new,
            OutcomeKind::LeftOut { .. }
            | OutcomeKind::WouldCopy
            | OutcomeKind::Failed { .. }
            | OutcomeKind::Superseded => false,
        };
        is_there.then_some(origin)
    }

    pub(super) fn count(&self) {
        self.removed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn removed(&self) -> u64 {
        self.removed.load(Ordering::Relaxed)
    }
}
