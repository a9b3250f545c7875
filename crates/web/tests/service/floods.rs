//! Readers who ask for much and take nothing, or leave, while others are served.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use haul_web::Limits;

use crate::harness::{connect, get, get_on, serve};
use crate::http2::{DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, RST_STREAM, SETTINGS, asks_for, asks_with, frame};

const NAMES: usize = 20_000;
const STREAMS: u32 = 100;

fn large_directory(path: &Path) {
    fs::create_dir(path).unwrap();
    for number in 0..NAMES {
        File::create(path.join(format!("{number:06}-observation.fits"))).unwrap();
    }
}

fn connect_from(last: u8, to: SocketAddr) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    stream
}

/// Asks for the same on all streams of an HTTP/2 connection. `window`: the bytes that the reader opens of each at first.
fn asks_on_all_streams(to: SocketAddr, method: u8, path: &str, window: Option<u32>) -> TcpStream {
    let mut stream = connect(to);
    let window = window.map(|window| [&[0, 4], &window.to_be_bytes()[..]].concat()).unwrap_or_default();
    let mut said = [PREFACE, &frame(SETTINGS, 0, 0, &window)].concat();
    for number in 0..STREAMS {
        said.extend(frame(HEADERS, END_STREAM | END_HEADERS, 2 * number + 1, &asks_with(method, path)));
    }
    stream.write_all(&said).unwrap();
    stream
}

fn next(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let mut head = [0; 9];
    stream.read_exact(&mut head).unwrap();
    let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    stream.read_exact(&mut payload).unwrap();
    assert!(head[3] != RST_STREAM, "a stream was reset: {payload:?}");
    (head[3], payload)
}

/// Reads `count` heads of answers. Each is one frame.
fn heads(stream: &mut TcpStream, count: u32) -> Vec<Vec<u8>> {
    let mut heads = Vec::new();
    while heads.len() < count as usize {
        if let (HEADERS, payload) = next(stream) {
            heads.push(payload);
        }
    }
    heads
}

fn data(stream: &mut TcpStream, least: usize) -> usize {
    let mut bytes = 0;
    while bytes < least {
        if let (DATA, payload) = next(stream) {
            bytes += payload.len();
        }
    }
    bytes
}

/// The first window of a stream (RFC 9113, section 6.9.2).
const FIRST_WINDOW: usize = 65_535;

/// `:status 200` and `:status 503`, as the first field of an answer begins.
const OK: u8 = 0x88;

/// Lets one flood run at a time: each measures the memory of all.
fn alone() -> MutexGuard<'static, ()> {
    static FLOOD: Mutex<()> = Mutex::new(());
    FLOOD.lock().unwrap_or_else(PoisonError::into_inner)
}

fn memory_kib() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Reads this process's processor time: `utime` and `stime` of `/proc/pid/stat` (proc(5)), in ticks of 10 ms.
fn processor_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let (_, after_name) = stat.rsplit_once(')').unwrap();
    let ticks = after_name.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap());
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

/// Fails if the answer waits for the flood, which takes minutes of a processor.
fn quickly<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let begun = processor_time();
    let outcome = work();
    let took = processor_time() - begun;
    assert!(took < Duration::from_secs(16), "{what} took {took:?} of the processors");
    outcome
}

const GET: u8 = 0x82;
/// `:method` as a literal.
const HEAD: u8 = 0;

#[test]
fn a_hundred_heads_of_a_large_directory_make_no_page() {
    let _alone = alone();
    let served = serve(Limits::default());
    large_directory(&served.top.join("large"));
    let begun = Instant::now();
    assert_eq!(get(served.address, "/large/", "").status, 200);
    let one = begun.elapsed();
    let begun = Instant::now();
    let mut flood = asks_on_all_streams(served.address, HEAD, "/large/", None);
    assert!(heads(&mut flood, STREAMS).iter().all(|head| head[0] == OK));
    let all = begun.elapsed();
    assert!(all < one * 10, "{all:?} for all heads, {one:?} for one page");
}

