//! Opens the port where lanes, and further links of a control channel, arrive.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;

use haul_net::{Door, DoorOptions, Identity, KeyGreeter, Listener, Policies, Stream};
use haul_wire::lane::Hello;

use crate::lane_rendezvous::LaneRendezvous;

/// Listens for lanes. A host that may not listen still dials, or uses ssh.
pub fn open_door(
    identity: &Arc<Identity>,
    rendezvous: &Arc<LaneRendezvous>,
    port_range: Option<(u16, u16)>,
    policies: Arc<Policies>,
) -> Option<Door> {
    open_door_on(Listener::bind(port_range, None).ok()?, identity, rendezvous, policies)
}

/// Any free port, for this host alone.
pub const LOOPBACK: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));

/// Opens a session's port on this listener.
pub fn open_door_on(
    listener: Listener,
    identity: &Arc<Identity>,
    rendezvous: &Arc<LaneRendezvous>,
    policies: Arc<Policies>,
) -> Option<Door> {
    let rendezvous = Arc::clone(rendezvous);
    let deliver =
        Arc::new(move |mut stream: Stream, key, _from: SocketAddr| match LaneRendezvous::read_hello(&mut stream) {
            Ok(Hello::Lane(hello)) => drop(rendezvous.deliver(stream, &key, hello)),
            Ok(Hello::Link { session }) => drop(rendezvous.deliver_link(stream, &key, session)),
            Ok(Hello::Control | Hello::OtherVersion(_)) | Err(_) => {}
        });
    // The rendezvous compares the key with that of the session.
    let greeter = KeyGreeter::for_any_key(Arc::clone(identity), deliver);
    Door::open(listener, greeter, &DoorOptions { policies, ..DoorOptions::default() }).ok()
}
