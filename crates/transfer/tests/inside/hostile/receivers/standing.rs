//! Tests a real sender whose target tells lies of what stands there.

use haul_wire::control::{Piece, Standing};
use haul_wire::standing::{MAX_MEAN_BYTES, MAX_PIECES, MIN_MEAN_BYTES};

use super::*;

fn some_of(index: u64, pieces: usize) -> Standing {
    let piece = Piece { bytes: 1, digest: [7; 8] };
    Standing { index, mean_bytes: MIN_MEAN_BYTES, in_place: false, pieces: vec![piece; pieces], is_last: false }
}

#[test]
fn pieces_that_no_honest_target_cuts_end_the_session() {
    let one = some_of(LARGE, 1);
    let of_bytes = |bytes| vec![Piece { bytes, digest: [7; 8] }];
    let cases = [
        ("a mean that is no power of two", Standing { mean_bytes: MIN_MEAN_BYTES + 1, ..one.clone() }),
        ("a mean below the least", Standing { mean_bytes: MIN_MEAN_BYTES / 2, ..one.clone() }),
        ("a mean above the most", Standing { mean_bytes: MAX_MEAN_BYTES * 2, ..one.clone() }),
        ("a piece of no bytes", Standing { pieces: of_bytes(0), ..one.clone() }),
        ("a piece beyond measure", Standing { pieces: of_bytes(u32::MAX), ..one }),
    ];
    for (what, standing) in cases {
        let mut source = Source::open();
        source.peer.says(&Control::Standing(standing));
        let error = source.peer.ended().unwrap_err();
        assert_eq!(error.fault, Fault::Network, "{what}: {error:?}");
    }
}

#[test]
fn a_file_is_cut_in_one_way_and_once() {
    let other_ways = [
        Standing { mean_bytes: 2 * MIN_MEAN_BYTES, ..some_of(LARGE, 1) },
        Standing { in_place: true, ..some_of(LARGE, 1) },
    ];
    for other in other_ways {
        let mut source = Source::open();
        source.peer.says(&Control::Standing(some_of(LARGE, 1)));
        source.peer.says(&Control::Standing(other));
        source.peer.broke_the_protocol("in two ways");
    }
    let mut source = Source::open();
    source.peer.says(&Control::Standing(Standing { is_last: true, ..some_of(LARGE, 1) }));
    source.peer.says(&Control::Standing(some_of(LARGE, 1)));
    source.peer.broke_the_protocol("in two ways");
}

#[test]
fn a_file_has_no_pieces_without_end() {
    let mut source = Source::open();
    let full = Control::Standing(some_of(LARGE, MAX_PIECES));
    for _ in 0..=haul_copy::pieces::MOST_PIECES as usize * 2 / MAX_PIECES {
        source.peer.says(&full);
    }
    source.peer.broke_the_protocol("without end");
}

#[test]
fn what_is_said_of_files_that_are_not_open_costs_nothing() {
    let mut source = Source::open();
    source.settles(SMALL, OutcomeKind::Kept { blake3: None });
    for index in [SMALL, DIRECTORY, 99, u64::MAX] {
        source.peer.says(&Control::Standing(some_of(index, 1)));
    }
    source.answers(LARGE, Wanted::All);
    assert_eq!(source.sends_chunks(CHUNKS as usize).len(), CHUNKS as usize);
}
