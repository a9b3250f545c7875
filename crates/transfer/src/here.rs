//! Copies on one host: both roles in one process, lanes over socket pairs.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use haul_job::{Endpoint, Error, Fault, Here, Host, Job, LanePath, Place, Proof};
use haul_net::Stream;
use haul_wire::control::Control;

use crate::dav_ends;
use crate::ends::{sources_here, target_here};
use crate::ftp_ends;
use crate::order::Order;
use crate::s3_ends;
use crate::sftp_ends;
use haul_channel::channel::{Channel, Events, LaneEvent, PING_EVERY, SessionEvent};
use haul_channel::lane_threads::NoKeeper;
use haul_channel::reporter::{Ends, Watch};
use haul_channel::role_context::RoleContext;
use haul_channel::{convert, host_facts};
use haul_copy::hand_over::HandOver;
use haul_copy::receiver::{self, Bounds, ReceiverJob};
use haul_copy::sender::early_look::EarlyLook;
use haul_copy::sender::{self, OpenSource, SenderJob, Sources};
use haul_kept::class_policy::Permits;
use haul_kept::faults;
use haul_kept::surroundings::Surroundings;
use haul_striping::movers::Movers;

/// The lanes of a copy on one host.
pub struct LanePairs {
    /// Each as its sending and its receiving end.
    pairs: Vec<(Stream, Stream)>,
    hand_over: Option<Arc<HandOver>>,
}

impl LanePairs {
    /// Lanes that hand data over in one buffer, past their connections.
    pub fn handing_over(pairs: Vec<(Stream, Stream)>) -> Self {
        let lanes = u16::try_from(pairs.len()).unwrap_or(u16::MAX);
        Self { pairs, hand_over: Some(Arc::new(HandOver::new(lanes))) }
    }
}

impl From<Vec<(Stream, Stream)>> for LanePairs {
    fn from(pairs: Vec<(Stream, Stream)>) -> Self {
        Self { pairs, hand_over: None }
    }
}

/// Carries out a job whose two sides are on this machine.
pub fn here(order: Order<'_>) -> Result<Ends, Error> {
    let Order { job, surroundings, watch, hash_kept } = order;
    refuse_into_itself(job)?;
    let (sender, receiver) = roles(job, surroundings, watch, hash_kept, Bounds::default())?;
    let pairs: std::io::Result<Vec<_>> = (0..lanes(job, &sender)).map(|_| Stream::plain_pair()).collect();
    let pairs = pairs.map_err(|error| Error::new(Fault::FileIo, "cannot make a socket pair").because(error))?;
    let (lanes, proof) = match is_between_disks(job) {
        true => (LanePairs::handing_over(pairs), Proof::InOneBuffer),
        false => (pairs.into(), sftp_ends::proof(job)),
    };
    let ends = carry(sender, receiver, [watch, &Arc::new(Watch::silent())], lanes)?;
    Ok(beside_server(job, Ends { proof, ..ends }))
}

/// Whether both ends are files of this host. A server is better read while the target writes, on two threads.
fn is_between_disks(job: &Job) -> bool {
    job.sources.iter().chain([&job.target]).all(|end| end.place == Place::Here(Here::Disk))
}

/// Names the server, where one end is none of this host.
fn beside_server(job: &Job, ends: Ends) -> Ends {
    let server = |end: &Endpoint| match &end.place {
        Place::Here(place @ (Here::Web(_) | Here::Ftp(_) | Here::S3 { .. } | Here::Sftp { .. })) => {
            Some(place.to_string())
        }
        Place::Here(Here::Disk | Here::Zero { .. } | Here::Stripes { .. } | Here::Null) | Place::Far(_) => None,
    };
    let host = |place: String| Host { place, ..Host::default() };
    match (job.sources.first().and_then(server), server(&job.target)) {
        (Some(place), _) => {
            Ends { source: host(place), lane_path: Some(LanePath::FromServer), cipher: String::new(), ..ends }
        }
        (None, Some(place)) => {
            Ends { target: host(place), lane_path: Some(LanePath::ToServer), cipher: String::new(), ..ends }
        }
        (None, None) => ends,
    }
}

/// How many lanes there are, once it is known what is read from where. A server's path says how many of them carry data.
fn lanes(job: &Job, sender: &SenderJob) -> u16 {
    let asked = job.carriage.lanes;
    let of_server = match &sender.sources {
        Sources::Open(OpenSource { tree, .. }) => sender::lanes_for(&**tree, &sender.carriage),
        Sources::Paths(_) => None,
    };
    let usual = of_server.into_iter().chain(sftp_ends::lanes(job)).chain(s3_ends::lanes(job)).max();
    // Where each lane has a file under way, the target says how many there are.
    let wanted = asked.or_else(|| dav_ends::lanes(job)).or_else(|| ftp_ends::lanes(job)).or(usual);
    haul_engine::plan::near_lanes(wanted, host_facts::cpus()).lanes
}

