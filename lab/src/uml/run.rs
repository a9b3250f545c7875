//! A run in a kernel: which kernel, which clock, and what it does.

use std::path::PathBuf;
use std::time::Duration;

use crate::units::Size;

use super::job::GuestJob;

/// A run in a kernel.
#[derive(Clone, Debug)]
pub struct RunInUml {
    /// The kernel, from [`super::kernel::find`].
    pub kernel: PathBuf,
    /// Our own program with its hidden subcommands: `std::env::current_exe()`.
    pub program: PathBuf,
    /// The clock: virtual or real time.
    pub clock: Clock,
    /// The most memory of the guest; from [`super::memory_for`].
    pub memory: Size,
    /// The lab and its task.
    pub job: GuestJob,
    /// The limit by the clock on the wall, not by the guest's clock.
    pub limit: Duration,
}

/// The clock of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Computation takes no time, and waiting is skipped.
    Virtual {
        /// Seconds since 1970 at which the guest starts.
        start_s: u64,
    },
    /// The clock of the host.
    Real,
}
