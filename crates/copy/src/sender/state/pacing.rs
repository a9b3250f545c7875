//! Lanes wait for the rate limit, and what is told of paths meanwhile.
//!
//! Such lanes send in bursts, and the path looks idle between them. So its rate is what passed the limit, which also holds it.

use haul_wire::summary::{HeldBy, PathNow};

use super::Shared;

impl Shared {
    pub(in crate::sender) fn pace(&self, bytes: u64) -> bool {
        self.paced.pace(bytes)
    }

    pub(in crate::sender) fn as_paced(&self, mut paths: Vec<PathNow>) -> Vec<PathNow> {
        if paths.is_empty() {
            return paths;
        }
        let lanes = self.loads.carrying();
        let Some(rate) = self.paced.holds(lanes) else { return paths };
        let all = paths.iter().map(|path| path.rate_bytes_per_s).sum::<u64>();
        let number = paths.len() as u64;
        for path in &mut paths {
            path.held_by = HeldBy::RateLimit;
            path.rate_bytes_per_s = match all {
                0 => rate / number,
                _ => u64::try_from(u128::from(rate) * u128::from(path.rate_bytes_per_s) / u128::from(all))
                    .unwrap_or(rate),
            };
        }
        paths
    }
}
