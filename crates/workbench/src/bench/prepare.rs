//! Prepares a measurement before its clock starts: files, touched pages, connections, routes.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::Arc;

use haul_engine::plan::NEAR_RTT_US;
use haul_job::{Error, Fault};
use haul_net::{Identity, Stream, Wanted, tls};
use haul_pump::{ReceiveRoute, Routes, SendRoute, Target};
use haul_store::scratch;
use haul_sys::file;

use super::request::{
    Amount, BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, LANE_BYTES_MIN, LANES_MAX, Offset, Request, Sink, Source,
};

type Ends = (Stream, Stream);

pub(super) struct Plan {
    pub source: File,
    pub target: Target,
    pub send: Arc<Routes<SendRoute>>,
    pub receive: Arc<Routes<ReceiveRoute>>,
    pub chunk_bytes: u64,
    /// Each lane's part of the source, at its number times this; a multiple of the chunk.
    pub source_lane_bytes: u64,
    pub sink_lane_bytes: u64,
    /// `None`: until the time is over.
    pub chunks: Option<u64>,
}

pub(super) fn plan(request: &Request) -> Result<Plan, Error> {
    check(request)?;
    let lanes = u64::from(request.lanes);
    let (source, source_bytes) = source(request)?;
    let wanted_bytes = match request.amount {
        Amount::Bytes(bytes) => Some(bytes.div_ceil(lanes)),
        Amount::Time(_) => None,
    };
    let per_lane = source_bytes / lanes;
    let mut chunk_bytes = CHUNK_BYTES.min(per_lane).min(wanted_bytes.unwrap_or(u64::MAX));
    if request.sink != Sink::Discard {
        chunk_bytes = chunk_bytes.min(request.size_bytes / lanes);
    }
    // Direct I/O begins at whole blocks; a smaller file has one chunk.
    chunk_bytes = if chunk_bytes >= ALIGNMENT { chunk_bytes / ALIGNMENT * ALIGNMENT } else { chunk_bytes };
    if chunk_bytes == 0 {
        let what = format!("{lanes} lanes have nothing to send: {source_bytes} bytes in all");
        return Err(Error::new(Fault::Usage, what).try_this("a larger source, more bytes or fewer lanes"));
    }
    let chunks = wanted_bytes.map(|bytes| bytes.div_ceil(chunk_bytes));
    let sink_room = match (&request.sink, chunks) {
        // With only a time, lanes go round.
        (Sink::Directory(_), Some(chunks)) => chunks * chunk_bytes,
        _ => request.size_bytes / lanes,
    };
    let whole_chunks = |bytes: u64| (bytes / chunk_bytes * chunk_bytes).max(chunk_bytes);
    let sink_lane_bytes = whole_chunks(sink_room);
    let target = target(request, sink_lane_bytes * lanes)?;
    Ok(Plan {
        source,
        target,
        send: Arc::new(send_routes(request)),
        receive: Arc::new(receive_routes(request)),
        chunk_bytes,
        source_lane_bytes: if request.offset == Offset::Fixed { per_lane } else { whole_chunks(per_lane) },
        sink_lane_bytes,
        chunks,
    })
}

