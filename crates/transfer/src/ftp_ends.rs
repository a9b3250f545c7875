//! Opens the ends of a job that lie at a server of FTP: this process reads and writes them.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use haul_channel::reporter::Watch;
use haul_copy::receiver::{OpenTarget, OpenedTarget, Target};
use haul_copy::sender::{OpenSource, Sources};
use haul_engine::path::servers::{self, USUAL_CONNECTIONS};
use haul_foreign::{Credentials, Login};
use haul_ftp::{
    CONNECTIONS_MAX, FAR_FROM_US, FIRST_PAUSE, FtpPlace, FtpServer as Server, FtpSource, OpenOptions, RANGE_FILE_GRACE,
    RANGE_TRIAL_GRACE, RANGES_FROM_US, RangeUploads, Security, Settings,
};
use haul_job::{
    AskedClass, Drafts, Endpoint, Error, Event, Fault, FtpServer, Here, Job, Place, Selection, Wish, Wishes,
};
use haul_kept::faults;
use haul_kept::surroundings::Surroundings;
use haul_net::Outbound;
use haul_places::Request;
use haul_store::{PlaceTree, SourceTree, StoreError};
use haul_wire::place::Verb;

use crate::foreseen;
use crate::grid_ends;
use crate::named_ends::named;
use crate::s3_ends;
use crate::server_terms::{self, Connections};
use crate::web;

/// The lanes to a near server, each with one file under way. A far one gets as many as it lets in, because a short file waits
/// for six answers.
const LANES: u16 = 16;

fn is_ftp(end: &Endpoint) -> bool {
    matches!(end.place, Place::Here(Here::Ftp(_) | Here::SshFtp { .. }))
}

fn is_grid(end: &Endpoint) -> bool {
    matches!(end.place, Place::Here(Here::Ftp(FtpServer { is_grid: true, .. }) | Here::SshFtp { .. }))
}

pub(crate) fn is_target(job: &Job) -> bool {
    is_ftp(&job.target)
}

pub(crate) fn check(job: &Job) -> Result<(), Error> {
    let (source, target) = (job.sources.iter().any(is_ftp), is_target(job));
    let Selection { follow_links, xattrs, acls, one_file_system, keep_dirlinks, append, hard_links, .. } =
        job.selection;
    let has_merge_files = job.selection.rules.iter().any(|rule| rule.merge.is_some());
    let refused: [(bool, &str); 14] = [
        (is_grid(&job.target) && job.selection.inplace, "--inplace does not work over GridFTP"),
        (source && follow_links, "-L follows no links over FTP"),
        (source && job.files_from.is_some(), "a list of files does not work over FTP"),
        ((source || target) && has_merge_files, "files of rules in directories (dir-merge) are not read over FTP"),
        (source && one_file_system, "-x sees no file systems over FTP"),
        ((source || target) && xattrs, "FTP carries no extended attributes"),
        ((source || target) && acls, "FTP carries no ACLs"),
        (target && hard_links, "FTP makes no links, so -H cannot keep them"),
        (target && keep_dirlinks, "-K follows no links over FTP"),
        (target && append, "--append-verify does not work over FTP"),
        (target && job.selection.backup.is_some(), "no backups are kept over FTP"),
        (target && job.selection.references.is_some(), "--link-dest and its like do not work over FTP"),
        (target && job.selection.drafts != Drafts::default(), "unfinished files stand beside the files over FTP"),
        ((source || target) && !job.movers.is_empty(), "several hosts of one end all need haul"),
    ];
    match refused.iter().find(|(is_asked, _)| *is_asked) {
        Some((_, why)) => Err(Error::new(Fault::Usage, *why).try_this("leave it out")),
        None => Ok(()),
    }
}

pub(crate) fn adjusted(job: &Job) -> Cow<'_, Job> {
    if !is_target(job) {
        return Cow::Borrowed(job);
    }
    let mut job = job.clone();
    // A server of GridFTP takes each block at its place.
    job.carriage.in_order = !is_grid(&job.target);
    let selection = &mut job.selection;
    // Few servers set modes, so they are set where asked for.
    let permissions = match selection.wishes.permissions {
        Wish::InWords => Wish::InWords,
        Wish::Usual | Wish::No => Wish::No,
    };
    selection.wishes = Wishes { permissions, directory_times: Wish::No, ..selection.wishes };
    (selection.owner, selection.group, selection.sparse) = (false, false, false);
    // What is read back as a whole goes up as a whole.
    (selection.whole_file, selection.no_resume) = (true, selection.no_resume || selection.verify_disk);
    Cow::Owned(job)
}

