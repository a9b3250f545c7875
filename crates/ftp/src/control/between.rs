//! Transfers from one server to another ("third party", MODE E): the one that takes waits, the one that sends connects.
//!
//! ```text
//! target: MODE E, PASV -> ESTO        source: MODE E, OPTS RETR, PORT, ERET        -> both are heard until each says how it ended
//! ```
//! The source is told no other host than that of the target's control connection: no server makes another one connect anywhere (FTP bounce).

use std::io::{self, ErrorKind, Read as _};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, poll};

use super::Control;
use super::blocks::{connects_to, parallelism};
use super::named_hosts::named;
use crate::codec::command::Command;
use crate::codec::passive;
use crate::codec::reply::Reply;
use crate::limits::{LISTEN_PATIENCE, OTHER_END_PATIENCE, READ_BYTES};
use crate::markers::Markers;
use crate::refusal::{file_refusal, is_missing};

/// A watcher of a transfer between servers: it stops the transfer, and hears how far it is.
#[derive(Clone, Copy)]
pub(crate) struct Watcher<'a> {
    /// Nobody wants it any more.
    pub(crate) is_over: &'a (dyn Fn() -> bool + Sync),
    /// Gets the bytes that are there by now.
    pub(crate) moves: &'a (dyn Fn(u64) + Sync),
}

impl Control {
    /// The host of the server.
    pub(crate) fn host(&self) -> IpAddr {
        self.peer.ip().to_canonical()
    }

    /// Asks where the server waits for blocks that a server at the host `source` sends.
    pub(crate) fn waits_for(&mut self, source: IpAddr) -> io::Result<SocketAddr> {
        let host = self.host();
        self.settle()?;
        (self.kept, self.block_addresses) = (None, Vec::new());
        let replies = self.ask_all(&self.questions_of_one_stripe())?;
        if let [.., passive] = &replies[..]
            && let Some(told) = passive::address(passive.text()).filter(|_| passive.code == 227)
            && !self.is_of_server(IpAddr::V4(*told.ip()))
            // Behind ssh, a server hardly knows its own address.
            && !self.wire.is_pipe()
        {
            return Err(refused(format!("the server waits for data at {}, and is known as {host}", told.ip())));
        }
        self.note_blocks(&replies)?;
        let address = self.block_addresses.pop().ok_or_else(|| refused("the server tells no port for the data"))?;
        named(address, source)
    }

    /// Begins to take what another server sends.
    pub(crate) fn takes(&mut self, command: Command) -> io::Result<()> {
        self.send(&[command])
    }

    /// Begins to send to another server.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`]: the server does not do that.
    pub(crate) fn sends_to(&mut self, to: SocketAddr, streams: u16, command: Command) -> io::Result<()> {
        self.settle()?;
        (self.kept, self.block_addresses) = (None, Vec::new());
        let mut commands = Vec::new();
        if !self.is_extended {
            commands.push(Command::plain("MODE E"));
        }
        if self.streams != streams {
            commands.push(parallelism(streams)?);
        }
        commands.push(connects_to(to)?);
        let before = commands.len();
        commands.push(command);
        self.send(&commands)?;
        let replies = (0..before).map(|_| self.final_reply()).collect::<io::Result<Vec<_>>>()?;
        if let Some(reply) = replies.iter().find(|reply| !reply.is_success()) {
            // The transfer itself may have begun, to somewhere else.
            self.is_broken = true;
            return Err(refused(format!("the server sends to no other one ({})", reply.shown())));
        }
        (self.is_extended, self.streams) = (true, streams);
        Ok(())
    }

    /// The next word on the transfer, if it has come by now.
    fn said(&mut self, markers: &mut Markers) -> io::Result<Option<Said>> {
        let reply = match self.reply_by_now() {
            Ok(None) => return Ok(None),
            Ok(Some(reply)) if reply.code != 421 => reply,
            Ok(Some(reply)) => {
                self.is_broken = true;
                return Err(file_refusal(&reply));
            }
            Err(error) => {
                self.is_broken = true;
                return Err(error);
            }
        };
        if reply.is_preliminary() {
            markers.add(Instant::now()).inspect_err(|_| self.is_broken = true)?;
            return Ok(Some(match moved_bytes(&reply) {
                Some(bytes) => Said::Moved(bytes),
                None if matches!(reply.code, 125 | 150) => Said::Begun,
                None => Said::Nothing,
            }));
        }
        if reply.is_success() { Ok(Some(Said::Ended)) } else { Err(file_refusal(&reply)) }
    }

    fn reply_by_now(&mut self) -> io::Result<Option<Reply>> {
        let mut block = [0; READ_BYTES];
        loop {
            if let Some(reply) = self.replies.take()? {
                return Ok(Some(reply));
            }
            if !self.wire.has_something() {
                return Ok(None);
            }
            match self.wire.read(&mut block)? {
                0 => {
                    return Err(io::Error::new(
                        ErrorKind::ConnectionAborted,
                        "the server closed the control connection",
                    ));
                }
                count => self.replies.push(&block[..count]),
            }
        }
    }
}

