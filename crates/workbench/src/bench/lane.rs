//! The two ends of a lane, each a thread.

use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering;

use haul_job::{Error, Fault};
use haul_net::Stream;
use haul_pump::{ReceiveError, ReceivePump, SendError, SendPump, Tap};
use haul_sys::affinity;
use haul_sys::usage::{self, Usage};

use super::prepare::Plan;
use super::request::{Offset, Request};
use super::shared::Shared;

pub(super) enum Ended {
    Sent(Result<(Usage, bool), Error>),
    Received(Result<Received, Error>),
}

#[derive(Debug)]
pub(super) struct Received {
    pub usage: Usage,
    pub writes_in_flight_max: usize,
    pub opened_in_kernel: bool,
}

pub(super) struct Sending<'a> {
    pub request: &'a Request,
    pub plan: &'a Plan,
    pub shared: &'a Shared,
    pub number: usize,
}

pub(super) struct Receiving<'a> {
    pub request: &'a Request,
    pub plan: &'a Plan,
    pub shared: &'a Shared,
    pub number: usize,
}

pub(super) fn send(of: &Sending<'_>, mut stream: Stream) -> Ended {
    let bound = bind(of.request.processors.map(|(sender, _)| sender));
    let mut pump = SendPump::new(of.plan.send.clone(), of.request.block_bytes);
    of.shared.start.await_start();
    let before = usage::of_thread();
    let result = bound.and_then(|()| of.chunks(&mut stream, &mut pump));
    let used = used_since(before);
    Ended::Sent(result.map(|()| (used, stream.is_sealed_in_kernel())))
}

pub(super) fn receive(of: &Receiving<'_>, mut stream: Stream) -> Ended {
    let bound = bind(of.request.processors.map(|(_, receiver)| receiver));
    let mut pump = ReceivePump::new(of.plan.receive.clone(), of.request.block_bytes);
    of.shared.start.await_start();
    let before = usage::of_thread();
    let result = bound.and_then(|()| of.chunks(&mut stream, &mut pump));
    let used = used_since(before);
    Ended::Received(result.map(|()| Received {
        usage: used,
        writes_in_flight_max: pump.writes_in_flight_max(),
        opened_in_kernel: stream.is_opened_in_kernel(),
    }))
}

impl Sending<'_> {
    fn chunks(&self, stream: &mut Stream, pump: &mut SendPump) -> Result<(), Error> {
        let plan = self.plan;
        let base = self.number as u64 * plan.source_lane_bytes;
        let mut chunk = 0u64;
        while plan.chunks.is_none_or(|chunks| chunk < chunks) && !self.shared.stop.load(Ordering::Acquire) {
            let mut hasher = self.request.verify.then(blake3::Hasher::new);
            match self.request.offset {
                Offset::Moving => {
                    let at = base + (chunk * plan.chunk_bytes) % plan.source_lane_bytes;
                    self.range(stream, pump, at, plan.chunk_bytes, hasher.as_mut())?;
                }
                Offset::Fixed => {
                    let block = (self.request.block_bytes as u64).min(plan.source_lane_bytes);
                    let mut left = plan.chunk_bytes;
                    while left > 0 {
                        let len = block.min(left);
                        self.range(stream, pump, base, len, hasher.as_mut())?;
                        left -= len;
                    }
                }
            }
            if let Some(hasher) = hasher {
                stream.write_all(hasher.finalize().as_bytes()).map_err(lane_error)?;
            }
            chunk += 1;
        }
        stream.flush().and_then(|()| stream.finish_write()).map_err(lane_error)
    }

    fn range(
        &self,
        stream: &mut Stream,
        pump: &mut SendPump,
        at: u64,
        len: u64,
        hasher: Option<&mut blake3::Hasher>,
    ) -> Result<(), Error> {
        let mut tap = hasher.map(|hasher| |bytes: &[u8]| _ = hasher.update(bytes));
        let tap: Option<Tap<'_>> = tap.as_mut().map(|tap| tap as Tap<'_>);
        // More bytes follow, or the end, which sends waiting ones.
        pump.send(stream, self.plan.source.as_fd(), at, len, true, tap).map_err(|failed| match failed.why {
            SendError::Lane(error) => lane_error(error),
            SendError::Source(error) => Error::new(Fault::FileIo, "cannot read the source").because(error),
            SendError::Ended => Error::new(Fault::FileIo, "the source became shorter while it was read"),
        })
    }
}

impl Receiving<'_> {
    fn chunks(&self, stream: &mut Stream, pump: &mut ReceivePump) -> Result<(), Error> {
        let plan = self.plan;
        let base = self.number as u64 * plan.sink_lane_bytes;
        let mut chunk = 0u64;
        loop {
            let mut hasher = self.request.verify.then(blake3::Hasher::new);
            let mut tap = hasher.as_mut().map(|hasher| |bytes: &[u8]| _ = hasher.update(bytes));
            let tap: Option<Tap<'_>> = tap.as_mut().map(|tap| tap as Tap<'_>);
            let at = base + (chunk * plan.chunk_bytes) % plan.sink_lane_bytes;
            let got = pump.receive(stream, &plan.target, at, plan.chunk_bytes, tap).map_err(|error| match error {
                ReceiveError::Lane(error) => lane_error(error),
                ReceiveError::Target(error) => sink_error(error),
            })?;
            if let (Some(hasher), true) = (hasher, got == plan.chunk_bytes) {
                let mut told = [0; blake3::OUT_LEN];
                stream.read_exact(&mut told).map_err(lane_error)?;
                if hasher.finalize() != told {
                    let what = format!("lane {}: chunk {chunk} is not what was sent", self.number);
                    return Err(Error::new(Fault::Verification, what));
                }
            } else if self.request.verify && got > 0 {
                return Err(Error::new(Fault::Verification, "the stream ends inside a chunk"));
            }
            self.shared.received_bytes.fetch_add(got, Ordering::AcqRel);
            if got < plan.chunk_bytes {
                break;
            }
            chunk += 1;
        }
        pump.finish().map_err(sink_error)
    }
}

fn bind(processor: Option<usize>) -> Result<(), Error> {
    let Some(processor) = processor else { return Ok(()) };
    affinity::bind_thread(processor).map_err(|error| {
        let what = format!("cannot bind a thread to processor {processor}");
        Error::new(Fault::Usage, what).because(error).try_this("processors count from 0; nproc says how many there are")
    })
}

fn used_since(before: Usage) -> Usage {
    // A host without /proc has neither these figures nor an O_DIRECT route.
    (usage::of_thread() - before) + usage::of_ring_workers().unwrap_or_default()
}

fn lane_error(error: io::Error) -> Error {
    Error::new(Fault::Network, "the connection failed").because(error)
}

fn sink_error(error: io::Error) -> Error {
    let fault = if error.kind() == io::ErrorKind::StorageFull { Fault::Space } else { Fault::FileIo };
    Error::new(fault, "cannot write the sink").because(error)
}
