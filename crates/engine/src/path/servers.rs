//! How many connections carry data between this host and a foreign server.
//!
//! ```text
//!   first     round-trip time, size           -> how many to begin with
//!   sample    bytes that moved so far, ...    -> the rate grows | more are tried | more gained nothing | the server allows fewer
//! ```
//! A far sender's windows and losses are not seen here. So more connections are a trial, taken back when it gained nothing. A
//! server that refuses one is left alone for a while.

use alloc::collections::VecDeque;

use haul_wire::summary::PathTime;

use super::lanes::{QUICK_FROM_US, START_LANES_MAX};
use crate::plan::NEAR_RTT_US;

/// aria2's limit to one server (`-x`), which operators know.
pub const AUTO_CONNECTIONS_MAX: u16 = 16;

/// As many as browsers open over HTTP/1.1.
pub const USUAL_CONNECTIONS: u16 = 6;

/// A writer awaits an answer for each part: Amazon's own tools use 10 requests at once.
const WRITING_AT_LEAST: u16 = 8;

/// From here a path begins with [`AUTO_CONNECTIONS_MAX`]: six need 8 round trips to fill 1 Gbit/s at 228 ms, and their windows of
/// 2.9 MB stop at 600 Mbit/s; sixteen need 6.5, and fill it.
const LONG_RTT_US: u32 = 80_000;

/// As many as lanes to a haul begin with on a path as long. Apache takes 150 connections, nginx 512 or more.
pub const FAR_REQUESTS_MAX: u16 = START_LANES_MAX;

/// A connection that brings less is not worth its handshake.
const WORTH_A_CONNECTION_BYTES: u64 = 4 << 20;

/// Whether small files want more than [`AUTO_CONNECTIONS_MAX`].
pub fn is_long(rtt_us: u32) -> bool {
    rtt_us >= LONG_RTT_US
}

/// The first connections of a job; `u64::MAX` bytes: unknown.
pub fn at_start(rtt_us: u32, bytes: u64) -> u16 {
    let by_path = if is_long(rtt_us) { AUTO_CONNECTIONS_MAX } else { USUAL_CONNECTIONS };
    by_path.min(worth_of(bytes))
}

/// [`at_start`] where a connection costs the server no login. Over a long path and for much data each doubling saves a round trip
/// of the ramp.
pub fn requests_at_start(rtt_us: u32, bytes: u64) -> u16 {
    match rtt_us >= QUICK_FROM_US && bytes < u64::MAX {
        true => FAR_REQUESTS_MAX.min(worth_of(bytes)),
        false => at_start(rtt_us, bytes),
    }
}

fn worth_of(bytes: u64) -> u16 {
    u16::try_from(bytes / WORTH_A_CONNECTION_BYTES).unwrap_or(u16::MAX).max(1)
}

/// Short files under way at once: each waits for two or three answers. As many questions a second as with 16 over 56 ms; with 16
/// over 228 ms 2,000 files of 64 kB took 82 s.
pub fn short_files_at_once(rtt_us: u32) -> u16 {
    u16::try_from(rtt_us / QUESTION_EVERY_US).unwrap_or(u16::MAX).clamp(AUTO_CONNECTIONS_MAX, SHORT_FILES_MAX)
}

/// 16 connections ask so often over 56 ms.
const QUESTION_EVERY_US: u32 = 3_500;

/// Apache takes 150 connections, nginx 512 or more, and naming needs as many again.
const SHORT_FILES_MAX: u16 = 64;

/// One reading of all connections to a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerSample {
    /// When, in microseconds since any fixed start.
    pub at_us: u64,
    /// Bytes that moved so far.
    pub moved_bytes: u64,
    /// A typical round-trip time now.
    pub rtt_us: u32,
    /// The smallest so far.
    pub rtt_min_us: u32,
    /// The server's known limit.
    pub server_allows: u16,
    /// Waiting bytes; `u64::MAX`: more may come.
    pub waiting_bytes: u64,
}

