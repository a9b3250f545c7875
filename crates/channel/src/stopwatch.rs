//! Measures a lane's time: work on a processor, or waiting, and for what.

use std::time::{Duration, Instant};

use haul_sys::clock::{thread_cpu_us, thread_delay_us};
use haul_wire::control::LaneTime;

/// The reasons to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// The disk.
    Storage,
    /// The connection.
    Network,
    /// A unit.
    Work,
    /// The session's rate.
    Rate,
    /// An ordered rest, which does not count.
    Leave,
}

/// Divides one thread's time. Between two looks at the thread's clock, running or ready time is processor time; sleep counts
/// for its reason.
///
/// A look is a system call, and a small file has five laps. So short laps share a look, by their lengths.
pub struct Stopwatch {
    at: Instant,
    cpu_us: u64,
    delay_us: u64,
    laps: Laps,
    time: LaneTime,
}

#[derive(Clone, Copy, Default)]
struct Laps {
    storage: u64,
    network: u64,
    work: u64,
    rate: u64,
    leave: u64,
}

impl Laps {
    fn add(&mut self, cause: Waiting, ns: u64) {
        *match cause {
            Waiting::Storage => &mut self.storage,
            Waiting::Network => &mut self.network,
            Waiting::Work => &mut self.work,
            Waiting::Rate => &mut self.rate,
            Waiting::Leave => &mut self.leave,
        } += ns;
    }

    fn total_us(&self) -> u64 {
        (self.storage + self.network + self.work + self.rate + self.leave) / 1000
    }
}

impl Stopwatch {
    /// Starts with work.
    pub fn start() -> Self {
        let (cpu_us, delay_us) = (thread_cpu_us(), thread_delay_us());
        Self { at: Instant::now(), cpu_us, delay_us, laps: Laps::default(), time: LaneTime::default() }
    }

    /// Ends a lap of work, or of waiting for `cause`.
    pub fn lap(&mut self, cause: Waiting) {
        self.lap_until(cause, Instant::now());
    }

    /// Ends a wait for the next unit. After a long one the sender had no unit for this lane, which says nothing about the
    /// network.
    pub fn lap_next_unit(&mut self, is_end: bool) {
        let is_rest = is_end || self.at.elapsed() > UNIT_ON_ITS_WAY_MAX;
        self.lap(if is_rest { Waiting::Work } else { Waiting::Network });
    }

    /// Ends a sending lane's wait for units or the session's end. It waited for work until all units were taken, for the
    /// network until its last receipt, and then for other lanes, whose time that is.
    pub fn lap_for_units(&mut self, all_taken: Option<Instant>, last_receipt: Option<Instant>) {
        let Some(all_taken) = all_taken else { return self.lap(Waiting::Work) };
        self.lap_until(Waiting::Work, all_taken);
        if let Some(receipt) = last_receipt {
            self.lap_until(Waiting::Network, receipt);
        }
        self.lap(Waiting::Leave);
    }

    /// Ends a lap at a past moment; one before the last lap ends none.
    pub fn lap_until(&mut self, cause: Waiting, until: Instant) {
        if until < self.at {
            return;
        }
        let ns = u64::try_from(until.duration_since(self.at).as_nanos()).unwrap_or(u64::MAX);
        self.at = until;
        self.laps.add(cause, ns);
        if self.laps.total_us() >= SHORT_LAPS_US {
            self.look();
        }
    }

    /// Divides laps into work and waiting.
    fn look(&mut self) {
        let laps = std::mem::take(&mut self.laps);
        let cpu_us = thread_cpu_us();
        let wall_us = laps.total_us();
        let ran_us = cpu_us.saturating_sub(self.cpu_us).min(wall_us);
        let delayed_us = if wall_us - ran_us >= DELAY_WORTH_A_LOOK_US { self.delayed_us() } else { 0 };
        let worked_us = ran_us.saturating_add(delayed_us).min(wall_us);
        self.cpu_us = cpu_us;
        self.time.cpu_us += worked_us;
        let mut left_us = wall_us - worked_us;
        let share = |ns: u64| u128::from(ns) * u128::from(wall_us - worked_us) / u128::from(wall_us.max(1)) / 1000;
        for (part, ns) in [
            (&mut self.time.network_us, laps.network),
            (&mut self.time.idle_us, laps.work),
            (&mut self.time.rate_us, laps.rate),
            (&mut self.time.storage_us, laps.storage),
        ] {
            let us = u64::try_from(share(ns)).unwrap_or(u64::MAX).min(left_us);
            *part += us;
            left_us -= us;
        }
    }

