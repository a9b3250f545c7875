//! Checks an arriving file against the hashes of its blocks and of the whole.

use haul_job::{Error, Fault};
use haul_wire::place::Whole;

#[derive(Default)]
pub struct Arriving {
    bytes: u64,
    hasher: blake3::Hasher,
}

impl Arriving {
    pub fn block(&mut self, bytes: &[u8], blake3: &[u8; 32]) -> Result<(), Error> {
        if blake3::hash(bytes).as_bytes() != blake3 {
            return Err(Error::new(Fault::Verification, "what arrived is not what was sent"));
        }
        self.bytes += bytes.len() as u64;
        self.hasher.update(bytes);
        Ok(())
    }

    pub(crate) fn whole_bytes(&self) -> u64 {
        self.bytes
    }

    pub fn whole(&self) -> Whole {
        Whole { bytes: self.bytes, blake3: *self.hasher.finalize().as_bytes() }
    }

    pub fn end(self, whole: &Whole) -> Result<(), Error> {
        match self.whole() == *whole {
            true => Ok(()),
            false => Err(Error::new(Fault::Verification, "what arrived is not all that was sent")),
        }
    }
}
