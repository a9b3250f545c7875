//! Targets at servers with WebDAV: this process writes them, by one PUT for each file.

use std::borrow::Cow;
use std::sync::Arc;

use haul_channel::reporter::Watch;
use haul_copy::receiver::{OpenTarget, OpenedTarget, Target};
use haul_engine::path::servers;
use haul_foreign::{DavServer, OpenOptions};
use haul_job::{
    AskedClass, Drafts, Endpoint, Error, Event, Fault, Here, Job, Place, Selection, WebServer, Wish, Wishes,
};
use haul_kept::faults;
use haul_kept::surroundings::Surroundings;
use haul_net::Outbound;
use haul_store::StoreError;

use crate::named_ends::named;
use crate::server_terms::{self, Connections};
use crate::web;

pub(crate) fn is_target(job: &Job) -> bool {
    matches!(&job.target.place, Place::Here(Here::Web(server)) if server.is_dav)
}

/// The lanes, each with one file under way, unless they depend on the path.
fn asked_lanes(job: &Job) -> Option<u16> {
    let is_background = job.carriage.service.class == AskedClass::Background;
    job.carriage.lanes.or(is_background.then_some(1))
}

pub(crate) fn check(job: &Job) -> Result<(), Error> {
    if !is_target(job) {
        return Ok(());
    }
    let Selection { xattrs, acls, keep_dirlinks, append, hard_links, .. } = job.selection;
    let has_merge_files = job.selection.rules.iter().any(|rule| rule.merge.is_some());
    let refused: [(bool, &str); 9] = [
        (xattrs, "WebDAV carries no extended attributes"),
        (acls, "WebDAV carries no ACLs"),
        (hard_links, "WebDAV has no links, so -H cannot keep them"),
        (has_merge_files, "files of rules in directories (dir-merge) are not read at a server with WebDAV"),
        (keep_dirlinks, "-K follows no links at a server with WebDAV"),
        (append, "--append-verify does not work with WebDAV: a server takes a file as a whole"),
        (job.selection.backup.is_some(), "no backups are kept at a server with WebDAV"),
        (job.selection.references.is_some(), "--link-dest and its like do not work with WebDAV"),
        (job.selection.drafts != Drafts::default(), "unfinished files stand beside the files at a server with WebDAV"),
    ];
    match refused.iter().find(|(is_asked, _)| *is_asked) {
        Some((_, why)) => Err(Error::new(Fault::Usage, *why).try_this("leave it out")),
        None if !job.movers.is_empty() => Err(Error::new(Fault::Usage, "several hosts of one end all need haul")),
        None => Ok(()),
    }
}

/// Adjusts the job: files whole and in order, without what no server keeps.
pub(crate) fn adjusted(job: &Job) -> Cow<'_, Job> {
    if !is_target(job) {
        return Cow::Borrowed(job);
    }
    let mut job = job.clone();
    job.carriage.in_order = true;
    let selection = &mut job.selection;
    selection.wishes = Wishes { permissions: Wish::No, directory_times: Wish::No, ..selection.wishes };
    (selection.owner, selection.group, selection.sparse) = (false, false, false);
    (selection.whole_file, selection.no_resume) = (true, true);
    Cow::Owned(job)
}

pub(crate) fn target(
    server: &WebServer,
    job: &Job,
    surroundings: &Surroundings,
    watch: &Arc<Watch>,
) -> Result<Target, Error> {
    let is_server = |end: &Endpoint| {
        matches!(
            end.place,
            Place::Here(Here::Web(_) | Here::Ftp(_) | Here::SshFtp { .. } | Here::S3 { .. } | Here::Sftp { .. })
        )
    };
    if job.sources.iter().any(is_server) {
        let text = "the data passes through this host: one server sends to no other".to_owned();
        watch.tell(&Event::Warning { text });
    }
    // A source that is a server, too, has said it.
    if !job.sources.iter().any(is_server) {
        for text in server_terms::not_kept(&job.carriage, Connections::of_target(job)) {
            watch.tell(&Event::Warning { text });
        }
    }
    let asked = asked_lanes(job);
    let most = asked.unwrap_or(servers::short_files_at_once(u32::MAX));
    // A server may take its time between the last byte and its answer.
    let reach = web::reach_to(job, surroundings)?;
    let outbound = reach.outbound.clone();
    let settings = web::settings(server, most, job.carriage.timeout, reach);
    let url = web::url(server, &job.target.path)?;
    let server = DavServer::new(url, settings);
    let lanes = match asked {
        Some(asked) => asked,
        None => {
            let end = std::slice::from_ref(&job.target);
            let rtt_us = server.rtt_us().map_err(|error| faults::store_error(&named(error, end)))?;
            servers::short_files_at_once(rtt_us)
        }
    };
    let (typed, watch) = (job.target.path.clone(), Arc::clone(watch));
    Ok(Target::Other(Box::new(Opening { server, lanes, typed, watch, outbound })))
}

struct Opening {
    server: DavServer,
    lanes: u16,
    typed: Vec<u8>,
    watch: Arc<Watch>,
    outbound: Option<Arc<Outbound>>,
}

impl OpenTarget for Opening {
    fn open(&self, selection: &Selection, single_file: bool) -> Result<OpenedTarget, StoreError> {
        let Selection { make_target, dry_run, inplace, .. } = *selection;
        let at_once = self.lanes.into();
        let options = OpenOptions { single_file, make: make_target, dry_run, in_place: inplace, at_once };
        let watch = Arc::clone(&self.watch);
        let tell = Box::new(move |text| watch.tell(&Event::Warning { text }));
        let (tree, name) = self.server.open(options, tell)?;
        Ok((Arc::new(tree), name))
    }

    fn typed(&self) -> &[u8] {
        &self.typed
    }

    fn outbound(&self) -> Option<Arc<Outbound>> {
        self.outbound.clone()
    }

    fn lanes(&self) -> Option<u16> {
        Some(self.lanes)
    }
}
