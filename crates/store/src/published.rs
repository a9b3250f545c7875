//! A directory whose content is shown to readers who name paths: a web service, for example.
//!
//! The kernel resolves each path beneath the open directory and follows no links. What is neither a regular file nor a
//! directory is not opened for anybody, nor is anything of the kernel's own file systems.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use haul_sys::beneath::{self, Links};
use rustix::fs::{Mode, OFlags, RawDir, SeekFrom};

use crate::kernel_files::KernelFiles;
use crate::limits::LISTING_BUFFER_BYTES;
use crate::local_file::LocalFile;
use crate::meta::{Kind, Stat};
use crate::regular_file::READ_FLAGS;

/// The directory.
#[derive(Debug)]
pub struct Published {
    root: OwnedFd,
    device: u64,
    only_for_all: bool,
}

/// How long a call may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// It waits for no disk: what the kernel does not have in memory is `WouldBlock`.
    None,
    /// It waits.
    ForDisk,
}

/// What a path leads to.
#[derive(Debug)]
pub enum Opened {
    /// A regular file.
    File(LocalFile, Stat),
    /// A directory.
    Directory(OpenDirectory),
}

/// A directory that is open for listing.
#[derive(Debug)]
pub struct OpenDirectory {
    fd: OwnedFd,
    stat: Stat,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundName {
    /// Byte for byte.
    pub name: Vec<u8>,
    /// What it is; links are not followed.
    pub stat: Stat,
}

impl Published {
    /// Opens the directory by its full path, without following links.
    pub fn open(path: &Path) -> io::Result<Published> {
        let root = KernelFiles::Refused.checked(beneath::open_root(path)?)?;
        let device = Stat::of_fd(&root)?.id.dev;
        Ok(Published { root, device, only_for_all: false })
    }

    /// Only what every user of this host may read. Root may read more, and no stranger is root.
    #[must_use]
    pub fn only_for_all(self) -> Self {
        Self { only_for_all: true, ..self }
    }

    /// Opens the file or the directory of a path beneath this one. The empty path is this directory.
    pub fn find(&self, path: &[u8], patience: Patience) -> io::Result<Opened> {
        let opened = self.open_beneath(path, READ_FLAGS, patience)?;
        let stat = Stat::of_fd(&opened)?;
        if self.only_for_all {
            self.check_all_may_read(path, &stat, patience)?;
        }
        if stat.id.dev != self.device {
            KernelFiles::Refused.check(&opened)?;
        }
        match stat.kind {
            Kind::File => Ok(Opened::File(LocalFile::of_regular(opened), stat)),
            Kind::Directory => Ok(Opened::Directory(OpenDirectory { fd: opened, stat })),
            Kind::Symlink { .. } | Kind::Special => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }

    fn open_beneath(&self, path: &[u8], flags: OFlags, patience: Patience) -> io::Result<OwnedFd> {
        match patience {
            Patience::None => {
                Ok(beneath::open_cached(self.root.as_fd(), path, flags)?.ok_or(io::ErrorKind::WouldBlock)?)
            }
            Patience::ForDisk => beneath::open(self.root.as_fd(), path, flags, Mode::empty(), Links::Refused),
        }
    }

    /// What the kernel would check for a user without privileges: reading at the end of the path, searching on the way
    /// (path_resolution(7)).
    fn check_all_may_read(&self, path: &[u8], found: &Stat, patience: Patience) -> io::Result<()> {
        let refused = || Err(io::ErrorKind::PermissionDenied.into());
        let needed = if found.kind == Kind::Directory { Mode::ROTH | Mode::XOTH } else { Mode::ROTH };
        if !Mode::from_raw_mode(found.mode).contains(needed) {
            return refused();
        }
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        for end in slashes.filter(|at| *at > 0) {
            let above = Stat::of_fd(&self.open_beneath(&path[..end], OFlags::PATH | OFlags::CLOEXEC, patience)?)?;
            if !Mode::from_raw_mode(above.mode).contains(Mode::XOTH) {
                return refused();
            }
        }
        Ok(())
    }
}

impl OpenDirectory {
    /// Its own metadata.
    pub fn stat(&self) -> &Stat {
        &self.stat
    }

