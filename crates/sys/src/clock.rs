//! The calling thread's processor time, and the step of the clock that stamps files.

use std::sync::OnceLock;
use std::time::Duration;

/// Processor time of the calling thread (clock_gettime(2), `CLOCK_THREAD_CPUTIME_ID`), by libc: rustix panics if the vDSO
/// lacks a function (User Mode Linux).
pub fn thread_cpu_us() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills the struct that is passed, and keeps no pointer to it.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    debug_assert_eq!(result, 0, "no clock of the thread's processor time");
    let s = u64::try_from(time.tv_sec).unwrap_or(0);
    let ns = u64::try_from(time.tv_nsec).unwrap_or(0);
    s * 1_000_000 + ns / 1_000
}

/// The time that the calling thread waited for a processor: the second figure of `/proc/thread-self/schedstat` (proc(5)), or
/// 0.
pub fn thread_delay_us() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_ascii_whitespace().nth(1).and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0) / 1_000
}

/// The step of the clock that stamps files, 1 to 10 ms: clock_getres(2), `CLOCK_REALTIME_COARSE`.
pub fn stamp_step() -> Duration {
    static STEP: OnceLock<Duration> = OnceLock::new();
    *STEP.get_or_init(|| {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the kernel fills the struct that is passed, and keeps no pointer to it.
        let result = unsafe { libc::clock_getres(libc::CLOCK_REALTIME_COARSE, &mut time) };
        let step = Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0));
        if result == 0 { step.min(LONGEST_STEP) } else { LONGEST_STEP }
    })
}

/// A kernel with 100 ticks a second, the fewest that Linux has.
const LONGEST_STEP: Duration = Duration::from_millis(10);

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
