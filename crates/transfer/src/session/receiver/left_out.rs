//! What a rule leaves out, whatever stands at the target; and what of a kept file stays as it is.

use haul_engine::{compare, safe_link};
use haul_store::{Kind, Metadata, Stat};
use haul_wire::control::LeftOut;
use haul_wire::manifest::{Item, ItemKind};

use crate::session::convert;

use super::in_order::HardLink;
use super::state::Shared;

/// The rule that leaves an item out by what it is at the source. Nothing makes way for it.
pub(super) fn by_itself(shared: &Shared, item: &Item) -> Option<LeftOut> {
    let safe_links = shared.job.selection.entries.safe_links;
    match &item.kind {
        ItemKind::File { identity, .. } => compare::by_size(identity.size, &shared.rules),
        ItemKind::Symlink { target } if safe_links => {
            safe_link::leads_out(item.path.as_bytes(), target).then_some(LeftOut::UnsafeLink)
        }
        _ => None,
    }
}

/// Whether a further name of a symbolic link leads out of the tree where the first one does not (`--safe-links`).
pub(super) fn leads_out(shared: &Shared, link: &HardLink) -> bool {
    let first = || shared.tree().stat(link.first.as_bytes()).ok().flatten();
    let away = |stat: Stat| matches!(&stat.kind, Kind::Symlink { target } if safe_link::leads_out(&link.path, target));
    shared.job.selection.entries.safe_links && first().is_some_and(away)
}

/// The metadata of an item for what stands there already. As with rsync, a time within `--modify-window` stays.
pub(super) fn metadata(shared: &Shared, item: &Item, standing: Option<&Stat>) -> Metadata {
    let (rules, mtime) = (&shared.rules, item.attributes.mtime);
    let stays = |stat: &Stat| rules.modify_window_s.is_some() && rules.same_time(convert::time(stat.mtime), mtime);
    let mut metadata = shared.metadata(item);
    metadata.mtime = metadata.mtime.filter(|_| !standing.is_some_and(stays));
    metadata
}