/// Refuses two copies, as cp does: a directory into itself, which would find its own copy for ever, and a link over its
/// own file, which would be lost.
fn refuse_into_itself(job: &Job) -> Result<(), Error> {
    if job.target.place != Place::Here(Here::Disk) {
        return Ok(());
    }
    let path_of = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
    let typed_target = path_of(&job.target.path);
    // A path that does not exist yet lies where its nearest existing ancestor does.
    let absolute = std::path::absolute(&typed_target).unwrap_or_else(|_| typed_target.clone());
    let ancestors = absolute.ancestors();
    let nearest = |path: &Path| Some((path.canonicalize().ok()?, absolute.strip_prefix(path).ok()?.to_owned()));
    let Some((target, missing)) = ancestors.clone().find_map(nearest) else { return Ok(()) };
    for source in &job.sources {
        match source.place {
            Place::Here(Here::Disk | Here::Stripes { .. }) => {}
            Place::Here(
                Here::Zero { .. } | Here::Sftp { .. } | Here::Web(_) | Here::Ftp(_) | Here::S3 { .. } | Here::Null,
            )
            | Place::Far(_) => continue,
        }
        let typed = path_of(&source.path);
        let Ok(path) = typed.canonicalize() else { continue };
        let shown = haul_store::printable(&source.path);
        let is_link = !job.selection.follow_links && typed.symlink_metadata().is_ok_and(|found| found.is_symlink());
        if is_link {
            let name = typed.file_name().unwrap_or_default();
            let place = if target.is_dir() { typed_target.join(name) } else { typed_target.clone() };
            // A link that stands there already is replaced by its like.
            let is_file = place.symlink_metadata().is_ok_and(|found| found.is_file());
            if is_file && place.canonicalize().is_ok_and(|place| place == path) {
                return Err(Error::new(Fault::Usage, format!("cannot copy {shown} onto the file to which it leads"))
                    .try_this("choose another target; -L copies what links lead to"));
            }
        } else if job.selection.remove_source_files && is_itself(&typed, &path, &target, &typed_target) {
            return Err(Error::new(Fault::Usage, format!("cannot move {shown} onto itself"))
                .because("--remove-source-files would remove what was to be kept")
                .try_this("choose another target"));
        } else if path.is_dir() && target.starts_with(&path) && selects(job, source, &path, &target.join(&missing)) {
            return Err(Error::new(Fault::Usage, format!("cannot copy {shown} into itself"))
                .try_this("choose a target outside of the source, or leave it out with --exclude"));
        }
    }
    Ok(())
}

/// As in rsync, a list of paths or a rule may leave the target's directory out: then the copy does not find itself.
fn selects(job: &Job, source: &Endpoint, source_path: &Path, directory: &Path) -> bool {
    let Ok(beneath) = directory.strip_prefix(source_path) else { return true };
    let beneath = beneath.as_os_str().as_bytes();
    if let Some(list) = &job.files_from
        && !list.selects_all_in(beneath)
    {
        return false;
    }
    let Ok(filter) = convert::filter(&job.selection.rules) else { return true };
    // Rules see the path at the target.
    let has_own_name = !source.path.ends_with(b"/") && job.files_from.is_none();
    let name = source_path.file_name().filter(|_| has_own_name).map(OsStr::as_bytes).unwrap_or_default();
    let path = [name, beneath].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(&b'/');
    let ends = (0..path.len()).filter(|at| path[*at] == b'/').chain([path.len()]);
    ends.into_iter().all(|end| filter.selects(&path[..end], true))
}

/// Whether a source without a slash at its end lands where it is.
fn is_itself(typed: &Path, path: &Path, target: &Path, typed_target: &Path) -> bool {
    let Some(name) = typed.file_name() else { return false };
    let place = if target.is_dir() { typed_target.join(name) } else { typed_target.to_owned() };
    place.canonicalize().is_ok_and(|place| place == path)
}

/// The sender's watch comes first.
pub fn here_watched(
    early: Option<EarlyLook>,
    job: &Job,
    surroundings: &Surroundings,
    watches: [&Arc<Watch>; 2],
    hash_kept: bool,
    lanes: impl Into<LanePairs>,
    bounds: Bounds,
) -> Result<Ends, Error> {
    let (sender, receiver) = roles(job, surroundings, watches[0], hash_kept, bounds)?;
    let ends = carry(SenderJob { early, ..sender }, receiver, watches, lanes)?;
    Ok(Ends { proof: sftp_ends::proof(job), ..ends })
}

