//! The receiving half of a TLS connection whose records the kernel opens: the socket's bytes are plain.
//!
//! ```text
//! Opener --key, number of the next record--> kernel      socket, opened there --> recvmsg, splice
//! ```
//! Records without data come with their type: the end, alerts, new keys (Linux 6.14). Splice stops before one.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use haul_sys::kernel_tls::{self, Direction};
use rustls::ConnectionTrafficSecrets;

use crate::control::{BROKE_OFF, Heard, KeySchedule, TYPE_DATA, violation};
use crate::kernel_sealer::{KeyUsedUp, keys, not_there, refused};
use crate::transport::{Link, Transport};

pub(crate) struct KernelOpener {
    schedule: Arc<KeySchedule>,
    ended: bool,
    broken: Option<(io::ErrorKind, String)>,
}

impl KernelOpener {
    pub(crate) fn begin(
        link: &Link,
        next_record: u64,
        secrets: &ConnectionTrafficSecrets,
        schedule: Arc<KeySchedule>,
    ) -> io::Result<KernelOpener> {
        let socket = link.tcp().ok_or_else(|| refused("the kernel does TLS on TCP connections only"))?.as_fd();
        kernel_tls::attach(socket).map_err(|error| not_there(&error))?;
        kernel_tls::set_keys(socket, Direction::Receive, &keys(next_record, secrets)?)
            .map_err(|error| refused(&format!("the kernel does not take the key of this cipher: {error}")))?;
        Ok(KernelOpener { schedule, ended: false, broken: None })
    }

    /// Waits for a byte, and takes what is there. 0: the proper end.
    pub(crate) fn read(&mut self, link: &Link, target: &mut [u8]) -> io::Result<usize> {
        while !target.is_empty() && !self.ended {
            // A record without data must be taken whole.
            if target.len() < CONTROL_BYTES_MAX && self.take_control(link)? {
                continue;
            }
            match self.receive(link, target, false)? {
                (0, TYPE_DATA) => {}
                (bytes, TYPE_DATA) => {
                    self.schedule.has_sent(bytes);
                    return Ok(bytes);
                }
                (bytes, content_type) => self.hear(link, content_type, &target[..bytes])?,
            }
        }
        Ok(0)
    }

    /// Waits for the next record, and takes it if it has no data, which splice refuses. False: it is data.
    pub(crate) fn take_control(&mut self, link: &Link) -> io::Result<bool> {
        let mut first = [0];
        if self.ended {
            return Ok(true);
        }
        let (_, content_type) = self.receive(link, &mut first, true)?;
        if content_type == TYPE_DATA {
            return Ok(false);
        }
        let mut whole = [0; CONTROL_BYTES_MAX];
        let (bytes, content_type) = self.receive(link, &mut whole, false)?;
        self.hear(link, content_type, &whole[..bytes])?;
        Ok(true)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    pub(crate) fn judge(&mut self, error: io::Error) -> io::Error {
        let error = match error.raw_os_error() {
            Some(BAD_MESSAGE) => violation("a record that does not decrypt"),
            Some(MESSAGE_TOO_LONG | INVALID) => violation("a damaged record header"),
            _ => error,
        };
        self.broken = Some((error.kind(), error.to_string()));
        error
    }

    fn receive(&mut self, link: &Link, target: &mut [u8], peek: bool) -> io::Result<(usize, u8)> {
        if let Some((kind, text)) = &self.broken {
            return Err(io::Error::new(*kind, text.clone()));
        }
        let outcome = link.read_by(target, |transport, buffer| match transport {
            Transport::Tcp(socket) => kernel_tls::receive(socket.as_fd(), buffer, peek),
            Transport::Unix(_) | Transport::Pipes(_) => Err(io::ErrorKind::NotConnected.into()),
        });
        match outcome {
            Ok((bytes, Some(content_type))) => Ok((bytes, content_type)),
            Ok((_, None)) => Err(self.judge(io::Error::new(io::ErrorKind::UnexpectedEof, BROKE_OFF))),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(error),
            Err(error) => Err(self.judge(error)),
        }
    }

    fn hear(&mut self, link: &Link, content_type: u8, content: &[u8]) -> io::Result<()> {
        let heard = self.schedule.hear(content_type, content).and_then(|heard| match heard {
            Heard::End => Ok(true),
            Heard::NewKey(next_record, secrets) => {
                let socket = link.tcp().ok_or(io::ErrorKind::NotConnected)?.as_fd();
                if !kernel_tls::can_change_keys(socket, Direction::Receive) {
                    return Err(io::Error::other(KeyUsedUp));
                }
                kernel_tls::set_keys(socket, Direction::Receive, &keys(next_record, &secrets)?)?;
                Ok(false)
            }
        });
        self.ended = heard.map_err(|error| self.judge(error))?;
        Ok(())
    }
}

/// A key update has five bytes, an alert two; a longer record is refused.
const CONTROL_BYTES_MAX: usize = 16;

/// EBADMSG, EINVAL and EMSGSIZE: recv(2) with TLS.
const BAD_MESSAGE: i32 = 74;
const INVALID: i32 = 22;
const MESSAGE_TOO_LONG: i32 = 90;
