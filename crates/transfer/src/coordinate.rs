//! Who is where, who sends, who receives.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;

use haul_net::{Identity, Stream};
use haul_store::DIRECT_FROM_BYTES;
use haul_wire::control::{Carriage, Control, ReceiverSummary, Role, SenderSummary};

use crate::agent;
use crate::asked_for::AskedFor;
use crate::channel::{Channel, Events, SessionEvent};
use crate::convert;
use crate::desk::Desk;
use crate::error::{Error, Fault};
use crate::event::{Observer, Report};
use crate::far::{self, PING_EVERY};
use crate::job::{Endpoint, Job, Place};
use crate::known_paths::{self, Direction, PathName};
use crate::lanes::{LanePlan, LaneRecord, LaneTerms};
use crate::pump::SendRoute;
use crate::receiver::{self, Bounds, ReceiverJob, Target};
use crate::relay;
use crate::remote::{self, Assignment, Remote};
use crate::sender::early_look::EarlyLook;
use crate::sender::{self, SenderJob, Sources};
use crate::session::{self, NoKeeper};
use crate::stripes;
use crate::watch::{self, Ends, Watch};

/// Carries a job out. Returns when everything is verified and flushed, or with the error that ended it.
///
/// One bad file is not an error: it is an [`crate::Event::Failed`] and counted in the report.
pub fn run(job: &Job, observer: Arc<dyn Observer>) -> Result<Report, Error> {
    // More files may then be open at once; with the old limit it still works.
    let _ = haul_sys::process::raise_open_file_limit();
    let source = &job.sources.first().ok_or_else(|| Error::new(Fault::Usage, "no source was named"))?.place;
    // Of what was recorded it is known what it has to hash to, also where it stands at the target already.
    let hash_kept = observer.wants_manifest() || was_hashed(job);
    let watch = Arc::new(Watch::new(observer));
    let target = &job.target.place;
    check_made_up(job)?;
    if job.carriage.clear && !source.is_here() && !target.is_here() {
        // Should they have to run through here, neither end could prove to the other what it sent.
        return Err(Error::new(Fault::Usage, "data connections between two other hosts are always encrypted")
            .try_this("leave --cipher none out, or run haul on one of the two"));
    }
    let ends = match (source.is_here(), target.is_here()) {
        (true, true) => here(job, &watch, hash_kept),
        (true, false) => with_remote(job, target, Side::Sender, &watch, hash_kept),
        (false, true) => with_remote(job, source, Side::Receiver, &watch, hash_kept),
        (false, false) => relay::run(job, source, target, &watch, hash_kept),
    };
    // Ctrl-C reaches ssh as well: whatever broke by that, the person knows why.
    let ends = ends.map_err(|error| if watch.interrupted() { session::interrupted() } else { error })?;
    let asked = watch::asked(job);
    Ok(watch.report(&ends, asked, job.selection.dry_run).expect("somebody watches"))
}

/// Which role is played here.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Sender,
    Receiver,
}

impl Side {
    fn direction(self) -> Direction {
        match self {
            Side::Sender => Direction::To,
            Side::Receiver => Direction::From,
        }
    }
}

pub(crate) fn source_paths(job: &Job) -> Vec<Vec<u8>> {
    job.sources.iter().map(|Endpoint { path, .. }| path.clone()).collect()
}

/// Zeros and striped recordings only come, and nowhere is only gone to.
fn check_made_up(job: &Job) -> Result<(), Error> {
    let refused = |what: &str, hint: &str| Err(Error::new(Fault::Usage, what).try_this(hint));
    if let Place::Zero { .. } = job.target.place {
        return refused("zero: is a source, and no target", "null: takes everything; a directory named so is ./zero:");
    }
    if job.sources.iter().any(|source| source.place == Place::Null) {
        return refused("null: is a target, and no source", "zero:1G is a source of zeros; a file named so is ./null:");
    }
    if job.sources.len() > 1 && job.sources.iter().any(|source| matches!(source.place, Place::Zero { .. })) {
        return refused("zero: is the only source of a copy", "one file of the whole size");
    }
    if let Place::Stripes { .. } = job.target.place {
        return refused("stripes: is a source, and no target", "haul record --stripe-dir makes such a recording");
    }
    if let Some(Endpoint { place: Place::Stripes { .. }, .. }) = job.sources.first() {
        if job.sources.len() > 1 {
            return refused("stripes: is the only source of a copy", "copy the recordings one after the other");
        }
        if job.carriage.route.is_some_and(|route| route != SendRoute::Copy) {
            return refused("a striped recording is read and copied", "leave --route out");
        }
    }
    if job.target.place == Place::Null && job.selection.delete {
        return Err(receiver::nothing_to_delete("null:"));
    }
    Ok(())
}

