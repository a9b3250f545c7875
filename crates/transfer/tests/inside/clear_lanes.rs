//! Tests clear lanes over TCP against an attacker who reads and changes all that passes.

use std::io::{Read, Seek as _, SeekFrom, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use haul_job::{Carriage, Endpoint, Event, Here, Job, Observer, Place, Report, Selection, SshOptions};
use haul_net::{Cipher, Identity, Stream};
use haul_pump::SendRoute;
use haul_wire::lane::{BLOCK_HEADER_BYTES, BlockHeader, TAG_BYTES, TRAILER_BYTES, UNIT_HEADER_BYTES};
use haul_wire::limits::{BLOCK_BYTES, MIN_CHUNK_BYTES};

use crate::scenarios::{self, checkpoints_every, random};
use haul_channel::reporter::Watch;
use haul_copy::receiver::CHECKPOINT_BYTES;
use haul_copy::sender::early_look::EarlyLook;

#[derive(Clone, Default)]
struct OnTheWay {
    flips: Option<(usize, u8)>,
    /// Holds so many bytes back, and passes them as changed. Nothing follows.
    forges: Option<(usize, Forgery)>,
    awake: Arc<AtomicBool>,
    seen: Arc<Mutex<Vec<u8>>>,
}

type Forgery = fn(&mut Vec<u8>);

const SEEN_BYTES: usize = 4 << 20;

impl OnTheWay {
    fn flipping(at: usize, bits: u8) -> Self {
        Self { flips: Some((at, bits)), ..Self::default() }
    }

    fn forging(bytes: usize, forgery: Forgery) -> Self {
        Self { forges: Some((bytes, forgery)), ..Self::default() }
    }

    fn lane(&self, clear: bool) -> (Stream, Stream) {
        let (listener, door) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let near = TcpStream::connect(door.local_addr().unwrap()).unwrap();
        let before = door.accept().unwrap().0;
        let behind = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        let (back_from, back_to) = (behind.try_clone().unwrap(), before.try_clone().unwrap());
        let there = self.clone();
        std::thread::spawn(move || there.pass(before, behind));
        std::thread::spawn(move || OnTheWay::default().pass(back_from, back_to));
        let (here, there) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let (here_key, there_key) = (here.public(), there.public());
        let server = std::thread::spawn(move || {
            haul_net::server(far, &there, move |key| *key == here_key, &[Cipher::Aes128Gcm])
        });
        let mut near = haul_net::client(near, &here, move |key| *key == there_key, &[Cipher::Aes128Gcm]).unwrap().0;
        let mut far = server.join().unwrap().unwrap().0;
        near.write_all(b"hello").and_then(|()| near.flush()).unwrap();
        let mut hello = [0; 5];
        far.read_exact(&mut hello).unwrap();
        self.awake.store(true, Ordering::Release);
        if clear { (near.into_clear().unwrap(), far.into_clear().unwrap()) } else { (near, far) }
    }

    fn pass(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut block = vec![0; 100_000];
        let (mut passed, mut held) = (0, Vec::new());
        loop {
            let read = match from.read(&mut block) {
                Ok(0) | Err(_) => break,
                Ok(read) => read,
            };
            if self.awake.load(Ordering::Acquire) {
                if let Some((at, bits)) = self.flips.filter(|(at, _)| (passed..passed + read).contains(at)) {
                    block[at - passed] ^= bits;
                }
                let mut seen = self.seen.lock().unwrap();
                let room = SEEN_BYTES.saturating_sub(seen.len()).min(read);
                seen.extend_from_slice(&block[..room]);
                passed += read;
                drop(seen);
                if let Some((bytes, forgery)) = self.forges {
                    held.extend_from_slice(&block[..read]);
                    if held.len() >= bytes {
                        held.truncate(bytes);
                        forgery(&mut held);
                        let _ = to.write_all(&held);
                        break;
                    }
                    continue;
                }
            }
            if to.write_all(&block[..read]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Write);
    }
}

struct Quiet;

impl Observer for Quiet {
    fn on_event(&self, _: &Event) {}

    fn interrupted(&self) -> bool {
        false
    }
}

const MIB: usize = 1 << 20;

fn content() -> Vec<u8> {
    random(0, 3 * MIB + 77)
}

fn job(directory: &Path) -> Job {
    let endpoint = |name: &str| {
        let path = directory.join(name).into_os_string().into_encoded_bytes();
        Endpoint { place: Place::Here(Here::Disk), path }
    };
    Job {
        movers: Vec::new(),
        files_from: None,
        sources: vec![endpoint("file")],
        target: endpoint("copy"),
        selection: Selection::default(),
        carriage: Carriage { timeout: Duration::from_secs(20), ..Carriage::default() },
        ssh: SshOptions::default(),
    }
}

fn copied(directory: &Path, lanes: Vec<(Stream, Stream)>) -> (PathBuf, Report, u64) {
    copied_by(&job(directory), directory, lanes)
}

fn copied_by(job: &Job, directory: &Path, lanes: Vec<(Stream, Stream)>) -> (PathBuf, Report, u64) {
    let watch = Arc::new(Watch::new(Arc::new(Quiet)));
    let ends = scenarios::here_over(job, &watch, false, lanes, checkpoints_every(CHECKPOINT_BYTES)).unwrap();
    let report = watch.report(&ends, Default::default(), false).unwrap();
    (directory.join("copy"), report, ends.receiver.arrived_bytes)
}

/// A lane begins with a unit that carries a chunk without holes.
const HEADER_TAG: usize = UNIT_HEADER_BYTES;
const FIRST_BLOCK: usize = HEADER_TAG + TAG_BYTES;
const BLOCKS: usize = MIN_CHUNK_BYTES as usize / BLOCK_BYTES;
const BLOCK: usize = BLOCK_HEADER_BYTES + TAG_BYTES + BLOCK_BYTES + TAG_BYTES;
const LAST_BLOCK: usize = FIRST_BLOCK + BLOCKS * BLOCK;
const TRAILER: usize = LAST_BLOCK + BLOCK_HEADER_BYTES + TAG_BYTES;
const TRAILER_TAG: usize = TRAILER + TRAILER_BYTES;

#[test]
fn a_bit_that_flips_on_a_clear_lane_is_found_and_the_chunk_is_sent_again() {
    let places = [
        ("kind of unit", 0),
        ("number of the chunk", 4),
        ("index of the file", 8),
        ("tag of the header", HEADER_TAG + 31),
        ("length of a block", FIRST_BLOCK + 1),
        ("encoding of a block", FIRST_BLOCK + 3),
        ("tag of a block", FIRST_BLOCK + BLOCK_HEADER_BYTES),
        ("data", 300_000),
        ("tag of the data", FIRST_BLOCK + BLOCK - TAG_BYTES),
        ("last block", LAST_BLOCK),
        ("verdict", TRAILER),
        ("hash", TRAILER + 1),
        ("tag of the trailer", TRAILER_TAG),
        ("header of the second unit", TRAILER_TAG + TAG_BYTES + 4),
    ];
    for (what, at) in places {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), content()).unwrap();
        let way = OnTheWay::flipping(at, 0x40);
        let lanes = vec![way.lane(true), OnTheWay::default().lane(true)];
        let (copy, report, arrived_bytes) = copied(dir.path(), lanes);
        assert!(std::fs::read(copy).unwrap() == content(), "a flipped bit of: {what}");
        assert_eq!((report.files_moved, report.failed, report.unverified), (1, 0, 0), "{what}");
        // The other lane may have been so quick that this one never came so far.
        let was_flipped = way.seen.lock().unwrap().len() > at;
        if was_flipped && matches!(what, "data" | "tag of the data" | "verdict" | "hash" | "tag of the trailer") {
            assert!(arrived_bytes > content().len() as u64, "{what}: the chunk comes twice");
        }
    }
}

