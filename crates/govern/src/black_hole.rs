//! Recognises a path that drops packets by rule.

use std::fmt;

use haul_wire::limits::MIN_SEGMENT_BYTES;

use super::lane::Lane;

/// A time stamp (RFC 7323) takes so much of a full segment.
const OPTION_BYTES: u32 = 12;

/// Chance at 5 % loses one segment of 8,000 three times in a row.
const TIMEOUTS_IN_A_ROW: u8 = 3;

/// Sizes of IPv6 packets that pass everywhere (RFC 8200, section 5), and of any host.
const SMALLER: [u16; 2] = [1_280 - 60, MIN_SEGMENT_BYTES];

/// Packets that a path drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlackHole {
    /// The payload of these packets.
    pub segment_bytes: u32,
    /// Whether that size came through before.
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
    /// The largest segment to try; `None`: none is left, or the size is not to blame.
    pub fn smaller(&self) -> Option<u16> {
        SMALLER
            .into_iter()
            .find(|bytes| !self.ever && u32::from(*bytes) < self.segment_bytes.saturating_sub(OPTION_BYTES))
    }
}

/// Looks whether all lanes repeat the same segment. Returns what is not `known`.
pub fn look(lanes: &[Lane], known: &mut Option<BlackHole>) -> Option<BlackHole> {
    let infos: Vec<_> = lanes.iter().filter_map(|lane| lane.probe.tcp_info()).collect();
    if infos.is_empty() || infos.iter().any(|info| info.timeouts < TIMEOUTS_IN_A_ROW) {
        // Lanes dialled again prove nothing.
        if infos
            .iter()
            .any(|info| info.timeouts == 0 && info.bytes_acked.unwrap_or(0) > 2 * u64::from(info.snd_mss_bytes))
        {
            *known = None;
        }
        return None;
    }
    let segment_bytes = infos.iter().map(|info| info.snd_mss_bytes).max().unwrap_or(0);
    // A handshake is a segment in small packets.
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
