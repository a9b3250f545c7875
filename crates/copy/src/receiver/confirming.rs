//! What other hosts of the sending end bring counts only when the leader of that end has read the same.
//!
//! A mover's chunk waits here for the leader's hash, so a mover without a portion writes nothing.

use std::io;
use std::time::{Duration, Instant};

use haul_engine::integrity::Hash;
use haul_engine::schedule::To;
use haul_wire::control::{ChunkProof, Control};
use haul_wire::lane::path_of;

use haul_channel::clock::TICK;

use super::incoming::Incoming;
use super::state::Shared;

impl Shared {
    pub(super) fn is_by_mover(&self, lane: u16) -> bool {
        self.job.movers.to(lane) == To::Mover
    }

    pub(super) fn confirm(&self, proofs: &[ChunkProof]) {
        for ChunkProof { index, chunk, hash } in proofs {
            if let Some(incoming) = self.incoming(*index).filter(|incoming| *chunk < incoming.layout.count()) {
                incoming.proofs.add(*chunk, *hash);
            }
        }
    }

    /// Waits for the leader's hash. An error ends the lane, and its mover.
    pub(super) fn await_proof(&self, incoming: &Incoming, chunk: u32, lane: u16) -> io::Result<Hash> {
        let (begun, limit) = (Instant::now(), Duration::from_millis(u64::from(self.job.carriage.timeout_ms)) / 2);
        loop {
            if let Some(hash) = incoming.proofs.await_one(chunk, TICK) {
                return Ok(hash);
            }
            if self.is_over() || self.job.movers.accusation(path_of(lane)).is_some() {
                return Err(io::Error::other("the session is over"));
            }
            if begun.elapsed() > limit {
                return Err(self.accuse(lane, "it sends what it was not given"));
            }
        }
    }

    pub(super) fn accuse(&self, lane: u16, why: &str) -> io::Error {
        self.job.movers.accuse(path_of(lane), why.to_owned());
        // The lanes of a mover that is left out must not end the job, as broken lanes of the leader would.
        io::Error::other(why.to_owned())
    }

    pub(super) fn was_confirmed(incoming: &Incoming, chunk: u32) {
        incoming.proofs.forget(chunk);
    }

    pub(super) fn tell_sender_on(&self, lane: u16, message: Control) {
        match self.is_by_mover(lane) {
            true => self.job.movers.tell(path_of(lane), message),
            false => self.outbox.send(message),
        }
    }
}