#[test]
fn what_was_forged_into_a_hole_is_gone_when_the_chunk_comes_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut file = std::fs::File::create(dir.path().join("file")).unwrap();
    file.seek(SeekFrom::Start(BLOCK_BYTES as u64)).unwrap();
    file.write_all(&vec![7; BLOCK_BYTES]).unwrap();
    file.set_len(3 * MIB as u64).unwrap();
    drop(file);
    // One bit turns the first block's hole into data: the bytes behind it.
    let lanes = vec![OnTheWay::flipping(FIRST_BLOCK + 3, 0x80).lane(true), OnTheWay::default().lane(true)];
    let (copy, report, _) = copied(dir.path(), lanes);
    assert!(std::fs::read(copy).unwrap() == std::fs::read(dir.path().join("file")).unwrap());
    assert_eq!((report.files_moved, report.failed), (1, 0));
}

#[test]
fn a_clear_lane_can_be_read_on_the_way_and_one_that_nobody_asked_to_be_clear_cannot() {
    for clear in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), content()).unwrap();
        let listener = OnTheWay::default();
        let (copy, ..) = copied(dir.path(), vec![listener.lane(clear)]);
        assert!(std::fs::read(copy).unwrap() == content());
        let seen = listener.seen.lock().unwrap();
        let piece = &content()[1000..1064];
        assert_eq!(seen.windows(piece.len()).any(|part| part == piece), clear);
    }
}

