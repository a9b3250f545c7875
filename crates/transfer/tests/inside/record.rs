//! Tests streams over loopback, and their recordings.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use haul_job::{Endpoint, Error, Event, Fault, Here, Place, Report, Selection};
use haul_sys::intercept::{Call, Stopped, Verdict, under};
use haul_workbench::bench::Interval;
use haul_workbench::record::*;

use crate::bad_disk::{EIO, ENOSPC};
use crate::scenarios::{self, Bench, Witness, random};
use haul_kept::surroundings::Surroundings;

#[derive(Default)]
struct Onlooker {
    listening: Mutex<Option<Sender<SocketAddr>>>,
    told: Mutex<u64>,
    warnings: Mutex<Vec<Error>>,
    enough: AtomicBool,
}

impl Watcher for Onlooker {
    fn on_listening(&self, address: SocketAddr) {
        if let Some(tell) = self.listening.lock().unwrap().take() {
            tell.send(address).unwrap();
        }
    }

    fn on_interval(&self, interval: &Interval) {
        *self.told.lock().unwrap() += interval.bytes;
    }

    fn on_warning(&self, warning: &Error) {
        self.warnings.lock().unwrap().push(warning.clone());
    }

    fn interrupted(&self) -> bool {
        self.enough.load(Ordering::Relaxed)
    }
}

fn content(bytes: usize) -> Vec<u8> {
    random(0, bytes)
}

fn request(directory: &std::path::Path) -> Request {
    Request {
        input: Input::Listen("127.0.0.1:0".parse().unwrap()),
        path: directory.join("stream"),
        stripe_directories: Vec::new(),
        reserve_bytes: 0,
        bytes: None,
        buffers: 4,
        buffer_bytes: 128 << 10,
        interval: Duration::from_millis(100),
        flush_every: Duration::from_millis(20),
    }
}

fn recorded(request: &Request, sends: impl FnOnce(TcpStream, &AtomicBool) + Send) -> (Result<Recorded, Error>, u64) {
    let onlooker = Onlooker::default();
    let result = onlooker.records(request, |stream| sends(stream, &onlooker.enough));
    let told = *onlooker.told.lock().unwrap();
    (result, told)
}

impl Onlooker {
    fn records(&self, request: &Request, sends: impl FnOnce(TcpStream) + Send) -> Result<Recorded, Error> {
        let (tell, listening) = channel();
        *self.listening.lock().unwrap() = Some(tell);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                if let Ok(address) = listening.recv() {
                    sends(TcpStream::connect(address).unwrap());
                }
            });
            let result = run(request, self);
            self.listening.lock().unwrap().take();
            result
        })
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.lock().unwrap().iter().map(|warning| warning.what.clone()).collect()
    }
}

#[test]
fn a_stream_is_recorded_to_its_last_byte_and_what_was_reserved_is_given_back() {
    let dir = tempfile::tempdir().unwrap();
    for (bytes, reserve_bytes) in [(0, 1 << 20), (1, 0), (128 << 10, 0), (3_000_001, 8 << 20), (3_000_001, 1000)] {
        let request = Request { reserve_bytes, ..request(dir.path()) };
        let (found, told) = recorded(&request, |mut stream, _| stream.write_all(&content(bytes)).unwrap());
        let found = found.unwrap();
        assert!(std::fs::read(&request.path).unwrap() == content(bytes), "{bytes} bytes");
        assert_eq!((found.bytes, told, found.interrupted), (bytes as u64, bytes as u64, false));
        assert!(found.high_water <= found.buffers && (found.overruns == 0) == found.held_up.is_zero(), "{found:?}");
        let allocated = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&request.path).unwrap()) * 512;
        assert!(allocated < bytes as u64 + (1 << 20), "{allocated} bytes are taken for {bytes}");
        std::fs::remove_file(&request.path).unwrap();
    }
}

