//! The network in the box, from TOML or from the flags of `haul-lab run`.
//!
//! ```toml
//! name = "transatlantic"
//! seed = 1
//!
//! [hosts.client]
//! preset = "stock"
//! [hosts.server]
//! sysctl = { "net.ipv4.tcp_congestion_control" = "cubic" }
//!
//! [[links]]
//! name = "wan"
//! ends = ["client", "server"]
//! rate = "1Gbit"
//! rtt = "228ms"
//! queue = "14MB"
//! loss = 1e-4
//! back = { rate = "100Mbit" }       # from the second end to the first, where it differs
//!
//! [[traffic]]
//! kind = "udp"
//! from = "client"
//! to = "server"
//! rate = "16Mbit"
//!
//! [[events]]
//! at = "5s"
//! link = "wan"
//! down = true
//! ```

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::limits;
use crate::units::{Probability, Rate, Size, Time};

/// A network.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Name for titles and files.
    #[serde(default = "default_name")]
    pub name: String,
    /// Seed of all chance: the same packets sent, the same lost.
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// The hosts by name.
    pub hosts: BTreeMap<String, HostSpec>,
    /// Links between two hosts.
    #[serde(default)]
    pub links: Vec<LinkSpec>,
    /// Half-duplex Ethernets shared by several hosts.
    #[serde(default)]
    pub segments: Vec<SegmentSpec>,
    /// Traffic of others.
    #[serde(default)]
    pub traffic: Vec<TrafficSpec>,
    /// Timed changes.
    #[serde(default)]
    pub events: Vec<EventSpec>,
}

/// One host.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSpec {
    /// A distribution's settings.
    #[serde(default)]
    pub preset: Option<Preset>,
    /// Settings over the preset's.
    #[serde(default)]
    pub sysctl: BTreeMap<String, SysctlValue>,
    /// Forwards packets.
    #[serde(default)]
    pub router: bool,
}

/// A set of settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// After installation: cubic, at most 6 MB of receive and 4 MB of send buffers, 208 KiB for explicit ones.
    Stock,
}

/// A value of sysctl(8).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum SysctlValue {
    /// `1`
    Number(i64),
    /// `"4096 131072 6291456"`
    Text(String),
}

/// A link: two directions, each with its own queue.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkSpec {
    /// By default both ends joined by `-`.
    #[serde(default)]
    pub name: Option<String>,
    /// The two hosts.
    pub ends: [String; 2],
    /// Round-trip time, half each way, instead of `delay`.
    #[serde(default)]
    pub rtt: Option<Time>,
    /// Bytes of the largest IP packet.
    #[serde(default = "default_mtu")]
    pub mtu: u32,
    /// Large segments (TSO) pass whole; by default the rate decides.
    #[serde(default)]
    pub large_segments: Option<bool>,
    /// Values for both directions.
    #[serde(flatten)]
    pub both: DirectionSpec,
    /// Values from the second end to the first.
    #[serde(default, deserialize_with = "nothing_else")]
    pub back: DirectionSpec,
}

/// One direction. A missing value is the other direction's, or switches the effect off.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct DirectionSpec {
    /// Bits per second on the wire, with Ethernet framing (38 bytes a packet).
    pub rate: Option<Rate>,
    /// The delay one way.
    pub delay: Option<Time>,
    /// Random additional delay of up to this; packets keep their order.
    pub jitter: Option<Time>,
    /// Standard deviation of a normal delay. Packets overtake each other, as on radio.
    pub spread: Option<Time>,
    /// Bytes that may wait; by default the larger of 100 ms and a round trip.
    pub queue: Option<Size>,
    /// Share of packets lost, each on its own.
    pub loss: Option<Probability>,
    /// Losses in a row.
    pub burst: Option<BurstSpec>,
    /// Share of packets held back, so others overtake them.
    pub reorder: Option<Probability>,
    /// Their additional delay; 1 ms by default.
    pub reorder_by: Option<Time>,
    /// Share of packets that arrive twice.
    pub duplicate: Option<Probability>,
    /// Share of packets with one bit changed.
    pub corrupt: Option<Probability>,
    /// DiffServ classes instead of one queue.
    pub diffserv: Option<DiffServSpec>,
}

