//! Who is where, who sends, who receives.

use std::borrow::Cow;
use std::sync::Arc;

use haul_job::{Error, Event, Fault, Job, LanePath, Observer, Place, Report};
use haul_net::Identity;
use haul_store::DIRECT_FROM_BYTES;
use haul_wire::control::{self as wire, Carriage, Control, ReceiverSummary, Role, SenderSummary};
use haul_wire::limits::{MAX_MOVERS, MAX_PATHS};

use crate::faults;
use crate::kept::class_policy::{Permits, Sending};
use crate::kept::known_paths::{Direction, KnownPaths, PathName};
use crate::kept::surroundings::Surroundings;
use crate::reach::attach::{self, LinkDialler};
use crate::reach::desk::Desk;
use crate::reach::lane_plan::{LanePlan, LaneRecord, dial_answers, lane_plan, lane_terms};
use crate::reach::lane_terms::{LaneTerms, Memory};
use crate::reach::movers::{MoverPlan, left_out};
use crate::reach::remote::{Assignment, Remote};
use crate::reach::{connect, lane_door};
use crate::run::ends::{check_made_up, check_some_source, sources_here, target_here, was_hashed};
use crate::run::here::here;
use crate::run::order::Order;
use crate::run::relay;
use crate::session::asked_for::AskedFor;
use crate::session::farewell::FAREWELL;
use crate::session::foreseen::Foreseen;
use crate::session::hooks::{self, Hooks};
use crate::session::movers::Movers;
use crate::session::receiver::{self, Bounds, ReceiverJob, Target};
use crate::session::reporter::{self, Ends, Watch};
use crate::session::sender::early_look::EarlyLook;
use crate::session::sender::{self, SenderJob, Sources};
use crate::session::wiring::Wiring;
use crate::session::{convert, host_facts, stopwatch};
use crate::sync::lock;

/// Carries a job out. Returns when everything is verified and flushed, or with the error that ended it.
///
/// One bad file is not an error: it is an [`haul_job::Event::Failed`] and counted in the report.
pub fn run(job: &Job, surroundings: &Surroundings, observer: Arc<dyn Observer>) -> Result<Report, Error> {
    // More files may then be open at once; with the old limit it still works.
    let _ = haul_sys::process::raise_open_file_limit();
    hooks::give_back_what_is_left(surroundings.state.as_deref());
    let source = &job.sources.first().ok_or_else(|| Error::new(Fault::Usage, "no source was named"))?.place;
    // The hash of a recording is known. A file that stands at the target already is compared with it, too.
    let hash_kept = observer.wants_manifest() || was_hashed(job);
    let watch = Arc::new(Watch::new(observer));
    let target = &job.target.place;
    check_made_up(job)?;
    if job.carriage.clear && !source.is_here() && !target.is_here() {
        // Should they have to run through here, neither end could prove to the other what it sent.
        return Err(Error::new(Fault::Usage, "data connections between two other hosts are always encrypted")
            .try_this("leave --cipher none out, or run haul on one of the two"));
    }
    check_movers(job)?;
    let order = Order { job, surroundings, watch: &watch, hash_kept };
    let ends = match (source.is_here(), target.is_here()) {
        (true, true) => here(order),
        (true, false) => check_some_source(job).and_then(|()| with_remote(order, target, Side::Sender)),
        (false, true) => with_remote(order, source, Side::Receiver),
        (false, false) => relay::run(order, source, target),
    };
    // Ctrl-C reaches ssh as well: whatever broke by that, the person knows why.
    let ends = ends.map_err(|error| if watch.interrupted() { faults::interrupted() } else { error })?;
    let asked = reporter::asked(job);
    Ok(watch.report(&ends, asked, job.selection.dry_run).expect("somebody watches"))
}

