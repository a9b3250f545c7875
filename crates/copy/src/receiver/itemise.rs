//! Finds how an entry differs from what stands at the target, or whether the source itself stands there.

use std::collections::HashMap;
use std::sync::Mutex;

use haul_engine::compare::{self, Existing, Rules};
use haul_store::{Kind, Stat};
use haul_wire::control::Changes;
use haul_wire::manifest::{Identity, Item};

use haul_channel::convert;
use haul_kept::sync::lock;

/// A directory has no size.
pub(super) fn of_entry(size: Option<u64>, item: &Item, existing: &Existing, rules: &Rules) -> Changes {
    compare::changes(size, &item.attributes, existing, rules)
}

/// As in rsync, only a comparison tells that a sent file's contents differ.
pub(super) fn of_sent(size: u64, item: &Item, existing: &Existing, rules: &Rules) -> Changes {
    let changes = of_entry(Some(size), item, existing, rules);
    let changes = changes.with(Changes::CONTENT, rules.checksum && !changes.has(Changes::NEW));
    changes.with(Changes::UNSEEN, changes.is_empty())
}

pub(super) fn of_kept(size: u64, item: &Item, existing: &Existing, rules: &Rules) -> Changes {
    of_entry(Some(size), item, existing, rules)
}

pub(super) fn of_link(item: &Item, existing: Option<&Stat>, target: &[u8], rules: &Rules) -> Changes {
    let Some(stat) = existing else { return Changes::NEW };
    let Kind::Symlink { target: now } = &stat.kind else { return Changes::NEW };
    let standing = convert::standing(stat);
    let as_file = Existing::File(standing);
    let changes = compare::changes(Some(standing.size), &item.attributes, &as_file, &rules.of_links());
    let kept = [Changes::TIME, Changes::OWNER, Changes::GROUP].into_iter().filter(|one| changes.has(*one));
    kept.fold(Changes::default(), |sum, one| sum.with(one, true)).with(Changes::CONTENT, now != target)
}

/// Both ends see the source's file itself: two files with one number have not changed at one nanosecond.
pub(super) fn is_source(identity: &Identity, standing: &Stat) -> bool {
    let here = convert::identity(standing);
    here == *identity
}

pub(super) struct NotedChanges {
    wanted: bool,
    open: Mutex<HashMap<u64, Changes>>,
}

impl NotedChanges {
    pub(super) fn new(wanted: bool) -> Self {
        Self { wanted, open: Mutex::default() }
    }

    pub(super) fn note(&self, index: u64, changes: Changes) {
        if self.wanted && !changes.is_empty() {
            lock(&self.open).insert(index, changes);
        }
    }

    pub(super) fn take(&self, index: u64) -> Changes {
        lock(&self.open).remove(&index).unwrap_or_default()
    }
}
