//! Measures what the path to a host carries, both ways, with the lanes, the TLS and the tuning of a copy, but without files.
//!
//! ```text
//!   initiator                                          agent
//!      Start: role probe, so many milliseconds --->
//!      zeros on all lanes                      ====>   counted, thrown away        flow      the lanes
//!      ProbeSent: the path as I saw it         --->                                arrivals  what came when
//!                                              <---    ProbeArrived                session   one end of it
//!      counted, thrown away                    <====   zeros on all lanes
//!                                              <---    ProbeSent
//!      ProbeArrived                            --->
//! ```
//! One set of lanes serves both directions; each has a tuning of its own. No finding is kept.

mod arrivals;
mod flow;
#[cfg(test)]
#[path = "../../tests/unit/probe.rs"]
mod scenarios;
mod session;

use std::sync::Arc;
use std::time::Duration;

use haul_engine::attribute::{self, Limit, Phases, Shares};
use haul_engine::remedy::{self, Asked, Facts, Host, Remedy};
use haul_engine::service::ServiceClass;
use haul_job::{
    Carriage, Endpoint, Error, Event, Far, Fault, Here, Job, LanePath, Observer, Place, Progress, Selection, SshOptions,
};
use haul_net::Identity;
use haul_net::policy::Dscp;
use haul_wire::control::{self as wire, ProbeArrived, Role};
use haul_wire::limits::MAX_PROBE_MS;
use haul_wire::summary::{OnePath, PathSummary, PathTime};
use session::{Measured, Measures, Side, Terms};

use haul_channel::foreseen::Foreseen;
use haul_channel::reporter::{self, Watch};
use haul_channel::role_context::RoleContext;
use haul_channel::{convert, host_facts};
use haul_kept::class_policy::{Permits, Sending};
use haul_kept::faults;
use haul_kept::network_classes;
use haul_kept::surroundings::Surroundings;
use haul_reach::lane_plan::{self, LaneRecord};
use haul_reach::lane_rendezvous::LaneRendezvous;
use haul_reach::lane_terms::LaneTerms;
use haul_reach::remote::{Assignment, Remote};
use haul_reach::{connect, lane_door};

/// Longest time of a direction.
pub const TIME_MAX: Duration = Duration::from_millis(MAX_PROBE_MS as u64);

/// A person waits for the answer, so a silent peer soon counts as dead.
pub const SILENCE: Duration = Duration::from_secs(15);

/// The settings of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The other host.
    pub place: Far,
    /// The time of a direction; at most [`TIME_MAX`].
    pub time: Duration,
    /// The connection.
    pub carriage: Carriage,
    /// The ssh program.
    pub ssh: SshOptions,
}

/// A probe's result.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The host of this process.
    pub here: Host,
    /// The other host.
    pub far: Host,
    /// The way of the lanes, as in [`haul_job::Report`].
    pub lane_path: LanePath,
    /// Their TLS cipher.
    pub cipher: String,
    /// The time of each direction.
    pub time: Duration,
    /// The direction from here.
    pub there: Way,
    /// The direction to here.
    pub back: Way,
}

/// One direction.
#[derive(Clone, Debug, PartialEq)]
pub struct Way {
    /// Arrived payload.
    pub arrived_bytes: u64,
    /// The rate of a long copy, after the ramp.
    pub bytes_per_s: u64,
    /// The sender's view, of all paths together.
    pub path: PathSummary,
    /// Each path, with addresses seen here.
    pub paths: Vec<OneWay>,
    /// Mean deviation of the round-trip time under load.
    pub jitter_us: u32,
    /// The path's largest packet; 0: unknown.
    pub mtu_bytes: u32,
    /// TCP's largest segment; 0: unknown.
    pub segment_bytes: u32,
    /// The lanes' time without the ramp.
    pub time: Shares,
    /// A copy's limit; `None`: nothing arrived.
    pub limit: Option<Limit>,
    /// Remedies, best first.
    pub remedies: Vec<Remedy>,
}

