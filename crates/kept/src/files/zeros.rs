//! Finds blocks of zeros, which holes read as.

use haul_wire::limits::BLOCK_BYTES;

/// A block of a hole.
pub static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

/// Cuts data into runs of zeros (true) and others, at multiples of `grain`, which is at most a block.
pub fn runs(data: &[u8], grain: usize) -> impl Iterator<Item = (bool, &[u8])> {
    let is_zero = |piece: &[u8]| *piece == ZEROS[..piece.len()];
    let mut pieces = data.chunks(grain).map(move |piece| (is_zero(piece), piece.len())).peekable();
    let mut at = 0;
    std::iter::from_fn(move || {
        let (kind, mut length) = pieces.next()?;
        while let Some((_, more)) = pieces.next_if(|(next, _)| *next == kind) {
            length += more;
        }
        let start = at;
        at += length;
        Some((kind, &data[start..at]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_zeros_begin_and_end_where_a_block_does() {
        let cut = |data: &[u8]| runs(data, 4).map(|(is_hole, run)| (is_hole, run.len())).collect::<Vec<_>>();
        assert_eq!(cut(&[]), []);
        assert_eq!(cut(&[0; 10]), [(true, 10)]);
        assert_eq!(cut(&[1; 10]), [(false, 10)]);
        assert_eq!(cut(&[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0]), [(true, 4), (false, 4), (true, 5)]);
        assert_eq!(cut(&[0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0]), [(false, 8), (true, 4)]);
    }
}
