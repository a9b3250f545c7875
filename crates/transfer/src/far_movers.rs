//! Reaches the further hosts of the far end, and passes on what they and the leader say to each other.
//!
//! ```text
//!   log in -> Start -> the leader shows its tree -> SameRoot -> lanes -> what it moved -> the session -> the leader   (several hosts that receive)
//!   log in -> Start -> the first Takes -> lanes -> Portions, Receipts <-> Takes, Returns        (several hosts that send)
//! ```
//! Each host has a thread and one path. A host that cannot be reached, has other files or dies is left out with a warning.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use haul_job::{Error, Event, Far, Fault, Job, Subject};
use haul_net::{Identity, NetError, PublicKey};
use haul_wire::control::{Control, MoverWord, Role, SenderSummary};
use haul_wire::lane::path_of;
use haul_wire::limits::MAX_MOVERS;

use haul_channel::channel::{self, EventSender, LaneEvent, SessionEvent};
use haul_channel::clock::{Clock, START_DEADLINE, TICK};
use haul_channel::farewell::FAREWELL;
use haul_channel::foreseen::Foreseen;
use haul_channel::lane_threads::LaneKeeper;
use haul_channel::outbox::Outbox;
use haul_channel::reporter::Watch;
use haul_channel::{convert, host_facts};
use haul_engine::pace::share_of_rate;
use haul_kept::hook_words::Outlet;
use haul_kept::known_paths::{Direction, KnownPaths};
use haul_kept::surroundings::Surroundings;
use haul_kept::sync::lock;
use haul_reach::connect::connect;
use haul_reach::daemon::{Wanted, connect_daemon};
use haul_reach::dialler::{Dialler, Further, WAY_TIMEOUT};
use haul_reach::lane_terms::{LaneTerms, Memory};
use haul_reach::paths::first_way;
use haul_reach::redial::Redialler;
use haul_reach::remote::{Assignment, Remote, agreed_ciphers};
use haul_reach::ssh::SshKeeper;
use haul_striping::movers::Movers;

fn needs_one_host(job: &Job) -> Option<&'static str> {
    let is_source_here = job.sources.first().is_some_and(|source| source.place.is_here());
    if !is_source_here && !job.target.place.is_here() {
        return Some("in a copy between two other hosts each end is one host");
    }
    // A host may hold data in memory, and write it when readers have the file already.
    let inplace = "with --inplace a host that was cut off could write late into a file that shows already";
    let dirlinks = "with --keep-dirlinks files may lie where the other hosts do not look";
    let reasons = [(job.selection.inplace, inplace), (job.selection.keep_dirlinks, dirlinks)];
    reasons.into_iter().find_map(|(asked, why)| (is_source_here && asked).then_some(why))
}

/// Warns if several hosts were named and one takes part.
pub fn warn_of_one_host(job: &Job, watch: &Watch) {
    if let Some(why) = needs_one_host(job)
        && !job.movers.is_empty()
    {
        watch.tell(&Event::Warning { text: format!("several hosts are named, and one takes part: {why}") });
    }
}

#[derive(Clone)]
pub struct MoverPlan {
    pub job: Job,
    pub surroundings: Surroundings,
    pub watch: Arc<Watch>,
    pub movers: Movers,
    /// The queue of the leader's session.
    pub events: EventSender,
    /// The leader.
    pub leader: Arc<Outbox>,
    pub identity: Arc<Identity>,
    pub foreseen: Foreseen,
    /// The leader's key.
    pub leading: PublicKey,
}

#[derive(Clone)]
pub struct OtherHost {
    place: Far,
    /// An address of the host, if its name means several.
    address: Option<SocketAddr>,
}

impl fmt::Display for OtherHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => write!(f, "{} at {}", self.place, address.ip().to_canonical()),
            None => write!(f, "{}", self.place),
        }
    }
}

impl OtherHost {
    /// The named hosts, and those that the first name may mean besides. A session for further jobs has one host, and so has a
    /// job that [needs one](warn_of_one_host).
    pub fn of(job: &Job, first: &Remote, stays: bool) -> Vec<Self> {
        if needs_one_host(job).is_some() || job.selection.dry_run {
            return Vec::new();
        }
        let named = job.movers.iter().map(|place| Self { place: place.clone(), address: None });
        let addresses = first.other_addresses.iter().filter(|_| !stays);
        let at = addresses.map(|address| Self { place: first.place.clone(), address: Some(*address) });
        named.chain(at).take(usize::from(MAX_MOVERS)).collect()
    }

