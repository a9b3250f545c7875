//! `haul-lab`: puts any command into an emulated network.
#![forbid(unsafe_code)]

fn main() {}
