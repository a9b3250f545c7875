//! Opens the ends of a job that lie at a host with SFTP: this process reads and writes them through ssh.

use std::sync::Arc;

use haul_channel::reporter::Watch;
use haul_copy::receiver::{OpenTarget, OpenedTarget, Target};
use haul_copy::sender::{OpenSource, Sources};
use haul_job::{AskedClass, Endpoint, Error, Event, Far, Fault, Here, Job, Place, Proof, Selection};
use haul_kept::faults;
use haul_kept::surroundings::Surroundings;
use haul_reach::over_ssh::SftpWay;
use haul_reach::ssh::{SftpSession, SshServer};
use haul_sftp::codec::GREETING;
use haul_sftp::{
    ConnectError, Dials, MAX_ASKED_CONNECTIONS, MAX_CONNECTIONS, OpenOptions, Pipe, Pool, Refused, Server, SftpPlace,
    SftpSource, SftpTarget,
};
use haul_store::{PlaceTree, StoreError};
use haul_wire::control::Drafts;

use crate::dav_ends;
use crate::foreseen;
use crate::ftp_ends;
use crate::named_ends::named;
use crate::server_terms::{self, Connections};

pub(crate) fn check(job: &Job) -> Result<(), Error> {
    let is_sftp = |end: &Endpoint| matches!(end.place, Place::Here(Here::Sftp { .. }));
    let (source, target) = (job.sources.iter().any(is_sftp), is_sftp(&job.target));
    let Selection { follow_links, xattrs, acls, one_file_system, keep_dirlinks, inplace, append, .. } = job.selection;
    let has_merge_files = job.selection.rules.iter().any(|rule| rule.merge.is_some());
    let refused: [(bool, &str); 13] = [
        (source && follow_links, "-L follows no links over sftp"),
        (source && job.files_from.is_some(), "a list of files does not work over sftp"),
        ((source || target) && has_merge_files, "files of rules in directories (dir-merge) are not read over sftp"),
        (source && one_file_system, "-x sees no file systems over sftp"),
        ((source || target) && xattrs, "SFTP carries no extended attributes"),
        ((source || target) && acls, "SFTP carries no ACLs"),
        (target && keep_dirlinks, "-K follows no links over sftp"),
        (target && inplace, "--inplace does not work over sftp: a file that is not complete would show"),
        (target && append, "--append-verify does not work over sftp"),
        (target && job.selection.backup.is_some(), "no backups are kept over sftp"),
        (target && job.selection.references.is_some(), "--link-dest and its like do not work over sftp"),
        (target && job.selection.drafts != Drafts::default(), "unfinished files stand beside the files over sftp"),
        ((source || target) && !job.movers.is_empty(), "several hosts of one end all need haul"),
    ];
    match refused.iter().find(|(is_asked, _)| *is_asked) {
        Some((_, why)) => Err(Error::new(Fault::Usage, *why).try_this("leave it out")),
        None => Ok(()),
    }
}

pub(crate) fn sources(
    place: &Here,
    job: &Job,
    surroundings: &Surroundings,
    watch: &Arc<Watch>,
) -> Result<Sources, Error> {
    let pool = connect(place, job, surroundings, watch)?;
    if job.selection.hard_links {
        let text = "-H sees no hard links over sftp: each name is copied apart".to_owned();
        watch.tell(&Event::Warning { text });
    }
    let found = SftpSource::find(pool, &job.source_paths()).map_err(|error| named(error, &job.sources));
    let found = found.map_err(|error| match error.is_of_no_file() {
        true => Error { fault: Fault::Missing, ..faults::store_error(&error) },
        false => faults::store_error(&error),
    });
    let (tree, missing) = found?;
    Ok(Sources::Open(OpenSource { missing, ..OpenSource::of(Arc::new(tree)) }))
}

/// Reaches the host. The tree is opened once it is known what comes.
pub(crate) fn target(
    place: &Here,
    job: &Job,
    surroundings: &Surroundings,
    watch: &Arc<Watch>,
) -> Result<Target, Error> {
    let pool = connect(place, job, surroundings, watch)?;
    if matches!(job.sources.first(), Some(Endpoint { place: Place::Here(Here::Sftp { .. }), .. })) {
        let text = "the data passes through this host: a server of sftp sends to no other".to_owned();
        watch.tell(&Event::Warning { text });
    }
    Ok(Target::Other(Box::new(Opening { pool, typed: job.target.path.clone(), watch: Arc::clone(watch) })))
}

pub(crate) fn place(
    end: &Here,
    job: &Job,
    surroundings: &Surroundings,
    watch: &Arc<Watch>,
) -> Result<Arc<dyn PlaceTree>, Error> {
    let pool = connect(end, job, surroundings, watch)?;
    let watch = Arc::clone(watch);
    Ok(Arc::new(SftpPlace::new(pool, Box::new(move |text| watch.tell(&Event::Warning { text })))))
}

struct Opening {
    pool: Arc<Pool>,
    typed: Vec<u8>,
    watch: Arc<Watch>,
}

