//! Opens paths beneath an open directory without ever leaving it.
//!
//! `openat2` walks in the kernel: nobody can swap a directory for a link in between. Without it (before 5.6, some container
//! filters) we open one component after the other, no links.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;

/// How symbolic links on the way are treated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Links {
    /// A link fails the open: `ELOOP` (`ENOTDIR` without `openat2`).
    Refused,
    /// Links are followed beneath the root, else `EXDEV`.
    Within,
}

/// Opens `path` beneath `root`. With [`Links::Refused`] long paths are walked in pieces.
pub fn open(root: BorrowedFd<'_>, path: &[u8], flags: OFlags, mode: Mode, links: Links) -> io::Result<OwnedFd> {
    open_long(root, path, flags, mode, Way { links, one_mount: false })
}

/// [`open`] without links; `EXDEV` if anything is mounted there, even a bind mount.
pub fn open_on_one_mount(root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    open_long(root, path, flags, Mode::empty(), Way { links: Links::Refused, one_mount: true })
}

#[derive(Clone, Copy)]
struct Way {
    links: Links,
    one_mount: bool,
}

fn open_long(root: BorrowedFd<'_>, path: &[u8], flags: OFlags, mode: Mode, way: Way) -> io::Result<OwnedFd> {
    if path.first() == Some(&b'/') {
        return Err(Errno::XDEV.into());
    }
    let flags = flags | OFlags::CLOEXEC;
    let mut held: Option<OwnedFd> = None;
    let mut rest = path;
    while way.links == Links::Refused && rest.len() > PIECE_BYTES {
        let Some(cut) = rest[..PIECE_BYTES].iter().rposition(|&byte| byte == b'/') else { break };
        let piece = &rest[..cut];
        rest = &rest[cut + 1..];
        if piece.is_empty() {
            continue;
        }
        // Each piece starts anew: a `..` at its start would leave the root unseen.
        if has_parent_component(piece) || has_parent_component(rest) {
            return Err(Errno::XDEV.into());
        }
        let from = held.as_ref().map_or(root, |fd| fd.as_fd());
        let next = open_piece(from, piece, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty(), way)?;
        held = Some(next);
    }
    let rest = if rest.is_empty() { b".".as_slice() } else { rest };
    Ok(open_piece(held.as_ref().map_or(root, |fd| fd.as_fd()), rest, flags, mode, way)?)
}

/// Opens `path` beneath `root`, without links, from memory alone. `None`: only [`open`] can decide, as without
/// `RESOLVE_CACHED` (Linux 5.12), or on another file system, which may ask a server.
pub fn open_cached(root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> io::Result<Option<OwnedFd>> {
    if path.len() > PIECE_BYTES || path.first() == Some(&b'/') || OPENAT2_MISSING.load(Ordering::Relaxed) {
        return Ok(None);
    }
    let path = if path.is_empty() { b".".as_slice() } else { path };
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV
        | ResolveFlags::CACHED;
    match rustix::fs::openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
        Ok(opened) => Ok(Some(opened)),
        Err(Errno::AGAIN | Errno::INTR | Errno::INVAL | Errno::NOSYS | Errno::PERM | Errno::XDEV) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Opens a directory by its full path. Links fail (`ELOOP`, `ENOTDIR`): other users could lead the path elsewhere.
pub fn open_root(path: &Path) -> io::Result<OwnedFd> {
    let path = path.as_os_str().as_bytes();
    let start = path.iter().position(|&byte| byte != b'/').filter(|&start| start > 0);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = rustix::io::retry_on_intr(|| rustix::fs::open("/", flags, Mode::empty()))?;
    match start {
        Some(start) => open(top.as_fd(), &path[start..], flags, Mode::empty(), Links::Refused),
        None if path.first() == Some(&b'/') => Ok(top),
        None => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no full path")),
    }
}

fn open_piece(root: BorrowedFd<'_>, path: &[u8], flags: OFlags, mode: Mode, way: Way) -> rustix::io::Result<OwnedFd> {
    if OPENAT2_MISSING.load(Ordering::Relaxed) {
        return open_by_component(root, path, flags, mode, way.one_mount);
    }
    let links = match way.links {
        Links::Refused => ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
        Links::Within => ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
    };
    let resolve = if way.one_mount { links | ResolveFlags::NO_XDEV } else { links };
    let mut attempts = 0;
    loop {
        match rustix::fs::openat2(root, path, flags, mode, resolve) {
            Err(Errno::INTR) => {}
            // After a rename the kernel could not prove that we stayed beneath.
            Err(Errno::AGAIN) if attempts < RACE_ATTEMPTS => attempts += 1,
            Err(Errno::NOSYS) => {
                OPENAT2_MISSING.store(true, Ordering::Relaxed);
                return open_by_component(root, path, flags, mode, way.one_mount);
            }
            // A container filter without openat2, or an immutable file: the component walk can tell.
            Err(Errno::PERM) => return open_by_component(root, path, flags, mode, way.one_mount),
            result => return result,
        }
    }
}

/// [`open`] without `openat2`. Following links safely needs the kernel.
fn open_by_component(
    root: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    mode: Mode,
    one_mount: bool,
) -> rustix::io::Result<OwnedFd> {
    if has_parent_component(path) || path.first() == Some(&b'/') {
        return Err(Errno::XDEV);
    }
    let mut held: Option<OwnedFd> = None;
    let mut components = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".").peekable();
    while let Some(component) = components.next() {
        let from = held.as_ref().map_or(root, |fd| fd.as_fd());
        if one_mount && is_mounted(from, component)? {
            return Err(Errno::XDEV);
        }
        if components.peek().is_none() {
            return rustix::io::retry_on_intr(|| rustix::fs::openat(from, component, flags | OFlags::NOFOLLOW, mode));
        }
        let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let next = rustix::io::retry_on_intr(|| rustix::fs::openat(from, component, step, Mode::empty()))?;
        held = Some(next);
    }
    rustix::io::retry_on_intr(|| rustix::fs::openat(root, b".".as_slice(), flags, mode))
}

/// Whether something is mounted at this name (before Linux 5.8: another file system).
pub fn is_mounted(dir: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<bool> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let look = |name: &[u8], flags| rustix::io::retry_on_intr(|| rustix::fs::statx(dir, name, flags, StatxFlags::TYPE));
    let told = look(name, flags)?;
    if told.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
        return Ok(told.stx_attributes.contains(StatxAttributes::MOUNT_ROOT));
    }
    let own = look(b"", AtFlags::EMPTY_PATH)?;
    Ok((own.stx_dev_major, own.stx_dev_minor) != (told.stx_dev_major, told.stx_dev_minor))
}

