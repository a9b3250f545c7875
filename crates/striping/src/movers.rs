//! Tells movers what they need; a late one gets all that still holds.
//!
//! Movers of a receiving end hear of drafts. Movers of a sending end hear what the receiver says to a sender.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use haul_engine::schedule::To;
use haul_wire::control::{Control, OpenDraft, Receipt, SenderSummary, SharedRoot};
use haul_wire::lane::path_of;
use haul_wire::limits::MAX_PATHS;

use haul_channel::outbox::Outbox;
use haul_kept::sync::lock;

/// The movers of a job.
#[derive(Clone, Default)]
pub struct Movers(Arc<Inside>);

#[derive(Default)]
struct Inside {
    count: u16,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    single_file: Option<bool>,
    root: Option<SharedRoot>,
    drafts: BTreeMap<u64, OpenDraft>,
    /// Movers that found the tree, by path.
    joined: BTreeMap<u16, Arc<Outbox>>,
    /// Distrusted movers, and why.
    accused: BTreeMap<u16, String>,
    partings: BTreeMap<u16, SenderSummary>,
    is_over: bool,
}

impl Movers {
    /// Expects `count` movers, at most [`haul_wire::limits::MAX_MOVERS`].
    pub fn new(count: u16) -> Self {
        Self(Arc::new(Inside { count, ..Inside::default() }))
    }

    /// The requested movers.
    pub fn count(&self) -> u16 {
        self.0.count
    }

    /// The path of a mover.
    pub fn path_of_mover(number: u16) -> u16 {
        MAX_PATHS - 1 - number
    }

    /// A lane's destination.
    pub fn to(&self, lane: u16) -> To {
        if path_of(lane) >= MAX_PATHS - self.0.count { To::Mover } else { To::Leader }
    }

    /// Notes open sources.
    pub fn begins(&self, single_file: bool) {
        lock(&self.0.state).single_file = Some(single_file);
        self.0.changed.notify_all();
    }

    /// Shows the leader's tree.
    pub fn shows(&self, root: SharedRoot) {
        lock(&self.0.state).root = Some(root);
        self.0.changed.notify_all();
    }

    /// Waits up to `limit` for the root.
    pub fn await_root(&self, limit: Duration) -> Option<(bool, SharedRoot)> {
        let is_missing = |state: &mut State| !state.is_over && (state.root.is_none() || state.single_file.is_none());
        let (state, _) = self
            .0
            .changed
            .wait_timeout_while(lock(&self.0.state), limit, is_missing)
            .unwrap_or_else(PoisonError::into_inner);
        state.single_file.zip(state.root.clone()).filter(|_| !state.is_over)
    }

    /// Adds a mover: it gets what is open, and what will be.
    pub fn joins(&self, path: u16, outbox: &Arc<Outbox>) {
        let mut state = lock(&self.0.state);
        for draft in state.drafts.values() {
            outbox.send(Control::OpenDraft(draft.clone()));
        }
        state.joined.insert(path, Arc::clone(outbox));
    }

    /// Removes a mover.
    pub fn leaves(&self, path: u16) {
        lock(&self.0.state).joined.remove(&path);
        self.0.changed.notify_all();
    }

    /// Tells one mover.
    pub fn tell(&self, path: u16, message: Control) {
        if let Some(outbox) = lock(&self.0.state).joined.get(&path) {
            outbox.send(message);
        }
    }

    /// Passes a receipt on.
    pub fn receipt(&self, receipt: Receipt) {
        if self.0.count > 0 {
            for outbox in lock(&self.0.state).joined.values() {
                outbox.receipt(receipt);
            }
        }
    }

    /// Notes distrust.
    pub fn accuse(&self, path: u16, why: String) {
        lock(&self.0.state).accused.entry(path).or_insert(why);
    }

    /// The reason for distrust.
    pub fn accusation(&self, path: u16) -> Option<String> {
        lock(&self.0.state).accused.get(&path).cloned()
    }

    /// Lets lanes end: all data has arrived.
    pub fn are_done(&self) {
        let mut state = lock(&self.0.state);
        state.is_over = true;
        for outbox in state.joined.values() {
            outbox.send(Control::Bye(SenderSummary::default()));
        }
        self.0.changed.notify_all();
    }

    /// Keeps a last word.
    pub fn parts(&self, path: u16, mut summary: SenderSummary) {
        summary.paths.retain(|of| of.number == path);
        lock(&self.0.state).partings.insert(path, summary);
    }

    /// Whether a last word came.
    pub fn has_parted(&self, path: u16) -> bool {
        lock(&self.0.state).partings.contains_key(&path)
    }

    /// The last words.
    pub fn partings(&self) -> Vec<SenderSummary> {
        std::mem::take(&mut lock(&self.0.state).partings).into_values().collect()
    }

    /// Notes a draft.
    pub fn opens(&self, draft: OpenDraft) {
        let mut state = lock(&self.0.state);
        for outbox in state.joined.values() {
            outbox.send(Control::OpenDraft(draft.clone()));
        }
        state.drafts.insert(draft.index, draft);
    }

    /// Notes the end of an item.
    pub fn closes(&self, index: u64) {
        let mut state = lock(&self.0.state);
        if state.drafts.remove(&index).is_some() {
            for outbox in state.joined.values() {
                outbox.send(Control::CloseDraft { index });
            }
        }
    }

    /// Ends the session; waits up to `limit` for farewells.
    pub fn end(&self, limit: Duration) {
        let mut state = lock(&self.0.state);
        state.is_over = true;
        self.0.changed.notify_all();
        drop(self.0.changed.wait_timeout_while(state, limit, |state| !state.joined.is_empty()));
    }

    /// Whether the session is over.
    pub fn is_over(&self) -> bool {
        lock(&self.0.state).is_over
    }
}
