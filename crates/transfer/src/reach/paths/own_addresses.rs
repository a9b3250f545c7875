//! Tells the peer when the addresses of this host change.

use std::sync::{Arc, Mutex};

use haul_net::dial;
use haul_wire::control::{Address, Control};
use haul_wire::limits::MAX_CANDIDATES;

use super::bringer::on_network_change;
use crate::reach::crew::Crew;
use crate::session::channel::Outbox;
use crate::session::convert;
use crate::sync::lock;

/// The addresses of this host that are told to a peer.
pub(crate) fn own_addresses() -> Vec<Address> {
    dial::local_addresses().into_iter().take(MAX_CANDIDATES).map(convert::address).collect()
}

/// Tells the peer, which dials the lanes, whenever the addresses of this host have become others, until the session is over.
pub(crate) fn tell_changes(crew: &Crew, outbox: &Arc<Outbox>) {
    let (outbox, told) = (Arc::clone(outbox), Mutex::new(own_addresses()));
    on_network_change(crew, move || {
        let now = own_addresses();
        let mut told = lock(&told);
        if *told != now {
            told.clone_from(&now);
            outbox.send(Control::Addresses(now));
        }
    });
}
