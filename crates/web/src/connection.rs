//! One connection: tuned, greeted, and served until it ends or rests without a task.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use haul_net::Wanted;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::access::Asker;
use crate::house::{House, Seat};
use crate::limits;
use crate::respond::{Guest, respond};
use crate::resting::Rested;
use crate::tls;
use crate::transport::io::{Carrier, Io, Silence};
use crate::transport::line::Line;
use crate::transport::line::watchdog::Watchdog;

pub(crate) enum Arrived {
    New { stream: std::net::TcpStream, tls: Option<Arc<tls::Config>>, seat: Seat },
    Woken(Rested),
}

impl Arrived {
    pub(crate) fn whose(&self) -> (Arc<House>, SocketAddr, IpAddr) {
        let (Arrived::New { seat, .. } | Arrived::Woken(Rested { seat, .. })) = self;
        (Arc::clone(&seat.house), seat.from, seat.member.source())
    }
}

/// Serves a connection until it ends or rests. Each stage gives its memory back.
pub(crate) async fn serve(
    arrived: Arrived,
    watchdog: &Arc<Watchdog>,
    stops: &watch::Receiver<bool>,
) -> io::Result<Option<Rested>> {
    let line = match &arrived {
        Arrived::New { tls, .. } => Line::new(watchdog, tls.is_none()),
        Arrived::Woken(rested) => Line::again(watchdog, rested.due_ms, rested.has_asked),
    };
    let held = Arc::clone(&line);
    match line.within(Box::pin(greet(arrived, held))).await? {
        Greeted::Resting(rested) => Ok(Some(*rested)),
        Greeted::Http1(io, guest) => line.within(serve_http1(io, guest)).await,
        Greeted::Http2(io, guest) => {
            line.keeps_own_time();
            line.within(Box::pin(serve_http2(*io, guest, stops.clone()))).await?;
            Ok(None)
        }
    }
}

enum Greeted {
    Resting(Box<Rested>),
    Http1(Io, Arc<Guest>),
    Http2(Box<Io>, Arc<Guest>),
}

async fn greet(arrived: Arrived, line: Arc<Line>) -> io::Result<Greeted> {
    let (stream, tls, seat, has_asked) = match arrived {
        Arrived::New { stream, tls, seat } => (tune(stream, &seat)?, tls, seat, false),
        Arrived::Woken(Rested { stream, seat, has_asked, .. }) => (TcpStream::from_std(stream)?, None, seat, has_asked),
    };
    let (is_encrypted, floor) = (tls.is_some(), seat.member.class().terms().cipher);
    let (io, asker, is_http2) = match tls {
        None => {
            let mut io = Io::new(Carrier::Clear(stream), Arc::clone(&line));
            if let (Silence::GoesOn { due_ms }, false) = (io.silence().await?, has_asked) {
                return Ok(Greeted::Resting(Box::new(Rested { stream: io.into_clear()?, seat, has_asked, due_ms })));
            }
            let is_http2 = !has_asked && io.begins_http2().await?;
            (io, Asker::Anyone, is_http2)
        }
        Some(tls) => {
            line.greets();
            let greeted = tls.acceptor(floor).accept(stream).await?;
            line.rests();
            let (_, session) = greeted.get_ref();
            let is_http2 = session.alpn_protocol() == Some(b"h2");
            let certificate = session.peer_certificates().and_then(|chain| chain.first());
            let asker = certificate.map_or(Asker::Anyone, |certificate| {
                let print = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, certificate);
                Asker::Certificate(print.as_ref().try_into().expect("SHA-256 has 32 bytes"))
            });
            (Io::new(Carrier::Tls(Box::new(greeted)), Arc::clone(&line)), asker, is_http2)
        }
    };
    let files = io.files().filter(|_| !is_http2);
    let guest = Arc::new(Guest { asker, files, line, is_encrypted, seat });
    Ok(if is_http2 { Greeted::Http2(Box::new(io), guest) } else { Greeted::Http1(io, guest) })
}

fn tune(stream: std::net::TcpStream, seat: &Seat) -> io::Result<TcpStream> {
    // The kernel counts a closed window, too: its limit must exceed ours.
    let wanted =
        Wanted { user_timeout: Some(seat.house.limits.stall + limits::WATCH_EVERY_MAX * 2), ..Wanted::default() };
    seat.house.policies.for_data(&stream, &wanted, NEAR_RTT_US);
    TcpStream::from_std(stream)
}

const NEAR_RTT_US: u32 = 2_000;

/// Serves HTTP/1. hyper has the connection only from a request's first byte until its answer has left: ten thousand idle readers
/// need no buffer.
async fn serve_http1(mut io: Io, mut guest: Arc<Guest>) -> io::Result<Option<Rested>> {
    loop {
        if let Silence::GoesOn { due_ms } = io.silence().await? {
            match Arc::try_unwrap(guest) {
                Ok(Guest { seat, .. }) => {
                    return Ok(Some(Rested { stream: io.into_clear()?, seat, has_asked: true, due_ms }));
                }
                // An answer is still being logged. It leaves after the next silence.
                Err(shared) => guest = shared,
            }
            guest.line.rests();
            continue;
        }
        match Box::pin(serve_awake(io, &guest)).await? {
            Some(resting) => io = resting,
            None => return Ok(None),
        }
        if guest.line.is_stopping() {
            return Ok(None);
        }
        if io.has_unread() {
            // The next request has begun: its deadline begins.
            guest.line.expects_header();
        } else {
            guest.line.rests();
        }
    }
}

async fn serve_awake(io: Io, guest: &Arc<Guest>) -> io::Result<Option<Io>> {
    let (line, answering) = (&guest.line, Arc::clone(guest));
    let service = service_fn(move |request| respond(Arc::clone(&answering), request));
    let mut connection = http1::Builder::new()
        // The watchdog limits the time of a header.
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
            // Bytes that hyper did not use belong to the next request.
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
    loop {
        tokio::select! {
            ended = connection.as_mut() => return ended.map_err(io::Error::other),
            // Without a sender the service has ended, too.
            _ = stops.wait_for(|stops| *stops) => break,
            () = tokio::time::sleep(limits.idle) => {
                if line.takes_little() {
                    break;
                }
            }
        }
    }
    connection.as_mut().graceful_shutdown();
    tokio::time::timeout(limits.stall, connection).await?.map_err(io::Error::other)
}
