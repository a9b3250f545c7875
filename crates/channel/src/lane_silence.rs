//! Tells how long nothing has come from the peer, neither a word on a link nor a byte on a lane.
//!
//! Words come each second. A lane may carry while their link stands still, so late words lead to a look at the lanes.

use std::time::{Duration, Instant};

use crate::channel::PING_EVERY;

/// Looks at lanes while the peer says nothing.
#[derive(Debug, Default)]
pub struct LaneSilence(Option<Seen>);

#[derive(Debug)]
struct Seen {
    bytes: u64,
    came_at: Option<Instant>,
}

impl LaneSilence {
    /// The time since the last word or byte. `lane_bytes`: the lanes' count.
    pub fn with_words(&mut self, words: Duration, now: Instant, lane_bytes: impl FnOnce() -> u64) -> Duration {
        if words < PING_EVERY + LATE {
            self.0 = None;
            return words;
        }
        let bytes = lane_bytes();
        let seen = self.0.get_or_insert(Seen { bytes, came_at: None });
        if bytes > seen.bytes {
            seen.came_at = Some(now);
        }
        seen.bytes = bytes;
        seen.came_at.map_or(words, |came_at| words.min(now.saturating_duration_since(came_at)))
    }
}

/// Two looks: a busy host hears a word late.
const LATE: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn a_silent_link_beside_lanes_that_carry_is_no_silence() {
        let (start, mut lanes) = (Instant::now(), LaneSilence::default());
        let mut silence =
            |at: u32, words: u32, bytes: u64| lanes.with_words(S * words, start + S * at, || bytes).as_secs();
        assert_eq!(silence(2, 2, 100), 2, "what came before is not known");
        assert_eq!(silence(3, 3, 150), 0);
        assert_eq!([silence(4, 4, 150), silence(5, 5, 150)], [1, 2]);
        assert_eq!(silence(6, 6, 70), 3, "a lane has ended");
        assert_eq!(silence(7, 7, 71), 0);
        assert_eq!(silence(8, 0, 500), 0);
        assert_eq!([silence(20, 12, 500), silence(21, 13, 500)], [12, 13], "a new silence begins anew");
    }

    #[test]
    fn lanes_are_not_looked_at_while_the_peer_speaks() {
        let never = || unreachable!("no system calls are spent");
        assert_eq!(LaneSilence::default().with_words(S, Instant::now(), never), S);
    }
}