    /// Returns `None` for the leader, which has this address, too.
    fn connect(&self, plan: &MoverPlan) -> Result<Option<Remote>, Error> {
        let MoverPlan { job, surroundings, watch, foreseen, leading, .. } = plan;
        let (Some(address), Far::Haul { host, port }) = (self.address, &self.place) else {
            return connect(&self.place, job, surroundings, watch, None, foreseen.clone()).map(Some);
        };
        watch.tell(&Event::Connecting { place: self.to_string() });
        let wanted = Wanted { host, port: *port, only: Some((address, *leading)), is_same: Cell::default() };
        match connect_daemon(&self.place, &wanted, job, surroundings, watch, None, foreseen) {
            // The search for paths knows this address as a further path.
            Err(_) if wanted.is_same.get() => Ok(None),
            reached => reached.map(|mut remote| {
                remote.foreseen = foreseen.clone();
                Some(remote)
            }),
        }
    }
}

/// Brings lost lanes back, of leader or movers.
pub struct Keepers<K> {
    pub leader: K,
    movers: Arc<Redials>,
}

type Redials = Mutex<BTreeMap<u16, Redial>>;

enum Redial {
    Direct(Redialler),
    InsideSsh(Box<SshKeeper>),
}

impl Redial {
    fn want(&mut self, path: u16, lanes: u16) {
        match self {
            Self::Direct(redialler) => redialler.want(lanes),
            Self::InsideSsh(keeper) => drop(keeper.want(path, lanes)),
        }
    }
}

impl<K: LaneKeeper> LaneKeeper for Keepers<K> {
    fn lane_lost(&mut self, lane: u16) {
        match lock(&self.movers).get_mut(&path_of(lane)) {
            Some(Redial::Direct(redialler)) => redialler.lane_lost(lane),
            Some(Redial::InsideSsh(keeper)) => keeper.lane_lost(lane),
            None => self.leader.lane_lost(lane),
        }
    }

    fn want(&mut self, path: u16, lanes: u16) -> bool {
        match lock(&self.movers).get_mut(&path) {
            Some(redial) => {
                redial.want(path, lanes);
                true
            }
            None => self.leader.want(path, lanes),
        }
    }

    fn shrink(&mut self, path: u16, segment_bytes: u16) -> bool {
        match lock(&self.movers).get_mut(&path) {
            Some(Redial::Direct(redialler)) => redialler.shrink(segment_bytes),
            Some(Redial::InsideSsh(keeper)) => keeper.shrink(path, segment_bytes),
            None => self.leader.shrink(path, segment_bytes),
        }
    }

    fn leave_from(&mut self, path: u16, outlet: Outlet, lanes: &[u16]) -> bool {
        match lock(&self.movers).get_mut(&path) {
            Some(Redial::Direct(redialler)) => redialler.leave_from(outlet, lanes),
            Some(Redial::InsideSsh(keeper)) => keeper.leave_from(path, outlet, lanes),
            None => self.leader.leave_from(path, outlet, lanes),
        }
    }
}

impl MoverPlan {
    /// Reaches each host in a thread.
    pub fn start<K: LaneKeeper>(self, hosts: Vec<OtherHost>, leader: K) -> Keepers<K> {
        let keepers = Keepers { leader, movers: Arc::default() };
        for (number, host) in hosts.into_iter().enumerate() {
            let path = Movers::path_of_mover(u16::try_from(number).expect("a few"));
            let (plan, redials) = (self.clone(), Arc::clone(&keepers.movers));
            let run = move || {
                let result = plan.serve(&host, path, &redials);
                lock(&redials).remove(&path);
                plan.movers.leaves(path);
                if let Err(error) = result
                    && !plan.movers.is_over()
                    && !plan.watch.interrupted()
                {
                    let _ = plan
                        .events
                        .send(SessionEvent::Lane(LaneEvent::PathLost { path, why: format!("{host} is left out") }));
                    plan.watch.tell(&Event::Warning { text: left_out(&host, &error) });
                }
            };
            // The other hosts do without it.
            let _ = thread::Builder::new().name(format!("mover-{number}")).spawn(run);
        }
        keepers
    }

    fn serve(&self, host: &OtherHost, path: u16, redials: &Redials) -> Result<(), Error> {
        let Some(mut remote) = host.connect(self)? else { return Ok(()) };
        let child = remote.take_child();
        let result = self.with_remote(&remote, host, path, redials);
        if result.is_ok() {
            remote.channel.outbox().send(Control::Bye(SenderSummary::default()));
            if self.reads() {
                self.await_parting(&remote, path);
            }
        }
        remote.channel.close(FAREWELL);
        if let Some(child) = child {
            child.end();
        }
        result
    }

