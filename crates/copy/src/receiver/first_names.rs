//! Some files get no further names, though they have some at the source.
//!
//! ```text
//!   the first name failed                              a link would show what stood there before, and call it copied
//!   the file was replaced while it was read            a link would show the data of the new file
//!   another file stays (--update, --ignore-existing)   a link would show data that the source never had under this name
//! ```

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

use haul_store::name_hash;
use haul_wire::RelPath;
use haul_wire::control::{LeftOut, OutcomeKind};
use haul_wire::manifest::{Item, ItemKind};

use haul_kept::sync::lock;

/// About 32 MiB of failed or replaced files. After more of them no hard link is made.
const MAX_BARRED: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bar {
    Lost,
    /// The first name has another file.
    Foreign,
    LeftOut(LeftOut),
    /// Too many foreign files: one is barred only if the file under its first name lacks the source's time.
    UnlessItHasTheTime,
}

/// Knows files by hashes of their names.
#[derive(Default)]
struct FirstNames {
    open: HashMap<u64, u128>,
    barred: HashSet<u128>,
    foreign: HashSet<u128>,
    /// New link targets, where a rule leaves the first name alone.
    stand_ins: HashMap<u128, RelPath>,
    left_out: HashMap<u128, LeftOut>,
    max_foreign: usize,
    forgets: bool,
    /// More foreign files stay than are remembered; the forgotten ones lack the source's time.
    forgets_foreign: bool,
}

impl FirstNames {
    fn new(max_foreign: usize) -> Self {
        Self { max_foreign, ..Self::default() }
    }

    fn open(&mut self, index: u64, item: &Item) {
        let name = name_hash(item.path.as_bytes());
        match item.kind {
            ItemKind::File { .. } | ItemKind::Symlink { .. } => {
                self.open.insert(index, name);
            }
            ItemKind::Failed { .. } => self.bar(name),
            _ => {}
        }
    }

    fn settle(&mut self, index: u64, outcome: &OutcomeKind) {
        let Some(name) = self.open.remove(&index) else { return };
        if matches!(outcome, OutcomeKind::Failed { .. }) {
            self.bar(name);
        }
    }

    fn replaced(&mut self, item: &Item) {
        self.bar(name_hash(item.path.as_bytes()));
    }

    /// Something else stays under this name. `has_time`: it has the source's time, and nobody could tell later.
    fn stays_foreign(&mut self, item: &Item, has_time: bool) {
        let name = name_hash(item.path.as_bytes());
        if self.foreign.len() < self.max_foreign {
            self.foreign.insert(name);
        } else if has_time {
            self.bar(name);
        } else {
            self.forgets_foreign = true;
        }
    }

    fn leave_out(&mut self, item: &Item, rule: LeftOut) {
        let name = name_hash(item.path.as_bytes());
        if self.left_out.len() < self.max_foreign {
            self.left_out.insert(name, rule);
        } else {
            self.bar(name);
        }
    }

    /// Names the link target of a further name. `None`: a rule leaves the first name alone, and the file is sent under this one
    /// for later links. As with rsync, such a rule holds for one name.
    fn link_instead(&mut self, first: &RelPath, name: &RelPath) -> Option<RelPath> {
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

    fn bars(&self, first: &[u8]) -> Option<Bar> {
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

pub(super) struct SharedFirstNames(Option<Mutex<FirstNames>>);

impl SharedFirstNames {
    pub(super) fn new(keeps_hard_links: bool, max_foreign: usize) -> Self {
        Self(keeps_hard_links.then(|| Mutex::new(FirstNames::new(max_foreign))))
    }

    fn with<T>(&self, use_them: impl FnOnce(&mut FirstNames) -> T) -> Option<T> {
        self.0.as_ref().map(|names| use_them(&mut lock(names)))
    }

    pub(super) fn open(&self, index: u64, item: &Item) {
        self.with(|names| names.open(index, item));
    }

    pub(super) fn settle(&self, index: u64, outcome: &OutcomeKind) {
        self.with(|names| names.settle(index, outcome));
    }

    pub(super) fn replaced(&self, item: &Item) {
        self.with(|names| names.replaced(item));
    }

    pub(super) fn stays_foreign(&self, item: &Item, has_time: bool) {
        self.with(|names| names.stays_foreign(item, has_time));
    }

    pub(super) fn leave_out(&self, item: &Item, rule: LeftOut) {
        self.with(|names| names.leave_out(item, rule));
    }

    pub(super) fn resolve_further_name(&self, item: &mut Item) {
        let ItemKind::FurtherName { first, .. } = &item.kind else { return };
        let link = self.with(|names| names.link_instead(first, &item.path)).unwrap_or_else(|| Some(first.clone()));
        match (link, item.kind.as_file()) {
            (None, Some(file)) => item.kind = file,
            (link, _) => item.kind = ItemKind::HardLink { first: link.unwrap_or_else(|| first.clone()) },
        }
    }

    /// No hard link may lead to a file whose first name shows something else, or will.
    pub(super) fn bars(&self, first: &[u8]) -> Option<Bar> {
        self.with(|names| names.bars(first)).flatten()
    }
}