fn settings(
    place: &Here,
    connections: u16,
    job: &Job,
    surroundings: &Surroundings,
    watch: &Arc<Watch>,
) -> Result<Settings, Error> {
    let server = match place {
        Here::Ftp(server) => server,
        ssh => {
            let through = grid_ends::through_ssh(ssh, job, surroundings, watch)?;
            return Ok(Settings {
                grid: Some(grid_ends::grid(job, job.target.place == Place::Here(ssh.clone()), surroundings)?),
                pipes: Some(through.make),
                ..settings(&Here::Ftp(through.server), connections, job, surroundings, watch)?
            });
        }
    };
    let login =
        server.login.as_ref().map(|login| Login { user: login.user.clone(), password: login.password.clone().into() });
    let security = match (server.is_tls, job.carriage.clear) {
        // The port of FTP itself: there TLS is asked for.
        (true, _) if server.port == FtpServer::usual_port(false) => Security::Explicit,
        (true, _) => Security::Implicit,
        _ if server.is_grid => Security::Clear,
        (false, true) => Security::Clear,
        (false, false) => Security::IfOffered,
    };
    let (watch, for_sums) = (Arc::clone(watch), Arc::clone(watch));
    let is_target = job.target.place == Place::Here(place.clone());
    let grid = server.is_grid.then(|| grid_ends::grid(job, is_target, surroundings)).transpose()?;
    Ok(Settings {
        host: server.host.clone(),
        port: server.port,
        security,
        encrypts_data: !job.carriage.clear,
        credentials: Credentials::of_environment(login),
        reach: web::reach(job, surroundings)?,
        // A silent server is asked again before the copy gives up.
        silence: job.carriage.timeout / 3,
        first_pause: FIRST_PAUSE,
        connections: connections.into(),
        far_from_us: FAR_FROM_US,
        begins_with: if server.is_grid && is_target { blocks_at_start } else { servers::at_start },
        tell: Box::new(move |text| watch.tell(&Event::Warning { text })),
        tell_sums: Box::new(move |sums| for_sums.on_sums(sums)),
        journals: None,
        ranges: None,
        grid,
        pipes: None,
    })
}

/// Connections of an upload in blocks that are dialled before the first one has logged in.
fn blocks_at_start(rtt_us: u32, bytes: u64) -> u16 {
    match servers::is_long(rtt_us) {
        true => servers::requests_at_start(rtt_us, bytes).min(BLOCKS_AT_START),
        false => servers::at_start(rtt_us, bytes),
    }
}

/// As many carry one file. Over 1 Gbit/s x 228 ms, 500 MB take 7.1 s with 32, and 0.05 s less with 48, which overfill the queue: 4.3 % went
/// again, and 0.9 % with 32.
const BLOCKS_AT_START: u16 = 32;

pub(crate) fn sources(
    server: &Here,
    job: &Job,
    surroundings: &Surroundings,
    watch: &Arc<Watch>,
) -> Result<Sources, Error> {
    let told = match job.sources.iter().all(is_grid) && grid_ends::comes_over_all_paths(job) {
        true => server_terms::not_kept_by_turns(&job.carriage, Connections::ToRead),
        false => server_terms::not_kept(&job.carriage, Connections::ToRead),
    };
    for text in told {
        watch.tell(&Event::Warning { text });
    }
    let connections = job.carriage.lanes.unwrap_or(CONNECTIONS_MAX);
    let settings = settings(server, connections, job, surroundings, watch)?;
    let tree = FtpSource::open(settings, &job.source_paths()).map_err(|error| fault(&named(error, &job.sources)))?;
    Ok(Sources::Open(OpenSource::of(tree)))
}

