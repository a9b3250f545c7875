//! What limited a transfer: the whole time of the lanes, divided by cause, and the time of the job around it.
//!
//! A sending lane that waits for its socket does not know why; the receiving lanes do: a slow network makes them wait for data, a
//! slow target write or hash. So the sender's waiting is divided in their ratio, and the network's part by its view of the path
//! ([`PathTime`]).

use haul_wire::control::LaneTime;
use haul_wire::summary::PathTime;

/// Where time goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Reading at the source.
    SourceStorage,
    /// Hashing, compressing, encrypting at the source.
    SourceCpu,
    /// Growing to the speed of the path.
    Ramp,
    /// The link was full of our data.
    Capacity,
    /// The link was full, partly of others' data.
    Contention,
    /// The receive window was smaller than the path.
    ReceiveWindow,
    /// The send buffer was smaller than the path.
    SendBuffer,
    /// Packets were lost though no queue stood.
    Loss,
    /// Packets overtook each other, as if lost.
    Jitter,
    /// Nothing came through the network.
    Outage,
    /// Nothing under way could have gone faster.
    Latency,
    /// The path, for unknown reasons.
    Network,
    /// Decrypting and hashing at the target.
    TargetCpu,
    /// Writing at the target.
    TargetStorage,
    /// Waiting for the rate limit.
    RateLimit,
    /// Listing, comparing, round trips before data may flow.
    Work,
    /// Login and connecting, before lane time.
    Start,
    /// Flushes and final names, after lane time.
    Flush,
}

impl Cause {
    /// The causes of lane time, in the order of the data's way.
    pub const OF_LANE_TIME: [Cause; 16] = [
        Cause::SourceStorage,
        Cause::SourceCpu,
        Cause::Ramp,
        Cause::Capacity,
        Cause::Contention,
        Cause::ReceiveWindow,
        Cause::SendBuffer,
        Cause::Loss,
        Cause::Jitter,
        Cause::Outage,
        Cause::Latency,
        Cause::Network,
        Cause::TargetCpu,
        Cause::TargetStorage,
        Cause::RateLimit,
        Cause::Work,
    ];

    /// The name for programs.
    pub fn name(self) -> &'static str {
        match self {
            Cause::SourceStorage => "source storage",
            Cause::SourceCpu => "source CPU",
            Cause::Ramp => "ramp",
            Cause::Capacity => "capacity",
            Cause::Contention => "contention",
            Cause::ReceiveWindow => "receive window",
            Cause::SendBuffer => "send buffer",
            Cause::Loss => "loss",
            Cause::Jitter => "jitter",
            Cause::Outage => "outage",
            Cause::Latency => "latency",
            Cause::Network => "network",
            Cause::TargetCpu => "target CPU",
            Cause::TargetStorage => "target storage",
            Cause::RateLimit => "rate limit",
            Cause::Work => "work",
            Cause::Start => "start",
            Cause::Flush => "flush",
        }
    }

    /// Whether it is a part of the network.
    pub fn is_network(self) -> bool {
        use Cause::{Capacity, Contention, Jitter, Latency, Loss, Network, Outage, Ramp, ReceiveWindow, SendBuffer};
        let of_windows = matches!(self, Ramp | Capacity | Contention | ReceiveWindow | SendBuffer);
        of_windows || matches!(self, Loss | Jitter | Outage | Latency | Network)
    }
}

/// Fractions of the lane time, whose sum is 1 (0 without lanes).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shares([f64; Cause::OF_LANE_TIME.len()]);

impl Shares {
    /// The share of a cause; 0 outside of lane time.
    pub fn of(&self, cause: Cause) -> f64 {
        self.iter().find(|(other, _)| *other == cause).map_or(0.0, |(_, share)| share)
    }

    /// All of them, in that order.
    pub fn iter(&self) -> impl Iterator<Item = (Cause, f64)> {
        Cause::OF_LANE_TIME.into_iter().zip(self.0)
    }

    /// All shares of the network together.
    pub fn network(&self) -> f64 {
        self.iter().filter(|(cause, _)| cause.is_network()).map(|(_, share)| share).sum()
    }

    fn add(&mut self, cause: Cause, share: f64) {
        if let Some(at) = Cause::OF_LANE_TIME.iter().position(|other| *other == cause) {
            self.0[at] += share;
        }
    }
}

