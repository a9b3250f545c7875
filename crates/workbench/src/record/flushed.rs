//! What of a recording is on its disks, as far as they say so.
//!
//! After a flush that failed nobody knows what of the bytes before it is lost: the kernel may have thrown them away, and a flush that succeeds
//! later says nothing of them (`fsync(2)`; Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020). So such a failure
//! is told at once and once more at the end, whatever follows.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use haul_job::{Error, Fault};

/// The state of one file.
#[derive(Debug, Default)]
pub(super) struct Flushed {
    /// The bytes that were there when a flush last succeeded.
    pub(super) bytes: u64,
    /// From which byte on something may be lost, and what the first flush that failed said.
    doubt: Option<(u64, String)>,
    /// The last flush failed.
    fails: bool,
}

impl Flushed {
    /// Flushes by `flush` what was written, which is `written` bytes at least. An error that nobody knows yet: the last flush had none.
    pub(super) fn flush(&mut self, written: u64, flush: impl FnOnce() -> io::Result<()>) -> Option<io::Error> {
        let failed_before = self.fails;
        match flush() {
            Ok(()) => {
                (self.bytes, self.fails) = (written, false);
                None
            }
            Err(error) => {
                self.fails = true;
                self.doubt.get_or_insert_with(|| (self.bytes, error.to_string()));
                (!failed_before).then_some(error)
            }
        }
    }

    /// From which byte on something may be lost.
    pub(super) fn doubtful_from(&self) -> Option<u64> {
        self.doubt.as_ref().map(|(from, _)| *from)
    }
}

/// Why a recording that went to its end need not be on the disks. `hint`: how to find out.
pub(super) fn doubts(files: &[(PathBuf, File)], flushed: &[Flushed], hint: &str) -> Option<Error> {
    let doubts = files.iter().zip(flushed).filter_map(|((path, _), flushed)| Some((path, flushed.doubt.as_ref()?)));
    let doubts: Vec<_> = doubts.collect();
    let (_, (_, why)) = doubts.first()?;
    let of = |(path, (from, _)): &(&PathBuf, &(u64, String))| format!("{} from byte {from} on", path.display());
    let of = doubts.iter().map(of).collect::<Vec<_>>().join(", ");
    let what = format!("the recording may be incomplete on the disk: a flush failed of {of}");
    Some(Error::new(Fault::FileIo, what).because(why).try_this(hint))
}
