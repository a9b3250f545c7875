//! A chunk may be written only by the lane that brought it last.
//!
//! Late blocks of a lane that was given up must not reach the file: its thread may still have some, and an attacker on the path
//! may hold some back. So the new lane takes the claim, which ends the earlier one and waits for a write in progress.

use std::sync::Arc;

use haul_kept::sync::lock;

use super::claims::Claim;
use super::incoming::Incoming;

pub(super) struct Claimed {
    incoming: Arc<Incoming>,
    chunk: u32,
    claim: Arc<Claim>,
    before: Option<Arc<Claim>>,
}

impl Claimed {
    pub(super) fn take(incoming: &Arc<Incoming>, chunk: u32, lane: u16) -> Self {
        let mut claims = lock(&incoming.claims.0);
        let before = claims.get(&chunk).cloned();
        let mut lanes = before.as_ref().map(|before| before.lanes.clone()).unwrap_or_default();
        lanes.insert(lane);
        let claim = Arc::new(Claim::new(lanes));
        claims.insert(chunk, Arc::clone(&claim));
        drop(claims);
        if let Some(before) = &before {
            before.end();
        }
        Self { incoming: Arc::clone(incoming), chunk, claim, before }
    }

    /// Names the lanes whose data of the chunk is void if this lane dies, though the sender may await a receipt of one. Lanes
    /// come in any order, so this one may be the one given up. None while another lane brings the chunk, or nobody wants it.
    pub(super) fn voids(&self) -> impl Iterator<Item = u16> {
        let before =
            self.before.as_ref().filter(|_| self.claim.unless_ended(|| self.incoming.wants(self.chunk)) == Some(true));
        before.into_iter().flat_map(|before| before.lanes.iter().copied())
    }

    /// Acts unless another lane has the chunk; none gets it meanwhile.
    pub(super) fn while_held<T>(&self, act: impl FnOnce() -> T) -> Option<T> {
        self.claim.unless_ended(act)
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        let mut claims = lock(&self.incoming.claims.0);
        if claims.get(&self.chunk).is_some_and(|claim| Arc::ptr_eq(claim, &self.claim)) {
            claims.remove(&self.chunk);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use haul_wire::RelPath;
    use haul_wire::manifest::{Attributes, Identity, Item, ItemKind, Time};

    use super::*;

    const LANE: u16 = 1;

    fn incoming() -> Arc<Incoming> {
        let time = Time::default();
        let identity = Identity { size: 10 << 20, mtime: time, ctime: time, inode: 1 };
        let kind = ItemKind::File { identity, hole_bytes: 0, blake3: None, further_names: 0 };
        let item = Item { path: RelPath::new(b"file".to_vec()).unwrap(), kind, attributes: Attributes::default() };
        Arc::new(Incoming::new(0, Arc::new(item), b"file".to_vec(), identity, false))
    }

    #[test]
    fn a_lane_that_was_given_up_writes_no_more_once_another_has_its_chunk() {
        let incoming = incoming();
        let first = Claimed::take(&incoming, 3, LANE);
        assert_eq!(first.while_held(|| 1), Some(1));
        let second = Claimed::take(&incoming, 3, LANE);
        assert_eq!(first.while_held(|| 1), None);
        drop(first);
        assert_eq!(second.while_held(|| 2), Some(2), "the end of the first takes nothing from the second");
        assert_eq!(Claimed::take(&incoming, 4, LANE).while_held(|| 3), Some(3));
        drop(second);
        assert!(lock(&incoming.claims.0).is_empty(), "nothing is kept of lanes that are done");
    }

    #[test]
    fn a_lane_that_took_a_chunk_and_dies_names_the_lanes_whose_data_is_void() {
        let incoming = incoming();
        let voids = |claim: &Claimed| claim.voids().collect::<Vec<_>>();
        let first = Claimed::take(&incoming, 3, 7);
        assert!(voids(&first).is_empty(), "who sent it knows that its lane is gone");
        let second = Claimed::take(&incoming, 3, 5);
        assert_eq!((voids(&second), voids(&first)), (vec![7], vec![]));
        let third = Claimed::take(&incoming, 3, 9);
        assert_eq!((voids(&third), voids(&second)), (vec![5, 7], vec![]));
    }

    #[test]
    fn the_other_lane_waits_until_a_write_that_has_begun_is_over() {
        let incoming = incoming();
        let first = Claimed::take(&incoming, 0, LANE);
        let (begun, goes_on) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
        let order = Arc::new(Mutex::new(Vec::new()));
        let (written, taken) = (Arc::clone(&order), Arc::clone(&order));
        let writer = std::thread::spawn(move || {
            first.while_held(|| {
                begun.0.send(()).unwrap();
                goes_on.1.recv().unwrap();
                written.lock().unwrap().push("written");
            })
        });
        begun.1.recv().unwrap();
        let other = std::thread::spawn(move || {
            let claim = Claimed::take(&incoming, 0, LANE);
            taken.lock().unwrap().push("taken");
            drop(claim);
        });
        goes_on.0.send(()).unwrap();
        assert_eq!(writer.join().unwrap(), Some(()));
        other.join().unwrap();
        assert_eq!(*order.lock().unwrap(), ["written", "taken"]);
    }
}
