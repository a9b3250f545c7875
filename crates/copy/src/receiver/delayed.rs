//! Gives names at the end with `--delay-updates`, and says where data stands until then.

use haul_job::Error;
use haul_store::{LocalTree, Stat, StoreError, TargetOptions};
use haul_wire::control::Selection;
use haul_wire::manifest::{Identity, Item};

use haul_channel::convert;
use haul_kept::faults;

use super::state::Shared;

/// Tells the tree. Returns a warning where the job cannot have what it asked for.
pub(super) fn prepare(
    tree: &LocalTree,
    selection: &Selection,
    options: &TargetOptions,
) -> Result<Option<String>, StoreError> {
    let drafts = &selection.drafts;
    if selection.dry_run || selection.inplace {
        return Ok(None);
    }
    if !drafts.delayed_in.is_empty() {
        tree.delay_names(&drafts.delayed_in)?;
    }
    if drafts.directory.is_empty() { Ok(None) } else { tree.place_drafts(&drafts.directory, drafts.in_each, options) }
}

/// Whether an earlier run left the file here. It counts by size and time as under its name, and gets the source's present
/// metadata.
pub(super) fn waits(shared: &Shared, item: &Item, path: &[u8], identity: &Identity) -> Result<bool, StoreError> {
    let Some(tree) = shared.to.tree().local() else { return Ok(false) };
    if shared.comparison.rules.checksum || shared.job.selection.no_resume {
        return Ok(false);
    }
    let is_it = |stat: &Stat| stat.size == identity.size && convert::time(stat.mtime) == identity.mtime;
    match tree.delayed(path).filter(is_it) {
        Some(waiting) => {
            tree.set_delayed_metadata(path, &shared.metadata(item))?;
            tree.delay_again(path, &waiting).map(|()| true)
        }
        None => Ok(false),
    }
}

pub(super) fn give_names(shared: &Shared) -> Result<(), Error> {
    let Some(tree) = shared.to.tree().local().filter(|_| shared.to.makes_files()) else { return Ok(()) };
    let mut named = |path: &[u8]| {
        shared.to.name_changed(path);
        shared.tally.count_done();
    };
    let mut failed = |path: &[u8], error: &StoreError| shared.failed_aside(path, error);
    tree.give_delayed_names(&mut named, &mut failed).map_err(|error| faults::store_error(&error))
}
