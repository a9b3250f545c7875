//! Reaches a daemon.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use haul_engine::plan;
use haul_job::{AskedPaths, Error, Event, Far, Fault, Job};
use haul_net::{NetError, PublicKey, Way, dial};

use crate::dial_threads::{DialThreads, DialThreadsOwner};
use crate::early_lanes::Early;
use crate::far_end::Introduction;
use crate::lane_terms::{LaneTerms, Memory};
use crate::paths::{self, Wish, first_way, names_remote};
use crate::remote::{Remote, ciphers, net_family};
use haul_channel::channel::Events;
use haul_channel::clock::TICK;
use haul_channel::foreseen::Foreseen;
use haul_channel::reporter::Watch;
use haul_channel::{convert, host_facts, id};
use haul_kept::faults;
use haul_kept::known_paths::{Direction, KnownPaths};
use haul_kept::network_classes;
use haul_kept::surroundings::Surroundings;

const CONNECT_DEADLINE: Duration = Duration::from_secs(10);

/// Tries again after a hang-up: 0.75 + 1.5 + 3 + 6 = 11.25 s. Strangers may stay at a door for 10 s.
const KNOCK_PAUSE: Duration = Duration::from_millis(750);

const LAST_KNOCK_PAUSE: Duration = Duration::from_secs(6);

/// The daemon to reach.
pub struct Wanted<'a> {
    /// The name, as typed.
    pub host: &'a str,
    /// The port.
    pub port: u16,
    /// The only address to reach. With this key, the daemon is reached already.
    pub only: Option<(SocketAddr, PublicKey)>,
    /// Whether this key was proved.
    pub is_same: Cell<bool>,
}

/// Connects to a daemon and opens the control channel.
pub fn connect_daemon(
    place: &Far,
    wanted: &Wanted<'_>,
    job: &Job,
    surroundings: &Surroundings,
    watch: &Watch,
    direction: Option<Direction>,
    foreseen: &Foreseen,
) -> Result<Remote, Error> {
    let dial_owner = DialThreadsOwner::new();
    dial_owner.threads().tune_by(network_classes::policies(&surroundings.network_files)?);
    let (session, events) = (id::random_id()?, Events::new());
    let keys = haul_kept::trusted_keys::ClientKeys::load(&job.ssh, surroundings)?;
    let Wanted { host, port, only, .. } = *wanted;
    let (name, family) = (host.to_owned(), job.carriage.family.map(net_family));
    let addresses = match only {
        Some((address, _)) => vec![address],
        None => watched(watch, None, "resolve", move || dial::resolve(&name, port, family))?
            .map_err(|error| faults::net_error(&error).try_this("check the spelling of the host"))?,
    };
    let mut known = keys.known.expected(host, port);
    if let (Some(known), Some((_, reached))) = (&mut known, only) {
        known.retain(|key| *key != reached);
    }
    let ciphers = ciphers(&job.carriage);
    // With exactly one known key, lanes may be dialled before the daemon has spoken.
    let key = known.as_deref().and_then(|known| <[PublicKey; 1]>::try_from(known).ok()).map(|[key]| key);
    let may_presume = !job.selection.dry_run && !names_remote(&job.carriage);
    let mut early = match (direction.filter(|_| may_presume), key, addresses.first()) {
        (Some(direction), Some(peer_key), Some(presumed)) => {
            let terms = LaneTerms {
                first_mark: None,
                session,
                identity: Arc::clone(&keys.identity),
                peer_key,
                ciphers: ciphers.clone(),
                carriage: convert::carriage(job, &[]),
                way: first_way(&job.carriage),
                memory: Some(Memory { paths: KnownPaths::of(surroundings), direction }),
                foreseen: foreseen.clone(),
                events: events.sender(),
                dial_threads: dial_owner.threads(),
            };
            let remotes = addresses.iter().map(|address| address.ip().to_canonical()).collect();
            let wish = Wish { asked: paths::asked(&job.carriage), remotes };
            Early::start(terms, *presumed, host_facts::cpus(), wish)
        }
        _ => None,
    };
    let mut pause = KNOCK_PAUSE;
    let (mut stream, reached_at) = loop {
        let (candidates, dial_threads) = (addresses.clone(), dial_owner.threads());
        let (dialled, after) = watched(watch, Some(&dial_owner.threads()), "dial", move || {
            let start = Instant::now();
            (
                dial::dial(
                    &candidates,
                    CONNECT_DEADLINE,
                    &dial_threads.policies(),
                    &Way::default(),
                    dial_threads.cancel(),
                ),
                start.elapsed(),
            )
        })?;
        let socket = dialled.map_err(|error| {
            faults::net_error(&error).try_this(format!("is `haul serve` running on {host}, and port {port} open?"))
        })?;
        dial_owner.threads().policies().for_words(&socket, plan::NEAR_RTT_US);
        let reached_at = socket.peer_addr().ok();
        early = early.zip(reached_at).and_then(|(early, address)| early.reached(address, after));
        let (expected, identity, offered) = (known.clone(), Arc::clone(&keys.identity), ciphers.clone());
        let expects = move |key: &PublicKey| expected.as_ref().is_some_and(|expected| expected.contains(key));
        let dial_threads = dial_owner.threads();
        let shake = move || {
            let _watched = dial_threads.watches(&socket);
            haul_net::client(socket, &identity, expects, &offered)
        };
        let shaken = watched(watch, Some(&dial_owner.threads()), "shake hands", shake)?;
        match shaken {
            Ok((stream, _)) => break (stream, reached_at),
            // Strangers leave a full door when their time is over.
            Err(NetError::HungUp) if pause <= LAST_KNOCK_PAUSE => {
                watch.tell(&Event::Warning { text: format!("{place} has no room for us yet; trying again") });
                rest(watch, pause)?;
                pause *= 2;
            }
            Err(error) => {
                if let (NetError::WrongKey { got }, Some((_, reached))) = (&error, only) {
                    wanted.is_same.set(*got == reached);
                }
                return Err(keys.known.explain(host, port, known.as_deref(), &error));
            }
        }
    };
    let hello = haul_wire::lane::Hello::Control.encode();
    std::io::Write::write_all(&mut stream, &hello)
        .and_then(|()| std::io::Write::flush(&mut stream))
        .map_err(|error| Error::new(Fault::Network, format!("{place} does not answer")).because(error))?;
    // A daemon judges our key last, so its refusal is its first message.
    let may_be_several = known.is_some_and(|known| known.len() > 1);
    let known = Arc::new(keys.known);
    let mut remote = match key.filter(|_| early.is_some()) {
        None => Remote::meet(place, stream, session, events, watch)
            .map_err(|error| known.explain_refusal(host, port, error))?,
        // The daemon has proved its key, and lanes are on their way: its first words are not awaited.
        Some(key) => {
            let introduction = Introduction::new(known, host, port, key);
            Remote::presume(place, stream, session, events, introduction)?
        }
    };
    remote.identity = Some(keys.identity);
    remote.peer.know(addresses.iter().map(|address| address.ip().to_canonical()));
    // One key means one host: its other addresses are paths to it.
    if may_be_several && job.carriage.paths != AskedPaths::One {
        let others = addresses.iter().filter(|address| Some(**address) != reached_at);
        remote.other_addresses = others.copied().collect();
    }
    remote.reached_at = reached_at;
    remote.early = early;
    remote.dial_owner = dial_owner;
    Ok(remote)
}

