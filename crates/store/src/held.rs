//! Counts the source directories that this process holds open.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

/// One job's open directories, counted for the whole process: a daemon has many jobs.
#[derive(Debug)]
pub(crate) struct Held {
    directories: u64,
    by_all: &'static AtomicU64,
}

impl Default for Held {
    fn default() -> Held {
        Held { directories: 0, by_all: &HELD_BY_ALL }
    }
}

static HELD_BY_ALL: AtomicU64 = AtomicU64::new(0);

impl Held {
    /// Counts one more directory. A job may hold half of the descriptors that others leave; the rest of the job takes the
    /// other half.
    pub(crate) fn one_more(&mut self, may_be_open: u64) -> io::Result<()> {
        let of_others = self.by_all.load(Ordering::Relaxed).saturating_sub(self.directories);
        if self.directories >= may_be_open.saturating_sub(of_others) / 2 {
            return Err(Errno::MFILE.into());
        }
        self.directories += 1;
        self.by_all.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.by_all.fetch_sub(self.directories, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_job_holds_open_another_cannot() {
        static BY_ALL: AtomicU64 = AtomicU64::new(0);
        let held = || Held { directories: 0, by_all: &BY_ALL };
        let as_many_as_it_may = |held: &mut Held| (0..1000).take_while(|_| held.one_more(1000).is_ok()).count();
        let (mut first, mut second) = (held(), held());
        assert_eq!((as_many_as_it_may(&mut first), as_many_as_it_may(&mut second)), (500, 250));
        drop(first);
        assert_eq!(as_many_as_it_may(&mut second), 250, "what one lets go another may have");
        drop(second);
        assert_eq!(BY_ALL.load(Ordering::Relaxed), 0);
    }
}
