//! Holds a job with its surroundings.

use std::sync::Arc;

use haul_job::Job;

use haul_channel::reporter::Watch;
use haul_kept::surroundings::Surroundings;

/// A job with its surroundings.
#[derive(Clone, Copy)]
pub struct Order<'a> {
    /// The job.
    pub job: &'a Job,
    /// The user's directories.
    pub surroundings: &'a Surroundings,
    /// Receives events.
    pub watch: &'a Arc<Watch>,
    /// Whether kept files are hashed.
    pub hash_kept: bool,
}