/// A table of its own refuses unknown words.
fn nothing_else<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<DirectionSpec, D::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Alone {
        #[serde(flatten)]
        direction: DirectionSpec,
    }
    Alone::deserialize(deserializer).map(|alone| alone.direction)
}

/// Losses in a row by Gilbert and Elliott.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BurstSpec {
    /// Share of packets lost in the long run.
    pub loss: Probability,
    /// Mean packets lost in a row.
    pub length: f64,
}

/// Four classes by DSCP (RFC 4594).
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiffServSpec {
    /// EF above this rate is dropped (RFC 3246 demands policing); half of the link by default.
    pub ef_rate: Option<Rate>,
    /// AF's share of what EF leaves, before best effort's turn; a half by default.
    pub af_share: Option<Probability>,
}

/// A half-duplex Ethernet: one sends, all hear.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SegmentSpec {
    /// Name for events, captures and messages.
    pub name: String,
    /// At least two hosts.
    pub hosts: Vec<String>,
    /// Bits per second, shared by all.
    pub rate: Rate,
    /// Delay between two hosts.
    #[serde(default)]
    pub delay: Time,
    /// Bytes that may wait at each host.
    #[serde(default)]
    pub queue: Option<Size>,
    /// Bytes of the largest IP packet.
    #[serde(default = "default_mtu")]
    pub mtu: u32,
}

/// Traffic of others.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", tag = "kind")]
pub enum TrafficSpec {
    /// Datagrams at a constant rate.
    Udp {
        /// The sending host.
        from: String,
        /// The receiving host.
        to: String,
        /// IP bytes on the wire.
        rate: Rate,
        /// Payload bytes; 1000 by default.
        #[serde(default)]
        packet: Option<Size>,
        /// DSCP; 0 by default.
        #[serde(default)]
        dscp: u8,
    },
    /// Datagrams for a while, then none; both times are random.
    OnOff {
        /// The sending host.
        from: String,
        /// The receiving host.
        to: String,
        /// The rate while on.
        rate: Rate,
        /// The mean time on.
        on: Time,
        /// The mean time off.
        off: Time,
        /// Payload bytes; 1000 by default.
        #[serde(default)]
        packet: Option<Size>,
    },
    /// TCP connections as fast as they may.
    Tcp {
        /// The sending host.
        from: String,
        /// The receiving host.
        to: String,
        /// Connections; 0 for a point without them.
        #[serde(default = "one")]
        flows: u16,
    },
}

/// A timed change.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventSpec {
    /// The time since the command began.
    pub at: Time,
    /// The link.
    pub link: String,
    /// Packets stop silently (a black hole), or pass again.
    #[serde(default)]
    pub down: Option<bool>,
    /// Both devices lose their carrier, as with a pulled cable.
    #[serde(default)]
    pub unplugged: Option<bool>,
    /// The rate.
    #[serde(default)]
    pub rate: Option<Rate>,
    /// The delay, one way.
    #[serde(default)]
    pub delay: Option<Time>,
    /// The loss.
    #[serde(default)]
    pub loss: Option<Probability>,
}

/// Why a network is impossible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// Not TOML of this form.
    #[error("cannot read the topology: {0}")]
    Syntax(String),
    /// Well formed, but impossible.
    #[error("{what}: {why}")]
    Impossible {
        /// The part.
        what: String,
        /// The mistake.
        why: String,
    },
}

impl Topology {
    /// Reads TOML and checks it.
    pub fn parse(text: &str) -> Result<Topology, TopologyError> {
        let topology: Topology = toml::from_str(text).map_err(|error| TopologyError::Syntax(error.to_string()))?;
        topology.check()?;
        Ok(topology)
    }

