//! Holds a far side that is connected: its control channel, and what it said about itself.

use std::cell::{Cell, OnceCell};
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use haul_engine::pace::share_of_rate;
use haul_engine::remedy::Host;
use haul_job::{Carriage, Error, Family, Far, Fault, Job};
use haul_net::{PublicKey, Stream, dial};
use haul_wire::codec;
use haul_wire::control::{self, AgentHello, Control, Role, Start};
use haul_wire::limits::{MAX_CONTROL_FRAME_BYTES, MAX_LISTED_BYTES, MAX_SPEC_ITEMS};
use haul_wire::summary::KnownPath;

use crate::dial_threads::DialThreadsOwner;
use crate::early_lanes::Early;
use crate::far_end::{FarEnd, Introduction};
use crate::paths::PeerAddresses;
use crate::ssh::{SshChild, SshLanes, SshTarget};
use haul_channel::channel::{self, Channel, Events, PING_EVERY, SessionEvent};
use haul_channel::clock::{self, TICK};
use haul_channel::convert;
use haul_channel::foreseen::Foreseen;
use haul_channel::reporter::Watch;
use haul_kept::known_paths::{Direction, KnownPaths};

/// The limit for an agent's hello after its banner.
const HELLO_DEADLINE: Duration = Duration::from_secs(20);

/// A far side that answered.
pub struct Remote {
    /// The place, as typed.
    pub place: Far,
    /// Words or presumption.
    pub far_end: FarEnd,
    /// The channel.
    pub channel: Channel,
    /// The messages.
    pub events: Events,
    /// The ssh; `None`: a daemon.
    pub ssh: Option<SshTarget>,
    /// Our identity on lanes.
    pub identity: Option<std::sync::Arc<haul_net::Identity>>,
    /// Random name of this end; both ends on one machine share it.
    pub session: [u8; 16],
    /// Bytes to send, if known.
    pub foreseen: Foreseen,
    /// Lanes on their way.
    pub early: Option<Early>,
    /// The addresses.
    pub peer: PeerAddresses,
    /// Other addresses of the name; with several known keys maybe of other hosts.
    pub other_addresses: Vec<SocketAddr>,
    /// Ends dial threads.
    pub dial_owner: DialThreadsOwner,
    /// The channel's ssh.
    pub child: Option<SshChild>,
    pub(crate) reached_at: Option<SocketAddr>,
    /// An address of its name may be another host's here.
    pub(crate) is_indirect: bool,
    pub(crate) round_trip_at_most: Option<Duration>,
    /// Brings our resolver's addresses for `resolved`.
    pub(crate) resolver: Option<Receiver<Vec<IpAddr>>>,
    pub(crate) resolved: OnceCell<Vec<IpAddr>>,
    pub(crate) job: Cell<u64>,
}

/// A task, with facts that one end does not know.
pub struct Assignment {
    /// Peer's session.
    pub peer_session: [u8; 16],
    /// Peer's key.
    pub peer_key: PublicKey,
    /// Whether the key is ours, and may bring links.
    pub links: bool,
    /// Whether jobs may follow.
    pub stays: bool,
    /// The role.
    pub role: Role,
    /// Facts about the path.
    pub path: Option<KnownPath>,
    /// Processors of the smaller host.
    pub cpus: u16,
    /// Further hosts.
    pub others: u16,
}

impl Remote {
    /// Reads a greeting and opens the channel. Fails if it is not haul, or too old.
    pub fn meet(place: &Far, to: Stream, id: [u8; 16], events: Events, watch: &Watch) -> Result<Self, Error> {
        let channel = Channel::open(to, events.sender(), PING_EVERY)
            .map_err(|error| Error::new(Fault::FileIo, "cannot open the control channel").because(error))?;
        let hello = await_hello(&events, place, watch)?;
        Ok(Self::of(place, FarEnd::Said(hello), channel, id, events))
    }

    pub(crate) fn presume(
        place: &Far,
        stream: Stream,
        session: [u8; 16],
        events: Events,
        later: Introduction,
    ) -> Result<Self, Error> {
        let channel = Channel::open(stream, events.sender(), PING_EVERY)
            .map_err(|error| Error::new(Fault::FileIo, "cannot open the control channel").because(error))?;
        Ok(Self::of(place, FarEnd::Presumed(later), channel, session, events))
    }

    fn of(place: &Far, far_end: FarEnd, channel: Channel, session: [u8; 16], events: Events) -> Self {
        Self {
            place: place.clone(),
            far_end,
            channel,
            events,
            ssh: None,
            identity: None,
            session,
            foreseen: Foreseen::default(),
            early: None,
            peer: PeerAddresses::default(),
            other_addresses: Vec::new(),
            dial_owner: DialThreadsOwner::new(),
            child: None,
            reached_at: None,
            is_indirect: false,
            round_trip_at_most: None,
            resolver: None,
            resolved: OnceCell::new(),
            job: Cell::new(0),
        }
    }