/// The limit that holds the connections now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerHeld {
    /// No limit is known yet.
    #[default]
    Unknown,
    /// The rate grows.
    Ramp,
    /// The server allows no more connections.
    Refused,
    /// Path or server is full.
    Full,
    /// All unasked connections are at their fastest.
    AllUsed,
}

/// Decides the number.
#[derive(Clone, Debug)]
pub struct ServerConnections {
    count: u16,
    most: u16,
    is_fixed: bool,
    reason: &'static str,
    started_us: Option<u64>,
    past: VecDeque<(u64, u64)>,
    is_ramp: bool,
    trial: Option<Trial>,
    /// Why no more are tried, and until when.
    ceiling: Option<(ServerHeld, u64)>,
    last: ServerSample,
    best_rate_bytes_per_s: u64,
    time: PathTime,
}

#[derive(Clone, Copy, Debug)]
struct Trial {
    before: u16,
    rate_before: u64,
    judge_at_us: u64,
}

impl ServerConnections {
    /// Begins a reading job.
    pub fn new(asked: Option<u16>, rtt_us: u32, bytes: u64) -> Self {
        Self::beginning_with(asked, rtt_us, at_start(rtt_us, bytes), reason_at_start(rtt_us))
    }

    /// [`Self::new`] where a connection costs the server no login.
    pub fn requesting(asked: Option<u16>, rtt_us: u32, bytes: u64) -> Self {
        let count = requests_at_start(rtt_us, bytes);
        Self::beginning_with(asked, rtt_us, count, reason_at_start(rtt_us))
    }

    /// Begins a job that writes in parts.
    pub fn writing(asked: Option<u16>, rtt_us: u32) -> Self {
        let reason = "as many as the round trip asks for, and as stores are usually written over";
        let count = if rtt_us >= QUICK_FROM_US { FAR_REQUESTS_MAX } else { at_start(rtt_us, u64::MAX) };
        Self::beginning_with(asked, rtt_us, count.max(WRITING_AT_LEAST), reason)
    }

    fn beginning_with(asked: Option<u16>, rtt_us: u32, count: u16, reason: &'static str) -> Self {
        let is_near = rtt_us < NEAR_RTT_US;
        let (count, reason) = asked.map_or((count, reason), |asked| (asked.max(1), "asked for"));
        Self {
            count,
            most: asked.unwrap_or(AUTO_CONNECTIONS_MAX).max(count),
            is_fixed: asked.is_some() || is_near,
            reason,
            started_us: None,
            past: VecDeque::new(),
            is_ramp: true,
            trial: None,
            ceiling: None,
            last: ServerSample::default(),
            best_rate_bytes_per_s: 0,
            time: PathTime::default(),
        }
    }

    /// Sets the most connections made unasked.
    pub fn up_to(self, most: u16) -> Self {
        let most = if self.is_fixed { self.most } else { most.max(self.count) };
        Self { most, ..self }
    }

    /// How many carry data from now on.
    pub fn count(&self) -> u16 {
        self.count
    }

    /// The most that there may be.
    pub fn most(&self) -> u16 {
        if self.is_fixed { self.count } else { self.most }
    }

