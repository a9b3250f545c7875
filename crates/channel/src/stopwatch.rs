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
/// A look is a system call, and a small file has five laps. So short laps share a look, by their lengths. How long the thread was
/// ready without running is in a file of the kernel, which costs fifty times as much: it is read for many looks at once.
pub struct Stopwatch {
    at: Instant,
    cpu_us: u64,
    delay_us: u64,
    laps: Laps,
    /// The time off the processor since `delay_us` was read.
    off: Laps,
    time: LaneTime,
}

/// Nanoseconds by cause.
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

    /// These laps without so much time, of which each gives its share.
    fn without(&self, taken_us: u64) -> Self {
        let total_us = self.total_us();
        let left_us = total_us.saturating_sub(taken_us);
        let left = |ns: u64| {
            u64::try_from(u128::from(ns) * u128::from(left_us) / u128::from(total_us.max(1))).unwrap_or(u64::MAX)
        };
        Self {
            storage: left(self.storage),
            network: left(self.network),
            work: left(self.work),
            rate: left(self.rate),
            leave: left(self.leave),
        }
    }

    fn merge(&mut self, other: &Self) {
        self.storage += other.storage;
        self.network += other.network;
        self.work += other.work;
        self.rate += other.rate;
        self.leave += other.leave;
    }

    fn add_to(&self, time: &mut LaneTime) {
        time.storage_us += self.storage / 1000;
        time.network_us += self.network / 1000;
        time.idle_us += self.work / 1000;
        time.rate_us += self.rate / 1000;
    }
}

impl Stopwatch {
    /// Starts with work.
    pub fn start() -> Self {
        let (cpu_us, delay_us) = (thread_cpu_us(), thread_delay_us());
        let (laps, off) = (Laps::default(), Laps::default());
        Self { at: Instant::now(), cpu_us, delay_us, laps, off, time: LaneTime::default() }
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

    /// Takes the time on the processor off the laps.
    fn look(&mut self) {
        let laps = std::mem::take(&mut self.laps);
        let cpu_us = thread_cpu_us();
        let ran_us = cpu_us.saturating_sub(self.cpu_us).min(laps.total_us());
        self.cpu_us = cpu_us;
        self.time.cpu_us += ran_us;
        self.off.merge(&laps.without(ran_us));
        if self.off.total_us() >= OFF_WORTH_A_LOOK_US {
            self.look_for_delay();
        }
    }

    /// Takes the time in which the thread was ready off that without the processor.
    fn look_for_delay(&mut self) {
        let off = std::mem::take(&mut self.off);
        let before_us = std::mem::replace(&mut self.delay_us, thread_delay_us());
        let delayed_us = self.delay_us.saturating_sub(before_us).min(off.total_us());
        self.time.cpu_us += delayed_us;
        off.without(delayed_us).add_to(&mut self.time);
    }

    /// The times so far.
    pub fn time(&self) -> LaneTime {
        let mut time = self.time;
        self.off.add_to(&mut time);
        time
    }

    /// Takes all times, at the end.
    pub fn end(&mut self) -> LaneTime {
        self.look_for_delay();
        self.take()
    }

    /// Takes the times. Short laps, and a short time off the processor, stay.
    pub fn take(&mut self) -> LaneTime {
        std::mem::take(&mut self.time)
    }
}

/// Laps before a look, which takes 0.2 us, a 500th of that.
const SHORT_LAPS_US: u64 = 100;

/// Opening, reading and closing the kernel's file costs some 10 us: a 2000th of that. It was read after each wait of 0.5 ms, 40,000 times for
/// 2 GB from a store.
const OFF_WORTH_A_LOOK_US: u64 = 20_000;

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
        let time = stopwatch.end();
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