#[test]
fn it_ends_after_what_was_asked_for_however_long_the_stream_is() {
    let dir = tempfile::tempdir().unwrap();
    let request = Request { bytes: Some(1_000_000), ..request(dir.path()) };
    let (found, _) = recorded(&request, |mut stream, _| drop(stream.write_all(&content(4_000_000))));
    assert_eq!(found.unwrap().bytes, 1_000_000);
    assert!(std::fs::read(&request.path).unwrap() == content(1_000_000));
}

#[test]
fn who_has_enough_keeps_what_came_until_then() {
    let dir = tempfile::tempdir().unwrap();
    let request = request(dir.path());
    const SENT: usize = 16 << 20;
    let (found, _) = recorded(&request, |mut stream, enough| {
        stream.write_all(&content(SENT)).unwrap();
        enough.store(true, Ordering::Relaxed);
        // The recorder must not wait for the stream's end.
        let _ = std::io::Read::read(&mut stream, &mut [0]);
    });
    let found = found.unwrap();
    assert!(found.interrupted && found.bytes <= SENT as u64);
    assert!(std::fs::read(&request.path).unwrap() == content(SENT)[..found.bytes as usize]);
}

#[test]
fn of_a_stream_that_breaks_off_what_came_is_kept_and_that_it_broke_off_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let request = Request { reserve_bytes: 1 << 20, ..request(dir.path()) };
    let (found, told) = recorded(&request, |stream, _| {
        (&stream).write_all(&content(200_000)).unwrap();
        // A close with this option is a reset.
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    });
    let length = std::fs::metadata(&request.path).unwrap().len();
    // A reset may overtake earlier data; all data that was read is in the file.
    assert_eq!(told, length);
    assert!(std::fs::read(&request.path).unwrap() == content(200_000)[..length as usize]);
    let error = found.unwrap_err();
    assert!(error.fault == Fault::Network && error.what.contains(&length.to_string()), "{error:?}");
    hint(&error);
}

#[test]
fn nothing_is_replaced_and_nothing_is_left_of_what_cannot_begin() {
    let dir = tempfile::tempdir().unwrap();
    let taken = request(dir.path());
    std::fs::write(&taken.path, "there before").unwrap();
    let error = recorded(&taken, |_, _| {}).0.unwrap_err();
    assert!(error.fault == Fault::FileIo && error.hint.is_some(), "{error:?}");
    assert_eq!(std::fs::read(&taken.path).unwrap(), b"there before");
    std::fs::remove_file(&taken.path).unwrap();
    let too_large = Request { reserve_bytes: 1 << 60, ..request(dir.path()) };
    assert!(recorded(&too_large, |_, _| {}).0.is_err());
    assert!(!too_large.path.exists());
    for bad in [
        Request { buffers: 1, ..request(dir.path()) },
        Request { buffer_bytes: 1000, ..request(dir.path()) },
        Request { interval: Duration::ZERO, ..request(dir.path()) },
        Request { buffers: 1024, buffer_bytes: 64 << 20, ..request(dir.path()) },
        Request { buffers: 5, stripe_directories: vec![dir.path().to_owned(); 3], ..request(dir.path()) },
        Request { buffers: 256, stripe_directories: vec![dir.path().to_owned(); 65], ..request(dir.path()) },
    ] {
        assert_eq!(recorded(&bad, |_, _| {}).0.unwrap_err().fault, Fault::Usage);
        assert!(!bad.path.exists());
    }
}

#[test]
fn a_name_that_a_power_cut_may_take_is_told_before_the_stream_comes() {
    for striped in [false, true] {
        let disks = Disks::new();
        let mut request = disks.request();
        let mut directory = disks.directories[2].clone();
        if !striped {
            request.stripe_directories.clear();
            directory = disks.root.path().to_owned();
        }
        let decide = |_, stopped: &Stopped| {
            if stopped.file() == directory { Verdict::Fail(EIO) } else { Verdict::Proceed }
        };
        let work = move || recorded(&request, |_, _| panic!("nobody listens yet"));
        let Some(((result, _), _)) = under(&[Call::Flush], decide, work) else { return };
        let error = result.unwrap_err();
        assert!(error.fault == Fault::FileIo && error.what.contains("flush the directory"), "{error:?}");
        let left = scenarios::files(disks.root.path());
        assert!(left.is_empty(), "{left:?}");
    }
}

