//! The lines of `tc` that make one direction of a link.
//!
//! The first netem has rate, queue and delay. A second one inside has what cannot be combined with them: random losses
//! beside bursts, and packets held back.

use std::time::Duration;

use crate::limits;
use crate::topology::{DirectionSpec, LinkSpec};
use crate::units::{Probability, Rate, Time};

/// Segments pass whole by default without effects and with the default queue, which would apply to 44 packets at once.
pub(super) fn segments_stay_whole(link: &LinkSpec) -> bool {
    let plain = |direction: DirectionSpec| {
        let often = |share: Option<Probability>| share.is_some_and(|share| !share.is_never());
        !often(direction.loss)
            && direction.burst.is_none()
            && !often(direction.reorder)
            && !often(direction.duplicate)
            && !often(direction.corrupt)
            && direction.diffserv.is_none()
            && direction.queue.is_none()
            && direction.spread.is_none()
    };
    link.large_segments.unwrap_or_else(|| link.has_large_segments() && plain(link.forth()) && plain(link.back()))
}

pub(super) struct OneWay {
    direction: DirectionSpec,
    rtt: Time,
    mtu: u32,
    whole_segments: bool,
    down: bool,
    seed: Option<u64>,
}

impl OneWay {
    pub(super) fn new(link: &LinkSpec, direction: DirectionSpec, down: bool, seed: Option<u64>) -> OneWay {
        let whole_segments = segments_stay_whole(link);
        OneWay { direction, rtt: link.rtt(), mtu: link.mtu, whole_segments, down, seed }
    }

    pub(super) fn lines(&self, device: &str) -> Vec<String> {
        let queue = limits::netem_packets(self.direction.queue_bytes(self.rtt), self.mtu);
        let on_the_way = self.packets_on_the_way(self.mtu);
        let rate = self.rate_words().unwrap_or_else(|| rate_that_keeps_order(&self.direction));
        self.chain(device, queue.saturating_add(on_the_way), &rate, self.down)
    }

    /// Rate and queue; [`OneWay::after_the_rate`] is the rest.
    pub(super) fn rate_alone(&self, device: &str) -> String {
        let queue = limits::netem_packets(self.direction.queue_bytes(self.rtt), self.mtu);
        let rate = self.rate_words().unwrap_or_default();
        let loss = if self.down { "100%" } else { "0%" };
        format!("qdisc replace dev {device} root handle 1: netem limit {queue} delay 0us{rate} loss random {loss}")
    }

    /// Delay and fate; the rate is in another qdisc. `down` loses all packets.
    pub(super) fn after_the_rate(&self, device: &str, down: bool) -> Vec<String> {
        let on_the_way = self.packets_on_the_way(46);
        let limit = on_the_way.max(limits::netem_packets(limits::UNLIMITED_LINK_QUEUE_BYTES, self.mtu));
        self.chain(device, limit, &rate_that_keeps_order(&self.direction), down)
    }

    fn packets_on_the_way(&self, packet_bytes: u32) -> u32 {
        let bytes = |rate: Rate| rate.bytes_in(longest_delay(&self.direction));
        self.direction.rate.map_or(0, |rate| limits::netem_packets(bytes(rate), packet_bytes))
    }

    fn rate_words(&self) -> Option<String> {
        self.direction.rate.map(|rate| match self.whole_segments {
            true => rate_of_segments(rate, self.mtu),
            false => format!(" rate {}bit {}", rate.bits_per_s(), limits::NETEM_OVERHEAD_BYTES),
        })
    }

