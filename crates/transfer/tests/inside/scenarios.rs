//! Tests whole jobs in one process, over lanes that misbehave.
//!
//! A device between socket pairs cuts or changes what passes. They are clear, so a changed byte reaches the hashes instead of
//! failing in TLS.

use std::io::{Read, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use haul_channel::reporter::{Ends, Watch};
use haul_copy::receiver::{Bounds, CHECKPOINT_BYTES};
use haul_copy::sender::early_look::EarlyLook;
use haul_engine::attribute::Cause;
use haul_job::{
    Carriage, Endpoint, Error, Event, Fault, Here, Job, Observer, Place, Report, Selection, SshOptions, Subject,
};
use haul_kept::surroundings::Surroundings;
use haul_net::{Identity, Stream};
use haul_pump::SendRoute;
use haul_transfer::here::{self, LanePairs};
use proptest::prelude::*;

/// Contents of one seed begin alike. BLAKE3 makes them, which tests have optimised: a loop over bytes took a third of their time.
pub fn random(seed: u64, bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut data);
    data
}

/// A temporary directory with a source tree.
pub struct Bench {
    root: PathBuf,
    _directory: Option<tempfile::TempDir>,
}

#[derive(Clone, Copy, Debug)]
pub enum Lane {
    Good,
    Cut(usize),
    Flip(usize),
    /// The lane is dead for the sender, and never ends for the receiver.
    Forgotten,
    Hangs(usize, Duration),
}

#[derive(Default)]
pub struct Witness {
    pub events: Mutex<Vec<Event>>,
    interrupt_at_bytes: Option<u64>,
    interrupted: AtomicBool,
}

impl Witness {
    pub fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }
}

impl Observer for Witness {
    fn on_event(&self, event: &Event) {
        if let (Event::Progress(progress), Some(limit)) = (event, self.interrupt_at_bytes)
            && progress.bytes_moved >= limit
        {
            self.interrupted.store(true, Ordering::Relaxed);
        }
        self.events.lock().unwrap().push(event.clone());
    }

    fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

impl Bench {
    pub fn new() -> Self {
        // These tests are not about a medium, so memory serves.
        let memory = Path::new("/dev/shm");
        Self::within(if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap())
    }

    /// Uses a disk with direct I/O, if there is one: of the temporary directory, or of the program itself.
    pub fn on_disk() -> Self {
        let program = std::env::current_exe().unwrap();
        let places = [std::env::temp_dir(), program.parent().unwrap().to_owned()];
        let is_disk = |place: &&PathBuf| {
            tempfile::tempfile_in(place).is_ok_and(|file| haul_sys::direct::is_possible(file.as_fd()))
        };
        let place = places.iter().find(is_disk).unwrap_or(&places[0]);
        Self::within(tempfile::tempdir_in(place).unwrap())
    }

    fn within(directory: tempfile::TempDir) -> Self {
        std::fs::create_dir(directory.path().join("from")).unwrap();
        Self { root: directory.path().to_owned(), _directory: Some(directory) }
    }

    pub fn existing(root: &Path) -> Self {
        Self { root: root.to_owned(), _directory: None }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn with_tree() -> Self {
        let bench = Self::new();
        bench.write("large", 21_000_001);
        for number in 0..200 {
            bench.write(&format!("d{}/small{number}", number % 7), number * 37);
        }
        bench
    }

    pub fn from(&self) -> PathBuf {
        self.root.join("from")
    }

    pub fn to(&self) -> PathBuf {
        self.root.join("to")
    }

    pub fn write(&self, name: &str, size: usize) {
        let path = self.from().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, random(0, size)).unwrap();
    }

    pub fn job(&self) -> Job {
        let endpoint = |path: PathBuf| {
            let mut path = path.into_os_string().into_encoded_bytes();
            path.push(b'/');
            Endpoint { place: Place::Here(Here::Disk), path }
        };
        Job {
            movers: Vec::new(),
            files_from: None,
            sources: vec![endpoint(self.from())],
            target: endpoint(self.to()),
            selection: Selection::default(),
            carriage: Carriage { timeout: Duration::from_secs(20), ..Carriage::default() },
            ssh: SshOptions::default(),
        }
    }

