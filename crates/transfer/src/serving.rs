//! Serves the far side of a session: takes its role from the initiator and carries it out.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use haul_job::{AskedPaths, Error, Fault, Transport};
use haul_net::{Identity, PublicKey, Stream};
use haul_wire::control::{Address, AgentHello, Control, Start};

use crate::far_dialler::{Allowed, FarDialler, FarKeeper};
use crate::far_jobs::FarJobs;
use crate::far_limits::{LONGEST_LOGIN, bounded};
use crate::far_role::Served;
use haul_channel::channel::{self, Channel, Events, PING_EVERY, SessionEvent};
use haul_channel::clock::START_DEADLINE;
use haul_channel::foreseen::Foreseen;
use haul_channel::grant::{Grant, Visit};
use haul_channel::host_facts::cpus;
use haul_channel::reporter::Watch;
use haul_channel::{convert, farewell};
use haul_copy::rights;
use haul_govern::hooks::{self, Hooks};
use haul_kept::class_policy::{Permits, Sending};
use haul_kept::faults;
use haul_kept::network_classes;
use haul_kept::surroundings::Surroundings;
use haul_kept::sync::lock;
use haul_reach::attach::{self, LinkDialler};
use haul_reach::dial_threads::DialThreadsOwner;
use haul_reach::lane_terms::LaneTerms;
use haul_reach::paths::{PeerAddresses, own_addresses, tell_changes, way_of};

pub use haul_reach::lane_rendezvous::LaneRendezvous;

/// Each dial takes a thread. An initiator asks at most twice: to reach another host, and to reach itself.
const MAX_DIALS: u32 = 4;

/// A far side's ports for lanes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// The port for other hosts; 0: none.
    pub open: u16,
    /// The port for ssh sessions on this host; 0: none.
    pub relay: u16,
    /// The addresses to name to peers, and to dial from.
    pub paths: AskedPaths,
}

/// Makes the far side's greeting.
pub fn hello(identity: &Identity, ports: &Ports, grant: &Grant, surroundings: &Surroundings) -> AgentHello {
    // A daemon that was started from an ssh session has the operator's address here.
    let ssh = surroundings.ssh_connection.as_deref().filter(|_| !grant.is_of_daemon()).unwrap_or_default();
    let mut words = ssh.split(' ');
    let ssh_client = words.next().and_then(|word| word.parse().ok()).map(convert::address);
    let ssh_server = words.nth(1).and_then(|word| word.parse().ok()).map(convert::address);
    AgentHello {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        key: identity.public().0,
        port: ports.open,
        relay_port: ports.relay,
        addresses: named_addresses(&ports.paths),
        ssh_server,
        ssh_client,
        cpus: cpus(),
        limits: convert::host_limits(haul_net::host::limits()),
        fast_aes: haul_net::preferred_ciphers(None).first() == Some(&haul_net::Cipher::Aes128Gcm),
    }
}

/// The peer knows the address of one path.
fn named_addresses(paths: &AskedPaths) -> Vec<Address> {
    if *paths == AskedPaths::One { Vec::new() } else { own_addresses(paths) }
}

