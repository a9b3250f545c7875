//! A network in a box: hosts are network namespaces, links are emulated, and any command runs in it.
//!
//! `units`, `topology`, `plan` say what is wanted; `shape` decides what happens to each packet, with time and chance as
//! arguments; `hosts`, `emulator` and `netem` make it real; `experiment` compares tools in it. Knows nothing of haul: it
//! runs built programs and reads what they print.
#![forbid(unsafe_code)]

pub mod experiment;
pub mod limits;
pub mod plan;
pub mod topology;
pub mod units;