fn data_at(block: usize) -> usize {
    FIRST_BLOCK + block * BLOCK + BLOCK_HEADER_BYTES + TAG_BYTES
}

const DATA_AND_TAG: usize = BLOCK_BYTES + TAG_BYTES;

const FORGERIES: [(&str, Forgery); 6] = [
    ("a bit", |bytes| bytes[data_at(1) + 5] ^= 1),
    ("bytes of somebody's choice", |bytes| bytes[data_at(1)..][..BLOCK_BYTES].fill(b'!')),
    ("a tag", |bytes| bytes[data_at(1) + BLOCK_BYTES] ^= 1),
    ("the first block again", |bytes| bytes.copy_within(data_at(0)..data_at(0) + DATA_AND_TAG, data_at(1))),
    ("the block before its turn", |bytes| {
        let second = bytes[data_at(1)..][..DATA_AND_TAG].to_vec();
        bytes.copy_within(data_at(0)..data_at(0) + DATA_AND_TAG, data_at(1));
        bytes[data_at(0)..][..DATA_AND_TAG].copy_from_slice(&second);
    }),
    ("a block less", |bytes| drop(bytes.drain(FIRST_BLOCK..FIRST_BLOCK + BLOCK))),
];

fn before() -> Vec<u8> {
    content().iter().map(|byte| !byte).collect()
}

fn left_in_place(forgery: Forgery, bytes: usize, adjust: fn(&mut Job), content: &[u8], before: &[u8]) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), content).unwrap();
    std::fs::write(dir.path().join("copy"), before).unwrap();
    std::fs::File::open(dir.path().join("copy")).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    let mut job = job(dir.path());
    job.selection.inplace = true;
    job.carriage.timeout = Duration::from_secs(1);
    adjust(&mut job);
    let watch = Arc::new(Watch::new(Arc::new(Quiet)));
    let lanes = vec![OnTheWay::forging(bytes, forgery).lane(true)];
    scenarios::here_over(&job, &watch, false, lanes, checkpoints_every(CHECKPOINT_BYTES))
        .expect_err("the only lane is gone");
    std::fs::read(dir.path().join("copy")).unwrap()
}

#[test]
fn no_byte_of_somebody_on_the_way_stands_in_a_file_that_is_written_in_place() {
    let (content, before) = (content(), before());
    let tried = |what: &str, forgery| {
        let left = left_in_place(forgery, LAST_BLOCK, |_| {}, &content, &before);
        let strange = (0..left.len()).find(|at| left[*at] != content[*at] && left[*at] != before[*at]);
        assert_eq!((strange, left.len()), (None, content.len()), "{what}");
        let second = BLOCK_BYTES..2 * BLOCK_BYTES;
        assert!(left[second.clone()] == before[second], "{what}: what was there before still is");
    };
    std::thread::scope(|scope| FORGERIES.map(|(what, forgery)| scope.spawn(move || tried(what, forgery))).map(drop));
    let left = left_in_place(|_| {}, LAST_BLOCK, |_| {}, &content, &before);
    let chunk = ..MIN_CHUNK_BYTES as usize;
    assert!(left[chunk] == content[chunk], "what nobody touched is written");
}

