//! Who asks, and which directory that is.

use std::fmt;
use std::sync::Arc;

use haul_store::Published;

use crate::token::Number;

/// Who asks, as far as the connection and the request prove it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Asker {
    /// Somebody without any proof.
    Anyone,
    /// The holder of the certificate with this SHA-256 fingerprint, proved in the handshake.
    Certificate([u8; 32]),
    /// The holder of a token for this line of the list.
    Token(String),
}

/// A directory for an asker.
pub struct Shelf {
    /// The directory.
    pub directory: Published,
    /// Who it is for, in the log.
    pub name: String,
}

/// Says what is for whom. It is asked for each request, so it waits for nothing but a small file.
pub trait Access: Send + Sync + 'static {
    /// The directory of an asker. `None`: this asker may read nothing.
    fn shelf(&self, asker: &Asker) -> Option<Arc<Shelf>>;

    /// Whether the operator has revoked a token. It is asked for each request with a token, as above.
    fn is_revoked(&self, _: Number) -> bool {
        false
    }

    /// Whether anybody is known by a certificate: then readers are asked for one, and may have none.
    fn knows_certificates(&self) -> bool {
        false
    }
}

impl fmt::Debug for Shelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shelf").field("name", &self.name).finish_non_exhaustive()
    }
}
