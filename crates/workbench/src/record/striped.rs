//! A striped recording's index, and its bytes surely on the disks.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use haul_engine::integrity::Hash;
use haul_job::{Error, Fault};
use haul_store::recording::{self, Doubtful, Index, is_name};

use super::flushed::Flushed;
use super::request::Request;
use super::watcher::Watcher;

pub(super) struct Striping {
    path: PathBuf,
    index: Index,
}

impl Striping {
    /// Writes the index first, to make the recording findable.
    pub(super) fn begin(request: &Request) -> Result<Self, Error> {
        let path = recording::index_path(&request.path);
        let name = request.path.file_name().and_then(|name| name.to_str()).filter(|name| is_name(name));
        let name = name.ok_or_else(|| {
            Error::new(Fault::Usage, format!("cannot stripe a recording named {}", request.path.display()))
                .because("the stripes are named after it, with a number behind")
                .try_this("a name of UTF-8 that is at most 240 bytes long")
        })?;
        let taken = |path: &PathBuf| path.symlink_metadata().is_ok();
        if let Some(taken) = [&path, &request.path].into_iter().find(|path| taken(path)) {
            let error = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
            let hint = "a recording replaces no file: name a new one";
            return Err(Error::of_disk("make", taken, &error).try_this(hint));
        }
        let index = Index::new(name.to_owned(), request.buffer_bytes as u64, &request.stripe_directories);
        index.write(&path).map_err(|error| Error::of_disk("write", &path, &error))?;
        Ok(Self { path, index })
    }

    pub(super) fn stripe_paths(&self, directories: &[PathBuf]) -> Vec<PathBuf> {
        directories.iter().zip(self.index.stripe_names()).map(|(directory, name)| directory.join(name)).collect()
    }

    /// Flushes the stripes into the index, until the other end of `ended` is gone. Failures are reported and retried.
    ///
    /// `written`: each stripe's written bytes.
    pub(super) fn keep_index(
        &self,
        files: &[(PathBuf, File)],
        written: &[Arc<AtomicU64>],
        ended: &Receiver<()>,
        watcher: &dyn Watcher,
        flush_every: Duration,
    ) -> Vec<Flushed> {
        let mut flushed: Vec<Flushed> = files.iter().map(|_| Flushed::default()).collect();
        let mut index = self.index.clone();
        let mut fails = false;
        while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(flush_every) {
            for ((flushed, written), (path, file)) in flushed.iter_mut().zip(written).zip(files) {
                let written = written.load(Ordering::Acquire);
                if written == flushed.bytes {
                    continue;
                }
                if let Some(error) = flushed.flush(written, || file.sync_data()) {
                    let why = format!("{error}; what was written to it from byte {} on may be lost", flushed.bytes);
                    let hint = "the recording goes on; look at that disk";
                    watcher.on_warning(&Error::of_disk("flush", path, &error).because(why).try_this(hint));
                }
            }
            let before = index.clone();
            cover(&mut index, &flushed);
            if index == before {
                continue;
            }
            let result = index.write(&self.path);
            let failed_before = std::mem::replace(&mut fails, result.is_err());
            if let Err(error) = result {
                index = before;
                if !failed_before {
                    let hint = "the recording goes on, and this is tried again; look at that disk";
                    watcher.on_warning(&Error::of_disk("write", &self.path, &error).try_this(hint));
                }
            }
        }
        flushed
    }

    /// `whole`: length and hash, if every stripe has its part.
    pub(super) fn end(&mut self, flushed: &[Flushed], whole: Option<(u64, Hash)>) -> Result<(), Error> {
        cover(&mut self.index, flushed);
        if let Some((bytes, blake3)) = whole {
            self.index.end(bytes, blake3);
        }
        let mut result = self.index.write(&self.path);
        for _ in 1..INDEX_TRIES {
            result = result.or_else(|_| self.index.write(&self.path));
        }
        result.map_err(|error| {
            let hint = format!("nothing of the stripes is lost by it; enter into that file: {}", self.index.entries());
            Error::of_disk("write", &self.path, &error).try_this(hint)
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn bytes(&self) -> u64 {
        self.index.bytes
    }

    pub(super) fn remove(&self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// One error of a disk need not be its last word: each attempt writes another file.
const INDEX_TRIES: u32 = 3;

fn cover(index: &mut Index, flushed: &[Flushed]) {
    index.bytes = without_gap(flushed.iter().map(|flushed| flushed.bytes), index.block_bytes);
    let doubtful =
        |(stripe, flushed): (usize, &Flushed)| Some(Doubtful { stripe, from_byte: flushed.doubtful_from()? });
    index.doubtful = flushed.iter().enumerate().filter_map(doubtful).collect();
}

/// The bytes before the first missing block, for stripes of these lengths.
fn without_gap(written: impl ExactSizeIterator<Item = u64>, block_bytes: u64) -> u64 {
    let stripes = written.len() as u64;
    let first_missing = (0u64..).zip(written).map(|(number, bytes)| bytes / block_bytes * stripes + number);
    first_missing.min().unwrap_or(0) * block_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_ends_before_the_first_block_that_is_missing() {
        for (written, blocks) in [
            (&[0, 0, 0][..], 0),
            (&[10, 0, 0], 1),
            (&[10, 10, 10], 3),
            (&[20, 10, 10], 4),
            (&[0, 90, 90], 0),
            (&[20, 19, 20], 4),
            (&[35], 3),
        ] {
            assert_eq!(without_gap(written.iter().copied(), 10), blocks * 10, "{written:?}");
        }
    }
}