    fn copy_over(&self, lanes: &[Lane]) -> Result<Report, Error> {
        let watch = Arc::new(Watch::new(Arc::new(Witness::default())));
        let lanes: Vec<_> = lanes.iter().map(|lane| lane.pair()).collect();
        let ends = here_over(&self.job(), &watch, false, lanes, checkpoints_every(CHECKPOINT_BYTES))?;
        Ok(watch.report(&ends, Default::default(), false).unwrap())
    }

    #[track_caller]
    pub fn assert_equal(&self) {
        let (from, to) = (files(&self.from()), files(&self.to()));
        let only = |one: &[(PathBuf, String)], other: &[(PathBuf, String)]| -> Vec<(PathBuf, String)> {
            one.iter().filter(|file| !other.contains(file)).cloned().collect()
        };
        assert_eq!((only(&from, &to), only(&to, &from)), (Vec::new(), Vec::new()), "what the other side lacks");
    }
}

pub fn checkpoints_every(checkpoint_bytes: u64) -> Bounds {
    Bounds { checkpoint_bytes, ..Bounds::default() }
}

pub trait IntoBounds {
    fn into_bounds(self) -> Bounds;
}

impl IntoBounds for Bounds {
    fn into_bounds(self) -> Bounds {
        self
    }
}

impl IntoBounds for u64 {
    fn into_bounds(self) -> Bounds {
        checkpoints_every(self)
    }
}

pub fn here_over(
    job: &Job,
    watch: &Arc<Watch>,
    hash_kept: bool,
    lanes: impl Into<LanePairs>,
    bounds: Bounds,
) -> Result<Ends, Error> {
    here_after(None, job, watch, hash_kept, lanes, bounds)
}

pub fn here_after(
    early: Option<EarlyLook>,
    job: &Job,
    watch: &Arc<Watch>,
    hash_kept: bool,
    lanes: impl Into<LanePairs>,
    bounds: Bounds,
) -> Result<Ends, Error> {
    here::here_watched(
        early,
        job,
        &Surroundings::default(),
        [watch, &Arc::new(Watch::silent())],
        hash_kept,
        lanes,
        bounds,
    )
}

pub fn run_here(job: &Job, lanes: u16, bounds: impl IntoBounds) -> Result<Report, Error> {
    run_watched(job, lanes, bounds, &Arc::default())
}

pub fn run_watched(job: &Job, lanes: u16, bounds: impl IntoBounds, witness: &Arc<Witness>) -> Result<Report, Error> {
    let watch = Arc::new(Watch::new(Arc::clone(witness) as Arc<dyn Observer>));
    let lanes: Vec<_> = (0..lanes).map(|_| Stream::plain_pair().unwrap()).collect();
    let ends = here_over(job, &watch, false, LanePairs::handing_over(lanes), bounds.into_bounds())?;
    Ok(watch.report(&ends, Default::default(), false).unwrap())
}

impl Lane {
    pub fn pair(self) -> (Stream, Stream) {
        if let Lane::Good = self {
            return Stream::plain_pair().unwrap();
        }
        let (sender, near) = Stream::plain_pair().unwrap();
        let (far, receiver) = Stream::plain_pair().unwrap();
        if let Lane::Forgotten = self {
            std::thread::spawn(move || {
                drop(near);
                // The thread holds the other end as long as the test process lives.
                let _far = far;
                loop {
                    std::thread::park();
                }
            });
            return (sender, receiver);
        }
        std::thread::spawn(move || self.pass(near, far));
        (sender, receiver)
    }

