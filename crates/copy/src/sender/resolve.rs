//! Finds and opens the sources of a job.

use std::sync::Arc;

use haul_channel::channel::Channel;
use haul_channel::convert;
use haul_channel::reporter::Watch;
use haul_engine::integrity::Hash;
use haul_job::{Error, Fault};
use haul_kept::faults;
use haul_store::{ResolveOptions, SourceSet, SourceTree, StoreError};
use haul_wire::control::{Control, Notice};

use super::job::{OpenSource, SenderJob, Sources};
use super::resolve_options::resolve_options;

pub(super) struct Resolved {
    pub(super) sources: Arc<dyn SourceTree>,
    pub(super) recorded: Option<Hash>,
    /// The reason why the first missing source is missing.
    pub(super) missing: Option<String>,
}

pub(super) fn resolve(job: &SenderJob, channel: &Channel, watch: &Watch) -> Result<Resolved, Error> {
    let paths = match &job.sources {
        Sources::Paths(paths) => paths,
        Sources::Open(OpenSource { tree, recorded, warning, missing, .. }) => {
            if let Some(text) = warning {
                let notice = Notice::Warning { text: convert::bounded(text) };
                watch.on_notice(notice.clone());
                channel.outbox().send(Control::Notice(notice));
            }
            tell_missing(missing, channel, watch);
            let missing = missing.first().map(StoreError::to_string);
            return Ok(Resolved { sources: Arc::clone(tree), recorded: *recorded, missing });
        }
    };
    let options = ResolveOptions {
        expand_globs: job.expand_globs,
        confine: job.confine.clone(),
        ..resolve_options(job.home.clone(), job.selection.follow_links)
    };
    let (sources, missing) = SourceSet::resolve_lossy(paths, &options);
    if let Some(error) = missing.iter().find(|error| error.is_out_of_files()) {
        return Err(faults::store_error(error));
    }
    if sources.is_empty() {
        return Err(match missing.first() {
            Some(error) if error.is_of_no_file() => Error { fault: Fault::Missing, ..faults::store_error(error) },
            Some(error) => faults::store_error(error),
            None => Error::new(Fault::Usage, "no source was named"),
        });
    }
    // The leading host has told of them.
    if !job.is_mover {
        tell_missing(&missing, channel, watch);
    }
    let missing = missing.first().map(StoreError::to_string);
    Ok(Resolved { sources: Arc::new(sources), recorded: None, missing })
}

fn tell_missing(missing: &[StoreError], channel: &Channel, watch: &Watch) {
    for error in missing {
        let notice = Notice::Failed { path: error.path.clone(), why: convert::bounded(error) };
        watch.on_notice(notice.clone());
        channel.outbox().send(Control::Notice(notice));
    }
}
