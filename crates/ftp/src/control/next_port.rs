//! The port of the next transfer, which the server was asked for before it is needed.

use std::io;
use std::net::TcpStream;
use std::thread::JoinHandle;
use std::time::Instant;

use haul_foreign::Counted;

use crate::limits::PORT_KEPT;

type Connected = io::Result<(TcpStream, Counted)>;

/// The server waits here for the next data connection.
#[derive(Debug)]
pub(super) struct NextPort {
    pub(super) port: u16,
    since: Instant,
    /// Makes the connection.
    connecting: Option<JoinHandle<Connected>>,
}

impl NextPort {
    /// The server has just told this port.
    pub(super) fn new(port: u16) -> NextPort {
        NextPort { port, since: Instant::now(), connecting: None }
    }

    /// [`Self::new`], and a thread connects to it. Without a thread the transfer connects itself.
    pub(super) fn connecting(port: u16, connect: impl FnOnce() -> Connected + Send + 'static) -> NextPort {
        let connecting = std::thread::Builder::new().name("ftp-data".into()).spawn(connect).ok();
        NextPort { connecting, ..NextPort::new(port) }
    }

    /// The server still waits there.
    pub(super) fn is_open(&self) -> bool {
        self.since.elapsed() < PORT_KEPT
    }

    /// The connection that was begun, once it is made or has failed. `None`: none was, or it has rested for too long.
    pub(super) fn connected(&mut self) -> Option<Connected> {
        let connecting = self.connecting.take().filter(|_| self.is_open())?;
        Some(connecting.join().unwrap_or_else(|_| Err(io::Error::other("the thread that connects has ended"))))
    }
}
