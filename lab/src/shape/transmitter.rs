//! Puts frames on the wire, at a rate.
//!
//! 1538 bytes take 1230.4 ns at 10 Gbit/s: the remainder is carried over, so a million frames take exactly 1.2304 s.

use super::fifo::Waiting;
use super::payload::Nanos;
use crate::units::Rate;

#[derive(Clone, Debug)]
pub(super) struct Transmitter<P> {
    /// `None`: frames take no time.
    rate: Option<Rate>,
    sending: Option<Waiting<P>>,
    /// The last frame's exact end in nanoseconds, and parts / rate.
    end_ns: u64,
    end_parts: u64,
}

impl<P> Transmitter<P> {
    pub fn new(rate: Option<Rate>) -> Transmitter<P> {
        Transmitter { rate, sending: None, end_ns: 0, end_parts: 0 }
    }

    pub fn is_idle(&self) -> bool {
        self.sending.is_none()
    }

    /// When the current frame has left, never before its last bit.
    pub fn end(&self) -> Option<Nanos> {
        self.sending.as_ref().map(|_| self.end_rounded())
    }

    /// Begins when idle. Directly behind another frame, it begins at that frame's exact end.
    pub fn start(&mut self, now: Nanos, frame: Waiting<P>) {
        if now != self.end_rounded() {
            (self.end_ns, self.end_parts) = (now.0, 0);
        }
        if let Some(rate) = self.rate {
            let rate = u128::from(rate.bits_per_s());
            let parts = u128::from(frame.wire_bytes) * 8 * 1_000_000_000 + u128::from(self.end_parts);
            // The remainder fits a u64; 2^33 bytes at 1 bit/s take 2^66 ns, the end of time.
            self.end_ns = self.end_ns.saturating_add(u64::try_from(parts / rate).unwrap_or(u64::MAX));
            self.end_parts = u64::try_from(parts % rate).unwrap_or(0);
        }
        self.sending = Some(frame);
    }

    /// Takes the current frame: complete after its end, cut off before.
    pub fn take(&mut self) -> Option<Waiting<P>> {
        self.sending.take()
    }

    /// Sets the rate from the next frame on.
    pub fn set_rate(&mut self, rate: Rate) {
        if self.rate != Some(rate) {
            self.rate = Some(rate);
            (self.end_ns, self.end_parts) = (self.end_rounded().0, 0);
        }
    }

    fn end_rounded(&self) -> Nanos {
        Nanos(self.end_ns.saturating_add(u64::from(self.end_parts > 0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(wire_bytes: u64) -> Waiting<()> {
        Waiting { item: (), wire_bytes, since: Nanos::ZERO }
    }

    #[test]
    fn parts_of_a_nanosecond_add_up() {
        let mut transmitter = Transmitter::new(Rate::from_bits_per_s(10_000_000_000));
        let mut now = Nanos::ZERO;
        let mut ends = Vec::new();
        for _ in 0..1_000_000 {
            transmitter.start(now, frame(1538));
            now = transmitter.end().unwrap();
            ends.push(now.0);
            transmitter.take();
        }
        assert_eq!(ends[..5], [1231, 2461, 3692, 4922, 6152], "1230.4 each, rounded up");
        assert_eq!(now, Nanos(1_230_400_000));
    }

    #[test]
    fn after_a_pause_it_begins_anew() {
        let mut transmitter = Transmitter::new(Rate::from_bits_per_s(3_000_000_000));
        transmitter.start(Nanos(100), frame(1));
        assert_eq!(transmitter.end(), Some(Nanos(103)), "8 bits at 3 a nanosecond");
        assert!(transmitter.take().is_some() && transmitter.is_idle());
        transmitter.start(Nanos(200), frame(1));
        assert_eq!(transmitter.end(), Some(Nanos(203)));
    }
}
