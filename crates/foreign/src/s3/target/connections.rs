//! The connections to a store that is written to: as many as parts are under way, fewer while the store refuses.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use haul_store::{Connections, ConnectionsNow};

use crate::s3::limits::{ONE_MORE_AFTER, SLOWER_AFTER};
use crate::s3::target::tree::Tree;

#[derive(Debug)]
pub(super) struct UploadConnections {
    tree: Arc<Tree>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    allowed: u16,
    wanted: u16,
    refusals: u32,
    changed: Instant,
}

impl UploadConnections {
    pub(super) fn new(tree: &Arc<Tree>) -> UploadConnections {
        let state = State { allowed: u16::MAX, wanted: u16::MAX, refusals: 0, changed: Instant::now() };
        UploadConnections { tree: Arc::clone(tree), state: Mutex::new(state) }
    }
}

impl Connections for UploadConnections {
    fn now(&self) -> ConnectionsNow {
        let client = &self.tree.store.client;
        let refusals = client.refusals();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.follow(refusals, Instant::now());
        let server_allows = state.allowed.min(self.tree.held.most());
        ConnectionsNow { server_allows, refusals, ..client.pool.now() }
    }

    fn needs_login(&self) -> bool {
        false
    }

    fn allow(&self, count: u16) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.want(count);
        self.tree.store.client.pool.spread_over(count);
    }
}

impl State {
    fn want(&mut self, count: u16) {
        if self.allowed >= self.wanted || self.allowed > count {
            self.allowed = count;
        }
        self.wanted = count;
    }

    /// A quarter fewer after each second with a refusal, and one more after three seconds without.
    fn follow(&mut self, refusals: u32, now: Instant) {
        let since = now.saturating_duration_since(self.changed);
        if refusals != self.refusals && since >= SLOWER_AFTER {
            self.allowed = (self.allowed - self.allowed.div_ceil(4)).max(1);
            (self.refusals, self.changed) = (refusals, now);
        } else if refusals == self.refusals && self.allowed < self.wanted && since >= ONE_MORE_AFTER {
            self.allowed += 1;
            self.changed = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_refuses_gets_fewer_parts_at_once_and_then_one_more_by_one_more() {
        let begun = Instant::now();
        let mut state = State { allowed: u16::MAX, wanted: u16::MAX, refusals: 0, changed: begun };
        state.want(64);
        let mut after = |ms: u64, refusals: u32| {
            state.follow(refusals, begun + std::time::Duration::from_millis(ms));
            state.allowed
        };
        assert_eq!([after(500, 9), after(1000, 30), after(1500, 60), after(2000, 60)], [64, 48, 48, 36]);
        assert_eq!([after(4900, 60), after(5000, 60), after(7900, 60), after(8000, 60)], [36, 37, 37, 38]);
        assert_eq!([after(10_000, 61), after(12_999, 61), after(200_000, 61)], [28, 28, 29]);
    }
}