/// One path in one direction.
#[derive(Clone, Debug, PartialEq)]
pub struct OneWay {
    /// The sender's view.
    pub path: OnePath,
    /// A part of [`Way::bytes_per_s`].
    pub bytes_per_s: u64,
}

/// Probes both ways.
pub fn run(request: &Request, surroundings: &Surroundings, observer: Arc<dyn Observer>) -> Result<Found, Error> {
    let time_ms = u32::try_from(request.time.as_millis()).ok().filter(|ms| (1..=MAX_PROBE_MS).contains(ms));
    let Some(time_ms) = time_ms else {
        return Err(Error::new(Fault::Usage, "a probe takes 1 ms to 60 s"));
    };
    let _ = haul_sys::process::raise_open_file_limit();
    let watch = Arc::new(Watch::new(observer));
    with_far(request, surroundings, time_ms, &watch).map_err(|error| match watch.interrupted() {
        // Ctrl-C ends ssh as well.
        true => session::again(haul_kept::faults::interrupted()),
        false => error,
    })
}

fn with_far(request: &Request, surroundings: &Surroundings, time_ms: u32, watch: &Arc<Watch>) -> Result<Found, Error> {
    let nowhere = |place: Place| Endpoint { place, path: b".".to_vec() };
    let job = Job {
        movers: Vec::new(),
        files_from: None,
        sources: vec![nowhere(Here::Disk.into())],
        target: nowhere(request.place.clone().into()),
        selection: Selection::default(),
        carriage: request.carriage.clone(),
        ssh: request.ssh.clone(),
    };
    let mut remote = connect::connect(&request.place, &job, surroundings, watch, None, Foreseen::default())?;
    let child = remote.take_child();
    let (here, far) = (host_facts::host_here(), remote.host());
    let record = Arc::new(LaneRecord::default());
    let permits = Permits::of(&surroundings.policy_files, surroundings.state.as_deref(), Sending::default());
    remote.dial_owner.threads().tune_by(network_classes::policies(&surroundings.network_files)?);
    let result = over_lanes(&job, remote, (time_ms, permits), watch, &record);
    if let Some(child) = child {
        child.end();
    }
    let Measures { there, back, .. } = result.map_err(|error| error.at(&request.place))?;
    let asked = reporter::asked(&job);
    let lane_path = haul_kept::sync::lock(&record.path).unwrap_or(LanePath::Direct);
    let cipher = haul_kept::sync::lock(&record.cipher).clone();
    // Over IPv4 the far side sees the mark of a handshake, which is ours only if we connected.
    let there = match lane_path {
        LanePath::Direct => there,
        _ => (there.0, ProbeArrived { marks_seen: 0, ..there.1 }),
    };
    let (mut there, mut back) = (way(&here, &far, there, asked, lane_path), way(&far, &here, back, asked, lane_path));
    for one in there.paths.iter_mut().chain(&mut back.paths) {
        one.path = watch.seen_from_here(&one.path);
    }
    Ok(Found { here, far, lane_path, cipher, time: request.time, there, back })
}

fn over_lanes(
    job: &Job,
    remote: Remote,
    (time_ms, permits): (u32, Permits),
    watch: &Arc<Watch>,
    record: &Arc<LaneRecord>,
) -> Result<Measures, Error> {
    let id = remote.session;
    let identity = match &remote.identity {
        Some(identity) => Arc::clone(identity),
        None => Arc::new(Identity::generate().map_err(|error| faults::net_error(&error))?),
    };
    // Shows the path as it is now, without earlier findings.
    let cpus = host_facts::cpus().min(remote.far_end.cpus());
    let role = Role::Probe { time_ms };
    let (peer_session, peer_key, links, stays) = (id, identity.public(), false, false);
    let assigned = Assignment { peer_session, peer_key, links, stays, role, path: None, cpus, others: 0 };
    remote.start(assigned, job, false, watch)?;
    let rendezvous = Arc::new(LaneRendezvous::default());
    let door =
        lane_door::open_door(&identity, &rendezvous, job.carriage.port_range, remote.dial_owner.threads().policies());
    let port = door.as_ref().map(haul_net::Door::port);
    let carriage = wire::Carriage { cpus, ..convert::carriage(job, &[]) };
    let lanes = lane_plan::lane_terms(&remote, job, id, &identity, &carriage, None);
    let class = permits.allowed(None).class(job.carriage.service.class.first());
    let lanes =
        LaneTerms { first_mark: Dscp::new(class.code_point()).filter(|_| class != ServiceClass::Normal), ..lanes };
    let _expecting = rendezvous.expect(id, remote.key(), remote.events.sender(), convert::wanted(&carriage), false)?;
    let (to_plan, mut on_other_message) = lane_plan::dial_answers();
    let mut keeper = lane_plan::lane_plan(&remote, job, lanes, port, to_plan, record, watch).start();
    let Remote { channel, events, .. } = remote;
    let terms = Terms { side: Side::Initiator, time: Duration::from_millis(time_ms.into()), carriage, permits };
    session::run(
        terms,
        RoleContext { events, channel: &channel, watch, keeper: &mut keeper, on_other_message: &mut on_other_message },
    )
}

