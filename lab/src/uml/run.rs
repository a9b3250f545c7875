//! A run in a kernel: kernel, clock and task.

use std::path::PathBuf;
use std::time::Duration;

use crate::units::Size;

use super::job::GuestJob;

/// A run in a kernel.
#[derive(Clone, Debug)]
pub struct RunInUml {
    /// From [`super::kernel::find`].
    pub kernel: PathBuf,
    /// Our own program: `std::env::current_exe()`.
    pub program: PathBuf,
    /// Virtual or real time.
    pub clock: Clock,
    /// The guest's memory, from [`super::memory_for`].
    pub memory: Size,
    /// The lab and its task.
    pub job: GuestJob,
    /// The limit by the clock on the wall.
    pub limit: Duration,
}

/// The guest's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Computation takes no time, and waiting is skipped.
    Virtual {
        /// The start, in seconds since 1970.
        start_s: u64,
    },
    /// The host's clock.
    Real,
}
