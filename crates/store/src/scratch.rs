//! Files to measure with, in memory or nameless: freed at the last close, also after kill -9.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{MemfdFlags, OFlags};

/// A file in memory without data.
pub fn in_memory(bytes: u64) -> io::Result<File> {
    let file = File::from(rustix::fs::memfd_create("haul", MemfdFlags::CLOEXEC)?);
    file.set_len(bytes)?;
    Ok(file)
}

/// An empty file below a directory, without a name.
pub fn in_directory(directory: &Path) -> io::Result<File> {
    open_nameless(directory, OFlags::empty())
}

/// [`in_directory`] past the page cache, or `InvalidInput`.
pub(crate) fn direct_in_directory(directory: &Path) -> io::Result<File> {
    open_nameless(directory, OFlags::DIRECT)
}

fn open_nameless(directory: &Path, flags: OFlags) -> io::Result<File> {
    let open = |path: &Path, more: OFlags, new: bool| {
        let flags = (flags | more).bits().cast_signed();
        OpenOptions::new().read(true).write(true).create_new(new).mode(0o600).custom_flags(flags).open(path)
    };
    match open(directory, OFlags::TMPFILE, false) {
        // Network and stacked file systems have no nameless files: it has a name for a moment.
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            let path = directory.join(format!(".haul-scratch.{}", std::process::id()));
            let file = open(&path, OFlags::empty(), true);
            // If O_DIRECT is refused, the name may exist by then.
            if file.as_ref().err().is_none_or(|error| error.kind() == io::ErrorKind::InvalidInput) {
                let _ = std::fs::remove_file(&path);
            }
            file
        }
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_kind_leaves_a_name() {
        assert_eq!(in_memory(1 << 20).unwrap().metadata().unwrap().len(), 1 << 20);
        let dir = tempfile::tempdir().unwrap();
        let file = in_directory(dir.path()).unwrap();
        file.set_len(4096).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(in_directory(Path::new("/nonexistent")).is_err());
    }
}
