//! The service: it listens, bounds and tunes its connections, and answers their requests.
//!
//! ```text
//! accept -> room? -> policy of the caller's network -> TLS handshake, where there is one -> HTTP/1.1 or HTTP/2
//!        -> for each request: check -> who asks -> shelf -> answer -> a line of the log
//! ```

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use bytes::{Bytes, BytesMut};
use haul_net::{Listener, Policies, Wanted};
use http::header::{CONNECTION, DATE};
use http::{HeaderValue, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ServerConfig;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::access::{Access, Asker};
use crate::answer::body::Body;
use crate::answer::refusal::{Refusal, refusal};
use crate::answer::{Asked, answer, check};
use crate::limits::{self, Limits};
use crate::transport::io::{Carrier, Io};
use crate::transport::piece::Queue;

/// Takes a line for the log: its text, and whether it matters to an operator who reads only warnings.
pub type Tell = Arc<dyn Fn(&str, bool) + Send + Sync>;

/// What a service needs.
pub struct Options {
    /// Ports for clear connections.
    pub clear: Vec<Listener>,
    /// Ports for TLS, and how it is spoken there.
    pub tls: Vec<(Listener, Arc<ServerConfig>)>,
    /// Who may read what.
    pub access: Arc<dyn Access>,
    /// How connections are tuned, by the network that they come from.
    pub policies: Arc<Policies>,
    /// Its limits.
    pub limits: Limits,
    /// Takes its log.
    pub tell: Tell,
}

/// A running service. It ends when it is dropped, or by [`Service::stop`].
pub struct Service {
    runtime: Option<Runtime>,
    stopping: watch::Sender<bool>,
    house: Arc<House>,
}

struct House {
    access: Arc<dyn Access>,
    policies: Arc<Policies>,
    limits: Limits,
    tell: Tell,
    present: Mutex<Present>,
}

/// Who is connected.
#[derive(Default)]
struct Present {
    all: usize,
    by_source: HashMap<IpAddr, usize>,
}

impl Service {
    /// Starts to listen.
    pub fn start(options: Options) -> io::Result<Service> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(limits::ASYNC_THREADS_MAX);
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .max_blocking_threads(limits::BLOCKING_THREADS)
            .thread_name("web")
            .enable_io()
            .enable_time()
            .build()?;
        let (stopping, stops) = watch::channel(false);
        let house = Arc::new(House {
            access: options.access,
            policies: options.policies,
            limits: options.limits,
            tell: options.tell,
            present: Mutex::default(),
        });
        let entered = runtime.enter();
        for (listener, tls) in options
            .clear
            .into_iter()
            .map(|listener| (listener, None))
            .chain(options.tls.into_iter().map(|(listener, config)| (listener, Some(TlsAcceptor::from(config)))))
        {
            let socket = listener.into_socket().map_err(io::Error::other)?;
            let socket = TcpListener::from_std(socket)?;
            runtime.spawn(accept(socket, tls, Arc::clone(&house), stops.clone()));
        }
        drop(entered);
        Ok(Service { runtime: Some(runtime), stopping, house })
    }

    /// Accepts nobody any more, lets requests in progress end within their time, and cuts the others.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        self.stopping.send_replace(true);
        // Every connection has a receiver until it ends.
        runtime.block_on(async {
            let _ = tokio::time::timeout(self.house.limits.orderly_stop, self.stopping.closed()).await;
        });
        runtime.shutdown_background();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.end();
    }
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, house: Arc<House>, mut stops: watch::Receiver<bool>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stops.changed() => return,
        };
        match accepted {
            Ok((stream, from)) => {
                let Some(seat) = Seat::take(&house, from) else {
                    // Dropping the stream resets it: a crowd costs no thread and no memory.
                    continue;
                };
                let (tls, stops) = (tls.clone(), stops.clone());
                tokio::spawn(async move {
                    // A connection that fails concerns its reader alone.
                    let _ = connection(stream, tls, seat, stops).await;
                });
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            // For example no descriptors: connections that end bring some back.
            Err(_) => tokio::time::sleep(limits::ACCEPT_PAUSE).await,
        }
    }
}

