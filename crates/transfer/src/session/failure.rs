//! The first failure of a session.

use std::sync::Mutex;

use haul_job::Error;

use crate::sync::lock;

/// The first failure of any thread of a session; its loop sees it at the next tick.
#[derive(Default)]
pub(crate) struct Failure(Mutex<Option<Error>>);

impl Failure {
    pub(crate) fn set(&self, error: Error) {
        lock(&self.0).get_or_insert(error);
    }

    pub(crate) fn get(&self) -> Result<(), Error> {
        match &*lock(&self.0) {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }
}
