//! Tests a real receiver against a hostile host of the sending end that does not lead.

use haul_wire::control::{ChunkProof, MoverWord};
use haul_wire::lane::lane_of;
use haul_wire::limits::MAX_PATHS;

use haul_channel::outbox::Outbox;
use haul_striping::movers::Movers;

use super::*;

const PATH: u16 = MAX_PATHS - 1;

const SIZE: u64 = 2 * MIN_CHUNK_BYTES;

struct WithMover {
    target: Target,
    movers: Movers,
    heard: Arc<Outbox>,
}

impl WithMover {
    fn open(timeout_ms: u32) -> Self {
        let (movers, heard) = (Movers::new(1), Arc::<Outbox>::default());
        movers.joins(PATH, &heard);
        let for_job = movers.clone();
        let mut target = Target::with_lane(lane_of(PATH, 0), |job| {
            job.movers = for_job;
            job.carriage.timeout_ms = timeout_ms;
        });
        target.peer.says(&Control::Begin { single_file: false });
        target.announces(&[file("large", SIZE), file("small", 4)]);
        target.peer.is_asked_for(1);
        Self { target, movers, heard }
    }

    fn proves(&mut self, index: u64, chunk: u32, data: &[u8]) {
        let mut hasher = UnitHasher::new(&ChunkLayout::of(SIZE), chunk);
        hasher.update(data);
        let word = MoverWord::Proofs(vec![ChunkProof { index, chunk, hash: hasher.finish() }]);
        self.target.peer.says(&Control::OfMover { path: 0, word });
    }

    #[track_caller]
    fn is_accused(&self, why: &str) {
        let end = Instant::now() + PATIENCE;
        let said = loop {
            match self.movers.accusation(PATH) {
                Some(said) => break said,
                None => assert!(Instant::now() < end, "nobody noticed"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        assert!(said.contains(why), "{said}");
        assert_eq!(self.target.read("large"), None);
        self.target.assert_outside_is_untouched();
        assert!(!self.heard.take_all().iter().any(|message| matches!(message, Control::Receipts(_))));
    }
}

fn data(byte: u8) -> Vec<u8> {
    vec![byte; MIN_CHUNK_BYTES as usize]
}

#[test]
fn chunks_that_the_leader_has_read_alike_count_and_both_hear_of_it() {
    let mut with = WithMover::open(20_000);
    for chunk in 0..2 {
        with.proves(0, chunk, &data(7));
        with.target.peer.sends(&unit(UnitKind::Chunk, 0, chunk, SIZE, &data(7)));
    }
    assert!(matches!(with.target.peer.outcome_of(0), OutcomeKind::Copied { .. }));
    assert_eq!(with.target.read("large"), Some(vec![7; SIZE as usize]));
    let receipts = with.heard.take_all().into_iter().filter_map(|message| match message {
        Control::Receipts(receipts) => Some(receipts.len()),
        _ => None,
    });
    assert_eq!(receipts.sum::<usize>(), 2);
    assert_eq!(with.movers.accusation(PATH), None);
}

#[test]
fn other_bytes_than_the_leader_has_read_do_not_count_though_their_own_hash_is_right() {
    let mut with = WithMover::open(20_000);
    with.proves(0, 0, &data(7));
    with.target.peer.sends(&unit(UnitKind::Chunk, 0, 0, SIZE, &data(8)));
    with.is_accused("other data");
}

#[test]
fn a_chunk_that_was_not_given_to_the_mover_is_not_written() {
    let mut with = WithMover::open(2 * SHORT_MS);
    with.proves(0, 0, &data(7));
    with.target.peer.sends(&unit(UnitKind::Chunk, 0, 1, SIZE, &data(7)));
    with.is_accused("not given");
}

#[test]
fn what_is_for_the_leader_to_send_is_not_taken_from_a_mover() {
    let hole = unit_of(UnitHeader { kind: UnitKind::Hole, index: 0, chunk: 0 }, &[], Trailer::Complete([0; 32]));
    let hash = unit_of(UnitHeader { kind: UnitKind::Hash, index: 0, chunk: 0 }, &[], Trailer::Complete([0; 32]));
    for bytes in [unit(UnitKind::Whole, 1, 0, 4, b"evil"), hole, hash] {
        let mut with = WithMover::open(20_000);
        with.proves(0, 0, &data(0));
        with.target.peer.sends(&bytes);
        with.is_accused("for the leading host");
        assert_eq!(with.target.read("small"), None);
    }
    for bytes in [unit(UnitKind::Chunk, 0, 2, 3 * SIZE, &data(7)), vec![9; 100]] {
        let mut with = WithMover::open(20_000);
        with.target.peer.sends(&bytes);
        with.is_accused("");
    }
}

#[test]
fn what_a_leader_proves_of_files_that_are_not_open_is_not_kept() {
    let mut with = WithMover::open(20_000);
    for (index, chunk) in [(0, 2), (0, u32::MAX), (1, 1), (99, 0), (u64::MAX, 0)] {
        let word = MoverWord::Proofs(vec![ChunkProof { index, chunk, hash: [1; 32] }]);
        with.target.peer.says(&Control::OfMover { path: 0, word });
    }
    for chunk in 0..2 {
        with.proves(0, chunk, &data(7));
        with.target.peer.sends(&unit(UnitKind::Chunk, 0, chunk, SIZE, &data(7)));
    }
    assert!(matches!(with.target.peer.outcome_of(0), OutcomeKind::Copied { .. }));
}

#[test]
fn a_receiver_without_movers_hears_nothing_of_them() {
    let mut target = Target::open();
    target.announces(&[file("large", SIZE)]);
    target.peer.says(&Control::OfMover { path: PATH, word: MoverWord::Proofs(Vec::new()) });
    target.peer.broke_the_protocol("unexpected message OfMover");
}
