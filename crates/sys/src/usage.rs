//! The used processor time: `getrusage(2)`, and `/proc` for the helpers of io_uring.

use std::io;
use std::ops::{Add, AddAssign, Sub};

/// Processor time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The time in the program.
    pub user_us: u64,
    /// The time in the kernel, for the program.
    pub system_us: u64,
}

impl Usage {
    /// The sum of both.
    pub fn total_us(self) -> u64 {
        self.user_us + self.system_us
    }
}

impl Add for Usage {
    type Output = Usage;

    fn add(self, other: Usage) -> Usage {
        Usage { user_us: self.user_us + other.user_us, system_us: self.system_us + other.system_us }
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Usage) {
        *self = *self + other;
    }
}

/// The use since an earlier reading, at least zero.
impl Sub for Usage {
    type Output = Usage;

    fn sub(self, earlier: Usage) -> Usage {
        Usage {
            user_us: self.user_us.saturating_sub(earlier.user_us),
            system_us: self.system_us.saturating_sub(earlier.system_us),
        }
    }
}

/// The use of the calling thread so far.
pub fn of_thread() -> Usage {
    of(libc::RUSAGE_THREAD)
}

/// The use of this process so far, ended threads and kernel's helpers, too.
pub fn of_process() -> Usage {
    of(libc::RUSAGE_SELF)
}

/// The use so far of the kernel's threads for this thread's rings (`iou-wrk-TID`), which `getrusage` does not count. Idle
/// ones end after five seconds, and count no more.
pub fn of_ring_workers() -> io::Result<Usage> {
    let name = format!("iou-wrk-{}", rustix::thread::gettid().as_raw_nonzero());
    let mut usage = Usage::default();
    for task in std::fs::read_dir("/proc/self/task")? {
        let path = task?.path();
        let Ok(comm) = std::fs::read_to_string(path.join("comm")) else { continue };
        if comm.trim_end() != name {
            continue;
        }
        let schedstat = std::fs::read_to_string(path.join("schedstat")).unwrap_or_default();
        let ns = schedstat.split_ascii_whitespace().next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
        usage.system_us += ns / 1_000;
    }
    Ok(usage)
}

fn of(whom: libc::c_int) -> Usage {
    // SAFETY: all zeros is a valid `rusage`, and the kernel fills the one that is passed and keeps no pointer to it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        let result = libc::getrusage(whom, &raw mut usage);
        debug_assert_eq!(result, 0, "only a wrong argument fails");
        usage
    };
    let us = |time: libc::timeval| {
        u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_usec).unwrap_or(0)
    };
    Usage { user_us: us(usage.ru_utime), system_us: us(usage.ru_stime) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_this_thread_counts_to_it_and_to_the_process() {
        let (thread, process) = (of_thread(), of_process());
        let mut sum = 0u64;
        while (of_thread() - thread).total_us() < 100_000 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!((of_process() - process).total_us() >= 80_000);
        assert_eq!(Usage::default() - of_thread(), Usage::default(), "an earlier reading is never more");
    }
}
