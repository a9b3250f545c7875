//! One connection to a server, and the body read from it. hyper speaks HTTP/1.1 in the connection's own runtime, which runs only
//! while a thread waits here.

use std::fmt;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request, Response, response};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::http_client::gathering::Gathering;
use crate::http_client::limits::CONNECT_DEADLINE;
use crate::http_client::outgoing::{Outgoing, Progress};
use crate::http_client::reach::{Counted, Dialled};
use crate::http_client::url::Origin;

pub(crate) struct Connection {
    // The connection's task ends with the runtime, so requests drop first.
    requests: SendRequest<Outgoing>,
    runtime: Runtime,
    /// Counts the connection as open.
    counted: Counted,
    silence: Duration,
    pub(crate) idle_since: Instant,
    /// Whether it has rested: the server may have closed it.
    pub(crate) has_rested: bool,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}

impl Connection {
    /// Greets the server, which may be silent for `silence`.
    pub(crate) fn open(
        origin: &Origin,
        Dialled { socket, counted, .. }: Dialled,
        tls: Option<Arc<ClientConfig>>,
        silence: Duration,
    ) -> io::Result<Connection> {
        let deadline = CONNECT_DEADLINE.min(silence);
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        let opening = async {
            let socket = Gathering::new(TcpStream::from_std(socket)?, counted.gatherer());
            let Some(tls) = tls else { return greet(socket).await };
            let name = ServerName::try_from(origin.host.clone())
                .map_err(|_| io::Error::new(ErrorKind::InvalidInput, "its name is none that a certificate can have"))?;
            greet(TlsConnector::from(tls).connect(name, socket).await.map_err(tls_error)?).await
        };
        let opened = runtime.block_on(async { timeout(deadline, opening).await });
        let requests = opened.map_err(|_| silent(deadline))??;
        Ok(Connection { requests, runtime, counted, silence, idle_since: Instant::now(), has_rested: false })
    }

    /// The server may take its time while it takes the request's body.
    /// A starved request ends early.
    pub(crate) fn ask(
        mut self,
        request: Request<Outgoing>,
        is_starved: Option<&dyn Fn() -> bool>,
    ) -> Result<(response::Parts, Body), Refused> {
        let silence = self.silence;
        let look_every = if is_starved.is_some() { silence / LOOKS_AT_SILENCE } else { silence };
        let progress = request.body().progress();
        if *request.method() == Method::PUT {
            self.counted.sends();
        }
        let Connection { requests, runtime, .. } = &mut self;
        let asking = async {
            if let Err(error) = requests.ready().await {
                return Err((error, Some(request)));
            }
            requests.try_send_request(request).await.map_err(|mut refused| {
                let unsent = refused.take_message();
                (refused.into_error(), unsent)
            })
        };
        let answer = runtime.block_on(async {
            let mut asking = pin!(asking);
            let (mut before, mut moved) = (progress.given(), Instant::now());
            loop {
                match timeout(look_every, &mut asking).await {
                    Ok(answer) => return Ok(answer),
                    Err(_) if progress.has_moved(before) => (before, moved) = (progress.given(), Instant::now()),
                    Err(_) if moved.elapsed() >= silence => return Err(silent(silence)),
                    Err(_) if is_starved.is_some_and(|is_starved| is_starved()) => return Err(starved()),
                    Err(_) => {}
                }
            }
        });
        match answer {
            Ok(Ok(response)) => {
                let (head, incoming): (_, Incoming) = Response::into_parts(response);
                Ok((head, Body { connection: self, progress, incoming, block: Bytes::new(), is_over: false }))
            }
            // The server closed a resting connection before the request.
            Ok(Err((error, unsent))) => {
                let unsent = unsent.map(Box::new);
                Err(Refused { was_resting: self.has_rested && is_cut(&error), unsent, why: as_io(&error) })
            }
            Err(why) => Err(Refused { was_resting: false, unsent: None, why }),
        }
    }

    pub(crate) fn rested(self) -> Connection {
        Connection { idle_since: Instant::now(), has_rested: true, ..self }
    }

    /// Whether no close by the server is known.
    pub(crate) fn is_open(&mut self) -> bool {
        // The connection's task sees a close only when it runs.
        self.runtime.block_on(tokio::task::yield_now());
        !self.requests.is_closed()
    }
}