struct Disks {
    root: tempfile::TempDir,
    directories: Vec<PathBuf>,
}

const BLOCK: usize = 128 << 10;

impl Disks {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let directories: Vec<PathBuf> = (0..3).map(|number| root.path().join(format!("disk{number}"))).collect();
        directories.iter().for_each(|directory| std::fs::create_dir(directory).unwrap());
        Self { root, directories }
    }

    fn request(&self) -> Request {
        Request { stripe_directories: self.directories.clone(), buffers: 6, ..request(self.root.path()) }
    }

    fn index(&self) -> PathBuf {
        self.root.path().join("stream.stripes")
    }

    fn stripe(&self, number: usize) -> PathBuf {
        self.directories[number].join(format!("stream.stripe-{number}"))
    }

    fn records(&self, content: &[u8]) -> Recorded {
        recorded(&self.request(), |mut stream, _| stream.write_all(content).unwrap()).0.unwrap()
    }

    fn copied(&self, index: &Path) -> (Result<Report, Error>, String, Option<Vec<u8>>) {
        self.copied_into(&Bench::new(), index, |_| ())
    }

    fn copied_into(
        &self,
        bench: &Bench,
        index: &Path,
        choose: impl FnOnce(&mut Selection),
    ) -> (Result<Report, Error>, String, Option<Vec<u8>>) {
        let mut job = bench.job();
        choose(&mut job.selection);
        let directories = self.directories.iter().rev().cloned().collect();
        let path = index.as_os_str().as_encoded_bytes().to_vec();
        job.sources = vec![Endpoint { place: Place::Here(Here::Stripes { directories }), path }];
        let witness = Arc::new(Witness::default());
        let report = haul_transfer::run(&job, &Surroundings::default(), witness.clone());
        let said = witness.events.lock().unwrap().iter().filter_map(said).collect::<Vec<_>>().join("\n");
        (report, said, std::fs::read(bench.to().join("stream")).ok())
    }
}

fn said(event: &Event) -> Option<String> {
    match event {
        Event::Warning { text } => Some(text.clone()),
        Event::Failed { why, .. } => Some(why.clone()),
        _ => None,
    }
}

#[test]
fn a_striped_recording_is_read_back_as_one_file_and_its_hash_is_compared() {
    for bytes in [0, 1, BLOCK, 4 * BLOCK, 3_000_001] {
        let disks = Disks::new();
        let found = disks.records(&content(bytes));
        let blake3 = *blake3::hash(&content(bytes)).as_bytes();
        assert_eq!((found.bytes, found.striped), (bytes as u64, Some((disks.index(), blake3))));
        assert!(!disks.root.path().join("stream").exists(), "only its index and its stripes are there");
        let (report, said, file) = disks.copied(&disks.index());
        assert_eq!((report.unwrap().files_moved, said.as_str()), (1, ""));
        assert!(file.unwrap() == content(bytes), "{bytes} bytes");
    }
}

#[test]
fn stripes_that_do_not_hold_what_was_recorded_are_told() {
    let disks = Disks::new();
    disks.records(&content(5 * BLOCK));
    let mut stripe = std::fs::read(disks.stripe(1)).unwrap();
    stripe[77] ^= 4;
    std::fs::write(disks.stripe(1), stripe).unwrap();
    let bench = Bench::new();
    let copied = |choose: fn(&mut Selection)| {
        let (report, said, _) = disks.copied_into(&bench, &disks.index(), choose);
        let report = report.unwrap();
        assert_eq!(said.contains("differ from the recording"), report.failed == 1, "{said}");
        (report.files_moved, report.files_kept, report.failed)
    };
    assert_eq!(copied(|_| ()), (1, 0, 1));
    assert_eq!(copied(|_| ()), (0, 1, 1), "it stands there already, and is as wrong as it was");
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(bench.to().join("stream"), mode).unwrap();
    assert_eq!(copied(|_| ()), (0, 1, 1), "its mode is set again");
    assert_eq!(copied(|selection| selection.checksum = true), (0, 1, 1));
    assert_eq!(copied(|selection| selection.dry_run = true), (0, 1, 0), "nothing is read");

    std::fs::File::options().write(true).open(disks.stripe(1)).unwrap().set_len(BLOCK as u64).unwrap();
    let error = disks.copied(&disks.index()).0.unwrap_err();
    assert!(error.what.contains("stream.stripe-1"), "{error:?}");
    std::fs::remove_file(disks.stripe(1)).unwrap();
    assert!(disks.copied(&disks.index()).0.unwrap_err().what.contains("stream.stripe-1"));
}

