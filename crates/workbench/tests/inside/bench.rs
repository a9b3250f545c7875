//! Small measurements of every kind: bytes are checked, not the speed.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Mutex;

use haul_job::Cipher;
use haul_net::Stream;
use haul_pump::{ReceiveRoute, SendRoute};

use super::*;

struct Quiet;

impl Watcher for Quiet {
    fn on_interval(&self, _: &Interval) {}
}

const MIB: u64 = 1 << 20;

fn small() -> Request {
    Request { amount: Amount::Bytes(24 * MIB), size_bytes: 8 * MIB, ..Request::new() }
}

fn check(request: Request) -> Found {
    let found = run(&request, &Quiet).unwrap_or_else(|error| panic!("{request:?}: {error:?}"));
    assert_eq!(found.bytes, 24 * MIB, "{request:?}");
    found
}

#[test]
fn sources_sinks_and_ciphers_in_every_combination_carry_what_was_asked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("source");
    std::fs::write(&path, vec![3; 9 << 20]).unwrap();
    for source in [Source::Zero, Source::Memory, Source::File(path)] {
        for sink in [Sink::Discard, Sink::Memory, Sink::Directory(dir.path().to_owned())] {
            for cipher in [None, Some(Cipher::Aes128Gcm)] {
                for verify in [false, true] {
                    let found =
                        check(Request { source: source.clone(), sink: sink.clone(), cipher, verify, ..small() });
                    assert_eq!(found.send.route, if cipher.is_none() { "sendfile" } else { "copy" });
                    assert_eq!(found.flush.is_some(), matches!(sink, Sink::Directory(_)));
                }
            }
        }
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing but the source is left");
}

#[test]
fn at_least_what_was_asked_for_is_moved() {
    let found = run(&Request { amount: Amount::Bytes(5 * MIB + 1), ..small() }, &Quiet).unwrap();
    assert_eq!(found.bytes, 8 * MIB, "two chunks");
}

#[test]
fn lanes_reverse_and_a_fixed_offset_are_verified() {
    for (lanes, reverse, offset) in [(4, false, Offset::Moving), (2, true, Offset::Fixed)] {
        let sink = Sink::Memory;
        check(Request { source: Source::Memory, sink, lanes, reverse, offset, verify: true, ..small() });
    }
}

#[test]
fn every_route_that_is_asked_for_is_the_one_that_is_named() {
    for (route, name) in SendRoute::ALL {
        let found = check(Request { send_route: Some(route), ..small() });
        assert!(found.send.route == name || found.send.dropped[0].route == name, "{found:?}");
    }
    for (route, name) in ReceiveRoute::ALL {
        let sink = if route.fills_file() { Sink::Memory } else { Sink::Discard };
        let found = check(Request { receive_route: Some(route), sink, ..small() });
        assert!(found.receive.route == name || found.receive.dropped[0].route == name, "{found:?}");
    }
}

#[test]
fn a_timed_run_ends_in_time_and_its_intervals_add_up() {
    struct Counts(Mutex<u64>);
    impl Watcher for Counts {
        fn on_interval(&self, interval: &Interval) {
            *self.0.lock().unwrap() += interval.bytes;
        }
    }
    let counts = Counts(Mutex::new(0));
    let amount = Amount::Time(Duration::from_millis(250));
    let found = run(&Request { amount, interval: Duration::from_millis(100), ..small() }, &counts).unwrap();
    let told: u64 = found.intervals.iter().map(|interval| interval.bytes).sum();
    assert_eq!(told, *counts.0.lock().unwrap());
    assert!(found.intervals.len() >= 2 && told <= found.bytes && told > 0, "{found:?}");
    assert!(found.elapsed >= Duration::from_millis(250) && !found.interrupted, "{:?}", found.elapsed);
    // The kernel counts by ticks.
    assert!(found.send.usage.total_us() > 0 && found.receive.usage.total_us() > 0, "{found:?}");
}

#[test]
fn somebody_who_had_enough_ends_it() {
    struct Enough;
    impl Watcher for Enough {
        fn on_interval(&self, _: &Interval) {}
        fn interrupted(&self) -> bool {
            true
        }
    }
    let found = run(&Request { amount: Amount::Time(Duration::from_secs(3600)), ..small() }, &Enough).unwrap();
    assert!(found.interrupted && found.elapsed < Duration::from_secs(60), "{found:?}");
}

