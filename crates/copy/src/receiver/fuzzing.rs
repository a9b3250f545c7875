//! The fuzz targets run a receiver in one thread and in a fixed order. Its peer sends any items, and anything on its lanes.

use std::io::Write as _;
use std::net::Shutdown;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use haul_engine::integrity::{self, UnitHasher};
use haul_net::Stream;
use haul_store::TargetOptions;
use haul_wire::RelPath;
use haul_wire::lane::{BlockHeader, Encoding, Trailer, UnitHeader, UnitKind};
use haul_wire::manifest::{Attributes, Identity, Item, ItemKind, Time, Xattr};

use haul_kept::files::zeros::ZEROS;
use haul_kept::surroundings::Surroundings;

use super::destination::Destination;
use super::*;

/// Runs the peer's steps in order. The first two bytes choose the kind of job; each step is one byte of what, two of length
/// (big-endian), and so many bytes:
///
/// ```text
///   0, 5   an item: kind, size, mode (1 byte each), path; behind a zero what a link points to
///   1      a lane with these bytes on it
///   2      a lane with one unit, with its true hash: kind, number of the item, chunk (1 byte each), data; what is missing are zeros
///   3      an item is withdrawn: its number (1 byte), and nothing, or the item that takes its place
///   4      the end of the manifest
/// ```
/// Nothing beside the target is touched, and each announced name has a verified file.
pub fn run(input: &[u8], directory: &Path) {
    let Some((&[first, second], mut rest)) = input.split_first_chunk() else { return };
    for name in ["to", "outside"] {
        std::fs::create_dir(directory.join(name)).expect("the directory is ours");
    }
    std::fs::write(directory.join("outside/secret"), SECRET).expect("the directory is ours");
    let mut peer = Peer::new(first, second, directory);
    while let [what, high, low, tail @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(tail.len());
        let (bytes, after) = tail.split_at(length);
        rest = after;
        if peer.does(*what, bytes).is_err() {
            break;
        }
        peer.settle();
    }
    peer.settle();
    peer.decider.end_loose();
    check(directory, &peer);
}

const SECRET: &[u8] = b"precious";

struct Peer {
    shared: Arc<Shared>,
    decider: Decider,
    packer: (Packer, Packer),
    verified: Vec<[u8; 32]>,
    _events: Events,
}

impl Peer {
    fn new(first: u8, second: u8, directory: &Path) -> Self {
        let bit = |number: u8| match number {
            0..8 => first >> number & 1 == 1,
            _ => second >> (number - 8) & 1 == 1,
        };
        let selection = wire::Selection {
            flush: false,
            delete: bit(0),
            inplace: bit(1),
            sparse: bit(2),
            checksum: bit(3),
            hard_links: bit(4),
            dry_run: bit(5),
            xattrs: bit(7),
            update: bit(8),
            ignore_existing: bit(9),
            no_resume: bit(10),
            max_delete: bit(11).then_some(1),
            ..wire::Selection::default()
        };
        let single_file = bit(12);
        let path = directory.join("to").as_os_str().as_bytes().to_vec();
        let options = TargetOptions { make: true, single_file, dry_run: selection.dry_run, ..TargetOptions::default() };
        let (tree, rename_to) = LocalTree::open(&path, &options).expect("the directory is ours");
        let job = ReceiverJob {
            hand_over: None,
            sums: None,
            target: Target::Path(path),
            confine: None,
            asked_for: None,
            far: false,
            selection,
            listed: wire::Listed::Nothing,
            hash_kept: bit(6),
            carriage: wire::Carriage::default(),
            bounds: Bounds::default(),
            movers: Default::default(),
            surroundings: Surroundings::default(),
        };
        let events = Events::new();
        let (outbox, watch) = (Arc::default(), Arc::new(Watch::silent()));
        let to = Destination::new(Arc::new(tree), rename_to, Vec::new(), &job.selection);
        let shared = Shared::new(to, job, outbox, watch, events.sender()).expect("it has no rules");
        let shared = Arc::new(shared);
        let decider = Decider::new(Arc::clone(&shared), None);
        Self { shared, decider, packer: (Packer::default(), Packer::default()), verified: Vec::new(), _events: events }
    }

