//! Opens the typed path of the target as what it means.

use std::sync::Arc;

use haul_job::{Error, Fault};
use haul_kept::faults;
use haul_store::{LocalTree, Nowhere, StoreError, TargetOptions, TargetTree};
use haul_wire::RelPath;
use haul_wire::control::{self as wire, Control};

use haul_channel::channel::{Channel, Events};
use haul_channel::convert;
use haul_channel::reporter::Watch;

use super::destination::{Destination, parent};
use super::job::{ReceiverJob, Target};
use super::references::References;
use super::state::Shared;
use super::{abilities, delayed};

/// Opens the shared state. Fails if the target cannot be opened, or cannot keep a promise of the job.
pub(super) fn open_target(
    mut job: ReceiverJob,
    single_file: bool,
    channel: &Channel,
    watch: &Arc<Watch>,
    events: &Events,
) -> Result<Shared, Error> {
    let shared = |tree: Arc<dyn TargetTree>, name, root, job: ReceiverJob| {
        if let Some(hand_over) = &job.hand_over {
            hand_over.target_is_open(&tree);
        }
        let to = Destination::new(tree, name, root, &job.selection);
        Shared::new(to, job, Arc::clone(channel.outbox()), Arc::clone(watch), events.sender())
    };
    let path = match &job.target {
        Target::Path(path) => path,
        Target::Open(tree) => {
            let tree = Arc::clone(tree);
            suit(&tree, &mut job)?;
            return shared(tree, None, Vec::new(), job);
        }
        Target::Other(other) => {
            let opened = other.open(&job.selection, single_file).map_err(|error| faults::store_error(&error));
            let (tree, rename_to) = opened?;
            let root = tell_name(rename_to.as_deref(), other.typed(), channel, watch)?;
            suit(&tree, &mut job)?;
            return shared(tree, rename_to, root, job);
        }
    };
    let options = TargetOptions {
        confine: job.confine.clone(),
        home: job.surroundings.home.clone(),
        make: job.selection.make_target,
        single_file,
        dry_run: job.selection.dry_run,
        xattrs: job.selection.xattrs,
        acls: job.selection.acls,
        read_only: false,
        keep_dirlinks: job.selection.keep_dirlinks,
    };
    let failed = |error: StoreError| faults::store_error(&error);
    if haul_store::is_null_device(path, &options).map_err(failed)? {
        if job.selection.delete {
            return Err(nothing_to_delete(&haul_store::printable(path)));
        }
        return shared(Arc::new(Nowhere), None, Vec::new(), job);
    }
    let (tree, rename_to) = LocalTree::open(path, &options).map_err(failed)?;
    let warning = delayed::prepare(&tree, &job.selection, &options).map_err(failed)?;
    if let Some(backup) = job.selection.backup.as_ref().filter(|_| !options.dry_run) {
        tree.keep_backups(&backup.suffix, &backup.directory, &options).map_err(failed)?;
    }
    let root = tell_name(rename_to.as_deref(), path, channel, watch)?;
    let (references, notices) = References::open(&tree, &job.selection, &options)?;
    let mut shared = shared(Arc::new(tree), rename_to, root, job)?;
    shared.comparison.references = references;
    let warning = warning.map(|text| wire::Notice::Warning { text: convert::bounded(text) });
    notices.into_iter().chain(warning).for_each(|notice| shared.notice(notice));
    Ok(shared)
}

/// Checks another end's abilities. Without holes, zeros are written.
fn suit(tree: &Arc<dyn TargetTree>, job: &mut ReceiverJob) -> Result<(), Error> {
    let can = tree.abilities();
    abilities::check(can, job.carriage.cut, job.carriage.in_order)?;
    job.selection.sparse &= can.holes || !can.keeps;
    Ok(())
}

/// Tells the single file's new name. Returns the root for messages: the directory in front of it.
fn tell_name(rename_to: Option<&[u8]>, typed: &[u8], channel: &Channel, watch: &Arc<Watch>) -> Result<Vec<u8>, Error> {
    let Some(name) = rename_to else { return Ok(typed.to_vec()) };
    let name = RelPath::new(name.to_vec()).map_err(|fault| Error::new(Fault::Usage, fault.to_string()))?;
    watch.on_name(&name)?;
    channel.outbox().send(Control::Named(name));
    Ok(parent(typed).to_vec())
}

/// Makes the error of deletions at a target that keeps nothing.
pub fn nothing_to_delete(target: &str) -> Error {
    Error::new(Fault::Usage, format!("there is nothing to delete at {target}")).try_this("leave --delete out")
}
