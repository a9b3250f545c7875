//! What the movers of a job are told. The session hears it from the leader. A mover that comes later gets all that still holds.
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

/// The hosts of the far end besides its leader.
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
    /// Those that found the tree of the leader, by their paths.
    joined: BTreeMap<u16, Arc<Outbox>>,
    /// Movers of a sending end that are not to be believed, and why.
    accused: BTreeMap<u16, String>,
    /// What those of a sending end said at their end.
    partings: BTreeMap<u16, SenderSummary>,
    is_over: bool,
}

impl Movers {
    /// So many, at most [`haul_wire::limits::MAX_MOVERS`].
    pub fn new(count: u16) -> Self {
        Self(Arc::new(Inside { count, ..Inside::default() }))
    }

    /// How many were asked for.
    pub fn count(&self) -> u16 {
        self.0.count
    }

    /// The path of a mover, counted from 0 on.
    pub fn path_of_mover(number: u16) -> u16 {
        MAX_PATHS - 1 - number
    }

    /// Where a lane leads.
    pub fn to(&self, lane: u16) -> To {
        if path_of(lane) >= MAX_PATHS - self.0.count { To::Mover } else { To::Leader }
    }

    /// The sources are open.
    pub fn begins(&self, single_file: bool) {
        lock(&self.0.state).single_file = Some(single_file);
        self.0.changed.notify_all();
    }

    /// The leader shows its tree.
    pub fn shows(&self, root: SharedRoot) {
        lock(&self.0.state).root = Some(root);
        self.0.changed.notify_all();
    }

    /// Waits for what a mover has to know first. `None`: nothing by then.
    pub fn await_root(&self, limit: Duration) -> Option<(bool, SharedRoot)> {
        let is_missing = |state: &mut State| !state.is_over && (state.root.is_none() || state.single_file.is_none());
        let (state, _) = self
            .0
            .changed
            .wait_timeout_while(lock(&self.0.state), limit, is_missing)
            .unwrap_or_else(PoisonError::into_inner);
        state.single_file.zip(state.root.clone()).filter(|_| !state.is_over)
    }

    /// A mover found the tree: it gets what is open, and what will be.
    pub fn joins(&self, path: u16, outbox: &Arc<Outbox>) {
        let mut state = lock(&self.0.state);
        for draft in state.drafts.values() {
            outbox.send(Control::OpenDraft(draft.clone()));
        }
        state.joined.insert(path, Arc::clone(outbox));
    }

    /// It is gone.
    pub fn leaves(&self, path: u16) {
        lock(&self.0.state).joined.remove(&path);
        self.0.changed.notify_all();
    }

    /// Says this to one of them.
    pub fn tell(&self, path: u16, message: Control) {
        if let Some(outbox) = lock(&self.0.state).joined.get(&path) {
            outbox.send(message);
        }
    }

    /// A chunk is verified: whichever of them had it is done with it.
    pub fn receipt(&self, receipt: Receipt) {
        if self.0.count > 0 {
            for outbox in lock(&self.0.state).joined.values() {
                outbox.receipt(receipt);
            }
        }
    }

    /// One of them is not to be believed.
    pub fn accuse(&self, path: u16, why: String) {
        lock(&self.0.state).accused.entry(path).or_insert(why);
    }

    /// Why this one is not to be believed.
    pub fn accusation(&self, path: u16) -> Option<String> {
        lock(&self.0.state).accused.get(&path).cloned()
    }

    /// All that they send has arrived: their lanes may end.
    pub fn are_done(&self) {
        let mut state = lock(&self.0.state);
        state.is_over = true;
        for outbox in state.joined.values() {
            outbox.send(Control::Bye(SenderSummary::default()));
        }
        self.0.changed.notify_all();
    }

    /// What the one on this path said at its end.
    pub fn parts(&self, path: u16, mut summary: SenderSummary) {
        summary.paths.retain(|of| of.number == path);
        lock(&self.0.state).partings.insert(path, summary);
    }

    /// Whether it said anything.
    pub fn has_parted(&self, path: u16) -> bool {
        lock(&self.0.state).partings.contains_key(&path)
    }

    /// What all of them said.
    pub fn partings(&self) -> Vec<SenderSummary> {
        std::mem::take(&mut lock(&self.0.state).partings).into_values().collect()
    }

    /// The leader has opened a draft.
    pub fn opens(&self, draft: OpenDraft) {
        let mut state = lock(&self.0.state);
        for outbox in state.joined.values() {
            outbox.send(Control::OpenDraft(draft.clone()));
        }
        state.drafts.insert(draft.index, draft);
    }

    /// An item has its outcome, or was withdrawn.
    pub fn closes(&self, index: u64) {
        let mut state = lock(&self.0.state);
        if state.drafts.remove(&index).is_some() {
            for outbox in state.joined.values() {
                outbox.send(Control::CloseDraft { index });
            }
        }
    }

    /// The session is over. Waits this long until all have said good-bye.
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
