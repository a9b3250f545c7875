//! How fast a copy goes, how far it is, and how long it still takes. Pure: time is an argument.
//!
//! A file costs time by itself, and each of its bytes does. So what is done and what is left are counted in units: bytes, and a number
//! of bytes for each file. That number is the one with which the copy has run most evenly so far. How far a copy is, is a share of its
//! time: what has passed, of what has passed and is left.

use std::collections::VecDeque;
use std::time::Duration;

use haul_job::Progress;

/// The totals so far, thinned out as they grow.
#[derive(Debug, Default)]
pub struct Outlook {
    points: VecDeque<Point>,
    last: Point,
    recent: VecDeque<(Duration, u64)>,
    spacing: Duration,
    /// What a file costs, where earlier copies tell.
    usual_bytes_per_file: Option<f64>,
    tries: Tries,
    /// Of what earlier runs left, so much was read again: when it began, and now.
    reading: Option<(Duration, u64)>,
    shown: f64,
}

/// A copy that breaks off is tried again, and its totals begin anew.
#[derive(Clone, Copy, Debug, Default)]
struct Tries {
    /// What the tries before this one did.
    before: Point,
    /// Time in which nothing could move: pauses, and logins after them.
    idle: Duration,
    /// Broke off then, and nothing has moved since.
    lost_at: Option<Duration>,
}

/// Totals at one time.
#[derive(Clone, Copy, Debug, Default)]
struct Point {
    at: Duration,
    files: u64,
    bytes: u64,
}

/// What is to come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Left {
    /// Files without an outcome.
    pub files: u64,
    /// Bytes that are neither there nor moved.
    pub bytes: u64,
    /// The time for that; `None`: nothing can be said yet, or the copy stands still.
    pub time: Option<Duration>,
    /// How far the copy is, from 0 to 1, as a share of its time; of its data, while nothing is known of the time.
    pub done: Option<f64>,
    /// The source is still being listed, so more may come.
    pub is_rough: bool,
}

impl Outlook {
    /// Takes new totals.
    pub fn add(&mut self, now: Duration, progress: &Progress) {
        // What is already there comes in a burst, and says nothing about what is to come. With nothing else it is all there is.
        let moved = progress.files_done.saturating_sub(progress.files_kept);
        let files = if progress.bytes_moved > 0 || moved > 0 { moved } else { progress.files_done };
        if let Some(lost_at) = self.tries.lost_at {
            if progress.bytes_moved == 0 && moved == 0 {
                return;
            }
            self.tries.lost_at = None;
            self.tries.idle += now.saturating_sub(lost_at);
            self.tries.before = Point { at: Duration::ZERO, ..self.last };
        }
        let before = self.tries.before;
        let at = now.saturating_sub(self.tries.idle);
        let point = Point { at, files: before.files + files, bytes: before.bytes + progress.bytes_moved };
        if point.files < self.last.files || point.bytes < self.last.bytes {
            // Files that were there already no longer count.
            self.points.clear();
        }
        self.last = point;
        if progress.bytes_to_read_again > 0 && self.reading.is_none() {
            self.reading = Some((at, progress.bytes_read_again));
        }
        if self.recent.back().is_none_or(|(last, _)| now.saturating_sub(*last) >= SAMPLE_EVERY) {
            self.recent.push_back((now, point.bytes));
        }
        while self.recent.len() > 2 && now.saturating_sub(self.recent[0].0) > RATE_OVER {
            self.recent.pop_front();
        }
        let spacing = self.spacing.max(FIRST_SPACING);
        if self.points.back().is_none_or(|last| at.saturating_sub(last.at) >= spacing) {
            self.points.push_back(point);
        }
        if self.points.len() > MAX_POINTS {
            let mut keep = false;
            self.points.retain(|_| {
                keep = !keep;
                keep
            });
            self.spacing = spacing * 2;
        }
    }

    /// The copy broke off, and is tried again.
    pub fn broke_off(&mut self, now: Duration) {
        self.tries.lost_at.get_or_insert(now);
    }

    /// A file costs as much as so many bytes, as earlier copies on this path have shown.
    #[must_use]
    pub fn with_usual(self, bytes_per_file: Option<f64>) -> Self {
        Self { usual_bytes_per_file: bytes_per_file, ..self }
    }

