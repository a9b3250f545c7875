//! How a job is done: how a file is cut into chunks, how many lanes a path gets.

use haul_wire::control::Cut;
use haul_wire::limits::MAX_LANES;

/// How one file is cut. Chunks are an aligned power of two long, and so subtrees of its BLAKE3 tree; only the last may be
/// shorter. Both sides compute it from size and rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkLayout {
    size: u64,
    chunk_bytes: u64,
}

impl ChunkLayout {
    /// The layout without a rule.
    pub fn of(size: u64) -> Self {
        Self::by(Cut::USUAL, size)
    }

    /// The layout with the smallest chunk that the rule allows and that gives no more chunks than allowed.
    pub fn by(cut: Cut, size: u64) -> Self {
        let least = size.div_ceil(u64::from(cut.most_chunks())).next_power_of_two();
        Self { size, chunk_bytes: least.max(cut.least_chunk_bytes()) }
    }

    /// Bytes of every chunk but the last.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes
    }

    /// Size of the file in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Number of chunks; 1 for an empty file.
    pub fn count(&self) -> u32 {
        let count = self.size.div_ceil(self.chunk_bytes).max(1);
        u32::try_from(count).expect("the layout keeps it below MAX_CHUNKS_PER_FILE")
    }

    /// Whether one chunk is all, hashed to its BLAKE3 root.
    pub fn is_whole(&self) -> bool {
        self.count() == 1
    }

    /// Offset and length in bytes; `None`: no such chunk.
    pub fn range(&self, chunk: u32) -> Option<(u64, u64)> {
        if chunk >= self.count() {
            return None;
        }
        let offset = u64::from(chunk) * self.chunk_bytes;
        Some((offset, self.chunk_bytes.min(self.size - offset)))
    }
}

/// How many lanes, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneAdvice {
    /// Number of lanes, 1 to [`MAX_LANES`].
    pub lanes: u16,
    /// The reason, for the user.
    pub reason: &'static str,
}

/// Below it one connection fills a path, and the processors are the limit.
pub const NEAR_RTT_US: u32 = 2_000;

/// Windows of 2 MiB in ssh: 8 fill 1 Gbit/s at 134 ms.
pub const SSH_LANES: u16 = 8;

const NEAR_LANES_MAX: u16 = 4;

/// A near path's lanes; the smaller host has `cpus` processors.
pub fn near_lanes(asked: Option<u16>, cpus: u16) -> LaneAdvice {
    if let Some(asked) = asked {
        return LaneAdvice { lanes: asked.clamp(1, MAX_LANES), reason: "asked for" };
    }
    LaneAdvice {
        lanes: cpus.clamp(1, NEAR_LANES_MAX),
        reason: "near path: one lane for each processor of the smaller host",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn layouts_of_remarkable_sizes() {
        let check = |size: u64, chunk_bytes: u64, count: u32| {
            let layout = ChunkLayout::of(size);
            assert_eq!((layout.chunk_bytes(), layout.count()), (chunk_bytes, count), "size {size}");
        };
        const MIB: u64 = 1 << 20;
        check(0, MIB, 1);
        check(1, MIB, 1);
        check(MIB, MIB, 1);
        check(MIB + 1, MIB, 2);
        check(64 << 30, MIB, 65_536);
        check((64 << 30) + 1, 2 * MIB, 32_769);
        check(10 << 40, 256 * MIB, 40_960);
    }

    #[test]
    fn a_store_gets_parts_of_at_least_8_mib_and_at_most_10000() {
        let cut = Cut::new(8 << 20, 10_000).unwrap();
        for (size, chunk_mib, count) in [
            (0, 8, 1),
            (8 << 20, 8, 1),
            ((8 << 20) + 1, 8, 2),
            (80_000 << 20, 8, 10_000),
            ((80_000 << 20) + 1, 16, 5001),
            (5 << 40, 1024, 5120),
        ] {
            let layout = ChunkLayout::by(cut, size);
            assert_eq!((layout.chunk_bytes() >> 20, layout.count()), (chunk_mib, count), "size {size}");
        }
        assert_eq!(ChunkLayout::by(Cut::new(1 << 20, 1024).unwrap(), u64::MAX).count(), 1024);
    }

    proptest! {
        /// 10,000 parts of 4 GiB, the largest power of two that stores take.
        #[test]
        fn an_object_of_any_size_that_is_taken_has_parts_that_stores_take(size in 0u64..=10_000 * (4 << 30)) {
            let layout = ChunkLayout::by(Cut::new(8 << 20, 10_000).unwrap(), size);
            prop_assert!(layout.count() <= 10_000 && layout.chunk_bytes() <= 4 << 30);
            prop_assert!(layout.chunk_bytes() >= 8 << 20 && layout.chunk_bytes().is_power_of_two());
            // No part is larger than needed.
            prop_assert!(layout.chunk_bytes() == 8 << 20 || size > 10_000 * (layout.chunk_bytes() / 2));
        }

        #[test]
        fn chunks_cover_the_file_without_gap_or_overlap(size in 0u64..1 << 50, store in proptest::bool::ANY) {
            let cut = if store { Cut::new(8 << 20, 10_000).unwrap() } else { Cut::USUAL };
            let layout = ChunkLayout::by(cut, size);
            let mut end = 0;
            let last = layout.count() - 1;
            for chunk in [0, 1.min(last), last.saturating_sub(1), last] {
                let (offset, length) = layout.range(chunk).unwrap();
                prop_assert_eq!(offset, u64::from(chunk) * layout.chunk_bytes());
                end = offset + length;
            }
            prop_assert_eq!(end, size);
            prop_assert!(layout.range(layout.count()).is_none());
        }
    }
}
