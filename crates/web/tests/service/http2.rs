//! HTTP/2 frame by frame, where the order of the frames decides.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use haul_web::Limits;

use crate::harness::{connect, serve};

/// Kinds of frames.
pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

/// Flags of frames.
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

const PROTOCOL_ERROR: u32 = 1;
const FLOW_CONTROL_ERROR: u32 = 3;
const STREAM_CLOSED: u32 = 5;

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// `:method GET`, `:scheme http`, `:authority h`, `:path`.
pub fn asks_for(path: &str) -> Vec<u8> {
    [&[0x82, 0x86, 0x41, 1, b'h', 0x44, path.len() as u8], path.as_bytes()].concat()
}

/// Like [`asks_for`]; method `0` is HEAD, as a literal.
pub fn asks_with(method: u8, path: &str) -> Vec<u8> {
    match method {
        0 => [&[0x02, 4], &b"HEAD"[..], &asks_for(path)[1..]].concat(),
        indexed => [&[indexed], &asks_for(path)[1..]].concat(),
    }
}

struct Spoken {
    stream: TcpStream,
}

impl Spoken {
    fn begin(address: std::net::SocketAddr) -> Spoken {
        let mut spoken = Spoken { stream: connect(address) };
        spoken.stream.write_all(PREFACE).unwrap();
        spoken.says(SETTINGS, 0, 0, b"");
        spoken
    }

    fn says(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.stream.write_all(&frame(kind, flags, stream, payload)).unwrap();
    }

    /// Reads the next frame: kind, stream, payload. `None`: the service closed the connection.
    fn hears(&mut self) -> Option<(u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).ok()?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        self.stream.read_exact(&mut payload).ok()?;
        Some((head[3], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), payload))
    }

    /// The kinds of frames that answer all frames so far; a ping is answered last.
    fn answers_so_far(&mut self) -> Vec<u8> {
        self.says(PING, 0, 0, b"all read");
        let mut heard = Vec::new();
        while let Some((kind, stream, payload)) = self.hears() {
            match (kind, payload.as_slice()) {
                (PING, b"all read") => return heard,
                _ if stream != 0 => heard.push(kind),
                _ => {}
            }
        }
        panic!("the connection ended after {heard:?}");
    }

    /// The code of the first error. `None`: closed without one.
    fn error(&mut self) -> Option<u32> {
        loop {
            let (kind, _, payload) = self.hears()?;
            let at = match kind {
                RST_STREAM => 0,
                GOAWAY => 4,
                _ => continue,
            };
            return Some(u32::from_be_bytes(payload[at..at + 4].try_into().unwrap()));
        }
    }

    /// The status of the next answer, as its number in HPACK's table.
    fn status(&mut self) -> u8 {
        loop {
            let (kind, _, payload) = self.hears().expect("an answer");
            if kind == HEADERS {
                return payload[0];
            }
        }
    }
}

const NOTHING: [u8; 0] = [];
const STATUS_200: u8 = 0x88;
const STATUS_400: u8 = 0x8c;

#[test]
fn a_request_is_answered_when_it_has_ended_and_content_is_refused() {
    let served = serve(Limits::default());
    let mut spoken = Spoken::begin(served.address);
    spoken.says(HEADERS, END_HEADERS, 1, &asks_for("/ten"));
    assert_eq!(spoken.answers_so_far(), NOTHING, "it may go on");
    spoken.says(DATA, END_STREAM, 1, b"");
    assert_eq!(spoken.status(), STATUS_200);
    spoken.says(HEADERS, END_HEADERS | END_STREAM, 3, &asks_for("/ten"));
    assert_eq!(spoken.status(), STATUS_200);
    spoken.says(HEADERS, END_HEADERS, 5, &asks_for("/ten"));
    spoken.says(DATA, END_STREAM, 5, b"content");
    assert_eq!(spoken.status(), STATUS_400);
}

/// h2spec sends these frames as fast as it can. Here the service reads each before the next, which was the order that failed.
#[test]
fn what_comes_on_a_stream_that_was_reset_is_an_error() {
    let served = serve(Limits::default());
    let reset = || {
        let mut spoken = Spoken::begin(served.address);
        spoken.says(HEADERS, END_HEADERS, 1, &asks_for("/ten"));
        assert_eq!(spoken.answers_so_far(), NOTHING);
        spoken.says(RST_STREAM, 0, 1, &8_u32.to_be_bytes());
        assert_eq!(spoken.answers_so_far(), NOTHING);
        spoken
    };
    let mut data = reset();
    data.says(DATA, END_STREAM, 1, b"late");
    assert_eq!(data.error(), Some(STREAM_CLOSED));
    let mut headers = reset();
    headers.says(HEADERS, END_HEADERS | END_STREAM, 1, &asks_for("/ten"));
    // The number of a new stream has to be higher (RFC 9113, section 5.1.1).
    assert_eq!(headers.error(), Some(PROTOCOL_ERROR));
}

#[test]
fn a_window_that_is_opened_too_far_is_an_error_of_its_stream() {
    let served = serve(Limits::default());
    let mut spoken = Spoken::begin(served.address);
    spoken.says(HEADERS, END_HEADERS, 1, &asks_for("/ten"));
    assert_eq!(spoken.answers_so_far(), NOTHING);
    spoken.says(WINDOW_UPDATE, 0, 1, &0x7fff_ffff_u32.to_be_bytes());
    assert_eq!(spoken.error(), Some(FLOW_CONTROL_ERROR));
}
