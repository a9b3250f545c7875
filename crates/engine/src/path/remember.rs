//! What one job leaves to the next one on the same path.

use alloc::string::String;

/// The findings of a job about its path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remembered {
    /// Smallest round-trip time.
    pub rtt_min_us: u32,
    /// The rate that the path carried for us.
    pub capacity_bytes_per_s: u64,
    /// Lanes with data at a steady rate.
    pub lanes: u16,
    /// Loss without a queue, of a million bytes.
    pub random_loss_ppm: u32,
    /// Congestion control of the lanes.
    pub congestion_control: String,
}

impl Remembered {
    /// True for a similar round-trip time: the host may have moved, or the route changed.
    pub(super) fn fits(&self, rtt_us: u32) -> bool {
        let (rtt_us, was_us) = (u64::from(rtt_us), u64::from(self.rtt_min_us));
        self.lanes > 0 && self.capacity_bytes_per_s > 0 && rtt_us * 4 >= was_us * 3 && rtt_us * 3 <= was_us * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_recognised_by_its_round_trip_time() {
        let remembered = Remembered { rtt_min_us: 100_000, capacity_bytes_per_s: 1, lanes: 8, ..Remembered::default() };
        assert!(remembered.fits(100_000) && remembered.fits(120_000) && remembered.fits(80_000));
        assert!(!remembered.fits(150_000) && !remembered.fits(20_000));
    }
}