    fn reads(&self) -> bool {
        self.job.target.place.is_here()
    }

    fn with_remote(&self, remote: &Remote, host: &OtherHost, path: u16, redials: &Redials) -> Result<(), Error> {
        let Self { job, surroundings, watch, .. } = self;
        let identity = remote.identity.as_ref().unwrap_or(&self.identity);
        let (paths, direction) =
            (KnownPaths::of(surroundings), if self.reads() { Direction::From } else { Direction::To });
        let cpus = host_facts::cpus().min(remote.far_end.cpus());
        let known = remote.known_path(&paths, direction);
        let role = match self.reads() {
            true => Role::SourceMover { sources: job.source_paths() },
            false => Role::Mover { target: job.target.path.clone() },
        };
        let (peer_session, peer_key) = (remote.session, identity.public());
        let (links, stays, path_known) = (false, false, known.clone());
        let others = self.movers.count();
        let assigned = Assignment { peer_session, peer_key, links, stays, role, path: path_known, cpus, others };
        remote.start(assigned, job, false, watch)?;
        if !self.meets(remote, path, redials)? {
            return Ok(());
        }
        let carriage = convert::carriage(job, &[]);
        let terms = LaneTerms {
            session: remote.session,
            identity: Arc::clone(identity),
            peer_key: remote.key(),
            ciphers: agreed_ciphers(&job.carriage, &remote.far_end),
            carriage: haul_wire::control::Carriage { path: known, cpus, ..carriage },
            way: first_way(&job.carriage),
            memory: Some(Memory { paths, direction }),
            foreseen: self.foreseen.clone(),
            events: self.events.clone(),
            dial_threads: remote.dial_owner.threads(),
            first_mark: None,
        };
        let redial = self.bring_lanes(remote, terms, path, cpus)?;
        lock(redials).insert(path, redial);
        watch.leads_to(path, &host.to_string());
        watch.tell(&Event::Chose {
            what: Subject::Paths,
            choice: format!("path {path}: to {host}"),
            reason: "it has the same files as the first host".into(),
        });
        self.until(remote, &|_| false, path, redials, None).map(drop)
    }

    fn bring_lanes(&self, remote: &Remote, terms: LaneTerms, path: u16, cpus: u16) -> Result<Redial, Error> {
        let carriage = &self.job.carriage;
        let over_ssh = remote.ssh_lanes(&self.watch);
        let direct = || {
            let way = terms.way.clone();
            let dialler = Arc::new(Dialler::on_path(terms.clone(), path, way, remote.candidates(carriage.family)));
            let (lanes, _) = dialler.bring(cpus, WAY_TIMEOUT, 1, Further::OnceProved, &|_, _, _| {})?;
            Ok::<_, NetError>(Redial::Direct(Redialler::new(dialler, lanes)))
        };
        let cause = match (carriage.lanes_over_ssh, &over_ssh) {
            (true, Some(_)) => None,
            _ => match direct() {
                Ok(redial) => return Ok(redial),
                Err(error) => Some(error),
            },
        };
        // The user has typed any password by now.
        let inside = over_ssh.map(|ssh| ssh.bring(&terms, path, true, &|_, _| {}).map(|()| ssh.keeper(terms.clone())));
        let (what, hint) =
            ("no data connection to it", "open a port range in its firewall, and name it: --port-range FIRST-LAST");
        match (inside, cause) {
            (Some(Ok(keeper)), _) => Ok(Redial::InsideSsh(Box::new(keeper))),
            (None, Some(cause)) => Err(Error::new(Fault::Network, what).because(cause).try_this(hint)),
            (Some(Err(cause)), _) => Err(Error::new(Fault::Network, what).because(cause.what).try_this(hint)),
            (None, None) => unreachable!("then it was dialled"),
        }
    }

    /// Returns false if the session ended before the host found the common tree.
    fn meets(&self, remote: &Remote, path: u16, redials: &Redials) -> Result<bool, Error> {
        let (movers, outbox) = (&self.movers, remote.channel.outbox());
        if self.reads() {
            // It has found its sources, and proves each file later.
            let is_first =
                |message: &Control| matches!(message, Control::OfMover { word: MoverWord::Takes { .. }, .. });
            let Some(first) = self.until(remote, &is_first, path, redials, Some(START_DEADLINE))? else {
                return Ok(false);
            };
            // The mover must be known before the leader answers it.
            movers.joins(path, outbox);
            self.tell_leader(first, path);
            return Ok(true);
        }
        let Some((single_file, root)) = movers.await_root(START_DEADLINE) else { return Ok(false) };
        outbox.send(Control::Begin { single_file });
        outbox.send(Control::SharedRoot(root));
        let is_same = |message: &Control| matches!(message, Control::SameRoot);
        if self.until(remote, &is_same, path, redials, Some(START_DEADLINE))?.is_none() {
            return Ok(false);
        }
        movers.joins(path, outbox);
        Ok(true)
    }

