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
    /// The directories of this user.
    pub surroundings: &'a Surroundings,
    /// Receives the events.
    pub watch: &'a Arc<Watch>,
    /// Whether files that stand at the target already are hashed, too.
    pub hash_kept: bool,
}