pub(crate) struct Refused {
    /// The connection was closed while it rested: a new one may do.
    pub(crate) was_resting: bool,
    /// The request, if nothing of it was sent.
    pub(crate) unsent: Option<Box<Request<Outgoing>>>,
    pub(crate) why: io::Error,
}

async fn greet<T: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: T) -> io::Result<SendRequest<Outgoing>> {
    // XRootD 5 knows `Range` and `Want-Digest` only in this spelling.
    let handshake = http1::Builder::new().title_case_headers(true).handshake(TokioIo::new(stream));
    let (requests, connection) = handshake.await.map_err(|error| as_io(&error))?;
    tokio::spawn(async move {
        // Errors reach the reader of an answer or a body.
        let _ = connection.await;
    });
    Ok(requests)
}

pub(crate) struct Body {
    connection: Connection,
    /// How far the request's body has come; the answer may be earlier.
    progress: Arc<Progress>,
    incoming: Incoming,
    block: Bytes,
    is_over: bool,
}

impl Body {
    /// Takes the next bytes; 0 is the end. A short body is an error.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.block.is_empty() {
            if !self.next_block()? {
                return Ok(0);
            }
        }
        let taken = self.block.split_to(self.block.len().min(buffer.len()));
        buffer[..taken.len()].copy_from_slice(&taken);
        Ok(taken.len())
    }

    fn next_block(&mut self) -> io::Result<bool> {
        if self.is_over {
            return Ok(false);
        }
        let silence = self.connection.silence;
        let incoming = &mut self.incoming;
        let next = poll_fn(|context| Pin::new(&mut *incoming).poll_frame(context));
        match self.connection.runtime.block_on(async { timeout(silence, next).await }) {
            Ok(Some(Ok(frame))) => {
                // Other frames are trailers.
                self.block = frame.into_data().unwrap_or_default();
                Ok(true)
            }
            Ok(None) => {
                self.is_over = true;
                Ok(false)
            }
            Ok(Some(Err(error))) => Err(as_io(&error)),
            Err(_) => Err(silent(silence)),
        }
    }

    pub(crate) fn read_to_end(&mut self, most_bytes: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        loop {
            bytes.extend_from_slice(&self.block);
            self.block.clear();
            if bytes.len() > most_bytes {
                return Err(io::Error::new(ErrorKind::InvalidData, "its answer is longer than any such answer is"));
            }
            if !self.next_block()? {
                return Ok(bytes);
            }
        }
    }

    /// Reads a short rest, to use the connection again.
    pub(crate) fn finish(mut self, most_bytes: u64) -> Option<Connection> {
        let mut left = most_bytes;
        loop {
            left = left.checked_sub(self.block.len() as u64)?;
            self.block.clear();
            if self.incoming.size_hint().exact().is_some_and(|bytes| bytes > left) {
                return None;
            }
            if !self.next_block().ok()? {
                return self.progress.is_whole().then_some(self.connection);
            }
        }
    }
}

/// Looks within the time of silence.
const LOOKS_AT_SILENCE: u32 = 20;

fn is_cut(error: &hyper::Error) -> bool {
    error.is_canceled() || error.is_closed() || error.is_incomplete_message() || source_of(error).is_some()
}

fn source_of(error: &hyper::Error) -> Option<&io::Error> {
    std::error::Error::source(error)?.downcast_ref()
}

fn as_io(error: &hyper::Error) -> io::Error {
    if error.is_parse() {
        return io::Error::new(ErrorKind::InvalidData, format!("its answer is no HTTP: {error}"));
    }
    if let Some(source) = source_of(error) {
        return io::Error::new(source.kind(), source.to_string());
    }
    io::Error::new(ErrorKind::UnexpectedEof, "the server cut the connection")
}

fn tls_error(error: io::Error) -> io::Error {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(why)) => io::Error::new(
            ErrorKind::PermissionDenied,
            format!("its certificate is not to be trusted: {why}; SSL_CERT_FILE names a file of certificates to trust"),
        ),
        Some(rustls::Error::InvalidMessage(_)) => {
            io::Error::new(ErrorKind::InvalidData, "what answers at this port speaks no TLS: is it http://?")
        }
        _ => error,
    }
}

fn starved() -> io::Error {
    io::Error::new(ErrorKind::ResourceBusy, "the server serves only our other requests")
}

fn silent(limit: Duration) -> io::Error {
    io::Error::new(ErrorKind::TimedOut, format!("the server was silent for {} s", limit.as_secs_f64()))
}