impl FromIterator<(Cause, f64)> for Shares {
    fn from_iter<I: IntoIterator<Item = (Cause, f64)>>(parts: I) -> Self {
        let mut shares = Shares::default();
        parts.into_iter().for_each(|(cause, share)| shares.add(cause, share));
        shares
    }
}

/// The job around its lanes, in microseconds since its start; `None`: never reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    /// The first lane stood.
    pub connected_us: Option<u64>,
    /// The first byte was verified at the target.
    pub first_byte_us: Option<u64>,
    /// The last byte was verified at the target.
    pub last_byte_us: Option<u64>,
    /// All was flushed.
    pub elapsed_us: u64,
}

/// The cause, and its share of lane time, or for [`Cause::Start`] and [`Cause::Flush`] of the job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// The largest cause.
    pub cause: Cause,
    /// The fraction, 0 to 1.
    pub share: f64,
}

/// Divides the lane time.
pub fn shares(sender: &LaneTime, receiver: &LaneTime, path: &PathTime) -> Shares {
    let mut shares = Shares::default();
    let total = sum(sender);
    if total == 0 {
        return shares;
    }
    let of = |us: u64| us as f64 / total as f64;
    shares.add(Cause::SourceStorage, of(sender.storage_us));
    shares.add(Cause::SourceCpu, of(sender.cpu_us));
    shares.add(Cause::RateLimit, of(sender.rate_us));
    shares.add(Cause::Work, of(sender.idle_us));
    // Between units a receiver waits for the network.
    let busy = receiver.storage_us.saturating_add(receiver.cpu_us).saturating_add(receiver.network_us);
    let of_busy = |us: u64| if busy == 0 { 0.0 } else { us as f64 / busy as f64 };
    let blocked = of(sender.network_us);
    let (cpu, storage) = (of_busy(receiver.cpu_us), of_busy(receiver.storage_us));
    shares.add(Cause::TargetCpu, blocked * cpu);
    shares.add(Cause::TargetStorage, blocked * storage);
    let network = (blocked * (1.0 - cpu - storage)).max(0.0);
    for (cause, part) in of_path(path, cpu + storage) {
        shares.add(cause, network * part);
    }
    shares
}

/// The network's parts, with a sum of 1. A busy target closes its window: that time was counted.
fn of_path(path: &PathTime, target: f64) -> [(Cause, f64); 10] {
    let closed_by_target = (target * path.total_us() as f64) as u64;
    let mut parts = [
        (Cause::Ramp, path.ramp_us),
        (Cause::Capacity, path.capacity_us),
        (Cause::Contention, path.contention_us),
        (Cause::ReceiveWindow, path.receive_window_us.saturating_sub(closed_by_target)),
        (Cause::SendBuffer, path.send_buffer_us),
        (Cause::Loss, path.loss_us),
        (Cause::Jitter, path.jitter_us),
        (Cause::Outage, path.outage_us),
        (Cause::Latency, path.latency_us),
        (Cause::Network, 0),
    ];
    if parts.iter().all(|(_, us)| *us == 0) {
        parts[9].1 = 1;
    }
    let total: f64 = parts.iter().map(|(_, us)| *us as f64).sum();
    parts.map(|(cause, us)| (cause, us as f64 / total))
}

/// The cause that held one path's lanes most while they waited for the network, and its share. `None`: unknown.
pub fn limit_of_path(path: &PathTime) -> Option<Limit> {
    let known = (path.total_us() > 0).then(|| of_path(path, 0.0))?;
    known.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).map(|(cause, share)| Limit { cause, share })
}