    /// Why it is this number.
    pub fn reason(&self) -> &'static str {
        self.reason
    }

    /// Takes a reading in. True: the number changed.
    pub fn on_sample(&mut self, sample: &ServerSample) -> bool {
        let before = self.count;
        let us = sample.at_us.saturating_sub(self.last.at_us);
        let is_first = self.started_us.is_none();
        let started_us = *self.started_us.get_or_insert(sample.at_us);
        self.last = *sample;
        self.past.push_back((sample.at_us, sample.moved_bytes));
        while self.past.len() > PAST_MAX {
            self.past.pop_front();
        }
        if is_first || us == 0 {
            return false;
        }
        let span_us = self.span_us();
        let (now, earlier) = (self.rate(0, span_us), self.rate(span_us, span_us));
        self.best_rate_bytes_per_s = self.best_rate_bytes_per_s.max(now.unwrap_or(0));
        if self.is_ramp
            && let (Some(now), Some(earlier)) = (now, earlier)
        {
            self.is_ramp = earlier == 0 || now >= scaled(earlier, RAMP_GROWTH);
        }
        if !self.is_fixed && sample.at_us.saturating_sub(started_us) > span_us {
            self.decide(sample, now.unwrap_or(0));
        }
        self.account(us);
        self.count != before
    }

    fn decide(&mut self, sample: &ServerSample, rate: u64) {
        let until_us = sample.at_us.saturating_add(VERDICT_US);
        self.ceiling = self.ceiling.filter(|(_, until_us)| sample.at_us < *until_us);
        if sample.server_allows < self.count {
            self.trial = None;
            self.ceiling = Some((ServerHeld::Refused, until_us));
            return;
        }
        if let Some(trial) = self.trial {
            if sample.at_us < trial.judge_at_us {
                return;
            }
            self.trial = None;
            if rate < scaled(trial.rate_before, GAINED) {
                self.ceiling = Some((ServerHeld::Full, until_us));
                (self.count, self.reason) = (trial.before, "more connections gained nothing");
            }
            return;
        }
        let settling_us = self.settling_us();
        let outlasts = sample.waiting_bytes > bytes_in(rate, settling_us);
        if self.is_ramp || self.ceiling.is_some() || self.count >= self.most || rate == 0 || !outlasts {
            return;
        }
        let judge_at_us = sample.at_us.saturating_add(settling_us);
        self.trial = Some(Trial { before: self.count, rate_before: rate, judge_at_us });
        let count = self.count.saturating_mul(2).min(self.most);
        (self.count, self.reason) = (count, "whether more connections bring more");
    }

    /// The limit that holds the connections now.
    pub fn held(&self) -> ServerHeld {
        match self.ceiling {
            _ if self.started_us.is_none() => ServerHeld::Unknown,
            _ if self.last.server_allows < self.count => ServerHeld::Refused,
            _ if self.is_ramp => ServerHeld::Ramp,
            Some((why, _)) => why,
            None if self.count >= self.most && !self.is_fixed => ServerHeld::AllUsed,
            None => ServerHeld::Unknown,
        }
    }

    fn account(&mut self, us: u64) {
        let us = us.saturating_mul(u64::from(self.count));
        let part = match self.held() {
            ServerHeld::Ramp => &mut self.time.ramp_us,
            ServerHeld::Full => &mut self.time.capacity_us,
            ServerHeld::Unknown | ServerHeld::Refused | ServerHeld::AllUsed => &mut self.time.latency_us,
        };
        *part = part.saturating_add(us);
    }

    /// The connections' time by cause.
    pub fn time(&self) -> PathTime {
        self.time
    }

    /// The rate now.
    pub fn rate_bytes_per_s(&self) -> u64 {
        self.rate(0, self.span_us()).unwrap_or(0)
    }

    /// The best rate seen.
    pub fn best_rate_bytes_per_s(&self) -> u64 {
        self.best_rate_bytes_per_s
    }

    /// The last reading.
    pub fn last(&self) -> &ServerSample {
        &self.last
    }

    fn span_us(&self) -> u64 {
        (2 * u64::from(self.last.rtt_us.max(self.last.rtt_min_us))).clamp(SPAN_US_MIN, SPAN_US_MAX)
    }

    /// Three round trips until data (TCP, TLS, request), then the doublings from ten segments to a full window.
    fn settling_us(&self) -> u64 {
        (12 * u64::from(self.last.rtt_us.max(self.last.rtt_min_us))).max(SETTLING_US_MIN)
    }

    fn rate(&self, ended_us: u64, span_us: u64) -> Option<u64> {
        let end_us = self.last.at_us.checked_sub(ended_us)?;
        let at = |us: u64| self.past.iter().rev().find(|(at_us, _)| *at_us <= us).copied();
        let (start, end) = (at(end_us.checked_sub(span_us)?)?, at(end_us)?);
        let us = end.0.saturating_sub(start.0);
        let bytes = u128::from(end.1.saturating_sub(start.1)) * 1_000_000;
        (us > 0).then(|| u64::try_from(bytes / u128::from(us)).unwrap_or(u64::MAX))
    }
}

