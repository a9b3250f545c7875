//! How much processor time the calling thread has used: tells work from waiting inside one system call.

use rustix::time::{ClockId, clock_gettime};

/// Processor time (user and system) of the calling thread in microseconds. Source: clock_gettime(2),
/// `CLOCK_THREAD_CPUTIME_ID`.
pub fn thread_cpu_us() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let s = u64::try_from(time.tv_sec).unwrap_or(0);
    let ns = u64::try_from(time.tv_nsec).unwrap_or(0);
    s * 1_000_000 + ns / 1_000
}

#[cfg(test)]
mod tests {
    #[test]
    fn work_counts() {
        let before = super::thread_cpu_us();
        let mut sum = 0u64;
        while super::thread_cpu_us() == before {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(super::thread_cpu_us() > before);
    }
}