    /// The rate of the last few seconds, in bytes/s.
    pub fn bytes_per_s(&self) -> Option<f64> {
        let (first, last) = (self.recent.front()?, self.recent.back()?);
        let span = last.0.saturating_sub(first.0);
        (span >= SAMPLE_EVERY).then(|| last.1.saturating_sub(first.1) as f64 / span.as_secs_f64())
    }

    /// What is left of these totals, which were the last ones added.
    pub fn left(&mut self, now: Duration, progress: &Progress) -> Left {
        let (files, bytes) = (progress.files_left, progress.bytes_left);
        let time = self.time_for(files, bytes).map(|time| time.max(self.time_to_read_again(progress)));
        let of_time = time.map(|time| now.as_secs_f64() / (now + time).as_secs_f64().max(1e-3));
        let of_data = (progress.bytes_found > 0).then(|| 1.0 - bytes as f64 / progress.bytes_found as f64);
        let done = of_time.or(of_data).map(|done| self.steady(done.clamp(0.0, 1.0)));
        Left { files, bytes, time, done, is_rough: !progress.found_all }
    }

    /// A bar does not run back, unless it was wrong by much.
    fn steady(&mut self, done: f64) -> f64 {
        if done > self.shown || self.shown - done > RUNS_BACK {
            self.shown = done;
        }
        self.shown
    }

    fn time_for(&self, files: u64, bytes: u64) -> Option<Duration> {
        let per_file = self.bytes_per_file();
        let first = self.points.front()?;
        if self.last.at.saturating_sub(first.at) < SOONEST {
            return None;
        }
        // The last half of the copy tells more than its start, and more than a moment. The whole tells most, where nothing has changed.
        let span = (self.last.at.saturating_sub(first.at) / 2).max(RATE_OVER);
        let half = self.points.iter().rposition(|point| self.last.at.saturating_sub(point.at) >= span).unwrap_or(0);
        let from = if self.has_changed(half, per_file) { self.points.get(half)? } else { first };
        let rate = self.last.units_per_s(from, per_file).or_else(|| self.last.units_per_s(first, per_file))?;
        let seconds = (bytes as f64 + files as f64 * per_file) / rate;
        // A longer time only means that the copy stands still.
        (seconds < LONGEST_S).then(|| Duration::from_secs_f64(seconds))
    }

    /// Whether the rates since this point differ from those before it by more than both vary.
    fn has_changed(&self, half: usize, per_file: f64) -> bool {
        let mean = |from: usize, to: usize| {
            let points = self.points.range(from..to);
            let rates = points.clone().zip(points.skip(1)).map(|(a, b)| b.units_per_s(a, per_file).unwrap_or(0.0));
            let (mut n, mut sum, mut squares) = (0.0_f64, 0.0, 0.0);
            rates.for_each(|rate| {
                n += 1.0;
                sum += rate;
                squares += rate * rate;
            });
            let mean = sum / n.max(1.0);
            (mean, (squares / n.max(1.0) - mean * mean).max(0.0) / n.max(1.0))
        };
        let (before, after) = (mean(0, half + 1), mean(half, self.points.len()));
        (before.0 - after.0).powi(2) > FAR_APART * FAR_APART * (before.1 + after.1)
    }

    /// The target reads what earlier runs left, beside what comes.
    fn time_to_read_again(&self, progress: &Progress) -> Duration {
        let Some((since, at_first)) = self.reading else { return Duration::ZERO };
        let (read, seconds) =
            (progress.bytes_read_again.saturating_sub(at_first), self.last.at.saturating_sub(since).as_secs_f64());
        if read == 0 {
            return Duration::ZERO;
        }
        let seconds = progress.bytes_to_read_again as f64 * seconds / read as f64;
        Duration::from_secs_f64(seconds.min(LONGEST_S))
    }

