//! Copies on one host: both roles in one process, lanes over socket pairs.

use std::sync::Arc;

use haul_job::{Endpoint, Error, Fault, Here, Host, Job, LanePath, Place, Proof};
use haul_net::Stream;
use haul_wire::control::Control;

use crate::ends::{sources_here, target_here};
use crate::ftp_ends;
use crate::into_itself;
use crate::order::Order;
use crate::permitted::permitted;
use crate::s3_ends;
use crate::sftp_ends;
use haul_channel::channel::{Channel, Events, LaneEvent, PING_EVERY, SessionEvent};
use haul_channel::lane_threads::NoKeeper;
use haul_channel::reporter::{Ends, Watch};
use haul_channel::role_context::RoleContext;
use haul_channel::{convert, host_facts};
use haul_copy::hand_over::HandOver;
use haul_copy::receiver::{self, Bounds, ReceiverJob, Target};
use haul_copy::sender::early_look::EarlyLook;
use haul_copy::sender::{self, OpenSource, SenderJob, Sources};
use haul_kept::class_policy::Permits;
use haul_kept::faults;
use haul_kept::surroundings::Surroundings;
use haul_striping::movers::Movers;

/// The lanes of a copy on one host.
pub struct LanePairs {
    pairs: Vec<(Stream, Stream)>,
    hand_over: Option<Arc<HandOver>>,
}

impl LanePairs {
    /// Makes lanes that hand data over in one buffer.
    pub fn handing_over(pairs: Vec<(Stream, Stream)>) -> Self {
        let lanes = u16::try_from(pairs.len()).unwrap_or(u16::MAX);
        Self { pairs, hand_over: Some(Arc::new(HandOver::new(lanes))) }
    }
}

impl LanePairs {
    /// Makes lanes that carry data, whose sender sees in which order the target takes it.
    fn seeing_the_target(pairs: Vec<(Stream, Stream)>) -> Self {
        Self { pairs, hand_over: Some(Arc::new(HandOver::new(0))) }
    }
}

impl From<Vec<(Stream, Stream)>> for LanePairs {
    fn from(pairs: Vec<(Stream, Stream)>) -> Self {
        Self { pairs, hand_over: None }
    }
}

/// Carries out a job of this machine.
pub fn here(order: Order<'_>) -> Result<Ends, Error> {
    let Order { job, surroundings, watch, hash_kept } = order;
    into_itself::refuse(job)?;
    let (sender, receiver) = roles(job, surroundings, watch, hash_kept, Bounds::default())?;
    let pairs: std::io::Result<Vec<_>> = (0..lanes(job, &sender, &receiver)).map(|_| Stream::plain_pair()).collect();
    let pairs = pairs.map_err(|error| Error::new(Fault::FileIo, "cannot make a socket pair").because(error))?;
    let proof = if is_between_disks(job) { Proof::InOneBuffer } else { sftp_ends::proof(job) };
    let lanes = match is_between_disks(job) || s3_ends::hands_over(job) {
        true => LanePairs::handing_over(pairs),
        false if ftp_ends::is_target(job) => LanePairs::seeing_the_target(pairs),
        false => pairs.into(),
    };
    let ends = carry(sender, receiver, [watch, &Arc::new(Watch::silent())], lanes)?;
    Ok(beside_server(job, Ends { proof, ..ends }))
}

fn is_between_disks(job: &Job) -> bool {
    job.sources.iter().chain([&job.target]).all(|end| end.place == Place::Here(Here::Disk))
}

/// Names the server, where one end is none of this host.
fn beside_server(job: &Job, ends: Ends) -> Ends {
    let server = |end: &Endpoint| match &end.place {
        Place::Here(
            place @ (Here::Web(_) | Here::Ftp(_) | Here::SshFtp { .. } | Here::S3 { .. } | Here::Sftp { .. }),
        ) => Some(place.to_string()),
        Place::Here(Here::Disk | Here::Zero { .. } | Here::Stripes { .. } | Here::Null) | Place::Far(_) => None,
    };
    let host = |place: String| Host { place, ..Host::default() };
    match (job.sources.first().and_then(server), server(&job.target)) {
        (Some(place), other) => {
            let target = other.map_or(ends.target, host);
            Ends { source: host(place), target, lane_path: Some(LanePath::FromServer), cipher: String::new(), ..ends }
        }
        (None, Some(place)) => {
            Ends { target: host(place), lane_path: Some(LanePath::ToServer), cipher: String::new(), ..ends }
        }
        (None, None) => ends,
    }
}

/// The lanes for the tasks. A server's path says how many of them carry data.
fn lanes(job: &Job, sender: &SenderJob, receiver: &ReceiverJob) -> u16 {
    let asked = job.carriage.lanes;
    let of_server = match &sender.sources {
        Sources::Open(OpenSource { tree, .. }) => sender::lanes_for(&**tree, &sender.carriage),
        Sources::Paths(_) => None,
    };
    let usual = of_server.into_iter().chain(sftp_ends::lanes(job)).chain(s3_ends::lanes(job)).max();
    // Where each lane has a file under way, the target says how many there are.
    let of_target = match &receiver.target {
        Target::Other(target) if asked.is_none() => target.lanes(),
        Target::Other(_) | Target::Path(_) | Target::Open(_) => None,
    };
    let wanted = asked.or(of_target).or(usual);
    haul_engine::plan::near_lanes(wanted, host_facts::cpus()).lanes
}

/// Takes the sender's watch first.
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
    let target = target_here(job, surroundings, watch)?;
    // A manifest wants hashes, which servers do not make.
    if let (Sources::Open(OpenSource { tree, .. }), Target::Other(target), false) = (&sources, &target, hash_kept) {
        target.meets(tree);
    }
    let outbound = match &target {
        Target::Other(target) => target.outbound(),
        Target::Path(_) | Target::Open(_) => None,
    };
    // Else the data passes no network.
    let (permits, hooks) = match outbound {
        Some(_) => permitted(&carriage, surroundings),
        None => (Permits::default(), None),
    };
    let receiver = ReceiverJob {
        hand_over: None,
        sums: sources.sums(),
        far: false,
        target,
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
        outbound,
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
        permits,
        hooks,
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
