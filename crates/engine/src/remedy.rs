//! What would help: from the limiting cause, hosts, path and request to the very setting and its number.

use alloc::string::String;
use alloc::vec::Vec;

use haul_wire::limits::MAX_LANES;
use haul_wire::summary::{HostLimits, Outages, PathSummary};

use crate::attribute::{Cause, Limit, Phases, Shares};

/// One end of a transfer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// The host's name as the user knows it.
    pub place: String,
    /// Processors that haul may use there; 0: unknown.
    pub cpus: u16,
    /// The limits of one connection there.
    pub limits: HostLimits,
}

/// The user's wishes about speed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Asked {
    pub rate_bytes_per_s: Option<u64>,
    pub cipher: bool,
    pub compress: bool,
    pub checksum: bool,
    pub no_flush: bool,
    /// Most under way on one connection, in bytes.
    pub window_bytes: Option<u64>,
}

/// The facts when a transfer is over.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The end that read.
    pub source: &'a Host,
    /// The end that wrote.
    pub target: &'a Host,
    /// The path as the sender saw it.
    pub path: &'a PathSummary,
    /// The wishes of the user.
    pub asked: Asked,
    /// Lanes at most.
    pub lanes: u16,
    /// How the lanes went.
    pub lane_path: LanePath,
    /// Payload that moved.
    pub bytes_moved: u64,
    /// The time of the job.
    pub phases: Phases,
}

/// How the lanes went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LanePath {
    /// Within one machine.
    Here,
    /// Connections between the hosts.
    Direct,
    /// Connections that the far side made.
    Reversed,
    /// Inside ssh sessions.
    Ssh,
    /// Through the machine that started the copy.
    ThroughHere,
    /// From a foreign server.
    FromServer,
    /// To a foreign server.
    ToServer,
}

impl LanePath {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Here => "this machine",
            Self::Direct => "direct",
            Self::Reversed => "direct, reversed",
            Self::Ssh => "ssh",
            Self::ThroughHere => "through this machine",
            Self::FromServer => "from a server",
            Self::ToServer => "to a server",
        }
    }

    /// The end that is a foreign server.
    pub fn server(self) -> Option<End> {
        match self {
            Self::FromServer => Some(End::Source),
            Self::ToServer => Some(End::Target),
            Self::Here | Self::Direct | Self::Reversed | Self::Ssh | Self::ThroughHere => None,
        }
    }
}

/// An end of the transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum End {
    Source,
    Target,
}

/// A change that would help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Raise the target's `net.ipv4.tcp_rmem`, or the source's `net.ipv4.tcp_wmem`.
    Buffer(Buffer),
    /// Without `--window`, or with a larger one.
    WithoutWindow {
        /// The asked size.
        bytes: u64,
    },
    /// `--lanes`
    Lanes {
        /// The better number.
        lanes: u16,
        /// The present number.
        instead_of: u16,
        /// The cause that it is against.
        cause: Cause,
    },
    /// `--cc`; where the source forbids it, `net.ipv4.tcp_allowed_congestion_control` first.
    CongestionControl {
        /// Name of the congestion control.
        name: &'static str,
        /// The setting's value first; `None`: allowed already.
        allow: Option<String>,
    },
    /// Find what loses the packets.
    FindLoss {
        /// Bytes sent again of a million.
        resent_ppm: u32,
    },
    /// Use priority: others are on the link.
    AskForPriority,
    /// `-z`, or a faster link.
    Compress {
        /// The link's rate; 0: unknown.
        capacity_bytes_per_s: u64,
    },
    /// A faster link: `-z` is in use already.
    FasterLink {
        /// The link's rate; 0: unknown.
        capacity_bytes_per_s: u64,
    },
    /// One command for many sources, one login.
    OneCommand {
        /// The cost that each command pays anew.
        cause: Cause,
    },
    /// Without `--checksum`.
    WithoutChecksum,
    /// Faster storage.
    FasterStorage {
        /// The slow end.
        at: End,
        /// The storage's rate while the lanes waited.
        bytes_per_s: u64,
    },
    /// `--no-flush`
    NoFlush,
    /// Without `--cipher`.
    WithoutCipher,
    /// Without `-z`.
    WithoutCompression,
    /// More or faster processors.
    FasterProcessors {
        /// The busy end.
        at: End,
        /// Processors there; 0: unknown.
        cpus: u16,
    },
    /// A higher `--rate`, or none.
    HigherRate {
        /// The asked rate.
        bytes_per_s: u64,
    },
    /// A port that the other host reaches: `--port-range`.
    OpenPort,
    /// A port as above, or without `-3`.
    DirectPath,
    /// No cause was measured: look at the path.
    LookAtPath,
    /// The link passed nothing: look at it.
    LookAtLink {
        /// Number of silences.
        times: u32,
        /// Their time together.
        us: u64,
    },
}