fn wordy() -> Vec<u8> {
    (0..)
        .flat_map(|number: u32| format!("line {} of it\n", number.wrapping_mul(77_777)).into_bytes())
        .take(3 * MIB)
        .collect()
}

const PACKED_BYTES: usize = 200_000;

/// Makes another packed block of the same length that a decompressor takes.
fn repacked(bytes: &mut [u8]) {
    let header = BlockHeader::decode(bytes[FIRST_BLOCK..][..BLOCK_HEADER_BYTES].try_into().unwrap()).unwrap();
    let mut packed = zstd::bulk::compress(&vec![b'!'; BLOCK_BYTES], 1).unwrap();
    // A skippable frame fills it up (RFC 8878, 3.1.2).
    let rest = header.bytes - u32::try_from(packed.len()).unwrap() - 8;
    packed.extend([0x50, 0x2a, 0x4d, 0x18]);
    packed.extend(rest.to_le_bytes());
    packed.resize(header.bytes as usize, 0);
    bytes[data_at(0)..][..packed.len()].copy_from_slice(&packed);
}

#[test]
fn no_packed_block_of_somebody_on_the_way_stands_in_a_file_that_is_written_in_place() {
    let before: Vec<u8> = wordy().iter().map(|byte| !byte).collect();
    let left =
        left_in_place(|bytes| repacked(bytes), PACKED_BYTES, |job| job.carriage.compress = true, &wordy(), &before);
    assert!(left[..BLOCK_BYTES] == before[..BLOCK_BYTES], "{:?}", String::from_utf8_lossy(&left[..40]));
}

/// A decompressor would have ended the only lane.
#[test]
fn a_packed_block_that_was_changed_is_read_by_no_decompressor_and_comes_again_on_the_same_lane() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), wordy()).unwrap();
    let mut job = job(dir.path());
    job.carriage.compress = true;
    let (copy, report, _) = copied_by(&job, dir.path(), vec![OnTheWay::flipping(data_at(0), 0xff).lane(true)]);
    assert!(std::fs::read(copy).unwrap() == wordy());
    assert_eq!((report.files_moved, report.failed, report.bytes_again > 0), (1, 0, true));
}

#[test]
fn every_route_tags_what_it_sends_and_a_changed_block_comes_again_on_the_same_lane() {
    for (route, name) in SendRoute::ALL {
        for at in [None, Some(300_000)] {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join("file"), content()).unwrap();
            let mut job = job(dir.path());
            job.carriage.route = Some(route);
            let way = at.map_or_else(OnTheWay::default, |at| OnTheWay::flipping(at, 1));
            let (copy, report, _) = copied_by(&job, dir.path(), vec![way.lane(true)]);
            assert!(std::fs::read(copy).unwrap() == content(), "{name}");
            assert_eq!((report.files_moved, report.failed), (1, 0), "{name}");
            assert_eq!(report.bytes_again > 0, at.is_some(), "{name}");
        }
    }
}

#[test]
fn hashes_from_before_the_lanes_prove_each_block_until_one_does_not_match() {
    let copy = |falsify: fn(EarlyLook) -> EarlyLook| {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), content()).unwrap();
        let job = job(dir.path());
        let early = EarlyLook::complete(&[job.sources[0].path.clone()], true);
        let watch = Arc::new(Watch::new(Arc::new(Quiet)));
        let (lanes, bounds) = (vec![OnTheWay::default().lane(true)], checkpoints_every(CHECKPOINT_BYTES));
        let ends = scenarios::here_after(Some(falsify(early)), &job, &watch, false, lanes, bounds).unwrap();
        assert!(std::fs::read(dir.path().join("copy")).unwrap() == content());
        watch.report(&ends, Default::default(), false).unwrap().bytes_again
    };
    assert_eq!(copy(|early| early), 0);
    assert_eq!(copy(|early| early.falsified(1)), 1 << 20);
}