fn check(request: &Request) -> Result<(), Error> {
    let refused = |what: String, hint: &str| Err(Error::new(Fault::Usage, what).try_this(hint));
    if !(1..=LANES_MAX).contains(&request.lanes) {
        return refused(format!("{} lanes", request.lanes), "1 to 256");
    }
    if !(BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&request.block_bytes) {
        return refused(format!("blocks of {} bytes", request.block_bytes), "4 KiB to 64 MiB");
    }
    if request.interval.is_zero() {
        return refused("no time between two readings".into(), "0.1 to 60 s");
    }
    if request.size_bytes / u64::from(request.lanes) < LANE_BYTES_MIN {
        let what = format!("{} bytes in memory are too few for {} lanes", request.size_bytes, request.lanes);
        return refused(what, "64 KiB for each lane at least");
    }
    if request.cipher.is_some() {
        if request.receive_route == Some(ReceiveRoute::Discard) {
            let what = "the route discard needs a clear connection: a record has to be opened to be checked".into();
            return refused(what, "null or copy, or leave the cipher out");
        }
        let out = request.send_route.filter(|route| *route != SendRoute::Copy).map(SendRoute::name);
        let unseen = |route: &ReceiveRoute| matches!(route, ReceiveRoute::Splice | ReceiveRoute::Null);
        let by_kernel = out.or(request.receive_route.filter(unseen).map(ReceiveRoute::name));
        if let (Some(route), Err(why)) = (by_kernel, haul_net::seals_here()) {
            let what = format!("the route {route} needs a clear connection, or a kernel that does TLS");
            let hint = "leave the cipher out, or use the route copy (or direct, at the receiver)";
            return Err(Error::new(Fault::Usage, what).because(why).try_this(hint));
        }
    }
    match request.receive_route {
        Some(route)
            if request.sink == Sink::Discard && matches!(route, ReceiveRoute::Splice | ReceiveRoute::Direct) =>
        {
            refused(format!("the route {} ends in a file, and the sink is none", route.name()), "discard, null or copy")
        }
        Some(route) if request.sink != Sink::Discard && !route.fills_file() => refused(
            format!("the route {} ends in no file, and the sink is one", route.name()),
            "splice, direct or copy",
        ),
        Some(route) if request.verify && !route.fills_file() => {
            refused(format!("the route {} sees no bytes to verify", route.name()), "copy")
        }
        _ => Ok(()),
    }
}

