//! Tells the peer when the addresses of this host change.

use std::sync::{Arc, Mutex};

use haul_engine::paths::Asked;
use haul_net::dial;
use haul_wire::control::{Address, Control};
use haul_wire::limits::MAX_CANDIDATES;

use super::asked::offered;
use super::bringer::on_network_change;
use crate::dial_threads::DialThreads;
use haul_channel::channel::Outbox;
use haul_channel::convert;
use haul_kept::sync::lock;

/// Our addresses of wanted paths.
pub fn own_addresses(asked: &Asked) -> Vec<Address> {
    let of_paths = offered(asked, dial::local_addresses());
    of_paths.into_iter().take(MAX_CANDIDATES).map(convert::address).collect()
}

/// Tells the peer of changes, until the session's end.
pub fn tell_changes(dial_threads: &DialThreads, outbox: &Arc<Outbox>, asked: Asked) {
    let (outbox, told) = (Arc::clone(outbox), Mutex::new(own_addresses(&asked)));
    on_network_change(dial_threads, move || {
        let now = own_addresses(&asked);
        let mut told = lock(&told);
        if *told != now {
            told.clone_from(&now);
            outbox.send(Control::Addresses(now));
        }
    });
}