    fn pass(self, mut from: Stream, mut to: Stream) {
        let mut block = vec![0; 10_000];
        let mut passed = 0;
        loop {
            let read = match from.read(&mut block) {
                Ok(0) | Err(_) => return,
                Ok(read) => read,
            };
            let mut keep = read;
            match self {
                Lane::Cut(at) if at < passed + read => keep = at.saturating_sub(passed),
                Lane::Hangs(at, stands) if at < passed + read => return std::thread::sleep(stands),
                Lane::Flip(at) if (passed..passed + read).contains(&at) => block[at - passed] ^= 0x20,
                Lane::Good | Lane::Cut(_) | Lane::Flip(_) | Lane::Forgotten | Lane::Hangs(..) => {}
            }
            if to.write_all(&block[..keep]).is_err() || keep < read {
                return;
            }
            passed += read;
        }
    }
}

/// Lists the BLAKE3 of files and the targets of links, in order: short enough to be read when two trees differ.
pub fn files(root: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_symlink() {
                let leads_to = std::fs::read_link(&path).unwrap();
                found.push((path.strip_prefix(root).unwrap().to_path_buf(), format!("-> {}", leads_to.display())));
            } else if path.is_dir() {
                open.push(path);
            } else {
                let content = blake3::hash(&std::fs::read(&path).unwrap());
                found.push((path.strip_prefix(root).unwrap().to_path_buf(), content.to_string()));
            }
        }
    }
    found.sort();
    found
}

fn run(source: Endpoint, target: Endpoint, change: impl FnOnce(&mut Job)) -> Result<Report, Error> {
    let selection = Selection::default();
    let mut job = Job {
        movers: Vec::new(),
        files_from: None,
        sources: vec![source],
        target,
        selection,
        carriage: Carriage { timeout: Duration::from_secs(20), ..Carriage::default() },
        ssh: SshOptions::default(),
    };
    change(&mut job);
    haul_transfer::run(&job, &Surroundings::default(), Arc::new(Witness::default()))
}

fn made_up(place: Place) -> Endpoint {
    Endpoint { place, path: Vec::new() }
}

const ZEROS: u64 = 21_000_001;

pub fn copied_by(route: SendRoute, bench: &Bench, lanes: Vec<(Stream, Stream)>) -> (Report, Vec<Event>) {
    let mut job = bench.job();
    job.carriage.route = Some(route);
    let witness = Arc::new(Witness::default());
    let watch = Arc::new(Watch::new(Arc::clone(&witness) as Arc<dyn Observer>));
    let ends = here_over(&job, &watch, false, lanes, checkpoints_every(CHECKPOINT_BYTES)).unwrap();
    let report = watch.report(&ends, Default::default(), false).unwrap();
    let events = witness.events.lock().unwrap().clone();
    (report, events)
}

pub fn warnings(events: &[Event]) -> Vec<&str> {
    fn text(event: &Event) -> Option<&str> {
        match event {
            Event::Warning { text } => Some(text),
            _ => None,
        }
    }
    events.iter().filter_map(text).collect()
}

#[test]
fn every_route_copies_the_same_tree_and_finds_the_flipped_bit() {
    for (route, name) in SendRoute::ALL {
        let bench = Bench::with_tree();
        let lanes = vec![Lane::Flip(300_000).pair(), Lane::Good.pair()];
        let (report, events) = copied_by(route, &bench, lanes);
        bench.assert_equal();
        assert_eq!((report.files_moved, report.failed, report.unverified), (201, 0, 0), "{name}");
        let reason = "asked for".to_owned();
        assert!(
            events.contains(&Event::Chose { what: Subject::Route, choice: name.into(), reason }),
            "{name}: {events:?}"
        );
        if !warnings(&events).is_empty() {
            eprintln!("{name} is refused here: {:?}", warnings(&events));
        }
    }
}

#[test]
fn a_route_that_tls_refuses_is_dropped_once_for_all_lanes_and_the_copy_goes_on() {
    let bench = Bench::with_tree();
    let (_, events) = copied_by(SendRoute::Sendfile, &bench, (0..3).map(|_| encrypted()).collect());
    bench.assert_equal();
    let warnings = warnings(&events);
    assert!(warnings.len() == 1 && warnings[0].contains("sendfile") && warnings[0].contains("copy"), "{warnings:?}");
}

fn encrypted() -> (Stream, Stream) {
    let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
    let (here, there) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let ciphers = [haul_net::Cipher::Aes128Gcm];
    let server = std::thread::spawn(move || haul_net::server(far, &there, |_| true, &[haul_net::Cipher::Aes128Gcm]));
    let near = haul_net::client(near, &here, |_| true, &ciphers).unwrap().0;
    (near, server.join().unwrap().unwrap().0)
}

