//! Addresses as one side tells them to the other.

use core::net::IpAddr;

use serde::{Deserialize, Serialize};

/// An IP address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Address {
    /// IPv4
    V4([u8; 4]),
    /// IPv6
    V6([u8; 16]),
}

impl From<Address> for IpAddr {
    fn from(address: Address) -> Self {
        match address {
            Address::V4(octets) => Self::from(octets),
            Address::V6(octets) => Self::from(octets),
        }
    }
}

impl From<IpAddr> for Address {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::V4(address.octets()),
            IpAddr::V6(address) => Self::V6(address.octets()),
        }
    }
}

/// An address and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// IP address.
    pub address: Address,
    /// TCP port.
    pub port: u16,
}
