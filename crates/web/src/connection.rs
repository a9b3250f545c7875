//! One connection: tuned, greeted, and its requests answered until it ends.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use haul_net::Wanted;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::access::Asker;
use crate::house::Seat;
use crate::limits;
use crate::respond::{Guest, respond};
use crate::transport::io::{Carrier, Io};
use crate::transport::line::Line;
use crate::transport::line::watchdog::Watchdog;

/// A connection that was just accepted.
pub(crate) struct Accepted {
    pub(crate) stream: std::net::TcpStream,
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) seat: Seat,
    pub(crate) watchdog: Arc<Watchdog>,
    pub(crate) stops: watch::Receiver<bool>,
}

/// Serves a connection to its end. What waits for a reader holds little: each stage has its own memory, and gives it
/// back.
pub(crate) async fn serve(accepted: Accepted) -> io::Result<()> {
    let line = Line::new(&accepted.watchdog);
    let held = Arc::clone(&line);
    match line.within(Box::pin(greet(accepted, held))).await? {
        Greeted::Http1(io, guest) => line.within(serve_http1(io, guest)).await,
        Greeted::Http2(io, guest, stops) => {
            line.keeps_own_time();
            line.within(Box::pin(serve_http2(*io, guest, stops))).await
        }
    }
}

enum Greeted {
    Http1(Io, Arc<Guest>),
    Http2(Box<Io>, Arc<Guest>, watch::Receiver<bool>),
}

async fn greet(accepted: Accepted, line: Arc<Line>) -> io::Result<Greeted> {
    let Accepted { stream, tls, seat, stops, .. } = accepted;
    let stream = tune(stream, &seat)?;
    let is_private = tls.is_some() || seat.from.ip().is_loopback();
    let (carrier, first, asker, is_http2) = match tls {
        None => {
            let mut carrier = Carrier::Clear(stream);
            let first = preface(&mut carrier, &line).await?;
            let is_http2 = first.starts_with(limits::PREFACE);
            (carrier, first, Asker::Anyone, is_http2)
        }
        Some(tls) => {
            line.greets();
            let greeted = tls.accept(stream).await?;
            line.rests();
            let (_, session) = greeted.get_ref();
            let is_http2 = session.alpn_protocol() == Some(b"h2");
            let certificate = session.peer_certificates().and_then(|chain| chain.first());
            let asker = certificate.map_or(Asker::Anyone, |certificate| {
                let print = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, certificate);
                Asker::Certificate(print.as_ref().try_into().expect("SHA-256 has 32 bytes"))
            });
            (Carrier::Tls(Box::new(greeted)), Bytes::new(), asker, is_http2)
        }
    };
    let io = Io::new(carrier, first, Arc::clone(&line));
    let files = io.files().filter(|_| !is_http2);
    let guest = Arc::new(Guest { asker, files, line, is_private, seat });
    Ok(if is_http2 { Greeted::Http2(Box::new(io), guest, stops) } else { Greeted::Http1(io, guest) })
}

/// Gives it the policy of its network class.
fn tune(stream: std::net::TcpStream, seat: &Seat) -> io::Result<TcpStream> {
    seat.house.policies.for_data(&stream, &Wanted::default(), NEAR_RTT_US);
    TcpStream::from_std(stream)
}

/// Paths with a shorter round trip are near.
const NEAR_RTT_US: u32 = 2_000;

/// Reads until the bytes show whether they are the beginning of HTTP/2.
async fn preface(carrier: &mut Carrier, line: &Line) -> io::Result<Bytes> {
    let mut first = BytesMut::with_capacity(limits::PREFACE.len());
    // Each round reads at least one byte.
    while first.len() < limits::PREFACE.len() && limits::PREFACE.starts_with(&first) {
        let mut some = [0; limits::PREFACE.len()];
        match carrier.read(&mut some[first.len()..]).await? {
            0 => break,
            count => {
                let start = first.len();
                first.extend_from_slice(&some[start..start + count]);
                line.read(false);
            }
        }
    }
    Ok(first.freeze())
}

/// hyper has the connection from the first byte of a request until its answer has left. Then it rests without any
/// buffer, until there is something to read: ten thousand idle readers need little memory.
async fn serve_http1(mut io: Io, guest: Arc<Guest>) -> io::Result<()> {
    // Each round has answered a request.
    loop {
        io.readable().await?;
        match Box::pin(serve_awake(io, &guest)).await? {
            Some(resting) => io = resting,
            None => return Ok(()),
        }
        if guest.line.is_stopping() {
            return Ok(());
        }
        if io.has_unread() {
            // The beginning of the next request came with the one before. Its deadline begins, and hyper reads on.
            guest.line.expects_header();
        } else {
            guest.line.rests();
        }
    }
}

/// Until the connection ends (`None`), or may rest.
async fn serve_awake(io: Io, guest: &Arc<Guest>) -> io::Result<Option<Io>> {
    let (line, answering) = (&guest.line, Arc::clone(guest));
    let service = service_fn(move |request| respond(Arc::clone(&answering), request));
    let mut connection = http1::Builder::new()
        // The watchdog has the time of a header.
        .header_read_timeout(None)
        .max_headers(limits::MAX_HEADER_FIELDS)
        .max_buf_size(limits::MAX_HEADER_BYTES)
        .writev(true)
        .serve_connection(io, service);
    let ended = poll_fn(|cx| match Pin::new(&mut connection).poll(cx) {
        Poll::Ready(ended) => Poll::Ready(Some(ended)),
        Poll::Pending if line.may_rest() => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    });
    match ended.await {
        Some(ended) => ended.map(|()| None).map_err(io::Error::other),
        None => {
            // What hyper has read and not used belongs to the next request.
            let parts = connection.into_parts();
            let mut io = parts.io;
            if !parts.read_buf.is_empty() {
                io.unread(&parts.read_buf);
            }
            Ok(Some(io))
        }
    }
}

async fn serve_http2(io: Io, guest: Arc<Guest>, mut stops: watch::Receiver<bool>) -> io::Result<()> {
    let (limits, line) = (guest.seat.house.limits, Arc::clone(&guest.line));
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
    // Each round takes a part of the bytes that are asked for.
    loop {
        tokio::select! {
            ended = connection.as_mut() => return ended.map_err(io::Error::other),
            // Without a sender the service has ended, too.
            _ = stops.wait_for(|stops| *stops) => break,
            () = tokio::time::sleep(limits.idle) => {
                if line.take_sent() < limits::MIN_STREAM_BYTES {
                    break;
                }
            }
        }
    }
    connection.as_mut().graceful_shutdown();
    tokio::time::timeout(limits.stall, connection).await?.map_err(io::Error::other)
}
