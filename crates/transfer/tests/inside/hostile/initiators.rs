//! Tests a real far side, of an agent or a daemon, against hostile initiators.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};

use haul_net::Identity;
use haul_store::MAX_LISTED_PATH_BYTES;
use haul_wire::control::{Address, Candidate, Dial, Role, Start};
use haul_wire::limits::{MAX_LANES, MAX_LISTED_BYTES};

use haul_channel::grant::{Grant, Visit};
use haul_kept::surroundings::Surroundings;
use haul_reach::lane_rendezvous::LaneRendezvous;
use haul_transfer::serving::{self, Ports};

use super::*;

#[cfg(test)]
mod after_the_end;
#[cfg(test)]
mod candidates;

fn far_side() -> Peer {
    far_side_asked(carriage(20_000))
}

fn far_side_asked(carriage: wire::Carriage) -> Peer {
    let selection = wire::Selection { make_target: true, ..bare() };
    far_side_as(Role::Receiver { target: b"target".to_vec() }, carriage, selection)
}

fn far_side_as(role: Role, carriage: wire::Carriage, selection: wire::Selection) -> Peer {
    watched(role, carriage, (selection, wire::Listed::Nothing), None)
}

fn watched(
    role: Role,
    carriage: wire::Carriage,
    (selection, listed): (wire::Selection, wire::Listed),
    visit: Option<Arc<dyn Visit>>,
) -> Peer {
    let dir = tempfile::tempdir().unwrap();
    let (ours, theirs) = Stream::plain_pair().unwrap();
    let (lane, _) = Stream::plain_pair().unwrap();
    let end = std::thread::spawn(move || {
        let identity = Arc::new(Identity::generate().unwrap());
        let grant = Grant { root: Some(dir.path().to_owned()), read_only: false, ..Grant::default() };
        serving::serve_control(
            theirs,
            &identity,
            &Arc::new(LaneRendezvous::default()),
            Ports::default(),
            &grant,
            &Surroundings::default(),
            visit,
        )
    });
    let (input, control) = ours.split();
    let mut peer = Peer::new(control, heard(input), lane, end);
    peer.hears(|message| matches!(message, Control::AgentHello(_)).then_some(()));
    peer.says(&Control::Start(Box::new(Start {
        session: [3; 16],
        peer_session: [5; 16],
        peer_key: [4; 32],
        links: false,
        stays: false,
        job: 1,
        role,
        selection,
        listed,
        hash_kept: false,
        carriage,
    })));
    peer
}

#[test]
fn a_far_side_does_not_dial_without_end() {
    let mut peer = far_side();
    // Nothing listens at port 1, so each dial ends at once.
    let nowhere = Candidate { address: Address::V4([127, 0, 0, 1]), port: 1 };
    for _ in 0..100 {
        peer.says(&Control::Dial(Dial { candidates: vec![nowhere], lanes: 1, several_paths: true, timeout_ms: 1000 }));
    }
    peer.broke_the_protocol("unexpected message Dial");
}

#[test]
fn a_daemon_knocks_once_where_nobody_proves_a_key_however_many_lanes_are_asked_for() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (port, knocks) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&knocks);
    std::thread::spawn(move || {
        while listener.accept().is_ok() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let mut peer = far_side_asked(wire::Carriage { ciphers: vec![1], ..carriage(20_000) });
    let stranger = Candidate { address: Address::V4([127, 0, 0, 1]), port };
    peer.says(&Control::Dial(Dial {
        candidates: vec![stranger],
        lanes: MAX_LANES,
        several_paths: true,
        timeout_ms: 1000,
    }));
    peer.hears(|message| matches!(message, Control::DialFailed { .. }).then_some(()));
    assert_eq!(knocks.load(Ordering::SeqCst), 1);
}

#[test]
fn a_far_side_does_not_admit_keys_without_end() {
    let mut peer = far_side();
    for key in 0..100 {
        peer.says(&Control::Admit { key: [key; 32] });
    }
    peer.broke_the_protocol("unexpected message Admit");
}

fn far_sender() -> Peer {
    let role = Role::Sender { sources: vec![b"/tmp".to_vec()] };
    watched(role, carriage(20_000), (bare(), wire::Listed::Paths), None)
}

#[test]
fn a_list_that_leads_upwards_is_refused() {
    let mut peer = far_sender();
    peer.says(&Control::Listed(vec![b"data".to_vec(), b"data/../../etc".to_vec()]));
    peer.broke_the_protocol("it lists data/../../etc: a path with .. could leave the source directory");
}

#[test]
fn a_list_without_end_is_refused() {
    let mut peer = far_sender();
    let batch = frame(&Control::Listed(vec![vec![b'x'; MAX_LISTED_PATH_BYTES]; 30]));
    for _ in 0..=MAX_LISTED_BYTES / batch.len() {
        peer.says_bytes(&batch);
    }
    peer.broke_the_protocol("it lists more than agreed");
}

#[test]
fn who_has_no_list_is_not_listened_to() {
    let mut peer = far_side();
    peer.says(&Control::Listed(vec![b"data".to_vec()]));
    peer.broke_the_protocol("unexpected message Listed");
}

#[test]
fn lanes_in_the_clear_are_refused_to_whom_they_are_not_granted() {
    let peer = far_side_asked(wire::Carriage { clear: true, ..carriage(20_000) });
    let error = peer.ended().unwrap_err();
    assert_eq!(error.fault, Fault::Authentication, "{error:?}");
    assert!(error.hint.unwrap().contains("`clear`"));
}
