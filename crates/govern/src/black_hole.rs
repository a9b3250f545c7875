//! Recognises a path that drops packets by rule.

use std::fmt;

use haul_wire::limits::MIN_SEGMENT_BYTES;

use super::lane::Lane;

/// A segment with a time stamp (RFC 7323) has so much less data than was announced, and none may count as smaller by that alone.
const OPTION_BYTES: u32 = 12;

/// A segment that is lost three times in a row is dropped by rule: with a loss of 5 %, chance does that to one segment
/// of 8,000.
const TIMEOUTS_IN_A_ROW: u8 = 3;

/// Segments to try, the largest first: those of the smallest packet that IPv6 carries everywhere (RFC 8200, section 5), and those that
/// every host takes.
const SMALLER: [u16; 2] = [1_280 - 60, MIN_SEGMENT_BYTES];

/// Packets that a path does not let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlackHole {
    /// The payload of the packets that vanish.
    pub segment_bytes: u32,
    /// Whether packets of that size came through before.
    pub ever: bool,
}

impl fmt::Display for BlackHole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ever {
            return f.write_str("nothing that is sent on the data connections is acknowledged any more");
        }
        let bytes = self.segment_bytes;
        write!(f, "the data connections stand, but no full packet gets through ({bytes} bytes of data): ")?;
        f.write_str("something on the path drops large packets without a word")
    }
}

impl BlackHole {
    /// The largest segment to try instead; `None` where none is left, or where the size is not to blame.
    pub fn smaller(&self) -> Option<u16> {
        SMALLER
            .into_iter()
            .find(|bytes| !self.ever && u32::from(*bytes) < self.segment_bytes.saturating_sub(OPTION_BYTES))
    }
}

/// Looks whether every lane repeats the same segment without an acknowledgement. Returns a finding that is not yet
/// `known`.
pub fn look(lanes: &[Lane], known: &mut Option<BlackHole>) -> Option<BlackHole> {
    let infos: Vec<_> = lanes.iter().filter_map(|lane| lane.probe.tcp_info()).collect();
    if infos.is_empty() || infos.iter().any(|info| info.timeouts < TIMEOUTS_IN_A_ROW) {
        // Lanes that were dialled again prove nothing yet.
        if infos
            .iter()
            .any(|info| info.timeouts == 0 && info.bytes_acked.unwrap_or(0) > 2 * u64::from(info.snd_mss_bytes))
        {
            *known = None;
        }
        return None;
    }
    let segment_bytes = infos.iter().map(|info| info.snd_mss_bytes).max().unwrap_or(0);
    // The handshake alone comes to a segment, in small packets.
    let ever = infos.iter().any(|info| info.bytes_acked.unwrap_or(0) > 2 * u64::from(info.snd_mss_bytes));
    let now = BlackHole { segment_bytes, ever };
    (known.replace(now) != Some(now)).then_some(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ever_smaller_segments_are_tried_and_none_where_the_size_is_not_to_blame() {
        let hole = |segment_bytes, ever| BlackHole { segment_bytes, ever }.smaller();
        assert_eq!(hole(1_448, false), Some(1_220));
        assert_eq!(hole(1_208, false), Some(536));
        assert_eq!(hole(524, false), None);
        assert_eq!(hole(1_448, true), None);
    }
}
