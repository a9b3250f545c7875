//! Runs a session with one remote: one role here, the other there, for one job or for several.
//!
//! ```text
//!   Remote   reached once: the login, the control channel
//!   Wires    laid with the first job: the keys of the lanes, who dials them, who lets them in
//!   job      Start -> role here, role there -> JobEnd; lanes that came to its end wait in the queue of events for the next
//! ```
//! The next job's Start leaves before the far side's JobEnd has come, but the role here begins after it: a sender a round trip
//! later.

use std::sync::Arc;
use std::time::{Duration, Instant};

use haul_job::{Error, Job, LanePath};
use haul_net::{Door, Identity};
use haul_store::DIRECT_FROM_BYTES;
use haul_wire::control::{Carriage, Control, ReceiverSummary, Role, SenderSummary};
use haul_wire::limits::MAX_PATHS;

use crate::ends::{sources_here, target_here};
use crate::far_movers::{MoverPlan, OtherHost};
use crate::order::Order;
use crate::permitted::permitted;
use crate::sftp_ends;
use haul_channel::channel::{self, Events, SessionEvent};
use haul_channel::clock::{START_DEADLINE, TICK};
use haul_channel::farewell::{self, FAREWELL};
use haul_channel::lane_threads::LaneKeeper;
use haul_channel::reporter::{Ends, Watch};
use haul_channel::role_context::RoleContext;
use haul_channel::{convert, host_facts, stopwatch};
use haul_copy::asked_for::AskedFor;
use haul_copy::receiver::{self, Bounds, ReceiverJob, Target};
use haul_copy::sender::early_look::EarlyLook;
use haul_copy::sender::{self, SenderJob, Sources};
use haul_kept::faults;
use haul_kept::known_paths::{Direction, KnownPaths, PathName};
use haul_kept::network_classes;
use haul_kept::sync::lock;
use haul_reach::attach::{self, LinkDialler};
use haul_reach::lane_door;
use haul_reach::lane_plan::{Keeper, LanePlan, LaneRecord, dial_answers, lane_plan, lane_terms};
use haul_reach::lane_rendezvous::{Expecting, LaneRendezvous};
use haul_reach::lane_terms::{LaneTerms, Memory};
use haul_reach::remote::{Assignment, Remote};
use haul_striping::movers::Movers;

/// The role played here.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Data leaves here.
    Sender,
    /// Data comes here.
    Receiver,
}

impl Side {
    /// The data's direction.
    pub fn direction(self) -> Direction {
        match self {
            Side::Sender => Direction::To,
            Side::Receiver => Direction::From,
        }
    }
}

/// After so many failed jobs that took the lanes with them, lost lanes are not dialled any more.
const MAX_COSTLY: u32 = 3;

/// A session with one remote.
pub struct Joined {
    /// The wires are dropped before the remote, with which their threads end.
    wires: Option<Wires>,
    /// The early look is for the first job.
    early: Option<EarlyLook>,
    record: Arc<LaneRecord>,
    /// Receives what belongs to no job.
    watch: Arc<Watch>,
    side: Side,
    /// The far side has not ended the last job. True: our lanes can carry the next one.
    unheard: Option<bool>,
    is_over: bool,
    /// Jobs that failed and took the lanes with them.
    costly: u32,
    /// The host may know us by no key.
    identity: Option<Arc<Identity>>,
    remote: Remote,
}

struct Wires {
    keeper: Box<dyn LaneKeeper>,
    on_other_message: Box<dyn FnMut(Control) -> Result<(), Error> + Send>,
    /// The plan stays until a job needs lanes.
    plan: Option<LanePlan>,
    movers: Movers,
    _expecting: Expecting,
    _door: Option<Door>,
}

enum EndHere {
    Source(Sources),
    Target(Target),
}