    /// Checks that the network is possible.
    pub fn check(&self) -> Result<(), TopologyError> {
        self.check_hosts()?;
        for link in &self.links {
            let what = format!("link {}", link.name());
            let [one, other] = &link.ends;
            self.check_host(&what, one)?;
            self.check_host(&what, other)?;
            if one == other {
                return Err(impossible(what, "its two ends are the same host"));
            }
            check_mtu(&what, link.mtu)?;
            if link.rtt.is_some() && (link.both.delay.is_some() || link.back.delay.is_some()) {
                return Err(impossible(what, "give rtt or delay, not both"));
            }
            for direction in [link.forth(), link.back()] {
                direction.check(&what)?;
            }
        }
        for segment in &self.segments {
            let what = format!("segment {}", segment.name);
            check_mtu(&what, segment.mtu)?;
            if segment.hosts.len() < 2 || segment.hosts.len() > limits::MAX_HOSTS_PER_SEGMENT {
                let why = format!("it needs 2 to {} hosts", limits::MAX_HOSTS_PER_SEGMENT);
                return Err(impossible(what, why));
            }
            for (at, host) in segment.hosts.iter().enumerate() {
                self.check_host(&what, host)?;
                if segment.hosts[..at].contains(host) {
                    return Err(impossible(what, format!("{host} stands there twice")));
                }
            }
        }
        self.check_names()?;
        if self.traffic.len() > limits::MAX_TRAFFIC {
            return Err(impossible("traffic", format!("there may be at most {}", limits::MAX_TRAFFIC)));
        }
        for traffic in &self.traffic {
            let (from, to) = traffic.ends();
            let what = format!("traffic from {from} to {to}");
            self.check_host(&what, from)?;
            self.check_host(&what, to)?;
            if from == to {
                return Err(impossible(what, "it never leaves its host"));
            }
            if let TrafficSpec::Tcp { flows, .. } = traffic
                && *flows > limits::MAX_TRAFFIC_FLOWS
            {
                return Err(impossible(what, format!("it has at most {} flows", limits::MAX_TRAFFIC_FLOWS)));
            }
        }
        for event in &self.events {
            let what = format!("event at {}", event.at);
            if !self.links.iter().any(|link| link.name() == event.link) {
                return Err(impossible(what, format!("there is no link {}", event.link)));
            }
            if (event.down, event.unplugged, event.rate, event.delay, event.loss) == (None, None, None, None, None) {
                return Err(impossible(what, "it changes nothing"));
            }
            if event.delay.is_some_and(|delay| delay.0 > limits::MAX_DELAY) {
                return Err(too_late(&what));
            }
        }
        Ok(())
    }

    fn check_hosts(&self) -> Result<(), TopologyError> {
        if self.hosts.is_empty() || self.hosts.len() > limits::MAX_HOSTS {
            return Err(impossible("hosts", format!("there must be 1 to {}", limits::MAX_HOSTS)));
        }
        for (name, host) in &self.hosts {
            for setting in host.sysctl.keys() {
                check_setting(name, setting)?;
            }
            let fits = (1..=limits::MAX_NAME_BYTES).contains(&name.len())
                && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
                && !name.starts_with('-');
            if !fits || name == "localhost" {
                let why = format!("a name has 1 to {} of a-z, 0-9 and -", limits::MAX_NAME_BYTES);
                return Err(impossible(format!("host {name:?}"), why));
            }
        }
        if self.links.len() + self.segments.len() > limits::MAX_LINKS {
            return Err(impossible("links", format!("there may be at most {}", limits::MAX_LINKS)));
        }
        Ok(())
    }

    fn check_host(&self, what: &str, host: &str) -> Result<(), TopologyError> {
        match self.hosts.contains_key(host) {
            true => Ok(()),
            false => Err(impossible(what, format!("there is no host {host:?}"))),
        }
    }

    fn check_names(&self) -> Result<(), TopologyError> {
        let mut names: Vec<String> = self.links.iter().map(LinkSpec::name).collect();
        names.extend(self.segments.iter().map(|segment| segment.name.clone()));
        names.sort();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(impossible(format!("link {}", pair[0]), "two links have this name: give them others")),
            None => Ok(()),
        }
    }
}