    /// Its names with their metadata, as the file system orders them: the first `most` of them, and whether there are
    /// more. A name that vanishes during the call is left out.
    pub fn names(&self, most: usize) -> io::Result<(Vec<FoundName>, bool)> {
        rustix::fs::seek(&self.fd, SeekFrom::Start(0))?;
        let mut buffer = vec![MaybeUninit::uninit(); LISTING_BUFFER_BYTES];
        let mut listing = RawDir::new(&self.fd, &mut buffer);
        let mut found = Vec::new();
        while let Some(entry) = listing.next() {
            let entry = match entry {
                Err(rustix::io::Errno::INTR) => continue,
                entry => entry?,
            };
            let name = entry.file_name().to_bytes();
            // A broken or hostile file system must not make us leave the directory.
            if matches!(name, b"" | b"." | b"..") || name.contains(&b'/') {
                continue;
            }
            if found.len() == most {
                return Ok((found, true));
            }
            match Stat::of_name(self.fd.as_fd(), name) {
                Ok(stat) => found.push(FoundName { name: name.to_vec(), stat }),
                Err(rustix::io::Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok((found, false))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn readers_reach_files_and_directories_beneath_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        fs::create_dir_all(top.join("root/sub")).unwrap();
        fs::write(top.join("root/sub/file"), b"hello").unwrap();
        fs::write(top.join("secret"), b"x").unwrap();
        symlink("../secret", top.join("root/out")).unwrap();
        symlink("sub", top.join("root/near")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, top.join("root/fifo"), Mode::RUSR | Mode::WUSR).unwrap();
        let published = Published::open(&top.join("root")).unwrap();
        let Ok(Opened::File(file, stat)) = published.find(b"sub/file", Patience::ForDisk) else { panic!() };
        let mut bytes = [0; 8];
        assert_eq!((file.read_at(&mut bytes, 1).unwrap(), stat.size), (4, 5));
        let Ok(Opened::Directory(root)) = published.find(b"", Patience::ForDisk) else { panic!() };
        let (mut names, is_cut) = root.names(10).unwrap();
        names.sort_by(|a, b| a.name.cmp(&b.name));
        let names: Vec<&[u8]> = names.iter().map(|found| found.name.as_slice()).collect();
        assert_eq!((names, is_cut), (vec![b"fifo".as_slice(), b"near", b"out", b"sub"], false));
        assert!(root.names(3).is_ok_and(|(names, is_cut)| names.len() == 3 && is_cut));
        let mode = |path: &str, mode| fs::set_permissions(top.join(path), fs::Permissions::from_mode(mode)).unwrap();
        let for_all = Published::open(&top.join("root")).unwrap().only_for_all();
        let may = |path: &str| for_all.find(path.as_bytes(), Patience::ForDisk).is_ok();
        for (sub, file, is_there) in [
            (0o755, 0o644, (true, true)),
            (0o755, 0o640, (true, false)),
            (0o711, 0o644, (false, true)),
            (0o750, 0o644, (false, false)),
        ] {
            mode("root/sub", sub);
            mode("root/sub/file", file);
            assert_eq!((may("sub"), may("sub/file")), is_there, "{sub:o} {file:o}");
            assert!(published.find(b"sub/file", Patience::ForDisk).is_ok(), "its owner may");
        }
        for path in ["out", "near", "near/file", "../secret", "fifo", "/etc/passwd", "absent"] {
            for patience in [Patience::ForDisk, Patience::None] {
                assert!(published.find(path.as_bytes(), patience).is_err(), "{path}");
            }
        }
    }
}
