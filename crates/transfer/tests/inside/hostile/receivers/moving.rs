//! Tests a real sender against a lying mover of the receiving end.

use haul_engine::integrity::Hash;
use haul_wire::control::{MovedChunk, OpenDraft};
use haul_wire::lane::lane_of;
use haul_wire::limits::MAX_PATHS;

use haul_striping::movers::Movers;

use super::*;

const PATH: u16 = MAX_PATHS - 1;

struct ToMover {
    source: Source,
    movers: Movers,
    says: EventSender,
}

impl ToMover {
    fn open(timeout_ms: u32) -> Self {
        let (movers, (give, given)) = (Movers::new(1), channel());
        let for_job = movers.clone();
        let mut source = Source::on_lane(lane_of(PATH, 0), move |job, events| {
            job.movers = for_job;
            job.carriage.timeout_ms = timeout_ms;
            give.send(events).unwrap();
        });
        let size = u64::from(CHUNKS) * MIN_CHUNK_BYTES;
        source.peer.says(&Control::OpenDraft(OpenDraft { index: LARGE, path: b"large".to_vec(), inode: 1, size }));
        source.answers(LARGE, Wanted::Chunks(vec![ChunkRange { first: 0, count: 1 }]));
        source.sends_chunks(1);
        Self { source, movers, says: given.recv().unwrap() }
    }

    fn moved(&self, path: u16, chunk: MovedChunk) {
        assert!(self.says.send(SessionEvent::Moved(path, vec![chunk])).is_ok());
    }

    #[track_caller]
    fn is_accused(&self, why: &str) {
        let end = Instant::now() + PATIENCE;
        while self.movers.accusation(PATH).is_none() {
            assert!(Instant::now() < end, "nobody noticed");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(self.movers.accusation(PATH).unwrap().contains(why), "{:?}", self.movers.accusation(PATH));
    }

    fn enters(&self) -> Vec<MovedChunk> {
        self.source.peer.hears(|message| match message {
            Control::Moved(chunks) => Some(chunks),
            _ => None,
        })
    }
}

fn hash() -> Hash {
    let mut hasher = UnitHasher::new(&ChunkLayout::of(u64::from(CHUNKS) * MIN_CHUNK_BYTES), 0);
    hasher.update(&vec![5; MIN_CHUNK_BYTES as usize]);
    hasher.finish()
}

fn honest() -> MovedChunk {
    MovedChunk { index: LARGE, chunk: 0, hash: hash(), data_bytes: MIN_CHUNK_BYTES, written_bytes: MIN_CHUNK_BYTES }
}

#[test]
fn chunks_that_a_mover_was_never_given_are_not_told_to_the_leader() {
    let with = ToMover::open(20_000);
    for chunk in [1, 2, CHUNKS, u32::MAX] {
        with.moved(PATH, MovedChunk { chunk, ..honest() });
    }
    for index in [DIRECTORY, SMALL, 99, u64::MAX] {
        with.moved(PATH, MovedChunk { index, ..honest() });
    }
    with.moved(PATH - 1, honest());
    with.moved(0, honest());
    with.moved(PATH, honest());
    assert_eq!(with.enters(), [honest()]);
    assert_eq!(with.movers.accusation(PATH), None);
}

#[test]
fn a_mover_that_wrote_more_or_other_data_than_it_was_sent_is_left_out() {
    for (wrong, why) in [
        (MovedChunk { data_bytes: MIN_CHUNK_BYTES + 1, ..honest() }, "more than it was sent"),
        (MovedChunk { written_bytes: u64::MAX, ..honest() }, "more than it was sent"),
        (MovedChunk { hash: [7; 32], ..honest() }, "other data"),
        (MovedChunk { hash: [0; 32], ..honest() }, "other data"),
    ] {
        let with = ToMover::open(20_000);
        with.moved(PATH, wrong);
        with.is_accused(why);
    }
}

#[test]
fn a_mover_that_never_confirms_is_left_out_before_the_job_is_given_up() {
    let with = ToMover::open(2_000);
    with.is_accused("confirmed nothing");
    assert!(!with.source.peer.end.is_finished());
}
