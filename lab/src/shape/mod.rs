//! The fate of each packet on a link or a shared segment. Pure: time and chance are arguments, packets go in and out.
//!
//! A direction of a link, in the order a packet meets them:
//!
//! ```text
//! offer -> down? -> EF policer -> queue -> transmitter -> loss -> corruption -> duplication -> delay, jitter -> advance
//!                   (diffserv)   (queue)  (transmitter)   '--------- fate ----------'         (flight)
//! ```
//!
//! Time is virtual: due times and ends of transmissions follow from the times of the packets alone. A late caller gets
//! the same packets with the same times, only later. A [`Segment`] has its own access to the medium in place of the
//! transmitter, and its only losses are collisions.
//!
//! Everything that passes is a [`Payload`]: one packet, or a large segment that stands for many.

mod chance;
mod counters;
mod diffserv;
mod direction;
mod fate;
mod fifo;
mod flight;
mod payload;
mod queue;
mod segment;
mod transmitter;

#[cfg(test)]
#[path = "../../tests/unit/packet.rs"]
mod packet;
#[cfg(test)]
#[path = "../../tests/unit/shape_scenarios.rs"]
mod scenarios;

pub(crate) use chance::{Chance, Purpose};
pub use counters::Counters;
pub use diffserv::Class;
pub use direction::{Direction, LinkChange};
pub use payload::{Nanos, Payload};
pub use segment::Segment;
