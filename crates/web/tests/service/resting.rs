//! Connections that rest without a task: each goes on when its reader does, counts, and ends in time.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use haul_web::Limits;

use crate::harness::{Served, connect, get, serve};
use crate::http2::{END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, asks_for, frame};

/// `HAUL_WEB_RESTING=10000` makes as many readers as a host may meet; each needs two descriptors.
fn crowd() -> usize {
    std::env::var("HAUL_WEB_RESTING").map_or(1_000, |count| count.parse().expect("a number"))
}

fn rest(served: &Served, count: usize) -> bool {
    (0..1_500).any(|_| {
        let rest = served.service.as_ref().unwrap().resting() == count;
        if !rest {
            std::thread::park_timeout(Duration::from_millis(20));
        }
        rest
    })
}

fn asks_and_is_answered(stream: &mut TcpStream) {
    stream.write_all(b"GET /ten HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let mut said = Vec::new();
    while !said.ends_with(b"\r\n\r\n0123456789") {
        let mut some = [0; 512];
        let count = stream.read(&mut some).unwrap_or_else(|error| panic!("{error} after {}", said.escape_ascii()));
        assert_ne!(count, 0, "it ended after {}", said.escape_ascii());
        said.extend(&some[..count]);
    }
    assert!(said.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", said.escape_ascii());
}

/// Half of them ask before they rest.
#[test]
fn a_thousand_readers_that_rest_are_answered_when_they_ask_and_count_meanwhile() {
    let served = serve(Limits { connections_per_source: crowd(), ..Limits::default() });
    let mut readers: Vec<_> = (0..crowd()).map(|_| connect(served.address)).collect();
    readers.iter_mut().step_by(2).for_each(asks_and_is_answered);
    assert!(rest(&served, crowd()), "all rest");
    assert_eq!(get(served.address, "/ten", "").status, 503, "they count");
    for round in 0..2 {
        readers.iter_mut().for_each(asks_and_is_answered);
        assert!(rest(&served, crowd()), "all rest again after round {round}");
    }
    let gone = readers.pop();
    drop(gone);
    assert!(rest(&served, crowd() - 1));
    let mut newcomer = connect(served.address);
    asks_and_is_answered(&mut newcomer);
    readers.iter_mut().for_each(asks_and_is_answered);
}

#[test]
fn a_reader_that_rests_before_its_first_word_may_speak_http2() {
    let served = serve(Limits::default());
    let mut stream = connect(served.address);
    assert!(rest(&served, 1));
    let asked = frame(HEADERS, END_HEADERS | END_STREAM, 1, &asks_for("/ten"));
    stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, b""), &asked].concat()).unwrap();
    let mut said = Vec::new();
    while !said.ends_with(b"0123456789") {
        let mut some = [0; 512];
        let count = stream.read(&mut some).unwrap();
        assert_ne!(count, 0, "it ended after {}", said.escape_ascii());
        said.extend(&some[..count]);
    }
}

#[test]
fn a_reader_that_rests_for_too_long_is_ended() {
    let served = serve(Limits { idle: Duration::from_millis(1_500), ..Limits::default() });
    let mut readers: Vec<_> = (0..3).map(|_| connect(served.address)).collect();
    asks_and_is_answered(&mut readers[0]);
    assert!(rest(&served, 3));
    for mut reader in readers {
        let mut said = Vec::new();
        reader.read_to_end(&mut said).unwrap();
        assert!(said.is_empty());
    }
    assert!(rest(&served, 0));
}

#[test]
fn readers_that_rest_are_ended_when_the_service_stops() {
    let mut served = serve(Limits { idle: Duration::from_secs(3_600), ..Limits::default() });
    let mut readers: Vec<_> = (0..3).map(|_| connect(served.address)).collect();
    asks_and_is_answered(&mut readers[0]);
    assert!(rest(&served, 3));
    served.service.take().unwrap().stop();
    for mut reader in readers {
        let mut said = Vec::new();
        reader.read_to_end(&mut said).unwrap();
        assert!(said.is_empty());
    }
}
