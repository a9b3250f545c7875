//! In what an entry differs from what stands at the target, and whether it is the source itself that stands there.

use haul_engine::compare::{self, Existing, Rules};
use haul_store::{Kind, Stat};
use haul_wire::control::Changes;
use haul_wire::manifest::{Identity, Item};

use crate::session::convert;

/// In what a file (which has a size) or a directory differs from what stands here.
pub(super) fn of_entry(size: Option<u64>, item: &Item, existing: &Existing, rules: &Rules) -> Changes {
    compare::changes(size, &item.attributes, existing, rules)
}

/// The same for a file that is sent. As in rsync, only a comparison of contents tells that they differ.
pub(super) fn of_sent(size: u64, item: &Item, existing: &Existing, rules: &Rules) -> Changes {
    let changes = of_entry(Some(size), item, existing, rules);
    let changes = changes.with(Changes::CONTENT, rules.checksum && !changes.has(Changes::NEW));
    changes.with(Changes::UNSEEN, changes.is_empty())
}

/// The same for a file that is there.
pub(super) fn of_kept(size: u64, item: &Item, existing: &Existing, rules: &Rules) -> Changes {
    of_entry(Some(size), item, existing, rules)
}

/// The same for a symbolic link, which has no permissions of its own.
pub(super) fn of_link(item: &Item, existing: Option<&Stat>, target: &[u8], rules: &Rules) -> Changes {
    let Some(stat) = existing else { return Changes::NEW };
    let Kind::Symlink { target: now } = &stat.kind else { return Changes::NEW };
    let standing = convert::standing(stat);
    let as_file = Existing::File(standing);
    let changes = compare::changes(Some(standing.size), &item.attributes, &as_file, rules);
    let kept = [Changes::TIME, Changes::OWNER, Changes::GROUP].into_iter().filter(|one| changes.has(*one));
    kept.fold(Changes::default(), |sum, one| sum.with(one, true)).with(Changes::CONTENT, now != target)
}

/// Whether what stands here is the source's file itself: both ends see one file. Two files with one number have not changed at one
/// nanosecond.
pub(super) fn is_source(identity: &Identity, standing: &Stat) -> bool {
    let here = convert::identity(standing);
    here == *identity
}
