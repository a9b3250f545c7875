//! Has files brought by the server of the sources ("third party"), where the target's end offers that.
//!
//! ```text
//!   decide -> queue -> a thread: from server to server -> its name      or: the sender is asked for the file, as for any other
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use haul_channel::convert::bounded;
use haul_store::{Carried, FileToBring, StoreError, ThirdParty, Time};
use haul_wire::control::{Brought, FailureKind, OutcomeKind};

use super::asking::ask_for;
use super::destination::shown;
use super::state::Shared;
use super::to_bring::WantedFile;

pub(super) fn bring_or_ask(shared: &Arc<Shared>, file: WantedFile) {
    let to_bring = &shared.to_bring;
    let Some(by) = to_bring.by().filter(|_| !file.inplace) else { return ask_for(shared, file) };
    let spawn = |_| {
        let (by, for_thread) = (Arc::clone(by), Arc::clone(shared));
        std::thread::Builder::new().name("bring".into()).spawn(move || run(&for_thread, &*by))
    };
    let left = if to_bring.start_once(by.at_once(), spawn) { to_bring.push(file) } else { Some(file) };
    if let Some(file) = left {
        ask_for(shared, file);
    }
}

fn run(shared: &Arc<Shared>, by: &dyn ThirdParty) {
    while let Some(file) = shared.to_bring.next() {
        let (index, there) = (file.index, AtomicU64::new(0));
        match bring_one(shared, by, &file, &there) {
            Ok(Carried::BetweenServers) => {
                shared.settle(index, OutcomeKind::Brought { how: Brought::ByServer, blake3: None });
            }
            Ok(Carried::ThroughThisHost) => ask_for(shared, file),
            Ok(Carried::Differs) => {
                let why =
                    format!("{}: the servers tell different sums of it, however often it is sent", shown(&file.path));
                shared.settle(index, OutcomeKind::Failed { why: bounded(why), kind: FailureKind::Unverified });
            }
            // A later run goes on.
            Err(_) if shared.is_over() => {}
            Err(error) => shared.fail_item(index, &error),
        }
        if let Some(sums) = &shared.job.sums {
            sums.passing().ends(there.into_inner());
        }
    }
}

fn bring_one(
    shared: &Shared,
    by: &dyn ThirdParty,
    file: &WantedFile,
    there: &AtomicU64,
) -> Result<Carried, StoreError> {
    let mtime = file.identity.mtime;
    let way = by.bring(&FileToBring {
        source_path: file.item.path.as_bytes(),
        path: &file.path,
        size: file.identity.size,
        mtime: Time { s: mtime.s, ns: mtime.ns },
        metadata: &shared.metadata(&file.item),
        is_over: &|| shared.is_over(),
        moves: &|bytes| {
            shared.tally.count_done();
            let before = there.fetch_max(bytes, Ordering::Relaxed);
            if let Some(sums) = &shared.job.sums {
                sums.passing().adds(bytes.saturating_sub(before));
            }
        },
    })?;
    if way == Carried::BetweenServers {
        shared.to.name_changed(&file.path);
        shared.flush_before_removal(&file.path)?;
    }
    Ok(way)
}
