//! Decides each packet's fate on a link or shared segment. Time and chance are arguments.
//!
//! A packet meets, in this order:
//!
//! ```text
//! offer -> down? -> EF policer -> queue -> transmitter -> loss -> corruption -> duplication -> delay, jitter -> advance
//!                   (diffserv)   (queue)  (transmitter)   '--------- fate ----------'         (flight)
//! ```
//!
//! Due times follow from the packets' alone, however late the caller. A [`Segment`] has its own access to the medium, and
//! loses only by collisions.
//!
//! A [`Payload`] is one packet, or a large segment that stands for many.

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
