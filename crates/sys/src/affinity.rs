//! On which processors a thread may run: `sched_setaffinity(2)`.

use std::io;

use rustix::thread::CpuSet;

/// Binds the calling thread to one processor, counted from 0. `EINVAL` when there is none of that number.
pub fn bind_thread(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
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
}
