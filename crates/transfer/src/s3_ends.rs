//! Opens the ends of a job that lie in a store: this process reads and writes the objects.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use haul_channel::reporter::Watch;
use haul_copy::receiver::{OpenTarget, OpenedTarget, Target};
use haul_copy::sender::{OpenSource, Sources};
use haul_engine::path::servers::{self, AUTO_CONNECTIONS_MAX, FAR_REQUESTS_MAX, ServerConnections};
use haul_foreign::{
    Bucket, Credentials, OpenedObjects, PlaceSettings, Reach, S3Place, Settings, StoreEnvironment, TargetSettings,
    Told, open_objects,
};
use haul_job::{Carriage, Endpoint, Error, Event, Fault, Here, Job, Place, Proof, Selection};
use haul_kept::surroundings::Surroundings;
use haul_kept::sync::lock;
use haul_net::Outbound;
use haul_places::Request;
use haul_store::{PlaceTree, StoreError};
use haul_sys::own::OwnDirectory;
use haul_wire::control::Drafts;
use haul_wire::place::Verb;

use crate::server_terms::{self, Connections};
use crate::web;

/// The usual requests to a store at once, without a tuner: Amazon's own tools use 10.
const LANES: u16 = 8;

fn is_store(end: &Endpoint) -> bool {
    matches!(end.place, Place::Here(Here::S3 { .. }))
}

/// The usual lanes, if one end is a store; surplus ones rest.
pub(crate) fn lanes(job: &Job) -> Option<u16> {
    match (is_store(&job.target), job.sources.iter().any(is_store)) {
        (true, _) if hands_over(job) => Some(AUTO_CONNECTIONS_MAX),
        (false, false) => None,
        _ => Some(LANES),
    }
}

/// Whether lanes hand over in one buffer: a store's connections keep both processors of a small host busy. A server read over
/// one connection gives the target a thread of its own instead.
pub(crate) fn hands_over(job: &Job) -> bool {
    let ends = || job.sources.iter().chain([&job.target]);
    ends().any(is_store) && ends().all(|end| is_store(end) || end.place == Place::Here(Here::Disk))
}

pub(crate) fn check(job: &Job) -> Result<(), Error> {
    let (source, target) = (job.sources.iter().any(is_store), is_store(&job.target));
    if !source && !target {
        return Ok(());
    }
    let selection = &job.selection;
    let has_merge_files = selection.rules.iter().any(|rule| rule.merge.is_some());
    let refused: [(bool, &str); 13] = [
        (source && job.files_from.is_some(), "a list of files is of no use with a store: name each object"),
        (has_merge_files, "files of rules in directories (dir-merge) are not read in a store"),
        (source && selection.remove_source_files, "nothing is removed from a store that is copied from"),
        (selection.xattrs, "a store keeps no extended attributes"),
        (selection.acls, "a store keeps no ACLs of files"),
        (target && selection.keep_dirlinks, "-K follows no links in a store"),
        (target && selection.inplace, "--inplace does not work in a store: an object shows when it is complete"),
        (target && selection.append, "--append-verify does not work in a store: an object does not grow"),
        (target && selection.backup.is_some(), "no backups are kept in a store"),
        (target && selection.references.is_some(), "--link-dest and its like do not work in a store"),
        (target && selection.drafts != Drafts::default(), "unfinished files show nowhere in a store"),
        (
            target && selection.verify_disk,
            "--verify disk reads no store back: it has compared what arrived by CRC64NVME",
        ),
        (!job.movers.is_empty(), "several hosts of one end all need haul"),
    ];
    match refused.iter().find(|(is_asked, _)| *is_asked) {
        Some((_, why)) => Err(Error::new(Fault::Usage, *why).try_this("leave it out")),
        None => Ok(()),
    }
}

pub(crate) fn sources(
    bucket: &str,
    job: &Job,
    surroundings: &Surroundings,
    watch: &Arc<Watch>,
) -> Result<Sources, Error> {
    tell_what_is_not_kept(job, Connections::ToRead, watch);
    let links = !job.selection.follow_links;
    let reach = web::reach(job, surroundings)?;
    // As many connections carry data as the path wants.
    let most = job.carriage.lanes.unwrap_or(FAR_REQUESTS_MAX).into();
    let begins_with = servers::requests_at_start;
    let settings = || Settings { begins_with, connections: most, ..settings(job, reach.clone()) };
    let opened = open_objects(bucket, &job.source_paths(), links, &environment(surroundings), settings);
    let OpenedObjects { tree, recorded, uncompared } = opened.map_err(|error| web::fault(&error))?;
    watch.compares(uncompared);
    Ok(Sources::Open(OpenSource { recorded, ..OpenSource::of(tree) }))
}

