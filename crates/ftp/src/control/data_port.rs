//! A port of this host at which data connections of one server are awaited.
//!
//! A data connection shows no login, so only the hosts of the server may make one. They are the host of its control connection, and the data
//! nodes that its answer to SPAS names. `named_hosts.rs` says which of these names count.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::limits::MAX_STRANGERS;
use crate::refusal::invalid;

/// A port that is open for the data of one transfer.
#[derive(Debug)]
pub(crate) struct DataPort {
    listener: TcpListener,
    /// The host of the control connection.
    host: IpAddr,
    data_nodes: Arc<[IpAddr]>,
    strangers: u32,
}

impl DataPort {
    /// Opens a port of the range, or any, for a server with these hosts.
    pub(super) fn open(
        address: IpAddr,
        range: Option<(u16, u16)>,
        host: IpAddr,
        data_nodes: Arc<[IpAddr]>,
    ) -> io::Result<DataPort> {
        let listener = bind(address, range)?;
        listener.set_nonblocking(true)?;
        Ok(DataPort { listener, host, data_nodes, strangers: 0 })
    }

    pub(super) fn port(&self) -> io::Result<u16> {
        self.listener.local_addr().map(|address| address.port())
    }

    /// Tells when somebody connects.
    pub(crate) fn readable(&self) -> PollFd<'_> {
        PollFd::new(&self.listener, PollFlags::IN)
    }

    /// The next connection of the server, if it has come by now. Those of other hosts are closed.
    pub(crate) fn take(&mut self) -> io::Result<Option<TcpStream>> {
        loop {
            match self.listener.accept() {
                Ok((socket, peer)) if self.is_of_server(peer.ip().to_canonical()) => {
                    socket.set_nonblocking(false)?;
                    return Ok(Some(socket));
                }
                Ok(_) => {
                    self.strangers += 1;
                    if self.strangers > MAX_STRANGERS {
                        return Err(invalid("other hosts connect to the port that waits for the server's data"));
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(io::Error::new(ErrorKind::NotConnected, error.to_string())),
            }
        }
    }

    fn is_of_server(&self, peer: IpAddr) -> bool {
        peer == self.host || self.data_nodes.contains(&peer)
    }

    /// Waits for the connection of the server.
    pub(super) fn accept(&mut self, patience: Duration) -> io::Result<TcpStream> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(socket) = self.take()? {
                return Ok(socket);
            }
            wait_for(&self.listener, deadline)?;
        }
    }
}

/// The server did not connect to a port of this host.
pub(super) fn unreached(why: &str) -> io::Error {
    io::Error::new(ErrorKind::Unsupported, format!("the server cannot connect to this host ({why})"))
}

/// Binds a port of the range, or any.
fn bind(address: IpAddr, range: Option<(u16, u16)>) -> io::Result<TcpListener> {
    let Some((first, last)) = range else { return TcpListener::bind((address, 0)) };
    let mut bound = Err(ErrorKind::AddrInUse.into());
    // Several lanes look for one at the same time.
    for port in first..=last {
        bound = TcpListener::bind((address, port));
        if bound.is_ok() {
            break;
        }
    }
    bound.map_err(|error| {
        let why = format!("no port of GLOBUS_TCP_PORT_RANGE ({first} to {last}) is free: {error}");
        io::Error::new(ErrorKind::Unsupported, why)
    })
}

fn wait_for(listener: &TcpListener, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(unreached("it did not in time"));
    }
    let timeout = Timespec::try_from(left.max(Duration::from_millis(1))).map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_of_the_range_is_taken() {
        let home = IpAddr::from([127, 0, 0, 1]);
        let taken = TcpListener::bind((home, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let last = port.saturating_add(20);
        let bound = bind(home, Some((port, last))).unwrap().local_addr().unwrap().port();
        assert!((port + 1..=last).contains(&bound));
        let error = bind(home, Some((port, port))).unwrap_err();
        assert!(error.to_string().contains("GLOBUS_TCP_PORT_RANGE"), "{error}");
    }
}
