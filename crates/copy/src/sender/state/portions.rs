//! A mover of a sending end has a part of the work of its leader.

use std::sync::Arc;
use std::time::Instant;

use haul_engine::schedule::Unit;
use haul_job::Error;
use haul_wire::control::{Portion, Void};

use super::super::source_item::SourceItem;
use super::{Shared, broken};

impl Shared {
    pub(in crate::sender) fn file_of(&self, portion: &Portion) -> Arc<SourceItem> {
        let known = self.lock().portions.file(portion.index).cloned();
        let is_same = |file: &Arc<SourceItem>| file.identity == portion.identity && file.origin.path == portion.path;
        known.filter(is_same).unwrap_or_else(|| SourceItem::of_portion(portion))
    }

    pub(in crate::sender) fn take_on(&self, portion: &Portion, file: Arc<SourceItem>) -> Result<(), Error> {
        let mut state = self.lock();
        let state = &mut *state;
        state.portions.take_on(&mut state.items, portion, file).map_err(broken)?;
        self.ask_for_more(state, false);
        self.count_move();
        self.work.notify_all();
        Ok(())
    }

    pub(in crate::sender) fn portion_arrived(&self, unit: Unit) -> Result<(), Error> {
        let mut state = self.lock();
        let state = &mut *state;
        let Some(lane) = state.portions.arrived(&mut state.items, unit).map_err(broken)? else { return Ok(()) };
        self.count_move();
        if let Some(lane) = lane {
            state.receipts.insert(lane, Instant::now());
        }
        self.ask_for_more(state, false);
        Ok(())
    }

    /// See [`Shared::void`]; the chunk has the leader's number.
    pub(in crate::sender) fn portion_void(&self, void: &Void) -> Result<(), Error> {
        let item = self.lock().portions.item_of(Unit { index: void.index, chunk: void.chunk });
        item.map_or(Ok(()), |index| self.void(&Void { index, ..*void }))
    }

    pub(in crate::sender) fn decline(&self, portion: &Portion) {
        let mut state = self.lock();
        self.outbox.send(state.portions.decline(portion));
        self.ask_for_more(&mut state, false);
    }

    pub(in crate::sender) fn ask(&self) {
        self.ask_for_more(&mut self.lock(), false);
    }
}
