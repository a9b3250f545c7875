//! Clear lanes over TCP, with somebody on the way who reads all that passes and flips bits of it.

use std::io::{Read, Seek as _, SeekFrom, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use haul_net::{Cipher, Identity, Stream};
use haul_wire::lane::{BLOCK_HEADER_BYTES, TAG_BYTES, TRAILER_BYTES, UNIT_HEADER_BYTES};
use haul_wire::limits::{BLOCK_BYTES, MIN_CHUNK_BYTES};

use crate::coordinate;
use crate::event::{Event, Observer, Report};
use crate::job::{Carriage, Endpoint, Job, Place, Selection, SshOptions};
use crate::receiver::CHECKPOINT_BYTES;
use crate::watch::Watch;

/// Stands between the two ends of a lane.
#[derive(Clone, Default)]
struct OnTheWay {
    /// At this byte behind the handshake and the hello, these bits are flipped.
    flips: Option<(usize, u8)>,
    /// The handshake is over: from here on bytes are counted, kept and flipped.
    awake: Arc<AtomicBool>,
    /// The first of them.
    seen: Arc<Mutex<Vec<u8>>>,
}

/// Enough of what passes to find a file in it.
const SEEN_BYTES: usize = 4 << 20;

impl OnTheWay {
    fn flipping(at: usize, bits: u8) -> Self {
        Self { flips: Some((at, bits)), ..Self::default() }
    }

    /// A lane between keys that trust each other: its sending and its receiving end.
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
        let mut passed = 0;
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
    (0..3 * MIB + 77).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 11) as u8).collect()
}

/// Copies the only file of a directory over these lanes.
fn copied(directory: &Path, lanes: Vec<(Stream, Stream)>) -> (PathBuf, Report, u64) {
    let endpoint = |name: &str| {
        let path = directory.join(name).into_os_string().into_encoded_bytes();
        Endpoint { place: Place::Local, path }
    };
    let job = Job {
        sources: vec![endpoint("file")],
        target: endpoint("copy"),
        selection: Selection::default(),
        carriage: Carriage { timeout: Duration::from_secs(20), ..Carriage::default() },
        ssh: SshOptions::default(),
    };
    let watch = Arc::new(Watch::new(Arc::new(Quiet)));
    let ends = coordinate::here_over(&job, &watch, false, lanes, CHECKPOINT_BYTES.into()).unwrap();
    let report = watch.report(&ends, Default::default(), false).unwrap();
    (directory.join("copy"), report, ends.receiver.arrived_bytes)
}

/// Where things stand in the first unit of a lane that carries a chunk without holes.
const HEADER_TAG: usize = UNIT_HEADER_BYTES;
const FIRST_BLOCK: usize = HEADER_TAG + TAG_BYTES;
const BLOCKS: usize = MIN_CHUNK_BYTES as usize / BLOCK_BYTES;
const LAST_BLOCK: usize = FIRST_BLOCK + BLOCKS * (BLOCK_HEADER_BYTES + TAG_BYTES + BLOCK_BYTES);
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
        if was_flipped && matches!(what, "data" | "verdict" | "hash" | "tag of the trailer") {
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
    // The first block is a hole. One bit makes of it a block of data, which is then what follows.
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
