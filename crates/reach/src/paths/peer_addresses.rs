//! Keeps the addresses under which a peer may be reached.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use haul_wire::control::Address;
use haul_wire::limits::MAX_CANDIDATES;

use haul_channel::convert;
use haul_kept::sync::lock;

/// Known and named addresses. Each is only a place to try: the key must be proved there.
#[derive(Clone, Default)]
pub struct PeerAddresses(Arc<Mutex<Inside>>);

#[derive(Default)]
struct Inside {
    known: Vec<IpAddr>,
    told: Vec<IpAddr>,
    on_change: Option<Box<dyn Fn() + Send>>,
}

impl PeerAddresses {
    /// Adds known addresses.
    pub fn know(&self, addresses: impl IntoIterator<Item = IpAddr>) {
        lock(&self.0).known.extend(addresses);
    }

    /// Replaces the named addresses.
    pub fn tell(&self, addresses: &[Address]) {
        let mut inside = lock(&self.0);
        let told: Vec<IpAddr> = addresses.iter().take(MAX_CANDIDATES).copied().map(convert::ip).collect();
        if told != inside.told {
            inside.told = told;
            inside.on_change.iter().for_each(|act| act());
        }
    }

    pub(super) fn get(&self) -> Vec<IpAddr> {
        let inside = lock(&self.0);
        inside.known.iter().chain(&inside.told).copied().collect()
    }

    pub(super) fn on_change(&self, act: impl Fn() + Send + 'static) {
        lock(&self.0).on_change = Some(Box::new(act));
    }
}
