//! What the operator of this host lets a copy ask of the network.

use haul_govern::hooks::Hooks;
use haul_kept::class_policy::{Permits, Sending};
use haul_kept::surroundings::Surroundings;
use haul_wire::control::{Carriage, Service};

/// The permitted classes, and the programs that are asked first.
pub(crate) fn permitted(carriage: &Carriage, surroundings: &Surroundings) -> (Permits, Option<Hooks>) {
    let permits = Permits::of(&surroundings.policy_files, surroundings.state.as_deref(), Sending::default());
    let hooks = permits.hooks().filter(|_| carriage.service != Service::default());
    let hooks = hooks.and_then(|_| Hooks::begin(surroundings));
    (permits, hooks)
}