/// A connection that is counted.
struct Seat {
    house: Arc<House>,
    from: SocketAddr,
}

impl Seat {
    fn take(house: &Arc<House>, from: SocketAddr) -> Option<Seat> {
        let source = from.ip().to_canonical();
        let mut present = house.present.lock().unwrap_or_else(PoisonError::into_inner);
        let of_source = present.by_source.get(&source).copied().unwrap_or(0);
        if present.all >= house.limits.connections || of_source >= house.limits.connections_per_source {
            return None;
        }
        present.all += 1;
        present.by_source.insert(source, of_source + 1);
        drop(present);
        Some(Seat { house: Arc::clone(house), from: SocketAddr::new(source, from.port()) })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut present = self.house.present.lock().unwrap_or_else(PoisonError::into_inner);
        present.all -= 1;
        let source = self.from.ip();
        if let Some(count) = present.by_source.get_mut(&source) {
            *count -= 1;
            if *count == 0 {
                present.by_source.remove(&source);
            }
        }
    }
}

async fn connection(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    seat: Seat,
    stops: watch::Receiver<bool>,
) -> io::Result<()> {
    let house = Arc::clone(&seat.house);
    // The row of the caller's network, and what haul chooses for data: the class of the address has its place here.
    let stream = stream.into_std()?;
    house.policies.for_data(&stream, &Wanted::default(), NEAR_RTT_US);
    let stream = TcpStream::from_std(stream)?;
    let (carrier, asker, is_http2) = match tls {
        None => (Carrier::Clear(stream), Asker::Anyone, None),
        Some(tls) => {
            let greeted = tokio::time::timeout(house.limits.handshake, tls.accept(stream)).await??;
            let (_, session) = greeted.get_ref();
            let is_http2 = session.alpn_protocol() == Some(b"h2");
            let certificate = session.peer_certificates().and_then(|chain| chain.first());
            let asker = certificate.map_or(Asker::Anyone, |certificate| {
                let print = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, certificate);
                Asker::Certificate(print.as_ref().try_into().expect("SHA-256 has 32 bytes"))
            });
            (Carrier::Tls(Box::new(greeted)), asker, Some(is_http2))
        }
    };
    let (carrier, first, is_http2) = match (carrier, is_http2) {
        (carrier, Some(is_http2)) => (carrier, Bytes::new(), is_http2),
        (carrier, None) => {
            let mut carrier = carrier;
            let mut stops = stops.clone();
            let first = tokio::select! {
                first = tokio::time::timeout(house.limits.header, preface(&mut carrier)) => first??,
                _ = stops.wait_for(|stops| *stops) => return Ok(()),
            };
            let is_http2 = first.starts_with(limits::PREFACE);
            (carrier, first, is_http2)
        }
    };
    let io = Io::new(carrier, first, house.limits.stall);
    let guest = Arc::new(Guest { asker, files: io.files().filter(|_| !is_http2), written: io.written(), seat });
    if is_http2 { serve_http2(io, guest, stops).await } else { serve_http1(io, guest, stops).await }
}

/// Paths with a shorter round trip are near.
const NEAR_RTT_US: u32 = 2_000;

/// Reads until the bytes show whether they are the beginning of HTTP/2.
async fn preface(carrier: &mut Carrier) -> io::Result<Bytes> {
    let mut first = BytesMut::with_capacity(limits::PREFACE.len());
    // Each round reads at least one byte.
    while first.len() < limits::PREFACE.len() && limits::PREFACE.starts_with(&first) {
        let room = limits::PREFACE.len() - first.len();
        let mut some = vec![0; room];
        match carrier.read(&mut some).await? {
            0 => break,
            count => first.extend_from_slice(&some[..count]),
        }
    }
    Ok(first.freeze())
}

