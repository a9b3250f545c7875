//! Opens a typed path, and follows a symbolic link only if nobody else can have planted it.
//!
//! Another user's link could lead a backup in a shared tree to `/etc`. So a link counts if it is root's or ours, or if only
//! root and we may write to its directory. rsync 3.5 has nearly this rule, Linux a part (`fs.protected_symlinks`).

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use haul_sys::{kernel_files, process};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::error::printable;
use crate::kernel_files::KernelFiles;
use crate::meta::{Kind, Stat};

/// Opens `path`, beneath `confine` if given; else from `/` or the current directory.
pub(crate) fn open(confine: Option<BorrowedFd<'_>>, path: &[u8], flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    if path.is_empty() {
        return Err(Errno::NOENT.into());
    }
    let mut walk = Walk::begin(confine, path)?;
    let (mut names, mut links) = (VecDeque::from(names_of(path)), 0);
    while let Some(name) = names.pop_front() {
        let is_last = names.iter().all(|name| name.is_empty());
        // A slash behind the last name asks for a directory.
        let last_flags = if names.is_empty() { flags } else { (flags | OFlags::DIRECTORY) & !OFlags::NOFOLLOW };
        match &name[..] {
            b"" | b"." => continue,
            b".." => {
                walk.up()?;
                continue;
            }
            _ => {}
        }
        // O_DIRECTORY makes the kernel mount an automount.
        match openat(&walk.at, &name, STEP | OFlags::DIRECTORY, Mode::empty()) {
            Ok(_) if is_last => return openat(&walk.at, &name, last_flags | OFlags::NOFOLLOW, mode),
            Ok(next) => walk.down(next),
            Err(error) if error.raw_os_error() != Some(Errno::NOTDIR.raw_os_error()) => {
                // The last name may be made, or not followed: the kernel decides.
                return if is_last { openat(&walk.at, &name, last_flags | OFlags::NOFOLLOW, mode) } else { Err(error) };
            }
            Err(not_directory) => {
                let entry = openat(&walk.at, &name, STEP, Mode::empty())?;
                let stat = Stat::of_fd(&entry)?;
                let is_link = matches!(stat.kind, Kind::Symlink { .. });
                if is_last && (!is_link || last_flags.contains(OFlags::NOFOLLOW)) {
                    return openat(&walk.at, &name, last_flags | OFlags::NOFOLLOW, mode);
                }
                if !is_link {
                    return Err(not_directory);
                }
                links += 1;
                if links > MAX_LINKS {
                    return Err(Errno::LOOP.into());
                }
                judge(&stat, &walk.at, &name)?;
                if kernel_files::kind_of(walk.at.as_fd())? == Some(PROC) {
                    // The kernel's own links, as a pipe's, may have no path.
                    if is_last {
                        return walk.follow(&name, last_flags, mode);
                    }
                    let next = walk.follow(&name, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
                    walk.down(next);
                    continue;
                }
                let target = rustix::fs::readlinkat(&entry, b"".as_slice(), Vec::new())?.into_bytes();
                if target.first() == Some(&b'/') {
                    walk.go_to_top()?;
                }
                for name in names_of(&target).into_iter().rev() {
                    names.push_front(name);
                }
            }
        }
    }
    openat(&walk.at, b".", flags & !OFlags::NOFOLLOW, mode)
}

fn names_of(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|&byte| byte == b'/').map(<[u8]>::to_vec).collect()
}

fn judge(link: &Stat, parent: &OwnedFd, name: &[u8]) -> io::Result<()> {
    let user = process::effective_user();
    let is_trusted = |uid: u32| uid == 0 || uid == user;
    if is_trusted(link.uid) {
        return Ok(());
    }
    let parent = Stat::of_fd(parent)?;
    if is_trusted(parent.uid) && parent.mode & OTHERS_WRITE == 0 {
        return Ok(());
    }
    let (name, owner) = (printable(name), link.uid);
    let why = format!(
        "'{name}' is a symbolic link of another user (number {owner}), who may lead it anywhere: name what it leads to"
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

struct Walk<'a> {
    at: OwnedFd,
    confine: Option<BorrowedFd<'a>>,
    above: Vec<OwnedFd>,
}

impl<'a> Walk<'a> {
    fn begin(confine: Option<BorrowedFd<'a>>, path: &[u8]) -> io::Result<Self> {
        let at = match (confine, path.first()) {
            (Some(_), Some(b'/')) => return Err(Errno::XDEV.into()),
            (Some(root), _) => openat(root, b".", DIRECTORY, Mode::empty())?,
            (None, Some(b'/')) => openat(CWD, b"/", DIRECTORY, Mode::empty())?,
            (None, _) => openat(CWD, b".", DIRECTORY, Mode::empty())?,
        };
        Ok(Self { at, confine, above: Vec::new() })
    }

    fn down(&mut self, next: OwnedFd) {
        let last = std::mem::replace(&mut self.at, next);
        if self.confine.is_some() {
            self.above.push(last);
        }
    }

    fn up(&mut self) -> io::Result<()> {
        self.at = match self.confine {
            Some(_) => self.above.pop().ok_or(Errno::XDEV)?,
            None => openat(&self.at, b"..", DIRECTORY, Mode::empty())?,
        };
        Ok(())
    }

    fn go_to_top(&mut self) -> io::Result<()> {
        if self.confine.is_some() {
            return Err(Errno::XDEV.into());
        }
        self.at = openat(CWD, b"/", DIRECTORY, Mode::empty())?;
        Ok(())
    }

    /// Lets the kernel follow its own link, which may lead anywhere: not if confined.
    fn follow(&self, name: &[u8], flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        KernelFiles::of(self.confine.is_some()).check(&self.at)?;
        openat(&self.at, name, flags, mode)
    }
}

fn openat(at: impl AsFd, name: &[u8], flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC;
    Ok(rustix::io::retry_on_intr(|| rustix::fs::openat(at.as_fd(), name, flags, mode))?)
}

const STEP: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW);
const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

