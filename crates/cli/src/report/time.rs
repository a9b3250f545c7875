//! Where the lanes' time went, for programs.

use haul_job::{Cause, Shares};
use serde::{Deserialize, Serialize};

use crate::json::values::share;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct TimeLine {
    pub source_storage: f64,
    pub source_cpu: f64,
    pub ramp: f64,
    pub capacity: f64,
    pub contention: f64,
    pub receive_window: f64,
    pub send_buffer: f64,
    pub loss: f64,
    pub jitter: f64,
    /// Earlier reports lack it.
    #[serde(default)]
    pub outage: f64,
    pub latency: f64,
    pub network: f64,
    pub target_cpu: f64,
    pub target_storage: f64,
    pub rate_limit: f64,
    pub work: f64,
}

pub fn of_shares(shares: &Shares) -> TimeLine {
    let of = |cause| share(shares.of(cause));
    TimeLine {
        source_storage: of(Cause::SourceStorage),
        source_cpu: of(Cause::SourceCpu),
        ramp: of(Cause::Ramp),
        capacity: of(Cause::Capacity),
        contention: of(Cause::Contention),
        receive_window: of(Cause::ReceiveWindow),
        send_buffer: of(Cause::SendBuffer),
        loss: of(Cause::Loss),
        jitter: of(Cause::Jitter),
        outage: of(Cause::Outage),
        latency: of(Cause::Latency),
        network: of(Cause::Network),
        target_cpu: of(Cause::TargetCpu),
        target_storage: of(Cause::TargetStorage),
        rate_limit: of(Cause::RateLimit),
        work: of(Cause::Work),
    }
}