pub(crate) fn target(
    bucket: &str,
    job: &Job,
    surroundings: &Surroundings,
    watch: &Arc<Watch>,
) -> Result<Target, Error> {
    if job.sources.iter().any(|source| is_store(source) || matches!(source.place, Place::Here(Here::Web(_)))) {
        let text = "the data passes through this host: a store takes from no other server".to_owned();
        watch.tell(&Event::Warning { text });
    }
    if !job.sources.iter().any(is_store) {
        tell_what_is_not_kept(job, Connections::of_target(job), watch);
    }
    let reach = web::reach_to(job, surroundings)?;
    watch.proves(Proof::ByStore);
    Ok(Target::Other(Box::new(Opening {
        bucket: bucket.to_owned(),
        key: job.target.path.clone(),
        shown: format!("s3://{bucket}/{}", String::from_utf8_lossy(&job.target.path)).into_bytes(),
        settings: Box::new({
            let (job, reach) = (job.clone(), reach.clone());
            let most = job.carriage.lanes.unwrap_or(FAR_REQUESTS_MAX).into();
            let begins_with = servers::requests_at_start;
            move || Settings { begins_with, connections: most, ..settings(&job, reach.clone()) }
        }),
        environment: environment(surroundings),
        journals: journals(surroundings, watch),
        watch: Arc::clone(watch),
        outbound: reach.outbound,
        has_local_source: hands_over(job) && !job.sources.iter().any(is_store),
        reached: Mutex::default(),
    })))
}

/// Opens a bucket for a question, without a tuner of connections.
pub(crate) fn place(
    bucket: &str,
    request: &Request,
    surroundings: &Surroundings,
    watch: &Arc<Watch>,
) -> Result<Arc<dyn PlaceTree>, Error> {
    let job = request.job();
    let others_after = match request.question.verb {
        Verb::Clean { others_after_s, .. } => others_after_s.map(Duration::from_secs),
        _ => None,
    };
    let reach = web::reach(&job, surroundings)?;
    // A store that copies its own object may be silent meanwhile.
    let settings = || Settings { silence: job.carriage.timeout, ..settings(&job, reach.clone()) };
    let place = PlaceSettings { journals: journals(surroundings, watch), others_after };
    let opened = S3Place::open(bucket, place, &environment(surroundings), settings);
    Ok(Arc::new(opened.map_err(|error| web::fault(&error))?))
}

fn tell_what_is_not_kept(job: &Job, connections: Connections, watch: &Watch) {
    for text in server_terms::not_kept(&job.carriage, connections) {
        watch.tell(&Event::Warning { text });
    }
}

/// The directory of journals, unless others can have planted something.
pub(crate) fn journals(surroundings: &Surroundings, watch: &Arc<Watch>) -> Option<PathBuf> {
    let state = surroundings.state.as_deref()?;
    let directory = state.join("uploads");
    let made = OwnDirectory::make(&directory);
    match made {
        Ok(_) => Some(directory),
        Err(error) => {
            let text = format!(
                "an upload that breaks off begins anew: its journal cannot be kept in {}: {error}",
                directory.display()
            );
            watch.tell(&Event::Warning { text });
            None
        }
    }
}

struct Opening {
    bucket: String,
    key: Vec<u8>,
    shown: Vec<u8>,
    settings: Box<dyn Fn() -> Settings + Send + Sync>,
    environment: StoreEnvironment,
    journals: Option<PathBuf>,
    watch: Arc<Watch>,
    outbound: Option<Arc<Outbound>>,
    has_local_source: bool,
    /// The store, if its path was asked for before it is opened.
    reached: Mutex<Option<io::Result<Bucket>>>,
}

impl Opening {
    fn reach(&self) -> io::Result<Bucket> {
        Bucket::reach(&self.bucket, &self.environment, &*self.settings)
    }
}

impl OpenTarget for Opening {
    fn open(&self, selection: &Selection, single_file: bool) -> Result<OpenedTarget, StoreError> {
        let target = TargetSettings {
            modes: selection.special_bits,
            owners: selection.owner,
            keeps_what_stands: selection.ignore_existing,
            single_file,
            sums: true,
            held_part_bytes: None,
            journals: self.journals.clone(),
        };
        let told = Box::new(Teller(Arc::clone(&self.watch)));
        let bucket = lock(&self.reached).take().unwrap_or_else(|| self.reach());
        bucket.map_err(|error| StoreError::new("use as target", &self.shown, error))?.open(&self.key, target, told)
    }

    /// As many as parts may be under way: over a long path they are more.
    fn lanes(&self) -> Option<u16> {
        if !self.has_local_source {
            return None;
        }
        let bucket = self.reach();
        let rtt_us = bucket.as_ref().ok().map(Bucket::rtt_us);
        // An error is told where the target is opened.
        *lock(&self.reached) = Some(bucket);
        Some(ServerConnections::writing(None, rtt_us?).most())
    }

    fn typed(&self) -> &[u8] {
        &self.shown
    }

    fn outbound(&self) -> Option<Arc<Outbound>> {
        self.outbound.clone()
    }
}

struct Teller(Arc<Watch>);

impl Told for Teller {
    fn warn(&self, text: String) {
        self.0.tell(&Event::Warning { text });
    }

    fn unsummed(&self) {
        self.0.proves(Proof::BySize);
    }
}

fn settings(job: &Job, reach: Reach) -> Settings {
    let Carriage { lanes, timeout, .. } = &job.carriage;
    Settings {
        // A silent store is asked again before the copy gives up.
        silence: *timeout / 3,
        reach,
        ..Settings::usual(lanes.unwrap_or(LANES).into(), Credentials::default())
    }
}

/// Collects the variables of Amazon's tools.
fn environment(surroundings: &Surroundings) -> StoreEnvironment {
    let text = |(name, value): (&std::ffi::OsStr, &std::ffi::OsStr)| {
        Some((name.to_str()?.to_owned(), value.to_str()?.to_owned()))
    };
    let variables = surroundings.environment.all().filter_map(text).filter(|(name, _)| name.starts_with("AWS_"));
    StoreEnvironment { variables: variables.collect(), home: surroundings.home.clone() }
}