    fn does(&mut self, what: u8, bytes: &[u8]) -> Result<(), Error> {
        match what % 6 {
            1 => self.carries(bytes),
            2 => self.carries(&self.true_unit(bytes).unwrap_or_default()),
            3 => self.withdraws(bytes)?,
            4 => self.shared.manifest_done(),
            _ => {
                if let Some(item) = item(bytes) {
                    let item = self.repacked(&item)?;
                    self.decider.on_item(item)?;
                }
            }
        }
        Ok(())
    }

    /// Brings the item as the far end would, which refuses what breaks a limit.
    fn repacked(&mut self, item: &Item) -> Result<Item, Error> {
        let packed = self.packer.0.pack(item);
        self.packer.1.unpack(packed).map_err(Error::broke_the_protocol)
    }

    fn carries(&self, bytes: &[u8]) {
        let (mut theirs, ours) = UnixStream::pair().expect("two descriptors");
        theirs.write_all(bytes).expect("it fits into the buffer of the socket");
        theirs.shutdown(Shutdown::Write).expect("it is open");
        let _ = lane::carry(lane::Arriving::new(Stream::plain(ours)), 0, &self.shared);
        rename_threads::name_all(&self.shared);
    }

    /// An honest sender would send it, whatever the data.
    fn true_unit(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let (&[kind, index, chunk], data) = bytes.split_first_chunk()?;
        let kinds = [UnitKind::Whole, UnitKind::Chunk, UnitKind::Hash, UnitKind::Hole, UnitKind::End, UnitKind::JobEnd];
        let header =
            UnitHeader { kind: kinds[usize::from(kind) % kinds.len()], index: index.into(), chunk: chunk.into() };
        let layout = self.shared.incoming(header.index)?.layout;
        let (_, length) = layout.range(header.chunk)?;
        let mut unit = header.encode().to_vec();
        let mut hash = UnitHasher::new(&layout, header.chunk);
        let mut add = |encoding, bytes: &[u8], data: &[u8]| {
            let length = u32::try_from(bytes.len()).expect("at most a block");
            unit.extend(BlockHeader { bytes: length, encoding }.encode());
            unit.extend_from_slice(data);
            hash.update(bytes);
        };
        if matches!(header.kind, UnitKind::Whole | UnitKind::Chunk) {
            let mut left = usize::try_from(length).ok().filter(|length| *length <= LONGEST_UNIT_BYTES)?;
            for block in data[..data.len().min(left)].chunks(100) {
                add(Encoding::Plain, block, block);
                left -= block.len();
            }
            while left > 0 {
                let hole = left.min(ZEROS.len());
                add(Encoding::Zeros, &ZEROS[..hole], &[]);
                left -= hole;
            }
        }
        let hash = match header.kind {
            UnitKind::Hole => integrity::hole(&layout, header.chunk)?.hash(),
            UnitKind::Hash | UnitKind::End | UnitKind::JobEnd => [7; 32],
            UnitKind::Whole | UnitKind::Chunk => hash.finish(),
        };
        unit.extend(BlockHeader::LAST.encode());
        unit.extend(Trailer::Complete(hash).encode());
        Some(unit)
    }

    fn withdraws(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let Some((&index, rest)) = bytes.split_first() else { return Ok(()) };
        let index = u64::from(index);
        if let Some(item) = item(rest) {
            let item = self.repacked(&item)?;
            return self.decider.on_retry(item, index);
        }
        self.shared.abandon(index);
        let why = "it changed".into();
        self.shared.settle(index, OutcomeKind::Failed { why, kind: wire::FailureKind::Changed });
        Ok(())
    }

