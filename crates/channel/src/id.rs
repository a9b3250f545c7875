//! Makes random names of sessions.

use haul_job::{Error, Fault};

/// Makes a random name.
pub fn random_id() -> Result<[u8; 16], Error> {
    let mut id = [0; 16];
    aws_lc_rs::rand::fill(&mut id).map_err(|_| Error::new(Fault::FileIo, "the system gives no random numbers"))?;
    Ok(id)
}
