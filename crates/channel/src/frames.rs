//! Counts messages of one direction of a control channel, and keeps unconfirmed ones for another link.

use std::collections::VecDeque;

/// Encoded messages, from the oldest unconfirmed one.
pub struct Kept {
    oldest: u64,
    frames: VecDeque<Box<[u8]>>,
    bytes: usize,
    max_bytes: usize,
    confirmed: u64,
}

/// Messages under way, since the peer confirms each 128 KiB (`CONFIRM_BYTES`): 1 Gbit/s x 60 ms holds 7.5 MB, hardly ever
/// control messages alone.
pub(crate) const MAX_KEPT_BYTES: usize = 8 << 20;

/// The peer confirms more than was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NeverSent;

impl Kept {
    pub fn new(max_bytes: usize) -> Self {
        Self { oldest: 0, frames: VecDeque::new(), bytes: 0, max_bytes, confirmed: 0 }
    }

    pub fn next(&self) -> u64 {
        self.oldest + self.frames.len() as u64
    }

    pub fn push(&mut self, frame: &[u8]) {
        self.bytes += frame.len();
        self.frames.push_back(frame.into());
        while self.bytes > self.max_bytes {
            self.drop_oldest();
        }
    }

    pub fn confirm(&mut self, received: u64) -> Result<(), NeverSent> {
        if received > self.next() {
            return Err(NeverSent);
        }
        self.confirmed = self.confirmed.max(received);
        while self.oldest < received {
            self.drop_oldest();
        }
        Ok(())
    }

    /// Whether this direction can move to another link: all messages are here that the peer may lack.
    pub fn is_whole(&self) -> bool {
        self.oldest <= self.confirmed
    }

    pub fn oldest(&self) -> u64 {
        self.oldest
    }

    pub fn from(&self, number: u64) -> impl Iterator<Item = (u64, &[u8])> {
        let skipped = usize::try_from(number.saturating_sub(self.oldest)).unwrap_or(usize::MAX);
        let frames = self.frames.iter().map(|frame| &**frame);
        (self.oldest..).zip(frames).skip(skipped)
    }

    fn drop_oldest(&mut self) {
        if let Some(frame) = self.frames.pop_front() {
            self.oldest += 1;
            self.bytes -= frame.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(kept: &Kept, from: u64) -> Vec<u64> {
        kept.from(from).map(|(number, _)| number).collect()
    }

    #[test]
    fn messages_are_kept_until_they_are_confirmed() {
        let mut kept = Kept::new(100);
        (0..5).for_each(|byte| kept.push(&[byte; 10]));
        assert_eq!((kept.next(), numbers(&kept, 0), numbers(&kept, 3)), (5, vec![0, 1, 2, 3, 4], vec![3, 4]));
        kept.confirm(2).unwrap();
        kept.confirm(1).unwrap();
        assert_eq!((kept.oldest(), numbers(&kept, 0)), (2, vec![2, 3, 4]));
        assert_eq!(kept.from(4).next(), Some((4, &[4; 10][..])));
        kept.confirm(5).unwrap();
        assert_eq!((kept.next(), kept.oldest(), kept.bytes, kept.from(0).count()), (5, 5, 0, 0));
        assert!(kept.is_whole());
        assert_eq!(kept.confirm(6), Err(NeverSent));
    }

    #[test]
    fn what_is_kept_is_bounded_and_a_gap_is_known() {
        let mut kept = Kept::new(100);
        for _ in 0..1000 {
            kept.push(&[0; 10]);
            assert!(kept.bytes <= 100);
        }
        assert!(!kept.is_whole(), "the peer may lack what is not here any more");
        assert_eq!((kept.next(), numbers(&kept, 0)), (1000, (990..1000).collect()));
        kept.confirm(990).unwrap();
        assert!(kept.is_whole());
        kept.push(&[0; 101]);
        assert!(!kept.is_whole() && kept.bytes == 0);
        assert_eq!(kept.next(), 1001);
    }
}
