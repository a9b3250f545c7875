//! Tests a real mover of a sending end against hostile leaders.

use std::io::Read as _;
use std::os::unix::fs::MetadataExt;

use haul_wire::control::{ChunkRange, MoverWord, Portion, Receipt, SenderSummary};
use haul_wire::lane::{UNIT_HEADER_BYTES, lane_of};
use haul_wire::limits::{MAX_PATHS, MIN_CHUNK_BYTES};

use haul_channel::lane_threads::NoKeeper;
use haul_channel::role_context::RoleContext;
use haul_copy::sender::{self, SenderJob};
use haul_kept::class_policy::Permits;

use super::*;

const CHUNKS: u32 = 3;

struct WithLeader {
    dir: tempfile::TempDir,
    peer: Peer,
}

impl WithLeader {
    fn open() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("tree")).unwrap();
        let size = usize::try_from(MIN_CHUNK_BYTES).unwrap() * CHUNKS as usize;
        for name in ["tree/large", "outside"] {
            std::fs::write(dir.path().join(name), vec![5; size]).unwrap();
        }
        std::os::unix::fs::symlink("../outside", dir.path().join("tree/link")).unwrap();
        let mut path = dir.path().join("tree").into_os_string().into_encoded_bytes();
        path.push(b'/');
        let job = SenderJob {
            hand_over: None,
            outbound: None,
            movers: Default::default(),
            is_mover: true,
            far: false,
            remembers: None,
            home: None,
            direct_from_bytes: haul_store::DIRECT_FROM_BYTES,
            early: None,
            sources: sender::Sources::Paths(vec![path]),
            listed: None,
            confine: None,
            expand_globs: false,
            selection: bare(),
            carriage: carriage(20_000),
            permits: Permits::default(),
            hooks: None,
        };
        let peer = Peer::facing(lane_of(MAX_PATHS - 1, 0), move |events, channel, watch| {
            sender::mover::run(
                job,
                RoleContext { events, channel, watch, keeper: &mut NoKeeper, on_other_message: &mut on_other_message },
            )
            .map(drop)
        });
        peer.hears(|message| matches!(message, Control::OfMover { word: MoverWord::Takes { .. }, .. }).then_some(()));
        Self { dir, peer }
    }

    fn portion(&self, of: &str, path: &str, chunks: ChunkRange) -> Portion {
        let stat = std::fs::metadata(self.dir.path().join(of)).unwrap();
        let time = |s, ns: i64| haul_wire::manifest::Time { s, ns: u32::try_from(ns).unwrap() };
        let identity = Identity {
            size: stat.size(),
            mtime: time(stat.mtime(), stat.mtime_nsec()),
            ctime: time(stat.ctime(), stat.ctime_nsec()),
            inode: stat.ino(),
        };
        Portion { index: 40, source: 0, path: path.as_bytes().to_vec(), identity, chunks }
    }

    fn gives(&mut self, portion: Portion) {
        self.peer.says(&Control::OfMover { path: MAX_PATHS - 1, word: MoverWord::Portion(portion) });
    }
}

fn chunks(first: u32, count: u32) -> ChunkRange {
    ChunkRange { first, count }
}

#[test]
fn chunks_that_were_given_go_on_the_lane_with_the_number_of_the_leader() {
    let mut with = WithLeader::open();
    let portion = with.portion("tree/large", "large", chunks(1, 1));
    with.gives(portion);
    let mut header = [0; UNIT_HEADER_BYTES];
    with.peer.lane.read_exact(&mut header).unwrap();
    assert_eq!(UnitHeader::decode(&header), Some(UnitHeader { kind: UnitKind::Chunk, index: 40, chunk: 1 }));
    with.peer.says(&Control::Receipts(vec![Receipt {
        index: 40,
        chunk: 1,
        data_bytes: MIN_CHUNK_BYTES,
        matched_bytes: 0,
    }]));
    with.peer.says(&Control::Receipts(vec![Receipt { index: 40, chunk: 1, data_bytes: 0, matched_bytes: 0 }]));
    with.peer.says(&Control::Receipts(vec![Receipt { index: 7, chunk: u32::MAX, data_bytes: 0, matched_bytes: 0 }]));
    with.peer.says(&Control::Bye(SenderSummary::default()));
    with.peer.hears(|message| matches!(message, Control::Bye(_)).then_some(()));
    let mut rest = Vec::new();
    with.peer.lane.read_to_end(&mut rest).unwrap();
    with.peer.ended().unwrap();
}

#[test]
fn what_lies_outside_of_the_sources_or_is_another_file_is_not_sent() {
    for (of, path) in [
        ("outside", "../outside"),
        ("outside", "link"),
        ("outside", "large"),
        ("tree/large", "/etc/passwd"),
        ("tree/large", "large/../../outside"),
        ("tree/large", ""),
        ("tree/large", "gone"),
    ] {
        let mut with = WithLeader::open();
        let portion = with.portion(of, path, chunks(0, 1));
        with.gives(portion);
        let error = with.peer.ended().unwrap_err();
        assert!(error.what.contains("does not have the files of the leading host"), "{path}: {error:?}");
    }
    let mut with = WithLeader::open();
    let portion = with.portion("tree/large", "large", chunks(0, 1));
    with.gives(Portion { source: 9, ..portion });
    assert!(with.peer.ended().is_err());
}

#[test]
fn a_file_that_has_changed_since_goes_back_once_another_was_proved() {
    let mut with = WithLeader::open();
    let portion = with.portion("tree/large", "large", chunks(0, 1));
    with.gives(portion);
    let portion = with.portion("outside", "link", chunks(0, 2));
    with.gives(Portion { index: 41, ..portion });
    let back = with.peer.hears(|message| match message {
        Control::OfMover { word: MoverWord::Returns { index, chunks }, .. } => Some((index, chunks)),
        _ => None,
    });
    assert_eq!(back, (41, vec![chunks(0, 2)]));
}

#[test]
fn more_than_was_asked_for_and_chunks_that_do_not_exist_end_the_session() {
    let check = |ranges: &[ChunkRange], why: &str| {
        let mut with = WithLeader::open();
        for range in ranges {
            let portion = with.portion("tree/large", "large", *range);
            with.gives(portion);
        }
        with.peer.broke_the_protocol(why);
    };
    check(&[chunks(CHUNKS, 1)], "do not exist");
    check(&[chunks(0, 0)], "do not exist");
    check(&[chunks(u32::MAX, u32::MAX)], "do not exist");
    check(&[chunks(0, 1), chunks(0, 1)], "twice");
    let mut with = WithLeader::open();
    for index in 0..100 {
        let portion = with.portion("tree/large", "large", chunks(0, CHUNKS));
        with.gives(Portion { index, ..portion });
    }
    with.peer.broke_the_protocol("more than was asked for");
}
