//! Reads paths as people type them: relative or absolute, with `~`, through links, or confined.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use haul_sys::beneath::{self, Links};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Context, Result, refusal};
use crate::kernel_files::KernelFiles;
use crate::trusted_path;

pub(crate) struct Typed {
    confine: Option<OwnedFd>,
    home: Option<PathBuf>,
    links: LinksOf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinksOf {
    /// Links of anybody, as in cp and rsync when they read.
    Anybody,
    /// Only links that nobody else can have planted: see [`trusted_path`].
    Trusted,
}

impl Typed {
    pub(crate) fn new(confine: Option<&Path>, home: Option<&Path>) -> Result<Typed> {
        let confine = match confine {
            Some(path) => Some(open_root(path).context("open directory", path.as_os_str().as_bytes())?),
            None => None,
        };
        Ok(Typed { confine, home: home.map(Path::to_path_buf), links: LinksOf::Anybody })
    }

    /// Follows no other user's link, where something is made, changed or taken for a copy.
    pub(crate) fn trusted(self) -> Typed {
        Typed { links: LinksOf::Trusted, ..self }
    }

    pub(crate) fn is_confined(&self) -> bool {
        self.confine.is_some()
    }

    /// The path to open: `~` is replaced, and empty is the starting directory. In a confined tree `/` is its top and `~` a
    /// name.
    pub(crate) fn expand(&self, typed: &[u8]) -> Vec<u8> {
        if self.is_confined() {
            let start = typed.iter().position(|&byte| byte != b'/').unwrap_or(typed.len());
            let rest = &typed[start..];
            return if rest.is_empty() { b".".to_vec() } else { rest.to_vec() };
        }
        match (&self.home, typed) {
            (_, b"") => b".".to_vec(),
            (Some(home), b"~") => [home.as_os_str().as_bytes(), b"/"].concat(),
            (Some(home), [b'~', b'/', ..]) => [home.as_os_str().as_bytes(), &typed[1..]].concat(),
            _ => typed.to_vec(),
        }
    }

    pub(crate) fn open(&self, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
        if self.links == LinksOf::Trusted {
            let opened = trusted_path::open(self.confine.as_ref().map(AsFd::as_fd), path, flags, Mode::empty())?;
            return if self.is_confined() { KernelFiles::Refused.checked(opened) } else { Ok(opened) };
        }
        match &self.confine {
            Some(root) => beneath::open(root.as_fd(), path, flags, Mode::empty(), Links::Within)
                .and_then(|opened| KernelFiles::Refused.checked(opened)),
            None => {
                let flags = flags | OFlags::CLOEXEC;
                Ok(rustix::io::retry_on_intr(|| rustix::fs::openat(CWD, path, flags, Mode::empty()))?)
            }
        }
    }
}

/// A file for haul itself: a list, a log, a manifest.
#[derive(Debug)]
pub struct TypedFile {
    directory: OwnedFd,
    name: Vec<u8>,
}

impl TypedFile {
    /// Opens to read, through no other user's link.
    pub fn read(path: &Path) -> io::Result<File> {
        let path = path.as_os_str().as_bytes();
        trusted_path::open(None, path, OFlags::RDONLY, Mode::empty()).map(File::from)
    }

    /// Opens the file to append, or makes it.
    pub fn append(path: &Path) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
        trusted_path::open(None, path.as_os_str().as_bytes(), flags, Mode::from_raw_mode(0o666)).map(File::from)
    }

    /// Opens the file's directory; the file need not exist.
    pub fn find(path: &Path) -> io::Result<TypedFile> {
        let path = path.as_os_str().as_bytes();
        let (parent, name) = parent_and_name(path);
        let directory = trusted_path::open(None, parent, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        Ok(TypedFile { directory, name: name.to_vec() })
    }

    /// A path through the open directory, while this lives; `None` without `/proc`.
    pub fn path(&self) -> Option<PathBuf> {
        let directory = PathBuf::from(format!("/proc/self/fd/{}", self.directory.as_raw_fd()));
        directory.exists().then(|| directory.join(OsStr::from_bytes(&self.name)))
    }
}

/// Opens a peer's confining directory. The peer gets the error's text.
pub fn open_root(path: &Path) -> io::Result<OwnedFd> {
    let opened = beneath::open_root(path).map_err(|error| match error.raw_os_error() {
        Some(code) if code == Errno::LOOP.raw_os_error() => {
            refusal(io::ErrorKind::PermissionDenied, "a symbolic link is on the way, which none may be")
        }
        _ => error,
    })?;
    KernelFiles::Refused.checked(opened)
}

/// Whether the path can only mean a directory's contents: it ends in `/`, `.` or `..`.
pub(crate) fn means_contents(path: &[u8]) -> bool {
    let last = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    matches!(last, b"" | b"." | b"..")
}

pub(crate) fn parent_and_name(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(0) => (b"/", &path[1..]),
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b".", path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_paths_mean_what_rsync_means() {
        for contents in ["", ".", "..", "/", "a/", "a/.", "a/..", "a//"] {
            assert!(means_contents(contents.as_bytes()), "{contents:?}");
        }
        for entry in ["a", "/a", "a/b", ".a", "a/..."] {
            assert!(!means_contents(entry.as_bytes()), "{entry:?}");
        }
        assert_eq!(parent_and_name(b"/a"), (b"/".as_slice(), b"a".as_slice()));
        assert_eq!(parent_and_name(b"a"), (b".".as_slice(), b"a".as_slice()));
        assert_eq!(parent_and_name(b"x/y/a"), (b"x/y".as_slice(), b"a".as_slice()));
    }

    #[test]
    fn home_is_expanded_only_where_it_is_meant() {
        let typed = Typed::new(None, Some(Path::new("/home/me"))).unwrap();
        assert_eq!(typed.expand(b"~"), b"/home/me/");
        assert_eq!(typed.expand(b"~/x"), b"/home/me/x");
        assert_eq!(typed.expand(b"~x"), b"~x");
        assert_eq!(typed.expand(b"a/~"), b"a/~");
        assert_eq!(typed.expand(b""), b".");
        let dir = tempfile::tempdir().unwrap();
        let confined = Typed::new(Some(dir.path()), Some(Path::new("/home/me"))).unwrap();
        assert_eq!(confined.expand(b"//x/y"), b"x/y");
        assert_eq!(confined.expand(b"/"), b".");
        assert_eq!(confined.expand(b"~"), b"~");
        assert!(confined.open(b"..", OFlags::PATH).is_err());
    }
}
