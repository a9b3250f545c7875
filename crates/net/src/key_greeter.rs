//! Greets at a door with TLS: lets in peers that prove an admitted key.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::cipher::{Cipher, preferred_ciphers};
use crate::door::{Caller, Greeter, Greeting};
use crate::error::NetError;
use crate::identity::Identity;
use crate::limits;
use crate::public_key::PublicKey;
use crate::stream::Stream;
use crate::tls;
use crate::transport::ShutdownHandle;

/// Judges key and address; the handle tells whether the door has ended the connection.
pub type Admit = Arc<dyn Fn(&PublicKey, SocketAddr, &ShutdownHandle) -> bool + Send + Sync>;
/// Takes a stream with its peer's proved key. The handshake's deadline holds: read the hello, then `set_deadline(None)`.
pub type Deliver = Arc<dyn Fn(Stream, PublicKey, SocketAddr) + Send + Sync>;

/// Shakes hands in TLS 1.3, with raw keys at both ends.
pub struct KeyGreeter {
    /// Our own key.
    pub identity: Arc<Identity>,
    /// The judge of keys.
    pub admit: Admit,
    /// The accepted ciphers, best first.
    pub ciphers: Vec<Cipher>,
    /// The receiver of admitted peers.
    pub deliver: Deliver,
}

impl KeyGreeter {
    /// Admits every proved key, with the ciphers that this processor prefers.
    pub fn for_any_key(identity: Arc<Identity>, deliver: Deliver) -> KeyGreeter {
        KeyGreeter { identity, admit: Arc::new(|_, _, _| true), ciphers: preferred_ciphers(None), deliver }
    }
}

impl Greeter for KeyGreeter {
    type Guest = (Stream, PublicKey);

    fn greet(&self, caller: &Caller) -> Greeting<Self::Guest> {
        let (admit, address, connection) = (Arc::clone(&self.admit), caller.address(), caller.shutdown_handle());
        let admit = move |key: &PublicKey| admit(key, address, &connection);
        let link = Arc::clone(&caller.link);
        let floor = link.member().and_then(|member| member.class().terms().cipher);
        let mut ciphers = self.ciphers.clone();
        ciphers.retain(|cipher| floor.is_none_or(|floor| floor.allows(Some(*cipher))));
        match tls::server_over(link, &self.identity, admit, &ciphers, caller.deadline()) {
            Ok(guest) => Greeting::Admitted(guest),
            Err(NetError::WrongKey { .. } | NetError::Unproved) => Greeting::Refused { penalty: limits::REFUSED_KEY },
            Err(_) => Greeting::Gone,
        }
    }

    fn receive(&self, (stream, key): Self::Guest, caller: &Caller) {
        (self.deliver)(stream, key, caller.address());
    }
}
