//! Keeps observed round trips and timeouts of network classes, for `haul networks --observed`.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use haul_engine::rto_floor::{self, Seen};
pub use haul_engine::rto_floor::{BestFloor, Why};
use haul_net::policy::observed::{MAX_OBSERVED_CLASSES, Observed, ObservedClasses, STEPS, Steps};
use serde::{Deserialize, Serialize};

use super::own_files;
use super::surroundings::Surroundings;

/// 64 classes with three lists of 96 numbers of at most eight digits are 166 KiB.
const MAX_BYTES: u64 = 1 << 20;

/// Bounds read counts: 256 timeouts of each of a million connections. Times have at most 2^28 us, so for two such counts in
/// each of [`STEPS`] the sum of count times time, 96 x 2^57, stays within 64 bits.
const COUNT_MAX: u64 = 1 << 28;
/// Floors that we write are shorter than these 268 s.
const FLOOR_US_MAX: u32 = 1 << 28;

/// A file of classes allows at most 32 bytes.
const MAX_NAME_BYTES: usize = 64;

/// The file's path, if it has a place.
pub fn file(surroundings: &Surroundings) -> Option<PathBuf> {
    Some(surroundings.state.as_ref()?.join("networks-observed.json"))
}

/// Adds observations.
pub fn add(path: &Path, new: &ObservedClasses) -> io::Result<()> {
    let mut kept = read(path).unwrap_or_default();
    for (name, observed) in new {
        if kept.contains_key(name) || kept.len() < MAX_OBSERVED_CLASSES {
            kept.entry(name.clone()).or_default().merge(observed);
        }
    }
    own_files::write_whole(path, &written(&kept)?)
}

fn written(kept: &ObservedClasses) -> io::Result<Vec<u8>> {
    let lines: BTreeMap<&String, Line> = kept.iter().map(|(name, observed)| (name, Line::of(observed))).collect();
    Ok(serde_json::to_vec(&lines)?)
}

