//! What a host reaches on a path: one connection, and many.

use super::host::{Host, Wanted};

/// Bytes per second, as far as wanted; `None`: unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// One connection that this host sends.
    pub sending_one: Option<u64>,
    /// One connection that this host receives.
    pub receiving_one: Option<u64>,
    /// [`LANES`] of them.
    pub sending_lanes: Option<u64>,
    /// [`LANES`] of them.
    pub receiving_lanes: Option<u64>,
}

/// A fraction of small numbers.
#[derive(Clone, Copy)]
pub(super) struct Share {
    of: u64,
    in_all: u64,
}

impl Share {
    /// The share of a buffer of this size.
    pub(super) fn taken(self, bytes: u64) -> u64 {
        scale(bytes, self.of, self.in_all)
    }

    /// The buffer with a share of this size.
    pub(super) fn whole(self, bytes: u64) -> u64 {
        scale(bytes, self.in_all, self.of)
    }
}

impl Reach {
    pub(super) fn of(host: &Host, wanted: Wanted) -> Self {
        let window = |setting: &str, share: Share| {
            let bytes = share.taken(host.three(setting)?[2]);
            let unscaled = host.number("net.ipv4.tcp_window_scaling") == Some(0);
            Some(if unscaled { bytes.min(UNSCALED_WINDOW_BYTES) } else { bytes })
        };
        // All connections share it: half is data, as in one buffer.
        let all = host.three("net.ipv4.tcp_mem").map(|pages| RECEIVED.taken(pages[1].saturating_mul(host.page_bytes)));
        let reached = |bytes: u64| rate_of_window(bytes.min(all.unwrap_or(u64::MAX)), wanted);
        let sending = window("net.ipv4.tcp_wmem", SENT);
        let receiving = window("net.ipv4.tcp_rmem", RECEIVED);
        Self {
            sending_one: sending.map(reached),
            receiving_one: receiving.map(reached),
            sending_lanes: sending.map(|bytes| reached(bytes.saturating_mul(LANES))),
            receiving_lanes: receiving.map(|bytes| reached(bytes.saturating_mul(LANES))),
        }
    }
}

pub(super) fn rate_of_window(bytes: u64, wanted: Wanted) -> u64 {
    scale(bytes, 1_000_000, wanted.rtt_us.max(1)).min(wanted.rate_bytes_per_s)
}

fn scale(bytes: u64, times: u64, over: u64) -> u64 {
    u64::try_from(u128::from(bytes) * u128::from(times) / u128::from(over.max(1))).unwrap_or(u64::MAX)
}

/// Data under way in a send buffer: 2.9 MB of 4 MiB and 5.7 MB of 8 MiB on Linux 6.18.
pub(super) const SENT: Share = Share { of: 7, in_all: 10 };

/// The window in a receive buffer: exactly half before Linux 6.6 (tcp_adv_win_scale 1), later up to three quarters (25 MB of 32
/// MiB on 6.18), but not for small packets.
pub(super) const RECEIVED: Share = Share { of: 1, in_all: 2 };

/// Largest window without window scaling (RFC 7323, 2.1).
pub(super) const UNSCALED_WINDOW_BYTES: u64 = 65_535;

/// As many lanes as a copy uses unasked.
pub const LANES: u64 = crate::path::AUTO_LANES_MAX as u64;
