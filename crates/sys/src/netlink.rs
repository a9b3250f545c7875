//! Netlink (netlink(7)): asks the kernel for lists, and splits its messages into fields. Only the kernel's are read. A
//! malformed message ends its packet, never the program.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

use crate::poll::{self, Interest};

#[derive(Debug)]
pub(crate) struct Netlink(OwnedFd);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subsystem {
    /// Devices, addresses, routes (rtnetlink(7)).
    Route,
    /// Subsystems registered by name, such as MPTCP.
    Generic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    pub kind: u16,
    pub flags: u16,
    pub sequence: u32,
    pub body: &'a [u8],
}

pub(crate) enum Received<'a> {
    /// Messages of the kernel; see [`messages`].
    Packet(&'a [u8]),
    /// There is no packet now.
    Nothing,
    /// The socket was full, and the kernel dropped messages.
    Overrun,
}

impl Netlink {
    /// Opens a socket for these groups (`RTMGRP_*`); 0: for questions.
    pub fn open(subsystem: Subsystem, groups: u32) -> io::Result<Netlink> {
        let protocol = match subsystem {
            Subsystem::Route => None,
            Subsystem::Generic => Some(netlink::GENERIC),
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, groups))?;
        Ok(Netlink(socket))
    }

    /// Receives one packet; another process's counts as nothing.
    pub fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Received<'a>> {
        let (length, from) = match rustix::net::recvfrom(&self.0, &mut *buffer, RecvFlags::DONTWAIT) {
            Ok((length, _, from)) => (length, from),
            Err(rustix::io::Errno::NOBUFS) => return Ok(Received::Overrun),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(Received::Nothing),
            Err(errno) => return Err(errno.into()),
        };
        let from = from.and_then(|from| SocketAddrNetlink::try_from(from).ok());
        let is_of_kernel = from.is_some_and(|from| from.pid() == KERNEL_PORT);
        Ok(Received::Packet(if is_of_kernel { &buffer[..length] } else { &[] }))
    }

    /// Asks, and gives each answer to `take`; `flags` may have [`DUMP`]. Fails with the kernel's error, or `Interrupted` if
    /// a list changed meanwhile.
    pub fn ask(&self, kind: u16, flags: u16, body: &[u8], mut take: impl FnMut(Message<'_>)) -> io::Result<()> {
        let request = request(kind, flags, body);
        rustix::net::sendto(&self.0, &request, SendFlags::empty(), &SocketAddrNetlink::new(KERNEL_PORT, 0))?;
        let mut buffer = vec![0; PACKET_BYTES];
        let mut changed = false;
        for _ in 0..MAX_PACKETS {
            if !poll::wait(&[(self.0.as_fd(), Interest::Read)], Some(ANSWER_LIMIT))?[0] {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the kernel does not answer over netlink"));
            }
            let packet = match self.receive(&mut buffer)? {
                Received::Packet(packet) => packet,
                Received::Nothing => continue,
                Received::Overrun => return Err(io::ErrorKind::Interrupted.into()),
            };
            for message in messages(packet).filter(|message| message.sequence == SEQUENCE) {
                changed |= message.flags & DUMP_INTERRUPTED != 0;
                match message.kind {
                    DONE if changed => return Err(io::ErrorKind::Interrupted.into()),
                    DONE => return Ok(()),
                    // Zero is the acknowledgement.
                    ERROR => match i32_at(message.body, 0) {
                        Some(0) => return Ok(()),
                        Some(errno) => return Err(io::Error::from_raw_os_error(errno.saturating_neg())),
                        None => return Err(io::ErrorKind::InvalidData.into()),
                    },
                    NOTHING => {}
                    _ => take(message),
                }
            }
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer over netlink has no end"))
    }

    /// [`Netlink::ask`] for a list, repeated with a new `take` if it changes.
    pub fn list<T>(
        subsystem: Subsystem,
        kind: u16,
        body: &[u8],
        parse: impl Fn(Message<'_>) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        let mut tries = 1;
        loop {
            let mut found = Vec::new();
            let outcome = Netlink::open(subsystem, 0)?.ask(kind, DUMP, body, |message| found.extend(parse(message)));
            match outcome {
                Err(error) if error.kind() == io::ErrorKind::Interrupted && tries < MAX_TRIES => tries += 1,
                // In endless change this is as good as any answer.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(found),
                outcome => return outcome.map(|()| found),
            }
        }
    }
}

impl AsFd for Netlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn request(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER_BYTES + body.len()).expect("a request is small");
    let mut request = Vec::with_capacity(HEADER_BYTES + body.len());
    request.extend(length.to_ne_bytes());
    request.extend(kind.to_ne_bytes());
    request.extend((flags | REQUEST).to_ne_bytes());
    request.extend(SEQUENCE.to_ne_bytes());
    request.extend([0; 4]);
    request.extend(body);
    request
}

pub(crate) fn push_attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(ATTRIBUTE_HEADER_BYTES + value.len()).expect("a field is small");
    body.extend(length.to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(ALIGNMENT), 0);
}

