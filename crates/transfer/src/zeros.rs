//! A block of zeros: what a hole reads as.

use haul_wire::limits::BLOCK_BYTES;

pub(crate) static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];