/// Serves one initiator. Lanes arrive at `rendezvous`, whose listener has `port`.
pub fn serve_control(
    stream: Stream,
    identity: &Arc<Identity>,
    rendezvous: &Arc<LaneRendezvous>,
    ports: Ports,
    grant: &Grant,
    surroundings: &Surroundings,
    visit: Option<Arc<dyn Visit>>,
) -> Result<(), Error> {
    let awaited = rendezvous.await_session();
    let is_from_here = stream.peer_addr().is_none_or(|peer| peer.ip().to_canonical().is_loopback());
    // The rights still allow it.
    let sending = Sending { user: grant.user.clone(), key: grant.key };
    let permits = Permits::of(&surroundings.policy_files, surroundings.state.as_deref(), sending);
    // A wrong file is a matter for the daemon's log, not for this session.
    let policies = network_classes::policies(&surroundings.network_files).unwrap_or_default();
    let hooks = permits.hooks().and_then(|_| Hooks::begin(surroundings));
    hooks::give_back_what_is_left(surroundings);
    let served = Served { surroundings, permits, hooks };
    // The threads of the session inherit the rights.
    let entered = rights::enter(grant, visit.as_deref());
    let events = Events::new();
    let channel = Channel::open(stream, events.sender(), PING_EVERY)
        .map_err(|error| Error::new(Fault::Protocol, "cannot open the control channel").because(error))?;
    channel.let_peer_leave_first();
    channel.outbox().send(Control::AgentHello(hello(identity, &ports, grant, surroundings)));
    let start = match entered.and_then(|()| await_start(&events, &channel, grant.is_of_daemon())) {
        Ok(start) => bounded(start),
        Err(error) => {
            farewell::abort(&channel, &error);
            return Err(error);
        }
    };
    if start.carriage.clear && !grant.clear {
        let error = Error::new(Fault::Authentication, "the daemon encrypts all data connections of this key")
            .try_this("leave --cipher none out, or ask its operator for `clear` beside your key");
        farewell::abort(&channel, &error);
        return Err(error);
    }
    let ciphers = convert::ciphers(&start.carriage.ciphers);
    let dial_owner = DialThreadsOwner::new();
    dial_owner.threads().tune_by(policies);
    let terms = LaneTerms {
        first_mark: None,
        session: start.peer_session,
        identity: Arc::clone(identity),
        peer_key: PublicKey(start.peer_key),
        ciphers,
        carriage: start.carriage.clone(),
        way: way_of(&ports.paths, Transport::Tcp),
        memory: None,
        foreseen: Foreseen::default(),
        events: events.sender(),
        dial_threads: dial_owner.threads(),
    };
    let (wanted, clear) = (convert::wanted(&terms.carriage), terms.carriage.clear);
    let expecting = rendezvous
        .expect(start.session, terms.peer_key, events.sender(), wanted, clear)
        .inspect_err(|error| farewell::abort(&channel, error))?;
    drop(awaited);
    let paths = Arc::new(Mutex::new(None));
    let peer = PeerAddresses::default();
    let watch = Arc::new(visit.clone().map_or_else(Watch::silent, Watch::serving));
    let links = Arc::new(Mutex::new(None));
    if start.links {
        expecting.takes_links(terms.peer_key, &channel);
        let (links, watch): (Arc<Mutex<Option<LinkDialler>>>, _) = (Arc::clone(&links), Arc::clone(&watch));
        let dialler =
            move || lock(&links).clone().map(|links| links.towards(watch.addresses_of(0).map(|ends| ends.peer)));
        let _ = attach::keep(&channel, &dial_owner.threads(), dialler);
    }
    let mut dials = 0;
    let mut keeper = FarKeeper(Arc::clone(&paths));
    let allowed = match grant.is_of_daemon() {
        true if is_from_here => Allowed::ClientHere,
        true => Allowed::Client,
        false => Allowed::User,
    };
    let mut on_other_message = |message: Control| match message {
        Control::Dial(request) if dials < MAX_DIALS => {
            dials += 1;
            let (terms, paths, links) = (terms.clone(), Arc::clone(&paths), Arc::clone(&links));
            let (peer, channel, visit) = (peer.clone(), channel.clone(), visit.clone());
            let asked = if request.several_paths { ports.paths.clone() } else { AskedPaths::One };
            let started = dial_owner.threads().start("dial".into(), move || {
                let dialler = FarDialler {
                    terms: &terms,
                    allowed: &allowed,
                    asked: &asked,
                    visit: visit.as_ref(),
                    paths: &paths,
                    links: &links,
                    peer: &peer,
                    channel: &channel,
                };
                channel.outbox().send(dialler.answer(&request));
            });
            started.map_err(|error| Error::new(Fault::FileIo, "cannot start a thread").because(error))
        }
        Control::Addresses(addresses) => {
            peer.tell(&addresses);
            Ok(())
        }
        Control::Admit { key } if expecting.also(PublicKey(key)) => Ok(()),
        other => Err(faults::unexpected(&other)),
    };
    if ports.paths != AskedPaths::One {
        tell_changes(&dial_owner.threads(), channel.outbox(), ports.paths.clone());
    }
    let grant = grant.clone();
    let visit = visit.as_ref();
    let (keeper, on_other_message) = (&mut keeper, &mut on_other_message);
    FarJobs { grant, served: &served, visit, events, channel: &channel, watch: &watch, keeper, on_other_message }
        .run(start)
}

fn is_given_up(waited: Duration, silence: Duration, of_daemon: bool) -> bool {
    let longest = if of_daemon { START_DEADLINE } else { LONGEST_LOGIN };
    waited > longest || silence > START_DEADLINE
}

fn await_start(events: &Events, channel: &Channel, of_daemon: bool) -> Result<Start, Error> {
    let begun = Instant::now();
    loop {
        match events.next(PING_EVERY) {
            Some(SessionEvent::Control(Control::Start(start))) => return Ok(*start),
            Some(SessionEvent::Control(Control::Abort(abort))) => return Err(convert::error_of(abort)),
            Some(SessionEvent::Control(other)) => return Err(faults::unexpected(&other)),
            Some(SessionEvent::ControlEnded(why)) => return Err(channel::ended(why)),
            Some(_) | None => {}
        }
        if is_given_up(begun.elapsed(), channel.silence(), of_daemon) {
            return Err(Error::new(Fault::Timeout, "the initiator did not say what it wants"));
        }
    }
}

#[cfg(test)]
mod tests {
    use haul_job::AskedPath;

    use super::*;

    #[test]
    fn a_far_side_names_the_addresses_that_it_is_set_to() {
        let all = named_addresses(&AskedPaths::Auto);
        assert_eq!(named_addresses(&AskedPaths::One), []);
        let Some(first) = all.first().copied() else { return };
        let list = |path| AskedPaths::List(vec![path]);
        // A host with loopback only names an address that is no interface for paths.
        let of_one = named_addresses(&list(AskedPath::Local(convert::ip(first))));
        assert!(of_one == [first] || convert::ip(first).is_loopback(), "{of_one:?}");
        assert_eq!(named_addresses(&list(AskedPath::Interface("no-such-0".into()))), []);
    }

    #[test]
    fn an_agent_waits_for_a_long_login_at_the_other_host_and_a_daemon_does_not() {
        let check = |waited, silence, of_daemon, expected| {
            let [waited, silence] = [waited, silence].map(Duration::from_secs);
            assert_eq!(is_given_up(waited, silence, of_daemon), expected, "{waited:?} {silence:?} {of_daemon}");
        };
        for of_daemon in [false, true] {
            check(60, 2, of_daemon, false);
            check(61, 61, of_daemon, true);
        }
        check(61, 2, true, true);
        check(3600, 2, false, false);
        check(25 * 3600, 2, false, true);
    }
}
