//! The server of an end that is no haul: how many connections to it carry data, and what is told of the path to it.
//!
//! ```text
//!   connections (store) -> reading -> how many (engine) -> allowed, and as many lanes on this host get units
//!                                                       -> notices, the path now, the path of the report
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use haul_channel::convert;
use haul_channel::lane_addresses::LaneAddresses;
use haul_engine::path::servers::{ServerConnections, ServerHeld, ServerSample};
use haul_engine::thin_acks::{ThinAcks, WordsSent};
use haul_job::Subject;
use haul_store::{Connections, ConnectionsNow, SourceTree};
use haul_wire::control::{AskedClass, Carriage, Notice};
use haul_wire::summary::{HeldBy, LaneTime, OnePath, PathNow, PathState, PathSummary};

/// As often as the lanes of a session are sampled.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);

const TELL_EVERY: Duration = Duration::from_secs(1);

/// The server of a source, or of a target whose receiver is in this process.
pub(super) struct ServerOfEnd {
    connections: Arc<dyn Connections>,
    count: ServerConnections,
    thin_acks: ThinAcks,
    /// The receiver tells itself what holds the path to a target.
    is_target: bool,
    /// Lanes with both ends here: each has a connection of its own. Others follow their own path.
    lanes_here: BTreeSet<u16>,
    had_lanes_here: bool,
    started: Instant,
    sampled_at: Instant,
    told_at: Instant,
    now: ConnectionsNow,
    carried_most: u16,
    addresses: Option<LaneAddresses>,
}

#[derive(Default)]
pub(super) struct ServerTurn {
    /// Other lanes rest from now on.
    pub(super) work_moves: bool,
    pub(super) notices: Vec<Notice>,
    pub(super) path: Option<PathNow>,
}

/// The lanes of a copy from such a source to this host. `None`: the source is no server.
pub fn lanes_for(source: &dyn SourceTree, carriage: &Carriage) -> Option<u16> {
    let connections = source.connections()?;
    Some(count_of(&*connections, carriage).most())
}

fn count_of(connections: &dyn Connections, carriage: &Carriage) -> ServerConnections {
    let bytes = connections.foreseen_bytes().unwrap_or(u64::MAX);
    let begin = if connections.needs_login() { ServerConnections::new } else { ServerConnections::requesting };
    let count = begin(asked(carriage), connections.now().rtt_min_us, bytes);
    connections.most().map_or(count.clone(), |most| count.up_to(most))
}

/// The server chooses its rate; a copy that yields can only be one of many.
fn asked(carriage: &Carriage) -> Option<u16> {
    let is_background = carriage.service.class == AskedClass::Background;
    carriage.lanes.or(is_background.then_some(1))
}

impl ServerOfEnd {
    pub(super) fn of(source: &dyn SourceTree, carriage: &Carriage) -> Option<Self> {
        let connections = source.connections()?;
        let count = count_of(&*connections, carriage);
        Some(Self::with(connections, count, false))
    }

    pub(super) fn of_target(connections: Arc<dyn Connections>, carriage: &Carriage, lanes: &BTreeSet<u16>) -> Self {
        let count = ServerConnections::writing(asked(carriage), connections.now().rtt_min_us);
        let server = Self::with(connections, count, true);
        Self { lanes_here: lanes.clone(), had_lanes_here: !lanes.is_empty(), ..server }
    }

    fn with(connections: Arc<dyn Connections>, count: ServerConnections, is_target: bool) -> Self {
        connections.allow(count.count());
        let (started, lanes_here) = (Instant::now(), BTreeSet::new());
        let now = connections.now();
        Self {
            connections,
            count,
            thin_acks: ThinAcks::default(),
            is_target,
            lanes_here,
            had_lanes_here: false,
            started,
            sampled_at: started,
            told_at: started,
            now,
            carried_most: 0,
            addresses: None,
        }
    }

    pub(super) fn lane_up(&mut self, lane: u16) {
        self.lanes_here.insert(lane);
        self.had_lanes_here = true;
    }

    pub(super) fn lane_down(&mut self, lane: u16) {
        self.lanes_here.remove(&lane);
    }

    /// A lane that the server has no connection for would keep its unit from others.
    pub(super) fn resting(&self) -> impl Iterator<Item = u16> {
        self.lanes_here.iter().copied().skip(self.carrying().into())
    }

