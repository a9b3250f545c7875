//! The ports of the daemon: it opens them itself, or systemd holds them (sd_listen_fds(3)).

use std::net::SocketAddr;

use haul_job::{Error, Fault};
use haul_net::Listener;
use listenfd::ListenFd;

use crate::bind_error::bind_error;

#[derive(Debug)]
pub(crate) enum Port {
    Opened(Listener),
    /// The sockets of another program: one, or one for each of some addresses.
    HandedOver(Listener, Vec<Listener>),
}

#[derive(Debug, Default)]
pub(crate) struct Handed {
    pub(crate) haul: Vec<Listener>,
    pub(crate) http: Vec<Listener>,
    pub(crate) https: Vec<Listener>,
}

/// The sockets given to this process. Any name but `http` and `https` is haul's own port: a unit with one socket need not name
/// it.
pub(crate) fn handed() -> Result<Handed, Error> {
    // The names vanish when the descriptors are taken.
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    by_name(ListenFd::from_env(), &names)
}

fn by_name(mut sockets: ListenFd, names: &str) -> Result<Handed, Error> {
    let bad = |why: String| {
        Error::new(Fault::Usage, "cannot take the sockets that were handed over").because(why).try_this(
            "a unit has ListenStream= with a TCP port, and FileDescriptorName=http or https for readers of the web",
        )
    };
    let (mut handed, mut names) = (Handed::default(), names.split(':'));
    for at in 0..sockets.len() {
        let port = match names.next() {
            Some("http") => &mut handed.http,
            Some("https") => &mut handed.https,
            _ => &mut handed.haul,
        };
        let socket = sockets.take_tcp_listener(at).map_err(|error| bad(error.to_string()))?;
        let socket = socket.ok_or_else(|| bad("it is taken already".into()))?;
        port.push(Listener::of_socket(socket).map_err(|error| bad(error.to_string()))?);
    }
    Ok(handed)
}

/// Takes the given sockets, or opens this address, or else this port everywhere.
pub(crate) fn port(handed: Vec<Listener>, listen: Option<SocketAddr>, port: u16) -> Result<Port, Error> {
    let mut handed = handed.into_iter();
    match (handed.next(), listen) {
        (Some(first), _) => Ok(Port::HandedOver(first, handed.collect())),
        (None, Some(address)) => Listener::bind_to(address).map(Port::Opened).map_err(bind_error),
        (None, None) => Listener::bind(Some((port, port)), None).map(Port::Opened).map_err(bind_error),
    }
}