#[test]
fn zeros_become_a_file_that_holds_them() {
    let bench = Bench::new();
    let report = run(made_up(Place::Here(Here::Zero { bytes: ZEROS })), bench.job().target, |_| {}).unwrap();
    let got = std::fs::read(bench.to().join("zero")).unwrap();
    assert!(got.len() as u64 == ZEROS && got.iter().all(|byte| *byte == 0));
    assert_eq!((report.files_moved, report.bytes_moved), (1, ZEROS), "they travel; they are not only told");
}

#[test]
fn a_tree_that_goes_nowhere_is_verified_whole_and_nothing_is_made() {
    let bench = Bench::with_tree();
    let before = files(&bench.root);
    let report = run(bench.job().sources.remove(0), made_up(Place::Here(Here::Null)), |_| {}).unwrap();
    assert_eq!((report.files_moved, report.failed), (201, 0));
    let all = run(bench.job().sources.remove(0), bench.job().target, |_| {}).unwrap();
    assert_eq!(report.root_blake3, all.root_blake3, "every byte was hashed as in a real copy");
    std::fs::remove_dir_all(bench.to()).unwrap();
    assert_eq!(files(&bench.root), before);
}

#[test]
fn the_null_device_is_nowhere_and_not_replaced() {
    let bench = Bench::with_tree();
    let null = Endpoint { place: Place::Here(Here::Disk), path: b"/dev/null".to_vec() };
    let report = run(bench.job().sources.remove(0), null.clone(), |_| {}).unwrap();
    assert_eq!((report.files_moved, report.failed), (201, 0));
    let device = std::fs::symlink_metadata("/dev/null").unwrap().file_type();
    assert!(std::os::unix::fs::FileTypeExt::is_char_device(&device));
    let error = run(bench.job().sources.remove(0), null, |job| job.selection.delete = true).unwrap_err();
    assert_eq!((error.fault, error.hint.as_deref()), (Fault::Usage, Some("leave --delete out")));
}

#[test]
fn zeros_go_nowhere_and_a_bit_that_flips_is_still_found() {
    let job = Job {
        movers: Vec::new(),
        files_from: None,
        sources: vec![made_up(Place::Here(Here::Zero { bytes: ZEROS }))],
        target: made_up(Place::Here(Here::Null)),
        ..Bench::new().job()
    };
    let watch = Arc::new(Watch::new(Arc::new(Witness::default())));
    let lanes = vec![Lane::Flip(300_000).pair(), Lane::Good.pair()];
    let ends = here_over(&job, &watch, false, lanes, checkpoints_every(CHECKPOINT_BYTES)).unwrap();
    let report = watch.report(&ends, Default::default(), false).unwrap();
    assert_eq!((report.files_moved, report.failed, report.bytes_moved), (1, 0, ZEROS));
    assert!(ends.receiver.arrived_bytes > ZEROS, "the spoilt chunk came twice");
}

#[test]
fn what_is_made_up_stands_on_its_own_side_only() {
    let bench = Bench::new();
    let refused = |source, target, change: fn(&mut Job)| {
        let error = run(source, target, change).unwrap_err();
        assert!(error.fault == Fault::Usage && error.hint.is_some(), "{error:?}");
    };
    let zero = || made_up(Place::Here(Here::Zero { bytes: 1 }));
    refused(made_up(Place::Here(Here::Null)), bench.job().target, |_| {});
    refused(bench.job().target, zero(), |_| {});
    refused(zero(), made_up(Place::Here(Here::Null)), |job| job.selection.delete = true);
    refused(zero(), made_up(Place::Here(Here::Null)), |job| {
        job.sources.push(made_up(Place::Here(Here::Zero { bytes: 2 })))
    });
}

#[test]
fn a_lane_that_dies_hands_its_chunks_to_the_others() {
    let bench = Bench::with_tree();
    let report = bench.copy_over(&[Lane::Cut(5_000_000), Lane::Good, Lane::Cut(100)]).unwrap();
    bench.assert_equal();
    assert_eq!((report.failed, report.files_moved), (0, 201));
    // Only data that the dead lanes had under way is sent again.
    assert!(report.bytes_again <= 12_000_000, "{} bytes again", report.bytes_again);
}

