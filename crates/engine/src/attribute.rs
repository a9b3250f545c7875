//! What limited a transfer: the whole time of the lanes, divided by cause.
//!
//! A sending lane that waits for its socket does not know why. The receiving lanes do: while they wait for data, the
//! network is slow; while they write or hash, the target is. So the sender's waiting is divided in the receiver's ratio.

use haul_wire::control::LaneTime;

/// Fractions of the lane time; they sum to 1, or are all 0 when no lane ran.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shares {
    /// Reading at the source.
    pub source_storage: f64,
    /// Hashing, compressing, encrypting at the source.
    pub source_cpu: f64,
    /// The path.
    pub network: f64,
    /// Decrypting and hashing at the target.
    pub target_cpu: f64,
    /// Writing at the target.
    pub target_storage: f64,
    /// Waiting for work.
    pub idle: f64,
    /// Waiting for the rate limit.
    pub rate: f64,
}

/// The largest share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Bottleneck {
    SourceStorage,
    SourceCpu,
    Network,
    TargetCpu,
    TargetStorage,
    RateLimit,
    /// Lanes were without work most of the time: listing, comparing, round trips.
    Latency,
}

/// Divides the lane time.
pub fn shares(sender: &LaneTime, receiver: &LaneTime) -> Shares {
    let total = sum(sender);
    if total == 0 {
        return Shares::default();
    }
    let of = |us: u64| us as f64 / total as f64;
    // The receiver's idle time is time between units; it waits for the network then, too.
    let busy = (receiver.storage_us + receiver.cpu_us + receiver.network_us).max(1) as f64;
    let blocked = of(sender.network_us);
    Shares {
        source_storage: of(sender.storage_us),
        source_cpu: of(sender.cpu_us),
        network: blocked * receiver.network_us as f64 / busy,
        target_cpu: blocked * receiver.cpu_us as f64 / busy,
        target_storage: blocked * receiver.storage_us as f64 / busy,
        idle: of(sender.idle_us),
        rate: of(sender.rate_us),
    }
}

/// Names the largest share. Waiting for work only counts when it was more than all else together: a lane has always some.
pub fn bottleneck(shares: &Shares) -> Option<Bottleneck> {
    let causes = [
        (shares.source_storage, Bottleneck::SourceStorage),
        (shares.source_cpu, Bottleneck::SourceCpu),
        (shares.network, Bottleneck::Network),
        (shares.target_cpu, Bottleneck::TargetCpu),
        (shares.target_storage, Bottleneck::TargetStorage),
        (shares.rate, Bottleneck::RateLimit),
    ];
    let working: f64 = causes.iter().map(|(share, _)| share).sum();
    if working + shares.idle == 0.0 {
        return None;
    }
    if shares.idle > working {
        return Some(Bottleneck::Latency);
    }
    causes.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, cause)| cause)
}

fn sum(time: &LaneTime) -> u64 {
    time.storage_us + time.cpu_us + time.network_us + time.idle_us + time.rate_us
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(storage_us: u64, cpu_us: u64, network_us: u64, idle_us: u64) -> LaneTime {
        LaneTime { storage_us, cpu_us, network_us, idle_us, rate_us: 0 }
    }

    #[test]
    fn the_cause_is_named_where_it_is_known() {
        let check = |sender, receiver, expected| assert_eq!(bottleneck(&shares(&sender, &receiver)), Some(expected));
        check(time(800, 100, 50, 50), time(10, 50, 900, 0), Bottleneck::SourceStorage);
        check(time(50, 800, 100, 50), time(10, 50, 900, 0), Bottleneck::SourceCpu);
        check(time(50, 100, 800, 50), time(10, 50, 900, 0), Bottleneck::Network);
        check(time(50, 100, 800, 50), time(900, 50, 10, 0), Bottleneck::TargetStorage);
        check(time(50, 100, 800, 50), time(50, 900, 10, 0), Bottleneck::TargetCpu);
        check(time(50, 100, 100, 800), time(50, 100, 100, 0), Bottleneck::Latency);
        let limited = LaneTime { rate_us: 900, ..time(20, 20, 20, 20) };
        check(limited, time(10, 10, 900, 0), Bottleneck::RateLimit);
    }

    #[test]
    fn nothing_ran_and_nothing_is_named() {
        assert_eq!(bottleneck(&shares(&LaneTime::default(), &LaneTime::default())), None);
    }
}