fn source(request: &Request) -> Result<(File, u64), Error> {
    let in_memory = |error| Error::new(Fault::FileIo, "cannot make a file in memory").because(error);
    match &request.source {
        Source::Zero => Ok((scratch::in_memory(request.size_bytes).map_err(in_memory)?, request.size_bytes)),
        Source::Memory => {
            let file = scratch::in_memory(request.size_bytes).map_err(in_memory)?;
            fill(&file, request.size_bytes).map_err(in_memory)?;
            Ok((file, request.size_bytes))
        }
        Source::File(path) => {
            let told = |error| Error::of_disk("read", path, &error);
            let file = File::open(path).map_err(told)?;
            let stat = file.metadata().map_err(told)?;
            if !stat.is_file() {
                return Err(told(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")));
            }
            if request.cold {
                file::drop_cache(file.as_fd(), 0, stat.len());
            }
            file::advise_sequential(file.as_fd());
            Ok((file, stat.len()))
        }
    }
}

fn target(request: &Request, bytes: u64) -> Result<Target, Error> {
    match &request.sink {
        Sink::Discard => Ok(Target::nowhere()),
        Sink::Memory => {
            let made = scratch::in_memory(bytes).and_then(|file| fill(&file, bytes).map(|()| file));
            let made =
                made.map_err(|error| Error::new(Fault::FileIo, "cannot make a file in memory").because(error))?;
            Ok(Target::file(made))
        }
        Sink::Directory(directory) => {
            let made = scratch::in_directory(directory).and_then(|file| {
                file::reserve(file.as_fd(), bytes)?;
                Ok(file)
            });
            Ok(Target::file(made.map_err(|error| Error::of_disk("make a file below", directory, &error))?))
        }
    }
}

/// Fills every page with noise: the first touch of memory costs many times what is measured.
fn fill(file: &File, bytes: u64) -> io::Result<()> {
    let mut block = vec![0u8; FILLED_AT_ONCE_BYTES];
    let mut state = SEED;
    let mut offset = 0;
    while offset < bytes {
        for word in block.as_chunks_mut::<8>().0 {
            // Marsaglia's xorshift does not compress, and is as fast as memory.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *word = state.to_le_bytes();
        }
        let len = usize::try_from(bytes - offset).unwrap_or(usize::MAX).min(block.len());
        file::write_all_at(file.as_fd(), &block[..len], offset)?;
        offset += len as u64;
    }
    Ok(())
}

/// The requested route, or the cheapest here by measurement (docs/proof/zero-copy.md), and the one that always works.
fn send_routes(request: &Request) -> Routes<SendRoute> {
    match (request.send_route, request.cipher) {
        (Some(route), _) => Routes::new(&[route], SendRoute::Copy),
        // The cost of the kernel's own sealing depends on ciphers and cards: it has to be asked for.
        (None, Some(_)) => Routes::new(&[], SendRoute::Copy),
        (None, None) => Routes::new(&[SendRoute::Sendfile, SendRoute::Splice], SendRoute::Copy),
    }
}

fn receive_routes(request: &Request) -> Routes<ReceiveRoute> {
    let clear = request.cipher.is_none();
    let preferred: &[ReceiveRoute] = match (request.receive_route, &request.sink) {
        (Some(route), _) => return Routes::new(&[route], ReceiveRoute::Copy),
        (None, Sink::Discard) if clear && !request.verify => &[ReceiveRoute::Discard],
        (None, Sink::Memory) if clear && !request.verify => &[ReceiveRoute::Splice],
        (None, Sink::Directory(_)) => &[ReceiveRoute::Direct],
        (None, _) => &[],
    };
    Routes::new(preferred, ReceiveRoute::Copy)
}

/// The first of each pair sends.
pub(super) fn connect(request: &Request) -> Result<Vec<Ends>, Error> {
    let network =
        |error: &dyn std::fmt::Display| Error::new(Fault::Network, "cannot connect to this host").because(error);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| network(&error))?;
    let address = listener.local_addr().map_err(|error| network(&error))?;
    let mut lanes = Vec::with_capacity(request.lanes.into());
    for _ in 0..request.lanes {
        let near = TcpStream::connect(address).map_err(|error| network(&error))?;
        let far = listener.accept().map_err(|error| network(&error))?.0;
        let wanted = Wanted { congestion_control: request.congestion_control.clone(), ..Wanted::default() };
        for socket in [&near, &far] {
            tuned(socket, &wanted)?;
        }
        let (near, far) = match request.cipher {
            None => (Stream::plain_tcp(near), Stream::plain_tcp(far)),
            Some(cipher) => encrypted(near, far, cipher.into()).map_err(|error| network(&error))?,
        };
        lanes.push(if request.reverse { (far, near) } else { (near, far) });
    }
    Ok(lanes)
}

/// Tunes a connection like a copy's. A requested congestion control must be in effect: the figures are about it.
fn tuned(socket: &TcpStream, wanted: &Wanted) -> Result<(), Error> {
    let applied = wanted.apply(socket, NEAR_RTT_US);
    let Some(asked) = &wanted.congestion_control else { return Ok(()) };
    match haul_sys::socket::congestion_control(socket) {
        Ok(granted) if granted == *asked => Ok(()),
        _ => {
            let why = applied.into_iter().find(|applied| applied.what == "congestion control");
            let why = why.map(|applied| applied.reason).unwrap_or_default();
            Err(Error::new(Fault::Usage, format!("the kernel does not use {asked} here")).because(why))
        }
    }
}

/// One of the two ends shakes hands in a thread.
fn encrypted(near: TcpStream, far: TcpStream, cipher: haul_net::Cipher) -> Result<Ends, haul_net::NetError> {
    let (here, there) = (Identity::generate()?, Identity::generate()?);
    let (here_key, there_key) = (here.public(), there.public());
    std::thread::scope(|scope| {
        let server = scope.spawn(|| tls::server(far, &there, move |key| *key == here_key, &[cipher]));
        let near = tls::client(near, &here, move |key| *key == there_key, &[cipher]);
        let far = server.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((near?.0, far?.0))
    })
}

/// A page, and a multiple of every disk's block.
const ALIGNMENT: u64 = 4096;

const FILLED_AT_ONCE_BYTES: usize = 256 << 10;

/// Any number but zero.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// With 256 KiB blocks, a thread reads a clock once in sixteen calls.
pub(super) const CHUNK_BYTES: u64 = 4 << 20;
