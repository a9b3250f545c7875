//! Addresses, as one side tells them to the other.

use serde::{Deserialize, Serialize};

/// An IP address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Address {
    /// IPv4
    V4([u8; 4]),
    /// IPv6
    V6([u8; 16]),
}

/// An address and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// IP address.
    pub address: Address,
    /// TCP port.
    pub port: u16,
}