pub(crate) fn serve(
    time_ms: u32,
    carriage: wire::Carriage,
    permits: Permits,
    context: RoleContext<'_>,
) -> Result<(), Error> {
    let watch = context.watch;
    let terms = Terms { side: Side::Agent, time: Duration::from_millis(time_ms.into()), carriage, permits };
    let measures = session::run(terms, context)?;
    watch.tell(&Event::Progress(Progress { bytes_moved: measures.bytes_moved, ..Progress::default() }));
    Ok(())
}

fn way(source: &Host, target: &Host, measured: Measured, asked: Asked, lane_path: LanePath) -> Way {
    let (sent, arrived) = measured;
    let paths = each_way(&sent, arrived.steady_bytes_per_s);
    let mut path = sent.sender.path;
    path.service = path.service.with_seen(arrived.marks_seen);
    let time = attribute::shares(&sent.sender.time, &arrived.time, &without_ramp(path.time));
    let phases = Phases {
        connected_us: Some(0),
        first_byte_us: Some(0),
        last_byte_us: Some(arrived.elapsed_us),
        elapsed_us: arrived.elapsed_us,
    };
    let limit = attribute::limit(&phases, &time).filter(|_| arrived.arrived_bytes > 0);
    let facts = Facts {
        source,
        target,
        path: &path,
        asked,
        lanes: path.lanes,
        lane_path,
        bytes_moved: arrived.arrived_bytes,
        phases,
    };
    let mut remedies = limit.map_or_else(Vec::new, |limit| remedy::remedies(&limit, &time, &facts));
    // A path cannot be too short, as a job can.
    remedies.retain(|remedy| !matches!(remedy, Remedy::OneCommand { .. }));
    Way {
        arrived_bytes: arrived.arrived_bytes,
        bytes_per_s: arrived.steady_bytes_per_s,
        jitter_us: sent.jitter_us,
        mtu_bytes: sent.mtu_bytes,
        segment_bytes: sent.segment_bytes,
        time,
        limit,
        remedies,
        paths,
        path,
    }
}

/// Bytes do not tell their path, so the rate is divided by the sender's view of its paths.
fn each_way(sent: &wire::ProbeSent, bytes_per_s: u64) -> Vec<OneWay> {
    let of = |at: usize| u128::from(sent.steady_bytes.get(at).copied().unwrap_or_default());
    let all: u128 = (0..sent.sender.paths.len()).map(of).sum();
    let each = sent.sender.paths.iter().enumerate().map(|(at, path)| {
        let part = u128::from(bytes_per_s) * of(at) / all.max(1);
        let summary = PathSummary { time: without_ramp(path.summary.time), ..path.summary.clone() };
        OneWay { path: OnePath { summary, ..path.clone() }, bytes_per_s: u64::try_from(part).unwrap_or(u64::MAX) }
    });
    each.collect()
}

/// A probe is short, and a copy ramps up only once.
fn without_ramp(time: PathTime) -> PathTime {
    let rest = PathTime { ramp_us: 0, ..time };
    if rest.total_us() > 0 { rest } else { time }
}
