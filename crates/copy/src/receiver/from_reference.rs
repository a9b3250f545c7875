//! A file can come from a reference tree instead of the network.
//!
//! A tree that has the file as the source has it gives a hard link, a copy, or nothing, as the job says. If only metadata
//! differs, a copy gets the source's.

use std::io;

use haul_store::{Kind, LocalTree, StoreError};
use haul_wire::control::{Brought, OfReference};

use super::incoming::KeptAs;
use super::references::Sought;
use super::state::Shared;

/// Returns how the file counts; `None` if no tree has it, or it changed.
pub(super) fn bring(shared: &Shared, sought: &Sought<'_>) -> Result<Option<KeptAs>, StoreError> {
    let Some(made) = shared.comparison.references.made() else { return Ok(None) };
    let selection = &shared.job.selection;
    let found = shared.comparison.references.find(sought, shared.comparison.rules, selection, &|| shared.is_over());
    let (Some(found), Some(target)) = (found, shared.to.tree().local()) else { return Ok(None) };
    let (linked, copied) = (KeptAs::Brought(Brought::Linked), KeptAs::Brought(Brought::Copied));
    let wanted = match made {
        _ if !found.is_exact => copied,
        OfReference::HardLink => linked,
        OfReference::Copy => copied,
        OfReference::Nothing => KeptAs::Kept,
    };
    if selection.dry_run {
        return Ok(Some(wanted));
    }
    if found.is_exact && made == OfReference::Nothing {
        return remove_other(shared, sought.path).map(|()| Some(wanted));
    }
    let is_made = match found.is_exact && made == OfReference::HardLink {
        true => link(target, found.tree, sought)?,
        false => false,
    };
    // Copies also where a link fails: another file system, too many links.
    if !is_made && !copy(shared, found.tree, sought)? {
        return Ok(None);
    }
    shared.to.name_changed(sought.path);
    if selection.flush {
        shared.disk.storage.during(|| shared.to.tree().flush_file(sought.path))?;
    }
    shared.flush_before_removal(sought.path)?;
    Ok(Some(if is_made { linked } else { copied }))
}

/// As with rsync, the target has no file that the reference tree has, not even an older one.
fn remove_other(shared: &Shared, path: &[u8]) -> Result<(), StoreError> {
    if shared.to.tree().stat(path)?.is_none_or(|stat| stat.kind == Kind::Directory) {
        return Ok(());
    }
    let errors = shared.to.tree().delete_entry(path, &|_, _| false, false, &mut |_, _| ());
    shared.to.name_changed(path);
    errors.into_iter().next().map_or(Ok(()), Err)
}

fn link(target: &LocalTree, from: &LocalTree, sought: &Sought<'_>) -> Result<bool, StoreError> {
    if target.link_from(from, sought.path).is_err() {
        return Ok(false);
    }
    let stat = target.stat(sought.path)?;
    Ok(stat.is_some_and(|stat| stat.kind == Kind::File && stat.size == sought.identity.size))
}

/// Copies data on this host; the name comes after the flush. Returns false if the file changed.
fn copy(shared: &Shared, from: &LocalTree, sought: &Sought<'_>) -> Result<bool, StoreError> {
    let (path, size) = (sought.path, sought.identity.size);
    let failed = |error: io::Error| StoreError::new("read", path, error);
    let Ok(file) = from.open_file(path) else { return Ok(false) };
    let before = file.stat().map_err(failed)?;
    let draft = shared.to.tree().new_draft(path, false)?;
    let mut buffer = vec![0; COPY_BYTES];
    let mut at = 0;
    while let Some((start, end)) = file.next_data(at, size).map_err(failed)? {
        at = start;
        while at < end {
            let most = usize::try_from(end - at).unwrap_or(COPY_BYTES).min(COPY_BYTES);
            let read = file.read_at(&mut buffer[..most], at).map_err(failed)?;
            if read == 0 || shared.is_over() {
                draft.discard()?;
                return Ok(false);
            }
            draft.write_at(&buffer[..read], at)?;
            at += read as u64;
            // A sign of life for the session.
            shared.tally.count_done();
        }
    }
    draft.extend(size)?;
    if file.stat().map_err(failed)?.version != before.version {
        draft.discard()?;
        return Ok(false);
    }
    let metadata = shared.metadata(sought.item);
    shared.disk.storage.during(|| draft.commit(&metadata, shared.job.selection.flush))?;
    Ok(true)
}

/// Makes system calls cost nothing beside the copying.
const COPY_BYTES: usize = 1 << 20;