impl Joined {
    /// Joins this far side. `watch` receives what belongs to no job.
    pub fn new(remote: Remote, side: Side, early: Option<EarlyLook>, watch: &Arc<Watch>) -> Self {
        Self {
            wires: None,
            early,
            record: Arc::default(),
            watch: Arc::clone(watch),
            side,
            unheard: None,
            is_over: false,
            costly: 0,
            identity: None,
            remote,
        }
    }

    /// Runs one job. `stays`: another may follow.
    pub fn run(&mut self, order: Order<'_>, stays: bool) -> Result<Ends, Error> {
        let (place, proof) = (self.remote.place.clone(), sftp_ends::proof(order.job));
        let result = self.run_role(order, stays);
        if let Err(error) = &result {
            self.costly += u32::from(self.unheard == Some(false));
            self.is_over |= !farewell::lets_others_follow(error) || self.costly > MAX_COSTLY;
        }
        self.is_over |= !stays;
        let (sender, receiver) = result.map_err(|error| self.remote.far_end.explain(error).at(&place))?;
        let (here, there) = (host_facts::host_here(), self.remote.far_end.host(&place));
        let lane_path = *lock(&self.record.path);
        let cipher = lock(&self.record.cipher).clone();
        let (source, target) = if self.side == Side::Sender { (here, there) } else { (there, here) };
        let is_pull = self.side == Side::Receiver;
        Ok(Ends { sender, receiver, source, target, lane_path, cipher, is_pull, proof })
    }

    /// Drops the first job's early look.
    pub fn forget_early_look(&mut self) {
        self.early = None;
    }

    /// Whether no further job can run, as far as we know.
    pub fn is_over(&mut self) -> bool {
        // Before the first job all messages are for its role.
        if !self.is_over && self.wires.is_some() {
            self.is_over = self.hear().is_err();
        }
        self.is_over
    }

    /// Ends the session, and waits for its threads.
    pub fn close(mut self) {
        let child = self.remote.take_child();
        if !self.is_over {
            self.remote.channel.outbox().send(Control::Leave);
        }
        self.remote.channel.close(FAREWELL);
        drop(self);
        if let Some(child) = child {
            child.end();
        }
    }

