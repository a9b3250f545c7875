//! The course of a copy: received bytes, read regularly.
//!
//! Interfaces count headers and duplicates, too: some percent above the files' rates.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::limits;

/// A host's byte counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByteCounters {
    /// A file like `/proc/net/dev`, see proc_net(5).
    pub path: PathBuf,
    /// Whether loopback is the network, instead of left out.
    pub loopback: bool,
}

/// A part of a tool's running time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Seconds since the tool's start.
    pub from_s: f64,
    /// The start of the next.
    pub to_s: f64,
    /// Bytes received by the target's host.
    pub bytes: u64,
}

pub(super) struct Watch {
    stop: Sender<()>,
    thread: JoinHandle<io::Result<Vec<Interval>>>,
}

/// Figures of one copy's intervals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Course {
    /// The start of the first whole interval with [`REACHED`] of the median rate.
    pub ramp_s: f64,
    /// Mean rate from then until [`NEARLY_ALL`] bytes have arrived.
    pub steady_mbit_per_s: f64,
    /// Standard deviation of those intervals' rates by their mean: 0 is level.
    pub variation: f64,
    /// Their last quarter's mean rate by that of all: below 1 it fell.
    pub last_quarter: f64,
}

impl ByteCounters {
    /// Bytes received so far, over all interfaces.
    pub fn received(&self) -> io::Result<u64> {
        let text = fs::read_to_string(&self.path)?;
        // Two lines of headings; for each device: name, colon, received bytes, packets ...
        let devices = text.lines().filter_map(|line| line.split_once(':'));
        let counted = devices.filter(|(name, _)| (name.trim() == "lo") == self.loopback);
        counted
            .map(|(_, numbers)| numbers.split_whitespace().next().and_then(|bytes| bytes.parse::<u64>().ok()))
            .try_fold(0u64, |sum, bytes| Some(sum.saturating_add(bytes?)))
            .ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, format!("{} is no table of devices", self.path.display()))
            })
    }
}

impl Watch {
    pub(super) fn start(counters: ByteCounters, every: Duration) -> io::Result<Watch> {
        let start = Instant::now();
        let mut before = (Duration::ZERO, counters.received()?);
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new().name("intervals".into()).spawn(move || {
            let mut intervals = Vec::new();
            let mut read = |intervals: &mut Vec<Interval>| -> io::Result<()> {
                let now = (start.elapsed(), counters.received()?);
                let bytes = now.1.saturating_sub(before.1);
                intervals.push(Interval { from_s: before.0.as_secs_f64(), to_s: now.0.as_secs_f64(), bytes });
                before = now;
                Ok(())
            };
            while intervals.len() < limits::MAX_INTERVALS {
                // Regular times, not pauses: a late reading does not delay the next.
                let due = every * (intervals.len() as u32 + 1);
                match stopped.recv_timeout(due.saturating_sub(start.elapsed())) {
                    Err(RecvTimeoutError::Timeout) => read(&mut intervals)?,
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => {
                        read(&mut intervals)?;
                        break;
                    }
                }
            }
            Ok(intervals)
        })?;
        Ok(Watch { stop, thread })
    }

    pub(super) fn finish(self) -> io::Result<Vec<Interval>> {
        let _ = self.stop.send(());
        self.thread.join().expect("reading counters does not panic")
    }
}

impl Interval {
    /// The mean rate.
    pub fn mbit_per_s(&self) -> f64 {
        self.bytes as f64 * 8.0 / 1e6 / (self.to_s - self.from_s).max(1e-9)
    }
}

impl Course {
    /// `None` with fewer than [`FEWEST`] steady intervals.
    pub fn of(intervals: &[Interval]) -> Option<Course> {
        let all: u64 = intervals.iter().map(|interval| interval.bytes).sum();
        let mut arrived = 0;
        let under_way: Vec<&Interval> = intervals
            .iter()
            .take_while(|interval| {
                arrived += interval.bytes;
                (arrived as f64) < all as f64 * NEARLY_ALL
            })
            .collect();
        let mut rates: Vec<f64> = under_way.iter().map(|interval| interval.mbit_per_s()).collect();
        rates.sort_by(f64::total_cmp);
        let median = *rates.get(rates.len() / 2)?;
        let begin = under_way.iter().position(|interval| interval.mbit_per_s() >= median * REACHED)?;
        let steady: Vec<f64> = under_way[begin..].iter().map(|interval| interval.mbit_per_s()).collect();
        if steady.len() < FEWEST {
            return None;
        }
        let mean_of = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len() as f64;
        let mean = mean_of(&steady);
        let variance = steady.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / steady.len() as f64;
        Some(Course {
            ramp_s: under_way[begin].from_s,
            steady_mbit_per_s: mean,
            variation: variance.sqrt() / mean,
            last_quarter: mean_of(&steady[steady.len() - steady.len().div_ceil(4)..]) / mean,
        })
    }
}

/// The longest time below [`PAUSED`] of the mean rate, within the copy. `None` without bytes.
pub fn longest_pause_s(intervals: &[Interval]) -> Option<f64> {
    let all: u64 = intervals.iter().map(|interval| interval.bytes).sum();
    let seconds = intervals.last()?.to_s - intervals.first()?.from_s;
    let least = all as f64 * 8.0 / 1e6 / seconds.max(1e-9) * PAUSED;
    let (mut since, mut longest) = (None, 0.0_f64);
    for interval in intervals.iter().filter(|interval| interval.bytes > 0 && interval.mbit_per_s() >= least) {
        longest = longest.max(interval.from_s - since.unwrap_or(interval.from_s));
        since = Some(interval.to_s);
    }
    since.map(|_| longest)
}

