//! A far side that is connected: its control channel and what it said about itself.

use std::cell::OnceCell;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use haul_engine::remedy::Host;
use haul_job::{Carriage, Error, Family, Fault, Job, Place};
use haul_net::{PublicKey, Stream, dial};
use haul_wire::codec;
use haul_wire::control::{self, AgentHello, Control, Role, Start};
use haul_wire::limits::{MAX_CONTROL_FRAME_BYTES, MAX_LISTED_BYTES, MAX_SPEC_ITEMS};
use haul_wire::summary::KnownPath;

use crate::kept::known_paths::{Direction, KnownPaths};
use crate::reach::crew::Lead;
use crate::reach::early_lanes::Early;
use crate::reach::far_end::{FarEnd, Introduction};
use crate::reach::paths::PeerAddresses;
use crate::reach::ssh::{SshChild, SshLanes, SshTarget};
use crate::session::channel::{self, Channel, Events, PING_EVERY, SessionEvent};
use crate::session::clock::{self, TICK};
use crate::session::convert;
use crate::session::foreseen::Foreseen;
use crate::session::reporter::Watch;

/// After its banner the agent says who it is within this time.
const HELLO_DEADLINE: Duration = Duration::from_secs(20);

pub(crate) struct Remote {
    pub(crate) place: Place,
    /// What is known of it.
    pub(crate) far_end: FarEnd,
    pub(crate) channel: Channel,
    pub(crate) events: Events,
    pub(crate) ssh: Option<SshTarget>,
    /// The identity that lanes to it must prove: a daemon knows us by the key we logged in with.
    pub(crate) identity: Option<std::sync::Arc<haul_net::Identity>>,
    /// Random name of this end of the session. Where this machine is the other end it goes by the same one.
    pub(crate) session: [u8; 16],
    /// How much will be sent to it, where that is known.
    pub(crate) foreseen: Foreseen,
    /// Lanes that are on their way already.
    pub(crate) early: Option<Early>,
    /// Where it may be reached.
    pub(crate) peer: PeerAddresses,
    /// Where its name leads, too, and where another host may be: several keys are known under the name.
    pub(crate) other_addresses: Vec<SocketAddr>,
    /// Ends the threads that bring its lanes.
    pub(crate) lead: Lead,
    pub(super) child: Option<SshChild>,
    pub(super) reached_at: Option<SocketAddr>,
    /// ssh reaches it by way of another host or program. An address of its name is then perhaps another host's here.
    pub(super) is_indirect: bool,
    /// What its name means to the resolver here will be told here, and is then kept beside it.
    pub(super) resolver: Option<Receiver<Vec<IpAddr>>>,
    pub(super) resolved: OnceCell<Vec<IpAddr>>,
}

/// What a far side is to do, and what the initiator knows of the two ends of the session and one end alone does not.
pub(crate) struct Assignment {
    pub(crate) peer_session: [u8; 16],
    pub(crate) peer_key: PublicKey,
    /// That key is our own: it may bring further links of the control channel.
    pub(crate) links: bool,
    /// Another job may follow on the session.
    pub(crate) stays: bool,
    pub(crate) role: Role,
    pub(crate) path: Option<KnownPath>,
    /// Of the smaller host.
    pub(crate) cpus: u16,
    /// Further hosts of the same end.
    pub(crate) others: u16,
}

impl Remote {
    pub(crate) fn meet(place: &Place, to: Stream, id: [u8; 16], events: Events, watch: &Watch) -> Result<Self, Error> {
        let channel = Channel::open(to, events.sender(), PING_EVERY)
            .map_err(|error| Error::new(Fault::FileIo, "cannot open the control channel").because(error))?;
        let hello = await_hello(&events, place, watch)?;
        Ok(Self::of(place, FarEnd::Said(hello), channel, id, events))
    }