/// A kernel buffer smaller than the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// The target's receive or the source's send buffer.
    pub at: End,
    /// Bytes that one connection may have under way.
    pub grants_bytes: u64,
    /// Bytes on the full path; `None`: never seen.
    pub path_bytes: Option<u64>,
    /// The path's rate.
    pub capacity_bytes_per_s: u64,
    /// The path's round-trip time.
    pub rtt_us: u32,
    /// The sufficient third value of the setting.
    pub setting_bytes: u64,
}

impl Remedy {
    /// True for a setting, or an unasked flag: worth telling. Others take money, people, or the opposite of what was asked.
    pub fn is_a_setting(&self) -> bool {
        match self {
            Remedy::Buffer(_)
            | Remedy::Lanes { .. }
            | Remedy::CongestionControl { .. }
            | Remedy::Compress { .. }
            | Remedy::WithoutChecksum
            | Remedy::NoFlush
            | Remedy::WithoutCipher
            | Remedy::WithoutCompression
            | Remedy::OpenPort
            | Remedy::DirectPath => true,
            Remedy::FindLoss { .. }
            | Remedy::AskForPriority
            | Remedy::FasterLink { .. }
            | Remedy::OneCommand { .. }
            | Remedy::FasterStorage { .. }
            | Remedy::FasterProcessors { .. }
            | Remedy::WithoutWindow { .. }
            | Remedy::HigherRate { .. }
            | Remedy::LookAtPath
            | Remedy::LookAtLink { .. } => false,
        }
    }
}

/// The changes that would help, the best first, then against every cause with a quarter of the time.
pub fn remedies(limit: &Limit, shares: &Shares, facts: &Facts) -> Vec<Remedy> {
    // Limiting storage works also while the lanes wait for others.
    let mut found = against(limit.cause, 1.0, facts);
    let others = shares.iter().filter(|(cause, share)| *cause != limit.cause && *share >= WORTH_A_WORD);
    for remedy in others.flat_map(|(cause, share)| against(cause, share, facts)) {
        if !found.contains(&remedy) {
            found.push(remedy);
        }
    }
    found
}

fn against(cause: Cause, share: f64, facts: &Facts) -> Vec<Remedy> {
    if let Some(server) = facts.lane_path.server()
        && let Some(found) = beside_server(cause, server, facts)
    {
        return found;
    }
    match cause {
        Cause::SourceStorage => storage(End::Source, share, facts),
        Cause::TargetStorage => storage(End::Target, share, facts),
        Cause::Flush => storage(End::Target, share, facts),
        Cause::SourceCpu => processors(End::Source, facts),
        Cause::TargetCpu => processors(End::Target, facts),
        Cause::ReceiveWindow => window(End::Target, cause, facts),
        Cause::SendBuffer => window(End::Source, cause, facts),
        Cause::Loss | Cause::Jitter => loss(cause, facts),
        Cause::Capacity => {
            let capacity_bytes_per_s = facts.path.capacity_bytes_per_s;
            [match facts.asked.compress {
                true => Remedy::FasterLink { capacity_bytes_per_s },
                false => Remedy::Compress { capacity_bytes_per_s },
            }]
            .into()
        }
        Cause::Contention => [Remedy::AskForPriority].into(),
        Cause::Network => match facts.lane_path {
            LanePath::Ssh => [Remedy::OpenPort].into(),
            LanePath::ThroughHere => [Remedy::DirectPath].into(),
            LanePath::Direct | LanePath::Reversed => [Remedy::LookAtPath].into(),
            LanePath::Here | LanePath::FromServer | LanePath::ToServer => Vec::new(),
        },
        Cause::Outage => {
            let Outages { count: times, us } = facts.path.outages;
            [Remedy::LookAtLink { times, us }].into()
        }
        Cause::RateLimit => {
            facts.asked.rate_bytes_per_s.map(|bytes_per_s| Remedy::HigherRate { bytes_per_s }).into_iter().collect()
        }
        Cause::Work if facts.asked.checksum => [Remedy::WithoutChecksum, Remedy::OneCommand { cause }].into(),
        Cause::Ramp | Cause::Latency | Cause::Work | Cause::Start => [Remedy::OneCommand { cause }].into(),
    }
}

