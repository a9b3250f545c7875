//! What arrives of a file: each block is compared with its hash, and the whole with that of the whole.

use haul_job::{Error, Fault};
use haul_wire::place::Whole;

/// A file on its way.
#[derive(Default)]
pub(super) struct Arriving {
    bytes: u64,
    hasher: blake3::Hasher,
}

impl Arriving {
    /// Only a block that passes is passed on.
    pub(super) fn block(&mut self, bytes: &[u8], blake3: &[u8; 32]) -> Result<(), Error> {
        if blake3::hash(bytes).as_bytes() != blake3 {
            return Err(Error::new(Fault::Verification, "what arrived is not what was sent"));
        }
        self.bytes += bytes.len() as u64;
        self.hasher.update(bytes);
        Ok(())
    }

    /// So far.
    pub(super) fn whole_bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn whole(&self) -> Whole {
        Whole { bytes: self.bytes, blake3: *self.hasher.finalize().as_bytes() }
    }

    pub(super) fn end(self, whole: &Whole) -> Result<(), Error> {
        match self.whole() == *whole {
            true => Ok(()),
            false => Err(Error::new(Fault::Verification, "what arrived is not all that was sent")),
        }
    }
}