/// A word on a transfer.
#[derive(Debug)]
enum Said {
    Begun,
    /// So many bytes are there by now.
    Moved(u64),
    /// A mark that tells nothing of use.
    Nothing,
    Ended,
}

/// Hears both ends of a transfer until each says that it ended well. What ends otherwise, or is silent, is broken off at both.
pub(crate) fn until_end(source: &mut Control, target: &mut Control, watcher: Watcher<'_>) -> io::Result<()> {
    let begun = Instant::now();
    let silence = source.habits.silence.max(target.habits.silence);
    let mut ends = [End::new("source", source, begun), End::new("target", target, begun)];
    let (mut heard, mut has_begun, mut bytes) = (begun, false, 0);
    let mut failed: Option<(Instant, io::Error)> = None;
    while ends.iter().any(|end| !end.is_over) {
        for end in &mut ends {
            while let Some(said) = end.said() {
                match said {
                    Ok(Said::Moved(now)) if now > bytes => {
                        (bytes, heard, has_begun) = (now, Instant::now(), true);
                        (watcher.moves)(bytes);
                    }
                    Ok(Said::Moved(_) | Said::Nothing) => {}
                    Ok(Said::Begun | Said::Ended) => {
                        heard = Instant::now();
                        has_begun |= end.name == "source";
                    }
                    Err(error) => {
                        failed.get_or_insert((Instant::now(), error));
                    }
                }
            }
        }
        let ended = match &failed {
            _ if (watcher.is_over)() => Some(ErrorKind::Interrupted.into()),
            // The other one notices, and says so, if they are connected.
            Some((since, _)) if !has_begun || since.elapsed() > OTHER_END_PATIENCE => {
                failed.take().map(|(_, error)| error)
            }
            None if !has_begun && begun.elapsed() > LISTEN_PATIENCE.min(silence) => {
                Some(refused("the one server does not reach the other one in time"))
            }
            _ if heard.elapsed() > silence => {
                Some(io::Error::new(ErrorKind::TimedOut, "nothing moves between the servers"))
            }
            _ => None,
        };
        if let Some(error) = ended {
            ends.iter_mut().for_each(End::break_off);
            return Err(error);
        }
        wait_for_any(&ends)?;
    }
    failed.map_or(Ok(()), |(_, error)| Err(error))
}

struct End<'a> {
    name: &'static str,
    control: &'a mut Control,
    markers: Markers,
    is_over: bool,
}

impl<'a> End<'a> {
    fn new(name: &'static str, control: &'a mut Control, now: Instant) -> End<'a> {
        End { name, control, markers: Markers::new(now), is_over: false }
    }

    fn said(&mut self) -> Option<io::Result<Said>> {
        if self.is_over {
            return None;
        }
        let said = self.control.said(&mut self.markers).transpose()?;
        self.is_over = matches!(said, Err(_) | Ok(Said::Ended));
        Some(said.map_err(|error| match is_missing(&error) {
            true => error,
            false => io::Error::new(error.kind(), format!("at the {}, {error}", self.name)),
        }))
    }

    fn break_off(&mut self) {
        self.control.is_broken |= !self.is_over;
    }
}

fn wait_for_any(ends: &[End<'_>; 2]) -> io::Result<()> {
    let mut open: Vec<_> = ends.iter().filter(|end| !end.is_over).map(|end| end.control.wire.readable()).collect();
    if open.is_empty() {
        return Ok(());
    }
    let timeout = Timespec::try_from(LOOKS_EVERY).map_err(io::Error::other)?;
    match poll(&mut open, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whoever interrupts a copy waits no longer than this.
const LOOKS_EVERY: Duration = Duration::from_millis(200);

/// The bytes of `112-Perf Marker`.
fn moved_bytes(reply: &Reply) -> Option<u64> {
    let of_line = |line: &Vec<u8>| {
        let text = std::str::from_utf8(line).ok()?.trim().strip_prefix("Stripe Bytes Transferred:")?;
        text.trim().parse().ok()
    };
    reply.lines.iter().filter(|_| reply.code == 112).find_map(of_line)
}

fn refused(why: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::Unsupported, why.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_of_progress_tells_bytes() {
        let reply =
            |lines: &[&str]| Reply { code: 112, lines: lines.iter().map(|line| line.as_bytes().to_vec()).collect() };
        let marker =
            ["Perf Marker", " Timestamp:  1.2", " Stripe Bytes Transferred: 1048576", " Total Stripe Count: 1", "End."];
        assert_eq!(moved_bytes(&reply(&marker)), Some(1 << 20));
        assert_eq!(moved_bytes(&reply(&["Stripe Bytes Transferred: -1"])), None);
        assert_eq!(moved_bytes(&Reply { code: 111, ..reply(&marker) }), None);
    }
}