    /// Samples when due. `waiting_bytes` of units have no lane.
    pub(super) fn turn(&mut self, now: Instant, waiting_bytes: impl FnOnce() -> u64) -> ServerTurn {
        let mut turn = ServerTurn::default();
        if now.duration_since(self.sampled_at) < SAMPLE_EVERY {
            return turn;
        }
        self.sampled_at = now;
        let carried = self.carrying();
        self.now = self.connections.now();
        let at_us = u64::try_from(now.duration_since(self.started).as_micros()).unwrap_or(u64::MAX);
        let sample = ServerSample {
            at_us,
            moved_bytes: self.now.moved_bytes,
            rtt_us: typical(self.now.open.iter().map(|open| open.rtt_us)),
            rtt_min_us: self.now.rtt_min_us,
            server_allows: self.now.server_allows,
            waiting_bytes: waiting_bytes(),
        };
        if let Some(open) = self.now.open.first() {
            let (local, peer) = (open.local.ip().to_canonical(), open.peer.ip().to_canonical());
            self.addresses = Some(LaneAddresses { local, peer });
        }
        let is_changed = self.count.on_sample(&sample);
        self.carried_most = self.carried_most.max(self.carrying().min(self.now.count));
        if is_changed {
            let count = self.count.count();
            self.connections.allow(count);
            turn.notices.push(convert::chose(Subject::Lanes, count.to_string(), self.count.reason()));
        }
        if !self.is_target {
            turn.notices.extend(self.thin_acks(at_us));
        }
        turn.work_moves = self.carrying() != carried;
        if !self.is_target && now.duration_since(self.told_at) >= TELL_EVERY {
            self.told_at = now;
            turn.path = Some(self.path_now());
        }
        turn
    }

    /// Reads more seldom where requests to a source's server are lost beside its data.
    fn thin_acks(&mut self, at_us: u64) -> Option<Notice> {
        let ConnectionsNow { sent_bytes, resent_bytes, resent_segments, moved_bytes, .. } = self.now;
        let words = WordsSent { bytes: sent_bytes, again_bytes: resent_bytes, again: resent_segments };
        let pause_us = self.thin_acks.on_look(at_us, words, || moved_bytes)?;
        self.connections.gather_reads(Duration::from_micros(pause_us.into()));
        let choice = format!("each {} ms", pause_us / 1000);
        let reason = "the way to the server is so full that requests to it are lost";
        Some(convert::chose(Subject::Acknowledgements, choice, reason))
    }

    fn path_now(&self) -> PathNow {
        let last = self.count.last();
        PathNow {
            rate_bytes_per_s: self.count.rate_bytes_per_s(),
            rtt_us: last.rtt_us,
            rtt_min_us: last.rtt_min_us,
            resent_ppm: self.resent_ppm(),
            lanes: self.carrying(),
            held_by: match self.count.held() {
                ServerHeld::Ramp => HeldBy::Ramp,
                ServerHeld::Full => HeldBy::Capacity,
                ServerHeld::Refused | ServerHeld::AllUsed => HeldBy::Source,
                ServerHeld::Unknown => HeldBy::Unknown,
            },
            ..PathNow::default()
        }
    }

    /// Connections that carry data; `None` for lanes to another host, which are counted themselves.
    pub(super) fn carries_here(&self) -> Option<u16> {
        self.had_lanes_here.then(|| self.carrying())
    }

    fn carrying(&self) -> u16 {
        self.count.count().min(self.now.server_allows)
    }

    /// The most connections that carried data. A short copy ends before its first sample.
    fn carried_most(&self) -> u16 {
        self.carried_most.max(self.count.count().min(self.connections.now().count))
    }

    fn resent_ppm(&self) -> u32 {
        let ConnectionsNow { resent_bytes, sent_bytes, .. } = self.now;
        u32::try_from(u128::from(resent_bytes) * 1_000_000 / u128::from(sent_bytes.max(1))).unwrap_or(u32::MAX)
    }

    /// The path to a source's server, for the report; `None` for lanes to another host, whose paths are told.
    pub(super) fn summary(&self) -> Option<OnePath> {
        if self.is_target || !self.had_lanes_here {
            return None;
        }
        let last = self.count.last();
        let summary = PathSummary {
            rtt_min_us: last.rtt_min_us,
            queueing_us: last.rtt_us.saturating_sub(last.rtt_min_us),
            resent_ppm: self.resent_ppm(),
            capacity_bytes_per_s: self.count.best_rate_bytes_per_s(),
            lanes: self.carried_most(),
            time: self.count.time(),
            ..PathSummary::default()
        };
        Some(OnePath {
            local: self.addresses.map(|addresses| convert::address(addresses.local)),
            remote: self.addresses.map(|addresses| convert::address(addresses.peer)),
            device: self.addresses.and_then(|addresses| addresses.device()).unwrap_or_default(),
            state: PathState::Carries,
            delivered_bytes: self.now.moved_bytes,
            summary,
            ..OnePath::default()
        })
    }

    /// The most connections to a target's server that carried data; `None` for a source.
    pub(super) fn carried_to_target(&self) -> Option<u16> {
        self.is_target.then(|| self.carried_most())
    }

    /// Counts a wait for the server as one for the network: a far path holds the lanes, as far as is known.
    pub(super) fn time(&self, time: LaneTime) -> LaneTime {
        match self.count.time().total_us() {
            0 => time,
            _ => LaneTime { network_us: time.network_us.saturating_add(time.storage_us), storage_us: 0, ..time },
        }
    }
}

fn typical(rtts_us: impl Iterator<Item = u32>) -> u32 {
    let mut rtts_us: Vec<u32> = rtts_us.filter(|us| *us > 0).collect();
    rtts_us.sort_unstable();
    rtts_us.get(rtts_us.len() / 2).copied().unwrap_or(0)
}