    /// Proved key.
    pub fn key(&self) -> PublicKey {
        self.far_end.key()
    }

    /// Host for the report.
    pub fn host(&self) -> Host {
        self.far_end.host(&self.place)
    }

    /// The last job told.
    pub fn last_job(&self) -> u64 {
        self.job.get()
    }

    /// Sends the role; a sender also gets the list of `--files-from`.
    ///
    /// # Errors
    /// [`Fault::Usage`]: the job names more than a far side takes.
    pub fn start(&self, assigned: Assignment, job: &Job, hash_kept: bool, watch: &Watch) -> Result<(), Error> {
        let Assignment { peer_session, peer_key, links, stays, role, path, cpus, others } = assigned;
        let list = job.files_from.as_deref().filter(|_| matches!(role, Role::Sender { .. }));
        if list.is_some_and(|list| list.weight_bytes() > MAX_LISTED_BYTES) {
            let mib = MAX_LISTED_BYTES >> 20;
            let what = format!("the list of --files-from is longer than a far side takes ({mib} MiB)");
            return Err(Error::new(Fault::Usage, what).try_this("copy directories whole, or in several parts"));
        }
        let (selection, listed) = (convert::selection(&job.selection), convert::listed(job.files_from.as_deref()));
        let is_between_hosts = !job.target.place.is_here() && job.sources.iter().any(|source| !source.place.is_here());
        let selection = control::Selection { may_overlap: is_between_hosts, ..selection };
        let carriage = convert::carriage(job, &agreed_ciphers(&job.carriage, &self.far_end));
        let leads = matches!(role, Role::Sender { .. } | Role::Receiver { .. });
        let movers = if leads && !job.selection.dry_run { others } else { 0 };
        let mut carriage = control::Carriage { path, cpus, movers, ..carriage };
        if let (Role::SourceMover { .. }, Some(rate)) = (&role, &mut carriage.rate_bytes_per_s) {
            // The leader leaves each the same part of the rate.
            *rate = share_of_rate(*rate, others);
        }
        let (session, peer_key) = (self.session, peer_key.0);
        let number = self.job.get() + 1;
        self.job.set(number);
        let start = Start {
            session,
            peer_session,
            peer_key,
            links,
            stays,
            job: number,
            role,
            selection,
            listed,
            hash_kept,
            carriage,
        };
        let start = Control::Start(Box::new(start));
        if start.check_limits().and_then(|()| codec::encode(&start, &mut Vec::new())).is_err() {
            let mib = MAX_CONTROL_FRAME_BYTES >> 20;
            let what = format!(
                "sources and filter rules are more than a far side takes ({mib} MiB, {MAX_SPEC_ITEMS} of them)"
            );
            return Err(Error::new(Fault::Usage, what).try_this(
                "name the directory above the sources, with --files-from; write fewer rules that match more",
            ));
        }
        let outbox = self.channel.outbox();
        outbox.send(start);
        if let Some(list) = list {
            for path in list.paths() {
                outbox.listed(&path);
                if !outbox.await_room(|| watch.interrupted(), job.carriage.timeout.max(clock::START_DEADLINE)) {
                    return Err(Error::broke_the_protocol("it does not listen"));
                }
            }
            outbox.send(Control::Listed(Vec::new()));
        }
        Ok(())
    }

    /// The dialled address of a daemon. An ssh host's is one of our resolver's for its name: the far side only chooses among
    /// these. A name that only ssh knows has no address. The same holds for a host behind another one.
    fn address(&self) -> Option<IpAddr> {
        if let Some(address) = self.reached_at {
            return Some(address.ip().to_canonical());
        }
        if self.is_indirect {
            return None;
        }
        let said = self.far_end.said().and_then(|hello| hello.ssh_server);
        let (resolved, said) = (self.resolved(), said.map(|said| convert::ip(said).to_canonical()));
        said.filter(|said| resolved.contains(said)).or_else(|| resolved.first().copied())
    }

    fn resolved(&self) -> &[IpAddr] {
        if let Some(addresses) = self.resolver.as_ref().and_then(|resolver| resolver.try_recv().ok()) {
            let _ = self.resolved.set(addresses.iter().map(IpAddr::to_canonical).collect());
        }
        self.resolved.get().map_or(&[], Vec::as_slice)
    }

    /// Earlier findings about the path.
    pub fn known_path(&self, paths: &KnownPaths, direction: Direction) -> Option<KnownPath> {
        paths.towards(self.address()?, direction)
    }

