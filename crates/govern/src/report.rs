//! Describes the paths, now and then and in the report.

use haul_engine::path::{Limit, Phase, Remembered};
use haul_engine::paths::{Death, Paths};
use haul_wire::summary::{HeldBy, KnownPath, OnePath, PathNow, PathService, PathState, PathSummary, PathTime, Subflow};

use haul_channel::convert;
use haul_channel::lane_addresses::LaneAddresses;

/// A path's last second; `None`: no such path.
pub fn path_now(paths: &Paths, path: u16, subflows: Vec<Subflow>) -> Option<PathNow> {
    let (estimate, advice) = (paths.estimate(path)?, paths.advice(path)?);
    Some(PathNow {
        path,
        rate_bytes_per_s: estimate.rate_bytes_per_s,
        rtt_us: estimate.rtt_us,
        rtt_min_us: estimate.rtt_min_us,
        resent_ppm: paths.summary(path)?.resent_ppm,
        lanes: advice.lanes,
        pacing_bytes_per_s: advice.pacing_bytes_per_s,
        held_by: match (estimate.phase, estimate.limit) {
            (Phase::Ramp, _) => HeldBy::Ramp,
            (_, Limit::Capacity) => HeldBy::Capacity,
            (_, Limit::Contention) => HeldBy::Contention,
            (_, Limit::ReceiveWindow) => HeldBy::ReceiveWindow,
            (_, Limit::SendBuffer) => HeldBy::SendBuffer,
            (_, Limit::Loss) => HeldBy::Loss,
            (_, Limit::Jitter) => HeldBy::Jitter,
            (_, Limit::Source) => HeldBy::Source,
            (_, Limit::Unknown) => HeldBy::Unknown,
        },
        mark: 0,
        marked_lanes: 0,
        subflows,
    })
}

/// A path for the report; `None`: no such path.
pub(crate) fn one_path(
    paths: &Paths,
    number: u16,
    addresses: Option<LaneAddresses>,
    delivered_bytes: u64,
    subflows: Vec<Subflow>,
) -> Option<OnePath> {
    // Peers refuse some names of congestion controls.
    let known = paths.remembered(number).map(known_path).filter(KnownPath::is_within_limits);
    let summary = PathSummary { known, ..paths.summary(number)? };
    let state = match paths.up().any(|up| up == number) {
        false => PathState::Lost,
        true if paths.rests(number) => PathState::Rests,
        true => PathState::Carries,
    };
    Some(OnePath {
        number,
        local: addresses.map(|addresses| convert::address(addresses.local)),
        remote: addresses.map(|addresses| convert::address(addresses.peer)),
        device: addresses.and_then(|addresses| addresses.device()).unwrap_or_default(),
        state,
        delivered_bytes,
        summary,
        subflows,
    })
}

/// Combines all paths; what does not add up is the busiest one's.
pub fn together(paths: &[OnePath]) -> PathSummary {
    let Some(main) = paths.iter().max_by_key(|path| path.delivered_bytes) else { return PathSummary::default() };
    if paths.len() == 1 {
        return main.summary.clone();
    }
    let all = || paths.iter().map(|path| &path.summary);
    let bytes: u128 = paths.iter().map(|path| u128::from(path.delivered_bytes)).sum();
    let mean = |of: fn(&PathSummary) -> u32| {
        let sum: u128 = paths.iter().map(|path| u128::from(path.delivered_bytes) * u128::from(of(&path.summary))).sum();
        u32::try_from(sum / bytes.max(1)).unwrap_or(u32::MAX)
    };
    PathSummary {
        rtt_min_us: all().map(|path| path.rtt_min_us).filter(|us| *us > 0).min().unwrap_or(0),
        queueing_us: mean(|path| path.queueing_us),
        resent_ppm: mean(|path| path.resent_ppm),
        capacity_bytes_per_s: all().fold(0, |sum, path| sum.saturating_add(path.capacity_bytes_per_s)),
        window_bytes: all().map(|path| path.window_bytes).max().unwrap_or(0),
        lanes: all().fold(0, |sum, path| sum.saturating_add(path.lanes)),
        congestion_control: main.summary.congestion_control.clone(),
        rate_variation_permille: mean(|path| path.rate_variation_permille),
        time: all().fold(PathTime::default(), |sum, path| sum.plus(&path.time)),
        // Meanwhile others carry the data.
        outages: all().map(|path| path.outages).max_by_key(|outages| outages.us).unwrap_or_default(),
        // Each path has its own.
        known: None,
        service: PathService {
            marked_bytes: all().fold(0, |sum, path| sum.saturating_add(path.service.marked_bytes)),
            raises: all().fold(0, |sum, path| sum.saturating_add(path.service.raises)),
            ..main.summary.service
        },
    }
}

pub(crate) fn death(path: u16, addresses: Option<LaneAddresses>, cause: Death) -> String {
    let between = addresses.map(|addresses| format!(" ({addresses})")).unwrap_or_default();
    let why = match cause {
        Death::Silent { us } => format!("nothing was acknowledged for {:.1} s", us as f64 / 1e6),
        Death::Repeats => "the same packets go out again and again".to_owned(),
    };
    format!("path {path}{between} is dead: {why}; the other paths carry its data, and it is tried again")
}

fn known_path(remembered: Remembered) -> KnownPath {
    let Remembered { rtt_min_us, capacity_bytes_per_s, lanes, random_loss_ppm, congestion_control } = remembered;
    KnownPath { rtt_min_us, capacity_bytes_per_s, lanes, random_loss_ppm, congestion_control }
}

/// Converts an earlier job's findings.
pub fn remembered(known: &KnownPath) -> Remembered {
    let KnownPath { rtt_min_us, capacity_bytes_per_s, lanes, random_loss_ppm, congestion_control } = known.clone();
    Remembered { rtt_min_us, capacity_bytes_per_s, lanes, random_loss_ppm, congestion_control }
}
