//! One connection: tuned, greeted, and its requests answered until it ends.

use std::io;
use std::pin::pin;
use std::sync::Arc;

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

/// Serves a connection to its end.
pub(crate) async fn serve(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    seat: Seat,
    mut stops: watch::Receiver<bool>,
) -> io::Result<()> {
    let house = Arc::clone(&seat.house);
    let stream = stream.into_std()?;
    let granted = house.policies.for_data(&stream, &Wanted::default(), NEAR_RTT_US);
    let stream = TcpStream::from_std(stream)?;
    let is_private = tls.is_some() || seat.from.ip().is_loopback();
    let (carrier, first, asker, is_http2) = match tls {
        None => {
            let mut carrier = Carrier::Clear(stream);
            let first = tokio::select! {
                first = tokio::time::timeout(house.limits.header, preface(&mut carrier)) => first??,
                _ = stops.wait_for(|stops| *stops) => return Ok(()),
            };
            let is_http2 = first.starts_with(limits::PREFACE);
            (carrier, first, Asker::Anyone, is_http2)
        }
        Some(tls) => {
            let greeted = tokio::time::timeout(house.limits.handshake, tls.accept(stream)).await??;
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
    let io = Io::new(carrier, first, house.limits.stall);
    let files = io.files().filter(|_| !is_http2);
    let activity = io.activity();
    let guest = Arc::new(Guest { asker, files, activity, is_private, class: granted.class, seat });
    if is_http2 { serve_http2(io, guest, stops).await } else { serve_http1(io, guest, stops).await }
}

/// Paths with a shorter round trip are near.
const NEAR_RTT_US: u32 = 2_000;

/// Reads until the bytes show whether they are the beginning of HTTP/2.
async fn preface(carrier: &mut Carrier) -> io::Result<Bytes> {
    let mut first = BytesMut::with_capacity(limits::PREFACE.len());
    // Each round reads at least one byte.
    while first.len() < limits::PREFACE.len() && limits::PREFACE.starts_with(&first) {
        let mut some = [0; limits::PREFACE.len()];
        match carrier.read(&mut some[first.len()..]).await? {
            0 => break,
            count => {
                let start = first.len();
                first.extend_from_slice(&some[start..start + count]);
            }
        }
    }
    Ok(first.freeze())
}

/// hyper has the connection while something happens on it. Then it rests without any buffer, until there is something
/// to read: ten thousand idle readers need little memory.
async fn serve_http1(mut io: Io, guest: Arc<Guest>, mut stops: watch::Receiver<bool>) -> io::Result<()> {
    let idle = guest.seat.house.limits.idle;
    let mut may_rest = true;
    // Each round waits for bytes of the reader.
    loop {
        match Box::pin(serve_awake(io, may_rest, &guest, &mut stops)).await? {
            Some(resting) => io = resting,
            None => return Ok(()),
        }
        // Half a header goes back to hyper, whose time limit for it must not begin anew again and again.
        may_rest = !io.has_unread();
        tokio::select! {
            readable = tokio::time::timeout(idle, io.readable()) => readable??,
            () = stopping(&mut stops) => return Ok(()),
        }
    }
}

/// Until the connection ends (`None`), or rests.
async fn serve_awake(
    io: Io,
    may_rest: bool,
    guest: &Arc<Guest>,
    stops: &mut watch::Receiver<bool>,
) -> io::Result<Option<Io>> {
    let (limits, activity) = (guest.seat.house.limits, io.activity());
    let answering = Arc::clone(guest);
    let service = service_fn(move |request| respond(Arc::clone(&answering), request));
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle)
        .max_headers(limits::MAX_HEADER_FIELDS)
        .max_buf_size(limits::MAX_HEADER_BYTES)
        .writev(true)
        .serve_connection(io, service);
    loop {
        tokio::select! {
            ended = &mut connection => return ended.map(|()| None).map_err(io::Error::other),
            () = stopping(stops) => {
                std::pin::Pin::new(&mut connection).graceful_shutdown();
                return connection.await.map(|()| None).map_err(io::Error::other);
            }
            () = tokio::time::sleep(limits::NAP_AFTER) => {
                if may_rest && activity.is_idle() {
                    let parts = connection.into_parts();
                    let mut io = parts.io;
                    io.unread(parts.read_buf);
                    return Ok(Some(io));
                }
            }
        }
    }
}

async fn stopping(stops: &mut watch::Receiver<bool>) {
    // Without a sender the service has ended, too.
    let _ = stops.wait_for(|stops| *stops).await;
}

async fn serve_http2(io: Io, guest: Arc<Guest>, mut stops: watch::Receiver<bool>) -> io::Result<()> {
    let (limits, activity) = (guest.seat.house.limits, io.activity());
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
            () = stopping(&mut stops) => break,
            () = tokio::time::sleep(limits.idle) => {
                if activity.take_sent() < limits::MIN_STREAM_BYTES {
                    break;
                }
            }
        }
    }
    connection.as_mut().graceful_shutdown();
    tokio::time::timeout(limits.stall, connection).await?.map_err(io::Error::other)
}