    fn run_role(&mut self, order: Order<'_>, stays: bool) -> Result<(SenderSummary, ReceiverSummary), Error> {
        let Order { job, surroundings, watch, hash_kept } = order;
        // Such a failure comes before the far side learns of the job.
        let end = match self.side {
            Side::Sender => EndHere::Source(sources_here(job, surroundings, watch)?),
            Side::Receiver => EndHere::Target(target_here(job, surroundings, watch)?),
        };
        // A lost session fails before anything begins.
        self.hear()?;
        let (identity, id) = (self.identity()?, self.remote.session);
        let role = match self.side {
            Side::Sender => Role::Receiver { target: job.target.path.clone() },
            Side::Receiver => Role::Sender { sources: job.source_paths() },
        };
        let (direction, paths) = (self.side.direction(), KnownPaths::of(surroundings));
        let cpus = host_facts::cpus().min(self.remote.far_end.cpus());
        let path = self.remote.known_path(&paths, direction);
        let (peer_key, links) = (identity.public(), true);
        let hosts = OtherHost::of(job, &self.remote, stays);
        let others = u16::try_from(hosts.len()).expect("a few");
        let known = path.clone();
        let assigned = Assignment { peer_session: id, peer_key, links, stays, role, path, cpus, others };
        self.remote.start(assigned, job, hash_kept, watch)?;
        let carriage = Carriage { cpus, ..convert::carriage(job, &[]) };
        if self.wires.is_none() {
            self.wires = Some(self.wire(order, &carriage, hosts)?);
        } else {
            // The far side has heard of the next job by now: its answer costs no second wait.
            self.hear_end(watch, job.carriage.timeout.max(START_DEADLINE))?;
        }
        let wires = self.wires.as_mut().expect("they were laid");
        if !job.selection.dry_run
            && let Some(plan) = wires.plan.take()
        {
            wires.keeper = Box::new(plan.start());
        }
        let events = match stays {
            true => self.remote.events.of_job(self.remote.last_job()),
            false => std::mem::replace(&mut self.remote.events, Events::new()),
        };
        let early = self.early.take();
        let channel = &self.remote.channel;
        let (keeper, on_other_message) = (&mut *wires.keeper, &mut *wires.on_other_message);
        let context = RoleContext { events, channel, watch, keeper, on_other_message };
        let selection = convert::selection(&job.selection);
        let mut result = match end {
            EndHere::Source(sources) => {
                let (permits, hooks) = permitted(&carriage, surroundings);
                let job = SenderJob {
                    hand_over: None,
                    outbound: None,
                    sources,
                    listed: job.files_from.clone(),
                    confine: None,
                    expand_globs: false,
                    remembers: Some(paths.clone()),
                    home: surroundings.home.clone(),
                    direct_from_bytes: DIRECT_FROM_BYTES,
                    early,
                    movers: wires.movers.clone(),
                    is_mover: false,
                    far: false,
                    selection,
                    carriage,
                    permits,
                    hooks,
                };
                sender::run(job, context)
            }
            EndHere::Target(target) => AskedFor::of(job).map(Some).and_then(|asked_for| {
                let listed = convert::listed(job.files_from.as_deref());
                let job = ReceiverJob {
                    hand_over: None,
                    sums: None,
                    target,
                    confine: None,
                    asked_for,
                    far: false,
                    selection,
                    listed,
                    hash_kept,
                    carriage: Carriage { path: known, ..carriage },
                    bounds: Bounds::default(),
                    movers: wires.movers.clone(),
                    surroundings: surroundings.clone(),
                };
                receiver::run(job, context)
            }),
        };
        self.unheard = Some(result.is_ok() || self.remote.events.lanes_are_spared());
        wires.movers.end(FAREWELL);
        if let Ok((sender, _)) = &mut result {
            for parting in wires.movers.partings() {
                stopwatch::add(&mut sender.time, &parting.time);
                sender.paths.extend(parting.paths);
            }
            for path in &sender.paths {
                let name = watch
                    .addresses_of(path.number)
                    .and_then(|ends| PathName::between(ends.local, ends.peer, direction));
                if let (Some(name), Some(known)) = (name, &path.summary.known) {
                    paths.keep(&name, known);
                }
            }
        }
        result
    }

    fn identity(&mut self) -> Result<Arc<Identity>, Error> {
        if let Some(identity) = self.remote.identity.as_ref().or(self.identity.as_ref()) {
            return Ok(Arc::clone(identity));
        }
        let made = Arc::new(Identity::generate().map_err(|error| faults::net_error(&error))?);
        Ok(Arc::clone(self.identity.insert(made)))
    }

    fn hear(&mut self) -> Result<(), Error> {
        while let Some(event) = self.remote.events.next_word(Duration::ZERO) {
            if self.wires.is_none() {
                return match event {
                    SessionEvent::ControlEnded(why) => Err(channel::ended(why)),
                    event => {
                        self.remote.events.put_back(vec![event]);
                        Ok(())
                    }
                };
            }
            self.on_word(event)?;
        }
        Ok(())
    }

    /// Waits for the last job's end, when the next one was asked for. Later messages are for the next job.
    fn hear_end(&mut self, watch: &Watch, limit: Duration) -> Result<(), Error> {
        let begun = Instant::now();
        while self.unheard.is_some() {
            match self.remote.events.next_word(TICK) {
                Some(event) => self.on_word(event)?,
                None if watch.interrupted() => return Err(watch.interruption()),
                None if begun.elapsed() > limit || self.remote.channel.silence() > limit => {
                    return Err(faults::silent(limit));
                }
                None => {}
            }
        }
        Ok(())
    }

