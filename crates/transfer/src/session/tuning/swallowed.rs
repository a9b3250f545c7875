//! What a path does not let through.

use std::fmt;

use super::lane::Lane;

/// A segment that was lost three times in a row is dropped by rule, and not by chance: with a loss of 5 %, chance does that to
/// one segment of 8,000.
const TIMEOUTS_IN_A_ROW: u8 = 3;

/// What a path does not let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Swallowed {
    /// Payload of the packets that vanish.
    pub(crate) segment_bytes: u32,
    /// Others of that size came through before.
    pub(crate) ever: bool,
}

impl fmt::Display for Swallowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ever {
            return f.write_str("nothing that is sent on the data connections is acknowledged any more");
        }
        let bytes = self.segment_bytes;
        write!(f, "the data connections stand, but no full packet gets through ({bytes} bytes of data): ")?;
        f.write_str("something on the path drops large packets without a word")
    }
}

/// Looks whether every lane sends the same segment again and again, and nothing is acknowledged. Updates what was `known`, and returns
/// what was not so before.
pub(super) fn look(lanes: &[Lane], known: &mut Option<Swallowed>) -> Option<Swallowed> {
    let infos: Vec<_> = lanes.iter().filter_map(|lane| lane.probe.tcp_info()).collect();
    if infos.is_empty() || infos.iter().any(|info| info.timeouts < TIMEOUTS_IN_A_ROW) {
        // Lanes that were given up and dialled again say nothing yet.
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
    let now = Swallowed { segment_bytes, ever };
    (known.replace(now) != Some(now)).then_some(now)
}