    fn tell_leader(&self, message: Control, path: u16) {
        if let Control::OfMover { word, .. } = message {
            self.leader.send(Control::OfMover { path, word });
        }
    }

    fn await_parting(&self, remote: &Remote, path: u16) {
        let begun = Instant::now();
        while begun.elapsed() < FAREWELL / 2 && !self.movers.has_parted(path) {
            match remote.events.next(TICK) {
                Some(SessionEvent::Control(Control::Bye(summary))) => return self.movers.parts(path, summary),
                Some(SessionEvent::ControlEnded(_) | SessionEvent::Control(Control::Abort(_))) => return,
                Some(_) | None => {}
            }
        }
    }

    /// Passes messages on until one that `is_awaited`, or the end of the job.
    fn until(
        &self,
        remote: &Remote,
        is_awaited: &dyn Fn(&Control) -> bool,
        path: u16,
        redials: &Redials,
        limit: Option<Duration>,
    ) -> Result<Option<Control>, Error> {
        let clock = Clock::new(u32::try_from(self.job.carriage.timeout.as_millis()).unwrap_or(u32::MAX));
        let begun = Instant::now();
        let asked = self.job.carriage.rate_bytes_per_s;
        let mut rate = asked;
        while !self.movers.is_over() && !self.watch.interrupted() {
            clock.check_peer(&remote.channel)?;
            let now = self.watch.present_rate_limit(asked);
            if self.reads() && std::mem::replace(&mut rate, now) != now {
                let bytes_per_s = now.map(|rate| share_of_rate(rate, self.movers.count()));
                remote.channel.outbox().send(Control::Rate { bytes_per_s });
            }
            if let Some(why) = self.movers.accusation(path) {
                return Err(Error::new(Fault::Protocol, why));
            }
            if limit.is_some_and(|limit| begun.elapsed() > limit) {
                return Err(Error::new(Fault::Timeout, "it does not answer"));
            }
            match remote.events.next(TICK) {
                Some(SessionEvent::Control(message)) if is_awaited(&message) => return Ok(Some(message)),
                Some(SessionEvent::Control(
                    message @ Control::OfMover { word: MoverWord::Takes { .. } | MoverWord::Returns { .. }, .. },
                )) if self.reads() => self.tell_leader(message, path),
                Some(SessionEvent::Control(Control::PathNow(now))) if self.reads() => {
                    if now.path == path {
                        self.watch.on_path(&now);
                    }
                }
                Some(SessionEvent::Control(Control::WantLanes { lanes, .. })) if self.reads() => {
                    if let Some(redial) = lock(redials).get_mut(&path) {
                        redial.want(path, lanes);
                    }
                }
                Some(SessionEvent::Control(Control::SmallerSegments { segment_bytes, .. })) if self.reads() => {
                    if let Some(Redial::Direct(redialler)) = lock(redials).get_mut(&path) {
                        redialler.shrink(segment_bytes);
                    }
                }
                // A Bye is valid only after the end.
                Some(SessionEvent::Control(Control::Bye(summary))) if self.reads() && self.movers.is_over() => {
                    self.movers.parts(path, summary);
                }
                Some(SessionEvent::Control(Control::Moved(chunks))) if !self.reads() => {
                    let _ = self.events.send(SessionEvent::Moved(path, chunks));
                }
                Some(SessionEvent::Control(message @ (Control::Again { .. } | Control::Void(_)))) if !self.reads() => {
                    let _ = self.events.send(SessionEvent::Control(message));
                }
                Some(SessionEvent::Control(Control::Notice(notice))) => self.watch.on_notice(notice),
                Some(SessionEvent::Control(Control::Addresses(_))) => {}
                Some(SessionEvent::Control(Control::Abort(abort))) => return Err(convert::error_of(abort)),
                Some(SessionEvent::Control(other)) => return Err(haul_kept::faults::unexpected(&other)),
                Some(SessionEvent::ControlEnded(why)) => return Err(channel::ended(why)),
                Some(_) | None => {}
            }
        }
        Ok(None)
    }
}

pub fn left_out(host: &dyn fmt::Display, error: &Error) -> String {
    let cause = error.cause.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default();
    format!("{host} is left out, the other hosts do its part: {}{cause}", error.what)
}
