//! A look whose queue it is: what is lost while we hold back.

use super::recent::{LOSES_MANY_PART, Sent};
use super::seen::LOSES_OF_BYTES;

/// A moment with less data: a queue of our own goes, one of others stays.
#[derive(Clone, Copy, Debug)]
pub(super) struct HoldBack {
    pub(super) from_us: u64,
    pub(super) until_us: u64,
    pub(super) lanes: usize,
    pub(super) lane_bytes_per_s: u64,
    pub(super) rate_bytes_per_s: u64,
    pub(super) queueing_us: u32,
    /// Bytes sent when all before was heard of.
    pub(super) since: Option<Sent>,
    /// Looks in a row with the losses of an overflowing queue.
    pub(super) lossy: u8,
}

impl HoldBack {
    pub(super) fn loses(&self, now: Sent, part: u64) -> bool {
        self.since.is_some_and(|before| {
            let Sent { bytes, resent_bytes, .. } = now.after(before);
            bytes >= LOSES_OF_BYTES && resent_bytes > bytes / part
        })
    }

    /// True if so many packets were sent again that a short look is enough.
    pub(super) fn resends_many(&self, now: Sent) -> bool {
        self.since
            .map(|before| now.after(before))
            .is_some_and(|sent| sent.bytes < LOSES_OF_BYTES && sent.resends_many())
    }

    /// True if, besides, as many did not arrive. Repairs after our own queue all arrive.
    pub(super) fn loses_many(&self, now: Sent, rtt_us: u32) -> bool {
        self.since.is_some_and(|before| {
            let since = now.after(before);
            let held_bytes_per_s = self.lane_bytes_per_s.saturating_mul(self.lanes as u64);
            let under_way = held_bytes_per_s.saturating_mul(rtt_us.into()) / 1_000_000;
            let arrived_or_may = since.delivered_bytes.saturating_add(under_way);
            self.resends_many(now) && since.bytes.saturating_sub(arrived_or_may) > since.bytes / LOSES_MANY_PART
        })
    }
}
