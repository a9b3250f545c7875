//! What a success proves, in words.

use haul_job::Proof;

/// How data that no haul at its end hashed was read. `None`: a haul hashed it, or nobody read it.
pub fn as_read(proof: Proof) -> Option<&'static str> {
    match proof {
        Proof::BothEnds
        | Proof::InOneBuffer
        | Proof::Confirmed
        | Proof::ByStore
        | Proof::BySize
        | Proof::ByBothServers => None,
        Proof::AsRead => Some("as read over sftp"),
        Proof::AsSent => Some("as sent by the server"),
        Proof::AsStored => Some("with the CRC64NVME that the store keeps"),
    }
}
