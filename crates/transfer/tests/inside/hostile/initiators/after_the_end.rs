//! Tests what a far side still does after its session: a dial ends with it, and a walk counts for it and soon ends.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Weak;
use std::sync::mpsc::{Receiver, sync_channel};

use haul_sys::condition::unmet;
use haul_sys::intercept::{Call, Verdict, Watcher, watch_this_thread};
use haul_wire::control::{Abort, AbortFault};
use haul_wire::limits::BLOCK_BYTES;

use haul_kept::surroundings::Surroundings;

use super::*;

struct Guest;

impl Observer for Guest {
    fn on_event(&self, _: &Event) {}
}

impl Visit for Guest {
    fn on_root(&self, _: BorrowedFd<'_>, _: u32) -> Result<(), Error> {
        Ok(())
    }

    fn on_unfenced(&self, _: &str) {}

    fn on_role(&self, _: &Role) {}

    fn on_path(&self, _: u16, _: IpAddr, _: IpAddr) {}

    fn on_path_gone(&self, _: u16) {}

    fn on_refused(&self, _: &str) {}

    fn on_list(&self, _: usize) -> bool {
        true
    }

    fn on_job_end(&self, _: Option<&Error>) {}

    fn next_job(&self) -> Result<Grant, Error> {
        Err(Error::new(Fault::Authentication, "there is one job"))
    }
}

fn far_side_of(
    dir: &tempfile::TempDir,
    role: Role,
    selection: wire::Selection,
    calls: &'static [Call],
) -> (Peer, Weak<Guest>, Receiver<std::io::Result<Watcher>>) {
    let (ours, theirs) = Stream::plain_pair().unwrap();
    let (lane, _) = Stream::plain_pair().unwrap();
    let guest = Arc::new(Guest);
    let counted = Arc::downgrade(&guest);
    let (sender, watcher) = sync_channel(1);
    let grant = Grant { root: Some(dir.path().to_owned()), ..Grant::default() };
    let end = std::thread::spawn(move || {
        sender.send(watch_this_thread(calls)).unwrap();
        let identity = Arc::new(Identity::generate().unwrap());
        serving::serve_control(
            theirs,
            &identity,
            &Arc::default(),
            Ports::default(),
            &grant,
            &Surroundings::default(),
            Some(guest),
        )
    });
    let (input, control) = ours.split();
    let mut peer = Peer::new(control, heard(input), lane, end);
    peer.says(&Control::Start(Box::new(Start {
        session: [3; 16],
        peer_session: [5; 16],
        peer_key: [4; 32],
        links: false,
        stays: false,
        job: 1,
        role,
        selection,
        listed: wire::Listed::Nothing,
        hash_kept: false,
        carriage: wire::Carriage { ciphers: vec![1], ..carriage(20_000) },
    })));
    (peer, counted, watcher)
}

fn enough() -> Control {
    Control::Abort(Abort { fault: AbortFault::Interrupted, what: "enough".into(), cause: None, hint: None })
}

#[test]
fn a_walk_that_hashes_a_file_counts_for_its_session_and_ends_within_a_block() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("large"), vec![7; 20 * BLOCK_BYTES]).unwrap();
    let selection = wire::Selection { checksum: true, ..bare() };
    let role = Role::Sender { sources: vec![b"large".to_vec()] };
    let (mut peer, counted, watcher) = far_side_of(&dir, role, selection, &[Call::Read]);
    let watcher = match watcher.recv().unwrap() {
        Ok(watcher) => watcher,
        Err(error) => return unmet(format_args!("this host does not let us watch system calls: {error}")),
    };
    let begun = Instant::now();
    let read = loop {
        assert!(begun.elapsed() < PATIENCE && !peer.end.is_finished(), "it never reads the file");
        let Some(stopped) = watcher.next(Duration::from_millis(20)).unwrap() else { continue };
        if stopped.file().ends_with("large") {
            break stopped;
        }
        watcher.answer(stopped, Verdict::Proceed).unwrap();
    };
    peer.says(&enough());
    peer.ended().unwrap_err();
    assert!(counted.strong_count() > 0, "it still reads");
    watcher.answer(read, Verdict::Proceed).unwrap();
    let (begun, mut more) = (Instant::now(), 0);
    while counted.strong_count() > 0 {
        assert!(begun.elapsed() < PATIENCE, "it never ends");
        if let Some(stopped) = watcher.next(Duration::from_millis(20)).unwrap() {
            more += 1;
            watcher.answer(stopped, Verdict::Proceed).unwrap();
        }
    }
    assert_eq!(more, 0, "it reads on");
}

#[test]
fn a_dial_ends_with_its_session() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let dir = tempfile::tempdir().unwrap();
    let role = Role::Receiver { target: b"target".to_vec() };
    let selection = wire::Selection { make_target: true, ..bare() };
    let (mut peer, counted, _watcher) = far_side_of(&dir, role, selection, &[]);
    let silent = Candidate { address: Address::V4([127, 0, 0, 1]), port };
    peer.says(&Control::Dial(Dial { candidates: vec![silent], lanes: 1, several_paths: true, timeout_ms: u32::MAX }));
    let (connection, _) = listener.accept().unwrap();
    peer.says(&enough());
    peer.ended().unwrap_err();
    assert_eq!(counted.strong_count(), 0, "it still dials");
    drop((connection, listener));
}