impl OpenTarget for Opening {
    fn open(&self, selection: &Selection, single_file: bool) -> Result<OpenedTarget, StoreError> {
        let options = OpenOptions { single_file, make: selection.make_target, dry_run: selection.dry_run };
        let watch = Arc::clone(&self.watch);
        let tell = Box::new(move |text| watch.tell(&Event::Warning { text }));
        let (tree, name) = SftpTarget::open(Arc::clone(&self.pool), &self.typed, options, tell)?;
        Ok((Arc::new(tree), name))
    }

    fn typed(&self) -> &[u8] {
        &self.typed
    }
}

/// The proof of success between these ends.
pub(crate) fn proof(job: &Job) -> Proof {
    let is_sftp = |end: &Endpoint| matches!(end.place, Place::Here(Here::Sftp { .. }));
    match (
        job.sources.iter().any(is_sftp),
        is_sftp(&job.target) || dav_ends::is_target(job) || ftp_ends::is_target(job),
    ) {
        (_, true) => Proof::Confirmed,
        (true, false) => Proof::AsRead,
        (false, false) => Proof::BothEnds,
    }
}

/// The same job with sftp at its far end; `None`: no ssh leads there.
pub(crate) fn instead(job: &Job) -> Option<(Job, Here)> {
    let over_sftp = |place: &Place| match place {
        Place::Far(Far::Ssh { user, host, port }) => {
            Some(Here::Sftp { user: user.clone(), host: host.clone(), port: *port })
        }
        Place::Far(Far::Haul { .. }) | Place::Here(_) => None,
    };
    let mut other = job.clone();
    if !job.movers.is_empty() {
        return None;
    }
    let here = match over_sftp(&job.target.place) {
        Some(here) => {
            other.target.place = here.clone().into();
            here
        }
        None => {
            let here = over_sftp(&job.sources.first()?.place)?;
            other.sources.iter_mut().for_each(|source| source.place = here.clone().into());
            here
        }
    };
    Some((other, here))
}

/// The lanes of a copy within this host, if an end decides: each request of a lane waits for the server, several for a small
/// file.
pub(crate) fn lanes(job: &Job) -> Option<u16> {
    let is_sftp = |end: &Endpoint| matches!(end.place, Place::Here(Here::Sftp { .. }));
    job.sources.iter().chain([&job.target]).any(is_sftp).then_some(LANES)
}

/// At 20 ms to the server, one lane opens, reads and looks again at 15 small files a second, and eight at 120. A lane that
/// writes waits for one connection at a time: over a long path there are twelve.
const LANES: u16 = 16;

/// Logs in. Further connections are dialled where ssh asks no question; for a large file before the first is there.
fn connect(place: &Here, job: &Job, surroundings: &Surroundings, watch: &Arc<Watch>) -> Result<Arc<Pool>, Error> {
    watch.tell(&Event::Connecting { place: place.to_string() });
    let far = Place::Here(place.clone()).login().expect("a host of sftp is reached over ssh");
    let way = SftpWay::to(SshServer::Sftp, &far, job, surroundings).expect("a place that ssh reaches");
    let patience = job.carriage.timeout;
    let (again, silent) = (way.clone(), Arc::new(Watch::silent()));
    let refused = |error: Error| match SftpWay::is_host_unknown(&error) {
        true => Refused::HostUnknown,
        false => Refused::ForGood,
    };
    let dial = move || again.again(&GREETING, &silent).map(pipe).map_err(refused);
    let (over_first, silent) = (way.clone(), Arc::new(Watch::silent()));
    let is_background = job.carriage.service.class == AskedClass::Background;
    let beside = move || (!is_background).then(|| over_first.beside(&GREETING, &silent))?.map(pipe);
    let dials = Dials::new(Box::new(dial), Box::new(beside), most_connections(job) - 1, !way.may_ask(), patience);
    let ahead = dials.ahead(Pool::worth(foreseen::bytes(job)));
    let session = way.first(&GREETING, watch)?;
    drop(ahead);
    let control = session.control.clone();
    let first = Server::meet(pipe(session), patience).map_err(|error| match error {
        ConnectError::Ended(_) => control.why_ended(),
        ConnectError::Silent(_) => Error::new(Fault::Timeout, format!("{place}: {error}")),
        error => Error::new(Fault::Protocol, format!("cannot use {place}"))
            .because(error)
            .try_this("keep login scripts silent for sessions without a terminal; try: sftp HOST"),
    })?;
    for text in server_terms::not_kept(&job.carriage, Connections::BySsh) {
        watch.tell(&Event::Warning { text });
    }
    Ok(Pool::new(first, Some(dials)))
}

/// As many as a path may need, or the user asks for.
fn most_connections(job: &Job) -> usize {
    let asked = job.carriage.lanes.map(|lanes| usize::from(lanes).clamp(1, MAX_ASKED_CONNECTIONS));
    let is_background = job.carriage.service.class == AskedClass::Background;
    if is_background { 1 } else { asked.unwrap_or(MAX_CONNECTIONS) }
}

fn pipe(session: SftpSession) -> Pipe {
    let SftpSession { output, input, heard, control } = session;
    let for_end = control.clone();
    Pipe {
        output,
        input,
        heard,
        is_greeted: true,
        end: Box::new(move || for_end.end()),
        why_ended: Box::new(move || control.said()),
    }
}
