//! Reads and writes messages as they stand on a link.

use std::io::{self, Read};

use haul_wire::codec::{self, LENGTH_BYTES, NUMBER_BYTES};
use haul_wire::control::Control;

use crate::links::LinkId;

pub(super) enum End {
    /// No other link helps.
    Broken(String),
    /// The link has ended.
    Gone { why: Option<String>, by_peer: bool },
    /// The session does not listen.
    NotHeard,
}

pub(super) fn put_frame(id: LinkId, number: u64, frame: &[u8], bytes: &mut Vec<u8>) {
    if id != LinkId::FIRST {
        bytes.extend_from_slice(&number.to_be_bytes());
    }
    bytes.extend_from_slice(frame);
}

/// Reads messages until one makes no sense.
#[cfg(feature = "testing")]
pub fn read_link(mut input: impl Read, buffer: &mut Vec<u8>) {
    while let Ok(Some(_)) = read_numbered(&mut input, buffer) {}
}

/// Reads a message; `Ok(None)` at an orderly end.
#[cfg(any(test, feature = "testing"))]
pub fn read_message(input: &mut impl Read, buffer: &mut Vec<u8>) -> Result<Option<Control>, String> {
    read_frame(input, buffer).map_err(|end| match end {
        End::Broken(why) => why,
        End::Gone { why, .. } => why.unwrap_or_default(),
        End::NotHeard => String::new(),
    })
}

pub(super) fn read_frame(input: &mut impl Read, buffer: &mut Vec<u8>) -> Result<Option<Control>, End> {
    let mut length = [0; LENGTH_BYTES];
    if !read_full(input, &mut length)? {
        return Ok(None);
    }
    let length = codec::decode_length(length).map_err(|fault| End::Broken(fault.to_string()))?;
    buffer.resize(length, 0);
    if !read_full(input, buffer)? {
        return Err(in_the_middle());
    }
    codec::decode(buffer).map(Some).map_err(|fault| End::Broken(fault.to_string()))
}

pub(super) fn read_numbered(input: &mut impl Read, buffer: &mut Vec<u8>) -> Result<Option<(u64, Control)>, End> {
    let mut number = [0; NUMBER_BYTES];
    if !read_full(input, &mut number)? {
        return Ok(None);
    }
    let message = read_frame(input, buffer)?.ok_or_else(in_the_middle)?;
    Ok(Some((u64::from_be_bytes(number), message)))
}

fn read_full(input: &mut impl Read, buffer: &mut [u8]) -> Result<bool, End> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) if filled == 0 => return Ok(false),
            Ok(0) => return Err(in_the_middle()),
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                let by_peer = matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof
                );
                return Err(End::Gone { why: Some(error.to_string()), by_peer });
            }
        }
    }
    Ok(true)
}

fn in_the_middle() -> End {
    End::Gone { why: Some("it ended in the middle of a message".into()), by_peer: true }
}
