//! What the key of a session may do: as the list had it when the session began, and anew for each further job.

use std::sync::{Mutex, PoisonError};

use haul_net::PublicKey;
use haul_transfer::Grant;

/// Asks the list of keys as it is now. `None`: the key is not in it.
pub(crate) type AskList = dyn Fn(&PublicKey) -> Option<Grant> + Send + Sync;

/// Knows what the key of one session may do.
pub(crate) struct Registrar {
    grant: Mutex<Grant>,
    ask: Box<AskList>,
}

impl Registrar {
    /// Of a session that begins with this grant.
    pub(crate) fn new(grant: Grant, ask: Box<AskList>) -> Self {
        Self { grant: Mutex::new(grant), ask }
    }

    /// As it was last asked.
    pub(crate) fn grant(&self) -> Grant {
        self.grant.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks anew. `None`: the key may do nothing any more.
    pub(crate) fn ask_again(&self, key: &PublicKey) -> Option<Grant> {
        let now = (self.ask)(key)?;
        self.grant.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&now);
        Some(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_for_its_next_job_what_the_list_says_then() {
        let key = PublicKey([1; 32]);
        let list = std::sync::Arc::new(Mutex::new(Some(Grant { read_only: true, ..Grant::default() })));
        let asked = std::sync::Arc::clone(&list);
        let registrar = Registrar::new(Grant::default(), Box::new(move |_| asked.lock().unwrap().clone()));
        assert!(!registrar.grant().read_only);
        assert!(registrar.ask_again(&key).unwrap().read_only && registrar.grant().read_only);
        *list.lock().unwrap() = None;
        assert_eq!(registrar.ask_again(&key), None);
    }
}