    /// A daemon that has not said yet who it is.
    pub(super) fn presume(
        place: &Place,
        stream: Stream,
        session: [u8; 16],
        events: Events,
        later: Introduction,
    ) -> Result<Self, Error> {
        let channel = Channel::open(stream, events.sender(), PING_EVERY)
            .map_err(|error| Error::new(Fault::FileIo, "cannot open the control channel").because(error))?;
        Ok(Self::of(place, FarEnd::Presumed(later), channel, session, events))
    }

    fn of(place: &Place, far_end: FarEnd, channel: Channel, session: [u8; 16], events: Events) -> Self {
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
            lead: Lead::new(),
            child: None,
            reached_at: None,
            is_indirect: false,
            resolver: None,
            resolved: OnceCell::new(),
        }
    }

    pub(crate) fn key(&self) -> PublicKey {
        self.far_end.key()
    }

    /// Its host, for the report.
    pub(crate) fn host(&self) -> Host {
        self.far_end.host(&self.place)
    }

    /// Gives it its role. A sender also gets the list of `--files-from`; then this returns when most of the list has been taken.
    ///
    /// # Errors
    /// [`Fault::Usage`]: the job names more than a far side takes.
    pub(crate) fn start(&self, assigned: Assignment, job: &Job, hash_kept: bool, watch: &Watch) -> Result<(), Error> {
        let Assignment { peer_session, peer_key, links, stays, role, path, cpus, others } = assigned;
        let listed = job.selection.files_from.as_ref().filter(|_| matches!(role, Role::Sender { .. }));
        if listed.is_some_and(|list| list.weight_bytes() > MAX_LISTED_BYTES) {
            let mib = MAX_LISTED_BYTES >> 20;
            let what = format!("the list of --files-from is longer than a far side takes ({mib} MiB)");
            return Err(Error::new(Fault::Usage, what).try_this("copy directories whole, or in several parts"));
        }
        let selection = convert::selection(&job.selection, hash_kept);
        let carriage = convert::carriage(&job.carriage, &agreed_ciphers(&job.carriage, &self.far_end));
        let leads = matches!(role, Role::Sender { .. } | Role::Receiver { .. });
        let movers = if leads && !job.selection.dry_run { others } else { 0 };
        let mut carriage = control::Carriage { path, cpus, movers, ..carriage };
        if let (Role::SourceMover { .. }, Some(rate)) = (&role, &mut carriage.rate_bytes_per_s) {
            // The leader leaves as much of the rate to each of them.
            *rate = (*rate / (u64::from(others) + 1)).max(1);
        }
        let (session, peer_key) = (self.session, peer_key.0);
        let start = Start { session, peer_session, peer_key, links, stays, role, selection, carriage };
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
        if let Some(list) = listed {
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

    /// The address under which it was reached: of a daemon, the address that was dialled; else one that the resolver has for its
    /// name. Its own words choose among these only. A name that only ssh knows has no address, and neither has a host behind another one.
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

    /// The addresses that the resolver has for its name; none until the resolver has answered.
    fn resolved(&self) -> &[IpAddr] {
        if let Some(addresses) = self.resolver.as_ref().and_then(|resolver| resolver.try_recv().ok()) {
            // It answers once.
            let _ = self.resolved.set(addresses.iter().map(IpAddr::to_canonical).collect());
        }
        self.resolved.get().map_or(&[], Vec::as_slice)
    }

    /// What earlier jobs found of the path to it, before any lane has reached it.
    pub(crate) fn known_path(&self, paths: &KnownPaths, direction: Direction) -> Option<KnownPath> {
        paths.towards(self.address()?, direction)
    }

    /// Addresses for its lanes, best first: where ssh reached it, the addresses of its name, the addresses that it names itself.
    pub(crate) fn candidates(&self, family: Option<Family>) -> Vec<SocketAddr> {
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

    /// The addresses under which it may be reached, now and later.
    pub(crate) fn peer_addresses(&self) -> PeerAddresses {
        let reached = self.reached_at.map(|address| address.ip());
        self.peer.know(reached.into_iter().chain(self.resolved().iter().copied()));
        if let Some(hello) = self.far_end.said() {
            self.peer.tell(&hello.addresses);
        }
        self.peer.clone()
    }

    /// The address under which it saw us, then our own.
    pub(crate) fn our_addresses(&self) -> Vec<IpAddr> {
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

    /// Lanes inside further ssh sessions, when it was reached over ssh.
    pub(crate) fn ssh_lanes(&self, watch: &std::sync::Arc<Watch>) -> Option<SshLanes> {
        let (target, port) = self.ssh.clone().zip(self.far_end.relay_port())?;
        Some(SshLanes { target, port, watch: std::sync::Arc::clone(watch) })
    }

    /// Takes the process that has to be ended when the session is over.
    pub(crate) fn take_child(&mut self) -> Option<SshChild> {
        self.child.take()
    }
}

fn await_hello(events: &Events, place: &Place, watch: &Watch) -> Result<AgentHello, Error> {
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
            Some(SessionEvent::Control(other)) => return Err(crate::faults::unexpected(&other)),
            Some(lane) => early.push(lane),
            None if watch.interrupted() => return Err(watch.interruption()),
            None if Instant::now() < end => {}
            None => return Err(Error::new(Fault::Timeout, format!("{place} was reached, but does not answer"))),
        }
    }
}

/// The cipher asked for, or those that both processors do well. Of a peer that has not spoken nothing is presumed: our own
/// order holds, and it chooses.
pub(crate) fn agreed_ciphers(carriage: &Carriage, peer: &FarEnd) -> Vec<haul_net::Cipher> {
    let ours = ciphers(carriage);
    if carriage.cipher.is_none() && peer.said().is_some_and(|hello| !hello.fast_aes) {
        let (mut last, mut first): (Vec<_>, Vec<_>) =
            ours.into_iter().partition(|cipher| *cipher != haul_net::Cipher::Chacha20Poly1305);
        first.append(&mut last);
        return first;
    }
    ours
}

pub(super) fn ciphers(carriage: &Carriage) -> Vec<haul_net::Cipher> {
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
    use crate::kept::surroundings::Surroundings;
    use crate::kept::trusted_keys::KnownHosts;

    /// An agent reached over ssh that claims to be there, when the resolver here says so and so.
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
        let place = Place::Ssh { user: None, host: "dtn".into(), port: None };
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
        let place = Place::Haul { host: "dtn".into(), port: 7 };
        let key = PublicKey([1; 32]);
        let ssh = SshOptions { haul_known_hosts: Some("/nowhere".into()), ..SshOptions::default() };
        let known = Arc::new(KnownHosts::of(&ssh, &Surroundings::default()).unwrap());
        let later = Introduction::new(known, "dtn", 7, key);
        let remote = Remote::presume(&place, near, [0; 16], Events::new(), later).unwrap();
        let far_end = remote.far_end.clone();
        assert_eq!((remote.key(), far_end.port(), far_end.said()), (key, 7, None));
        // The rest stays unknown: its host, and a port for ssh sessions.
        assert_eq!((far_end.host(&place).cpus, far_end.relay_port()), (0, None));
        remote.channel.outbox().send(Control::EndOfManifest);
        // It has not said a word.
        let mut frame = [0; 4];
        std::io::Read::read_exact(&mut far, &mut frame).unwrap();
        // Until it does, an end is a refusal.
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
        // 10.0.0.5 behind one gate is another host than 10.0.0.5 behind another, and than 10.0.0.5 here.
        let mut behind = reached(ours, Some(&[ours]));
        behind.is_indirect = true;
        check(&behind, None);
        // It is a place to look for it, all the same.
        let candidates = reached(claimed, Some(&[ours])).candidates(None);
        assert_eq!(candidates, [SocketAddr::from((claimed, 7)), SocketAddr::from((ours, 7))]);
    }
}