pub(crate) fn target(
    server: &Here,
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
    let why_here = why_through_this_host(job);
    if job.sources.iter().any(is_server) {
        if let Some(why) = why_here {
            watch.tell(&Event::Warning { text: format!("the data passes through this host: {why}") });
        }
    } else {
        let connections = Connections::of_target(job);
        let told = match is_grid(&job.target) {
            true => server_terms::not_kept_by_turns(&job.carriage, connections),
            false => server_terms::not_kept(&job.carriage, connections),
        };
        for text in told {
            watch.tell(&Event::Warning { text });
        }
    }
    let is_background = job.carriage.service.class == AskedClass::Background;
    let asked = job.carriage.lanes.or(is_background.then_some(1));
    let connections = asked.unwrap_or(CONNECTIONS_MAX);
    let settings = settings(server, connections, job, surroundings, watch)?;
    let journals = s3_ends::journals(surroundings, watch);
    let reach = web::reach_to(job, surroundings)?;
    let outbound = reach.outbound.clone();
    // Whoever asks for connections has them on any path, also from a busy server.
    let (from_us, grace) = match job.carriage.lanes {
        Some(_) => (0, RANGE_TRIAL_GRACE),
        None => (RANGES_FROM_US, RANGE_FILE_GRACE),
    };
    let largest_bytes = foreseen::largest_bytes(job);
    // A sender elsewhere does not see that the target takes ranges.
    let is_seen = job.sources.iter().all(|source| source.place.is_here());
    let ranges = is_seen.then_some(RangeUploads { from_us, foreseen_bytes: largest_bytes, grace });
    let settings = Settings { silence: job.carriage.timeout, journals, reach, ranges, ..settings };
    let server = Server::new(settings);
    let typed = job.target.path.clone();
    server.looks_first_at(&typed);
    let rtt_us =
        server.reach().map_err(|error| fault(&StoreError::new("use as target", &job.target.written(), error)))?;
    let is_one_file = job.sources.len() == 1 && largest_bytes > 0;
    let lanes = match asked {
        Some(asked) => asked,
        None if is_one_file && !is_grid(&job.target) => servers::at_start(rtt_us, largest_bytes),
        None if is_one_file && servers::is_long(rtt_us) => BLOCKS_AT_START,
        None if servers::is_long(rtt_us) => CONNECTIONS_MAX,
        None => LANES,
    };
    let from = why_here.is_none().then(OnceLock::new);
    Ok(Target::Other(Box::new(Opening { server, typed, lanes, outbound, from })))
}

/// `None`: the one server may send to the other one.
fn why_through_this_host(job: &Job) -> Option<&'static str> {
    let Job { carriage, selection, .. } = job;
    let wishes: [(bool, &str); 5] = [
        (!(is_grid(&job.target) && job.sources.iter().all(is_grid)), "one server sends to no other"),
        (carriage.rate_bytes_per_s.is_some(), "--rate holds for what this host sends"),
        (carriage.service.class != AskedClass::Normal, "a class holds for what this host sends"),
        (carriage.service.deadline.is_some(), "--by holds for what this host sends"),
        (selection.verify_disk, "--verify disk reads all of it here"),
    ];
    wishes.into_iter().find_map(|(is_so, why)| is_so.then_some(why))
}

pub(crate) fn place(
    server: &Here,
    request: &Request,
    surroundings: &Surroundings,
    watch: &Arc<Watch>,
) -> Result<Arc<dyn PlaceTree>, Error> {
    let job = request.job();
    let connections = job.carriage.lanes.unwrap_or(USUAL_CONNECTIONS);
    // A draft goes with its journal.
    let journals = match request.question.verb {
        Verb::Clean { .. } => s3_ends::journals(surroundings, watch),
        _ => None,
    };
    Ok(Arc::new(FtpPlace::new(Settings { journals, ..settings(server, connections, &job, surroundings, watch)? })))
}

struct Opening {
    server: Server,
    typed: Vec<u8>,
    lanes: u16,
    outbound: Option<Arc<Outbound>>,
    /// The sources, whose server may send them by itself. `None`: it may not.
    from: Option<OnceLock<Arc<FtpSource>>>,
}

impl OpenTarget for Opening {
    fn open(&self, selection: &Selection, single_file: bool) -> Result<OpenedTarget, StoreError> {
        let Selection { make_target, dry_run, inplace, .. } = *selection;
        let options = OpenOptions { single_file, make: make_target, dry_run, in_place: inplace };
        let (tree, name) = self.server.open(&self.typed, options)?;
        let tree = match &self.from {
            Some(from) if !dry_run => tree.taking_from(from.get()),
            _ => tree,
        };
        Ok((Arc::new(tree), name))
    }

    fn typed(&self) -> &[u8] {
        &self.typed
    }

    fn meets(&self, source: &Arc<dyn SourceTree>) {
        let tree = Arc::clone(source).for_third_party().and_then(|tree| tree.downcast::<FtpSource>().ok());
        if let Some((from, tree)) = self.from.as_ref().zip(tree) {
            let _ = from.set(tree);
        }
    }

    fn outbound(&self) -> Option<Arc<Outbound>> {
        self.outbound.clone()
    }

    fn lanes(&self) -> Option<u16> {
        Some(self.lanes)
    }
}

fn fault(error: &StoreError) -> Error {
    match error.is_of_no_file() {
        true => Error { fault: Fault::Missing, ..faults::store_error(error) },
        false => web::fault(error),
    }
}