#[test]
fn a_crowd_that_asks_for_large_pages_holds_up_nobody_else() {
    let _alone = alone();
    let served = serve(Limits::default());
    large_directory(&served.top.join("large"));
    get(served.address, "/large/", "");
    let before = memory_kib();
    let flood: Vec<_> = (0..8).map(|_| asks_on_all_streams(served.address, GET, "/large/", Some(0))).collect();
    std::thread::park_timeout(Duration::from_millis(300));
    for _ in 0..3 {
        quickly("a file", || assert_eq!(get_on(connect_from(2, served.address), "/ten").body, b"0123456789"));
        quickly("a page", || assert_eq!(get_on(connect_from(2, served.address), "/sub/").status, 200));
        quickly("a large page", || assert_eq!(get_on(connect_from(3, served.address), "/large/").status, 200));
    }
    let more = memory_kib().saturating_sub(before);
    assert!(more < 400 << 10, "{more} KiB");
    drop(flood);
    quickly("a file", || assert_eq!(get(served.address, "/ten", "").body, b"0123456789"));
    quickly("a page", || assert_eq!(get(served.address, "/sub/", "").status, 200));
}

#[test]
fn streams_that_stand_still_hold_next_to_nothing() {
    stand_still(0, 250);
}

#[test]
fn streams_that_take_one_byte_and_stand_still_hold_what_one_address_may_have() {
    // A quarter of the memory for blocks, and what the streams need.
    stand_still(1, 128 + 250);
}

fn stand_still(window: u32, most_mib: usize) {
    let _alone = alone();
    haul_sys::process::raise_open_file_limit().unwrap();
    let served = serve(Limits::default());
    File::create(served.top.join("data")).unwrap().set_len(100 << 20).unwrap();
    let before = memory_kib();
    // Some of the flood may be refused or cut.
    let flood: Vec<_> = (0..190).map(|_| asks_on_all_streams(served.address, GET, "/data", Some(window))).collect();
    for last in [2, 1] {
        let mut other = connect_from(last, served.address);
        other.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, b"")].concat()).unwrap();
        other.write_all(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &asks_for("/data"))).unwrap();
        quickly("a stream", || assert_eq!(heads(&mut other, 1)[0][0], OK));
        quickly("its first window", || assert_eq!(data(&mut other, FIRST_WINDOW), FIRST_WINDOW));
        quickly("a file", || assert_eq!(get_on(connect_from(last, served.address), "/ten").body, b"0123456789"));
    }
    let more = memory_kib().saturating_sub(before);
    assert!(more < most_mib << 10, "{more} KiB for 19,000 streams with a window of {window}");
    drop(flood);
}

#[test]
fn who_leaves_has_nothing_hashed_any_more_and_others_have_their_turn() {
    let _alone = alone();
    let served = serve(Limits::default());
    fs::create_dir(served.top.join("long")).unwrap();
    for name in ["a", "b", "c"] {
        // Hashing these zeros takes hours, writing them nothing.
        File::create(served.top.join("long").join(name)).unwrap().set_len(4 << 40).unwrap();
    }
    let ask = |target: &str, fields: &str| {
        let mut stream = connect(served.address);
        write!(stream, "GET {target} HTTP/1.1\r\nHost: h\r\n{fields}\r\n").unwrap();
        let mut some = [0; 15];
        stream.read_exact(&mut some).unwrap();
        stream
    };
    let stays: Vec<_> = (0..2).map(|_| ask("/long/?manifest", "")).collect();
    for _ in 0..6 {
        drop(ask("/long/?manifest", ""));
    }
    for name in ["a", "b", "c"] {
        drop(ask(&format!("/long/{name}"), "Want-Repr-Digest: sha-256=1\r\nRange: bytes=0-9\r\n"));
    }
    fs::write(served.top.join("sub/one"), vec![7; 3 << 20]).unwrap();
    quickly("a manifest", || {
        let answer = get(served.address, "/sub/?manifest", "");
        assert!(answer.status == 200 && answer.body.windows(3).any(|three| three == b"end"), "{}", answer.status);
    });
    // The state has to be older than a tick of the clock.
    std::thread::park_timeout(Duration::from_millis(200));
    quickly("a digest", || {
        let answer = get(served.address, "/sub/one", "Want-Repr-Digest: sha-256=1\r\n");
        assert!(answer.field("repr-digest").is_some(), "{}", answer.head);
    });
    drop(stays);
}
