//! How far the peer is.

use std::net::TcpStream;

use haul_sys::tcp_info;

/// The peer's distance, which decides the policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Distance {
    /// Same building: loss is rare, and timers cost much.
    Near,
    /// A long path: the host's congestion control stands.
    Far,
}

impl Distance {
    /// Round-trip times below `near_rtt_us` are near.
    pub fn of_rtt(rtt_us: u32, near_rtt_us: u32) -> Distance {
        if rtt_us < near_rtt_us { Distance::Near } else { Distance::Far }
    }
}

pub(super) struct Measured {
    pub(super) rtt_us: Option<u32>,
    pub(super) class: Option<Distance>,
}

impl Measured {
    pub(super) fn of(stream: &TcpStream, near_rtt_us: u32) -> Measured {
        let info = tcp_info::tcp_info(stream).ok();
        let rtt_us = info.map(|info| info.rtt_min_us.unwrap_or(info.rtt_us)).filter(|rtt_us| *rtt_us > 0);
        Measured { rtt_us, class: rtt_us.map(|rtt_us| Distance::of_rtt(rtt_us, near_rtt_us)) }
    }
}