fn read(path: &Path) -> io::Result<ObservedClasses> {
    match own_files::read(path, MAX_BYTES) {
        Ok(text) => parse(&text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(ObservedClasses::new()),
        Err(error) => Err(error),
    }
}

fn parse(text: &[u8]) -> io::Result<ObservedClasses> {
    let lines: BTreeMap<String, Line> = serde_json::from_slice(text)?;
    let is_sane = |name: &String| name.len() <= MAX_NAME_BYTES;
    let lines = lines.into_iter().filter(|(name, _)| is_sane(name)).take(MAX_OBSERVED_CLASSES);
    Ok(lines.map(|(name, line)| (name, line.meant())).collect())
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Line {
    connections: u64,
    round_trips: Vec<u64>,
    lateness: Vec<u64>,
    timeouts: Vec<u64>,
    recoveries: u64,
    recovery_ms: u64,
    spurious: u64,
    sent_bytes: u64,
    floor_us: Option<u32>,
}

impl Line {
    fn of(observed: &Observed) -> Self {
        let Observed { connections, recoveries, recovery_ms, spurious, sent_bytes, floor_us, .. } = *observed;
        let [round_trips, lateness, timeouts] =
            [&observed.round_trips, &observed.lateness, &observed.timeouts].map(|steps| steps.0.clone());
        Self { connections, round_trips, lateness, timeouts, recoveries, recovery_ms, spurious, sent_bytes, floor_us }
    }

    fn meant(self) -> Observed {
        let bounded = |count: u64| count.min(COUNT_MAX);
        let steps = |counts: Vec<u64>| match counts.len() == STEPS {
            true => Steps(counts.into_iter().map(bounded).collect()),
            false => Steps::default(),
        };
        Observed {
            connections: bounded(self.connections),
            round_trips: steps(self.round_trips),
            lateness: steps(self.lateness),
            timeouts: steps(self.timeouts),
            recoveries: bounded(self.recoveries),
            recovery_ms: self.recovery_ms,
            spurious: bounded(self.spurious),
            sent_bytes: self.sent_bytes,
            floor_us: self.floor_us.filter(|floor_us| *floor_us <= FLOOR_US_MAX),
        }
    }
}

/// Checks a write, a sum and the display, for the fuzz targets.
#[cfg(feature = "testing")]
pub fn survive_the_disk(text: &[u8]) {
    let Ok(kept) = parse(text) else { return };
    let again = parse(&written(&kept).expect("what was read can be written")).expect("it is ours");
    assert_eq!(again, kept);
    for (name, observed) in kept {
        let mut twice = observed.clone();
        twice.merge(&observed);
        assert!(shown(name, &twice).connections >= observed.connections.min(1));
    }
}

/// Observations, for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedClass {
    /// The name.
    pub name: String,
    /// Ended connections.
    pub connections: u64,
    /// Median, nine tenths and 99 of 100 round trips.
    pub rtt_us: [u32; 3],
    /// Each time, with connections above the time before.
    pub round_trips: Vec<(u32, u64)>,
    /// Sent bytes.
    pub sent_bytes: u64,
    /// Timeouts.
    pub timeouts: u64,
    /// Times of sending again until all arrived.
    pub recoveries: u64,
    /// Milliseconds of recoveries, from the first timeout.
    pub recovery_ms: u64,
    /// Segments sent again in vain.
    pub spurious: u64,
    /// Floor in effect.
    pub floor_us: Option<u32>,
    /// Best floor; `None`: too little seen.
    pub best: Option<BestFloor>,
}

/// The user's observations.
pub fn observed(surroundings: &Surroundings) -> io::Result<Vec<ObservedClass>> {
    let Some(file) = file(surroundings) else { return Ok(Vec::new()) };
    Ok(read(&file)?.into_iter().map(|(name, observed)| shown(name, &observed)).collect())
}

fn shown(name: String, observed: &Observed) -> ObservedClass {
    let [round_trips, lateness, timeouts] =
        [&observed.round_trips, &observed.lateness, &observed.timeouts].map(|steps| steps.counts().collect::<Vec<_>>());
    let rtt_us = [500, 900, 990].map(|part| rto_floor::permille(&round_trips, observed.round_trips.total(), part));
    let best = observed.floor_us.and_then(|floor_us| {
        let spurious = observed.spurious;
        rto_floor::best(&Seen { floor_us, lateness: &lateness, timeouts: &timeouts, spurious })
    });
    ObservedClass {
        name,
        connections: observed.connections,
        rtt_us,
        round_trips,
        sent_bytes: observed.sent_bytes,
        timeouts: observed.timeouts.total(),
        recoveries: observed.recoveries,
        recovery_ms: observed.recovery_ms,
        spurious: observed.spurious,
        floor_us: observed.floor_us,
        best,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_added_is_kept_with_what_was_there_and_read_with_the_best_floor() {
        let dir = tempfile::tempdir().unwrap();
        let surroundings = Surroundings { state: Some(dir.path().into()), ..Surroundings::default() };
        assert_eq!(observed(&surroundings).unwrap(), []);
        let mut class = Observed { connections: 20, recovery_ms: 5, floor_us: Some(200_000), ..Observed::default() };
        class.round_trips.add(1_000, 20);
        class.lateness.add(900, 20);
        class.timeouts.add(900, 3);
        let new = ObservedClasses::from([("inside".to_owned(), class)]);
        let path = file(&surroundings).unwrap();
        (0..2).for_each(|_| add(&path, &new).unwrap());
        let seen = observed(&surroundings).unwrap();
        let [inside] = &seen[..] else { panic!("{seen:?}") };
        assert_eq!((inside.connections, inside.timeouts, inside.recovery_ms), (40, 6, 10));
        assert!((1_000..1_200).contains(&inside.rtt_us[0]), "{inside:?}");
        let best = inside.best.unwrap();
        assert_eq!((best.floor_us, best.waited_us, best.would_wait_us), (50_000, 1_200_000, 300_000));
    }

    #[test]
    fn a_file_that_is_no_such_file_is_begun_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("networks-observed.json");
        for text in ["", "{", "[]", "{\"a\":{\"timeouts\":[1,2]}}"] {
            fs::write(&path, text).unwrap();
            add(&path, &ObservedClasses::from([("b".to_owned(), Observed::default())])).unwrap();
            assert!(read(&path).unwrap().contains_key("b"), "{text}");
        }
    }

    #[test]
    fn counts_that_no_file_of_ours_has_are_read_with_a_bound_and_can_be_added_to_and_shown() {
        let dir = tempfile::tempdir().unwrap();
        let surroundings = Surroundings { state: Some(dir.path().into()), ..Surroundings::default() };
        let (path, most) = (file(&surroundings).unwrap(), u64::MAX);
        let steps = vec![most.to_string(); STEPS].join(",");
        let lists = ["round_trips", "lateness", "timeouts"].map(|name| format!("\"{name}\":[{steps}],")).concat();
        let numbers = ["connections", "recoveries", "recovery_ms", "spurious", "sent_bytes"];
        let numbers = numbers.map(|name| format!("\"{name}\":{most},")).concat();
        for floor_us in [0, 200_000, FLOOR_US_MAX, u32::MAX] {
            fs::write(&path, format!("{{\"a\":{{{lists}{numbers}\"floor_us\":{floor_us}}}}}")).unwrap();
            let again = read(&path).unwrap();
            (0..2).for_each(|_| add(&path, &again).unwrap());
            let seen = observed(&surroundings).unwrap();
            assert_eq!((seen.len(), seen[0].best.is_some()), (1, floor_us <= FLOOR_US_MAX), "{floor_us}");
        }
    }
}