fn storage(at: End, share: f64, facts: &Facts) -> Vec<Remedy> {
    // The target still flushes after the last byte.
    let flush_us = if at == End::Target { facts.flush_us() } else { 0 };
    let busy_us = facts.lanes_us() as f64 * share.clamp(0.01, 1.0) + flush_us as f64;
    let bytes_per_s = (facts.bytes_moved as f64 * 1e6 / busy_us) as u64;
    let mut found = Vec::new();
    if at == End::Target && !facts.asked.no_flush {
        found.push(Remedy::NoFlush);
    }
    found.push(Remedy::FasterStorage { at, bytes_per_s });
    found
}

fn processors(at: End, facts: &Facts) -> Vec<Remedy> {
    let cpus = match at {
        End::Source => facts.source.cpus,
        End::Target => facts.target.cpus,
    };
    let mut found = Vec::new();
    // Compressing costs several times as much as decompressing.
    if facts.asked.compress && at == End::Source {
        found.push(Remedy::WithoutCompression);
    }
    if facts.asked.cipher && facts.lane_path != LanePath::Here {
        found.push(Remedy::WithoutCipher);
    }
    // A lane is one thread at each end.
    if facts.lanes < cpus.min(MAX_LANES) {
        let cause = if at == End::Source { Cause::SourceCpu } else { Cause::TargetCpu };
        found.push(Remedy::Lanes { lanes: cpus.min(MAX_LANES), instead_of: facts.lanes, cause });
    }
    found.push(Remedy::FasterProcessors { at, cpus });
    found
}

/// The help beside a server; `None`: what helps anywhere.
fn beside_server(cause: Cause, server: End, facts: &Facts) -> Option<Vec<Remedy>> {
    let lanes = facts.path.lanes.max(1);
    let more = Remedy::Lanes { lanes: lanes.saturating_mul(2).min(MAX_LANES), instead_of: lanes, cause };
    match (cause, server) {
        (Cause::Latency, _) => Some(Vec::from([more])),
        // Both roles run at the other end.
        (Cause::SourceCpu, End::Source) => Some(processors(End::Target, facts)),
        (Cause::TargetCpu, End::Target) => Some(processors(End::Source, facts)),
        // A full path looks like a full server, and no server takes compressed data.
        (Cause::Capacity | Cause::Network, _)
        | (Cause::SourceStorage, End::Source)
        | (Cause::TargetStorage | Cause::Flush, End::Target) => Some(Vec::new()),
        _ => None,
    }
}