/// Makes the tasks of the two roles.
pub fn roles(
    job: &Job,
    surroundings: &Surroundings,
    watch: &Arc<Watch>,
    hash_kept: bool,
    bounds: Bounds,
) -> Result<(SenderJob, ReceiverJob), Error> {
    // On one host a number has one name.
    let mut selection = convert::selection(&job.selection);
    selection.numeric_ids = true;
    let carriage = convert::carriage(job, &[]);
    let sources = sources_here(job, surroundings, watch)?.shared_with_receiver();
    let receiver = ReceiverJob {
        hand_over: None,
        sums: sources.sums(),
        far: false,
        target: target_here(job, surroundings, watch)?,
        confine: None,
        asked_for: None,
        selection: selection.clone(),
        listed: convert::listed(job.files_from.as_deref()),
        hash_kept,
        carriage: carriage.clone(),
        bounds,
        movers: Movers::default(),
        surroundings: surroundings.clone(),
    };
    let sender = SenderJob {
        hand_over: None,
        movers: Movers::default(),
        is_mover: false,
        far: false,
        sources,
        listed: job.files_from.clone(),
        confine: None,
        expand_globs: false,
        remembers: None,
        home: surroundings.home.clone(),
        direct_from_bytes: bounds.past_cache_from_bytes,
        early: None,
        selection,
        carriage,
        // The data passes no network.
        permits: Permits::default(),
        hooks: None,
    };
    Ok((sender, receiver))
}

/// Runs both roles over these lanes.
pub fn carry(
    sender_job: SenderJob,
    receiver_job: ReceiverJob,
    [sender_watch, receiver_watch]: [&Arc<Watch>; 2],
    lanes: impl Into<LanePairs>,
) -> Result<Ends, Error> {
    let LanePairs { pairs, hand_over } = lanes.into();
    let sender_job = SenderJob { hand_over: hand_over.clone(), ..sender_job };
    let receiver_job = ReceiverJob { hand_over, ..receiver_job };
    let failed = |error: std::io::Error| Error::new(Fault::FileIo, "cannot make a socket pair").because(error);
    let (sender_end, receiver_end) = Stream::plain_pair().map_err(failed)?;
    let (sender_events, receiver_events) = (Events::new(), Events::new());
    let sender_channel = Channel::open(sender_end, sender_events.sender(), PING_EVERY).map_err(failed)?;
    let receiver_channel = Channel::open(receiver_end, receiver_events.sender(), PING_EVERY).map_err(failed)?;
    let (for_sender, for_receiver) = (sender_events.sender(), receiver_events.sender());
    // Queues are read only once the roles run.
    std::thread::Builder::new()
        .name("lanes".into())
        .spawn(move || {
            for (lane, (out, into)) in (0..).zip(pairs) {
                let _ = for_sender.send(SessionEvent::Lane(LaneEvent::Up(out, lane)));
                let _ = for_receiver.send(SessionEvent::Lane(LaneEvent::Up(into, lane)));
            }
        })
        .map_err(failed)?;
    let receiver_watch = Arc::clone(receiver_watch);
    let receiver = std::thread::Builder::new()
        .name("receiver".into())
        .spawn(move || {
            let mut on_other_message = |message: Control| Err(faults::unexpected(&message));
            receiver::run(
                receiver_job,
                RoleContext {
                    events: receiver_events,
                    channel: &receiver_channel,
                    watch: &receiver_watch,
                    keeper: &mut NoKeeper,
                    on_other_message: &mut on_other_message,
                },
            )
        })
        .map_err(failed)?;
    let mut on_other_message = |message: Control| Err(faults::unexpected(&message));
    let sent = sender::run(
        sender_job,
        RoleContext {
            events: sender_events,
            channel: &sender_channel,
            watch: sender_watch,
            keeper: &mut NoKeeper,
            on_other_message: &mut on_other_message,
        },
    );
    let received = receiver.join().unwrap_or_else(|_| Err(Error::new(Fault::Protocol, "the receiving side broke")));
    let (sender, _) = sent?;
    let (_, receiver) = received?;
    let (source, target) = (host_facts::host_here(), host_facts::host_here());
    let (lane_path, cipher) = (Some(LanePath::Here), "none (this machine)".into());
    Ok(Ends { sender, receiver, source, target, lane_path, cipher, ..Ends::default() })
}