    fn chain(&self, device: &str, limit: u32, rate: &str, down: bool) -> Vec<String> {
        let direction = &self.direction;
        let seed_text =
            |stage: u64| self.seed.map_or(String::new(), |seed| format!(" seed {}", seed.wrapping_add(stage << 32)));
        let random = direction.loss.filter(|share| !share.is_never());
        let (first_loss, second_loss) = match (down, direction.burst) {
            (true, _) => (" loss random 100%".to_owned(), None),
            (false, Some(burst)) => (bursts(burst.loss, burst.length), random),
            // Written even for no effect, to end an earlier one.
            (false, None) => (format!(" loss random {}", percent(random.unwrap_or_default())), None),
        };
        let share = |word: &str, share: Option<Probability>| match share.filter(|share| !share.is_never()) {
            Some(share) => format!(" {word} {}", percent(share)),
            None => String::new(),
        };
        let mut lines = vec![format!(
            "qdisc replace dev {device} root handle 1: netem limit {limit}{}{rate}{first_loss}{}{}{}",
            delay(direction),
            share("duplicate", direction.duplicate),
            share("corrupt", direction.corrupt),
            seed_text(0),
        )];
        let held_back = direction.reorder.filter(|share| !share.is_never());
        // The second stage passes all packets until an event needs it.
        if held_back.is_some() || direction.burst.is_some() {
            let held = match held_back {
                // netem delays all packets but the share that it "reorders".
                Some(share) => {
                    let by = direction.reorder_by.map_or(limits::DEFAULT_REORDER_TIME, |by| by.0);
                    format!(" delay {} reorder {}", micros(by), percent_of(1.0 - share.share()))
                }
                None => String::new(),
            };
            let loss = percent(second_loss.unwrap_or_default());
            lines.push(format!(
                "qdisc replace dev {device} parent 1:1 handle 2: netem limit {limit}{held} loss random {loss}{}",
                seed_text(1)
            ));
        }
        lines
    }
}

/// netem draws on both sides of a mean; the topology gives the addition.
fn delay(direction: &DirectionSpec) -> String {
    let least = direction.delay.unwrap_or_default().0;
    if let Some(spread) = direction.spread.filter(|spread| !spread.0.is_zero()) {
        return format!(" delay {} {} distribution normal", micros(least), micros(spread.0));
    }
    match direction.jitter.map_or(Duration::ZERO, |jitter| jitter.0) {
        Duration::ZERO => format!(" delay {}", micros(least)),
        jitter => format!(" delay {} {}", micros(least + jitter / 2), micros(jitter / 2)),
    }
}

/// netem's limit also counts packets in flight: before the first arrive, a short queue would be too long.
pub(super) fn is_shorter_than_the_way(direction: &DirectionSpec) -> bool {
    let on_the_way = direction.rate.map_or(0, |rate| rate.bytes_in(longest_delay(direction)));
    direction.queue.is_some_and(|queue| queue.bytes < on_the_way)
}

fn longest_delay(direction: &DirectionSpec) -> Duration {
    let spread = direction.spread.unwrap_or_default().0 * limits::SPREADS_MOST;
    direction.delay.unwrap_or_default().0 + direction.jitter.unwrap_or_default().0 + spread
}

/// Only a netem with a rate keeps packets in order. This rate costs a packet of 1500 bytes 12 ns.
fn rate_that_keeps_order(direction: &DirectionSpec) -> String {
    match direction.jitter {
        Some(jitter) if !jitter.0.is_zero() => " rate 1000000000000bit 0".to_owned(),
        _ => String::new(),
    }
}

/// netem counts framing once for a segment, so the rate is less by that of full packets.
fn rate_of_segments(rate: Rate, mtu: u32) -> String {
    let counted = u128::from(mtu + limits::ETHERNET_HEADER_BYTES);
    let bits = u128::from(rate.bits_per_s()) * counted / u128::from(mtu + limits::WIRE_OVERHEAD_BYTES);
    format!(" rate {}bit 0", bits.max(8))
}

/// Gilbert and Elliott: the bad state loses all. A burst ends with probability 1/length, the good state so that the bad
/// state's share is the loss.
fn bursts(loss: Probability, length: f64) -> String {
    let ends = 1.0 / length;
    let begins = ends * loss.share() / (1.0 - loss.share());
    format!(" loss gemodel {} {} 100% 0%", percent_of(begins), percent_of(ends))
}

fn percent(share: Probability) -> String {
    percent_of(share.share())
}

