//! Tests a real sender that leads its end, with movers that ask for anything.

use haul_wire::control::{ChunkProof, MoverWord, Portion};
use haul_wire::limits::{MAX_MOVERS, MAX_PATHS};

use super::*;

const PATH: u16 = MAX_PATHS - 1;

fn leading(timeout_ms: u32) -> Source {
    Source::of(wire::Carriage { movers: 1, ..carriage(timeout_ms) })
}

impl Source {
    fn mover_says(&mut self, path: u16, word: MoverWord) {
        self.peer.says(&Control::OfMover { path, word });
    }

    fn gives(&self) -> Portion {
        self.peer.hears(|message| match message {
            Control::OfMover { path: PATH, word: MoverWord::Portion(portion) } => Some(portion),
            _ => None,
        })
    }

    pub(super) fn sends_chunks(&mut self, count: usize) -> Vec<u32> {
        let mut chunks = Vec::new();
        while chunks.len() < count {
            let mut header = [0; UNIT_HEADER_BYTES];
            self.peer.lane.read_exact(&mut header).unwrap();
            chunks.push(UnitHeader::decode(&header).unwrap().chunk);
            loop {
                let mut block = [0; BLOCK_HEADER_BYTES];
                self.peer.lane.read_exact(&mut block).unwrap();
                let block = BlockHeader::decode(block).unwrap();
                if block == BlockHeader::LAST {
                    break;
                }
                self.peer.lane.read_exact(&mut vec![0; block.bytes as usize]).unwrap();
            }
            self.peer.lane.read_exact(&mut [0; TRAILER_BYTES]).unwrap();
        }
        chunks.sort_unstable();
        chunks
    }
}

#[test]
fn a_mover_gets_chunks_of_large_files_once_and_the_receiver_their_hashes() {
    let mut source = leading(20_000);
    source.mover_says(PATH, MoverWord::Takes { chunks: u32::MAX });
    source.answers(SMALL, Wanted::All);
    source.answers(LARGE, Wanted::All);
    let portion = source.gives();
    assert_eq!(
        (portion.index, portion.chunks, &portion.path[..]),
        (LARGE, ChunkRange { first: 0, count: CHUNKS }, &b"large"[..])
    );
    let mut proofs: Vec<ChunkProof> = Vec::new();
    while proofs.len() < CHUNKS as usize {
        proofs.extend(source.peer.hears(|message| match message {
            Control::OfMover { word: MoverWord::Proofs(proofs), .. } => Some(proofs),
            _ => None,
        }));
    }
    for proof in proofs {
        let size = MIN_CHUNK_BYTES * u64::from(CHUNKS);
        let mut hasher = UnitHasher::new(&ChunkLayout::of(size), proof.chunk);
        hasher.update(&vec![5; MIN_CHUNK_BYTES as usize]);
        assert_eq!(proof.hash, hasher.finish());
    }
}

#[test]
fn what_a_mover_gives_back_goes_on_the_lanes_of_the_leader_and_only_what_it_had() {
    let mut source = leading(20_000);
    source.mover_says(PATH, MoverWord::Takes { chunks: 2 });
    source.answers(LARGE, Wanted::All);
    assert_eq!(source.gives().chunks.count, 2);
    let range = |first, count| ChunkRange { first, count };
    let wild = vec![range(2, u32::MAX), range(u32::MAX, u32::MAX), range(7, 1)];
    for index in [LARGE, SMALL, DIRECTORY, 99] {
        source.mover_says(PATH, MoverWord::Returns { index, chunks: wild.clone() });
    }
    source.mover_says(PATH, MoverWord::Returns { index: LARGE, chunks: vec![range(0, 1), range(0, 2)] });
    assert_eq!(source.sends_chunks(3), [0, 1, 2]);
}

#[test]
fn a_mover_that_sends_nothing_or_is_gone_loses_its_chunks_to_the_others() {
    let mut source = leading(2_000);
    source.mover_says(PATH, MoverWord::Takes { chunks: 9 });
    source.answers(LARGE, Wanted::All);
    source.gives();
    source.peer.hears(|message| matches!(message, Control::PathLost { path: PATH }).then_some(()));
    assert_eq!(source.sends_chunks(3), [0, 1, 2]);
    let mut source = leading(20_000);
    source.mover_says(PATH, MoverWord::Takes { chunks: 9 });
    source.answers(LARGE, Wanted::All);
    source.gives();
    source.peer.says(&Control::PathLost { path: PATH });
    assert_eq!(source.sends_chunks(3), [0, 1, 2]);
}

#[test]
fn nobody_speaks_for_a_host_that_is_none_of_the_end() {
    let takes = || MoverWord::Takes { chunks: 1 };
    for path in [0, MAX_PATHS - MAX_MOVERS - 1, MAX_PATHS, u16::MAX] {
        let mut source = leading(20_000);
        source.mover_says(path, takes());
        source.peer.broke_the_protocol("none of this end");
    }
    let mut source = Source::open();
    source.mover_says(PATH, takes());
    source.peer.broke_the_protocol("none of this end");
    let mut source = leading(20_000);
    source.mover_says(PATH, MoverWord::Proofs(Vec::new()));
    source.peer.broke_the_protocol("hands out work");
}
