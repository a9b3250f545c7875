//! Devices, FIFOs and sockets come with `--devices` and `--specials`.
//!
//! A device leads into the host: only the job's own words ask for one, whoever sends it, and only root can make it.

use haul_engine::compare::{self, Existing};
use haul_job::Error;
use haul_store::{Kind, Stat};
use haul_wire::control::{Changes, LeftOut, OutcomeKind};
use haul_wire::manifest::{Item, Special};

use haul_channel::convert;

use super::settle;
use super::state::Shared;

/// Makes one, or sets metadata of one that stands. `fresh`: none can stand.
///
/// # Errors
/// [`haul_job::Fault::Protocol`] if it was not asked for.
pub(super) fn bring(
    shared: &Shared,
    index: u64,
    item: &Item,
    path: &[u8],
    special: Special,
    fresh: bool,
) -> Result<(), Error> {
    let selection = &shared.job.selection;
    let asked_for = if special.is_device() { selection.entries.devices } else { selection.entries.specials };
    if !asked_for {
        return Err(Error::broke_the_protocol("it sends a device, FIFO or socket, which was not asked for"));
    }
    let standing = if fresh { Ok(None) } else { shared.to.tree().stat(path) };
    let standing = match standing {
        Ok(Some(stat)) if stat.kind == Kind::Directory => {
            shared.failed_item(index, settle::conflict(shared, path));
            return Ok(());
        }
        Ok(standing) => standing,
        Err(error) => {
            shared.fail_item(index, &error);
            return Ok(());
        }
    };
    let rule = match &standing {
        None if selection.existing => Some(LeftOut::Missing),
        Some(_) if selection.ignore_existing => Some(LeftOut::Exists),
        _ => None,
    };
    if let Some(rule) = rule {
        shared.leave_out(index, item, rule);
        return Ok(());
    }
    let Some(tree) = shared.to.tree().local() else {
        shared.settle(index, OutcomeKind::Nothing);
        return Ok(());
    };
    let made_of = convert::special(special);
    let special_there = |stat: Stat| Some((tree.special(path).ok().flatten()?, stat));
    // As in rsync, a device in place of another has changed; in place of a FIFO it is new.
    let there = standing.and_then(special_there).filter(|(now, _)| now.is_device() == made_of.is_device());
    let is_kept = there.as_ref().is_some_and(|(now, _)| *now == made_of);
    let changes = there.map_or(Changes::NEW, |(_, stat)| {
        let as_file = Existing::File(convert::standing(&stat));
        let changes = compare::changes(Some(stat.size), &item.attributes, &as_file, &shared.comparison.rules);
        changes.with(Changes::CONTENT, !is_kept)
    });
    shared.changes.note(index, changes);
    let outcome = if is_kept { OutcomeKind::Nothing } else { OutcomeKind::Made };
    if selection.dry_run || changes.is_empty() {
        shared.settle(index, outcome);
        return Ok(());
    }
    match tree.make_special(path, made_of, &shared.metadata(item)) {
        Ok(made) => {
            if made {
                shared.to.name_changed(path);
            }
            shared.settle(index, outcome);
        }
        Err(error) => shared.fail_item(index, &error),
    }
    Ok(())
}
