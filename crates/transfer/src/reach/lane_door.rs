//! Where lanes, and further links of a control channel, arrive at a side that listens.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;

use haul_net::{Door, DoorOptions, Identity, KeyGreeter, Listener, Policies, Stream};
use haul_wire::lane::Hello;

use crate::reach::desk::Desk;

/// Listens for lanes. A host that lets nobody listen still works: it dials, or lanes run inside ssh.
pub(crate) fn open_door(
    identity: &Arc<Identity>,
    desk: &Arc<Desk>,
    port_range: Option<(u16, u16)>,
    policies: Arc<Policies>,
) -> Option<Door> {
    open_door_on(Listener::bind(port_range, None).ok()?, identity, desk, policies)
}

/// Any free port of this host that no other host reaches.
pub(crate) const LOOPBACK: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));

pub(crate) fn open_door_on(
    listener: Listener,
    identity: &Arc<Identity>,
    desk: &Arc<Desk>,
    policies: Arc<Policies>,
) -> Option<Door> {
    let desk = Arc::clone(desk);
    let deliver = Arc::new(move |mut stream: Stream, key, _from: SocketAddr| match Desk::read_hello(&mut stream) {
        Ok(Hello::Lane(hello)) => drop(desk.deliver(stream, &key, hello)),
        Ok(Hello::Link { session }) => drop(desk.deliver_link(stream, &key, session)),
        Ok(Hello::Control | Hello::OtherVersion(_)) | Err(_) => {}
    });
    // Whoever proves a key may name a session; the desk then compares both.
    let greeter = KeyGreeter::for_any_key(Arc::clone(identity), deliver);
    Door::open(listener, greeter, &DoorOptions { policies, ..DoorOptions::default() }).ok()
}