#[test]
fn a_recording_whose_stripe_is_cut_while_it_is_copied_fails_and_leaves_no_file_that_looks_like_it() {
    for (is_complete, read_block, cut_stripe) in [(true, 0, 1), (false, 0, 1), (true, 4, 2), (false, 4, 2)] {
        let disks = Arc::new(Disks::new());
        disks.records(&content(5 * BLOCK));
        if !is_complete {
            let mut index: serde_json::Value = serde_json::from_slice(&std::fs::read(disks.index()).unwrap()).unwrap();
            (index["complete"], index["blake3"]) = (false.into(), serde_json::Value::Null);
            std::fs::write(disks.index(), index.to_string()).unwrap();
        }
        let (reads, offset, cut) = (disks.stripe(read_block % 3), read_block / 3 * BLOCK, disks.stripe(cut_stripe));
        let mut is_cut = false;
        let decide = |_, stopped: &Stopped| {
            if stopped.file() == reads && stopped.offset() == offset as u64 && !std::mem::replace(&mut is_cut, true) {
                std::fs::File::options().write(true).open(&cut).unwrap().set_len(10).unwrap();
            }
            Verdict::Proceed
        };
        let copied = {
            let disks = Arc::clone(&disks);
            move || disks.copied(&disks.index())
        };
        let Some(((report, said, file), _)) = under(&[Call::Read], decide, copied) else { return };
        assert!(is_cut);
        let report = report.unwrap();
        assert_eq!((report.failed, report.files_moved, file), (1, 0, None), "{said}");
        assert!(said.contains("stripes was cut") || said.contains("changed while it was read"), "{said}");
    }
}

fn until(comes: impl Fn() -> bool, else_what: &str) {
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while !comes() {
        assert!(std::time::Instant::now() < deadline, "{else_what}");
        std::thread::yield_now();
    }
}

#[test]
fn of_a_recording_that_was_cut_off_what_was_flushed_is_read_and_that_is_said() {
    let disks = Disks::new();
    let cut_off = disks.root.path().join("cut-off.stripes");
    let flushed = format!("\"bytes\": {}", 5 * BLOCK);
    let (found, _) = recorded(&disks.request(), |mut stream, _| {
        stream.write_all(&content(5 * BLOCK)).unwrap();
        // A power cut now would leave this index.
        until(
            || std::fs::read_to_string(disks.index()).unwrap().contains(&flushed),
            "what was written is never entered",
        );
        std::fs::copy(disks.index(), &cut_off).unwrap();
        stream.write_all(&content(100)).unwrap();
    });
    assert_eq!(found.unwrap().bytes, 5 * BLOCK as u64 + 100);
    let (report, said, file) = disks.copied(&cut_off);
    assert_eq!(report.unwrap().failed, 0);
    assert!(said.contains("interrupted") && said.contains(&(5 * BLOCK).to_string()), "{said}");
    assert!(file.unwrap() == content(5 * BLOCK));
}

#[test]
fn a_stripe_replaces_nothing_and_nothing_is_left_of_a_striped_recording_that_cannot_begin() {
    let disks = Disks::new();
    std::fs::write(disks.stripe(1), "there before").unwrap();
    let error = recorded(&disks.request(), |_, _| {}).0.unwrap_err();
    assert!(error.fault == Fault::FileIo && error.hint.is_some(), "{error:?}");
    assert_eq!(std::fs::read(disks.stripe(1)).unwrap(), b"there before");
    assert!(!disks.stripe(0).exists() && !disks.index().exists());
    let missing = Request { stripe_directories: vec![disks.root.path().join("no-disk")], ..disks.request() };
    assert!(recorded(&missing, |_, _| {}).0.is_err());
    assert!(!disks.index().exists());
}