/// A slow disk at the target of a far path does this, when a lane is given up near the end.
#[test]
fn lanes_that_have_nothing_left_when_another_is_lost_did_not_wait_for_work() {
    let bench = Bench::with_tree();
    let hangs = Lane::Hangs(100_000, Duration::from_secs(1));
    let report = bench.copy_over(&[Lane::Good, hangs, Lane::Good, Lane::Good, Lane::Good]).unwrap();
    bench.assert_equal();
    assert!(report.time.of(Cause::Work) < 0.5, "{:?}", report.time);
}

#[test]
fn a_lane_that_never_ends_does_not_hold_up_the_end_of_the_job() {
    let bench = Bench::with_tree();
    bench.copy_over(&[Lane::Good, Lane::Forgotten]).unwrap();
    bench.assert_equal();
}

#[test]
fn without_any_lane_left_the_job_ends_in_time_and_says_so() {
    let bench = Bench::with_tree();
    let mut job = bench.job();
    job.carriage.timeout = Duration::from_millis(300);
    let watch = Arc::new(Watch::new(Arc::new(Witness::default())));
    let lanes = vec![Lane::Cut(1_000_000).pair()];
    let error = here_over(&job, &watch, false, lanes, checkpoints_every(CHECKPOINT_BYTES)).unwrap_err();
    assert_eq!(error.fault, Fault::Timeout, "{error:?}");
    let unfinished = files(&bench.to()).into_iter().filter(|(path, _)| path.ends_with("large"));
    assert_eq!(unfinished.count(), 0, "nothing half-written under a final name");
}

#[test]
fn an_interrupted_job_goes_on_where_it_was() {
    let bench = Bench::new();
    bench.write("large", 90_000_000);
    let mut job = bench.job();
    job.carriage.rate_bytes_per_s = Some(60_000_000);
    let witness = Arc::new(Witness { interrupt_at_bytes: Some(40_000_000), ..Witness::default() });
    let error = haul_transfer::run(&job, &Surroundings::default(), witness).unwrap_err();
    assert_eq!(error.fault, Fault::Interrupted);
    assert!(!bench.to().join("large").exists());

    job.carriage.rate_bytes_per_s = None;
    let report = haul_transfer::run(&job, &Surroundings::default(), Arc::new(Witness::default())).unwrap();
    bench.assert_equal();
    // All that was verified at the interruption is in the journal.
    assert!(report.bytes_kept >= 36_000_000, "kept {}", report.bytes_kept);
    assert_eq!(report.bytes_kept + report.bytes_moved, 90_000_000);

    let again = haul_transfer::run(&job, &Surroundings::default(), Arc::new(Witness::default())).unwrap();
    assert_eq!((again.bytes_moved, again.files_kept), (0, 1));
}

#[test]
fn a_file_with_holes_has_the_hash_of_its_bytes_also_when_its_copy_was_interrupted() {
    const MIB: u64 = 1 << 20;
    let bench = Bench::new();
    bench.write("data", 20_000_000);
    let data = std::fs::read(bench.from().join("data")).unwrap();
    std::fs::remove_file(bench.from().join("data")).unwrap();
    let disk = std::fs::File::create(bench.from().join("disk")).unwrap();
    disk.set_len(400 * MIB + 7).unwrap();
    for at in [70 * MIB, 210 * MIB] {
        disk.write_all_at(&data, at).unwrap();
    }
    let blake3 = blake3::hash(&std::fs::read(bench.from().join("disk")).unwrap());
    let line = format!("{blake3}  {} disk\n", 400 * MIB + 7);

    let mut job = bench.job();
    job.carriage.rate_bytes_per_s = Some(20_000_000);
    let witness = Arc::new(Witness { interrupt_at_bytes: Some(25_000_000), ..Witness::default() });
    assert_eq!(haul_transfer::run(&job, &Surroundings::default(), witness).unwrap_err().fault, Fault::Interrupted);
    job.carriage.rate_bytes_per_s = None;
    let report = haul_transfer::run(&job, &Surroundings::default(), Arc::new(Witness::default())).unwrap();
    bench.assert_equal();
    assert_eq!(report.root_blake3, *blake3::hash(line.as_bytes()).as_bytes());
    assert!(report.bytes_moved < 20_000_000, "{} bytes: the first half was there", report.bytes_moved);
}

