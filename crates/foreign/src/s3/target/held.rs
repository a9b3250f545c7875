//! The memory of the parts that are held until the store has them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::s3::limits::ALL_HELD_BYTES;

#[derive(Debug, Default)]
pub(super) struct Held {
    bytes: Arc<AtomicU64>,
    /// The largest part so far.
    part_bytes: AtomicU64,
}

/// Counts a part's bytes while this lives.
#[derive(Debug)]
pub(super) struct Share {
    all: Arc<AtomicU64>,
    bytes: u64,
}

impl Held {
    /// `None`: too much is held already.
    pub(super) fn take(&self, bytes: u64) -> Option<Share> {
        let more = |held: u64| held.checked_add(bytes).filter(|held| *held <= ALL_HELD_BYTES);
        self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Share { all: Arc::clone(&self.bytes), bytes })
    }

    pub(super) fn expect(&self, part_bytes: u64) {
        self.part_bytes.fetch_max(part_bytes, Ordering::Relaxed);
    }

    /// How many parts can be held at once.
    pub(super) fn most(&self) -> u16 {
        let part_bytes = self.part_bytes.load(Ordering::Relaxed).max(1);
        u16::try_from(ALL_HELD_BYTES / part_bytes).unwrap_or(u16::MAX).max(AT_LEAST)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Parts that are too large to be held go over as many connections.
const AT_LEAST: u16 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_held_while_there_is_room() {
        let held = Held::default();
        let shares: Vec<Share> = (0..17).filter_map(|_| held.take(64 << 20)).collect();
        assert_eq!(shares.len(), 16);
        drop(shares);
        assert!(held.take(ALL_HELD_BYTES).is_some() && held.take(u64::MAX).is_none());
    }

    #[test]
    fn large_parts_are_for_fewer_connections() {
        let held = Held::default();
        for (part_bytes, most) in [(8 << 20, 128), (32 << 20, 32), (4 << 30, 16), (8 << 20, 16)] {
            held.expect(part_bytes);
            assert_eq!(held.most(), most, "{part_bytes}");
        }
    }
}