/// Whether the source is a recording whose hash is known.
fn was_hashed(job: &Job) -> bool {
    let Some(Endpoint { place: Place::Stripes { .. }, path }) = job.sources.first() else { return false };
    stripes::is_hashed(Path::new(OsStr::from_bytes(path)))
}

/// What a sender on this machine reads.
fn sources_here(job: &Job) -> Sources {
    match job.sources.first() {
        Some(Endpoint { place: Place::Zero { bytes }, .. }) => Sources::Zeros(*bytes),
        Some(Endpoint { place: Place::Stripes { directories }, path }) => {
            Sources::Stripes { index: PathBuf::from(OsStr::from_bytes(path)), directories: directories.clone() }
        }
        _ => Sources::Paths(source_paths(job)),
    }
}

/// What a receiver on this machine writes to.
fn target_here(job: &Job) -> Target {
    match job.target.place {
        Place::Null => Target::Nowhere,
        _ => Target::Path(job.target.path.clone()),
    }
}

/// Both sides on this machine: two roles in one process, lanes over socket pairs.
fn here(job: &Job, watch: &Arc<Watch>, hash_kept: bool) -> Result<Ends, Error> {
    refuse_into_itself(job)?;
    let count = haul_engine::plan::near_lanes(job.carriage.lanes, far::cpus()).lanes;
    let pairs: std::io::Result<Vec<_>> = (0..count).map(|_| Stream::plain_pair()).collect();
    let pairs = pairs.map_err(|error| Error::new(Fault::FileIo, "cannot make a socket pair").because(error))?;
    here_over(job, watch, hash_kept, pairs, Bounds::default())
}

/// A directory copied into itself would find its own copy, for ever. A link that is copied as a link holds nothing; but in the place of the
/// file to which it leads it would lead to itself, and the file would be lost: cp refuses that, too.
fn refuse_into_itself(job: &Job) -> Result<(), Error> {
    if job.target.place != Place::Local {
        return Ok(());
    }
    let path_of = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
    let typed_target = path_of(&job.target.path);
    // What does not exist yet lies where its nearest existing ancestor does.
    let ancestors = std::path::absolute(&typed_target).unwrap_or_else(|_| typed_target.clone());
    let Some(target) = ancestors.ancestors().find_map(|path| path.canonicalize().ok()) else { return Ok(()) };
    for source in &job.sources {
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
        } else if path.is_dir() && target.starts_with(&path) {
            return Err(Error::new(Fault::Usage, format!("cannot copy {shown} into itself"))
                .try_this("choose a target outside of the source"));
        }
    }
    Ok(())
}

/// [`here`] over these lanes, each as its sending and its receiving end.
pub(crate) fn here_over(
    job: &Job,
    watch: &Arc<Watch>,
    hash_kept: bool,
    lanes: Vec<(Stream, Stream)>,
    bounds: Bounds,
) -> Result<Ends, Error> {
    here_after(None, job, watch, hash_kept, lanes, bounds)
}

/// [`here_over`], with what was hashed before.
pub(crate) fn here_after(
    early: Option<EarlyLook>,
    job: &Job,
    watch: &Arc<Watch>,
    hash_kept: bool,
    lanes: Vec<(Stream, Stream)>,
    bounds: Bounds,
) -> Result<Ends, Error> {
    here_watched(early, job, [watch, &Arc::new(Watch::silent())], hash_kept, lanes, bounds)
}