#[test]
fn hashes_from_before_the_lanes_are_believed_until_one_does_not_match() {
    let bench = Bench::with_tree();
    let paths = [bench.from().into_os_string().into_encoded_bytes()];
    let copy = |early| {
        let _ = std::fs::remove_dir_all(bench.to());
        let watch = Arc::new(Watch::new(Arc::new(Witness::default())));
        let lanes = vec![Stream::plain_pair().unwrap()];
        let ends =
            here_after(Some(early), &bench.job(), &watch, false, lanes, checkpoints_every(CHECKPOINT_BYTES)).unwrap();
        bench.assert_equal();
        watch.report(&ends, Default::default(), false).unwrap().bytes_again
    };
    assert_eq!(copy(EarlyLook::complete(&paths, false)), 0);
    // The repeated chunk shows that the false hash was used.
    assert_eq!(copy(EarlyLook::complete(&paths, false).falsified(3)), 1 << 20);
}

#[test]
fn a_source_that_changed_meanwhile_is_not_mixed_with_old_chunks() {
    let bench = Bench::new();
    bench.write("large", 90_000_000);
    let mut job = bench.job();
    job.carriage.rate_bytes_per_s = Some(60_000_000);
    let witness = Arc::new(Witness { interrupt_at_bytes: Some(40_000_000), ..Witness::default() });
    haul_transfer::run(&job, &Surroundings::default(), witness).unwrap_err();

    // Size and modification time stay.
    let path = bench.from().join("large");
    let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
    std::fs::write(&path, vec![7; 90_000_000]).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    job.carriage.rate_bytes_per_s = None;
    let report = haul_transfer::run(&job, &Surroundings::default(), Arc::new(Witness::default())).unwrap();
    bench.assert_equal();
    assert_eq!(report.bytes_kept, 0);
}

#[test]
fn a_source_that_changes_while_it_is_read_is_sent_once_more_as_it_is_then() {
    let open = |path: &Path| std::fs::File::options().write(true).open(path).unwrap();
    type Change = Box<dyn Fn(&Path) + Send>;
    let changes: [(&str, Change); 5] = [
        ("grows", Box::new(move |path| open(path).write_all_at(b"one more line", 60_000_000).unwrap())),
        ("shrinks", Box::new(move |path| open(path).set_len(41_000_000).unwrap())),
        ("is emptied", Box::new(move |path| open(path).set_len(0).unwrap())),
        ("is rewritten", Box::new(move |path| open(path).write_all_at(&[7; 1000], 5).unwrap())),
        (
            "is replaced by one of the same size and time",
            Box::new(|path| {
                let new = path.with_extension("new");
                let time = std::fs::metadata(path).unwrap().modified().unwrap();
                std::fs::write(&new, vec![9; 60_000_000]).unwrap();
                std::fs::File::open(&new).unwrap().set_modified(time).unwrap();
                std::fs::rename(new, path).unwrap();
            }),
        ),
    ];
    for (what, change) in changes {
        let bench = Bench::new();
        bench.write("large", 60_000_000);
        bench.write("other", 1000);
        let mut job = bench.job();
        job.carriage.rate_bytes_per_s = Some(60_000_000);
        let path = bench.from().join("large");
        let target = bench.to();
        let changer = std::thread::spawn(move || {
            while std::fs::read_dir(&target).map_or(0, Iterator::count) == 0 {
                std::thread::yield_now();
            }
            change(&path);
        });
        let report = haul_transfer::run(&job, &Surroundings::default(), Arc::new(Witness::default())).unwrap();
        changer.join().unwrap();
        assert_eq!((report.failed, report.files_moved), (0, 2), "it {what}: {:?}", report.failures);
        bench.assert_equal();
    }
}