    /// The number of bytes that take as long as a file does by itself.
    fn bytes_per_file(&self) -> f64 {
        let unevenness = |per_file: f64| {
            let points = self.points.iter();
            let rates = points.clone().zip(points.skip(1)).filter_map(|(from, to)| to.units_per_s(from, per_file));
            let (mut n, mut sum, mut squares) = (0.0, 0.0, 0.0);
            rates.for_each(|rate| {
                n += 1.0;
                sum += rate;
                squares += rate * rate;
            });
            if n < FEWEST_RATES { f64::INFINITY } else { squares * n / (sum * sum) }
        };
        let usual_bytes = self.usual_bytes_per_file.unwrap_or(USUAL_BYTES_PER_FILE);
        let usual = unevenness(usual_bytes);
        let best = PER_FILE.into_iter().map(|bytes| (bytes, unevenness(bytes))).min_by(|a, b| a.1.total_cmp(&b.1));
        match best {
            Some((bytes, least)) if least < usual * CLEARLY => bytes,
            _ => usual_bytes,
        }
    }
}

impl Point {
    /// `None`: nothing moved.
    fn units_per_s(&self, from: &Self, per_file: f64) -> Option<f64> {
        let seconds = self.at.saturating_sub(from.at).as_secs_f64();
        let units =
            self.bytes.saturating_sub(from.bytes) as f64 + self.files.saturating_sub(from.files) as f64 * per_file;
        (seconds > 0.0 && units > 0.0).then(|| units / seconds)
    }
}

/// Long enough for a calm figure, short enough to see a change. With the next constant: at most 51 samples.
const RATE_OVER: Duration = Duration::from_secs(5);
const SAMPLE_EVERY: Duration = Duration::from_millis(100);

/// The first moments say nothing: buffers fill, and the first data is verified only when its chunk is whole.
const SOONEST: Duration = Duration::from_secs(1);

/// Points are at least so far apart. When there are too many, every second one goes, and the spacing doubles.
const FIRST_SPACING: Duration = Duration::from_millis(500);
const MAX_POINTS: usize = 128;

/// A file costs about so much on most hosts: 50 microseconds at 1 GB/s.
const USUAL_BYTES_PER_FILE: f64 = 49_152.0;
/// What else it may cost: from a local disk to a far one with slow names.
const PER_FILE: [f64; 6] = [1_024.0, 8_192.0, 196_608.0, 786_432.0, 3_145_728.0, 12_582_912.0];
/// With fewer rates all of these look alike.
const FEWEST_RATES: f64 = 6.0;
/// A figure other than the usual one must make the copy look so much more even.
const CLEARLY: f64 = 0.95;

/// Means that differ by so many standard errors are not of the same rate.
const FAR_APART: f64 = 4.0;

/// A bar that is wrong by more than this is set right, even if it runs back.
const RUNS_BACK: f64 = 0.05;

const LONGEST_S: f64 = 100.0 * 86_400.0;

