//! The segments that a host's kernel sent again while a tool ran.

use std::fs;
use std::path::PathBuf;

use super::intervals::ByteCounters;

/// A file like `/proc/net/snmp`, see proc_net(5).
pub(super) struct SegmentCounters(PathBuf);

/// Segments so far (RFC 4022: `tcpOutSegs`, in Linux with those sent again, and `tcpRetransSegs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segments {
    sent: u64,
    again: u64,
}

impl SegmentCounters {
    /// TCP's counters. `None` for a whole machine, whose other programs send, too.
    pub(super) fn beside(counters: &ByteCounters) -> Option<SegmentCounters> {
        (!counters.loopback).then(|| SegmentCounters(counters.path.with_file_name("snmp")))
    }

    /// `None`: this kernel does not tell.
    pub(super) fn read(&self) -> Option<Segments> {
        Segments::parse(&fs::read_to_string(&self.0).ok()?)
    }
}

impl Segments {
    fn parse(text: &str) -> Option<Segments> {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp:"));
        let (names, values) = (lines.next()?, lines.next()?);
        let value = |wanted: &str| {
            let mut pairs = names.split_whitespace().zip(values.split_whitespace());
            pairs.find(|(name, _)| *name == wanted)?.1.parse().ok()
        };
        Some(Segments { sent: value("OutSegs")?, again: value("RetransSegs")? })
    }

    /// The share sent again since `before`; `None` if nothing was sent.
    pub(super) fn share_since(self, before: Segments) -> Option<f64> {
        let sent = self.sent.checked_sub(before.sent).filter(|sent| *sent > 0)?;
        Some(self.again.saturating_sub(before.again) as f64 / sent as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_that_of_the_time_between_two_readings() {
        let at = |sent: u64, again: u64| {
            let text =
                format!("Ip: A B\nIp: 1 2\nTcp: InSegs OutSegs RetransSegs\nTcp: 7 {sent} {again}\nUdp: X\nUdp: 1\n");
            Segments::parse(&text).unwrap()
        };
        assert_eq!(at(1_100, 30).share_since(at(100, 10)), Some(0.02));
        assert_eq!(at(100, 10).share_since(at(100, 10)), None);
        assert_eq!(Segments::parse("Tcp: OutSegs\nTcp: 3\n"), None, "an old kernel");
    }
}
