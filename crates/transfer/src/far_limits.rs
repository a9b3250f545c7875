//! Bounds what an initiator asks of its far side.

use std::time::Duration;

use haul_wire::control::{Role, Start};

/// A day, the most of `--timeout`. With the 49 days of 32 bits a key could keep a session of a daemon, with all its lanes,
/// without a byte.
const MAX_TIMEOUT_MS: u32 = 24 * 60 * 60 * 1000;

/// The user may be thinking about the other host's password.
pub(crate) const LONGEST_LOGIN: Duration = Duration::from_millis(MAX_TIMEOUT_MS as u64);

pub(crate) fn bounded(mut start: Start) -> Start {
    start.carriage.timeout_ms = start.carriage.timeout_ms.min(MAX_TIMEOUT_MS);
    // Only copies follow each other.
    start.stays &= matches!(start.role, Role::Sender { .. } | Role::Receiver { .. });
    start
}

#[cfg(test)]
mod tests {
    use haul_wire::control::{Carriage, Listed, Selection};

    use super::*;

    fn start(timeout_ms: u32) -> Start {
        let carriage = Carriage { timeout_ms, ..Carriage::default() };
        let role = Role::Receiver { target: Vec::new() };
        Start {
            session: [0; 16],
            peer_session: [1; 16],
            peer_key: [0; 32],
            links: true,
            stays: false,
            job: 1,
            role,
            selection: Selection::default(),
            listed: Listed::Nothing,
            hash_kept: false,
            carriage,
        }
    }

    #[test]
    fn nobody_keeps_a_far_side_waiting_for_weeks() {
        assert_eq!(bounded(start(u32::MAX)).carriage.timeout_ms, MAX_TIMEOUT_MS);
        assert_eq!(bounded(start(60_000)).carriage.timeout_ms, 60_000);
    }

    #[test]
    fn only_copies_stay_for_another_one() {
        let stays = |role| bounded(Start { role, stays: true, ..start(1) }).stays;
        assert!(stays(Role::Receiver { target: Vec::new() }) && stays(Role::Sender { sources: Vec::new() }));
        assert!(!stays(Role::Probe { time_ms: 1 }) && !stays(Role::Mover { target: Vec::new() }));
    }
}
