//! Bounds what a target may make a sender keep of the files that stand there.

use std::sync::atomic::{AtomicUsize, Ordering};

use haul_engine::sending::Broken;
use haul_wire::control::Standing;
use haul_wire::summary::KnownPath;

use super::source_item::SourceItem;
use super::standing::{PIECES_MAX, StandingFile};
use crate::pieces::OPEN_PIECES;

/// At some 70 bytes a piece: 100 MiB for a hostile target, and 5 MiB for a file of 2 GB.
const BUDGET_PIECES: usize = PIECES_MAX + OPEN_PIECES;

#[derive(Default)]
pub(super) struct StandingBudget {
    pieces: AtomicUsize,
}

impl StandingBudget {
    /// Enters the target's pieces.
    pub(super) fn enter(
        &self,
        file: &SourceItem,
        standing: &Standing,
        known: Option<&KnownPath>,
    ) -> Result<(), Broken> {
        let table = file.standing.get_or_init(|| StandingFile::new(standing, file.identity.size, known));
        let added = table.add(standing)?;
        match self.pieces.fetch_add(added, Ordering::Relaxed) + added > BUDGET_PIECES {
            true => Err(Broken("it tells of more standing files than it may at once")),
            false => Ok(()),
        }
    }

    pub(super) fn release(&self, file: &SourceItem) {
        let pieces = file.standing.get().map_or(0, StandingFile::take_pieces);
        self.pieces.fetch_sub(pieces, Ordering::Relaxed);
    }
}