    fn on_word(&mut self, event: SessionEvent) -> Result<(), Error> {
        let is_of_job = self.unheard.is_some();
        match event {
            SessionEvent::ControlEnded(why) => Err(channel::ended(why)),
            SessionEvent::Control(Control::JobEnd { lanes }) if is_of_job => {
                if self.unheard.take() != Some(true) || !lanes {
                    self.remote.events.drop_lanes_back();
                }
                Ok(())
            }
            SessionEvent::Control(
                message @ (Control::AgentHello(_)
                | Control::Addresses(_)
                | Control::Dialled { .. }
                | Control::DialFailed { .. }),
            ) => match &mut self.wires {
                Some(wires) => (wires.on_other_message)(message),
                None => Err(faults::unexpected(&message)),
            },
            SessionEvent::Control(Control::Abort(abort)) if !is_of_job => Err(convert::error_of(abort)),
            SessionEvent::Control(message) if !is_of_job => Err(faults::unexpected(&message)),
            _ => Ok(()),
        }
    }

    fn wire(&mut self, order: Order<'_>, carriage: &Carriage, hosts: Vec<OtherHost>) -> Result<Wires, Error> {
        let Order { job, surroundings, .. } = order;
        let (identity, watch) = (self.identity()?, &self.watch);
        let remote = &mut self.remote;
        let rendezvous = Arc::new(LaneRendezvous::default());
        let policies = network_classes::policies(&surroundings.network_files)?;
        remote.dial_owner.threads().tune_by(Arc::clone(&policies));
        let door = lane_door::open_door(&identity, &rendezvous, job.carriage.port_range, policies);
        let port = door.as_ref().map(haul_net::Door::port);
        let movers = Movers::new(u16::try_from(hosts.len()).expect("a few"));
        let memory = Memory { paths: KnownPaths::of(surroundings), direction: self.side.direction() };
        let terms = lane_terms(remote, job, remote.session, &identity, carriage, Some(memory));
        let (wanted, clear) = (convert::wanted(carriage), carriage.clear);
        let expecting = rendezvous.expect(remote.session, remote.key(), remote.events.sender(), wanted, clear)?;
        expecting.takes_links(remote.key(), &remote.channel);
        keep_channel(remote, job, &terms, &self.record, watch);
        let (to_plan, mut answers) = dial_answers();
        let (far_end, peer) = (remote.far_end.clone(), remote.peer.clone());
        let on_other_message = move |message: Control| match message {
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
        let plan = LanePlan {
            early: remote.early.take().filter(|_| !job.selection.dry_run),
            paths_max: MAX_PATHS - movers.count(),
            ..lane_plan(remote, job, terms, port, to_plan, &self.record, watch)
        };
        let (leader, plan) = match job.selection.dry_run {
            true => (Keeper::default(), Some(plan)),
            false => (plan.start(), None),
        };
        let bringer = MoverPlan {
            job: job.clone(),
            surroundings: surroundings.clone(),
            watch: Arc::clone(watch),
            movers: movers.clone(),
            events: remote.events.sender(),
            leader: Arc::clone(remote.channel.outbox()),
            identity: Arc::clone(&identity),
            foreseen: remote.foreseen.clone(),
            leading: remote.key(),
        };
        let keeper = Box::new(bringer.start(hosts, leader));
        Ok(Wires {
            keeper,
            on_other_message: Box::new(on_other_message),
            plan,
            movers,
            _expecting: expecting,
            _door: door,
        })
    }
}

/// If we could dial lanes, we can dial links. Otherwise the far side may.
fn keep_channel(remote: &Remote, job: &Job, terms: &LaneTerms, record: &Arc<LaneRecord>, watch: &Arc<Watch>) {
    let links = LinkDialler::new(terms.clone(), remote.candidates(job.carriage.family));
    let (record, watch) = (Arc::clone(record), Arc::clone(watch));
    let dialler = move || match *lock(&record.path) {
        Some(LanePath::Direct) => Some(links.clone().towards(watch.addresses_of(0).map(|ends| ends.peer))),
        _ => None,
    };
    // Without the thread the loss of the channel ends the session.
    let _ = attach::keep(&remote.channel, &remote.dial_owner.threads(), dialler);
}
