//! How fast a copy goes, how far it is, and how long it takes.
//!
//! A file costs time by itself, and so does each byte. So what is done and left is counted in units: bytes, and for
//! each file the number of bytes with which the copy ran most evenly. The share done is the time passed, of the time
//! passed and left.

use std::collections::VecDeque;
use std::time::Duration;

use haul_job::Progress;

/// The totals so far, thinned out as they grow.
#[derive(Debug, Default)]
pub struct Outlook {
    points: VecDeque<Point>,
    last: Point,
    moved: u64,
    came_at: Duration,
    recent: VecDeque<(Duration, u64)>,
    spacing: Duration,
    foreknown: Foreknown,
    tries: Tries,
    /// When reading again began, and the bytes read by then.
    reading: Option<(Duration, u64)>,
    shown: f64,
    peak: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Foreknown {
    pub limit_bytes_per_s: Option<u64>,
    /// Compressed data takes less of the limit.
    pub compresses: bool,
    pub usual: Option<Usual>,
}

/// The costs of bytes and files on a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usual {
    pub bytes_per_s: f64,
    /// Bytes that take as long as a file by itself.
    pub bytes_per_file: f64,
}

/// A copy tried again begins its totals anew.
#[derive(Clone, Copy, Debug, Default)]
struct Tries {
    before: Point,
    moved_before: u64,
    /// Time without movement: outages, pauses, and logins.
    idle: Duration,
    /// The time when it broke off, if nothing moved since.
    lost_at: Option<Duration>,
    /// The other end is silent since then.
    silent_since: Option<Duration>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Point {
    at: Duration,
    files: u64,
    bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Left {
    pub files: u64,
    /// Bytes neither there nor moved.
    pub bytes: u64,
    /// Time for the rest; `None`: unknown, or the copy stands still.
    pub time: Option<Duration>,
    /// Share of its time done, 0 to 1; of its data, while the time is unknown.
    pub done: Option<f64>,
    /// The source is still being listed.
    pub is_rough: bool,
}

impl Outlook {
    pub fn add(&mut self, now: Duration, progress: &Progress) {
        if let Some(silent_for) = progress.no_data_for {
            // The copy was silent before it broke off.
            if self.tries.lost_at.is_none() {
                self.tries.silent_since.get_or_insert(now.saturating_sub(silent_for));
            }
            return;
        }
        if let Some(since) = self.tries.silent_since.take() {
            self.forget_since(since.saturating_sub(self.tries.idle));
            self.tries.idle += now.saturating_sub(since);
        }
        // Existing data comes in a burst and tells nothing of the rest, unless there is nothing else.
        let moved = progress.files_done.saturating_sub(progress.files_kept);
        let files = if progress.bytes_moved > 0 || moved > 0 { moved } else { progress.files_done };
        if let Some(lost_at) = self.tries.lost_at {
            if progress.bytes_moved == 0 && moved == 0 {
                return;
            }
            self.tries.lost_at = None;
            self.tries.idle += now.saturating_sub(lost_at);
            self.tries.before = Point { at: Duration::ZERO, ..self.last };
            self.tries.moved_before = self.moved;
        }
        let before = self.tries.before;
        let at = now.saturating_sub(self.tries.idle);
        // A changed file's existing parts are found while the rest is sent.
        let bytes = before.bytes + progress.bytes_moved + progress.bytes_matched;
        let point = Point { at, files: before.files + files, bytes };
        if point.files < self.last.files || point.bytes < self.last.bytes {
            self.points.clear();
        }
        if (point.files, point.bytes) != (self.last.files, self.last.bytes) {
            self.came_at = at;
        }
        self.last = point;
        self.moved = self.tries.moved_before + progress.bytes_moved;
        if progress.bytes_to_read_again > 0 && self.reading.is_none() {
            self.reading = Some((at, progress.bytes_read_again));
        }
        if self.recent.back().is_none_or(|(last, _)| at.saturating_sub(*last) >= SAMPLE_EVERY) {
            self.recent.push_back((at, self.moved));
        }
        while self.recent.len() > 2 && at.saturating_sub(self.recent[0].0) > RATE_OVER {
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

    pub fn broke_off(&mut self, now: Duration) {
        let silent_since = self.tries.silent_since.take();
        if let Some(since) = silent_since {
            self.forget_since(since.saturating_sub(self.tries.idle));
        }
        self.tries.lost_at.get_or_insert(silent_since.unwrap_or(now));
    }

    /// Time without data counts for no rate, even before it was known as such.
    fn forget_since(&mut self, since: Duration) {
        self.points.retain(|point| point.at <= since);
        self.recent.retain(|(at, _)| *at <= since);
        self.last.at = self.last.at.min(since);
        self.came_at = self.came_at.min(since);
    }

    /// The copy broke off, or the other end is silent.
    fn stands_still(&self) -> bool {
        self.tries.lost_at.is_some() || self.tries.silent_since.is_some()
    }

    #[must_use]
    pub fn with(self, foreknown: Foreknown) -> Self {
        Self { foreknown, ..self }
    }

    pub fn limit_rate(&mut self, limit_bytes_per_s: Option<u64>) {
        self.foreknown.limit_bytes_per_s = limit_bytes_per_s;
    }

    fn limit(&self) -> Option<u64> {
        self.foreknown.limit_bytes_per_s.filter(|_| !self.foreknown.compresses)
    }

    pub fn bytes_per_s(&self) -> Option<f64> {
        if self.tries.silent_since.is_some() {
            return Some(0.0);
        }
        let (first, last) = (self.recent.front()?, self.recent.back()?);
        let span = last.0.saturating_sub(first.0);
        (span >= SAMPLE_EVERY).then(|| last.1.saturating_sub(first.1) as f64 / span.as_secs_f64())
    }

    /// `progress` are the totals added last.
    pub fn left(&mut self, now: Duration, progress: &Progress) -> Left {
        let (files, bytes) = (progress.files_left, progress.bytes_left);
        // The end is not near just because no more is known.
        let is_known = (progress.found_all || files > 0 || bytes > 0) && !self.stands_still();
        let time = if is_known { self.time_for(files, bytes) } else { None };
        let time = time.map(|time| time.max(self.time_to_read_again(progress)).max(self.least_time(bytes)));
        // Outages and pauses are no progress.
        let passed = now.saturating_sub(self.tries.idle);
        let of_time = time.map(|time| passed.as_secs_f64() / (passed + time).as_secs_f64().max(1e-3));
        let done = of_time.map(|done| done.clamp(0.0, most_done(progress))).map(|done| self.steady(done));
        // While the time is unknown, the data's share says nothing of it: the bar stands.
        let done = done.or((bytes > 0 || self.peak > 0.0).then_some(self.shown));
        Left { files, bytes, time, done, is_rough: !progress.found_all }
    }

    /// A bar waits until the copy has come so far; only if wrong by much, it runs back by little.
    fn steady(&mut self, done: f64) -> f64 {
        self.peak = self.peak.max(done);
        if done > self.shown || self.shown - done > RUNS_BACK {
            self.shown = done.max(self.peak - RUNS_BACK);
        }
        self.shown
    }

    /// A chunk counts when whole, and a rate limit delays it. Time with one under way is no silence.
    fn in_a_chunk(&self) -> Duration {
        let Some(limit) = self.limit() else { return Duration::ZERO };
        let longest = Duration::from_secs_f64(UNDER_WAY_BYTES / limit.max(1) as f64).min(RATE_OVER);
        self.last.at.saturating_sub(self.came_at).min(longest)
    }

    /// The rate limit's least time. Of changed files a part is sent, as large as so far.
    fn least_time(&self, bytes: u64) -> Duration {
        let Some(limit) = self.limit() else { return Duration::ZERO };
        let sent = if self.last.bytes > 0 { self.moved as f64 / self.last.bytes as f64 } else { 1.0 };
        Duration::from_secs_f64((bytes as f64 * sent / limit.max(1) as f64).min(LONGEST_S))
    }

    fn time_for(&self, files: u64, bytes: u64) -> Option<Duration> {
        let per_file = self.bytes_per_file();
        let first = self.points.front()?;
        if self.last.at.saturating_sub(first.at) < SOONEST {
            return None;
        }
        // The copy's last part tells more than its start or a moment; the whole tells most, if nothing changed.
        let changed = LAST_PARTS.into_iter().find_map(|part| {
            let span = self.last.at.saturating_sub(first.at).mul_f64(part).max(RATE_OVER);
            let split = self.points.iter().rposition(|point| self.last.at.saturating_sub(point.at) >= span)?;
            if self.has_changed(split, per_file) { self.points.get(split) } else { None }
        });
        let from = changed.unwrap_or(first);
        let last = Point { at: self.last.at.saturating_sub(self.in_a_chunk()), ..self.last };
        let rate = last.units_per_s(from, per_file).or_else(|| last.units_per_s(first, per_file))?;
        let seconds = (bytes as f64 + files as f64 * per_file) / rate;
        // A longer time means that the copy stands still.
        (seconds < LONGEST_S).then(|| Duration::from_secs_f64(seconds))
    }

    /// Whether the rates before and since this point differ by more than they vary.
    fn has_changed(&self, split: usize, per_file: f64) -> bool {
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
        let (before, after) = (mean(0, split + 1), mean(split, self.points.len()));
        (before.0 - after.0).powi(2) > FAR_APART * FAR_APART * (before.1 + after.1)
    }

    /// The target reads earlier runs' data, beside what comes.
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
        let expected_bytes = self.expected_bytes_per_file();
        if self.foreknown.limit_bytes_per_s.is_some() && self.last.is_of_small_files() {
            // Their cost beyond the limit is known, and small files alone tell nothing of others.
            return expected_bytes;
        }
        let expected = unevenness(expected_bytes);
        let best = PER_FILE.into_iter().map(|bytes| (bytes, unevenness(bytes))).min_by(|a, b| a.1.total_cmp(&b.1));
        match best {
            Some((bytes, least)) if least < expected * CLEARLY => bytes,
            _ => expected_bytes,
        }
    }

    /// The figure before judging how even the copy runs.
    ///
    /// A limit slows bytes, not files. Small files show their own cost: they take longer than their bytes would at the
    /// limit.
    fn expected_bytes_per_file(&self) -> f64 {
        let usual = self.foreknown.usual.unwrap_or(USUAL);
        let Some(limit) = self.limit() else { return usual.bytes_per_file };
        let bytes_per_s = usual.bytes_per_s.min(limit as f64);
        self.cost_of_small_files(bytes_per_s).unwrap_or(usual.bytes_per_file * bytes_per_s / usual.bytes_per_s)
    }

    /// Small files' cost, in bytes at this rate; `None`: too few came.
    fn cost_of_small_files(&self, bytes_per_s: f64) -> Option<f64> {
        let mut sum = Point::default();
        let mut from = *self.points.front()?;
        for to in self.points.iter().skip(1).chain([&self.last]) {
            // Outcomes come later than bytes, many at once.
            if to.files > from.files {
                let part = to.since(&from);
                if part.is_of_small_files() {
                    sum = Point { at: sum.at + part.at, files: sum.files + part.files, bytes: sum.bytes + part.bytes };
                }
                from = *to;
            }
        }
        let bytes_in_time = sum.at.as_secs_f64() * bytes_per_s - sum.bytes as f64;
        (sum.files >= FEWEST_SMALL).then(|| bytes_in_time.max(0.0) / sum.files as f64)
    }
}

/// A bar is not much further than the listing, which may find more.
fn most_done(progress: &Progress) -> f64 {
    match progress.seen_ppm {
        0 => 1.0,
        _ if progress.found_all => 1.0,
        ppm => (f64::from(ppm) / 1e6 + BEFORE_THE_LISTING).min(1.0),
    }
}

impl Point {
    fn since(&self, from: &Self) -> Self {
        let (files, bytes) = (self.files.saturating_sub(from.files), self.bytes.saturating_sub(from.bytes));
        Self { at: self.at.saturating_sub(from.at), files, bytes }
    }

    fn is_of_small_files(&self) -> bool {
        self.bytes <= self.files.saturating_mul(SMALL_BYTES)
    }

    fn units_per_s(&self, from: &Self, per_file: f64) -> Option<f64> {
        let seconds = self.at.saturating_sub(from.at).as_secs_f64();
        let units =
            self.bytes.saturating_sub(from.bytes) as f64 + self.files.saturating_sub(from.files) as f64 * per_file;
        (seconds > 0.0 && units > 0.0).then(|| units / seconds)
    }
}

/// Calm, and short enough to see a change. With the next constant, at most 51 samples.
const RATE_OVER: Duration = Duration::from_secs(5);
const SAMPLE_EVERY: Duration = Duration::from_millis(100);

/// At first buffers fill, and data is verified only in whole chunks.
const SOONEST: Duration = Duration::from_secs(1);

/// The points' distance. With too many, every second goes and the spacing doubles.
const FIRST_SPACING: Duration = Duration::from_millis(500);
const MAX_POINTS: usize = 128;

/// Cost on most hosts: 50 microseconds at 1 GB/s.
const USUAL: Usual = Usual { bytes_per_s: 1e9, bytes_per_file: 49_152.0 };
/// A file so small costs itself, and hardly anything for its bytes.
const SMALL_BYTES: u64 = 64 << 10;
/// Below so many files, their time tells little of the cost of one.
const FEWEST_SMALL: u64 = 50;
/// Other costs: from a local disk to a far one with slow names.
const PER_FILE: [f64; 6] = [1_024.0, 8_192.0, 196_608.0, 786_432.0, 3_145_728.0, 12_582_912.0];
/// Below so many rates all figures look alike.
const FEWEST_RATES: f64 = 6.0;
/// The ratio by which another figure must make the copy more even.
const CLEARLY: f64 = 0.95;

/// A cut in halves misses changes soon after the start, and late ones.
const LAST_PARTS: [f64; 2] = [0.5, 0.75];

/// Standard errors between means of different rates.
const FAR_APART: f64 = 4.0;

/// A bar wrong by more is set right, and runs back by so much at most.
const RUNS_BACK: f64 = 0.05;

/// Two of the smallest chunks.
const UNDER_WAY_BYTES: f64 = 8_388_608.0;

/// The listing's share is one of directories, not quite of time.
const BEFORE_THE_LISTING: f64 = 0.02;

const LONGEST_S: f64 = 100.0 * 86_400.0;

#[cfg(test)]
mod outages;
#[cfg(test)]
mod ten_jobs;

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    /// `--rate 5MB`: five thousand small files of half a millisecond each, then one of 300 MB.
    #[test]
    fn under_a_rate_limit_a_large_file_that_waits_counts_from_the_beginning() {
        let of_another_path = Usual { bytes_per_s: 1e9, bytes_per_file: 400_000.0 };
        for usual in [None, Some(of_another_path)] {
            let mut outlook =
                Outlook::default().with(Foreknown { limit_bytes_per_s: Some(5_000_000), compresses: false, usual });
            let mut progress =
                Progress { files_found: 5_001, bytes_found: 305_000_000, found_all: true, ..Progress::default() };
            let whole = 2.5 + 60.0;
            for tenth in 1..=620 {
                let at = f64::from(tenth) / 10.0;
                let large_chunks = ((at - 2.5).max(0.0) * 5e6 / 4_194_304.0) as u64;
                progress.files_done = ((at * 2_000.0) as u64).min(5_000);
                progress.bytes_moved = progress.files_done * 1_000 + (large_chunks * 4_194_304).min(300_000_000);
                let progress = with_left(progress);
                outlook.add(s(at), &progress);
                let left = outlook.left(s(at), &progress);
                if at > 1.1 {
                    let (time, done) = (left.time.unwrap().as_secs_f64(), left.done.unwrap());
                    assert!((time - (whole - at)).abs() < 0.15 * whole, "at {at}: {time}, {usual:?}");
                    assert!((done - at / whole).abs() < 0.05, "at {at}: {done}, {usual:?}");
                }
            }
        }
    }

    #[test]
    fn the_limit_of_the_moment_is_the_floor_of_the_time_left() {
        let mut outlook =
            Outlook::default().with(Foreknown { limit_bytes_per_s: Some(1_000_000), ..Foreknown::default() });
        let progress = Progress { files_found: 1, bytes_found: 100_000_000, found_all: true, ..Progress::default() };
        let left = |outlook: &mut Outlook, at: f64| {
            let progress = with_left(Progress { bytes_moved: (at * 1e6) as u64, ..progress });
            outlook.add(s(at), &progress);
            outlook.left(s(at), &progress).time.map_or(0.0, |time| time.as_secs_f64())
        };
        for at in 1..50 {
            left(&mut outlook, f64::from(at));
        }
        assert!((left(&mut outlook, 50.0) - 50.0).abs() < 5.0);
        outlook.limit_rate(Some(100_000));
        assert!(left(&mut outlook, 51.0) > 480.0, "the evening has come");
        outlook.limit_rate(None);
        assert!(left(&mut outlook, 52.0) < 60.0);
    }

    #[test]
    fn a_bar_runs_back_by_five_points_at_most_and_the_time_left_is_true_all_the_same() {
        let mut outlook = Outlook::default();
        let mut peak = 0.0_f64;
        for tenth in 0..400_u64 {
            let bytes_moved = if tenth <= 50 { tenth * 10 } else { 500 + (tenth - 50) } * 1_000_000;
            let progress = Progress {
                files_found: 1,
                bytes_found: 1_000_000_000,
                bytes_moved,
                found_all: true,
                ..Progress::default()
            };
            let progress = with_left(progress);
            outlook.add(s(tenth as f64 / 10.0), &progress);
            let left = outlook.left(s(tenth as f64 / 10.0), &progress);
            let done = left.done.unwrap();
            assert!(done > peak - RUNS_BACK - 1e-9, "{tenth}: {done} after {peak}");
            peak = peak.max(done);
            if tenth > 200 {
                let truth = (1_000_000_000 - bytes_moved) as f64 / 1e7;
                assert!((left.time.unwrap().as_secs_f64() / truth - 1.0).abs() < 0.2, "{tenth}: {left:?}, {truth}");
            }
        }
    }

    #[test]
    fn what_stood_there_and_a_listing_that_has_only_begun_are_no_bar() {
        let mut outlook = Outlook::default();
        let mut resumed =
            Progress { files_found: 1, bytes_found: 1_000, bytes_kept: 900, found_all: true, ..Progress::default() };
        for tenth in 0..20_u64 {
            resumed.bytes_moved = tenth / 6;
            outlook.add(s(tenth as f64 / 10.0), &with_left(resumed));
            let done = outlook.left(s(tenth as f64 / 10.0), &with_left(resumed)).done.unwrap_or(0.0);
            assert!(done < 0.1, "{tenth}: {done}");
        }
        let mut outlook = Outlook::default();
        for tenth in 0..20_u64 {
            let (files_found, files_done) = (tenth * 100 + 1, tenth * 100);
            let listed = Progress { files_found, files_done, seen_ppm: 50_000, ..Progress::default() };
            outlook.add(s(tenth as f64 / 10.0), &with_left(listed));
            let left = outlook.left(s(tenth as f64 / 10.0), &with_left(listed));
            assert!(left.done.unwrap_or(0.0) <= 0.07 + 1e-9, "{left:?}");
        }
        let mut outlook = Outlook::default();
        for tenth in 0..20_u64 {
            let stream = Progress { bytes_moved: tenth * 1_000, bytes_found: tenth * 1_000, ..Progress::default() };
            outlook.add(s(tenth as f64 / 10.0), &stream);
            let left = outlook.left(s(tenth as f64 / 10.0), &stream);
            assert_eq!((left.time, left.done), (None, None));
        }
    }

    fn with_left(progress: Progress) -> Progress {
        let files_left = progress.files_found - progress.files_done;
        let bytes_left = progress.bytes_found.saturating_sub(progress.bytes_moved + progress.bytes_kept);
        Progress { files_left, bytes_left, ..progress }
    }

    /// At each tenth of the copy's time: estimated and true time left, in seconds.
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

    /// The largest error from this tenth on, as a share of the whole time.
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
        // 40 s of small files at 100 us each, then 60 s of data at 1 GB/s.
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
        // 5 ms a file, and 1 GB/s; the mix changes each second.
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