    fn settle(&mut self) {
        while let Some(task) = self.shared.tasks.try_next() {
            settle::do_task(&self.shared, task);
        }
        self.decider.let_in();
        for message in self.shared.outbox.take_all() {
            let Control::Outcomes(outcomes) = message else { continue };
            self.verified.extend(outcomes.iter().filter_map(|outcome| match outcome.result {
                OutcomeKind::Copied { blake3 } => Some(blake3),
                _ => None,
            }));
        }
    }
}

fn item(bytes: &[u8]) -> Option<Item> {
    let (&[kind, size, mode], text) = bytes.split_first_chunk()?;
    let (path, link) = text.split_at(text.iter().position(|byte| *byte == 0).unwrap_or(text.len()));
    let link = link.strip_prefix(&[0]).unwrap_or_default();
    let size = SIZES[usize::from(size) % SIZES.len()];
    let identity = Identity { size, mtime: Time { s: size as i64, ns: 7 }, ctime: Time::default(), inode: 1 };
    let kind = match kind % 8 {
        0 | 1 => {
            let blake3 = (kind & 16 > 0).then_some([0; 32]);
            ItemKind::File { identity, hole_bytes: u64::from(kind & 8), blake3, further_names: u32::from(kind >> 5) }
        }
        2 => ItemKind::Directory,
        3 => ItemKind::DirectoryEnd { complete: kind & 8 > 0 },
        4 => ItemKind::Symlink { target: link.to_vec() },
        5 => ItemKind::HardLink { first: RelPath::new(link.to_vec()).ok()? },
        6 => ItemKind::Skipped { why: "it is a socket".into() },
        _ => ItemKind::Failed { why: "it cannot be read".into(), vanished: kind & 8 > 0 },
    };
    let xattrs = (mode & 1 > 0).then(|| Xattr { name: b"user.a".to_vec(), value: link.to_vec() });
    let mode = u32::from(mode) << 4 | 0o600;
    let attributes =
        Attributes { mode, mtime: identity.mtime, xattrs: xattrs.into_iter().collect(), ..Attributes::default() };
    Some(Item { path: RelPath::new(path.to_vec()).ok()?, kind, attributes })
}

/// The sizes lie around the boundaries of blocks, chunks and numbers.
const SIZES: [u64; 16] = [
    0,
    1,
    5,
    100,
    4096,
    (256 << 10) - 1,
    1 << 20,
    (1 << 20) + 1,
    2 << 20,
    (3 << 20) + 5,
    64 << 20,
    (128 << 20) + 1,
    1 << 40,
    i64::MAX as u64,
    (i64::MAX as u64) + 1,
    u64::MAX,
];

/// Four chunks; longer units are for longer tests.
const LONGEST_UNIT_BYTES: usize = 4 << 20;

fn check(directory: &Path, peer: &Peer) {
    let names = |path: &str| {
        let entries = std::fs::read_dir(directory.join(path)).expect("the directory is ours");
        let mut names: Vec<_> = entries.map(|entry| entry.expect("it was listed").file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(""), ["outside", "to"]);
    assert_eq!(names("outside"), ["secret"]);
    let secret = directory.join("outside/secret");
    assert_eq!(std::fs::read(&secret).expect("it is there"), SECRET);
    assert_eq!(std::fs::symlink_metadata(&secret).expect("it is there").nlink(), 1);
    if !peer.shared.job.selection.inplace {
        check_files(&directory.join("to"), &peer.verified, 0);
    }
}

fn check_files(directory: &Path, verified: &[[u8; 32]], depth: usize) {
    // Deeper trees have longer paths than one call takes.
    let entries = std::fs::read_dir(directory).into_iter().filter(|_| depth < 100).flatten();
    for entry in entries.map(|entry| entry.expect("it was listed")) {
        let kind = entry.file_type().expect("it was listed");
        if kind.is_dir() {
            check_files(&entry.path(), verified, depth + 1);
        } else if kind.is_file() && haul_store::parse_haul_name(entry.file_name().as_bytes()).is_none() {
            let contents = std::fs::read(entry.path()).expect("we may read all");
            assert!(verified.contains(blake3::hash(&contents).as_bytes()), "{:?} was not verified", entry.path());
        }
    }
}
