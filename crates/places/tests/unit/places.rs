//! Tests answers of a hostile peer.

use std::io::Write as _;
use std::ops::ControlFlow;
use std::time::Duration;

use haul_job::{Error, Far, Fault};
use haul_net::Stream;
use haul_wire::RelPath;
use haul_wire::codec;
use haul_wire::control::{AgentHello, Control};
use haul_wire::place::PlaceWord;
use haul_wire::summary::HostLimits;

use super::asking::{Bounds, hear};
use super::*;
use haul_channel::channel::Events;
use haul_channel::clock::Clock;
use haul_channel::reporter::Watch;
use haul_reach::remote::Remote;

fn heard(verb: Verb, words: Vec<PlaceWord>, bounds: Bounds) -> (usize, Result<Answered, Error>) {
    let (near, mut far) = Stream::plain_pair().unwrap();
    let hello = AgentHello {
        version: "0".into(),
        key: [1; 32],
        port: 0,
        relay_port: 0,
        addresses: Vec::new(),
        ssh_server: None,
        ssh_client: None,
        cpus: 1,
        fast_aes: true,
        limits: HostLimits::default(),
    };
    let mut bytes = Vec::new();
    let words = words.into_iter().map(Control::Place);
    for message in std::iter::once(Control::AgentHello(hello)).chain(words) {
        codec::encode(&message, &mut bytes).unwrap();
    }
    let says = std::thread::spawn(move || {
        // A client that gives up hangs up.
        let _ = far.write_all(&bytes).and_then(|()| far.flush());
        far
    });
    let place = Far::Ssh { user: None, host: "peer".into(), port: None };
    let watch = Watch::silent();
    let remote = Remote::meet(&place, near, [0; 16], Events::new(), &watch).unwrap();
    let question = Question { verb, paths: vec![b"dir".to_vec()] };
    let mut pieces = 0;
    let clock = Clock::new(u32::try_from(Duration::from_secs(60).as_millis()).unwrap());
    let result = hear(&question, remote, (clock, &watch), bounds, &mut |_| {
        pieces += 1;
        ControlFlow::Continue(())
    });
    says.join().unwrap();
    (pieces, result)
}

fn entry(name: &str) -> Told {
    Told::Entry { path: RelPath::new(name.into()).unwrap(), facts: None }
}

#[test]
fn an_answer_about_something_else_is_refused() {
    let list = || Verb::List(List::default());
    let operand = |path: &str| PlaceWord::Told(vec![Told::Operand { path: path.into() }, entry("x")]);
    let (pieces, result) = heard(list(), vec![operand("dir"), PlaceWord::End], Bounds::default());
    assert_eq!((pieces, result), (2, Ok(Answered::Whole)));
    for path in ["../dir", "dir/..", "/etc", "other"] {
        let (pieces, result) = heard(list(), vec![operand(path), PlaceWord::End], Bounds::default());
        assert_eq!((pieces, result.unwrap_err().fault), (0, Fault::Protocol), "{path}");
    }
    let data = PlaceWord::Data { bytes: b"x".to_vec(), blake3: *blake3::hash(b"x").as_bytes() };
    let (pieces, result) = heard(list(), vec![data], Bounds::default());
    assert_eq!((pieces, result.unwrap_err().fault), (0, Fault::Protocol));
}

#[test]
fn an_endless_answer_comes_to_its_end() {
    let page = || PlaceWord::Told((0..100).map(|number| entry(&number.to_string())).collect());
    let bounds = Bounds { lines: 1000, bytes: 1000 };
    let (pieces, result) = heard(Verb::List(List::default()), (0..11).map(|_| page()).collect(), bounds);
    assert_eq!((pieces, result.unwrap_err().fault), (1000, Fault::Protocol));
    let block = || PlaceWord::Data { bytes: vec![7; 500], blake3: *blake3::hash(&[7; 500]).as_bytes() };
    let (pieces, result) = heard(Verb::Read, vec![block(), block(), block()], bounds);
    assert_eq!((pieces, result.unwrap_err().fault), (2, Fault::Protocol));
}

#[test]
fn data_that_was_damaged_on_its_way_is_not_passed_on() {
    let block = PlaceWord::Data { bytes: b"x".to_vec(), blake3: *blake3::hash(b"y").as_bytes() };
    let (pieces, result) = heard(Verb::Read, vec![block, PlaceWord::End], Bounds::default());
    assert_eq!((pieces, result.unwrap_err().fault), (0, Fault::Verification));
}

#[test]
fn a_file_of_which_a_block_is_missing_does_not_count_as_whole() {
    let block = |bytes: &[u8]| PlaceWord::Data { bytes: bytes.to_vec(), blake3: *blake3::hash(bytes).as_bytes() };
    let whole = |bytes: &[u8]| {
        let whole = Whole { bytes: bytes.len() as u64, blake3: *blake3::hash(bytes).as_bytes() };
        PlaceWord::Told(vec![Told::Whole(whole)])
    };
    let said = vec![block(b"one"), block(b"two"), whole(b"onetwo"), PlaceWord::End];
    assert_eq!(heard(Verb::Read, said, Bounds::default()), (3, Ok(Answered::Whole)));
    let (_, result) = heard(Verb::Read, vec![block(b"one"), whole(b"onetwo"), PlaceWord::End], Bounds::default());
    assert_eq!(result.unwrap_err().fault, Fault::Verification);
}