pub(crate) fn messages(packet: &[u8]) -> impl Iterator<Item = Message<'_>> {
    let mut rest = packet;
    std::iter::from_fn(move || {
        let length = u32_at(rest, 0)? as usize;
        let whole = rest.get(..length).filter(|whole| whole.len() >= HEADER_BYTES)?;
        rest = rest.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        Some(Message {
            kind: u16_at(whole, 4)?,
            flags: u16_at(whole, 6)?,
            sequence: u32_at(whole, 8)?,
            body: &whole[HEADER_BYTES..],
        })
    })
}

/// A message's fields (kind, value), up to the first malformed one.
pub(crate) fn attributes(fields: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = fields;
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(rest, 0)?);
        let whole = rest.get(..length).filter(|whole| whole.len() >= ATTRIBUTE_HEADER_BYTES)?;
        rest = rest.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        Some((u16_at(whole, 2)? & ATTRIBUTE_KIND, &whole[ATTRIBUTE_HEADER_BYTES..]))
    })
}

pub(crate) fn attribute(fields: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(fields).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(offset..)?.get(..2)?.try_into().ok()?))
}

pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(offset..)?.get(..4)?.try_into().ok()?))
}

pub(crate) fn i32_at(bytes: &[u8], offset: usize) -> Option<i32> {
    u32_at(bytes, offset).map(u32::cast_signed)
}

/// Asks for a list (NLM_F_DUMP).
pub(crate) const DUMP: u16 = 0x300;
/// Asks for an acknowledgement, the end of a single answer (NLM_F_ACK).
pub(crate) const ACKNOWLEDGE: u16 = 0x4;
/// NLM_F_REQUEST.
const REQUEST: u16 = 0x1;
/// NLM_F_DUMP_INTR: the list changed while it was read.
const DUMP_INTERRUPTED: u16 = 0x10;

/// NLMSG_NOOP, NLMSG_ERROR, NLMSG_DONE.
const NOTHING: u16 = 1;
const ERROR: u16 = 2;
const DONE: u16 = 3;

const HEADER_BYTES: usize = 16;
const ATTRIBUTE_HEADER_BYTES: usize = 4;
/// Headers and fields begin at multiples of this.
const ALIGNMENT: usize = 4;
/// The upper two bits of the kind are flags (NLA_TYPE_MASK).
const ATTRIBUTE_KIND: u16 = 0x3fff;

const KERNEL_PORT: u32 = 0;
const SEQUENCE: u32 = 1;
/// The kernel fills a list's packets up to 32 KiB (af_netlink.c).
pub(crate) const PACKET_BYTES: usize = 64 * 1024;
/// 32 KiB hold about 30 devices or their addresses: this is for 100,000.
const MAX_PACKETS: u32 = 4_096;
const MAX_TRIES: u32 = 3;
/// The kernel answers within the question; after 5 s never.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_and_fields_are_parted_and_malformed_ones_end_the_packet() {
        let mut body = vec![7; 4];
        push_attribute(&mut body, 3, b"eth0\0");
        push_attribute(&mut body, 0x8000 | 4, &[1, 0, 0, 0]);
        let mut packet = request(16, 0, &body);
        packet.extend(request(20, 0, &[]));
        let found: Vec<(u16, usize)> = messages(&packet).map(|message| (message.kind, message.body.len())).collect();
        assert_eq!(found, [(16, 24), (20, 0)]);
        let fields = &messages(&packet).next().unwrap().body[4..];
        assert_eq!(attribute(fields, 3), Some(&b"eth0\0"[..]));
        assert_eq!(attribute(fields, 4), Some(&[1, 0, 0, 0][..]), "flags of the kind do not count");
        assert_eq!(attribute(fields, 5), None);
        for end in 0..packet.len() {
            assert!(messages(&packet[..end]).count() <= 2);
            assert!(attributes(&body[4..][..end.min(20)]).count() <= 2);
        }
        for length in 0..=u8::MAX {
            packet[0] = length;
            body[4] = length;
            assert!(messages(&packet).count() <= 2 + packet.len() / HEADER_BYTES);
            assert!(attributes(&body[4..]).count() <= 5);
        }
    }

    #[test]
    fn an_error_of_the_kernel_is_told_as_it_is() {
        let netlink = Netlink::open(Subsystem::Route, 0).unwrap();
        let mut about = vec![0; 16];
        about[4..8].copy_from_slice(&i32::MAX.to_ne_bytes());
        let error = netlink.ask(libc::RTM_GETLINK, ACKNOWLEDGE, &about, |_| {}).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV), "{error}");
    }
}