fn hint(error: &Error) -> &str {
    let hint = error.hint.as_deref().expect("that of its kind is for copies");
    assert!(!hint.contains("same command"), "{hint}");
    hint
}

#[test]
fn a_flush_that_failed_is_told_at_once_and_at_the_end_and_the_recording_goes_on() {
    let disks = Disks::new();
    let (request, index, stripe) = (disks.request(), disks.index(), disks.stripe(1));
    let cut_off = disks.root.path().join("cut-off.stripes");
    let mut fails = true;
    let decide = |_, stopped: &Stopped| {
        let failed = stopped.file() == stripe && std::mem::take(&mut fails);
        if failed { Verdict::Fail(EIO) } else { Verdict::Proceed }
    };
    let work = {
        let cut_off = cut_off.clone();
        move || {
            let onlooker = Onlooker::default();
            let result = onlooker.records(&request, |mut stream| {
                stream.write_all(&content(3 * BLOCK)).unwrap();
                until(|| !onlooker.warnings().is_empty(), "it is not told while the stream goes on");
                stream.write_all(&content(5 * BLOCK)[3 * BLOCK..]).unwrap();
                let flushed = format!("\"bytes\": {}", 5 * BLOCK);
                until(|| std::fs::read_to_string(&index).unwrap().contains(&flushed), "nothing is flushed any more");
                std::fs::copy(&index, &cut_off).unwrap();
                stream.write_all(b"more").unwrap();
            });
            (result, onlooker.warnings())
        }
    };
    let Some(((result, warnings), _)) = under(&[Call::Flush], decide, work) else { return };
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(warning.contains("cannot flush") && warning.contains("stream.stripe-1"), "{warning}");
    let error = result.unwrap_err();
    assert!(error.fault == Fault::FileIo && error.what.contains("stream.stripe-1 from byte 0 on"), "{error:?}");
    assert!(hint(&error).contains("stream.stripes") && hint(&error).contains("compares"), "{error:?}");
    let whole = [content(5 * BLOCK), b"more".to_vec()].concat();
    let (report, said, file) = disks.copied(&disks.index());
    assert_eq!((report.unwrap().failed, said.as_str()), (0, ""));
    assert!(file.unwrap() == whole);
    // So much is read, and a warning says what may be wrong with it.
    let (report, said, file) = disks.copied(&cut_off);
    assert_eq!(report.unwrap().failed, 0);
    assert!(said.contains("a flush of stream.stripe-1 failed, which may lack what follows byte 0"), "{said}");
    assert!(file.unwrap() == content(5 * BLOCK));
}

/// Whether this is the next index, which has no name yet (open(2), O_TMPFILE).
fn is_new_index(stopped: &Stopped, root: &Path) -> bool {
    let path = stopped.file();
    path.parent() == Some(root) && path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('#'))
}

#[test]
fn an_index_that_is_written_later_makes_up_for_one_that_was_not() {
    let disks = Disks::new();
    let (request, index) = (disks.request(), disks.index());
    let root = disks.root.path().to_owned();
    let mut flushes = 0;
    let decide = |_, stopped: &Stopped| {
        let of_index = is_new_index(stopped, &root);
        flushes += u32::from(of_index);
        let fails = of_index && (2..=3).contains(&flushes);
        if fails { Verdict::Fail(EIO) } else { Verdict::Proceed }
    };
    let work = move || {
        let onlooker = Onlooker::default();
        let result = onlooker.records(&request, |mut stream| {
            stream.write_all(&content(5 * BLOCK)).unwrap();
            let flushed = format!("\"bytes\": {}", 5 * BLOCK);
            until(|| std::fs::read_to_string(&index).unwrap().contains(&flushed), "nothing is entered any more");
        });
        (result, onlooker.warnings())
    };
    let Some(((result, warnings), _)) = under(&[Call::Flush], decide, work) else { return };
    assert_eq!(result.unwrap().bytes, 5 * BLOCK as u64);
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(warning.contains("stream.stripes"), "{warning}");
    assert_eq!(disks.copied(&disks.index()).0.unwrap().failed, 0);
}

