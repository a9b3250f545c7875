//! The port of the daemon. It opens the port itself, or systemd holds one for it (sd_listen_fds(3)).

use std::net::SocketAddr;

use haul_job::{Error, Fault};
use haul_net::Listener;
use listenfd::ListenFd;

use crate::bind_error::bind_error;

/// Where the port comes from.
#[derive(Debug)]
pub(crate) enum Port {
    /// The daemon has opened it.
    Opened(Listener),
    /// Another program holds it, and had it before this daemon began.
    HandedOver(Listener),
}

/// The socket in `handed`; where there is none, this address, or without one this port at every address.
pub(crate) fn port(mut handed: ListenFd, listen: Option<SocketAddr>, port: u16) -> Result<Port, Error> {
    let bad = |why: String| {
        Error::new(Fault::Usage, "cannot take the socket that was handed over")
            .because(why)
            .try_this("haul-serve.socket has one ListenStream=, with a TCP port")
    };
    match handed.len() {
        0 => match listen {
            Some(address) => Listener::bind_to(address),
            None => Listener::bind(Some((port, port)), None),
        }
        .map(Port::Opened)
        .map_err(bind_error),
        1 => {
            let socket = handed.take_tcp_listener(0).map_err(|error| bad(error.to_string()))?;
            let socket = socket.ok_or_else(|| bad("it is taken already".into()))?;
            Listener::of_socket(socket).map(Port::HandedOver).map_err(|error| bad(error.to_string()))
        }
        more => Err(bad(format!("there are {more} of them"))),
    }
}
