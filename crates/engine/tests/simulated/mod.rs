//! A path in virtual time, and the tuner running on it.
//!
//! ```text
//!   flow     TCP: cubic, reno, bbr, or none; windows, pacing  -> bytes to send, counters
//!   link     bytes of all flows -> one queue -> rate, loss    -> acknowledgements a round trip later
//!   run      the tuner, lanes that take time to come          -> what came of it
//!   several  several paths over one link or many            -> what came of it
//! ```
//! Bytes flow in steps of a twentieth of a round trip; only losses are counted in packets. The same seed gives the same run.
#![allow(dead_code, reason = "each test program uses a part of it")]

pub mod aware;
pub mod flow;
pub mod link;
pub mod run;
pub mod several;
