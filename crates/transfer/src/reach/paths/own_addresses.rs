//! Tells the peer when the addresses of this host change.

use std::sync::{Arc, Mutex};

use haul_engine::paths::Asked;
use haul_net::dial;
use haul_wire::control::{Address, Control};
use haul_wire::limits::MAX_CANDIDATES;

use super::asked::offered;
use super::bringer::on_network_change;
use crate::reach::crew::Crew;
use crate::session::channel::Outbox;
use crate::session::convert;
use crate::sync::lock;

/// The addresses of this host that are told to a peer: those of the paths that are to be used.
pub(crate) fn own_addresses(asked: &Asked) -> Vec<Address> {
    let of_paths = offered(asked, dial::local_addresses());
    of_paths.into_iter().take(MAX_CANDIDATES).map(convert::address).collect()
}

/// Tells the peer, which dials the lanes, whenever the addresses of this host have become others, until the session is over.
pub(crate) fn tell_changes(crew: &Crew, outbox: &Arc<Outbox>, asked: Asked) {
    let (outbox, told) = (Arc::clone(outbox), Mutex::new(own_addresses(&asked)));
    on_network_change(crew, move || {
        let now = own_addresses(&asked);
        let mut told = lock(&told);
        if *told != now {
            told.clone_from(&now);
            outbox.send(Control::Addresses(now));
        }
    });
}