/// Who is at the other end of a connection.
struct Guest {
    asker: Asker,
    files: Option<Queue>,
    written: Arc<AtomicU64>,
    seat: Seat,
}

async fn serve_http1(io: Io, guest: Arc<Guest>, mut stops: watch::Receiver<bool>) -> io::Result<()> {
    let limits = guest.seat.house.limits;
    let service = service_fn(move |request| respond(Arc::clone(&guest), request));
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.idle)
            .max_headers(limits::MAX_HEADER_FIELDS)
            .max_buf_size(limits::MAX_HEADER_BYTES)
            .writev(true)
            .serve_connection(io, service)
    );
    tokio::select! {
        ended = connection.as_mut() => return ended.map_err(io::Error::other),
        _ = stops.wait_for(|stops| *stops) => connection.as_mut().graceful_shutdown(),
    }
    connection.await.map_err(io::Error::other)
}

async fn serve_http2(io: Io, guest: Arc<Guest>, mut stops: watch::Receiver<bool>) -> io::Result<()> {
    let limits = guest.seat.house.limits;
    let service = service_fn(move |request| respond(Arc::clone(&guest), request));
    let mut connection = pin!(
        http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(limits.idle)
            .keep_alive_timeout(limits.header)
            .max_concurrent_streams(limits::MAX_STREAMS)
            .max_pending_accept_reset_streams(limits::MAX_RESET_STREAMS)
            .max_header_list_size(limits::MAX_HEADER_BYTES as u32)
            .max_send_buf_size(limits::STREAM_SEND_BYTES)
            .serve_connection(io, service)
    );
    tokio::select! {
        ended = connection.as_mut() => return ended.map_err(io::Error::other),
        _ = stops.wait_for(|stops| *stops) => connection.as_mut().graceful_shutdown(),
    }
    connection.await.map_err(io::Error::other)
}

async fn respond(guest: Arc<Guest>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let house = &guest.seat.house;
    let (begun, now, is_head) = (Instant::now(), SystemTime::now(), request.method() == http::Method::HEAD);
    let is_http2 = request.version() == Version::HTTP_2;
    let answered = match check(&request) {
        Err(refused) => Err(refused),
        Ok(target) => match house.access.shelf(&guest.asker) {
            None => Err(Refusal::of(StatusCode::FORBIDDEN)),
            Some(shelf) => {
                let header = request.headers().clone();
                let asked = Asked { is_head, target, header, now, files: guest.files.clone() };
                answer(asked, shelf, request.uri()).await
            }
        },
    };
    let mut response = answered.unwrap_or_else(|refused| refusal(&refused, is_head));
    if is_http2 {
        // HTTP/2 has no such field (RFC 9113, section 8.2.2).
        response.headers_mut().remove(CONNECTION);
    }
    if let Ok(date) = HeaderValue::from_str(&httpdate::fmt_http_date(now)) {
        response.headers_mut().insert(DATE, date);
    }
    guest.log(&request, response.status(), begun);
    Ok(response)
}

impl Guest {
    /// Paths may hold a capability of somebody else's service, but no secret of this one: tokens stand in fields.
    fn log(&self, request: &Request<Incoming>, status: StatusCode, begun: Instant) {
        let (from, method) = (self.seat.from, request.method());
        let path = request.uri().path();
        let path = path.get(..LOGGED_PATH_BYTES).unwrap_or(path);
        let (status, bytes) = (status.as_u16(), self.written.load(Ordering::Relaxed));
        let text = format!(
            "web: {from} {method} {path} {status} after {:.1} ms, {bytes} bytes",
            begun.elapsed().as_secs_f64() * 1e3
        );
        (self.seat.house.tell)(&text, false);
    }
}

/// Longer paths are cut in the log.
const LOGGED_PATH_BYTES: usize = 512;
