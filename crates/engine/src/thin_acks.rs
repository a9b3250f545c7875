//! How long a receiver lets data gather before it reads it, where the way back is too narrow for the acknowledgements.
//!
//! Linux acknowledges each second segment to a reader that takes everything at once. A reader that takes its time is acknowledged once
//! per read. 100 Mbit/s bring 2.2 Mbit/s of acknowledgements. A line with 2 Mbit/s back loses most of them, and the receiver's words
//! with them, until lanes stand still for seconds (RFC 3449, sections 2 and 5.2).

/// The kernel's counts of the connection with this end's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WordsSent {
    /// All bytes, with repeats.
    pub bytes: u64,
    /// Bytes sent again.
    pub again_bytes: u64,
    /// Segments sent again.
    pub again: u32,
}

/// Finds out whether words are lost beside data, and for how long data shall gather.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThinAcks {
    since: Option<WordsSent>,
    pause_us: u32,
    settles_until_us: u64,
}

impl ThinAcks {
    /// Takes a look at the words. `data_bytes` is asked for what has come in all, if it matters. Returns another pause, in
    /// microseconds. It only grows: what is narrow stays narrow.
    pub fn on_look(&mut self, now_us: u64, words: WordsSent, data_bytes: impl FnOnce() -> u64) -> Option<u32> {
        let since = *self.since.get_or_insert(words);
        let is_other_connection = words.bytes < since.bytes || words.again < since.again;
        if is_other_connection || now_us < self.settles_until_us {
            self.since = Some(words);
            return None;
        }
        let sent = words.bytes - since.bytes;
        let again = words.again_bytes.saturating_sub(since.again_bytes);
        let are_lost = words.again - since.again >= LOST_WORDS && again.saturating_mul(LOST_SHARE) >= sent;
        if are_lost || sent > LOOK_BYTES_MAX {
            self.since = Some(words);
        }
        let may_grow = are_lost && self.pause_us < PAUSE_US_MAX;
        if !may_grow || data_bytes() < words.bytes.saturating_mul(DATA_PER_WORD) {
            return None;
        }
        self.pause_us = (2 * self.pause_us).clamp(PAUSE_US_MIN, PAUSE_US_MAX);
        self.settles_until_us = now_us + SETTLES_US;
        Some(self.pause_us)
    }
}

/// Three words in a row are no chance.
const LOST_WORDS: u32 = 3;

/// An eighth of the words: a radio link loses fewer.
const LOST_SHARE: u64 = 8;

/// Words beside little data are lost for another reason.
const DATA_PER_WORD: u64 = 100;

/// Losses of long ago are another matter: with a word each 20 ms, a second, or as many requests as 24 connections begin with.
const LOOK_BYTES_MAX: u64 = 8 << 10;

/// 8 lanes are acknowledged 2,000 times a second, with 1 Mbit/s.
const PAUSE_US_MIN: u32 = 4_000;

/// 64 lanes are acknowledged 4,000 times a second.
pub const PAUSE_US_MAX: u32 = 16_000;

/// Earlier losses are repaired within two or three timeouts.
const SETTLES_US: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const LOOK_US: u64 = 100_000;

    /// Looks for `looks` tenths of a second at words of 500 bytes each, of which so many per mille are lost beside so much data.
    fn pauses(looks: u64, lost_permille: u64, data_bytes: u64) -> Vec<u32> {
        let mut thin = ThinAcks::default();
        let words = |look: u64| {
            let lost = look * 5 * lost_permille / 1000;
            let again = u32::try_from(lost).unwrap();
            WordsSent { bytes: (5 * look + lost) * 100, again_bytes: lost * 100, again }
        };
        (0..looks).filter_map(|look| thin.on_look(look * LOOK_US, words(look), || look * data_bytes)).collect()
    }

    #[test]
    fn a_receiver_whose_words_are_lost_beside_data_reads_less_often_until_they_arrive() {
        assert_eq!(pauses(100, 500, 1_000_000), [4_000, 8_000, 16_000], "and never less often");
        assert_eq!(pauses(12, 500, 1_000_000), [4_000], "it takes a moment to see what a pause brings");
        assert!(pauses(1000, 100, 1_000_000).is_empty(), "a radio link loses a tenth");
        assert!(pauses(1000, 500, 1_000).is_empty(), "without data there are few acknowledgements");
    }

    #[test]
    fn another_connection_begins_anew() {
        let mut thin = ThinAcks::default();
        let lost = |again: u32| WordsSent { bytes: 10_000, again_bytes: 5_000, again };
        let pauses = [100, 2, 4, 5].map(|again| thin.on_look(LOOK_US, lost(again), || 1 << 30));
        assert_eq!(pauses, [None, None, None, Some(PAUSE_US_MIN)]);
    }
}