/// netem's probability has 32 bits: 2.3e-8 percent.
fn percent_of(share: f64) -> String {
    let text = format!("{:.8}", share.clamp(0.0, 1.0) * 100.0);
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

fn micros(time: Duration) -> String {
    match time.subsec_nanos() % 1000 {
        0 => format!("{}us", time.as_micros()),
        _ => format!("{}ns", time.as_nanos()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Topology;

    fn link(more: &str) -> LinkSpec {
        let text = format!("hosts = {{ a = {{}}, b = {{}} }}\n[[links]]\nends = ['a', 'b']\n{more}");
        Topology::parse(&text).unwrap().links.remove(0)
    }

    fn forth(more: &str, down: bool) -> String {
        let link = link(more);
        OneWay::new(&link, link.forth(), down, None).lines("w0.1").join("\n")
    }

    #[test]
    fn every_wish_has_its_words() {
        insta::assert_snapshot!(forth("rate = '1Gbit'\nrtt = '228ms'\nqueue = '14MB'", false), @r"qdisc replace dev w0.1 root handle 1: netem limit 18369 delay 114000us rate 1000000000bit 24 loss random 0%");
        insta::assert_snapshot!(forth("delay = '5ms'\njitter = '2ms'\nduplicate = '1%'\ncorrupt = 1e-6", false), @r"qdisc replace dev w0.1 root handle 1: netem limit 174536 delay 6000us 1000us rate 1000000000000bit 0 loss random 0% duplicate 1% corrupt 0.0001%");
        insta::assert_snapshot!(forth("rate = '25Mbit'\nloss = 1e-4\nburst = { loss = '1%', length = 4 }", false), @r"
qdisc replace dev w0.1 root handle 1: netem limit 205 delay 0us rate 25000000bit 24 loss gemodel 0.25252525% 25% 100% 0%
qdisc replace dev w0.1 parent 1:1 handle 2: netem limit 205 loss random 0.01%
");
        insta::assert_snapshot!(forth("rate = '25Mbit'\nreorder = '2%'\nreorder_by = '3ms'", false), @r"
qdisc replace dev w0.1 root handle 1: netem limit 205 delay 0us rate 25000000bit 24 loss random 0%
qdisc replace dev w0.1 parent 1:1 handle 2: netem limit 205 delay 3000us reorder 98% loss random 0%
");
        insta::assert_snapshot!(forth("rate = '25Mbit'\nburst = { loss = '1%', length = 4 }", true), @r"
qdisc replace dev w0.1 root handle 1: netem limit 205 delay 0us rate 25000000bit 24 loss random 100%
qdisc replace dev w0.1 parent 1:1 handle 2: netem limit 205 loss random 0%
");
    }

    #[test]
    fn packets_whose_delay_spreads_overtake_each_other() {
        let link = link("rate = '200Mbit'\nrtt = '50ms'\nspread = '5ms'");
        let lines = OneWay::new(&link, link.forth(), false, None).after_the_rate("w0.1", false);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].contains(" delay 25000us 5000us distribution normal loss"), "{lines:?}");
    }

    #[test]
    fn a_short_queue_is_no_longer_while_nothing_is_under_way() {
        let is_short =
            |queue: &str| is_shorter_than_the_way(&link(&format!("rate = '10Gbit'\nrtt = '100ms'\n{queue}")).forth());
        assert_eq!([is_short("queue = '12.5MB'"), is_short("queue = '125MB'"), is_short("")], [true, false, false]);
    }

    #[test]
    fn fast_links_carry_whole_segments_unless_single_packets_matter() {
        insta::assert_snapshot!(forth("rate = '10Gbit'\nrtt = '100ms'", false), @r"qdisc replace dev w0.1 root handle 1: netem limit 121913 delay 50000us rate 9843953185bit 0 loss random 0%");
        assert!(!segments_stay_whole(&link("rate = '1Gbit'")));
        assert!(!segments_stay_whole(&link("rate = '10Gbit'\nloss = 1e-4")));
        assert!(!segments_stay_whole(&link("rate = '10Gbit'\nqueue = '1MB'")));
        assert!(segments_stay_whole(&link("rate = '10Gbit'\nqueue = '1MB'\nlarge_segments = true")));
    }

    #[test]
    fn the_seed_differs_between_stages() {
        let link = link("loss = 1e-4\nburst = { loss = '1%', length = 4 }");
        let lines = OneWay::new(&link, link.forth(), false, Some(7)).lines("w0.1");
        assert!(lines[0].ends_with(" seed 7") && lines[1].ends_with(" seed 4294967303"), "{lines:?}");
    }

    #[test]
    fn times_below_a_microsecond_are_kept() {
        assert_eq!(micros(Duration::from_nanos(1_500)), "1500ns");
        assert_eq!(micros(Duration::from_millis(114)), "114000us");
    }
}
