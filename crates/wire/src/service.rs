//! The request of a job to a network that others use, too.

use serde::{Deserialize, Serialize};

/// A job's request. The sender decides whether it is allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// The class of connections.
    pub class: AskedClass,
    /// From this rate on nothing need be asked for.
    pub floor_bytes_per_s: Option<u64>,
    /// The time left: a span, because clocks differ.
    pub time_left_ms: Option<u64>,
}

/// The requested class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AskedClass {
    /// A fair share.
    #[default]
    Normal,
    /// Only unwanted capacity.
    Background,
    /// Before others.
    Priority,
    /// Before others, while they take the path away.
    Auto,
}

/// A path's request, as its sender saw it. Marks are code points (RFC 2474): 0 to 63.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathService {
    /// Most lanes' last mark.
    pub mark: u8,
    /// Bytes sent with another mark than 0.
    pub marked_bytes: u64,
    /// Number of raises.
    pub raises: u32,
    /// The mark's effect on this path.
    pub effect: MarkEffect,
    /// A mark as sent and arrived.
    pub arrives: Option<Arrival>,
}

/// The effect of a mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MarkEffect {
    /// Unmarked traffic did not run beside.
    #[default]
    Unknown,
    /// Marked packets go first.
    Helps,
    /// Marked packets go like others.
    None,
    /// Marked packets are dropped.
    Dropped,
    /// Marked packets beyond a rate are dropped.
    Policed {
        /// The rate.
        bytes_per_s: u64,
    },
}

/// A mark at both ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// The mark as sent.
    pub sent: u8,
    /// The mark as arrived.
    pub arrived: u8,
}

impl PathService {
    /// Adds the receiver's marks, a bit each.
    #[must_use]
    pub fn with_seen(self, seen: u64) -> Self {
        // A released class had marked as expedited.
        let sent = if self.mark == 0 { EXPEDITED } else { self.mark };
        if self.marked_bytes == 0 || seen == 0 || sent >= CODE_POINTS {
            return self;
        }
        let first = u8::try_from(seen.trailing_zeros()).unwrap_or(0);
        let arrived = if seen & (1 << sent) != 0 { sent } else { first };
        Self { arrives: Some(Arrival { sent, arrived }), ..self }
    }

    /// Whether a sender may say so.
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
