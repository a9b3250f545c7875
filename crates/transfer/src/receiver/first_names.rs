//! Files that get no further names, though they have some at the source. A hard link to one that failed would give what stood there before
//! another name, and call it copied; one to a file that was replaced while it was read would have the new one's data, which it never had.

use std::collections::{HashMap, HashSet};

use haul_store::name_hash;
use haul_wire::control::OutcomeKind;
use haul_wire::manifest::{Item, ItemKind};

/// Files of a job that are remembered: they take about 16 MiB. After more of them no hard link is made.
const MAX_BARRED: usize = 1 << 20;

/// The files of a job that keeps hard links, by the hashes of their names.
#[derive(Default)]
pub(super) struct FirstNames {
    /// Open items.
    open: HashMap<u64, u64>,
    barred: HashSet<u64>,
    /// There are more than are remembered.
    forgets: bool,
}

impl FirstNames {
    /// This item is open now.
    pub(super) fn open(&mut self, index: u64, item: &Item) {
        let name = name_hash(item.path.as_bytes());
        match item.kind {
            ItemKind::File { .. } => {
                self.open.insert(index, name);
            }
            ItemKind::Failed { .. } => self.bar(name),
            _ => {}
        }
    }

    /// The item has its outcome.
    pub(super) fn settle(&mut self, index: u64, outcome: &OutcomeKind) {
        let Some(name) = self.open.remove(&index) else { return };
        if matches!(outcome, OutcomeKind::Failed { .. }) {
            self.bar(name);
        }
    }

    /// Another file stands at the source by now where this item was.
    pub(super) fn replaced(&mut self, item: &Item) {
        self.bar(name_hash(item.path.as_bytes()));
    }

    /// Whether the file with this first name may get no other, or is not remembered.
    pub(super) fn bars(&self, first: &[u8]) -> bool {
        self.forgets || self.barred.contains(&name_hash(first))
    }

    fn bar(&mut self, name: u64) {
        if self.barred.len() < MAX_BARRED {
            self.barred.insert(name);
        } else {
            self.forgets = true;
        }
    }
}