#[test]
fn of_a_recording_whose_index_cannot_be_written_it_is_said_what_to_enter() {
    let disks = Disks::new();
    let request = disks.request();
    let root = disks.root.path().to_owned();
    let mut begun = false;
    let decide = |_, stopped: &Stopped| {
        let fails = is_new_index(stopped, &root) && std::mem::replace(&mut begun, true);
        if fails { Verdict::Fail(EIO) } else { Verdict::Proceed }
    };
    let work = move || recorded(&request, |mut stream, _| stream.write_all(&content(700_000)).unwrap()).0;
    let Some((result, _)) = under(&[Call::Flush], decide, work) else { return };
    let error = result.unwrap_err();
    assert!(error.fault == Fault::FileIo && error.what.contains("stream.stripes"), "{error:?}");
    let (_, entries) = hint(&error).split_once("enter into that file: ").unwrap();
    let left: Vec<_> = std::fs::read_dir(disks.root.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().ends_with(".new")), "what failed is left over: {left:?}");
    let index = std::fs::read_to_string(disks.index()).unwrap();
    let kept: Vec<_> = index
        .lines()
        .filter(|line| !["bytes", "complete", "blake3"].iter().any(|name| line.contains(&format!("\"{name}\":"))))
        .collect();
    std::fs::write(disks.index(), kept.join("\n").replacen('{', &format!("{{{entries},"), 1)).unwrap();
    let (report, said, file) = disks.copied(&disks.index());
    assert_eq!((report.unwrap().failed, said.as_str()), (0, ""));
    assert!(file.unwrap() == content(700_000));
}

#[test]
fn what_came_before_a_disk_was_full_is_kept_and_can_be_read() {
    let disks = Disks::new();
    let (request, stripe) = (Request { reserve_bytes: 8 << 20, ..disks.request() }, disks.stripe(2));
    let decide = |_, stopped: &Stopped| {
        let full = stopped.file() == stripe && stopped.offset() >= BLOCK as u64;
        if full { Verdict::Fail(ENOSPC) } else { Verdict::Proceed }
    };
    let work = move || {
        // The rest of it is not read.
        recorded(&request, |mut stream, _| drop(stream.write_all(&content(100 * BLOCK)))).0
    };
    let Some((result, _)) = under(&[Call::Write], decide, work) else { return };
    let error = result.unwrap_err();
    assert!(error.fault == Fault::Space && error.what.contains("stream.stripe-2"), "{error:?}");
    assert!(hint(&error).contains(&format!("{} bytes before that are kept", 5 * BLOCK)), "{error:?}");
    let (report, said, file) = disks.copied(&disks.index());
    assert_eq!(report.unwrap().failed, 0);
    assert!(said.contains("interrupted"), "{said}");
    assert!(file.unwrap() == content(5 * BLOCK));
}

#[test]
fn a_recording_that_the_disk_does_not_flush_at_the_end_is_no_success_and_has_its_length() {
    let dir = tempfile::tempdir().unwrap();
    let request = Request { reserve_bytes: 8 << 20, ..request(dir.path()) };
    let path = request.path.clone();
    let decide = |_, stopped: &Stopped| if stopped.file() == path { Verdict::Fail(EIO) } else { Verdict::Proceed };
    let work = move || recorded(&request, |mut stream, _| stream.write_all(&content(300_000)).unwrap()).0;
    let Some((result, _)) = under(&[Call::Flush], decide, work) else { return };
    let error = result.unwrap_err();
    assert!(error.fault == Fault::FileIo && error.what.contains("stream from byte 0 on"), "{error:?}");
    assert!(hint(&error).contains("copy it now"), "{error:?}");
    assert!(std::fs::read(&path).unwrap() == content(300_000));
}