fn check_movers(job: &Job) -> Result<(), Error> {
    let refused = |what: &str, hint: &str| Err(Error::new(Fault::Usage, what).try_this(hint));
    if job.movers.is_empty() {
        return Ok(());
    }
    if job.movers.len() > usize::from(MAX_MOVERS) {
        return refused("one end has at most five hosts", "name fewer of them");
    }
    if !job.sources[0].place.is_here() && !job.target.place.is_here() {
        return refused("several hosts are no end of a copy between two other hosts", "name one host of each end");
    }
    Ok(())
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

/// One side here, the other at a remote place.
fn with_remote(order: Order<'_>, place: &Place, side: Side) -> Result<Ends, Error> {
    let Order { job, surroundings, .. } = order;
    let early = early_look(job, surroundings, side);
    let foreseen = early.as_ref().map(EarlyLook::foreseen).unwrap_or_default();
    let (job, mut remote) = leader(order, place, side, &foreseen)?;
    let (order, place) = (Order { job: &job, ..order }, &remote.place.clone());
    let child = remote.take_child();
    let record = Arc::new(LaneRecord::default());
    let far_end = remote.far_end.clone();
    let result = session_with(order, remote, side, early, &record);
    if let Some(child) = child {
        child.end();
    }
    let (sender, receiver) = result.map_err(|error| far_end.explain(error).at(place))?;
    let (here, there) = (host_facts::host_here(), far_end.host(place));
    let lane_path = *lock(&record.path);
    let cipher = lock(&record.cipher).clone();
    let (source, target) = if side == Side::Sender { (here, there) } else { (there, here) };
    let is_pull = side == Side::Receiver;
    Ok(Ends { sender, receiver, source, target, lane_path, cipher, is_pull })
}

/// The first of the hosts of the far end that answers, and the job for it and the others.
fn leader<'a>(
    order: Order<'a>,
    place: &Place,
    side: Side,
    foreseen: &Foreseen,
) -> Result<(Cow<'a, Job>, Remote), Error> {
    let Order { job, surroundings, watch, .. } = order;
    let reach = |place: &Place, job: &Job| -> Result<Remote, Error> {
        connect::connect(place, job, surroundings, watch, Some(side.direction()), foreseen.clone())
    };
    let mut first = match reach(place, job) {
        Ok(remote) => return Ok((Cow::Borrowed(job), remote)),
        Err(error) => error,
    };
    let mut others = job.clone();
    let mut place = place.clone();
    while !others.movers.is_empty() && !watch.interrupted() {
        watch.tell(&Event::Warning { text: left_out(&place, &first) });
        place = others.movers.remove(0);
        match side {
            Side::Sender => others.target.place = place.clone(),
            Side::Receiver => others.sources.iter_mut().for_each(|source| source.place = place.clone()),
        }
        match reach(&place, &others) {
            Ok(remote) => return Ok((Cow::Owned(others), remote)),
            Err(error) => first = error,
        }
    }
    Err(first)
}

/// If lanes to the far side could be dialled, so can further links of the control channel; else the far side may dial.
fn keep_channel(remote: &Remote, job: &Job, terms: &LaneTerms, record: &Arc<LaneRecord>, watch: &Arc<Watch>) {
    let links = LinkDialler::new(terms.clone(), remote.candidates(job.carriage.family));
    let (record, watch) = (Arc::clone(record), Arc::clone(watch));
    let dialler = move || match *lock(&record.path) {
        Some(LanePath::Direct) => Some(links.clone().towards(watch.addresses_of(0).map(|ends| ends.peer))),
        _ => None,
    };
    // Without the thread the loss of the channel is the end of the session.
    let _ = attach::keep(&remote.channel, &remote.lead.crew(), dialler);
}

/// Begins with what is to be sent from here, while the far side is being reached.
fn early_look(job: &Job, surroundings: &Surroundings, side: Side) -> Option<EarlyLook> {
    if side != Side::Sender || job.selection.dry_run {
        return None;
    }
    match job.sources.first()?.place {
        Place::Zero { bytes } => Some(EarlyLook::of_bytes(bytes)),
        Place::Stripes { .. } => None,
        _ => EarlyLook::begin(&job.source_paths(), surroundings.home.clone(), &job.selection, job.carriage.clear),
    }
}

/// The end of a job that lies on this host.
enum EndHere {
    Source(Sources),
    Target(Target),
}