/// A killed run's agent may finish a file that the next run has begun anew. If that run is killed as well, a part stays.
#[test]
fn a_part_beside_its_finished_file_goes_with_the_next_run() {
    let bench = Bench::with_tree();
    let run = |job: &Job| haul_transfer::run(job, &Surroundings::default(), Arc::new(Witness::default())).unwrap();
    let mut job = bench.job();
    run(&job);
    let plant = |directory: &str, name: &str| {
        let part = haul_store::part_name(name.as_bytes());
        let path = bench.to().join(directory).join(std::str::from_utf8(&part).unwrap());
        std::fs::write(path, b"half").unwrap();
    };
    plant("", "large");
    plant("d3", "small3");
    let modified = || std::fs::metadata(bench.to().join("d3")).unwrap().modified().unwrap();
    let before = modified();
    job.selection.dry_run = true;
    run(&job);
    assert_eq!(files(&bench.to()).len(), 203, "a dry run removes nothing");
    job.selection.dry_run = false;
    let report = run(&job);
    bench.assert_equal();
    assert_eq!((report.files_kept, report.files_moved, report.failed), (201, 0, 0));
    let source = std::fs::metadata(bench.from().join("d3")).unwrap().modified().unwrap();
    assert_eq!(modified(), source, "the time of the directory is set after the removal, not {before:?}");

    // Single files stand in a target without an end in the manifest: one with a new name, or several.
    let large = Endpoint {
        place: Place::Here(Here::Disk),
        path: bench.from().join("large").into_os_string().into_encoded_bytes(),
    };
    plant("", "large");
    let target = Endpoint { path: bench.to().join("large").into_os_string().into_encoded_bytes(), ..large.clone() };
    run(&Job { sources: vec![large.clone()], target, ..bench.job() });
    bench.assert_equal();
    bench.write("second", 100);
    let second = Endpoint { path: bench.from().join("second").into_os_string().into_encoded_bytes(), ..large.clone() };
    plant("", "large");
    plant("", "second");
    run(&Job { sources: vec![large, second], ..bench.job() });
    bench.assert_equal();
}

#[test]
fn a_dry_run_changes_nothing_and_says_what_would_be_done() {
    let bench = Bench::with_tree();
    let mut job = bench.job();
    job.selection.dry_run = true;
    let report = haul_transfer::run(&job, &Surroundings::default(), Arc::new(Witness::default())).unwrap();
    assert!(!bench.to().exists());
    assert_eq!(report.files_moved, 201);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// A flipped bit in data costs a chunk. In a header it costs the lane, or the job when nothing moves any more (TLS lanes
    /// end at once).
    #[test]
    fn no_flipped_bit_gets_into_a_file(at in prop_oneof![0usize..300, 0usize..12_000_000], compress in any::<bool>()) {
        let bench = Bench::with_tree();
        let mut job = bench.job();
        job.carriage.timeout = Duration::from_millis(500);
        job.carriage.compress = compress;
        if compress {
            // Compresses to about the half, so less passes each lane.
            let data: Vec<u8> = std::fs::read(bench.from().join("large")).unwrap().iter().map(|byte| byte & 0x0f).collect();
            std::fs::write(bench.from().join("large"), data).unwrap();
        }
        let at = if compress { at / 3 } else { at };
        let watch = Arc::new(Watch::new(Arc::new(Witness::default())));
        let lanes = vec![Lane::Flip(at).pair(), Lane::Good.pair()];
        match here_over(&job, &watch, false, lanes, checkpoints_every(CHECKPOINT_BYTES)) {
            Ok(_) => bench.assert_equal(),
            Err(error) => {
                prop_assert_eq!(error.fault, Fault::Timeout, "{:?}", error);
                let right = files(&bench.from());
                let wrong: Vec<PathBuf> = files(&bench.to())
                    .into_iter()
                    .filter(|file| !is_part(&file.0) && !right.contains(file))
                    .map(|(path, _)| path)
                    .collect();
                prop_assert!(wrong.is_empty(), "{:?}", wrong);
            }
        }
    }
}

pub fn is_part(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".haul-"))
}
