//! Tests that a closed session leaves no thread and no trap for the next. Its own process counts threads.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use haul_job::{Carriage, Endpoint, Event, Far, Here, Job, Observer, Place, Selection, SshOptions};
use haul_net::{Door, DoorOptions, Identity, KeyGreeter, Listener, PublicKey, Stream};
use haul_transfer::{Grant, LaneRendezvous, Ports, Surroundings, serve_control, trusted_keys};
use haul_wire::lane::Hello;

const PATIENCE: Duration = Duration::from_secs(60);

struct Quiet;

impl Observer for Quiet {
    fn on_event(&self, _: &Event) {}
}

fn far_side(root: &Path) -> (Door, PublicKey) {
    let identity = Arc::new(Identity::generate().unwrap());
    let listener = Listener::bind_to(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let (port, key, rendezvous) = (listener.port(), identity.public(), Arc::new(LaneRendezvous::default()));
    let (serves, root) = (Arc::clone(&identity), root.to_owned());
    let deliver = move |mut stream: Stream, key: PublicKey, _| match LaneRendezvous::read_hello(&mut stream) {
        Ok(Hello::Lane(hello)) => drop(rendezvous.deliver(stream, &key, hello)),
        Ok(Hello::Link { session }) => drop(rendezvous.deliver_link(stream, &key, session)),
        Ok(Hello::Control) => {
            stream.set_deadline(None).unwrap();
            let (serves, rendezvous) = (Arc::clone(&serves), Arc::clone(&rendezvous));
            let grant = Grant { root: Some(root.clone()), ..Grant::default() };
            std::thread::spawn(move || {
                let ports = Ports { open: port, ..Ports::default() };
                serve_control(stream, &serves, &rendezvous, ports, &grant, &Surroundings::default(), None)
            });
        }
        _ => panic!("nobody else comes"),
    };
    let greeter = KeyGreeter::for_any_key(identity, Arc::new(deliver));
    (Door::open(listener, greeter, &DoorOptions::default()).unwrap(), key)
}

fn threads() -> Vec<String> {
    let name = |task: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(task.ok()?.path().join("comm")).ok();
    let mut names: Vec<_> = std::fs::read_dir("/proc/self/task").unwrap().filter_map(name).collect();
    names.sort();
    names
}

#[test]
fn a_closed_session_leaves_no_thread_behind() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::create_dir(path("offered")).unwrap();
    for name in ["one", "two", "three"] {
        std::fs::write(path(name), name.repeat(1_000_000)).unwrap();
    }
    let (door, key) = far_side(&path("offered"));
    let (own, list) = (path("key"), path("known"));
    trusted_keys::generate_identity(&own, false).unwrap();
    trusted_keys::trust(&list, "127.0.0.1", door.port(), &key.to_string(), false).unwrap();
    let there = Far::Haul { host: "127.0.0.1".into(), port: door.port() };
    let job = |name: &str, to: &str| Job {
        movers: Vec::new(),
        files_from: None,
        sources: vec![Endpoint {
            place: Place::Here(Here::Disk),
            path: path(name).into_os_string().into_encoded_bytes(),
        }],
        target: Endpoint { place: there.clone().into(), path: to.as_bytes().to_vec() },
        selection: Selection::default(),
        carriage: Carriage::default(),
        ssh: SshOptions {
            haul_identity: Some(own.clone()),
            haul_known_hosts: Some(list.clone()),
            ..SshOptions::default()
        },
    };
    let session = |round: &str| {
        let surroundings = Surroundings::default();
        let jobs = ["one", "two", "three"].map(|name| (name, job(name, &format!("{name}-{round}"))));
        let mut session = haul_transfer::open(&jobs[0].1, &surroundings, Arc::new(Quiet)).unwrap();
        for (name, job) in &jobs {
            assert!(session.takes(job));
            assert_eq!(session.run(job, Arc::new(Quiet)).unwrap().files_moved, 1, "{name} {round}");
            let copied = std::fs::read(path("offered").join(format!("{name}-{round}"))).unwrap();
            assert!(copied == name.repeat(1_000_000).into_bytes());
        }
        session.close();
    };
    // The first session begins the threads of the process.
    session("first");
    let settled = |before: &dyn Fn(&[String]) -> bool| {
        let begun = Instant::now();
        loop {
            let now = threads();
            if before(&now) || begun.elapsed() > PATIENCE {
                return now;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let is_of_session = |name: &String| {
        ["lane-", "control", "job", "walk", "settle", "dial", "greeting"].iter().any(|of| name.starts_with(of))
    };
    let before = settled(&|now: &[String]| !now.iter().any(is_of_session));
    assert!(!before.iter().any(is_of_session), "{before:?}");
    session("second");
    let after = settled(&|now: &[String]| now.len() <= before.len());
    assert!(after.len() <= before.len(), "{before:?} {after:?}");
}
