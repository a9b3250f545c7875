//! Kills a small job by SIGKILL at every operation, one side of it or both at once, and runs the same command again.
//!
//! A child process kills itself before operation n. The test takes every so many operations; `HAUL_SWEEP=full` takes them all.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use haul_engine::journal;
use haul_job::Job;
use haul_net::Stream;
use haul_store::WriteRoute;
use haul_sys::intercept::{Call, Stopped, Verdict, under};
use rustix::process::Signal;

use crate::past_cache::disk;
use crate::scenarios::{Bench, files, is_part, run_here};
use haul_channel::channel::{Channel, Events, LaneEvent, PING_EVERY, SessionEvent};
use haul_channel::convert;
use haul_channel::lane_threads::NoKeeper;
use haul_channel::reporter::Watch;
use haul_channel::role_context::RoleContext;
use haul_copy::receiver::{self, Bounds, ReceiverJob, Target};
use haul_copy::sender::{self, SenderJob, Sources};
use haul_kept::class_policy::Permits;
use haul_kept::faults;
use haul_kept::surroundings::Surroundings;

const OPERATIONS: [Call; 12] = [
    Call::Open,
    Call::Read,
    Call::Write,
    Call::Flush,
    Call::Rename,
    Call::Unlink,
    Call::MakeDir,
    Call::Link,
    Call::Symlink,
    Call::Truncate,
    Call::SetMode,
    Call::SetTimes,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Killed {
    Both,
    Sender,
    Receiver,
}

const LANES: u16 = 2;

const CHECKPOINT_BYTES: u64 = 2 << 20;

/// All three sweeps take half a minute on two cores.
const SAMPLES: usize = 50;

/// Samples that wait for a disk take longer.
const SAMPLES_ON_DISK: usize = 25;

const LARGE: [(&str, usize); 2] = [("b-large", 9_000_001), ("m/large", 5_000_000)];

const SMALL: usize = 48;
const SMALL_STEP: usize = 700;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Cached,
    Direct,
}

impl Way {
    fn writers(self) -> u64 {
        if self == Way::Direct { receiver::WRITERS as u64 } else { 0 }
    }

    /// Brought by lanes, and written all the same.
    fn behind_bytes(self) -> u64 {
        if self == Way::Direct { (receiver::BUFFERS * haul_wire::limits::BLOCK_BYTES) as u64 } else { 0 }
    }
}

fn bench(way: Way) -> Option<Bench> {
    let bench = match way {
        Way::Cached => Bench::new(),
        Way::Direct => disk()?,
    };
    for (name, size) in LARGE {
        bench.write(name, size);
    }
    for number in 0..SMALL {
        bench.write(&format!("{}/small{number}", ["a", "m", "z"][number % 3]), number * SMALL_STEP);
    }
    std::os::unix::fs::symlink("b-large", bench.from().join("link")).unwrap();
    std::fs::hard_link(bench.from().join("a/small3"), bench.from().join("z/second-name")).unwrap();
    Some(bench)
}

fn job_of(bench: &Bench, way: Way) -> Job {
    let mut job = bench.job();
    job.selection.hard_links = true;
    job.carriage.write_route = (way == Way::Direct).then_some(WriteRoute::Direct);
    job.carriage.lanes = Some(LANES);
    job
}

