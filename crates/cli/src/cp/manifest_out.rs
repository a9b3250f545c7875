//! `--manifest-out FILE`: lines go to a temporary file, renamed when the copy has ended, or to standard output (`-`).
//!
//! A manifest lists verified files, also of a copy that left entries out. If the copy broke off, there is no file; on
//! standard output the closing line is missing.

use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use haul_job::{Error, Fault, ManifestLine};
use haul_transfer::TypedFile;
use haul_transfer::manifest_file::Writer;
use haul_transfer::whole_file::{InTheWay, Mode, WholeFile};

use crate::process::output::Out;
use crate::text::printable::printable;

pub struct ManifestOut {
    file: PathBuf,
    /// After an error the copy goes on, and its end reports the error.
    state: Mutex<Result<Writer<BufWriter<Sink>>, io::Error>>,
    is_new: AtomicBool,
}

fn open(file: &Path) -> Result<Writer<BufWriter<Sink>>, Error> {
    let begin = || {
        if file == Path::new(STANDARD_OUTPUT) {
            return Ok(Sink::StandardOutput);
        }
        let place = TypedFile::find(file)?;
        let path = place.path();
        let whole = WholeFile::begin(path.as_deref().unwrap_or(file), Mode::AsBefore)?;
        Ok(Sink::File(whole, place))
    };
    begin()
        .and_then(|sink| Writer::start(BufWriter::with_capacity(BUFFER_BYTES, sink)))
        .map_err(|error| failure(file, error))
}

enum Sink {
    /// The open directory leads to the file until the file has its name.
    File(WholeFile, TypedFile),
    StandardOutput,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Sink::File(file, _) => file.write(bytes),
            Sink::StandardOutput => Out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Sink::File(file, _) => file.flush(),
            Sink::StandardOutput => Out.flush(),
        }
    }
}

impl ManifestOut {
    /// Creates the file at the start: a bad name fails before any copy.
    pub fn start(file: &Path) -> Result<Self, Error> {
        Ok(Self { file: file.to_path_buf(), state: Mutex::new(Ok(open(file)?)), is_new: AtomicBool::new(true) })
    }

    /// A repeated copy lists its files anew.
    pub fn begin_again(&self) -> Result<(), Error> {
        if !self.is_new.load(Ordering::Relaxed) {
            self.discard();
            *self.state.lock().unwrap_or_else(PoisonError::into_inner) = Ok(open(&self.file)?);
            self.is_new.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    pub fn add(&self, line: &ManifestLine) {
        self.is_new.store(false, Ordering::Relaxed);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(writer) = &mut *state
            && let Err(error) = writer.add(line)
        {
            *state = Err(error);
        }
    }

    pub fn finish(&self) -> Result<(), Error> {
        self.take()
            .and_then(Writer::finish)
            .and_then(|out| out.into_inner().map_err(io::IntoInnerError::into_error))
            .and_then(|sink| match sink {
                Sink::File(file, _directory) => file.publish(),
                Sink::StandardOutput => Out.flush(),
            })
            .map_err(|error| failure(&self.file, error))
    }

    /// Removes the temporary file; an earlier one of that name stays.
    pub fn discard(&self) {
        drop(self.take());
    }

    fn take(&self) -> io::Result<Writer<BufWriter<Sink>>> {
        let gone = Err(io::Error::other("the manifest is closed already"));
        std::mem::replace(&mut *self.state.lock().unwrap_or_else(PoisonError::into_inner), gone)
    }
}

pub const STANDARD_OUTPUT: &str = "-";

fn failure(file: &Path, error: io::Error) -> Error {
    Error::new(Fault::FileIo, format!("cannot write the manifest {}", printable(file.as_os_str().as_bytes())))
        .because(error)
        .try_this(match InTheWay::at(file) {
            Ok(Some(InTheWay::Special | InTheWay::Link)) => "--manifest-out - writes to standard output",
            _ => "name a file in a directory that can be written: --manifest-out FILE",
        })
}

/// Some 150 bytes a line: about 1,700 files for each write.
const BUFFER_BYTES: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn line() -> ManifestLine {
        ManifestLine { path: b"a".to_vec(), size: 1, mtime_s: 0, mtime_ns: 0, blake3: [0; 32] }
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn the_name_appears_with_the_whole_manifest_only() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("m");
        let out = ManifestOut::start(&file).unwrap();
        out.add(&line());
        assert!(!file.exists());
        out.finish().unwrap();
        drop(out);
        assert_eq!(names(dir.path()), ["m"]);
        assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 3);
    }

    #[test]
    fn a_copy_that_broke_off_leaves_the_old_manifest_and_no_litter() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("m");
        fs::write(&file, "old").unwrap();
        let out = ManifestOut::start(&file).unwrap();
        out.add(&line());
        drop(out);
        assert_eq!(names(dir.path()), ["m"]);
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
    }

    #[test]
    fn a_name_that_cannot_be_written_is_known_at_the_start() {
        for file in ["/nonexistent/m", "/", "/tmp", "..", "/dev/full", "/dev/stdout"] {
            let error = ManifestOut::start(Path::new(file)).err().unwrap_or_else(|| panic!("{file}"));
            assert_eq!(error.fault, Fault::FileIo);
        }
    }

    #[test]
    fn an_error_while_writing_is_told_at_the_end() {
        let out = ManifestOut::start(&tempfile::tempdir().unwrap().path().join("m")).unwrap();
        assert_eq!(out.finish().unwrap_err().fault, Fault::FileIo);
        assert!(out.finish().is_err());
    }
}
