//! Tests a copy from a host that sends something else.

use haul_job::{Carriage, Endpoint, Far, Here, Job, Place, Selection, SshOptions};
use haul_wire::control::AgentHello;
use haul_wire::summary::HostLimits;

use haul_kept::surroundings::Surroundings;
use haul_reach::remote::Remote;
use haul_transfer::joined::{Joined, Side};
use haul_transfer::order::Order;

use super::*;

/// The far side of `haul cp there:data to`, with the request that it gets.
fn host() -> (Peer, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let place = Far::Ssh { user: None, host: "there".into(), port: None };
    let target = dir.path().join("to").into_os_string().into_encoded_bytes();
    let job = Job {
        movers: Vec::new(),
        files_from: None,
        sources: vec![Endpoint { place: place.clone().into(), path: b"data".to_vec() }],
        target: Endpoint { place: Place::Here(Here::Disk), path: target },
        selection: Selection::default(),
        carriage: Carriage { timeout: PATIENCE, ..Carriage::default() },
        ssh: SshOptions::default(),
    };
    let (ours, theirs) = Stream::plain_pair().unwrap();
    let (lane, _) = Stream::plain_pair().unwrap();
    let end = std::thread::spawn(move || {
        let watch = Arc::new(Watch::silent());
        let remote = Remote::meet(&place, theirs, [3; 16], Events::new(), &watch)?;
        let order = Order { job: &job, surroundings: &Surroundings::default(), watch: &watch, hash_kept: false };
        Joined::new(remote, Side::Receiver, None, &watch).run(order, false).map(drop)
    });
    let (input, control) = ours.split();
    let mut peer = Peer::new(control, heard(input), lane, end);
    peer.says(&Control::AgentHello(AgentHello {
        version: "0".into(),
        key: [1; 32],
        port: 7,
        relay_port: 7,
        addresses: Vec::new(),
        ssh_server: None,
        ssh_client: None,
        cpus: 1,
        fast_aes: true,
        limits: HostLimits::default(),
    }));
    peer.hears(|message| matches!(message, Control::Start(_)).then_some(()));
    peer.says(&Control::Begin { single_file: false });
    (peer, dir)
}

#[test]
fn what_a_host_brings_unasked_ends_the_copy_and_is_not_made() {
    for unasked in [item(".ssh", ItemKind::Directory), file(".profile", 0)] {
        let (mut peer, dir) = host();
        let mut packer = Packer::default();
        peer.says(&Control::Items(vec![packer.pack(&item("data", ItemKind::Directory)), packer.pack(&unasked)]));
        peer.broke_the_protocol("was not asked for");
        let made = std::fs::read_dir(dir.path().join("to")).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(made.filter(|name| name != "data").count(), 0, "{unasked:?}");
    }
}