fn run_side(
    killed_side: Killed,
    job: &Job,
    control: UnixStream,
    lanes: Vec<UnixStream>,
) -> Result<(), haul_job::Error> {
    let events = Events::new();
    let channel = Channel::open(Stream::plain(control), events.sender(), PING_EVERY).unwrap();
    for (number, lane) in (0..).zip(lanes) {
        assert!(events.sender().try_send(SessionEvent::Lane(LaneEvent::Up(Stream::plain(lane), number))).is_ok());
    }
    let selection = convert::selection(&job.selection);
    let carriage = convert::carriage(job, &[]);
    let watch = Arc::new(Watch::silent());
    let mut on_other_message = |message| Err(faults::unexpected(&message));
    match killed_side {
        Killed::Sender => {
            let sources = Sources::Paths(job.source_paths());
            let (confine, expand_globs, remembers) = (None, false, None);
            let direct_from_bytes = haul_store::DIRECT_FROM_BYTES;
            let job = SenderJob {
                hand_over: None,
                outbound: None,
                movers: Default::default(),
                is_mover: false,
                sources,
                listed: None,
                confine,
                expand_globs,
                remembers,
                home: None,
                direct_from_bytes,
                early: None,
                far: false,
                selection,
                carriage,
                permits: Permits::default(),
                hooks: None,
            };
            sender::run(
                job,
                RoleContext {
                    events,
                    channel: &channel,
                    watch: &watch,
                    keeper: &mut NoKeeper,
                    on_other_message: &mut on_other_message,
                },
            )
            .map(drop)
        }
        Killed::Receiver | Killed::Both => {
            let target = Target::Path(job.target.path.clone());
            let (confine, asked_for) = (None, None);
            let bounds = Bounds { checkpoint_bytes: CHECKPOINT_BYTES, ..Bounds::default() };
            let job = ReceiverJob {
                hand_over: None,
                sums: None,
                target,
                confine,
                asked_for,
                far: false,
                selection,
                listed: Default::default(),
                hash_kept: false,
                carriage,
                bounds,
                movers: Default::default(),
                surroundings: Surroundings::default(),
            };
            receiver::run(
                job,
                RoleContext {
                    events,
                    channel: &channel,
                    watch: &watch,
                    keeper: &mut NoKeeper,
                    on_other_message: &mut on_other_message,
                },
            )
            .map(drop)
        }
    }
}

/// The bytes that each part has, and those that must outlast its death.
#[derive(Default)]
struct Counted {
    written: BTreeMap<PathBuf, u64>,
    flushing: BTreeMap<PathBuf, u64>,
    /// The last flush whose checkpoint came to its end.
    safe: BTreeMap<PathBuf, u64>,
}

impl Counted {
    fn note(&mut self, stopped: &Stopped) {
        if !matches!(stopped.call(), Call::Write | Call::Flush) {
            return;
        }
        let path = stopped.file();
        match (stopped.call(), path.extension().and_then(|extension| extension.to_str())) {
            (Call::Write, Some("part")) => *self.written.entry(path).or_default() += stopped.bytes() as u64,
            (Call::Flush, Some("part")) => {
                let written = self.written.get(&path).copied().unwrap_or(0);
                self.flushing.insert(path, written);
            }
            (Call::Flush, Some("journal")) if size(&path) > journal::HEADER_BYTES as u64 => {
                let part = path.with_extension("part");
                let flushed = self.flushing.get(&part).copied().unwrap_or(0);
                self.safe.insert(part, flushed);
            }
            _ => {}
        }
    }

    fn written(&self) -> u64 {
        self.written.values().sum()
    }

    fn safe(&self) -> u64 {
        self.safe.values().sum()
    }
}

#[test]
#[ignore = "a part of the sweeps, which start it"]
fn dies_at_its_operation() {
    let (Some(directory), Ok(at)) = (std::env::var_os("HAUL_SWEEP_DIR"), std::env::var("HAUL_SWEEP_AT")) else {
        return;
    };
    let at: usize = at.parse().unwrap();
    let side = match std::env::var("HAUL_SWEEP_SIDE").as_deref() {
        Ok("sender") => Killed::Sender,
        Ok("receiver") => Killed::Receiver,
        _ => Killed::Both,
    };
    let bench = Bench::existing(Path::new(&directory));
    let way = if std::env::var_os("HAUL_SWEEP_DIRECT").is_some() { Way::Direct } else { Way::Cached };
    let (job, counted) = (job_of(&bench, way), PathBuf::from(&directory).join("counted"));
    let work = move || match side {
        Killed::Both => run_here(&job, LANES, CHECKPOINT_BYTES).map(drop),
        _ => {
            let address = PathBuf::from(&directory).join("socket");
            let mut streams: Vec<UnixStream> = (0..=LANES).map(|_| UnixStream::connect(&address).unwrap()).collect();
            run_side(side, &job, streams.remove(0), streams)
        }
    };
    let mut count = Counted::default();
    let decide = |number, stopped: &Stopped| {
        if number == at {
            std::fs::write(&counted, format!("{} {}", count.written(), count.safe())).unwrap();
            rustix::process::kill_process(rustix::process::getpid(), Signal::KILL).unwrap();
        }
        count.note(stopped);
        Verdict::Proceed
    };
    // The sweep reads the number of operations if its own number never comes.
    let (result, count) = under(&OPERATIONS, decide, work).expect("asked for only where it works");
    result.unwrap();
    std::fs::write(Path::new(&std::env::var_os("HAUL_SWEEP_DIR").unwrap()).join("count"), count.to_string()).unwrap();
}