/// A line for each interval, separated by tabs, for spreadsheets.
pub(super) fn table<'a>(copies: impl Iterator<Item = (String, &'a [Interval])>) -> String {
    let mut text = String::from("copy\tfrom s\tto s\tbytes\tMbit/s\n");
    for (copy, intervals) in copies {
        for interval in intervals {
            let Interval { from_s, to_s, bytes } = interval;
            text.push_str(&format!("{copy}\t{from_s:.3}\t{to_s:.3}\t{bytes}\t{:.1}\n", interval.mbit_per_s()));
        }
    }
    text
}

/// The counters of this process over loopback, for [`super::Here`].
pub(super) fn of_loopback() -> ByteCounters {
    ByteCounters { path: Path::new("/proc/self/net/dev").to_owned(), loopback: true }
}

/// Share of the median rate below which a copy still grows.
const REACHED: f64 = 0.9;
/// Share of the bytes; the rest is the last connections' end.
const NEARLY_ALL: f64 = 0.99;
/// Share of the mean rate: less is keep-alives and attempts to connect.
const PAUSED: f64 = 0.02;
const FEWEST: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn course(rates: &[f64]) -> Option<Course> {
        let intervals = rates.iter().enumerate().map(|(second, rate)| Interval {
            from_s: second as f64,
            to_s: second as f64 + 1.0,
            bytes: (rate * 1e6 / 8.0) as u64,
        });
        Course::of(&intervals.collect::<Vec<_>>())
    }

    #[test]
    fn a_level_copy_has_a_ramp_and_no_variation() {
        let found = course(&[0.0, 100.0, 500.0, 900.0, 900.0, 900.0, 900.0, 900.0, 900.0, 30.0]).unwrap();
        assert_eq!((found.ramp_s, found.steady_mbit_per_s.round()), (3.0, 900.0));
        assert!(found.variation < 1e-9 && (found.last_quarter - 1.0).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn swinging_and_sagging_show() {
        let swings = course(&[5.0, 40.0, 5.0, 40.0, 40.0, 5.0, 40.0, 5.0, 40.0]).unwrap();
        assert!(swings.variation > 0.6, "{swings:?}");
        let sags = course(&[900.0, 900.0, 900.0, 900.0, 900.0, 900.0, 100.0, 100.0, 100.0]).unwrap();
        assert!(sags.last_quarter < 0.3 && sags.variation > 0.4, "{sags:?}");
        assert!(course(&[90.0, 90.0, 0.0, 0.0, 90.0, 90.0, 90.0, 9.0]).unwrap().variation > 0.5);
    }

    #[test]
    fn a_short_copy_has_no_course() {
        assert_eq!((course(&[]), course(&[900.0, 900.0, 500.0])), (None, None));
        assert_eq!(course(&[0.0; 20]), None);
    }

    #[test]
    fn a_pause_is_what_lies_between_two_intervals_with_data() {
        let pause = |rates: &[f64]| {
            let intervals = rates.iter().enumerate().map(|(second, rate)| Interval {
                from_s: second as f64,
                to_s: second as f64 + 1.0,
                bytes: (rate * 1e6 / 8.0) as u64,
            });
            longest_pause_s(&intervals.collect::<Vec<_>>())
        };
        assert_eq!((pause(&[]), pause(&[0.0, 0.0])), (None, None));
        assert_eq!(pause(&[0.0, 0.0, 900.0, 900.0, 0.0]), Some(0.0), "neither the start nor the end is a pause");
        assert_eq!(pause(&[900.0, 0.0, 900.0, 0.0, 1.0, 0.0, 900.0]), Some(3.0), "a keep-alive ends no pause");
    }

    #[test]
    fn interfaces_are_counted_without_loopback_or_loopback_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("dev");
        let text = "Inter-|   Receive    |  Transmit\n face |bytes    packets errs|bytes\n    lo:  1000  3 0 0 0 0 0 0 1000\n  eth0: 70 1 0\n  eth1:8 1 0\n";
        fs::write(&path, text).unwrap();
        let received = |loopback| ByteCounters { path: path.clone(), loopback }.received().unwrap();
        assert_eq!((received(false), received(true)), (78, 1000));
        fs::write(&path, "eth0: many\n").unwrap();
        assert!(ByteCounters { path, loopback: false }.received().is_err());
    }

    #[test]
    fn a_watch_sees_what_came_between_its_readings() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("dev");
        let write = |bytes: u64| {
            let next = dir.path().join("next");
            fs::write(&next, format!("eth0: {bytes} 1\n")).unwrap();
            fs::rename(&next, &path).unwrap();
        };
        write(100);
        let watch =
            Watch::start(ByteCounters { path: path.clone(), loopback: false }, Duration::from_millis(5)).unwrap();
        write(2100);
        let intervals = watch.finish().unwrap();
        assert_eq!(intervals.iter().map(|interval| interval.bytes).sum::<u64>(), 2000);
        assert!(intervals.windows(2).all(|pair| pair[0].to_s == pair[1].from_s), "{intervals:?}");
        let text = table([("haul".to_owned(), &intervals[..])].into_iter());
        assert_eq!(text.lines().count(), intervals.len() + 1);
    }
}
