//! One TCP connection to a server, in clear or with TLS.
//!
//! The end of a TLS connection counts only when the server has announced it (`close_notify`): rustls makes an error of any other.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::pipe::PipeWire;

/// TLS of one control connection and of the data connections that belong to it.
///
/// vsftpd and proftpd take a data connection only if it continues the TLS session of its control connection, so each control connection
/// keeps its own sessions.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Tls {
    pub(crate) fn new(trusting: &ClientConfig, host: &str) -> io::Result<Tls> {
        let mut config = trusting.clone();
        config.resumption = Resumption::in_memory_sessions(SESSIONS);
        let name = ServerName::try_from(host.to_owned());
        let name =
            name.map_err(|_| io::Error::new(ErrorKind::InvalidInput, "no certificate can have the name of this host"))?;
        Ok(Tls { config: Arc::new(config), name })
    }
}

/// Nothing is due on such a connection.
const MAX_TICKET_READS: u32 = 4;

/// One server.
const SESSIONS: usize = 1;

/// A connection.
#[derive(Debug)]
pub(crate) enum Wire {
    Clear(TcpStream),
    Pipe(Box<PipeWire>),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Wire {
    /// A connection on which a server may be silent for this long.
    pub(crate) fn new(socket: TcpStream, silence: Duration) -> io::Result<Wire> {
        let wire = Wire::Clear(socket);
        wire.be_patient(silence)?;
        Ok(wire)
    }

    /// Begins TLS. The handshake takes place with the first read or write.
    pub(crate) fn secured(self, tls: &Tls) -> io::Result<Wire> {
        let Wire::Clear(socket) = self else { return Ok(self) };
        let connection = ClientConnection::new(Arc::clone(&tls.config), tls.name.clone()).map_err(io::Error::other)?;
        Ok(Wire::Tls(Box::new(StreamOwned::new(connection, socket))))
    }

    /// The same, of a connection that has been used in clear.
    pub(crate) fn secure(&mut self, tls: &Tls) -> io::Result<()> {
        if let Wire::Clear(socket) = self {
            *self = Wire::Clear(socket.try_clone()?).secured(tls)?;
        }
        Ok(())
    }

    fn socket(&self) -> Result<&TcpStream, &PipeWire> {
        match self {
            Wire::Clear(socket) => Ok(socket),
            Wire::Tls(stream) => Ok(&stream.sock),
            Wire::Pipe(pipe) => Err(pipe),
        }
    }

    pub(crate) fn be_patient(&self, silence: Duration) -> io::Result<()> {
        match self.socket() {
            Ok(socket) => {
                socket.set_read_timeout(Some(silence))?;
                socket.set_write_timeout(Some(silence))
            }
            Err(pipe) => {
                pipe.be_patient(silence);
                Ok(())
            }
        }
    }

    /// The host of the server. Data connections lead there, and come from there.
    pub(crate) fn peer(&self) -> io::Result<SocketAddr> {
        self.socket().map_or_else(|pipe| Ok(pipe.peer), TcpStream::peer_addr)
    }

    /// The address of this host that the server sees.
    pub(crate) fn local(&self) -> io::Result<SocketAddr> {
        self.socket().map_or_else(PipeWire::local, TcpStream::local_addr)
    }

    /// Tells when there is something to read.
    pub(crate) fn readable(&self) -> PollFd<'_> {
        match self.socket() {
            Ok(socket) => PollFd::new(socket, PollFlags::IN),
            Err(pipe) => pipe.readable(),
        }
    }

    /// Whether control goes through a program, which knows no address.
    pub(crate) fn is_pipe(&self) -> bool {
        matches!(self, Wire::Pipe(_))
    }

    /// Bytes have come, or the end.
    pub(crate) fn has_something(&self) -> bool {
        !self.is_quiet()
    }

    /// Nothing has come, and the server has not closed it.
    pub(crate) fn is_quiet(&self) -> bool {
        let socket = match self.socket() {
            Ok(socket) => socket,
            Err(pipe) => return pipe.is_quiet(),
        };
        if socket.set_nonblocking(true).is_err() {
            return false;
        }
        let peeked = socket.peek(&mut [0]);
        let is_quiet = matches!(peeked, Err(error) if error.kind() == ErrorKind::WouldBlock);
        socket.set_nonblocking(false).is_ok() && is_quiet
    }

    /// Takes in what the server has sent already, of a connection that was only written. With TLS these are the tickets by which the next
    /// data connection continues the session: vsftpd and proftpd take no other.
    pub(crate) fn take_tickets(&mut self) {
        if let Wire::Tls(stream) = self
            && stream.sock.set_nonblocking(true).is_ok()
        {
            // A server closes the connection before it confirms the upload, so there is little.
            for _ in 0..MAX_TICKET_READS {
                if !matches!(self.read(&mut [0; 64]), Ok(1..)) {
                    return;
                }
            }
        }
    }

    /// Announces that nothing more is written.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        if let Wire::Tls(stream) = self {
            // Without data there was no handshake yet.
            while stream.conn.is_handshaking() {
                stream.conn.complete_io(&mut stream.sock)?;
            }
            stream.conn.send_close_notify();
            stream.flush()?;
            while stream.conn.wants_write() {
                stream.conn.write_tls(&mut stream.sock)?;
            }
        }
        let Ok(socket) = self.socket() else { return Ok(()) };
        match socket.shutdown(Shutdown::Write) {
            Err(error) if error.kind() == ErrorKind::NotConnected => Ok(()),
            shut => shut,
        }
    }
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match self {
            Wire::Clear(socket) => socket.read(buffer),
            Wire::Pipe(pipe) => pipe.read(buffer),
            Wire::Tls(stream) => stream.read(buffer),
        };
        read.map_err(in_words)
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = match self {
            Wire::Clear(socket) => socket.write(bytes),
            Wire::Pipe(pipe) => pipe.write(bytes),
            Wire::Tls(stream) => stream.write(bytes),
        };
        written.map_err(in_words)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let written = match self {
            Wire::Clear(socket) => socket.write_vectored(parts),
            Wire::Pipe(pipe) => pipe.write(parts.iter().find(|part| !part.is_empty()).map_or(&[], |part| part)),
            Wire::Tls(stream) => stream.write_vectored(parts),
        };
        written.map_err(in_words)
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Wire::Clear(socket) => socket.flush(),
            Wire::Pipe(_) => Ok(()),
            Wire::Tls(stream) => stream.flush(),
        }
        .map_err(in_words)
    }
}

/// A socket with a limit of time calls its end "would block".
fn in_words(error: io::Error) -> io::Error {
    if error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()) {
        return error;
    }
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => io::Error::new(ErrorKind::TimedOut, "the server is silent"),
        ErrorKind::UnexpectedEof => {
            io::Error::new(ErrorKind::UnexpectedEof, "the TLS connection was cut: the server has not announced its end")
        }
        // No raw number: the connection is lost, and no file is missing.
        kind => io::Error::new(kind, without_number(&error)),
    }
}

fn without_number(error: &io::Error) -> String {
    let text = error.to_string();
    text.find(" (os error").map_or(text.clone(), |end| text[..end].to_owned())
}
