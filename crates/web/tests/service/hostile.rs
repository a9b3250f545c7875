//! Readers that want harm: slow ones, crowds, floods (docs/proof/faults.md H4).

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::time::Duration;

use haul_web::Limits;

use crate::harness::{answers, connect, get, serve};
use crate::http2::{CONTINUATION, END_HEADERS, END_STREAM, HEADERS, PREFACE, RST_STREAM, SETTINGS, asks_for, frame};

const SHORT: Duration = Duration::from_millis(300);

/// `HAUL_WEB_CROWD=10000` makes as many readers as a host may meet; each needs two descriptors.
fn crowd() -> usize {
    std::env::var("HAUL_WEB_CROWD").map_or(200, |count| count.parse().expect("a number"))
}

fn own_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Shorter limits stand for an hour.
#[test]
fn readers_that_take_nothing_are_cut_off_and_others_are_served() {
    let served = serve(Limits { stall: SHORT, idle: Duration::from_secs(300), ..Limits::default() });
    File::create(served.top.join("large")).unwrap().set_len(100_000_000).unwrap();
    let before = own_memory_kib();
    let mut readers: Vec<_> = (0..crowd()).map(|_| connect(served.address)).collect();
    for stream in &mut readers {
        stream.write_all(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    }
    assert_eq!(get(served.address, "/ten", "").body, b"0123456789");
    // Other tests may give memory back meanwhile.
    let of_each = own_memory_kib().saturating_sub(before) / crowd() as u64;
    println!("{} readers: {of_each} KiB of memory for each, both ends", crowd());
    assert!(of_each <= MEMORY_OF_A_READER_KIB, "{of_each} KiB for each");
    // An answer is logged when its body is dropped: all were cut.
    let is_over = || served.log.lock().unwrap().iter().filter(|line| line.contains("/large")).count() == readers.len();
    assert!((0..1500).any(|_| is_over() || {
        std::thread::park_timeout(Duration::from_millis(20));
        false
    }));
    let mut got = Vec::new();
    let _ = readers[0].read_to_end(&mut got);
    assert!(got.len() < 100_000_000);
}

/// hyper's buffers, the answer and the task. A small crowd also pays for disk threads.
const MEMORY_OF_A_READER_KIB: u64 = 64;

#[test]
fn a_header_that_comes_too_slowly_or_never_ends_the_connection() {
    let served = serve(Limits { idle: SHORT, header: SHORT, ..Limits::default() });
    for begin in
        ["", "P", "PRI * HTTP/2", "GET /ten HTTP/1.1\r\nHost: h\r\nX: ", "GET /ten HTTP/1.1\r\nHost: h\r\n\r\n"]
    {
        let mut stream = connect(served.address);
        stream.write_all(begin.as_bytes()).unwrap();
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        assert_eq!(said.starts_with(b"HTTP/1.1 200"), begin.ends_with("\r\n\r\n"), "{begin:?}");
    }
}

#[test]
fn a_body_that_comes_too_slowly_or_is_cut_short_ends_the_connection_and_writes_nothing() {
    let served = serve(Limits::default());
    let mut waiting: Vec<_> = [("PUT /new", "405"), ("POST /ten", "405"), ("DELETE /ten", "405"), ("GET /ten", "400")]
        .into_iter()
        .flat_map(|line| {
            ["Content-Length: 50\r\n\r\nab", "Transfer-Encoding: chunked\r\n\r\n32\r\nab"].map(|body| (line, body))
        })
        .map(|((line, status), body)| {
            let mut stream = connect(served.address);
            stream.write_all(format!("{line} HTTP/1.1\r\nHost: h\r\n{body}").as_bytes()).unwrap();
            (stream, format!("HTTP/1.1 {status}"))
        })
        .collect();
    for (stream, status) in &mut waiting {
        let mut said = Vec::new();
        stream.read_to_end(&mut said).unwrap();
        assert!(said.starts_with(status.as_bytes()), "{status}: {}", said.escape_ascii());
    }
    assert!(!served.top.join("new").exists() && std::fs::read(served.top.join("ten")).unwrap() == b"0123456789");
    assert_eq!(get(served.address, "/ten", "").status, 200);
}

#[test]
fn one_address_has_only_its_part_of_the_connections() {
    let served = serve(Limits { connections_per_source: 3, ..Limits::default() });
    let ask = |stream: &mut std::net::TcpStream| {
        let mut first = [0; 12];
        let asked = stream.write_all(b"GET /ten HTTP/1.1\r\nHost: h\r\n\r\n");
        asked.and_then(|()| stream.read_exact(&mut first)).is_ok() && &first == b"HTTP/1.1 200"
    };
    let mut kept: Vec<_> = (0..3).map(|_| connect(served.address)).collect();
    assert!(kept.iter_mut().all(ask));
    let turned_away = get(served.address, "/ten", "");
    assert_eq!((turned_away.status, turned_away.body.as_slice()), (503, &b"503 service unavailable\n"[..]));
    let again = haul_web::limits::RETRY_AFTER_S.to_string();
    assert_eq!(turned_away.head.lines().find_map(|line| line.strip_prefix("Retry-After: ")), Some(again.as_str()));
    assert!(served.log.lock().unwrap().iter().any(|line| line.contains("no room for 127.0.0.1")));
    kept.pop();
    assert!((0..200).any(|_| ask(&mut connect(served.address))), "a place that is free is given again");
}

/// haul's port and the web's are in one process.
#[test]
fn connections_at_the_hosts_other_ports_count_too() {
    let served = serve(Limits { connections_per_source: 2, ..Limits::default() });
    let at_other_port = || served.policies.enters(haul_net::policy::Found::default(), served.address.ip());
    let first = at_other_port();
    assert_eq!(get(served.address, "/ten", "").status, 200);
    // That reader's seat is given back soon after its answer.
    let second = (0..500).find_map(|_| {
        std::thread::park_timeout(Duration::from_millis(20));
        Some(at_other_port()).filter(|member| member.over_limit().is_none())
    });
    assert!(second.is_some());
    assert_eq!(get(served.address, "/ten", "").status, 503);
    let third = at_other_port();
    assert_eq!(third.over_limit().map(|over| (over.limit, over.of_address)), Some((2, true)));
    drop((first, third));
    assert_eq!(get(served.address, "/ten", "").status, 200);
}

/// The connection is alive, but the stream's window stays shut.
#[test]
fn a_stream_whose_window_stays_shut_ends_its_connection() {
    let served = serve(Limits { idle: SHORT, stall: SHORT, ..Limits::default() });
    File::create(served.top.join("large")).unwrap().set_len(100_000_000).unwrap();
    let asked = frame(HEADERS, END_HEADERS | END_STREAM, 1, &asks_for("/large"));
    let begin = [PREFACE, &frame(SETTINGS, 0, 0, b""), &asked].concat();
    let mut stream = connect(served.address);
    stream.write_all(&begin).unwrap();
    let mut said = Vec::new();
    let ended = stream.read_to_end(&mut said);
    assert!(ended.is_ok() || ended.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset));
    // The first window of a stream has 65,535 bytes (RFC 9113, section 6.9.2).
    assert!((65_535..200_000).contains(&said.len()), "{} bytes", said.len());
}

