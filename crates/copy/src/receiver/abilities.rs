//! Whether a session can write to an end.

use haul_job::{Error, Fault};
use haul_store::Abilities;
use haul_wire::control::Cut;

/// Lanes bring chunks in any order (with `in_order` one lane brings all, from front to back), and a name shows a complete file
/// or none. An end must allow both.
pub(super) fn check(can: Abilities, cut: Cut, in_order: bool) -> Result<(), Error> {
    let why = match can {
        Abilities { keeps: false, .. } => return Ok(()),
        Abilities { random_writes: false, .. } if !in_order => "it takes the bytes of a file from front to back only",
        Abilities { least_part_bytes, .. } if least_part_bytes > cut.least_chunk_bytes() => {
            "its pieces of a file are larger than the smallest chunk that a lane brings"
        }
        Abilities { rename: false, .. } => "a file that is not complete would show under its name",
        _ => return Ok(()),
    };
    Err(Error::new(Fault::Usage, "haul cannot write to this kind of target").because(why))
}

#[cfg(test)]
mod tests {
    use haul_wire::limits::MIN_CHUNK_BYTES;

    use super::*;

    fn check(can: Abilities, in_order: bool) -> Result<(), Error> {
        super::check(can, Cut::USUAL, in_order)
    }

    #[test]
    fn an_end_that_cannot_take_chunks_in_any_order_or_hide_half_a_file_is_refused_with_its_reason() {
        let all = Abilities::ALL;
        let refused = [
            (Abilities { random_writes: false, ..all }, "front to back"),
            (Abilities { least_part_bytes: MIN_CHUNK_BYTES + 1, ..all }, "smallest chunk"),
            (Abilities { rename: false, ..all }, "under its name"),
        ];
        for (can, why) in refused {
            let error = check(can, false).unwrap_err();
            assert!(error.cause.unwrap().contains(why), "{can:?}");
            assert!(check(Abilities { keeps: false, ..can }, false).is_ok(), "what is let go needs none of it");
        }
        let less = Abilities { times: false, symbolic_links: false, hard_links: false, holes: false, ..all };
        let large = Cut::new(8 << 20, 10_000).unwrap();
        assert!(super::check(Abilities { least_part_bytes: 5 << 20, ..all }, large, false).is_ok());
        assert!(check(Abilities { random_writes: false, ..all }, true).is_ok(), "one lane brings each file in order");
        assert!(
            check(less, false).is_ok() && check(Abilities { least_part_bytes: MIN_CHUNK_BYTES, ..all }, false).is_ok()
        );
    }
}
