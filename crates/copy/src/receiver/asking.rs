//! Asks the sender for the data of a file, as far as an earlier run has not left it.

use std::sync::Arc;

use haul_engine::journal;
use haul_store::StoreError;
use haul_wire::control::Wanted;

use super::incoming::Incoming;
use super::state::Shared;
use super::tasks::Task;
use super::to_bring::WantedFile;
use super::{leading, look, reread};

/// Asks the sender for what the target lacks of a file.
pub(super) fn ask_for(shared: &Arc<Shared>, file: WantedFile) {
    let selection = &shared.job.selection;
    let WantedFile { index, item, path, identity, inplace, standing, existing } = file;
    let mut incoming = Incoming::cut_by(shared.job.carriage.cut, index, item, path, identity, inplace);
    let mut wanted = Wanted::All;
    if !incoming.layout.is_whole() && !selection.no_resume {
        match shared.to.tree().resume_draft(&incoming.path, inplace) {
            Ok(Some((part, journal))) => {
                if incoming.resume(part, &journal, shared.trusts_journal(), &|| shared.is_over()) {
                    wanted = Wanted::Chunks(incoming.missing());
                } else if shared.is_over() {
                    // The next run can judge the part.
                    return;
                }
            }
            Ok(None) => {}
            Err(error) => return shared.fail_item(index, &error),
        }
    }
    if matches!(wanted, Wanted::All)
        && let Err(error) = mark(shared, &incoming)
    {
        return shared.fail_item(index, &error);
    }
    incoming.standing = look::standing(shared, &incoming.path, standing.as_ref(), existing);
    let incoming = Arc::new(incoming);
    shared.expect(Arc::clone(&incoming));
    if let Err(error) = leading::show_draft(shared, &incoming) {
        return shared.fail(&incoming, &error);
    }
    let resumed = incoming.resumed(shared.verifies_disk());
    if matches!(wanted, Wanted::Chunks(_)) && !incoming.inplace && shared.trusts_journal() {
        shared.rereads.trust(incoming.resumed_bytes());
    }
    match wanted {
        Wanted::Chunks(ranges) if ranges.is_empty() && resumed.is_none() => {
            shared.tasks.push(Task::Publish(Arc::clone(&incoming)));
        }
        wanted => look::ask(shared, &incoming, wanted),
    }
    if let Some(flushed) = resumed {
        reread::queue(shared, &incoming, flushed);
    }
}

/// Marks a file that is written in place where other files may stay: after a death, or another change of the source, the
/// unfinished one must not.
fn mark(shared: &Shared, incoming: &Incoming) -> Result<(), StoreError> {
    if !incoming.inplace || !shared.comparison.rules.may_keep_others() {
        return Ok(());
    }
    let (identity, chunk_bytes) = (incoming.identity, incoming.layout.chunk_bytes());
    let header = |standing: Option<_>| {
        journal::Header { identity, chunk_bytes, part: standing.unwrap_or(journal::NOTHING) }.encode()
    };
    shared.to.tree().mark_unfinished(&incoming.path, &header, shared.job.selection.flush)
}