impl LinkSpec {
    /// The given name, or its ends'.
    pub fn name(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.ends.join("-"))
    }

    /// First end to second.
    pub fn forth(&self) -> DirectionSpec {
        let half = self.rtt.map(|rtt| Time(rtt.0 / 2));
        DirectionSpec { delay: self.both.delay.or(half), ..self.both.clone() }
    }

    /// Second end to first.
    pub fn back(&self) -> DirectionSpec {
        let (back, forth) = (self.back.clone(), self.forth());
        DirectionSpec {
            rate: back.rate.or(forth.rate),
            delay: back.delay.or(forth.delay),
            jitter: back.jitter.or(forth.jitter),
            spread: back.spread.or(forth.spread),
            queue: back.queue.or(forth.queue),
            loss: back.loss.or(forth.loss),
            burst: back.burst.or(forth.burst),
            reorder: back.reorder.or(forth.reorder),
            reorder_by: back.reorder_by.or(forth.reorder_by),
            duplicate: back.duplicate.or(forth.duplicate),
            corrupt: back.corrupt.or(forth.corrupt),
            diffserv: back.diffserv.or(forth.diffserv),
        }
    }

    /// Both ways' delays together.
    pub fn rtt(&self) -> Time {
        Time(self.forth().delay.unwrap_or_default().0 + self.back().delay.unwrap_or_default().0)
    }

    /// As asked, or above [`limits::LARGE_SEGMENTS_FROM_BITS_PER_S`].
    pub fn has_large_segments(&self) -> bool {
        let fastest =
            [self.forth().rate, self.back().rate].into_iter().map(|rate| rate.map_or(u64::MAX, Rate::bits_per_s)).max();
        self.large_segments.unwrap_or(fastest > Some(limits::LARGE_SEGMENTS_FROM_BITS_PER_S))
    }
}

impl DirectionSpec {
    /// Bytes that may wait, for the link's round trip.
    pub fn queue_bytes(&self, rtt: Time) -> u64 {
        match (self.queue, self.rate) {
            (Some(queue), _) => queue.bytes,
            (None, Some(rate)) => rate.bytes_in(rtt.0.max(limits::DEFAULT_QUEUE_TIME)),
            (None, None) => limits::UNLIMITED_LINK_QUEUE_BYTES,
        }
    }

    fn check(&self, what: &str) -> Result<(), TopologyError> {
        if let Some(burst) = self.burst
            && (!burst.length.is_finite() || burst.length < 1.0 || burst.loss.share() >= 1.0)
        {
            return Err(impossible(what, "a burst needs a length of at least 1 and a loss below 1"));
        }
        if self.spread.is_some() && self.jitter.is_some() {
            return Err(impossible(what, "jitter keeps the order of packets and spread does not: choose one"));
        }
        if self.jitter.is_some_and(|jitter| jitter.0 > limits::MAX_DELAY)
            || self.spread.is_some_and(|spread| spread.0 > limits::MAX_DELAY / limits::SPREADS_MOST)
            || self.delay.is_some_and(|delay| delay.0 > limits::MAX_DELAY)
        {
            return Err(too_late(what));
        }
        if self.queue.is_some_and(|queue| queue.bytes > limits::MAX_QUEUE_BYTES) {
            let most = Size { bytes: limits::MAX_QUEUE_BYTES };
            return Err(impossible(what, format!("a queue may hold at most {most}")));
        }
        if self.diffserv.is_some() && self.rate.is_none() {
            return Err(impossible(what, "DiffServ needs a rate: only a link with a rate has a queue"));
        }
        let ef_rate = self.diffserv.and_then(|classes| classes.ef_rate);
        if let (Some(ef_rate), Some(rate)) = (ef_rate, self.rate)
            && ef_rate.bits_per_s() > rate.bits_per_s()
        {
            return Err(impossible(what, format!("EF may have {ef_rate}, more than the link's {rate}")));
        }
        Ok(())
    }
}

impl TrafficSpec {
    /// The sending and receiving host.
    pub fn ends(&self) -> (&str, &str) {
        match self {
            TrafficSpec::Udp { from, to, .. }
            | TrafficSpec::OnOff { from, to, .. }
            | TrafficSpec::Tcp { from, to, .. } => (from, to),
        }
    }
}

impl SysctlValue {
    /// The value for `/proc/sys`.
    pub fn text(&self) -> String {
        match self {
            SysctlValue::Number(number) => number.to_string(),
            SysctlValue::Text(text) => text.clone(),
        }
    }
}

impl Preset {
    /// Settings of a Debian 12 host with 8 GB of memory after installation.
    pub fn sysctls(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Preset::Stock => &[
                ("net.ipv4.tcp_congestion_control", "cubic"),
                ("net.ipv4.tcp_rmem", "4096 131072 6291456"),
                ("net.ipv4.tcp_wmem", "4096 16384 4194304"),
                ("net.core.rmem_max", "212992"),
                ("net.core.wmem_max", "212992"),
            ],
        }
    }
}

