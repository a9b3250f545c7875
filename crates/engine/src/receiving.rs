//! The receiver's side of a session: the open items in the order of the manifest, and what becomes of each.
//!
//! ```text
//!   item -> deciding -+-> data is on its way -+-> settled -> gone, in the order of the manifest
//!                     +-> waits for its turn -+
//!                     `-----------------------'
//! ```

use alloc::collections::BTreeSet;

use crate::window::{Overflow, Window};

/// The open items. `D` is a file with data on its way, `O` what waits for all before it.
#[derive(Debug)]
pub struct Receiving<D, O> {
    window: Window<Phase<D, O>>,
    in_order_at: Option<u64>,
    retries: BTreeSet<u64>,
    manifest_done: bool,
    wanted: u64,
}

#[derive(Debug)]
enum Phase<D, O> {
    Deciding,
    Data(D),
    InOrder(O),
    Settled,
}

impl<D, O> Default for Receiving<D, O> {
    fn default() -> Self {
        Self { window: Window::default(), in_order_at: None, retries: BTreeSet::new(), manifest_done: false, wanted: 0 }
    }
}

impl<D, O: Clone> Receiving<D, O> {
    /// Opens the next item, and gives its index. Fails beyond the agreed number.
    pub fn open(&mut self, weight_bytes: usize) -> Result<u64, Overflow> {
        self.window.push_checked(Phase::Deciding, weight_bytes)
    }

    /// Puts this new item in the place of `of`. False: `of` has its outcome, on which others may rest.
    pub fn takes_place(&mut self, index: u64, of: u64) -> bool {
        let is_in_time = self.data(of).is_some();
        if is_in_time {
            self.retries.insert(index);
        }
        is_in_time
    }

    /// Enters that an item's data was asked for.
    pub fn expect(&mut self, index: u64, data: D) {
        self.wanted += 1;
        if let Some(phase) = self.window.get_mut(index) {
            *phase = Phase::Data(data);
        }
    }

    /// Makes the item wait for its turn.
    pub fn in_order(&mut self, index: u64, what: O) {
        if let Some(phase) = self.window.get_mut(index) {
            *phase = Phase::InOrder(what);
        }
    }

    /// The file of a lane's data; `None`: not awaited.
    pub fn data(&self, index: u64) -> Option<&D> {
        match self.window.get(index) {
            Some(Phase::Data(data)) => Some(data),
            _ => None,
        }
    }

    /// Enters an outcome. False: a second one is void.
    pub fn settle(&mut self, index: u64) -> bool {
        let Some(phase) = self.window.get_mut(index) else { return false };
        match core::mem::replace(phase, Phase::Settled) {
            Phase::Settled => return false,
            Phase::Data(_) => self.wanted -= 1,
            Phase::Deciding | Phase::InOrder(_) => {}
        }
        self.retries.remove(&index);
        true
    }

    /// Lets settled items go. Returns what has its turn, after every retry, too: a later name would change its directory's time,
    /// an earlier hard link would show old data.
    pub fn next_in_order(&mut self) -> Option<(u64, O)> {
        loop {
            let index = self.window.first_index();
            match self.window.front() {
                Some(Phase::Settled) => {
                    self.window.pop_front();
                }
                Some(Phase::InOrder(what)) if self.in_order_at != Some(index) && self.retries.is_empty() => {
                    let what = what.clone();
                    self.in_order_at = Some(index);
                    return Some((index, what));
                }
                _ => return None,
            }
        }
    }

    /// The files whose data is on its way.
    pub fn all_data(&self) -> impl Iterator<Item = &D> {
        (self.window.first_index()..self.window.next_index()).filter_map(|index| self.data(index))
    }

    /// Enters that only retries follow.
    pub fn end_of_manifest(&mut self) {
        self.manifest_done = true;
    }

    /// Whether all have outcomes and none follows.
    pub fn is_complete(&self) -> bool {
        self.manifest_done && self.window.is_empty()
    }

    /// Whether data is awaited.
    pub fn has_work(&self) -> bool {
        self.wanted > 0
    }

    /// Items without an outcome, or behind one without.
    pub fn open_items(&self) -> usize {
        self.window.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_its_turn_gets_it_once_and_an_outcome_counts_once() {
        let mut receiving: Receiving<&str, &str> = Receiving::default();
        let [file, end, last] = [(); 3].map(|()| receiving.open(1).unwrap());
        receiving.expect(file, "file");
        receiving.in_order(end, "end");
        assert!(receiving.settle(last));
        receiving.end_of_manifest();
        assert_eq!(receiving.next_in_order(), None, "the file before it is not settled");
        assert!(receiving.has_work() && receiving.settle(file) && !receiving.settle(file));
        assert_eq!((receiving.has_work(), receiving.data(file)), (false, None));
        assert_eq!(receiving.next_in_order(), Some((end, "end")));
        assert_eq!(receiving.next_in_order(), None, "its turn came");
        assert!(receiving.settle(end) && !receiving.is_complete());
        assert_eq!(receiving.next_in_order(), None);
        assert!(receiving.is_complete());
    }

    #[test]
    fn what_waits_for_its_turn_waits_for_a_file_that_is_sent_again() {
        let mut receiving: Receiving<&str, &str> = Receiving::default();
        let [file, end] = [(); 2].map(|()| receiving.open(1).unwrap());
        receiving.expect(file, "file");
        receiving.in_order(end, "end");
        let retry = receiving.open(1).unwrap();
        assert!(receiving.takes_place(retry, file) && receiving.settle(file));
        assert_eq!(receiving.next_in_order(), None, "the file is on its way again");
        assert!(receiving.settle(retry));
        assert_eq!(receiving.next_in_order(), Some((end, "end")));
        let late = receiving.open(1).unwrap();
        assert!(!receiving.takes_place(late, file) && receiving.settle(end) && receiving.settle(late));
        assert_eq!(receiving.next_in_order(), None);
    }
}
