//! What the success of a copy proves, as its ends tell it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use haul_job::Proof;
use haul_store::SumCounts;

#[derive(Debug, Default)]
pub(crate) struct Proved {
    told: Option<Proof>,
    /// Files without a sum in the source's store; `None`: there are no such sums.
    uncompared: Option<Arc<AtomicU64>>,
    pub(crate) sums: Option<SumCounts>,
}

impl Proved {
    /// The last word counts, but one that proves less stays.
    pub(crate) fn tell(&mut self, proof: Proof) {
        if self.told != Some(Proof::BySize) {
            self.told = Some(proof);
        }
    }

    pub(crate) fn compares(&mut self, uncompared: Arc<AtomicU64>) {
        self.uncompared = Some(uncompared);
    }

    /// Returns the proof; `of_ends` if no end told more. A source's sum proves nothing of a target without hashes.
    pub(crate) fn of(&self, of_ends: Proof) -> Proof {
        let is_compared = self.uncompared.as_ref().is_some_and(|files| files.load(Ordering::Relaxed) == 0);
        match (self.told, of_ends) {
            (Some(told), _) => told,
            (None, Proof::BothEnds) if is_compared => Proof::AsStored,
            (None, of_ends) => of_ends,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_end_makes_another_one_look_better() {
        let mut proved = Proved::default();
        assert_eq!(proved.of(Proof::BothEnds), Proof::BothEnds);
        let uncompared = Arc::new(AtomicU64::new(0));
        proved.compares(Arc::clone(&uncompared));
        assert_eq!((proved.of(Proof::BothEnds), proved.of(Proof::Confirmed)), (Proof::AsStored, Proof::Confirmed));
        uncompared.store(1, Ordering::Relaxed);
        assert_eq!(proved.of(Proof::BothEnds), Proof::BothEnds);
        proved.tell(Proof::BySize);
        proved.tell(Proof::ByStore);
        assert_eq!(proved.of(Proof::BothEnds), Proof::BySize);
    }
}