/// [`here_after`], with one who watches the sender and one who watches the receiver.
pub(crate) fn here_watched(
    early: Option<EarlyLook>,
    job: &Job,
    [sender_watch, receiver_watch]: [&Arc<Watch>; 2],
    hash_kept: bool,
    lanes: Vec<(Stream, Stream)>,
    bounds: Bounds,
) -> Result<Ends, Error> {
    let failed = |error: std::io::Error| Error::new(Fault::FileIo, "cannot make a socket pair").because(error);
    let (sender_end, receiver_end) = Stream::plain_pair().map_err(failed)?;
    let (sender_events, receiver_events) = (Events::new(), Events::new());
    let sender_channel = Channel::open(sender_end, sender_events.sender(), PING_EVERY).map_err(failed)?;
    let receiver_channel = Channel::open(receiver_end, receiver_events.sender(), PING_EVERY).map_err(failed)?;
    let (for_sender, for_receiver) = (sender_events.sender(), receiver_events.sender());
    // The queues are read once the roles run; nobody may wait for them before.
    std::thread::Builder::new()
        .name("lanes".into())
        .spawn(move || {
            for (lane, (out, into)) in (0..).zip(lanes) {
                // A session that failed meanwhile needs no lanes.
                let _ = for_sender.send(SessionEvent::LaneUp(out, lane));
                let _ = for_receiver.send(SessionEvent::LaneUp(into, lane));
            }
        })
        .map_err(failed)?;
    // On one host a number has one name.
    let mut selection = convert::selection(&job.selection, hash_kept);
    selection.numeric_ids = true;
    let carriage = convert::carriage(&job.carriage, &[]);
    let receiver_job = ReceiverJob {
        far: false,
        target: target_here(job),
        confine: None,
        asked_for: None,
        selection: selection.clone(),
        carriage: carriage.clone(),
        bounds,
    };
    let sender_job = SenderJob {
        far: false,
        sources: sources_here(job),
        listed: job.selection.files_from.clone(),
        confine: None,
        expand_globs: false,
        remembers: false,
        direct_from_bytes: bounds.past_cache_from_bytes,
        early,
        selection,
        carriage,
    };
    let receiver_watch = Arc::clone(receiver_watch);
    let receiver = std::thread::Builder::new()
        .name("receiver".into())
        .spawn(move || {
            let mut aside = |message: Control| Err(session::unexpected(&message));
            receiver::run(receiver_job, receiver_events, &receiver_channel, &receiver_watch, &mut NoKeeper, &mut aside)
        })
        .map_err(failed)?;
    let mut aside = |message: Control| Err(session::unexpected(&message));
    let sent = sender::run(sender_job, sender_events, &sender_channel, sender_watch, &mut NoKeeper, &mut aside);
    let received = receiver.join().unwrap_or_else(|_| Err(Error::new(Fault::Protocol, "the receiving side broke")));
    let (sender, _) = sent?;
    let (_, receiver) = received?;
    let (source, target) = (far::host_here(), far::host_here());
    let (lane_path, cipher) = ("this machine".into(), "none (this machine)".into());
    Ok(Ends { sender, receiver, source, target, lane_path, cipher })
}

/// One side here, the other at a remote place.
fn with_remote(job: &Job, place: &Place, side: Side, watch: &Arc<Watch>, hash_kept: bool) -> Result<Ends, Error> {
    let early = early_look(job, side);
    let foreseen = early.as_ref().map(EarlyLook::foreseen).unwrap_or_default();
    let mut remote = remote::connect(place, job, watch, Some(side.direction()), foreseen)?;
    let child = remote.take_child();
    let record = Arc::new(LaneRecord::default());
    let (here, there, later) = (far::host_here(), remote.host(), remote.later.clone());
    let result = session_with(job, remote, side, early, watch, hash_kept, &record);
    if let Some(child) = child {
        child.end();
    }
    let explained = |error| match &later {
        Some(later) => later.explain(error),
        None => error,
    };
    let (sender, receiver) = result.map_err(|error| explained(error).at(place))?;
    let there = later.as_ref().and_then(|later| later.host(place)).unwrap_or(there);
    let lane_path = session::lock(&record.path).clone();
    let cipher = session::lock(&record.cipher).clone();
    let (source, target) = if side == Side::Sender { (here, there) } else { (there, here) };
    Ok(Ends { sender, receiver, source, target, lane_path, cipher })
}

/// Begins with what is to be sent from here, while the far side is being reached.
fn early_look(job: &Job, side: Side) -> Option<EarlyLook> {
    if side != Side::Sender || job.selection.dry_run {
        return None;
    }
    match sources_here(job) {
        Sources::Paths(paths) => EarlyLook::begin(&paths, &job.selection, job.carriage.clear),
        Sources::Zeros(bytes) => Some(EarlyLook::of_bytes(bytes)),
        Sources::Stripes { .. } => None,
    }
}