/// Runs slow work in a thread that an interruption leaves. The system's resolver cannot be interrupted: its own bounds end the
/// thread.
fn watched<T: Send + 'static>(
    watch: &Watch,
    dial_threads: Option<&DialThreads>,
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    let (sender, brought) = sync_channel(1);
    let run = move || {
        let _ = sender.send(run());
    };
    let started = match dial_threads {
        Some(dial_threads) => dial_threads.start(name.to_owned(), run),
        None => std::thread::Builder::new().name(name.to_owned()).spawn(run).map(drop),
    };
    started.map_err(|error| Error::new(Fault::FileIo, "cannot start a thread").because(error))?;
    loop {
        match brought.recv_timeout(TICK) {
            Ok(brought) => return Ok(brought),
            Err(RecvTimeoutError::Timeout) if watch.interrupted() => return Err(watch.interruption()),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::new(Fault::Network, format!("the thread broke that was to {name}")));
            }
        }
    }
}

/// Pauses, unless the user interrupts.
pub fn rest(watch: &Watch, pause: Duration) -> Result<(), Error> {
    let end = Instant::now() + pause;
    loop {
        if watch.interrupted() {
            return Err(watch.interruption());
        }
        match end.saturating_duration_since(Instant::now()) {
            Duration::ZERO => return Ok(()),
            left => std::thread::sleep(left.min(TICK)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, OnceLock};

    use haul_job::{Carriage, Endpoint, Here, Place, Selection, SshOptions};
    use haul_net::Stream;
    use haul_wire::lane::Hello;

    use super::*;
    use crate::connect::connect;
    use crate::lane_rendezvous::LaneRendezvous;
    use haul_channel::farewell;

    fn told_by(deliver: impl Fn(Stream) + Send + Sync + 'static) -> Error {
        let daemon = Arc::new(haul_net::Identity::generate().unwrap());
        let listener = haul_net::Listener::bind_to(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let (port, key) = (listener.port(), daemon.public());
        let greeter = haul_net::KeyGreeter::for_any_key(daemon, Arc::new(move |stream, _, _| deliver(stream)));
        let _door = haul_net::Door::open(listener, greeter, &haul_net::DoorOptions::default()).unwrap();
        knock(port, &key, &Watch::silent())
    }

    fn knock(port: u16, key: &PublicKey, watch: &Watch) -> Error {
        let dir = tempfile::tempdir().unwrap();
        let (own, list) = (dir.path().join("key"), dir.path().join("known_hosts"));
        haul_kept::trusted_keys::generate_identity(&own, false).unwrap();
        let far = Far::Haul { host: "127.0.0.1".into(), port };
        haul_kept::trusted_keys::trust(&list, "127.0.0.1", port, &key.to_string(), false).unwrap();
        let endpoint = |place: Place| Endpoint { place, path: b".".to_vec() };
        let ssh = SshOptions { haul_identity: Some(own), haul_known_hosts: Some(list), ..SshOptions::default() };
        let job = Job {
            movers: Vec::new(),
            files_from: None,
            sources: vec![endpoint(Here::Disk.into())],
            target: endpoint(far.clone().into()),
            selection: Selection::default(),
            carriage: Carriage::default(),
            ssh,
        };
        match connect(&far, &job, &Surroundings::default(), watch, None, Foreseen::default()) {
            Ok(_) => panic!("it let us in"),
            Err(error) => error,
        }
    }

    #[derive(Default)]
    struct Impatient(OnceLock<Instant>);

    impl Impatient {
        fn has_enough(&self) {
            let _ = self.0.set(Instant::now());
        }

        fn ends(self: &Arc<Self>, port: u16, key: &PublicKey) {
            let error = knock(port, key, &Watch::new(Arc::<Self>::clone(self)));
            assert_eq!(error.fault, Fault::Interrupted, "{error:?}");
            let waited = self.0.get().expect("it was told").elapsed();
            assert!(waited < Duration::from_secs(5), "it went on for {waited:?}");
        }
    }

    impl haul_job::Observer for Impatient {
        fn on_event(&self, event: &Event) {
            if let Event::Warning { .. } = event {
                self.has_enough();
            }
        }

        fn interrupted(&self) -> bool {
            self.0.get().is_some()
        }
    }

    #[test]
    fn who_interrupts_while_a_daemon_is_being_reached_does_not_wait_for_it() {
        let key = haul_net::Identity::generate().unwrap().public();
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let (listener, person) = (std::net::TcpListener::bind(loopback).unwrap(), Arc::new(Impatient::default()));
        let port = listener.local_addr().unwrap().port();
        let told = Arc::clone(&person);
        let silent = std::thread::spawn(move || {
            let came = listener.accept().unwrap();
            told.has_enough();
            came
        });
        person.ends(port, &key);
        drop(silent.join().unwrap());

        let (listener, person) = (std::net::TcpListener::bind(loopback).unwrap(), Arc::new(Impatient::default()));
        let port = listener.local_addr().unwrap().port();
        let full = std::thread::spawn(move || drop(listener.accept().unwrap()));
        person.ends(port, &key);
        full.join().unwrap();

        let daemon = Arc::new(haul_net::Identity::generate().unwrap());
        let (listener, person) = (haul_net::Listener::bind_to(loopback).unwrap(), Arc::new(Impatient::default()));
        let (port, key) = (listener.port(), daemon.public());
        let (told, kept) = (Arc::clone(&person), std::sync::Mutex::new(Vec::new()));
        let deliver = move |stream: Stream, _, _| {
            kept.lock().unwrap().push(stream);
            told.has_enough();
        };
        let greeter = haul_net::KeyGreeter::for_any_key(daemon, Arc::new(deliver));
        let _door = haul_net::Door::open(listener, greeter, &haul_net::DoorOptions::default()).unwrap();
        person.ends(port, &key);
    }

    #[test]
    fn a_daemon_of_another_version_is_named_as_such() {
        let error = told_by(|mut stream| {
            let mut greeting = [0; 26];
            std::io::Read::read_exact(&mut stream, &mut greeting).unwrap();
            assert!(greeting.starts_with(format!("haulctl{}", haul_wire::PROTOCOL_VERSION).as_bytes()), "{greeting:?}");
        });
        assert_eq!((error.fault, error.cause.unwrap().contains("older version")), (Fault::Network, true));
        let error = told_by(|mut stream| {
            assert_eq!(LaneRendezvous::read_hello(&mut stream).unwrap(), Hello::Control);
            farewell::turn_away_version(stream, haul_wire::PROTOCOL_VERSION);
        });
        assert_eq!((error.fault, error.far), (Fault::Protocol, true));
        assert_eq!(error.what, "the daemon speaks another version of the protocol");
    }
}
