//! What a reader asks for, and what all answers share.

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode};

use crate::budget::{Budget, Share};
use crate::limits::OPEN_DEADLINE;
use crate::pools::{Client, Job, KIB, Pools};
use crate::request::target::Target;
use crate::token::Reach;
use crate::transport::piece::Queue;

use super::digest::Kept;
use super::manifest::ManifestFormat;
use super::refusal::Refusal;

pub(crate) struct Asked {
    pub(crate) is_head: bool,
    pub(crate) target: Target,
    pub(crate) reach: Reach,
    pub(crate) header: HeaderMap,
    pub(crate) now: SystemTime,
    /// `None`: bytes of files pass through this process.
    pub(crate) files: Option<Queue>,
    pub(crate) is_http2: bool,
    pub(crate) client: Client,
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) pools: Arc<Pools>,
    pub(super) digests: Arc<Kept>,
    pub(super) format: Arc<dyn ManifestFormat>,
}

impl Shared {
    pub(crate) fn new(format: Arc<dyn ManifestFormat>, digests: Kept) -> io::Result<Shared> {
        Ok(Shared { pools: Arc::new(Pools::new()?), digests: Arc::new(digests), format })
    }
}

impl Asked {
    pub(super) async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Job) -> io::Result<T> + Send + 'static,
    ) -> Result<io::Result<T>, Refusal> {
        Ok(self.shared.pools.disk.run(&self.client, OPEN_DEADLINE, work).await?)
    }

    /// Waits for its turn in a budget, and takes a share.
    pub(super) async fn share(
        &self,
        budget: &Arc<Budget>,
        amount: usize,
        patience: Duration,
    ) -> Result<Share, Refusal> {
        let share = budget.take(&self.client.claimant, amount, patience).await;
        share.map_err(|_| Refusal::of(StatusCode::SERVICE_UNAVAILABLE))
    }
}

pub(super) fn kib(bytes: usize) -> usize {
    bytes.div_ceil(KIB)
}