fn has_parent_component(path: &[u8]) -> bool {
    path.split(|&byte| byte == b'/').any(|component| component == b"..")
}

static OPENAT2_MISSING: AtomicBool = AtomicBool::new(false);

/// PATH_MAX is 4096 with its NUL; the rest is room for the longest name.
const PIECE_BYTES: usize = 3840;

/// The kernel gives up in a rename storm; 64 tries are an attack.
const RACE_ATTEMPTS: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    const READ: OFlags = OFlags::RDONLY;

    fn root(path: &std::path::Path) -> OwnedFd {
        rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap()
    }

    type Opener = fn(BorrowedFd<'_>, &[u8]) -> bool;

    fn both_ways() -> [(&'static str, Opener); 2] {
        [
            ("openat2", |root, path| open(root, path, READ, Mode::empty(), Links::Refused).is_ok()),
            ("components", |root, path| open_by_component(root, path, READ, Mode::empty(), false).is_ok()),
        ]
    }

    #[test]
    fn opens_beneath_and_refuses_every_way_out() {
        let dir = tempfile::tempdir().unwrap();
        let inside = dir.path().join("root");
        std::fs::create_dir_all(inside.join("a/b")).unwrap();
        std::fs::write(inside.join("a/b/file"), b"x").unwrap();
        std::fs::write(dir.path().join("secret"), b"x").unwrap();
        symlink("..", inside.join("up")).unwrap();
        symlink("/", inside.join("a/slash")).unwrap();
        symlink("b", inside.join("a/near")).unwrap();
        let root = root(&inside);
        for (way, opens) in both_ways() {
            for path in ["", ".", "a", "a/b/file", "a//b/./file"] {
                assert!(opens(root.as_fd(), path.as_bytes()), "{way} should open {path:?}");
            }
            for path in ["..", "../secret", "/etc/passwd", "up/secret", "a/slash/etc", "a/near", "a/near/file", "up"] {
                assert!(!opens(root.as_fd(), path.as_bytes()), "{way} should refuse {path:?}");
            }
        }
    }

    #[test]
    fn what_the_kernel_remembers_is_opened_without_a_disk_and_never_outside() {
        let dir = tempfile::tempdir().unwrap();
        let inside = dir.path().join("root");
        std::fs::create_dir_all(inside.join("a")).unwrap();
        std::fs::write(inside.join("a/file"), b"x").unwrap();
        symlink("a", inside.join("near")).unwrap();
        let root = root(&inside);
        let opened = |path: &str| open_cached(root.as_fd(), path.as_bytes(), READ);
        assert!(matches!(opened("a/file"), Ok(Some(_)) | Ok(None)));
        for path in ["../root", "near/file", "/etc/passwd", "a/../../x"] {
            assert!(!matches!(opened(path), Ok(Some(_))), "{path}");
        }
    }

    #[test]
    fn follows_links_that_stay_within() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        symlink("../a/b", dir.path().join("a/near")).unwrap();
        symlink("../../..", dir.path().join("a/out")).unwrap();
        let root = root(dir.path());
        assert!(open(root.as_fd(), b"a/near", READ, Mode::empty(), Links::Within).is_ok());
        let out = open(root.as_fd(), b"a/out", READ, Mode::empty(), Links::Within).unwrap_err();
        assert_eq!(out.raw_os_error(), Some(Errno::XDEV.raw_os_error()));
    }

    #[test]
    fn a_root_is_a_directory_and_no_link_leads_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(top.join("a/b")).unwrap();
        std::fs::write(top.join("file"), b"x").unwrap();
        symlink("a", top.join("near")).unwrap();
        for path in [Path::new("/"), Path::new("//"), &top, &top.join("a/b"), &top.join("a//b/")] {
            assert!(open_root(path).is_ok(), "{}", path.display());
        }
        for path in [Path::new(""), Path::new("a"), &top.join("file"), &top.join("near"), &top.join("near/b")] {
            assert!(open_root(path).is_err(), "{}", path.display());
        }
    }

    #[test]
    fn walks_paths_longer_than_the_kernel_takes() {
        let dir = tempfile::tempdir().unwrap();
        let name = vec![b'n'; 200];
        let mut at = root(dir.path());
        let mut path = Vec::new();
        for depth in 0..45 {
            rustix::fs::mkdirat(&at, &name, Mode::from_raw_mode(0o700)).unwrap();
            at = rustix::fs::openat(&at, &name, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
            if depth > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(&name);
        }
        assert!(path.len() > 2 * 4096);
        let root = root(dir.path());
        let found = open(root.as_fd(), &path, READ | OFlags::DIRECTORY, Mode::empty(), Links::Refused).unwrap();
        assert_eq!(rustix::fs::fstat(&found).unwrap().st_ino, rustix::fs::fstat(&at).unwrap().st_ino);
    }
}
