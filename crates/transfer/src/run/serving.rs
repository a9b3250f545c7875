//! The far side of a session: takes its role from the initiator and carries it out.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use haul_job::{AskedPaths, Error, Fault, Transport};
use haul_net::{Identity, PublicKey, Stream};
use haul_wire::control::{Address, AgentHello, Control, Start};

use crate::faults;
use crate::kept::class_policy::{Permits, Sending};
use crate::kept::network_classes;
use crate::kept::surroundings::Surroundings;
use crate::reach::attach::{self, LinkDialler};
use crate::reach::crew::Lead;
use crate::reach::lane_terms::LaneTerms;
use crate::reach::paths::{PeerAddresses, own_addresses, tell_changes, way_of};
use crate::run::far_dialler::{Allowed, FarDialler, FarKeeper};
use crate::run::far_jobs::FarJobs;
use crate::run::far_limits::{LONGEST_LOGIN, bounded};
use crate::run::far_role::Served;
use crate::session::channel::{self, Channel, Events, PING_EVERY, SessionEvent};
use crate::session::clock::START_DEADLINE;
use crate::session::foreseen::Foreseen;
use crate::session::grant::{Grant, Visit};
use crate::session::hooks::{self, Hooks};
use crate::session::host_facts::cpus;
use crate::session::reporter::Watch;
use crate::session::{convert, farewell, rights};
use crate::sync::lock;

pub use crate::reach::desk::Desk;

/// Each dial takes a thread. An initiator asks at most twice: to reach another host, and to reach itself.
const MAX_DIALS: u32 = 4;

/// Where the lanes of a far side arrive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// For other hosts; 0 when there is none that they may use.
    pub open: u16,
    /// For ssh sessions on this host; 0 when there is none.
    pub relay: u16,
    /// Which of its addresses the far side names to its peers, and dials from when they ask for it.
    pub paths: AskedPaths,
}

/// What the far side says about itself.
pub(crate) fn hello(identity: &Identity, ports: &Ports, grant: &Grant, surroundings: &Surroundings) -> AgentHello {
    // In a daemon that was started from an ssh session it would be the operator's, and no business of a peer.
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

/// A far side that shall have one path names no address: its peer knows one.
fn named_addresses(paths: &AskedPaths) -> Vec<Address> {
    if *paths == AskedPaths::One { Vec::new() } else { own_addresses(paths) }
}

/// Serves one initiator on a control channel to its end. Lanes arrive at `desk`, whose listener has `port`.
pub fn serve_control(
    stream: Stream,
    identity: &Arc<Identity>,
    desk: &Arc<Desk>,
    ports: Ports,
    grant: &Grant,
    surroundings: &Surroundings,
    visit: Option<Arc<dyn Visit>>,
) -> Result<(), Error> {
    let awaited = desk.await_session();
    let is_from_here = stream.peer_addr().is_none_or(|peer| peer.ip().to_canonical().is_loopback());
    // What may be asked of networks is read while it can be.
    let sending = Sending { user: grant.user.clone(), key: grant.key };
    let permits = Permits::of(&surroundings.policy_files, surroundings.state.as_deref(), sending);
    // A file that became wrong is a matter for the log of the daemon, not for this session.
    let policies = network_classes::policies(&surroundings.network_files).unwrap_or_default();
    let hooks = permits.hooks().and_then(|_| Hooks::begin(surroundings));
    hooks::give_back_what_is_left(surroundings);
    let served = Served { surroundings, permits, hooks };
    // First: the threads of the session inherit it.
    let entered = rights::enter(grant, visit.as_deref());
    let events = Events::new();
    let channel = Channel::open(stream, events.sender(), PING_EVERY)
        .map_err(|error| Error::new(Fault::Protocol, "cannot open the control channel").because(error))?;
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
    let lead = Lead::new();
    lead.crew().tune_by(policies);
    let terms = LaneTerms {
        first_mark: None,
        session: start.peer_session,
        identity: Arc::clone(identity),
        peer_key: PublicKey(start.peer_key),
        ciphers,
        carriage: start.carriage.clone(),
        way: way_of(&ports.paths, Transport::Tcp),
        // What is known of the path is the initiator's to say.
        memory: None,
        foreseen: Foreseen::default(),
        events: events.sender(),
        crew: lead.crew(),
    };
    let (wanted, clear) = (convert::wanted(&terms.carriage), terms.carriage.clear);
    let expecting = desk
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
        // Without the thread the loss of the channel is the end of the session.
        let _ = attach::keep(&channel, &lead.crew(), dialler);
    }
    let mut dials = 0;
    let mut keeper = FarKeeper(Arc::clone(&paths));
    let allowed = match grant.is_of_daemon() {
        true if is_from_here => Allowed::ClientHere,
        true => Allowed::Client,
        false => Allowed::User,
    };
    let mut aside = |message: Control| match message {
        Control::Dial(request) if dials < MAX_DIALS => {
            dials += 1;
            let (terms, paths, links) = (terms.clone(), Arc::clone(&paths), Arc::clone(&links));
            let (peer, channel, visit) = (peer.clone(), channel.clone(), visit.clone());
            let asked = if request.several_paths { ports.paths.clone() } else { AskedPaths::One };
            let started = lead.crew().start("dial".into(), move || {
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
        tell_changes(&lead.crew(), channel.outbox(), ports.paths.clone());
    }
    let grant = grant.clone();
    let visit = visit.as_ref();
    let (keeper, aside) = (&mut keeper, &mut aside);
    FarJobs { grant, served: &served, visit, events, channel: &channel, watch: &watch, keeper, aside }.run(start)
}

/// Whether to give up an initiator that has not said what it wants. It was `waited` for, and completely silent for `silence`. An
/// agent ends with its ssh in any case.
fn is_given_up(waited: Duration, silence: Duration, of_daemon: bool) -> bool {
    let longest = if of_daemon { START_DEADLINE } else { LONGEST_LOGIN };
    waited > longest || silence > START_DEADLINE
}

fn await_start(events: &Events, channel: &Channel, of_daemon: bool) -> Result<Start, Error> {
    let begun = Instant::now();
    loop {
        // Often enough to find a silence.
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
        // Where there is nothing but loopback, an address of that is named, which is no interface for paths.
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