fn check_mtu(what: &str, mtu: u32) -> Result<(), TopologyError> {
    match (limits::MIN_MTU..=limits::MAX_MTU).contains(&mtu) {
        true => Ok(()),
        false => Err(impossible(what, format!("the MTU must be {} to {}", limits::MIN_MTU, limits::MAX_MTU))),
    }
}

/// All other settings belong to the machine, and root would change them permanently.
fn check_setting(host: &str, name: &str) -> Result<(), TopologyError> {
    let is_name = !name.contains('/') && name.split('.').all(|part| !part.is_empty());
    match is_name && name.starts_with("net.") {
        true => Ok(()),
        false => Err(impossible(
            format!("host {host}"),
            format!("{name:?} is no setting of a host: their names begin with net."),
        )),
    }
}

fn too_late(what: &str) -> TopologyError {
    impossible(what, format!("a delay may be at most {}", Time(limits::MAX_DELAY)))
}

fn impossible(what: impl Into<String>, why: impl Into<String>) -> TopologyError {
    TopologyError::Impossible { what: what.into(), why: why.into() }
}

fn default_name() -> String {
    "lab".to_owned()
}

fn default_seed() -> u64 {
    1
}

fn default_mtu() -> u32 {
    1500
}

fn one() -> u16 {
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAN: &str = r#"
        [hosts.client]
        preset = "stock"
        [hosts.server]
        sysctl = { "net.ipv4.tcp_congestion_control" = "bbr", "net.ipv4.ip_forward" = 0 }

        [[links]]
        name = "wan"
        ends = ["client", "server"]
        rate = "1Gbit"
        rtt = "228ms"
        loss = 1e-4
        burst = { loss = "0.1%", length = 5 }
        back = { rate = "100Mbit", loss = 0 }

        [[traffic]]
        kind = "udp"
        from = "client"
        to = "server"
        rate = "16Mbit"

        [[events]]
        at = "5s"
        link = "wan"
        down = true
    "#;

    #[test]
    fn a_link_has_two_directions_and_the_way_back_differs_only_where_it_says_so() {
        let topology = Topology::parse(WAN).unwrap();
        let link = &topology.links[0];
        assert_eq!(link.forth().rate.unwrap().to_string(), "1 Gbit/s");
        assert_eq!(link.back().rate.unwrap().to_string(), "100 Mbit/s");
        assert_eq!(link.back().delay.unwrap().to_string(), "114 ms");
        assert!(link.back().loss.unwrap().is_never());
        assert_eq!(link.forth().queue_bytes(link.rtt()), 28_500_000);
        assert!(!link.has_large_segments());
    }

    #[test]
    fn an_impossible_network_is_refused_with_its_reason() {
        let refused = |change: &dyn Fn(&str) -> String| Topology::parse(&change(WAN)).unwrap_err().to_string();
        let cases: [(&str, &str, &str); 7] = [
            (
                r#"ends = ["client", "server"]"#,
                r#"ends = ["client", "client"]"#,
                "link wan: its two ends are the same host",
            ),
            (r#"ends = ["client", "server"]"#, r#"ends = ["client", "moon"]"#, r#"link wan: there is no host "moon""#),
            (r#"rtt = "228ms""#, "rtt = \"228ms\"\ndelay = \"1ms\"", "link wan: give rtt or delay, not both"),
            ("down = true", "", "event at 5 s: it changes nothing"),
            (r#"link = "wan""#, r#"link = "lan""#, "event at 5 s: there is no link lan"),
            ("length = 5", "length = 0", "link wan: a burst needs a length of at least 1 and a loss below 1"),
            (r#"rate = "1Gbit""#, "rate = \"1Gbit\"\nmtu = 10", "link wan: the MTU must be 576 to 65521"),
        ];
        for (from, to, why) in cases {
            assert_eq!(refused(&|text| text.replacen(from, to, 1)), why);
        }
        assert!(refused(&|text| text.replace("1Gbit", "fast")).contains("\"fast\" is no rate"));
        assert!(refused(&|text| text.replace("rtt", "rrt")).contains("rrt"), "a misspelt word is refused");
        assert!(
            refused(&|text| text.replace("back = { rate", "back = { rtt = '1ms', rate")).contains("rtt"),
            "so it is for the way back"
        );
    }
}
