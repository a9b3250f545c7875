//! Where packets wait: one queue that drops at its tail, or DiffServ's.

use super::diffserv::Classes;
use super::fifo::{Fifo, Waiting};
use super::payload::{Nanos, Payload};
use crate::limits;
use crate::topology::DirectionSpec;
use crate::units::Time;

#[derive(Clone, Debug)]
pub(super) enum Queue<P> {
    One(Fifo<P>),
    Classes(Box<Classes<P>>),
}

impl<P: Payload> Queue<P> {
    pub fn new(spec: &DirectionSpec, rtt: Time) -> Queue<P> {
        let bytes = limit_bytes(spec, rtt);
        match &spec.diffserv {
            Some(diffserv) => Queue::Classes(Box::new(Classes::new(diffserv, spec.rate, bytes))),
            None => Queue::One(Fifo::new(bytes)),
        }
    }

    /// Returns false for a packet above its class's rate, which must be dropped.
    #[must_use]
    pub fn police(&mut self, now: Nanos, packet: &P) -> bool {
        match self {
            Queue::One(_) => true,
            Queue::Classes(classes) => classes.police(now, packet),
        }
    }

    #[must_use]
    pub fn push(&mut self, frame: Waiting<P>) -> bool {
        match self {
            Queue::One(fifo) => fifo.push(frame),
            Queue::Classes(classes) => classes.push(frame),
        }
    }

    /// The next packet.
    pub fn pop(&mut self) -> Option<Waiting<P>> {
        match self {
            Queue::One(fifo) => fifo.pop(),
            Queue::Classes(classes) => classes.pop(),
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Queue::One(fifo) => fifo.len(),
            Queue::Classes(classes) => classes.len(),
        }
    }

    pub fn bytes(&self) -> u64 {
        match self {
            Queue::One(fifo) => fifo.bytes(),
            Queue::Classes(classes) => classes.bytes(),
        }
    }

    /// Follows the rate, on which default sizes depend.
    pub fn resize(&mut self, now: Nanos, spec: &DirectionSpec, rtt: Time) {
        let bytes = limit_bytes(spec, rtt);
        match self {
            Queue::One(fifo) => fifo.set_limit(bytes),
            Queue::Classes(classes) => classes.resize(now, spec.rate, bytes),
        }
    }
}

/// A default size may exceed the limit of a topology.
fn limit_bytes(spec: &DirectionSpec, rtt: Time) -> u64 {
    spec.queue_bytes(rtt).min(limits::MAX_QUEUE_BYTES)
}