/// A session with a remote: one role here, the other there.
pub(crate) fn session_with(
    order: Order<'_>,
    mut remote: Remote,
    side: Side,
    early: Option<EarlyLook>,
    record: &Arc<LaneRecord>,
) -> Result<(SenderSummary, ReceiverSummary), Error> {
    let Order { job, surroundings, watch, hash_kept } = order;
    // Before the far side hears of the job: what cannot be opened here ends it.
    let end = match side {
        Side::Sender => EndHere::Source(sources_here(job)?),
        Side::Receiver => EndHere::Target(target_here(job)),
    };
    let id = remote.session;
    let identity = match &remote.identity {
        Some(identity) => Arc::clone(identity),
        None => Arc::new(Identity::generate().map_err(|error| faults::net_error(&error))?),
    };
    let role = match side {
        Side::Sender => Role::Receiver { target: job.target.path.clone() },
        Side::Receiver => Role::Sender { sources: job.source_paths() },
    };
    let (direction, paths) = (side.direction(), KnownPaths::of(surroundings));
    let cpus = host_facts::cpus().min(remote.far_end.cpus());
    let path = remote.known_path(&paths, direction);
    let assigned = Assignment { peer_session: id, peer_key: identity.public(), links: true, role, path, cpus };
    remote.start(assigned, job, hash_kept, watch)?;
    let desk = Arc::new(Desk::default());
    let door = lane_door::open_door(&identity, &desk, job.carriage.port_range);
    let port = door.as_ref().map(haul_net::Door::port);
    let carriage = Carriage { cpus, ..convert::carriage(&job.carriage, &[]) };
    let movers = Movers::new(u16::try_from(job.movers.len()).unwrap_or(u16::MAX).min(MAX_MOVERS));
    let terms = lane_terms(&remote, job, id, &identity, &carriage, Some(Memory { paths: paths.clone(), direction }));
    let (wanted, clear) = (convert::wanted(&carriage), carriage.clear);
    let expecting = desk.expect(id, remote.key(), remote.events.sender(), wanted, clear)?;
    expecting.takes_links(remote.key(), &remote.channel);
    keep_channel(&remote, job, &terms, record, watch);
    let (to_plan, mut answers) = dial_answers();
    let (far_end, peer) = (remote.far_end.clone(), remote.peer.clone());
    let mut aside = |message: Control| match message {
        Control::AgentHello(hello) => {
            peer.tell(&hello.addresses);
            far_end.on_hello(hello)
        }
        Control::Addresses(addresses) => {
            peer.tell(&addresses);
            Ok(())
        }
        message => answers(message),
    };
    let keeper = if job.selection.dry_run {
        crate::reach::lane_plan::Keeper::default()
    } else {
        let early = remote.early.take();
        LanePlan {
            early,
            paths_max: MAX_PATHS - movers.count(),
            ..lane_plan(&remote, job, terms, port, to_plan, record, watch)
        }
        .start()
    };
    let plan = MoverPlan {
        job: job.clone(),
        surroundings: surroundings.clone(),
        watch: Arc::clone(watch),
        movers: movers.clone(),
        events: remote.events.sender(),
        leader: Arc::clone(remote.channel.outbox()),
        identity: Arc::clone(&identity),
        foreseen: remote.foreseen.clone(),
    };
    let mut keeper = plan.start(keeper);
    let Remote { channel, events, .. } = remote;
    let selection = convert::selection(&job.selection, hash_kept);
    let result = match end {
        EndHere::Source(sources) => {
            let permits = Permits::of(surroundings, Sending::default());
            let hooks = permits.hooks().filter(|_| carriage.service != wire::Service::default());
            let hooks = hooks.and_then(|commands| Hooks::begin(&commands, surroundings.state.clone()));
            let job = SenderJob {
                sources,
                listed: job.selection.files_from.clone(),
                confine: None,
                expand_globs: false,
                remembers: Some(paths.clone()),
                home: surroundings.home.clone(),
                direct_from_bytes: DIRECT_FROM_BYTES,
                early,
                movers: movers.clone(),
                is_mover: false,
                far: false,
                selection,
                carriage,
                permits,
                hooks,
            };
            sender::run(job, Wiring { events, channel: &channel, watch, keeper: &mut keeper, aside: &mut aside })
        }
        EndHere::Target(target) => {
            let asked_for = Some(AskedFor::of(job)?);
            let bounds = Bounds::default();
            let job = ReceiverJob {
                target,
                confine: None,
                asked_for,
                far: false,
                selection,
                carriage,
                bounds,
                movers: movers.clone(),
                surroundings: surroundings.clone(),
            };
            receiver::run(job, Wiring { events, channel: &channel, watch, keeper: &mut keeper, aside: &mut aside })
        }
    };
    movers.end(FAREWELL);
    let mut result = result;
    if let Ok((sender, _)) = &mut result {
        for parting in movers.partings() {
            stopwatch::add(&mut sender.time, &parting.time);
            sender.paths.extend(parting.paths);
        }
        for path in &sender.paths {
            let name =
                watch.addresses_of(path.number).and_then(|ends| PathName::between(ends.local, ends.peer, direction));
            if let (Some(name), Some(known)) = (name, &path.summary.known) {
                paths.keep(&name, known);
            }
        }
    }
    result
}
