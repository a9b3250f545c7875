//! Tracks the recorded bytes on the disks.
//!
//! After a failed flush the kernel may have discarded any bytes before, and a later success says nothing of them (`fsync(2)`;
//! Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020). So the failure is reported at once and
//! again at the end.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use haul_job::{Error, Fault};

#[derive(Debug, Default)]
pub(super) struct Flushed {
    /// The bytes at the last successful flush.
    pub(super) bytes: u64,
    /// The first byte that may be lost, and why.
    doubt: Option<(u64, String)>,
    fails: bool,
}

impl Flushed {
    /// Flushes at least `written` bytes. Returns an error only after a success.
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

    pub(super) fn doubtful_from(&self) -> Option<u64> {
        self.doubt.as_ref().map(|(from, _)| *from)
    }
}

/// The error of a recording that may not be on the disks. `hint`: how to find out.
pub(super) fn doubts(files: &[(PathBuf, File)], flushed: &[Flushed], hint: &str) -> Option<Error> {
    let doubts = files.iter().zip(flushed).filter_map(|((path, _), flushed)| Some((path, flushed.doubt.as_ref()?)));
    let doubts: Vec<_> = doubts.collect();
    let (_, (_, why)) = doubts.first()?;
    let of = |(path, (from, _)): &(&PathBuf, &(u64, String))| format!("{} from byte {from} on", path.display());
    let of = doubts.iter().map(of).collect::<Vec<_>>().join(", ");
    let what = format!("the recording may be incomplete on the disk: a flush failed of {of}");
    Some(Error::new(Fault::FileIo, what).because(why).try_this(hint))
}
