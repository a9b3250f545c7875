//! The addresses under which a peer may be reached.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use haul_wire::control::Address;
use haul_wire::limits::MAX_CANDIDATES;

use crate::session::convert;
use crate::sync::lock;

/// The addresses under which a peer may be reached: those that we know, and those that it says it has, which may change while the session
/// runs. Nothing that it says is believed: an address is a place to try, and whoever answers there proves the key of the session.
#[derive(Clone, Default)]
pub(crate) struct PeerAddresses(Arc<Mutex<Inside>>);

#[derive(Default)]
struct Inside {
    known: Vec<IpAddr>,
    told: Vec<IpAddr>,
    on_change: Option<Box<dyn Fn() + Send>>,
}

impl PeerAddresses {
    /// We know these.
    pub(crate) fn know(&self, addresses: impl IntoIterator<Item = IpAddr>) {
        lock(&self.0).known.extend(addresses);
    }

    /// It says that it has these, and no others any more.
    pub(crate) fn tell(&self, addresses: &[Address]) {
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

    /// Does this whenever the addresses change. It must not wait.
    pub(super) fn on_change(&self, act: impl Fn() + Send + 'static) {
        lock(&self.0).on_change = Some(Box::new(act));
    }
}
