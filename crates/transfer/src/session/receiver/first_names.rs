//! Files that get no further names, though they have some at the source.
//!
//! ```text
//!   the first name failed                              a link would show what stood there before, and call it copied
//!   the file was replaced while it was read            a link would show the data of the new file
//!   another file stays (--update, --ignore-existing)   a link would show data that the source never had under this name
//! ```

use std::collections::{HashMap, HashSet};

use haul_store::name_hash;
use haul_wire::RelPath;
use haul_wire::control::{LeftOut, OutcomeKind};
use haul_wire::manifest::{Item, ItemKind};

/// Files that are remembered because they failed or were replaced: about 32 MiB. After more of them no hard link is made.
const MAX_BARRED: usize = 1 << 20;

/// Why a file gets no further name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bar {
    /// It could not be copied, was replaced, or is not remembered.
    Lost,
    /// Another file stays at the target under its first name.
    Foreign,
    /// A rule leaves the file out, whatever its name.
    LeftOut(LeftOut),
    /// Only where the file under its first name does not have the source's time: there are more foreign files than are remembered.
    UnlessItHasTheTime,
}

/// The files of a job that keeps hard links, by the hashes of their names.
#[derive(Default)]
pub(super) struct FirstNames {
    /// Open items.
    open: HashMap<u64, u128>,
    barred: HashSet<u128>,
    /// What stays at the target under these names is not the source's.
    foreign: HashSet<u128>,
    /// The name that later names are linked to, where a rule leaves the first one alone.
    stand_ins: HashMap<u128, RelPath>,
    /// What a rule leaves out.
    left_out: HashMap<u128, LeftOut>,
    /// Most of each of them.
    max_foreign: usize,
    /// There are more that failed or were replaced than are remembered.
    forgets: bool,
    /// There are more foreign ones, all of which have another time than the source's.
    forgets_foreign: bool,
}

impl FirstNames {
    /// Remembers so many files because another one stays at the target under their name.
    pub(super) fn new(max_foreign: usize) -> Self {
        Self { max_foreign, ..Self::default() }
    }

    /// This item is open now.
    pub(super) fn open(&mut self, index: u64, item: &Item) {
        let name = name_hash(item.path.as_bytes());
        match item.kind {
            ItemKind::File { .. } | ItemKind::Symlink { .. } => {
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

    /// Something else stays at the target under the name of this item. `has_time`: it has the time of the source's file, so that nobody could
    /// see later that it is another one.
    pub(super) fn stays_foreign(&mut self, item: &Item, has_time: bool) {
        let name = name_hash(item.path.as_bytes());
        if self.foreign.len() < self.max_foreign {
            self.foreign.insert(name);
        } else if has_time {
            self.bar(name);
        } else {
            self.forgets_foreign = true;
        }
    }

    /// A rule leaves this item out: its further names are left out, too.
    pub(super) fn leave_out(&mut self, item: &Item, rule: LeftOut) {
        let name = name_hash(item.path.as_bytes());
        if self.left_out.len() < self.max_foreign {
            self.left_out.insert(name, rule);
        } else {
            self.bar(name);
        }
    }

    /// The name that a further name is to be linked to. `None`: a rule leaves the first name alone, and the file is sent under
    /// this one, to which later ones are linked. As with rsync, a rule that goes by what stands under a name holds for that name.
    pub(super) fn link_instead(&mut self, first: &RelPath, name: &RelPath) -> Option<RelPath> {
        let is_left = |names: &Self, name: &RelPath| {
            matches!(names.bars(name.as_bytes()), Some(Bar::Foreign | Bar::LeftOut(LeftOut::Missing)))
        };
        if !is_left(self, first) {
            return Some(first.clone());
        }
        let key = name_hash(first.as_bytes());
        let stand_in = self.stand_ins.get(&key).filter(|stand_in| !is_left(self, stand_in)).cloned();
        if stand_in.is_none() && (self.stand_ins.len() < self.max_foreign || self.stand_ins.contains_key(&key)) {
            self.stand_ins.insert(key, name.clone());
        }
        stand_in
    }

    /// Why the file with this first name may get no other.
    pub(super) fn bars(&self, first: &[u8]) -> Option<Bar> {
        let name = name_hash(first);
        if let Some(rule) = self.left_out.get(&name) {
            return Some(Bar::LeftOut(*rule));
        }
        if self.foreign.contains(&name) {
            return Some(Bar::Foreign);
        }
        if self.forgets || self.barred.contains(&name) {
            return Some(Bar::Lost);
        }
        self.forgets_foreign.then_some(Bar::UnlessItHasTheTime)
    }

    fn bar(&mut self, name: u128) {
        if self.barred.len() < MAX_BARRED {
            self.barred.insert(name);
        } else {
            self.forgets = true;
        }
    }
}
