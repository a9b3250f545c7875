//! A file that gets its name when it is whole, and replaces only a regular file.
//!
//! Look at the entry there -> write to a file without a name -> flush -> name it beside -> rename -> flush the
//! directory. A nameless file (open(2), O_TMPFILE) vanishes with the process: a walk finds only complete files.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, OFlags, Stat};
use rustix::io::Errno;

/// A file being written, which leaves nothing before [`WholeFile::publish`].
#[derive(Debug)]
pub struct WholeFile {
    file: File,
    directory: OwnedFd,
    name: OsString,
    /// The temporary name in the same directory, to be given.
    beside: OsString,
    is_named: bool,
    flush: bool,
}

/// Permission bits of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The bits of the replaced file, else what the umask leaves.
    AsBefore,
    /// The given bits, less the umask.
    Of(u32),
}

/// An entry that a written file must not replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InTheWay {
    /// A link, neither followed nor replaced.
    Link,
    /// A directory.
    Directory,
    /// A device, FIFO or socket.
    Special,
}

impl InTheWay {
    /// The entry at this path, if writing there would lose it. Links are not followed.
    pub fn at(path: &Path) -> io::Result<Option<Self>> {
        match rustix::fs::lstat(path) {
            Ok(found) => Ok(Self::of(&found)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn of(found: &Stat) -> Option<Self> {
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Symlink => Some(InTheWay::Link),
            FileType::Directory => Some(InTheWay::Directory),
            FileType::CharacterDevice | FileType::BlockDevice | FileType::Fifo | FileType::Socket => {
                Some(InTheWay::Special)
            }
            FileType::RegularFile | FileType::Unknown => None,
        }
    }

    /// The reason, to continue a sentence that names the path.
    pub fn why(self) -> &'static str {
        match self {
            InTheWay::Link => "it is a symbolic link: name the file that it leads to",
            InTheWay::Directory => "it is a directory: name a file in it",
            InTheWay::Special => "it is a device, a FIFO or a socket, which a file would replace",
        }
    }
}

impl WholeFile {
    /// Begins a file. Fails early if the name is another kind's, or the directory takes no file.
    ///
    /// # Errors
    /// The system's, or [`InTheWay::why`] as [`io::ErrorKind::InvalidInput`].
    pub fn begin(path: &Path, mode: Mode) -> io::Result<Self> {
        let name = path.file_name().ok_or(io::Error::new(io::ErrorKind::InvalidInput, "it is no name of a file"))?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = || rustix::fs::open(directory_of(path), flags, rustix::fs::Mode::empty());
        Self::begin_in(rustix::io::retry_on_intr(opened)?, name, mode)
    }

    /// [`WholeFile::begin`] for a name in this directory, wherever that is moved.
    pub fn begin_in(directory: OwnedFd, name: &OsStr, mode: Mode) -> io::Result<Self> {
        let before = free_or_file(&directory, name)?;
        if let Some(before) = &before {
            check_sticky(&directory, before)?;
        }
        let mut beside = OsString::from(".");
        beside.push(name);
        beside.push(format!(".haul-{}", std::process::id()));
        let bits = match mode {
            Mode::AsBefore => 0o666,
            Mode::Of(bits) => bits,
        };
        // A killed process of this number left it.
        let _ = rustix::fs::unlinkat(&directory, &beside, AtFlags::empty());
        let (file, is_named) = match open_nameless(&directory, bits) {
            Some(file) => (file, false),
            // O_EXCL: what appeared meanwhile stays.
            None => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                let bits = rustix::fs::Mode::from_raw_mode(bits);
                (File::from(rustix::io::retry_on_intr(|| rustix::fs::openat(&directory, &beside, flags, bits))?), true)
            }
        };
        let begun = Self { file, directory, name: name.to_owned(), beside, is_named, flush: true };
        if let (Mode::AsBefore, Some(before)) = (mode, &before) {
            // A process that may not change the owner stays the owner.
            let _ = std::os::unix::fs::fchown(&begun.file, Some(before.st_uid), Some(before.st_gid));
            begun.file.set_permissions(fs::Permissions::from_mode(before.st_mode & 0o777))?;
        }
        Ok(begun)
    }

    /// Skips the flush: a power cut may leave the old file, or an empty one.
    #[must_use]
    pub fn without_flush(mut self) -> Self {
        self.flush = false;
        self
    }

    /// Gives the file its name, over a regular file. Fails as [`WholeFile::begin`]; the earlier entry then stands.
    pub fn publish(mut self) -> io::Result<()> {
        if self.flush {
            self.file.sync_all()?;
        }
        free_or_file(&self.directory, &self.name)?;
        self.name_beside()?;
        crate::file::rename_held(self.file.as_fd(), self.directory.as_fd(), &self.beside, &self.name)?;
        self.is_named = false;
        self.flush_directory()
    }

