//! Keeps the first failure of a session.

use std::sync::Mutex;

use haul_job::Error;

use haul_kept::sync::lock;

/// The first failure of a session's threads.
#[derive(Default)]
pub struct Failure(Mutex<Option<Error>>);

impl Failure {
    /// Keeps the first error.
    pub fn set(&self, error: Error) {
        lock(&self.0).get_or_insert(error);
    }

    /// Fails with the kept error.
    pub fn get(&self) -> Result<(), Error> {
        match &*lock(&self.0) {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }
}