fn run_and_kill(bench: &Bench, way: Way, killed: Killed, at: usize) -> bool {
    let directory = bench.root();
    let mut child = Command::new(std::env::current_exe().unwrap());
    let (_, module) = module_path!().split_once("::").unwrap();
    child.args(["--exact", &format!("{module}::dies_at_its_operation"), "--ignored", "--nocapture", "-q"]);
    child.env("HAUL_SWEEP_DIR", directory).env("HAUL_SWEEP_AT", at.to_string()).env_remove("CI");
    child.stdout(std::process::Stdio::null());
    if way == Way::Direct {
        child.env("HAUL_SWEEP_DIRECT", "1");
    }
    let listener = UnixListener::bind(directory.join("socket")).unwrap();
    let other = match killed {
        Killed::Both => None,
        Killed::Sender => Some(("sender", Killed::Receiver)),
        Killed::Receiver => Some(("receiver", Killed::Sender)),
    };
    if let Some((side, _)) = other {
        child.env("HAUL_SWEEP_SIDE", side);
    }
    let mut child = child.spawn().unwrap();
    let survivor = other.map(|(_, side)| {
        let mut streams: Vec<UnixStream> = (0..=LANES).map(|_| listener.accept().unwrap().0).collect();
        run_side(side, &job_of(bench, way), streams.remove(0), streams)
    });
    let status = child.wait().unwrap();
    std::fs::remove_file(directory.join("socket")).unwrap();
    let died = status.signal() == Some(Signal::KILL.as_raw());
    assert!(died || status.success(), "{killed:?} at {at}: {status}");
    if let Some(survivor) = survivor {
        // The last operations of a side may come when the other has all that it needs.
        assert!(died || survivor.is_ok(), "{killed:?} at {at}: {survivor:?}");
    }
    died
}

fn retained(bench: &Bench) -> u64 {
    let mut bytes = 0;
    if !bench.to().exists() {
        return 0;
    }
    for (path, _) in files(&bench.to()) {
        let (name, standing) = (path.to_string_lossy(), bench.to().join(&path));
        if !is_part(&path) && !name.ends_with("second-name") {
            bytes += size(&standing);
        } else if name.ends_with(".journal")
            // The journal of a complete file is left if the job dies before it removes it.
            && standing.with_extension("part").exists()
            && let Some((header, records)) = journal::decode(&std::fs::read(standing).unwrap())
        {
            let chunks = records.into_iter().map(|(chunk, _)| chunk).collect::<BTreeSet<_>>();
            let layout = haul_engine::plan::ChunkLayout::of(header.identity.size);
            bytes += chunks.into_iter().filter_map(|chunk| layout.range(chunk)).map(|(_, length)| length).sum::<u64>();
        }
    }
    bytes
}

fn total(bench: &Bench) -> u64 {
    let all: u64 = files(&bench.from()).iter().map(|(path, _)| size(&bench.from().join(path))).sum();
    all - size(&bench.from().join("z/second-name"))
}

fn size(path: &Path) -> u64 {
    std::fs::symlink_metadata(path).unwrap().len()
}

