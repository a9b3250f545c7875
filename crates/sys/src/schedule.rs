//! Which thread runs when several could.

use std::io;

/// The calling thread goes before every thread of ordinary programs, whatever their priority and group: `SCHED_RR` with the
/// lowest of its priorities (sched(7)). Only for one that sleeps most of its time. Takes root, or a limit on `RLIMIT_RTPRIO`.
pub fn run_before_others() -> io::Result<()> {
    // SAFETY: the struct is plain integers, for which zeros are valid.
    let mut wanted: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: the call takes and returns plain integers.
    wanted.sched_priority = unsafe { libc::sched_get_priority_min(libc::SCHED_RR) };
    // The kernel's call and not libc's, which musl leaves out.
    // SAFETY: 0 is the calling thread; the kernel reads the struct, and keeps no pointer to it.
    match unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_RR, &raw const wanted) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_thread_goes_first_or_is_told_that_it_may_not() {
        let thread = std::thread::spawn(|| {
            let asked = super::run_before_others();
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            // The 41st field; the second may hold spaces and ends with the last parenthesis (proc(5)).
            let policy = stat.rsplit(')').next().unwrap().split_ascii_whitespace().nth(38).unwrap().to_owned();
            (asked, policy)
        });
        let (asked, policy) = thread.join().unwrap();
        match asked {
            Ok(()) => assert_eq!(policy, libc::SCHED_RR.to_string()),
            Err(error) => assert_eq!((error.kind(), &*policy), (std::io::ErrorKind::PermissionDenied, "0")),
        }
    }
}
