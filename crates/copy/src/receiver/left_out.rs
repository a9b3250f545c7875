//! Leaves items out by rules, and says what of a kept file stays.

use haul_engine::{compare, safe_link};
use haul_store::{Kind, Metadata, Stat};
use haul_wire::control::LeftOut;
use haul_wire::manifest::{Item, ItemKind};

use haul_channel::convert;

use super::in_order::HardLink;
use super::state::Shared;

/// An item may be left out by what it is at the source; nothing makes way for it.
pub(super) fn by_itself(shared: &Shared, item: &Item) -> Option<LeftOut> {
    let safe_links = shared.job.selection.entries.safe_links;
    match &item.kind {
        ItemKind::File { identity, .. } => compare::by_size_and_age(identity, &shared.comparison.rules),
        ItemKind::Symlink { target } if safe_links => {
            safe_link::leads_out(item.path.as_bytes(), target).then_some(LeftOut::UnsafeLink)
        }
        _ => None,
    }
}

/// With `--safe-links` a further name of a symbolic link may lead out where the first does not.
pub(super) fn leads_out(shared: &Shared, link: &HardLink) -> bool {
    let first = || shared.to.tree().stat(link.first.as_bytes()).ok().flatten();
    let away = |stat: Stat| matches!(&stat.kind, Kind::Symlink { target } if safe_link::leads_out(&link.path, target));
    shared.job.selection.entries.safe_links && first().is_some_and(away)
}

/// As with rsync, a time within `--modify-window` stays.
pub(super) fn metadata(shared: &Shared, item: &Item, standing: Option<&Stat>) -> Metadata {
    let (rules, mtime) = (&shared.comparison.rules, item.attributes.mtime);
    let stays = |stat: &Stat| rules.modify_window_s.is_some() && rules.same_time(convert::time(stat.mtime), mtime);
    let mut metadata = shared.metadata(item);
    metadata.mtime = metadata.mtime.filter(|_| !standing.is_some_and(stays));
    metadata
}