    /// [`WholeFile::publish`], replacing nothing: also [`io::ErrorKind::AlreadyExists`].
    pub fn publish_new(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        self.name_beside()?;
        // Unlike a rename this fails if the name is taken.
        rustix::fs::linkat(&self.directory, &self.beside, &self.directory, &self.name, AtFlags::empty())?;
        self.flush_directory()
    }

    fn name_beside(&mut self) -> io::Result<()> {
        if !self.is_named {
            let nameless = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            rustix::fs::linkat(CWD, nameless, &self.directory, &self.beside, AtFlags::SYMLINK_FOLLOW)?;
            self.is_named = true;
        }
        Ok(())
    }

    fn flush_directory(&self) -> io::Result<()> {
        if !self.flush {
            return Ok(());
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = || rustix::fs::openat(&self.directory, ".", flags, rustix::fs::Mode::empty());
        File::from(rustix::io::retry_on_intr(opened)?).sync_all()
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if self.is_named {
            let _ = rustix::fs::unlinkat(&self.directory, &self.beside, AtFlags::empty());
        }
    }
}

/// Writes a file whole or not at all. Fails as [`WholeFile::begin`].
pub fn write(path: &Path, bytes: &[u8], mode: Mode) -> io::Result<()> {
    let mut file = WholeFile::begin(path, mode)?;
    file.write_all(bytes)?;
    file.publish()
}

fn free_or_file(directory: &OwnedFd, name: &OsStr) -> io::Result<Option<Stat>> {
    match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => match InTheWay::of(&found) {
            Some(other) => Err(io::Error::new(io::ErrorKind::InvalidInput, other.why())),
            None => Ok(Some(found)),
        },
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// In sticky directories only the file's or the directory's owner, or root may replace it (inode(7)).
fn check_sticky(directory: &OwnedFd, before: &Stat) -> io::Result<()> {
    let around = rustix::fs::fstat(directory)?;
    let user = crate::process::effective_user();
    if around.st_mode & 0o1000 != 0 && user != 0 && user != before.st_uid && user != around.st_uid {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is another user's, in a directory like /tmp"));
    }
    Ok(())
}

/// `None` without nameless files, or `/proc` to name one.
fn open_nameless(directory: &OwnedFd, mode: u32) -> Option<File> {
    let (flags, mode) = (OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, rustix::fs::Mode::from_raw_mode(mode));
    let file = File::from(rustix::io::retry_on_intr(|| rustix::fs::openat(directory, ".", flags, mode)).ok()?);
    fs::metadata(format!("/proc/self/fd/{}", file.as_raw_fd())).is_ok().then_some(file)
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};

    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_no_regular_file_is_never_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("victim"), "as it was").unwrap();
        std::os::unix::fs::symlink("victim", at("link")).unwrap();
        std::os::unix::fs::symlink("nowhere", at("dangling")).unwrap();
        fs::create_dir(at("directory")).unwrap();
        rustix::fs::mknodat(CWD, at("fifo"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
        let before = names(dir.path());
        for name in ["link", "dangling", "directory", "fifo"] {
            assert!(write(&at(name), b"new", Mode::AsBefore).is_err(), "{name}");
        }
        let begun = WholeFile::begin(&at("late"), Mode::AsBefore).unwrap();
        std::os::unix::fs::symlink("victim", at("late")).unwrap();
        assert!(begun.publish().is_err());
        fs::remove_file(at("late")).unwrap();
        assert_eq!(names(dir.path()), before);
        assert_eq!(fs::read(at("victim")).unwrap(), b"as it was");
        for device in ["/dev/full", "/dev/null"] {
            assert!(WholeFile::begin(Path::new(device), Mode::AsBefore).is_err());
            assert!(fs::metadata(device).unwrap().file_type().is_char_device());
        }
    }

    #[test]
    fn a_file_is_there_whole_or_not_at_all_with_the_mode_that_it_had() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let mut begun = WholeFile::begin(&file, Mode::AsBefore).unwrap();
        begun.write_all(b"half").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"old");
        drop(begun);
        assert_eq!(names(dir.path()), ["file"]);
        write(&file, b"new", Mode::AsBefore).unwrap();
        assert_eq!((fs::read(&file).unwrap(), names(dir.path())), (b"new".to_vec(), vec!["file".to_owned()]));
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o640);
        let key = dir.path().join("key");
        write(&key, b"key", Mode::Of(0o600)).unwrap();
        assert_eq!(fs::metadata(&key).unwrap().mode() & 0o777, 0o600);
        assert!(WholeFile::begin(&key, Mode::Of(0o600)).unwrap().publish_new().is_err());
        assert_eq!((fs::read(&key).unwrap(), names(dir.path()).len()), (b"key".to_vec(), 2));
    }

    #[test]
    fn a_name_that_cannot_be_given_is_known_at_the_start() {
        for path in ["/nonexistent/m", "/", "/tmp", "..", ""] {
            assert!(WholeFile::begin(Path::new(path), Mode::AsBefore).is_err(), "{path}");
        }
    }
}