    fn delayed_us(&mut self) -> u64 {
        let before_us = self.delay_us;
        self.delay_us = thread_delay_us();
        self.delay_us.saturating_sub(before_us)
    }

    /// The times so far.
    pub fn time(&self) -> LaneTime {
        self.time
    }

    /// Takes the times. Short laps stay.
    pub fn take(&mut self) -> LaneTime {
        std::mem::take(&mut self.time)
    }
}

/// Laps before a look, which takes 0.2 us, a 500th of that.
const SHORT_LAPS_US: u64 = 100;

/// Opening the kernel's file costs some 5 us: at most 1 % of such a lap.
const DELAY_WORTH_A_LOOK_US: u64 = 500;

/// A second is several round trips, or the repair of a loss, behind the unit before.
const UNIT_ON_ITS_WAY_MAX: Duration = Duration::from_secs(1);

/// Adds another lane's times.
pub fn add(total: &mut LaneTime, lane: &LaneTime) {
    total.storage_us += lane.storage_us;
    total.cpu_us += lane.cpu_us;
    total.network_us += lane.network_us;
    total.idle_us += lane.idle_us;
    total.rate_us += lane.rate_us;
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn each_lap_counts_for_what_it_waited_for_and_leave_for_nothing() {
        let mut stopwatch = Stopwatch::start();
        let start = stopwatch.at;
        let causes = [Waiting::Storage, Waiting::Network, Waiting::Work, Waiting::Rate];
        let parts = |time: LaneTime| [time.storage_us, time.network_us, time.idle_us, time.rate_us];
        for (lap, cause) in (1..).zip(causes) {
            stopwatch.lap_until(cause, start + SECOND * lap);
            let time = stopwatch.take();
            assert_eq!(parts(time).iter().sum::<u64>() + time.cpu_us, 1_000_000, "{cause:?}: {time:?}");
            let most = parts(time).into_iter().enumerate().max_by_key(|(_, us)| *us).map(|(at, _)| at);
            assert_eq!(most, Some(lap as usize - 1), "{cause:?}: {time:?}");
        }
        stopwatch.lap_until(Waiting::Leave, start + SECOND * 10);
        assert_eq!(parts(stopwatch.take()), [0; 4]);
    }

    #[test]
    fn a_moment_before_the_last_lap_ends_none() {
        let mut stopwatch = Stopwatch::start();
        let start = stopwatch.at;
        stopwatch.lap_until(Waiting::Storage, start + SECOND);
        let before = stopwatch.time();
        stopwatch.lap_until(Waiting::Network, start);
        assert_eq!(stopwatch.time(), before);
        stopwatch.lap_until(Waiting::Network, start + SECOND * 2);
        let time = stopwatch.time();
        assert_eq!(time.storage_us + time.network_us + time.cpu_us, 2_000_000, "no time is lost, none counts twice");
    }

    #[test]
    fn a_lane_waits_for_work_until_all_units_are_taken_then_for_its_receipts_and_then_for_others() {
        let check = |all_taken_s: Option<u64>, receipt_s: Option<u64>, work_s: u64, network_s: u64| {
            let mut stopwatch = Stopwatch::start();
            stopwatch.at = stopwatch.at.checked_sub(SECOND * 10).expect("the machine has run for some seconds");
            let began = stopwatch.at;
            let after = |s: u64| began + SECOND * u32::try_from(s).unwrap();
            stopwatch.lap_for_units(all_taken_s.map(after), receipt_s.map(after));
            let time = stopwatch.time();
            let seconds = |us: u64| (us + 500_000) / 1_000_000;
            assert_eq!((seconds(time.idle_us), seconds(time.network_us)), (work_s, network_s), "{time:?}");
        };
        check(None, Some(2), 10, 0);
        check(Some(0), None, 0, 0);
        check(Some(0), Some(2), 0, 2);
        check(Some(3), Some(4), 3, 1);
        check(Some(3), Some(2), 3, 0);
    }

    #[test]
    fn a_unit_that_is_long_in_coming_was_not_on_its_way() {
        let check = |ago: Duration, is_end, is_network: bool| {
            let mut stopwatch = Stopwatch::start();
            stopwatch.at = stopwatch.at.checked_sub(ago).expect("the machine has run for some seconds");
            stopwatch.lap_next_unit(is_end);
            let time = stopwatch.time();
            assert_eq!(time.network_us > time.idle_us, is_network, "{ago:?}, end {is_end}: {time:?}");
        };
        check(UNIT_ON_ITS_WAY_MAX / 2, false, true);
        check(UNIT_ON_ITS_WAY_MAX * 2, false, false);
        check(UNIT_ON_ITS_WAY_MAX / 2, true, false);
    }
}