fn window(at: End, cause: Cause, facts: &Facts) -> Vec<Remedy> {
    let path = facts.path;
    let limits = match at {
        End::Source => &facts.source.limits,
        End::Target => &facts.target.limits,
    };
    let granted = match at {
        End::Source => limits.tcp_wmem_max_bytes,
        End::Target => limits.tcp_rmem_max_bytes,
    };
    // About half of a buffer is data: the kernel counts its own records.
    let grants_bytes = if path.window_bytes > 0 { path.window_bytes } else { granted / MEMORY_PER_BYTE };
    let all_lanes_bytes = grants_bytes.saturating_mul(u64::from(facts.lanes.max(1)));
    // Windows that are full do not measure the path.
    let path_bytes =
        Some(bandwidth_delay_bytes(path)).filter(|bytes| *bytes > all_lanes_bytes.saturating_add(all_lanes_bytes / 4));
    // Twice as much is the next try.
    let aim_bytes = path_bytes.unwrap_or(all_lanes_bytes.saturating_mul(2));
    let setting_bytes = aim_bytes.saturating_mul(MEMORY_PER_BYTE).min(SETTING_MAX_BYTES).next_power_of_two();
    let mut found = Vec::new();
    let asked_bytes = facts.asked.window_bytes;
    found.extend(asked_bytes.map(|bytes| Remedy::WithoutWindow { bytes }));
    // A host that would have granted the request does not hold the lanes.
    let is_of_host = asked_bytes.is_none_or(|bytes| bytes > granted / MEMORY_PER_BYTE);
    if is_of_host && grants_bytes > 0 && setting_bytes > granted {
        let (capacity_bytes_per_s, rtt_us) = (path.capacity_bytes_per_s, path.rtt_min_us);
        found.push(Remedy::Buffer(Buffer {
            at,
            grants_bytes,
            path_bytes,
            capacity_bytes_per_s,
            rtt_us,
            setting_bytes,
        }));
    }
    found.extend(more_lanes(aim_bytes.checked_div(grants_bytes).unwrap_or(0).saturating_add(1), cause, facts));
    found
}

fn loss(cause: Cause, facts: &Facts) -> Vec<Remedy> {
    let path = facts.path;
    let mut found = Vec::new();
    if !path.congestion_control.starts_with(LOSS_TOLERANT) {
        let allowed = &facts.source.limits.allowed_congestion_controls;
        let allow = (!allowed.is_empty() && !allowed.iter().any(|name| name == LOSS_TOLERANT)).then(|| {
            // Somebody types this as root: only names of a peer's words get in.
            let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
            let names = allowed.iter().map(String::as_str).filter(|name| name.bytes().all(plain));
            names.chain([LOSS_TOLERANT]).collect::<Vec<_>>().join(" ")
        });
        found.push(Remedy::CongestionControl { name: LOSS_TOLERANT, allow });
    }
    // The rate grows with the number of connections (Mathis et al., 1997).
    let missing = path.capacity_bytes_per_s.checked_div(facts.bytes_per_s()).unwrap_or(0).max(1);
    found.extend(more_lanes(u64::from(facts.lanes).saturating_mul(missing.saturating_add(1)), cause, facts));
    if cause == Cause::Loss {
        found.push(Remedy::FindLoss { resent_ppm: path.resent_ppm });
    }
    found
}

/// The figures are no finer than powers of two.
fn more_lanes(wanted: u64, cause: Cause, facts: &Facts) -> Option<Remedy> {
    let lanes = u16::try_from(wanted.min(u64::from(MAX_LANES))).unwrap_or(MAX_LANES).next_power_of_two().min(MAX_LANES);
    (lanes > facts.lanes).then_some(Remedy::Lanes { lanes, instead_of: facts.lanes, cause })
}

fn bandwidth_delay_bytes(path: &PathSummary) -> u64 {
    let bytes = u128::from(path.capacity_bytes_per_s) * u128::from(path.rtt_min_us) / 1_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

impl Facts<'_> {
    fn bytes_per_s(&self) -> u64 {
        let bytes_per_s = u128::from(self.bytes_moved) * 1_000_000 / u128::from(self.lanes_us());
        u64::try_from(bytes_per_s).unwrap_or(u64::MAX)
    }

    fn lanes_us(&self) -> u64 {
        let Phases { connected_us, last_byte_us, elapsed_us, .. } = self.phases;
        last_byte_us.unwrap_or(elapsed_us).saturating_sub(connected_us.unwrap_or(0)).max(1)
    }

    fn flush_us(&self) -> u64 {
        self.phases.last_byte_us.map_or(0, |last_us| self.phases.elapsed_us.saturating_sub(last_us))
    }
}

/// From here a cause beside the limit has its remedy.
const WORTH_A_WORD: f64 = 0.25;

/// The kernel's window is half of a receive buffer (`tcp_adv_win_scale` 1, and initially since Linux 6.6); 4 MiB of send buffer
/// hold 2.9 MB.
const MEMORY_PER_BYTE: u64 = 2;

