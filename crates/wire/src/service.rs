//! The request of a job to a network that others use, too.

use serde::{Deserialize, Serialize};

/// The request of a job to a network that others use, too. The sender decides whether it is allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// The class of its data connections.
    pub class: AskedClass,
    /// With this rate or more nothing needs to be asked for.
    pub floor_bytes_per_s: Option<u64>,
    /// The time left for the job. It is a span, because the clocks of two hosts differ.
    pub time_left_ms: Option<u64>,
}

/// The requested class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AskedClass {
    /// A fair share.
    #[default]
    Normal,
    /// Only capacity that nobody else wants.
    Background,
    /// Before others.
    Priority,
    /// Precedence over others, while they take the path away.
    Auto,
}

/// The request of a path's lanes to the network, as their sender saw it. Marks are code points (RFC 2474): 0 to 63.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathService {
    /// The mark that most lanes had at the end.
    pub mark: u8,
    /// Bytes sent with another mark than 0, with those sent again.
    pub marked_bytes: u64,
    /// The number of times that the class was raised.
    pub raises: u32,
    /// The effect of the mark on this path.
    pub effect: MarkEffect,
    /// A packet with this mark was sent, and this one arrived.
    pub arrives: Option<Arrival>,
}

/// The effect of a mark on a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MarkEffect {
    /// The effect is not known: no marked and unmarked traffic ran side by side.
    #[default]
    Unknown,
    /// Marked packets go before others.
    Helps,
    /// Marked packets go as all others do.
    None,
    /// Marked packets are dropped.
    Dropped,
    /// Marked packets beyond a rate are dropped.
    Policed {
        /// The rate of the policer.
        bytes_per_s: u64,
    },
}

/// One mark, at both ends of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// The mark as sent.
    pub sent: u8,
    /// The mark as it arrived.
    pub arrived: u8,
}

impl PathService {
    /// Adds the marks that the receiver saw, a bit for each.
    #[must_use]
    pub fn with_seen(self, seen: u64) -> Self {
        // A path that released the class before the end had marked as expedited.
        let sent = if self.mark == 0 { EXPEDITED } else { self.mark };
        if self.marked_bytes == 0 || seen == 0 || sent >= CODE_POINTS {
            return self;
        }
        let first = u8::try_from(seen.trailing_zeros()).unwrap_or(0);
        let arrived = if seen & (1 << sent) != 0 { sent } else { first };
        Self { arrives: Some(Arrival { sent, arrived }), ..self }
    }

    /// Whether an honest sender could have sent it.
    #[must_use]
    pub fn is_within_limits(&self) -> bool {
        let marks = self.arrives.map_or([0; 2], |arrival| [arrival.sent, arrival.arrived]);
        self.mark < CODE_POINTS && marks.iter().all(|mark| *mark < CODE_POINTS)
    }
}

/// RFC 3246.
const EXPEDITED: u8 = 46;

/// The code points of RFC 2474.
pub const CODE_POINTS: u8 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_arrives_is_what_was_sent_if_any_packet_shows_it() {
        let marked = PathService { mark: 46, marked_bytes: 1, ..PathService::default() };
        let arrived = |seen| marked.with_seen(seen).arrives.map(|arrival| arrival.arrived);
        assert_eq!(arrived(0), None, "nobody saw any");
        assert_eq!(arrived(1 | 1 << 46), Some(46), "some went before the mark was set");
        assert_eq!((arrived(1), arrived(1 << 8)), (Some(0), Some(8)));
        assert_eq!(PathService::default().with_seen(1).arrives, None, "nothing was marked");
    }
}
