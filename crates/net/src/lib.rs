//! Bytes over wires: connect, listen, TLS, tuning.
//!
//! ```text
//! resolve -> dial   --+                      +-> Stream: Read + Write, clear or TLS
//!                     +-> client() / server()|     |-> split() for a reader and a writer thread
//! Listener -> Door  --+                      +-> shutdown_handle() to end both from elsewhere
//! ```
//! Threads and blocking calls. TLS expects raw Ed25519 keys (RFC 7250). `policy` tunes a TCP connection, and reports what
//! the kernel granted.

#![forbid(unsafe_code)]

mod base64;
#[cfg(test)]
#[path = "../tests/unit/bounds_scenarios.rs"]
mod bounds_scenarios;
mod by_floor;
mod cipher;
#[cfg(test)]
#[path = "../tests/unit/clear_scenarios.rs"]
mod clear_scenarios;
mod control;
pub mod dial;
pub mod door;
mod error;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod host;
pub mod identity;
pub mod interfaces;
mod kernel_opener;
#[cfg(test)]
#[path = "../tests/unit/kernel_scenarios.rs"]
mod kernel_scenarios;
mod kernel_sealer;
mod key_greeter;
pub mod limits;
pub mod listen;
pub mod mptcp;
pub mod outbound;
pub mod policy;
#[cfg(test)]
#[path = "../tests/unit/posers.rs"]
mod posers;
mod public_key;
mod record;
#[cfg(test)]
#[path = "../tests/unit/scenarios.rs"]
mod scenarios;
pub mod stream;
#[cfg(test)]
#[path = "../tests/unit/tampering.rs"]
mod tampering;
pub mod tls;
mod transport;
pub mod way;

pub use base64::{decode as base64_bytes, encode_padded as base64_text};
pub use by_floor::{ByFloor, floor_by_connection};
pub use cipher::{Cipher, preferred_ciphers};
pub use control::BROKE_OFF;
pub use dial::{Family, dial, local_addresses, resolve};
pub use door::{Door, DoorOptions};
pub use error::{Attempt, NetError};
pub use identity::Identity;
pub use kernel_sealer::{KeyUsedUp, seals_here};
pub use key_greeter::{Admit, Deliver, KeyGreeter};
pub use limits::PADDING_BYTES_MAX;
pub use listen::Listener;
pub use outbound::{Entered, Outbound, OutboundConnection};
pub use policy::{Applied, Distance, Granted, Membership, Networks, Policies, Policy, Prefix, Wanted};
pub use public_key::{BadKey, PublicKey};
pub use stream::{Next, Probe, ReadHalf, Stream, TagKeys, WriteHalf};
pub use tls::{client, client_padded, server};
pub use transport::{Pipes, ShutdownHandle, Transport};
pub use way::{DeviceName, Way};