/// `int`s are too small for 2 GiB.
const SETTING_MAX_BYTES: u64 = 1 << 30;

/// bbr takes no loss for a full link.
const LOSS_TOLERANT: &str = "bbr";

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    /// 1 Gbit/s at 228 ms hold 28.5 MB; a stock host grants 6 and 4 MiB.
    fn host(cpus: u16) -> Host {
        let limits = HostLimits {
            tcp_rmem_max_bytes: 6 << 20,
            tcp_wmem_max_bytes: 4 << 20,
            congestion_control: "cubic".into(),
            allowed_congestion_controls: vec!["reno".into(), "cubic".into()],
            ..HostLimits::default()
        };
        Host { place: "host".into(), cpus, limits }
    }

    fn long_path() -> PathSummary {
        PathSummary {
            rtt_min_us: 228_000,
            capacity_bytes_per_s: 125_000_000,
            window_bytes: 3_100_000,
            resent_ppm: 120,
            congestion_control: "cubic".into(),
            ..PathSummary::default()
        }
    }

    /// The first lane after 1 s of 10 s, 200 MB moved: 20 MB/s.
    fn facts<'a>(source: &'a Host, target: &'a Host, path: &'a PathSummary) -> Facts<'a> {
        let phases = Phases {
            connected_us: Some(1_000_000),
            first_byte_us: Some(1_200_000),
            last_byte_us: Some(11_000_000),
            elapsed_us: 11_500_000,
        };
        let asked = Asked::default();
        Facts { source, target, path, asked, lanes: 2, lane_path: LanePath::Direct, bytes_moved: 200_000_000, phases }
    }

    #[track_caller]
    fn check(cause: Cause, change: impl FnOnce(&mut Facts), expected: &[Remedy]) {
        let (source, target, path) = (host(2), host(2), long_path());
        let mut facts = facts(&source, &target, &path);
        change(&mut facts);
        let found = remedies(&Limit { cause, share: 0.8 }, &Shares::default(), &facts);
        assert_eq!(found, expected);
    }

    fn buffer(at: End) -> Remedy {
        Remedy::Buffer(Buffer {
            at,
            grants_bytes: 3_100_000,
            path_bytes: Some(28_500_000),
            capacity_bytes_per_s: 125_000_000,
            rtt_us: 228_000,
            setting_bytes: 64 << 20,
        })
    }

    #[test]
    fn a_window_smaller_than_the_path_is_raised_to_the_path_or_multiplied() {
        // 28.5 MB / 3.1 MB are 10 lanes; 2 x 28.5 MB are 64 MiB.
        let (cause, end) = (Cause::ReceiveWindow, End::Target);
        check(cause, |_| {}, &[buffer(end), Remedy::Lanes { lanes: 16, instead_of: 2, cause }]);
        let (cause, end) = (Cause::SendBuffer, End::Source);
        check(cause, |_| {}, &[buffer(end), Remedy::Lanes { lanes: 16, instead_of: 2, cause }]);
    }

    #[test]
    fn a_window_that_was_asked_for_is_given_up_before_a_host_is_changed() {
        let (cause, end) = (Cause::ReceiveWindow, End::Target);
        let lanes = Remedy::Lanes { lanes: 16, instead_of: 2, cause };
        let without = |bytes| Remedy::WithoutWindow { bytes };
        check(cause, |facts| facts.asked.window_bytes = Some(3 << 20), &[without(3 << 20), lanes.clone()]);
        check(cause, |facts| facts.asked.window_bytes = Some(8 << 20), &[without(8 << 20), buffer(end), lanes]);
    }

    #[test]
    fn a_buffer_that_is_large_enough_is_not_raised() {
        let mut target = host(2);
        target.limits.tcp_rmem_max_bytes = 64 << 20;
        let (source, path) = (host(2), long_path());
        let facts = facts(&source, &target, &path);
        let cause = Cause::ReceiveWindow;
        assert_eq!(window(End::Target, cause, &facts), [Remedy::Lanes { lanes: 16, instead_of: 2, cause }]);
    }

    #[test]
    fn where_the_path_was_never_seen_full_twice_as_much_is_tried() {
        let path = PathSummary { capacity_bytes_per_s: 0, window_bytes: 0, ..long_path() };
        let (source, target) = (host(2), host(2));
        let found = window(End::Target, Cause::ReceiveWindow, &facts(&source, &target, &path));
        let Remedy::Buffer(buffer) = &found[0] else { panic!("{found:?}") };
        // Each of two lanes has half of 6 MiB; twice 6 MiB takes 24 MiB of memory.
        assert_eq!((buffer.grants_bytes, buffer.path_bytes, buffer.setting_bytes), (3 << 20, None, 32 << 20));
        assert_eq!(found[1], Remedy::Lanes { lanes: 8, instead_of: 2, cause: Cause::ReceiveWindow });
    }

    #[test]
    fn a_path_that_no_buffer_holds_asks_for_the_largest_setting_and_all_lanes() {
        let path = PathSummary { capacity_bytes_per_s: u64::MAX, rtt_min_us: u32::MAX, ..long_path() };
        let (source, target) = (host(2), host(2));
        loss(Cause::Loss, &facts(&source, &target, &path));
        let found = window(End::Source, Cause::SendBuffer, &facts(&source, &target, &path));
        assert!(matches!(&found[0], Remedy::Buffer(buffer) if buffer.setting_bytes == 1 << 30), "{found:?}");
        assert_eq!(found[1], Remedy::Lanes { lanes: 256, instead_of: 2, cause: Cause::SendBuffer });
    }

    #[test]
    fn loss_asks_for_bbr_where_it_is_not_in_use_then_for_lanes_and_its_reason() {
        // 20 MB/s of 125 MB/s with two lanes: 14 lanes, so 16.
        let cause = Cause::Loss;
        let (lanes, find) = (Remedy::Lanes { lanes: 16, instead_of: 2, cause }, Remedy::FindLoss { resent_ppm: 120 });
        let allow = Some("reno cubic bbr".into());
        check(cause, |_| {}, &[Remedy::CongestionControl { name: "bbr", allow }, lanes.clone(), find.clone()]);

        let mut allowed = host(2);
        allowed.limits.allowed_congestion_controls.push("bbr".into());
        let (target, path) = (host(2), long_path());
        assert_eq!(
            loss(Cause::Loss, &facts(&allowed, &target, &path)),
            [Remedy::CongestionControl { name: "bbr", allow: None }, lanes.clone(), find.clone()]
        );
        let mut hostile = host(2);
        hostile.limits.allowed_congestion_controls = vec!["cubic".into(), "'; reboot '".into()];
        let found = loss(Cause::Loss, &facts(&hostile, &target, &path));
        assert_eq!(found[0], Remedy::CongestionControl { name: "bbr", allow: Some("cubic bbr".into()) });
        let path = PathSummary { congestion_control: "bbr".into(), ..long_path() };
        assert_eq!(loss(Cause::Loss, &facts(&allowed, &target, &path)), [lanes, find]);
        let lanes = Remedy::Lanes { lanes: 16, instead_of: 2, cause: Cause::Jitter };
        assert_eq!(loss(Cause::Jitter, &facts(&allowed, &target, &path)), [lanes]);
    }

    #[test]
    fn a_full_link_carries_less_when_it_is_compressed() {
        let capacity_bytes_per_s = 125_000_000;
        check(Cause::Capacity, |_| {}, &[Remedy::Compress { capacity_bytes_per_s }]);
        check(Cause::Capacity, |facts| facts.asked.compress = true, &[Remedy::FasterLink { capacity_bytes_per_s }]);
        check(Cause::Contention, |_| {}, &[Remedy::AskForPriority]);
    }

    #[test]
    fn storage_is_named_with_its_speed() {
        // 200 MB in 10 s; the target went on for half a second.
        let slow = |at| {
            let bytes_per_s = if at == End::Source { 20_000_000 } else { 19_047_619 };
            Remedy::FasterStorage { at, bytes_per_s }
        };
        check(Cause::SourceStorage, |_| {}, &[slow(End::Source)]);
        check(Cause::TargetStorage, |_| {}, &[Remedy::NoFlush, slow(End::Target)]);
        check(Cause::TargetStorage, |facts| facts.asked.no_flush = true, &[slow(End::Target)]);
        check(Cause::Flush, |_| {}, &[Remedy::NoFlush, slow(End::Target)]);
    }

    #[test]
    fn processors_are_relieved_of_what_was_asked_for_and_all_are_used() {
        let more = |at| Remedy::FasterProcessors { at, cpus: 2 };
        check(Cause::SourceCpu, |_| {}, &[more(End::Source)]);
        let ask = |facts: &mut Facts| (facts.asked.compress, facts.asked.cipher) = (true, true);
        check(Cause::SourceCpu, ask, &[Remedy::WithoutCompression, Remedy::WithoutCipher, more(End::Source)]);
        check(Cause::TargetCpu, ask, &[Remedy::WithoutCipher, more(End::Target)]);
        let cause = Cause::TargetCpu;
        let lanes = Remedy::Lanes { lanes: 2, instead_of: 1, cause };
        check(cause, |facts| facts.lanes = 1, &[lanes, more(End::Target)]);
    }

    #[test]
    fn short_jobs_belong_into_one_command() {
        for cause in [Cause::Start, Cause::Ramp, Cause::Latency, Cause::Work] {
            check(cause, |_| {}, &[Remedy::OneCommand { cause }]);
        }
        let cause = Cause::Work;
        let expected = [Remedy::WithoutChecksum, Remedy::OneCommand { cause }];
        check(cause, |facts| facts.asked.checksum = true, &expected);
    }

    #[test]
    fn a_link_that_was_down_is_to_be_looked_at() {
        let path = PathSummary { outages: Outages { count: 2, us: 10_200_000 }, ..long_path() };
        let (source, target) = (host(2), host(2));
        let found =
            remedies(&Limit { cause: Cause::Outage, share: 0.8 }, &Shares::default(), &facts(&source, &target, &path));
        assert_eq!(found, [Remedy::LookAtLink { times: 2, us: 10_200_000 }]);
    }

    #[test]
    fn a_network_without_figures_is_known_by_the_way_of_the_lanes() {
        check(Cause::Network, |_| {}, &[Remedy::LookAtPath]);
        check(Cause::Network, |facts| facts.lane_path = LanePath::Ssh, &[Remedy::OpenPort]);
        check(Cause::Network, |facts| facts.lane_path = LanePath::ThroughHere, &[Remedy::DirectPath]);
        check(Cause::Network, |facts| facts.lane_path = LanePath::Here, &[]);
    }

    #[test]
    fn of_a_server_nothing_is_known_but_that_each_connection_has_its_own_window() {
        let from_server = |facts: &mut Facts| facts.lane_path = LanePath::FromServer;
        let more = Remedy::Lanes { lanes: 2, instead_of: 1, cause: Cause::Latency };
        check(Cause::Latency, from_server, &[more]);
        check(Cause::SourceStorage, from_server, &[]);
        check(Cause::Capacity, from_server, &[]);
    }

    #[test]
    fn the_rate_asked_for_is_the_users_own_wish() {
        let rate = |facts: &mut Facts| facts.asked.rate_bytes_per_s = Some(62_500_000);
        let expected = Remedy::HigherRate { bytes_per_s: 62_500_000 };
        assert!(!expected.is_a_setting());
        check(Cause::RateLimit, rate, &[expected]);
    }

    #[test]
    fn a_second_cause_of_weight_gets_its_word_after_the_first() {
        let sender = haul_wire::control::LaneTime { storage_us: 400, network_us: 600, ..Default::default() };
        let receiver = haul_wire::control::LaneTime { network_us: 1, ..Default::default() };
        let shares = crate::attribute::shares(&sender, &receiver, &Default::default());
        let (source, target, path) = (host(2), host(2), long_path());
        let found = remedies(&Limit { cause: Cause::Network, share: 0.6 }, &shares, &facts(&source, &target, &path));
        let slow = Remedy::FasterStorage { at: End::Source, bytes_per_s: 50_000_000 };
        assert_eq!(found, [Remedy::LookAtPath, slow]);
    }
}
