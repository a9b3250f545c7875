//! A job, and what it runs with.

use std::sync::Arc;

use haul_job::Job;

use crate::kept::surroundings::Surroundings;
use crate::session::reporter::Watch;

/// A job, and what it runs with.
#[derive(Clone, Copy)]
pub(crate) struct Order<'a> {
    pub(crate) job: &'a Job,
    pub(crate) surroundings: &'a Surroundings,
    pub(crate) watch: &'a Arc<Watch>,
    /// Files that stand at the target already are hashed, too.
    pub(crate) hash_kept: bool,
}