/// Returns the bytes that were written in vain.
fn kill_and_go_on(way: Way, killed: Killed, at: usize) -> u64 {
    let bench = bench(way).expect("it was possible before");
    if !run_and_kill(&bench, way, killed, at) {
        bench.assert_equal();
        return 0;
    }
    let what = format!("{way:?}, {killed:?} killed at operation {at}");
    let right = files(&bench.from());
    let found = if bench.to().exists() { files(&bench.to()) } else { Vec::new() };
    let wrong = found.into_iter().filter(|file| !is_part(&file.0) && !right.contains(file)).map(|(path, _)| path);
    assert_eq!(wrong.collect::<Vec<_>>(), Vec::<PathBuf>::new(), "{what}");

    let (retained, total) = (retained(&bench), total(&bench));
    let report =
        run_here(&job_of(&bench, way), LANES, CHECKPOINT_BYTES).unwrap_or_else(|error| panic!("{what}: {error:?}"));
    assert_eq!(report.failed, 0, "{what}: {:?}", report.failures);
    bench.assert_equal();
    let left: Vec<PathBuf> =
        files(&bench.to()).into_iter().map(|(path, _)| path).filter(|path| is_part(path)).collect();
    assert_eq!(left, Vec::<PathBuf>::new(), "{what}: something is left behind");
    // Claimed data is not sent again. Parts without a journal are.
    let moved = report.bytes_moved;
    assert!(moved + retained <= total, "{what}: {moved} bytes moved, though {retained} of {total} were there");
    if killed == Killed::Sender {
        return 0;
    }
    // Data before the last checkpoint is there, but for a chunk under way on each lane.
    let counted = std::fs::read_to_string(bench.root().join("counted")).unwrap();
    let (written, safe) = counted.split_once(' ').unwrap();
    let (written, safe): (u64, u64) = (written.parse().unwrap(), safe.parse().unwrap());
    let under_way = (u64::from(LANES) + way.writers()) * haul_wire::limits::MIN_CHUNK_BYTES;
    assert!(retained + under_way >= safe, "{what}: {retained} bytes are there, of {safe} flushed by checkpoints");
    // At most an interval of later data is lost, however long a checkpoint takes.
    let (lost, most) = (written.saturating_sub(retained), most_lost(way));
    assert!(lost <= most, "{what}: {lost} written bytes are lost, more than {most}");
    lost
}

/// One checkpoint interval of all files together, a chunk under way on each lane, and whole files that wait for their names.
fn most_lost(way: Way) -> u64 {
    let small = (0..SMALL).map(|number| (number * SMALL_STEP) as u64).sum::<u64>();
    CHECKPOINT_BYTES + u64::from(LANES) * haul_wire::limits::MIN_CHUNK_BYTES + way.behind_bytes() + small
}

fn sweep(way: Way, killed: Killed, samples: usize) {
    let Some(probe) = bench(way) else { return };
    if under(&[Call::Write], |_, _| Verdict::Proceed, || ()).is_none() {
        return;
    }
    assert!(!run_and_kill(&probe, way, killed, usize::MAX));
    let count: usize = std::fs::read_to_string(probe.root().join("count")).unwrap().parse().unwrap();
    assert!(count > 100, "{way:?}, {killed:?} has only {count} operations");
    let full = std::env::var("HAUL_SWEEP").is_ok_and(|value| value == "full");
    let step = if full { 1 } else { count.div_ceil(samples) };
    // The order of threads differs, so an operation beyond the usual end may come.
    let again: Vec<u64> = (0..count + step).step_by(step).map(|at| kill_and_go_on(way, killed, at)).collect();
    if full {
        let (most, allowed) = (again.iter().max().unwrap(), most_lost(way));
        let _ = writeln!(
            std::io::stderr(),
            "{way:?}, {killed:?}: killed at each of {count} operations; at most {most} written bytes were lost, of {allowed} that may be; \
             the loss of a sender is not counted"
        );
    }
}

#[test]
fn killed_at_any_operation_of_both_sides_it_goes_on() {
    sweep(Way::Cached, Killed::Both, SAMPLES);
}

#[test]
fn with_the_receiver_killed_at_any_operation_it_goes_on() {
    sweep(Way::Cached, Killed::Receiver, SAMPLES);
}

#[test]
fn with_the_sender_killed_at_any_operation_it_goes_on() {
    sweep(Way::Cached, Killed::Sender, SAMPLES);
}

#[test]
fn past_the_page_cache_with_the_receiver_killed_at_any_operation_it_goes_on() {
    sweep(Way::Direct, Killed::Receiver, SAMPLES_ON_DISK);
}
