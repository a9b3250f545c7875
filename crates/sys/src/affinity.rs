//! Sets the processors and the priority of a thread: `sched_setaffinity(2)`, `setpriority(2)`.

use std::io;

use rustix::thread::CpuSet;

/// Binds the calling thread to a processor, counted from 0, or `EINVAL`.
pub fn bind_thread(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// Sets the niceness (0 to 19) of the calling thread and its later ones.
pub fn set_niceness(niceness: i32) -> io::Result<()> {
    Ok(rustix::process::setpriority_process(Some(rustix::thread::gettid()), niceness)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stays_where_it_was_bound() {
        let before = rustix::thread::sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU).find(|cpu| before.is_set(*cpu)).unwrap();
        bind_thread(first).unwrap();
        let after = rustix::thread::sched_getaffinity(None).unwrap();
        assert_eq!((after.count(), after.is_set(first)), (1, true));
        assert!(bind_thread(CpuSet::MAX_CPU).is_err());
        rustix::thread::sched_setaffinity(None, &before).unwrap();
    }

    #[test]
    fn a_nice_thread_gives_way_alone() {
        let niceness = || rustix::process::getpriority_process(Some(rustix::thread::gettid())).unwrap();
        let before = niceness();
        let other = std::thread::spawn(move || {
            set_niceness(19).unwrap();
            niceness()
        });
        assert_eq!((other.join().unwrap(), niceness()), (19, before));
    }
}