/// CVE-2023-44487.
#[test]
fn streams_that_are_reset_at_once_end_their_connection() {
    let served = serve(Limits::default());
    let mut flood = [PREFACE, &frame(SETTINGS, 0, 0, b"")].concat();
    for stream in (1..40_000).step_by(2) {
        flood.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream, &asks_for("/")));
        flood.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
    }
    let mut stream = connect(served.address);
    let _ = stream.write_all(&flood);
    let mut said = Vec::new();
    let ended = stream.read_to_end(&mut said);
    assert!(ended.is_ok() || ended.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset));
    assert_eq!(get(served.address, "/ten", "").status, 200);
}

/// VU#421644.
#[test]
fn a_header_that_goes_on_in_frame_after_frame_ends_its_connection() {
    let served = serve(Limits::default());
    let mut flood = [PREFACE, &frame(SETTINGS, 0, 0, b""), &frame(HEADERS, END_STREAM, 1, &asks_for("/"))].concat();
    let field = [&[0x40, 1, b'x', 0x7f, 0x81, 0x07][..], &[b'y'; 1_000]].concat();
    for _ in 0..5_000 {
        flood.extend(frame(CONTINUATION, 0, 1, &field));
    }
    let mut stream = connect(served.address);
    let _ = stream.write_all(&flood);
    let mut said = Vec::new();
    let ended = stream.read_to_end(&mut said);
    assert!(ended.is_ok() || ended.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset));
    assert_eq!(get(served.address, "/ten", "").status, 200);
}

#[test]
fn malformed_requests_leave_a_line() {
    let served = serve(Limits::default());
    for (bytes, expected) in [
        (&b"GET / HTTP/9.9\r\n\r\n"[..], "malformed request"),
        (b"\x16\x03\x01 no clear text\r\n\r\n", "malformed request"),
        (b"GET /ten HTTP/1.1\r\nBad Field: x\r\nHost: h\r\n\r\n", "malformed request"),
        (b"GET /../x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", "GET /../x 400"),
        (b"GET /ten HTTP/1.1\r\nConnection: close\r\n\r\n", "GET /ten 400"),
        (b"DELETE /ten HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", "DELETE /ten 405"),
    ] {
        served.log.lock().unwrap().clear();
        answers(served.address, bytes);
        let told = (0..200).find_map(|_| {
            let log = served.log.lock().unwrap().join("\n");
            std::thread::park_timeout(Duration::from_millis(10));
            log.contains(expected).then_some(log)
        });
        assert!(told.is_some_and(|log| log.contains("127.0.0.1:")), "{}", bytes.escape_ascii());
    }
}