pub(crate) fn session_with(
    job: &Job,
    mut remote: Remote,
    side: Side,
    early: Option<EarlyLook>,
    watch: &Arc<Watch>,
    hash_kept: bool,
    record: &Arc<LaneRecord>,
) -> Result<(SenderSummary, ReceiverSummary), Error> {
    let id = remote.session;
    let identity = match &remote.identity {
        Some(identity) => Arc::clone(identity),
        None => Arc::new(Identity::generate().map_err(|error| far::net_error(&error))?),
    };
    let role = match side {
        Side::Sender => Role::Receiver { target: job.target.path.clone() },
        Side::Receiver => Role::Sender { sources: source_paths(job) },
    };
    let direction = side.direction();
    let cpus = far::cpus().min(remote.hello.cpus);
    let path = remote.known_path(direction);
    let assigned = Assignment { peer_session: id, peer_key: identity.public(), role, path, cpus };
    remote.start(assigned, job, hash_kept, watch)?;
    let desk = Arc::new(Desk::default());
    let door = agent::open_door(&identity, &desk, job.carriage.port_range);
    let port = door.as_ref().map(haul_net::Door::port);
    let carriage = Carriage { cpus, ..convert::carriage(&job.carriage, &[]) };
    let terms = lane_terms(&remote, job, id, &identity, &carriage, Some(direction));
    let (wanted, clear) = (convert::wanted(&carriage), carriage.clear);
    let _expecting = desk.expect(id, remote.key(), remote.events.sender(), wanted, clear)?;
    let (to_plan, mut answers) = dial_answers();
    let later = remote.later.clone();
    let mut aside = |message: Control| match (message, &later) {
        (Control::AgentHello(hello), Some(later)) => later.on_hello(hello),
        (message, _) => answers(message),
    };
    let mut keeper = if job.selection.dry_run {
        crate::lanes::Keeper::default()
    } else {
        let early = remote.early.take();
        LanePlan { early, ..lane_plan(&remote, job, terms, port, to_plan, record, watch) }.start()
    };
    let Remote { channel, events, .. } = remote;
    let selection = convert::selection(&job.selection, hash_kept);
    let result = match side {
        Side::Sender => {
            let sources = sources_here(job);
            let job = SenderJob {
                sources,
                listed: job.selection.files_from.clone(),
                confine: None,
                expand_globs: false,
                remembers: true,
                direct_from_bytes: DIRECT_FROM_BYTES,
                early,
                far: false,
                selection,
                carriage,
            };
            sender::run(job, events, &channel, watch, &mut keeper, &mut aside)
        }
        Side::Receiver => {
            let (target, asked_for) = (target_here(job), Some(AskedFor::of(job)?));
            let bounds = Bounds::default();
            let job = ReceiverJob { target, confine: None, asked_for, far: false, selection, carriage, bounds };
            receiver::run(job, events, &channel, watch, &mut keeper, &mut aside)
        }
    };
    if let (Some(peer), Ok((sender, _))) = (watch.lane_peer(), &result)
        && let (Some(path), Some(known)) = (PathName::towards(peer, direction), &sender.path.known)
    {
        known_paths::keep(&path, known);
    }
    result
}

/// What the lanes to a remote have in common.
pub(crate) fn lane_terms(
    remote: &Remote,
    job: &Job,
    session: [u8; 16],
    identity: &Arc<Identity>,
    carriage: &Carriage,
    memory: Option<Direction>,
) -> LaneTerms {
    LaneTerms {
        session,
        identity: Arc::clone(identity),
        peer_key: remote.key(),
        ciphers: remote::agreed_ciphers(&job.carriage, &remote.hello),
        carriage: carriage.clone(),
        memory,
        foreseen: remote.foreseen.clone(),
        events: remote.events.sender(),
        _visit: None,
    }
}

/// How lanes to a remote are got.
pub(crate) fn lane_plan(
    remote: &Remote,
    job: &Job,
    terms: LaneTerms,
    own_port: Option<u16>,
    answers: std::sync::mpsc::Receiver<Control>,
    record: &Arc<LaneRecord>,
    watch: &Arc<Watch>,
) -> LanePlan {
    LanePlan {
        terms,
        cpus: far::cpus().min(remote.hello.cpus),
        candidates: remote.candidates(job.carriage.family),
        own_addresses: remote.our_addresses(),
        own_port,
        answers,
        outbox: Arc::clone(remote.channel.outbox()),
        over_ssh: remote.ssh_lanes(watch),
        only_over_ssh: job.carriage.lanes_over_ssh,
        record: Arc::clone(record),
        watch: Arc::clone(watch),
        early: None,
    }
}

/// Passes the far side's words about its dialling on to the plan; anything else has no place in a session.
pub(crate) fn dial_answers() -> (std::sync::mpsc::Receiver<Control>, impl FnMut(Control) -> Result<(), Error>) {
    let (sender, receiver) = sync_channel(1);
    let answered = AtomicBool::new(false);
    let aside = move |message: Control| match message {
        Control::Dialled { .. } | Control::DialFailed { .. } if !answered.swap(true, Ordering::Relaxed) => {
            // The plan may have gone on already.
            let _ = sender.try_send(message);
            Ok(())
        }
        other => Err(session::unexpected(&other)),
    };
    (receiver, aside)
}

/// A random name for a session.
pub(crate) fn random_id() -> Result<[u8; 16], Error> {
    let mut id = [0; 16];
    aws_lc_rs::rand::fill(&mut id).map_err(|_| Error::new(Fault::FileIo, "the system gives no random numbers"))?;
    Ok(id)
}