/// Names the largest cause, `None` without lanes.
///
/// - The start, or the time after the last byte, limited the job if it took more than half.
/// - Waits for work count only beyond all else together.
/// - The final flush and waits for the target's storage are added; the larger is named.
/// - The network's causes together compete with storage and processors; then the largest of them is named.
pub fn limit(phases: &Phases, shares: &Shares) -> Option<Limit> {
    let all: f64 = shares.iter().map(|(_, share)| share).sum();
    if all == 0.0 {
        return None;
    }
    let of_job = |us: u64| us as f64 / phases.elapsed_us.max(1) as f64;
    let start = of_job(phases.connected_us.unwrap_or(0));
    if start > 0.5 {
        return Some(Limit { cause: Cause::Start, share: start });
    }
    let flush = phases.last_byte_us.map_or(0.0, |last_us| of_job(phases.elapsed_us.saturating_sub(last_us)));
    if flush > 0.5 {
        return Some(Limit { cause: Cause::Flush, share: flush });
    }
    let of_lanes = of_lanes(shares, all)?;
    let written = (1.0 - start - flush).max(0.0) * shares.of(Cause::TargetStorage);
    let lanes = (1.0 - start - flush).max(0.0) * of_lanes.weight;
    Some(match of_lanes.limit.cause {
        Cause::TargetStorage if flush > written => Limit { cause: Cause::Flush, share: flush },
        Cause::TargetStorage => of_lanes.limit,
        _ if flush + written <= lanes => of_lanes.limit,
        _ if flush > written => Limit { cause: Cause::Flush, share: flush },
        _ => Limit { cause: Cause::TargetStorage, share: shares.of(Cause::TargetStorage) },
    })
}

struct OfLanes {
    limit: Limit,
    weight: f64,
}

fn of_lanes(shares: &Shares, all: f64) -> Option<OfLanes> {
    let work = shares.of(Cause::Work);
    if work > all - work {
        return Some(OfLanes { limit: Limit { cause: Cause::Work, share: work }, weight: work });
    }
    let largest = |network: bool| {
        let causes = shares.iter().filter(|(cause, _)| *cause != Cause::Work && cause.is_network() == network);
        causes.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(cause, share)| Limit { cause, share })
    };
    let (of_path, other) = (largest(true)?, largest(false)?);
    let network = shares.network();
    Some(match network >= other.share {
        true => OfLanes { limit: of_path, weight: network },
        false => OfLanes { limit: other, weight: other.share },
    })
}

