//! Rates of network classes: readers of the web share them with haul's own port.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use haul_net::policy::{ClassList, NetworkClass, Networks, OwnNetworks, Terms};
use haul_web::Limits;

use crate::harness::{connect, get, serve};

/// A rate so low that the test's own time does not count.
const BYTES_PER_S: u64 = 1_000;

fn one_class() -> Networks {
    let terms = Terms { rate_bytes_per_s: Some(BYTES_PER_S), ..Terms::default() };
    let mut list = ClassList::default();
    list.add(NetworkClass { name: "rest".into(), terms, ..NetworkClass::default() }, &[], &[]).unwrap();
    Networks::of(vec![list], OwnNetworks::default())
}

/// The budget counts from a fixed moment, so the count is exact however long the test takes.
#[test]
fn a_download_and_a_copy_pay_out_of_one_budget() {
    let served = serve(Limits::default());
    served.policies.replace(one_class());
    std::fs::write(served.top.join("half"), vec![7; 500_000]).unwrap();
    // 192.0.2.1 is no address of this host, and in the class of the loopback reader.
    let elsewhere = "192.0.2.1".parse().unwrap();
    let networks = served.policies.networks();
    let copy = served.policies.enters(networks.find(&networks.peer_at(elsewhere)), elsewhere);
    let begun = Instant::now();
    let owed = |bytes| copy.charge(bytes, begun);
    let copied = owed(50_000);
    assert_eq!(copied, Duration::from_millis(49_900), "50 s less the burst of 100 ms");

    let mut reader = connect(served.address);
    reader.write_all(b"GET /half HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let first_window = Duration::from_millis(haul_web::limits::RATED_WINDOW_BYTES * 1_000 / BYTES_PER_S);
    let has_paid = (0..1_500).any(|_| {
        std::thread::park_timeout(Duration::from_millis(20));
        owed(0) >= copied + first_window
    });
    assert!(has_paid, "the reader's first window waits behind the copy: {:?}", owed(0));
    assert_eq!(owed(0).as_millis(), (copied + first_window).as_millis(), "one window, and no more");
    let mut said = vec![0; 64 << 10];
    reader.set_nonblocking(true).unwrap();
    let count = reader.read(&mut said).unwrap_or(0);
    assert!(!said[..count].contains(&7), "its bytes wait for the copy's");
    assert_eq!(owed(0) + Duration::from_secs(1), owed(1_000), "and the copy's next bytes wait for the reader's");
}

#[test]
fn every_body_is_paid_for_and_arrives_whole() {
    let served = serve(Limits::default());
    served.policies.replace(one_class());
    let me = served.address.ip();
    let networks = served.policies.networks();
    let other = served.policies.enters(networks.find(&networks.peer_at(me)), me);
    let begun = Instant::now();
    // The first takes the burst. Ten bytes wait 10 ms each.
    other.charge(100, begun);
    let before = other.charge(0, begun);
    for _ in 0..5 {
        assert_eq!(get(served.address, "/ten", "").body, b"0123456789");
    }
    assert!(other.charge(0, begun) >= before + Duration::from_millis(50));
}
