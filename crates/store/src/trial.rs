//! Tries which way of writing is faster on a file system: through the page cache, or past it.
//!
//! Make a file without a name -> write it one way and flush, then the other way and flush, in turns -> compare the
//! better turns. The direct way spares processor and memory: it wins unless much slower.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use haul_sys::direct::{AlignedBuffer, DirectFile};
use haul_sys::file;
use rustix::fs::{Mode, OFlags};

use crate::limits::{TRIAL_BYTES, TRIAL_SLOWER_MAX, TRIAL_TURNS, TRIAL_WRITE_BYTES, TRIAL_WRITERS};

/// A way of writing large files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteRoute {
    /// Past the page cache (`O_DIRECT`).
    Direct,
    /// Through the page cache.
    Copy,
}

impl WriteRoute {
    /// Both ways.
    pub const ALL: [WriteRoute; 2] = [WriteRoute::Direct, WriteRoute::Copy];

    /// The name in reports, JSON and files.
    pub fn name(self) -> &'static str {
        match self {
            WriteRoute::Direct => "direct",
            WriteRoute::Copy => "copy",
        }
    }
}

/// Each way's faster turn, with the flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    /// Past the page cache.
    pub direct: Duration,
    /// Through the page cache.
    pub copy: Duration,
}

impl Trial {
    /// Chooses the direct way, unless slower by `TRIAL_SLOWER_MAX`.
    pub fn choice(&self) -> WriteRoute {
        if self.direct <= self.copy * TRIAL_SLOWER_MAX { WriteRoute::Direct } else { WriteRoute::Copy }
    }
}

/// Tries both with up to `2 * TRIAL_TURNS * TRIAL_BYTES`, freed at once. `Unsupported` without direct I/O or nameless files.
pub(crate) fn try_in(directory: BorrowedFd<'_>) -> io::Result<Trial> {
    let open = |flags: OFlags| rustix::fs::openat(directory, ".", flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
    let nameless = File::from(open(OFlags::TMPFILE | OFlags::RDWR)?);
    let past = open(OFlags::TMPFILE | OFlags::WRONLY | OFlags::DIRECT)?;
    let unsupported = || io::Error::from(io::ErrorKind::Unsupported);
    let past = DirectFile::new(past.try_clone()?, past).ok_or_else(unsupported)?;
    let mut block = AlignedBuffer::new(TRIAL_WRITE_BYTES);
    block.fill(FILLING);
    let (mut direct, mut copy) = (Duration::MAX, Duration::MAX);
    for _ in 0..TRIAL_TURNS {
        direct = direct.min(timed(past.plain(), |offset| past.write_all_at(&block, offset))?);
        copy = copy.min(timed(nameless.as_fd(), |offset| file::write_all_at(nameless.as_fd(), &block, offset))?);
    }
    if past.is_refused() {
        return Err(unsupported());
    }
    Ok(Trial { direct, copy })
}

/// Times writing into allocated room, as in a copy.
fn timed(file: BorrowedFd<'_>, write: impl Fn(u64) -> io::Result<()> + Sync) -> io::Result<Duration> {
    file::set_size(file, 0)?;
    file::reserve(file, TRIAL_BYTES)?;
    file::set_size(file, TRIAL_BYTES)?;
    let start = Instant::now();
    let part = |first: usize| -> io::Result<()> {
        let begin = (first * TRIAL_WRITE_BYTES) as u64;
        (begin..TRIAL_BYTES).step_by(TRIAL_WRITERS * TRIAL_WRITE_BYTES).try_for_each(&write)
    };
    // A single direct write leaves the disk idle between calls.
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..TRIAL_WRITERS).map(|first| scope.spawn(move || part(first))).collect();
        let own = part(0);
        let others = others.into_iter().map(|other| other.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into())));
        others.fold(own, io::Result::and)
    })?;
    file::flush_data(file)?;
    Ok(start.elapsed())
}

const FILLING: u8 = 0x5a;

#[cfg(test)]
mod tests {
    use super::*;
    use haul_sys::condition::unmet;

    #[test]
    fn a_file_system_with_direct_writes_is_tried_and_keeps_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let root = File::open(dir.path()).unwrap();
        match try_in(root.as_fd()) {
            Ok(trial) => assert!(trial.direct > Duration::ZERO && trial.copy > Duration::ZERO, "{trial:?}"),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                unmet(format_args!("the file system of the temporary directory has no direct I/O: {error}"));
            }
            Err(error) => panic!("{error}"),
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn memory_is_never_gone_past() {
        let Ok(shm) = File::open("/dev/shm") else { return };
        assert_eq!(try_in(shm.as_fd()).unwrap_err().kind(), io::ErrorKind::Unsupported);
    }

    #[test]
    fn only_what_is_much_slower_is_not_taken() {
        let choice =
            |direct, copy| Trial { direct: Duration::from_millis(direct), copy: Duration::from_millis(copy) }.choice();
        assert_eq!(choice(10, 10), WriteRoute::Direct);
        assert_eq!(choice(40, 10), WriteRoute::Direct);
        assert_eq!(choice(41, 10), WriteRoute::Copy);
    }
}