#[test]
fn a_flipped_bit_is_found() {
    let request = Request { verify: true, sink: Sink::Memory, amount: Amount::Bytes(4 * MIB), ..small() };
    for flipped in [None, Some(1_234_567)] {
        let plan = prepare::plan(&request).unwrap();
        let shared =
            Shared { stop: AtomicBool::new(false), received_bytes: AtomicU64::new(0), start: Start::default() };
        shared.start.begin();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = Stream::plain_tcp(listener.accept().unwrap().0);
        let mut chunk = vec![7u8; plan.chunk_bytes as usize];
        let hash = blake3::hash(&chunk);
        if let Some(at) = flipped {
            chunk[at] ^= 0x10;
        }
        let writer = std::thread::spawn(move || near.write_all(&chunk).and_then(|()| near.write_all(hash.as_bytes())));
        let ended = lane::receive(&Receiving { request: &request, plan: &plan, shared: &shared, number: 0 }, far);
        writer.join().unwrap().unwrap();
        let Ended::Received(result) = ended else { panic!("the other side") };
        match flipped {
            None => assert!(result.is_ok(), "{:?}", result.err()),
            Some(_) => assert_eq!(result.unwrap_err().fault, Fault::Verification),
        }
    }
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_moved() {
    let refused = |request: Request| run(&request, &Quiet).unwrap_err();
    let missing = Source::File(PathBuf::from("/nonexistent/file"));
    assert_eq!(refused(Request { source: missing, ..small() }).fault, Fault::FileIo);
    let missing = Sink::Directory(PathBuf::from("/nonexistent"));
    assert_eq!(refused(Request { sink: missing, ..small() }).fault, Fault::FileIo);
    for (request, word) in [
        (Request { receive_route: Some(ReceiveRoute::Discard), cipher: Some(Cipher::Aes128Gcm), ..small() }, "clear"),
        (Request { receive_route: Some(ReceiveRoute::Splice), ..small() }, "sink is none"),
        (Request { receive_route: Some(ReceiveRoute::Null), sink: Sink::Memory, ..small() }, "sink is one"),
        (Request { receive_route: Some(ReceiveRoute::Discard), verify: true, ..small() }, "sees no bytes"),
        (Request { lanes: 0, ..small() }, "0 lanes"),
        (Request { block_bytes: 1, ..small() }, "blocks of 1"),
        (Request { size_bytes: 65_536, lanes: 2, ..small() }, "too few"),
        (Request { congestion_control: Some("no-such".into()), ..small() }, "no-such"),
        (Request { processors: Some((100_000, 0)), ..small() }, "100000"),
    ] {
        let error = refused(request);
        assert!(error.fault == Fault::Usage && error.what.contains(word), "{word}: {error:?}");
    }
}

#[test]
fn in_kernel_tls_pages_go_over_an_encrypted_connection_and_nowhere_else() {
    let cipher = Some(Cipher::Aes256Gcm);
    for route in [SendRoute::Sendfile, SendRoute::Splice, SendRoute::Map] {
        let request = Request { send_route: Some(route), cipher, verify: true, ..small() };
        match (haul_net::seals_here(), run(&request, &Quiet)) {
            (Ok(()), Ok(found)) => assert!(found.sealed_in_kernel && found.send.dropped.is_empty(), "{found:?}"),
            (Err(why), Err(error)) => {
                assert!(error.fault == Fault::Usage && error.cause == Some(why.to_string()), "{error:?}");
            }
            (seals, found) => panic!("{seals:?}, and yet {found:?}"),
        }
    }
    assert!(!check(Request { cipher, ..small() }).sealed_in_kernel, "nobody asked for it");
}

#[test]
fn the_limits_alone_are_measured() {
    let dir = tempfile::tempdir().unwrap();
    assert!(memory(2, Duration::from_millis(1)) > 0);
    assert!(disk(dir.path(), 8 * MIB, Duration::from_secs(1)).unwrap().write_bytes_per_s > 0);
    assert!(disk(std::path::Path::new("/nonexistent"), MIB, Duration::from_secs(1)).is_err());
}