const PROC: &str = "proc";

const OTHERS_WRITE: u32 = 0o022;

/// The kernel's bound in one path (path_resolution(7)).
const MAX_LINKS: u32 = 40;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};
    use std::path::Path;

    use super::*;

    const STRANGER: u32 = 12_345;

    fn opens(path: &Path) -> io::Result<OwnedFd> {
        open(None, path.as_os_str().as_bytes(), OFlags::PATH, Mode::empty())
    }

    #[test]
    fn every_path_without_strangers_is_what_the_kernel_says() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path();
        fs::create_dir_all(top.join("a/b")).unwrap();
        fs::write(top.join("a/file"), "x").unwrap();
        symlink("b/../file", top.join("a/to-file")).unwrap();
        symlink("a/b/", top.join("to-b")).unwrap();
        symlink(top.join("to-b"), top.join("twice")).unwrap();
        symlink("loop", top.join("loop")).unwrap();
        symlink("nowhere", top.join("dangling")).unwrap();
        let root = rustix::fs::open(top, DIRECTORY, Mode::empty()).unwrap();
        for path in [
            "",
            ".",
            "..",
            "a",
            "a/",
            "a/.",
            "a/b/..",
            "a/file",
            "a/file/",
            "a/file/x",
            "a/to-file",
            "a/to-file/",
            "to-b",
            "to-b/",
            "to-b/..",
            "twice",
            "twice/",
            "twice/.",
            "loop",
            "loop/",
            "dangling",
            "dangling/x",
            "nothing",
            "nothing/",
            "nothing/x",
            "a//b///",
        ] {
            for flags in [
                OFlags::PATH,
                OFlags::PATH | OFlags::NOFOLLOW,
                OFlags::PATH | OFlags::DIRECTORY,
                OFlags::RDONLY,
                OFlags::RDONLY | OFlags::DIRECTORY,
            ] {
                let whole = [top.as_os_str().as_bytes(), b"/", path.as_bytes()].concat();
                let ours = open(None, &whole, flags, Mode::empty());
                let kernels = openat(CWD, &whole, flags, Mode::empty());
                let is_beneath = !path.starts_with("..") && path != "twice" && !path.starts_with("twice/");
                let told = |opened: io::Result<OwnedFd>| {
                    opened.and_then(Stat::of_fd).map(|stat| (stat.id, stat.kind)).map_err(|error| error.raw_os_error())
                };
                let kernels = told(kernels);
                assert_eq!(told(ours), kernels, "{path} {flags:?}");
                if is_beneath && !path.is_empty() {
                    let confined = open(Some(root.as_fd()), path.as_bytes(), flags, Mode::empty());
                    assert_eq!(told(confined), kernels, "{path} {flags:?} confined");
                }
            }
        }
        for out in ["..", "a/../..", "twice", "/etc"] {
            let refused = open(Some(root.as_fd()), out.as_bytes(), OFlags::PATH, Mode::empty()).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(Errno::XDEV.raw_os_error()), "{out}");
        }
        assert!(open(None, b"/proc/self/cwd/", DIRECTORY, Mode::empty()).is_ok());
        let (reader, _writer) = std::io::pipe().unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&reader);
        assert!(opens(Path::new(&format!("/dev/fd/{number}"))).is_ok(), "as `<(command)` names a list");
    }

    #[test]
    fn a_link_that_another_user_can_have_planted_leads_nowhere() {
        if !process::is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path();
        fs::create_dir(top.join("secret")).unwrap();
        fs::write(top.join("secret/file"), "x").unwrap();
        for (parent, owner, mode) in [
            ("private", 0, 0o755),
            ("shared", 0, 0o777),
            ("group", 0, 0o775),
            ("tmp", 0, 0o1777),
            ("theirs", STRANGER, 0o755),
        ] {
            let parent = top.join(parent);
            fs::create_dir(&parent).unwrap();
            for (link, by) in [("ours", 0), ("planted", STRANGER)] {
                symlink("../secret", parent.join(link)).unwrap();
                lchown(parent.join(link), Some(by), Some(by)).unwrap();
                // A link of ours leads to the link, too.
                symlink(parent.join(link), parent.join(format!("to-{link}"))).unwrap();
            }
            fs::set_permissions(&parent, fs::Permissions::from_mode(mode)).unwrap();
            lchown(&parent, Some(owner), None).unwrap();
            for beneath in ["", "/", "/file"] {
                let leads = |link: &str| opens(&parent.join(format!("{link}{beneath}")));
                assert!(leads("ours").is_ok() && leads("to-ours").is_ok(), "{parent:?}");
                for link in ["planted", "to-planted"] {
                    let led = leads(link);
                    match led {
                        Ok(_) => assert!(parent.ends_with("private"), "{parent:?}/{link}{beneath}"),
                        Err(error) => {
                            assert!(!parent.ends_with("private"), "{parent:?}: {error}");
                            assert!(error.to_string().contains("another user (number 12345)"), "{error}");
                        }
                    }
                }
            }
        }
    }
}