fn reason_at_start(rtt_us: u32) -> &'static str {
    match rtt_us < NEAR_RTT_US {
        true => "near path: as many as a browser opens",
        false => "as the round trip and the size ask for",
    }
}

fn scaled(value: u64, factor: f64) -> u64 {
    (value as f64 * factor) as u64
}

fn bytes_in(rate_bytes_per_s: u64, us: u64) -> u64 {
    u64::try_from(u128::from(rate_bytes_per_s) * u128::from(us) / 1_000_000).unwrap_or(u64::MAX)
}

/// Two of the longest spans, ten readings a second.
const PAST_MAX: usize = 128;
/// Rates are compared over two round trips, and this, to even out bursts.
const SPAN_US_MIN: u64 = 500_000;
const SPAN_US_MAX: u64 = 5_000_000;
/// Slow start doubles the rate each round trip.
const RAMP_GROWTH: f64 = 1.2;
/// A gain below 5 % is chance, as with lanes.
const GAINED: f64 = 1.05;
/// As with lanes.
const SETTLING_US_MIN: u64 = 1_500_000;
/// Paths and servers change within minutes.
const VERDICT_US: u64 = 60_000_000;

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    struct Server {
        rtt_us: u32,
        each_bytes_per_s: u64,
        path_bytes_per_s: u64,
        allows: u16,
    }

    const LONG: Server =
        Server { rtt_us: 50_000, each_bytes_per_s: 2_000_000, path_bytes_per_s: u64::MAX, allows: u16::MAX };

    fn run(connections: &mut ServerConnections, server: &Server, seconds: u64) -> Vec<u16> {
        let (mut moved, mut counts, mut rates) = (0u64, Vec::new(), Vec::new());
        let start = connections.last().at_us;
        moved += connections.last().moved_bytes;
        for tick in 1..=seconds * 10 {
            let open = usize::from(connections.count().min(server.allows));
            rates.resize(open, 14_480 * 1_000_000 / u64::from(server.rtt_us));
            let sum: u64 = rates.iter().sum();
            moved += sum.min(server.path_bytes_per_s) / 10;
            for rate in &mut rates {
                *rate = (*rate * 4).min(server.each_bytes_per_s);
            }
            let sample = ServerSample {
                at_us: start + tick * 100_000,
                moved_bytes: moved,
                rtt_us: server.rtt_us,
                rtt_min_us: server.rtt_us,
                server_allows: server.allows,
                waiting_bytes: u64::MAX,
            };
            connections.on_sample(&sample);
            if tick % 10 == 0 {
                counts.push(connections.count());
            }
        }
        counts
    }

    #[test]
    fn a_job_begins_with_what_its_path_and_size_are_worth() {
        let check = |rtt_ms: u32, bytes: u64, expected: u16| {
            assert_eq!(at_start(rtt_ms * 1000, bytes), expected, "{rtt_ms} ms, {bytes} bytes");
        };
        check(0, u64::MAX, USUAL_CONNECTIONS);
        check(50, 500_000_000, USUAL_CONNECTIONS);
        check(228, 500_000_000, AUTO_CONNECTIONS_MAX);
        check(228, 9 << 20, 2);
        check(228, 1000, 1);
    }

    #[test]
    fn requests_without_login_are_more_over_the_longest_paths_once_the_size_is_known() {
        let check = |rtt_ms: u32, bytes: u64, expected: (u16, u16)| {
            let connections = ServerConnections::requesting(None, rtt_ms * 1000, bytes);
            assert_eq!((connections.count(), connections.most()), expected, "{rtt_ms} ms, {bytes} bytes");
        };
        check(159, 500_000_000, (16, 16));
        check(160, 500_000_000, (64, 64));
        check(228, 100 << 20, (25, 25));
        check(228, 1000, (1, 16));
        check(228, u64::MAX, (16, 16));
    }

    #[test]
    fn short_files_are_as_many_as_a_server_answers_over_a_shorter_path() {
        for (rtt_us, expected) in [(0, 16), (56_000, 16), (112_000, 32), (228_000, 64), (u32::MAX, 64)] {
            assert_eq!(short_files_at_once(rtt_us), expected, "{rtt_us} us");
        }
    }

    #[test]
    fn a_server_that_is_written_to_begins_with_more_but_not_against_a_wish() {
        let count = |asked, rtt_us| {
            let connections = ServerConnections::writing(asked, rtt_us);
            (connections.count(), connections.most())
        };
        assert_eq!((count(None, 100), count(None, 50_000), count(None, 228_000)), ((8, 8), (8, 16), (64, 64)));
        assert_eq!((count(None, 100_000), count(Some(2), 100)), ((16, 16), (2, 2)));
    }

    #[test]
    fn connections_grow_while_more_bring_more() {
        let mut connections = ServerConnections::new(None, 50_000, u64::MAX);
        let counts = run(&mut connections, &LONG, 10);
        assert_eq!((counts[0], counts[9]), (6, 16), "{counts:?}");
        assert_eq!(connections.held(), ServerHeld::AllUsed);
    }

    #[test]
    fn connections_that_gain_nothing_are_taken_back_for_a_minute() {
        let mut connections = ServerConnections::new(None, 50_000, u64::MAX);
        let full = Server { path_bytes_per_s: 10_000_000, ..LONG };
        let counts = run(&mut connections, &full, 60);
        assert_eq!(counts.iter().filter(|count| **count > 6).count(), 1, "one trial of 1.5 s: {counts:?}");
        assert_eq!((connections.count(), connections.held()), (6, ServerHeld::Full));
        assert_eq!(connections.reason(), "more connections gained nothing");
        let counts = run(&mut connections, &LONG, 15);
        assert_eq!(counts.last(), Some(&16), "the path has changed: {counts:?}");
    }

    #[test]
    fn a_server_that_refuses_is_not_asked_for_more() {
        let mut connections = ServerConnections::new(None, 50_000, u64::MAX);
        let counts = run(&mut connections, &Server { allows: 3, ..LONG }, 30);
        assert!(counts.iter().all(|count| *count == 6), "{counts:?}");
        assert_eq!(connections.held(), ServerHeld::Refused);
    }

    #[test]
    fn what_is_asked_for_and_a_near_path_are_left_alone() {
        let mut asked = ServerConnections::new(Some(40), 50_000, u64::MAX);
        assert_eq!(run(&mut asked, &LONG, 5), [40; 5]);
        let mut near = ServerConnections::new(None, 100, u64::MAX);
        assert_eq!(run(&mut near, &Server { rtt_us: 100, ..LONG }, 5), [6; 5]);
        assert_eq!((asked.most(), near.most()), (40, 6));
    }

    #[test]
    fn a_job_that_soon_ends_tries_nothing() {
        let mut connections = ServerConnections::new(None, 50_000, u64::MAX);
        for tick in 1..50 {
            let moved_bytes = tick * 1_200_000;
            let sample = ServerSample {
                at_us: tick * 100_000,
                moved_bytes,
                rtt_us: 50_000,
                rtt_min_us: 50_000,
                server_allows: 16,
                waiting_bytes: 15_000_000,
            };
            assert!(!connections.on_sample(&sample));
        }
    }
}