#[cfg(test)]
mod ten_jobs;

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    fn with_left(progress: Progress) -> Progress {
        let files_left = progress.files_found - progress.files_done;
        let bytes_left = progress.bytes_found.saturating_sub(progress.bytes_moved + progress.bytes_kept);
        Progress { files_left, bytes_left, ..progress }
    }

    /// A copy of files of known cost: returns at each tenth of its time the estimated and the true time left, in seconds.
    fn estimates(files: &[(u64, f64)]) -> Vec<(f64, f64)> {
        let whole_s: f64 = files.iter().map(|(_, seconds)| seconds).sum();
        let (files_found, bytes_found) = (files.len() as u64, files.iter().map(|(bytes, _)| bytes).sum());
        let mut outlook = Outlook::default();
        let mut progress = Progress { files_found, bytes_found, found_all: true, ..Progress::default() };
        let (mut now, mut told) = (0.0, Vec::new());
        let mut next_tick = 0.0;
        for (bytes, seconds) in files {
            let before = progress;
            let start = now;
            while next_tick <= start + seconds {
                let part = (next_tick - start) / seconds;
                progress.bytes_moved = before.bytes_moved + (*bytes as f64 * part) as u64;
                outlook.add(s(next_tick), &progress);
                if next_tick > 0.0
                    && (next_tick * 10.0 / whole_s).floor() > ((next_tick - 0.1) * 10.0 / whole_s).floor()
                {
                    let progress = with_left(progress);
                    let left = outlook.left(s(next_tick), &progress).time.expect("it moves");
                    told.push((left.as_secs_f64(), whole_s - next_tick));
                }
                next_tick += 0.1;
            }
            now = start + seconds;
            progress =
                Progress { files_done: before.files_done + 1, bytes_moved: before.bytes_moved + bytes, ..before };
        }
        told
    }

    /// The largest error of these estimates, as a share of the whole time, from this tenth on.
    fn worst(told: &[(f64, f64)], whole_s: f64, from: usize) -> f64 {
        told.iter().skip(from).map(|(estimate, truth)| (estimate - truth).abs() / whole_s).fold(0.0, f64::max)
    }

    #[test]
    fn one_file_and_a_million_small_ones_are_known_within_three_percent_from_the_start() {
        let one = [(10_000_000_000, 100.0)];
        assert!(worst(&estimates(&one), 100.0, 0) < 0.03);
        let many = vec![(4_096, 0.001); 100_000];
        assert!(worst(&estimates(&many), 100.0, 0) < 0.03);
    }

    #[test]
    fn small_files_before_large_ones_are_not_taken_for_a_slow_copy() {
        // 40 s of small files that cost 100 us each, then 60 s of data at 1 GB/s.
        let mut files = vec![(1_000, 0.000_1); 400_000];
        files.extend([(6_000_000_000, 6.0); 10]);
        let told = estimates(&files);
        // By bytes alone, the first estimates would be a hundred times too long.
        assert!(worst(&told, 100.0, 0) < 0.7, "{told:?}");
        assert!(worst(&told, 100.0, 5) < 0.1, "{told:?}");
    }

    #[test]
    fn large_files_before_small_ones_are_not_taken_for_the_end() {
        let mut files = vec![(6_000_000_000, 6.0); 10];
        files.extend(std::iter::repeat_n((1_000, 0.000_1), 400_000));
        let told = estimates(&files);
        assert!(worst(&told, 100.0, 0) < 0.3, "{told:?}");
    }

    #[test]
    fn a_mix_of_sizes_teaches_what_a_file_costs_on_a_slow_file_system() {
        // 5 ms for each file, and 1 GB/s; the mix changes from second to second.
        let files: Vec<(u64, f64)> = (0..5_000_u64)
            .map(|n| {
                let bytes = if n / 200 % 2 == 0 { 1_000 } else { 10_000_000 + n % 7 * 1_000_000 };
                (bytes, 0.005 + bytes as f64 / 1e9)
            })
            .collect();
        let whole_s: f64 = files.iter().map(|(_, seconds)| seconds).sum();
        let told = estimates(&files);
        assert!(worst(&told, whole_s, 3) < 0.03, "{told:?}");
    }

    #[test]
    fn what_is_still_being_listed_is_a_rough_figure_and_a_copy_that_stands_still_has_none() {
        let mut outlook = Outlook::default();
        let mut progress = with_left(Progress { files_found: 10, bytes_found: 1_000, ..Progress::default() });
        let unknown = Left { files: 10, bytes: 1_000, time: None, done: Some(0.0), is_rough: true };
        assert_eq!(outlook.left(s(0.0), &progress), unknown);
        for tenth in 0..100 {
            outlook.add(Duration::from_millis(tenth * 100), &progress);
        }
        assert_eq!(outlook.left(s(10.0), &progress).time, None);
        progress.found_all = true;
        assert!(!outlook.left(s(10.0), &progress).is_rough);
        assert_eq!(outlook.bytes_per_s(), Some(0.0));
    }

    #[test]
    fn memory_does_not_grow_with_the_time_and_the_rate_forgets_what_is_long_past() {
        let mut outlook = Outlook::default();
        assert_eq!(outlook.bytes_per_s(), None);
        let mut progress = Progress::default();
        for second in 0..100_000_u64 {
            progress.bytes_moved += 1_000;
            outlook.add(Duration::from_secs(second), &progress);
        }
        assert!(outlook.points.len() <= MAX_POINTS && outlook.recent.len() <= 51);
        assert_eq!(outlook.bytes_per_s(), Some(1_000.0));
        for tenth in 1..100 {
            outlook.add(Duration::from_secs(100_000) + Duration::from_millis(tenth * 100), &progress);
        }
        assert_eq!(outlook.bytes_per_s(), Some(0.0));
    }
}