fn sum(time: &LaneTime) -> u64 {
    [time.storage_us, time.cpu_us, time.network_us, time.idle_us, time.rate_us]
        .into_iter()
        .fold(0, |total, us| total.saturating_add(us))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(storage_us: u64, cpu_us: u64, network_us: u64, idle_us: u64) -> LaneTime {
        LaneTime { storage_us, cpu_us, network_us, idle_us, rate_us: 0 }
    }

    const ALL_LANES: Phases =
        Phases { connected_us: Some(0), first_byte_us: Some(1), last_byte_us: Some(1_000), elapsed_us: 1_000 };

    #[test]
    fn a_path_is_limited_by_what_held_its_lanes_longest() {
        let held = PathTime { capacity_us: 30, loss_us: 60, ramp_us: 10, ..PathTime::default() };
        let limit = limit_of_path(&held).unwrap();
        assert_eq!((limit.cause, limit.share), (Cause::Loss, 0.6));
        assert_eq!(limit_of_path(&PathTime::default()), None);
    }

    /// The sender waited for 80 % of the time, the receiver for data.
    #[track_caller]
    fn check_path(path: PathTime, cause: Cause, share: f64) {
        let shares = shares(&time(50, 100, 800, 50), &time(0, 0, 900, 0), &path);
        let limit = limit(&ALL_LANES, &shares).unwrap();
        assert_eq!(limit.cause, cause);
        assert!((limit.share - share).abs() < 1e-9, "{limit:?}");
        assert!((shares.0.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{shares:?}");
    }

    #[test]
    fn the_end_that_waits_for_nobody_is_named() {
        let check = |sender, receiver, expected| {
            let shares = shares(&sender, &receiver, &PathTime::default());
            assert_eq!(limit(&ALL_LANES, &shares).map(|limit| limit.cause), Some(expected));
        };
        check(time(800, 100, 50, 50), time(10, 50, 900, 0), Cause::SourceStorage);
        check(time(50, 800, 100, 50), time(10, 50, 900, 0), Cause::SourceCpu);
        check(time(50, 100, 800, 50), time(10, 50, 900, 0), Cause::Network);
        check(time(50, 100, 800, 50), time(900, 50, 10, 0), Cause::TargetStorage);
        check(time(50, 100, 800, 50), time(50, 900, 10, 0), Cause::TargetCpu);
        check(time(50, 100, 100, 800), time(50, 100, 100, 0), Cause::Work);
        let limited = LaneTime { rate_us: 900, ..time(20, 20, 20, 20) };
        check(limited, time(10, 10, 900, 0), Cause::RateLimit);
    }

    #[test]
    fn the_network_is_divided_as_the_path_was_seen() {
        let none = PathTime::default();
        check_path(none, Cause::Network, 0.8);
        check_path(PathTime { ramp_us: 7, ..none }, Cause::Ramp, 0.8);
        check_path(PathTime { capacity_us: 3, ramp_us: 1, ..none }, Cause::Capacity, 0.6);
        check_path(PathTime { contention_us: 3, ramp_us: 1, ..none }, Cause::Contention, 0.6);
        check_path(PathTime { receive_window_us: 3, ramp_us: 1, ..none }, Cause::ReceiveWindow, 0.6);
        check_path(PathTime { send_buffer_us: 3, ramp_us: 1, ..none }, Cause::SendBuffer, 0.6);
        check_path(PathTime { loss_us: 3, ramp_us: 1, ..none }, Cause::Loss, 0.6);
        check_path(PathTime { jitter_us: 3, ramp_us: 1, ..none }, Cause::Jitter, 0.6);
        check_path(PathTime { outage_us: 3, ramp_us: 1, ..none }, Cause::Outage, 0.6);
        check_path(PathTime { latency_us: 3, ramp_us: 1, ..none }, Cause::Latency, 0.6);
    }

    #[test]
    fn a_network_with_many_reasons_is_still_slower_than_a_disk() {
        let path = PathTime { ramp_us: 2, capacity_us: 3, contention_us: 2, loss_us: 2, ..PathTime::default() };
        let shares = shares(&time(300, 100, 600, 0), &time(0, 0, 900, 0), &path);
        let limit = limit(&ALL_LANES, &shares).unwrap();
        assert!(shares.of(Cause::SourceStorage) > limit.share);
        assert_eq!(limit.cause, Cause::Capacity);
    }

    #[test]
    fn a_window_that_a_slow_target_keeps_closed_is_the_targets() {
        // The target writes for 70 % of the time: a closed window.
        let path = PathTime { receive_window_us: 700, capacity_us: 300, ..PathTime::default() };
        let shares = shares(&time(0, 0, 1000, 0), &time(700, 0, 300, 0), &path);
        assert!((shares.of(Cause::TargetStorage) - 0.7).abs() < 1e-9, "{shares:?}");
        assert!((shares.of(Cause::Capacity) - 0.3).abs() < 1e-9, "{shares:?}");
        assert!(shares.of(Cause::ReceiveWindow) < 1e-9, "{shares:?}");
    }

    #[test]
    fn what_happens_before_and_after_the_lanes_is_named_when_it_is_most_of_the_job() {
        let shares = shares(&time(0, 0, 800, 0), &time(0, 0, 900, 0), &PathTime::default());
        let of = |phases: Phases| limit(&phases, &shares).unwrap();
        let tiny = of(Phases { connected_us: Some(900), ..ALL_LANES });
        assert_eq!((tiny.cause, tiny.share), (Cause::Start, 0.9));
        let flushed = of(Phases { last_byte_us: Some(250), ..ALL_LANES });
        assert_eq!((flushed.cause, flushed.share), (Cause::Flush, 0.75));
        // With waits for the disk, the flush exceeds the network.
        let (half, writes) = (Phases { last_byte_us: Some(600), ..ALL_LANES }, time(500, 0, 500, 0));
        assert_eq!(of(half).cause, Cause::Network);
        let shares = super::shares(&time(0, 0, 800, 0), &writes, &PathTime::default());
        assert_eq!(limit(&half, &shares).unwrap().cause, Cause::Flush);
        let most = Phases { last_byte_us: Some(800), ..ALL_LANES };
        assert_eq!(limit(&most, &shares).unwrap().cause, Cause::TargetStorage);
        let unknown = of(Phases { connected_us: None, last_byte_us: None, ..ALL_LANES });
        assert_eq!(unknown.cause, Cause::Network);
    }

    #[test]
    fn nothing_ran_and_nothing_is_named() {
        let none = shares(&LaneTime::default(), &LaneTime::default(), &PathTime::default());
        assert_eq!(limit(&ALL_LANES, &none), None);
        let silent = shares(&time(0, 0, 10, 0), &LaneTime::default(), &PathTime::default());
        assert_eq!(silent.of(Cause::Network), 1.0);
    }
}