    /// Candidates, best first: ssh's, those of the name, those that it names.
    pub fn candidates(&self, family: Option<Family>) -> Vec<SocketAddr> {
        if self.far_end.port() == 0 {
            return Vec::new();
        }
        if let Some(address) = self.reached_at {
            return vec![address];
        }
        let said = self.far_end.said();
        let seen = said.and_then(|hello| hello.ssh_server);
        let mut addresses: Vec<IpAddr> = seen.map(convert::ip).into_iter().collect();
        addresses.extend(self.resolved());
        addresses.extend(said.into_iter().flat_map(|hello| &hello.addresses).copied().map(convert::ip));
        let fits = |ip: &IpAddr| match family {
            Some(Family::V4) => ip.is_ipv4(),
            Some(Family::V6) => ip.is_ipv6(),
            None => true,
        };
        let mut candidates: Vec<SocketAddr> = Vec::new();
        for ip in addresses.into_iter().map(|ip| ip.to_canonical()).filter(fits) {
            let candidate = SocketAddr::new(ip, self.far_end.port());
            if !candidates.contains(&candidate) {
                candidates.push(candidate);
            }
        }
        candidates
    }

    /// Whether our resolver knows this address for the host that the user named: it may be dialled many times at once.
    pub(crate) fn is_named(&self, address: IpAddr) -> bool {
        !self.is_indirect && self.resolved().contains(&address.to_canonical())
    }

    pub(crate) fn peer_addresses(&self) -> PeerAddresses {
        let reached = self.reached_at.map(|address| address.ip());
        self.peer.know(reached.into_iter().chain(self.resolved().iter().copied()));
        if let Some(hello) = self.far_end.said() {
            self.peer.tell(&hello.addresses);
        }
        self.peer.clone()
    }

    /// Our addresses, the one that it saw first.
    pub fn our_addresses(&self) -> Vec<IpAddr> {
        let seen = self.far_end.said().and_then(|hello| hello.ssh_client);
        let seen = seen.map(|seen| convert::ip(seen).to_canonical());
        let mut addresses: Vec<IpAddr> = seen.into_iter().collect();
        for ip in dial::local_addresses() {
            if !addresses.contains(&ip) {
                addresses.push(ip);
            }
        }
        addresses.truncate(haul_wire::limits::MAX_CANDIDATES);
        addresses
    }

    /// Plans lanes inside ssh.
    pub fn ssh_lanes(&self, watch: &std::sync::Arc<Watch>) -> Option<SshLanes> {
        let (target, port) = self.ssh.clone().zip(self.far_end.relay_port())?;
        Some(SshLanes { target, port, watch: std::sync::Arc::clone(watch) })
    }

    /// Takes the process to end.
    pub fn take_child(&mut self) -> Option<SshChild> {
        self.child.take()
    }
}

fn await_hello(events: &Events, place: &Far, watch: &Watch) -> Result<AgentHello, Error> {
    let end = Instant::now() + HELLO_DEADLINE;
    let mut early = Vec::new();
    loop {
        match events.next(end.saturating_duration_since(Instant::now()).min(TICK)) {
            Some(SessionEvent::Control(Control::AgentHello(hello))) => {
                events.put_back(early);
                return Ok(hello);
            }
            Some(SessionEvent::Control(Control::Abort(abort))) => return Err(convert::error_of(abort)),
            Some(SessionEvent::ControlEnded(why)) => return Err(channel::ended(why)),
            Some(SessionEvent::Control(other)) => return Err(haul_kept::faults::unexpected(&other)),
            Some(lane) => early.push(lane),
            None if watch.interrupted() => return Err(watch.interruption()),
            None if Instant::now() < end => {}
            None => return Err(Error::new(Fault::Timeout, format!("{place} was reached, but does not answer"))),
        }
    }
}

/// Ciphers, best first: the requested one, or those quick on both processors. A silent peer chooses from our order.
pub fn agreed_ciphers(carriage: &Carriage, peer: &FarEnd) -> Vec<haul_net::Cipher> {
    let ours = ciphers(carriage);
    if carriage.cipher.is_none() && peer.said().is_some_and(|hello| !hello.fast_aes) {
        let (mut last, mut first): (Vec<_>, Vec<_>) =
            ours.into_iter().partition(|cipher| *cipher != haul_net::Cipher::Chacha20Poly1305);
        first.append(&mut last);
        return first;
    }
    ours
}

/// Our ciphers, best first.
pub fn ciphers(carriage: &Carriage) -> Vec<haul_net::Cipher> {
    haul_net::preferred_ciphers(carriage.cipher.map(Into::into))
}

