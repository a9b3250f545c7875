//! The error of a port that cannot be opened, with a hint.

use std::io::ErrorKind;

use haul_job::{Error, Fault};
use haul_net::NetError;

pub(crate) fn bind_error(error: NetError) -> Error {
    let hint = match &error {
        NetError::Bind { cause, .. } if cause.kind() == ErrorKind::AddrInUse => {
            "does another daemon run already? --port or --listen names another port"
        }
        NetError::Bind { cause, .. } if cause.kind() == ErrorKind::PermissionDenied => {
            "ports below 1024 are for root; --port or --listen names another port"
        }
        _ => "--listen names an address of this host and a port",
    };
    Error::new(Fault::Network, error.to_string()).try_this(hint)
}
