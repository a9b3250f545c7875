//! The request, the host's facts, and the advice, before printing.

use haul_job::Error;
use haul_workbench::tune::{self, Advice, Host, Roots, Wanted};

use crate::tune::flags::Tune;

pub struct Seen {
    pub wanted: Wanted,
    pub rate_from: RateFrom,
    pub rtt_typed: bool,
    pub host: Host,
    pub advice: Advice,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RateFrom {
    /// `--rate`
    Typed,
    /// The speed of this device.
    Device(String),
    /// No device tells its speed.
    Default,
}

impl Seen {
    pub fn look(typed: &Tune, roots: &Roots) -> Result<Self, Error> {
        let host = tune::look(roots, typed.disk.as_deref())?;
        let (rate_bytes_per_s, rate_from) = match (typed.rate, tune::fastest(&host)) {
            (Some(rate), _) => (rate, RateFrom::Typed),
            (None, Some((name, speed))) => (speed, RateFrom::Device(name.to_owned())),
            (None, None) => (DEFAULT_RATE_BYTES_PER_S, RateFrom::Default),
        };
        let wanted = Wanted { rate_bytes_per_s, rtt_us: typed.rtt.unwrap_or(DEFAULT_RTT_US) };
        let advice = tune::advise(&host, wanted);
        Ok(Self { wanted, rate_from, rtt_typed: typed.rtt.is_some(), host, advice })
    }
}

/// 10 Gbit/s, a data mover's usual link.
const DEFAULT_RATE_BYTES_PER_S: u64 = 1_250_000_000;

/// Across an ocean; shorter paths need less.
const DEFAULT_RTT_US: u64 = 100_000;