pub(crate) fn net_family(family: Family) -> dial::Family {
    match family {
        Family::V4 => dial::Family::V4,
        Family::V6 => dial::Family::V6,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::Arc;
    use std::sync::mpsc::sync_channel;

    use haul_job::SshOptions;
    use haul_wire::codec;
    use haul_wire::summary::HostLimits;

    use super::*;
    use haul_kept::surroundings::Surroundings;
    use haul_kept::trusted_keys::KnownHosts;

    fn reached(claimed: [u8; 4], resolved: Option<&[[u8; 4]]>) -> Remote {
        let (near, mut far) = Stream::plain_pair().unwrap();
        let hello = AgentHello {
            version: "0".into(),
            key: [1; 32],
            port: 7,
            relay_port: 7,
            addresses: vec![convert::address(claimed.into())],
            ssh_server: Some(convert::address(claimed.into())),
            ssh_client: None,
            cpus: 1,
            fast_aes: true,
            limits: HostLimits::default(),
        };
        let mut bytes = Vec::new();
        codec::encode(&Control::AgentHello(hello), &mut bytes).unwrap();
        far.write_all(&bytes).and_then(|()| far.flush()).unwrap();
        let place = Far::Ssh { user: None, host: "dtn".into(), port: None };
        let mut remote = Remote::meet(&place, near, [0; 16], Events::new(), &Watch::silent()).unwrap();
        let (sender, receiver) = sync_channel(1);
        remote.resolver = Some(receiver);
        if let Some(resolved) = resolved {
            sender.send(resolved.iter().copied().map(IpAddr::from).collect()).unwrap();
        }
        remote
    }

    #[test]
    fn a_session_begins_before_the_daemon_has_said_who_it_is() {
        let (near, mut far) = Stream::plain_pair().unwrap();
        let place = Far::Haul { host: "dtn".into(), port: 7 };
        let key = PublicKey([1; 32]);
        let ssh = SshOptions { haul_known_hosts: Some("/nowhere".into()), ..SshOptions::default() };
        let known = Arc::new(KnownHosts::of(&ssh, &Surroundings::default()).unwrap());
        let later = Introduction::new(known, "dtn", 7, key);
        let remote = Remote::presume(&place, near, [0; 16], Events::new(), later).unwrap();
        let far_end = remote.far_end.clone();
        assert_eq!((remote.key(), far_end.port(), far_end.said()), (key, 7, None));
        assert_eq!((far_end.host(&place).cpus, far_end.relay_port()), (0, None));
        remote.channel.outbox().send(Control::EndOfManifest);
        let mut frame = [0; 4];
        std::io::Read::read_exact(&mut far, &mut frame).unwrap();
        let ended = || channel::ended(None);
        let refusal = far_end.explain(ended());
        assert!(refusal.fault == Fault::Network && refusal.what.contains("hung up without a word"), "{refusal:?}");
        let hello = AgentHello {
            version: "0".into(),
            key: key.0,
            port: 7,
            relay_port: 0,
            addresses: Vec::new(),
            ssh_server: None,
            ssh_client: None,
            cpus: 1,
            fast_aes: false,
            limits: HostLimits::default(),
        };
        let said = |key| AgentHello { key, cpus: 77, ..hello.clone() };
        assert_eq!(far_end.on_hello(said([2; 32])).unwrap_err().fault, Fault::Protocol);
        far_end.on_hello(said(key.0)).unwrap();
        assert_eq!((far_end.explain(ended()), far_end.host(&place).cpus), (ended(), 77));
        assert!(far_end.on_hello(said(key.0)).is_err(), "once is enough");
    }

    #[test]
    fn what_is_known_of_a_network_is_not_for_whoever_claims_to_be_there() {
        let (ours, also_ours, claimed) = ([192, 0, 2, 1], [192, 0, 2, 9], [198, 51, 100, 7]);
        let check = |remote: &Remote, expected: Option<[u8; 4]>| {
            let expected = expected.map(IpAddr::from);
            assert_eq!(remote.address(), expected);
            assert_eq!(remote.address(), expected, "and it stays so");
        };
        check(&reached(claimed, Some(&[ours, also_ours])), Some(ours));
        check(&reached(also_ours, Some(&[ours, also_ours])), Some(also_ours));
        check(&reached(claimed, Some(&[])), None);
        check(&reached(claimed, None), None);
        // Behind one gate 10.0.0.5 is another host than behind another, or than here.
        let mut behind = reached(ours, Some(&[ours]));
        behind.is_indirect = true;
        check(&behind, None);
        assert!(!behind.is_named(ours.into()));
        let named = reached(claimed, Some(&[ours]));
        assert!(named.is_named(ours.into()) && !named.is_named(claimed.into()), "it would make us flood another host");
        let candidates = named.candidates(None);
        assert_eq!(candidates, [SocketAddr::from((claimed, 7)), SocketAddr::from((ours, 7))]);
    }
}
