//! Four classes by DSCP (RFC 4594) with htb: EF first and policed, then AF, best effort, lower effort.
//!
//! ```text
//! 1:1  rate of the link
//!   1:10  EF   priority 0, never above its rate; a queue of a few packets, so what exceeds it is dropped
//!   1:20  AF   priority 1, its share of what EF leaves is sure, and it may borrow the rest
//!   1:30  BE   priority 2, the other share is sure
//!   1:40  LE   priority 3, what nobody else wants
//! ```

use crate::limits;
use crate::topology::{DiffServSpec, DirectionSpec};
use crate::units::Time;

/// Guaranteed bits per second; together the link's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FourRates {
    /// Expedited forwarding, and its maximum.
    pub ef: u64,
    /// Assured forwarding.
    pub af: u64,
    /// Best effort.
    pub best: u64,
    /// Lower effort.
    pub lower: u64,
}

impl FourRates {
    /// Shares out a link of this rate.
    pub fn of(bits_per_s: u64, classes: &DiffServSpec) -> FourRates {
        let ef = classes.ef_rate.map_or(bits_per_s / 2, |rate| rate.bits_per_s()).clamp(8, bits_per_s);
        let left = bits_per_s - ef;
        let af = (left as f64 * classes.af_share.map_or(0.5, |share| share.share())) as u64;
        let rest = left - af;
        let lower = rest / limits::LOWER_EFFORT_PART;
        // htb refuses a rate of zero; one byte a second is close.
        FourRates { ef, af: af.max(8), best: (rest - lower).max(8), lower: lower.max(8) }
    }
}

/// The fixed frame, which gets the classes of [`lines`].
pub(super) fn frame(device: &str) -> String {
    format!("qdisc add dev {device} root handle 1: htb default 30")
}

pub(super) fn lines(
    device: &str,
    direction: &DirectionSpec,
    classes: &DiffServSpec,
    rtt: Time,
    mtu: u32,
) -> Vec<String> {
    let Some(rate) = direction.rate else { return Vec::new() };
    let rates = FourRates::of(rate.bits_per_s(), classes);
    let packet = u64::from(mtu + limits::ETHERNET_HEADER_BYTES);
    let queue = (direction.queue_bytes(rtt) / limits::DIFFSERV_QUEUES).max(packet);
    let ef_queue = limits::EF_QUEUE_PACKETS * packet;
    let burst = rate.bytes_in(limits::HTB_BURST_TIME).max(2 * packet);
    let class = |parent: &str, id: &str, priority: u32, sure: u64, most: u64| {
        format!(
            "class replace dev {device} parent {parent} classid {id} htb rate {sure}bit ceil {most}bit burst {burst}b \
             cburst {burst}b prio {priority} quantum {packet} overhead {}",
            limits::NETEM_OVERHEAD_BYTES
        )
    };
    let leaf = |class: u32, bytes: u64| {
        format!("qdisc replace dev {device} parent 1:{class} handle {class}: bfifo limit {bytes}")
    };
    let all = rate.bits_per_s();
    vec![
        class("1:", "1:1", 0, all, all),
        class("1:1", "1:10", 0, rates.ef, rates.ef),
        class("1:1", "1:20", 1, rates.af, all),
        class("1:1", "1:30", 2, rates.best, all),
        class("1:1", "1:40", 3, rates.lower, all),
        leaf(10, ef_queue),
        leaf(20, queue),
        leaf(30, queue),
        leaf(40, queue),
    ]
}

/// Filters, made once. EF is 46, VOICE-ADMIT 44. AF11 to AF43 have 001 to 100 in the first three bits and an even,
/// non-zero drop precedence. LE is 1 (RFC 8622), formerly CS1.
pub(super) fn filters(device: &str) -> Vec<String> {
    let af = (1..=4u8).flat_map(|class| (1..=3u8).map(move |drop| (8 * class + 2 * drop, 20)));
    let codes = [(46, 10), (44, 10), (1, 40), (8, 40)].into_iter().chain(af);
    let mut lines = Vec::new();
    for (code, class) in codes {
        let octet = u32::from(code) << 2;
        for (protocol, priority, word) in [("ip", 1, "ip tos"), ("ipv6", 2, "ip6 priority")] {
            lines.push(format!(
                "filter add dev {device} parent 1: protocol {protocol} prio {priority} u32 match {word} 0x{octet:02x} 0xfc \
                 flowid 1:{class}"
            ));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Topology;

    #[test]
    fn four_classes_share_a_link() {
        let text = "hosts = { a = {}, b = {} }\n[[links]]\nends = ['a', 'b']\nrate = '10Mbit'\n\
                    diffserv = { ef_rate = '2Mbit', af_share = 0.75 }";
        let link = Topology::parse(text).unwrap().links.remove(0);
        let forth = link.forth();
        let lines = lines("w0.0i", &forth, &forth.diffserv.unwrap(), link.rtt(), 1500);
        insta::assert_snapshot!(lines.join("
"), @r"
class replace dev w0.0i parent 1: classid 1:1 htb rate 10000000bit ceil 10000000bit burst 3028b cburst 3028b prio 0 quantum 1514 overhead 24
class replace dev w0.0i parent 1:1 classid 1:10 htb rate 2000000bit ceil 2000000bit burst 3028b cburst 3028b prio 0 quantum 1514 overhead 24
class replace dev w0.0i parent 1:1 classid 1:20 htb rate 6000000bit ceil 10000000bit burst 3028b cburst 3028b prio 1 quantum 1514 overhead 24
class replace dev w0.0i parent 1:1 classid 1:30 htb rate 1980000bit ceil 10000000bit burst 3028b cburst 3028b prio 2 quantum 1514 overhead 24
class replace dev w0.0i parent 1:1 classid 1:40 htb rate 20000bit ceil 10000000bit burst 3028b cburst 3028b prio 3 quantum 1514 overhead 24
qdisc replace dev w0.0i parent 1:10 handle 10: bfifo limit 24224
qdisc replace dev w0.0i parent 1:20 handle 20: bfifo limit 31250
qdisc replace dev w0.0i parent 1:30 handle 30: bfifo limit 31250
qdisc replace dev w0.0i parent 1:40 handle 40: bfifo limit 31250
");
        let lines = filters("w0.0i");
        insta::assert_snapshot!(lines[..2].join("
"), @r"
filter add dev w0.0i parent 1: protocol ip prio 1 u32 match ip tos 0xb8 0xfc flowid 1:10
filter add dev w0.0i parent 1: protocol ipv6 prio 2 u32 match ip6 priority 0xb8 0xfc flowid 1:10
");
        let marked = |code: u8| lines.iter().filter(|line| line.contains(&format!(" 0x{:02x} ", code << 2))).count();
        assert_eq!((marked(46), marked(38), marked(1), marked(0)), (2, 2, 2, 0));
    }

    #[test]
    fn the_rates_add_up_to_the_link() {
        let rates = FourRates::of(10_000_000, &DiffServSpec::default());
        assert_eq!(rates.ef + rates.af + rates.best + rates.lower, 10_000_000);
        assert_eq!(rates.ef, 5_000_000);
    }
}
