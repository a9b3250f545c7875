//! Failures between two hosts: what failed, with whom, and why.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::public_key::{BadKey, PublicKey};
use crate::way::DeviceName;

/// A failure to connect; a [`crate::Stream`] fails with `io::Error`.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// The name has no usable address.
    #[error("cannot find the address of {host}: {cause}")]
    Resolve {
        /// The name as given.
        host: String,
        /// The cause.
        cause: io::Error,
    },
    /// No candidate accepted the connection.
    #[error("cannot connect: {}", list(attempts))]
    Unreachable {
        /// Each address with its reason.
        attempts: Vec<Attempt>,
    },
    /// No connection may leave by this device.
    #[error("cannot connect by device {device}: {cause}{}", needs(cause))]
    Device {
        /// The device.
        device: DeviceName,
        /// The cause.
        cause: io::Error,
    },
    /// No connection may leave from this address.
    #[error("cannot connect from {address}: {}", source_words(cause))]
    Source {
        /// The address.
        address: IpAddr,
        /// The cause.
        cause: io::Error,
    },
    /// An operation took too long.
    #[error("{what} took longer than {} s", after.as_secs_f64())]
    Timeout {
        /// The operation.
        what: &'static str,
        /// The time.
        after: Duration,
    },
    /// The TLS handshake failed, not for a key.
    #[error("TLS handshake failed: {cause}")]
    Handshake {
        /// The cause.
        cause: String,
    },
    /// One end asks for a cipher that the other lacks or may not take.
    #[error("TLS handshake failed: {said}")]
    NoCommonCipher {
        /// The end that says so.
        said: &'static str,
    },
    /// The peer hung up during the TLS handshake: another program has the port, or the door is full.
    #[error("TLS handshake failed: the peer closed the connection")]
    HungUp,
    /// The peer proved a key that we do not admit.
    #[error("the peer holds the key {got}, which is not the expected one")]
    WrongKey {
        /// The shown key.
        got: PublicKey,
    },
    /// The peer showed a key without proof.
    #[error("the peer does not prove to hold the key that it shows")]
    Unproved,
    /// The peer does not admit our key.
    #[error("the peer does not admit our key")]
    KeyRefused,
    /// A key file or text is unusable.
    #[error(transparent)]
    Key(#[from] BadKey),
    /// Listening failed.
    #[error("cannot listen on {what}: {cause}")]
    Bind {
        /// Address, port or port range.
        what: String,
        /// The cause.
        cause: io::Error,
    },
    /// A system call failed otherwise.
    #[error("{what}: {cause}")]
    Io {
        /// The attempted act.
        what: &'static str,
        /// The cause.
        cause: io::Error,
    },
}

/// An unreachable address.
#[derive(Debug)]
pub struct Attempt {
    /// The address.
    pub address: SocketAddr,
    /// The cause.
    pub cause: io::Error,
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.address, self.cause)
    }
}

fn needs(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::PermissionDenied => " (to choose a device takes Linux 5.7, or CAP_NET_RAW)",
        _ => "",
    }
}

fn source_words(cause: &io::Error) -> String {
    match cause.kind() {
        io::ErrorKind::AddrNotAvailable => "this host has no such address".to_owned(),
        _ => cause.to_string(),
    }
}

fn list(attempts: &[Attempt]) -> String {
    if attempts.is_empty() {
        return "no address to try".to_owned();
    }
    let texts: Vec<String> = attempts.iter().map(Attempt::to_string).collect();
    texts.join("; ")
}
