//! A directory whose content readers get by path, for example over the web.
//!
//! The kernel resolves paths beneath the open directory without links. Links are first resolved here; one out of the
//! directory leads nowhere. Only regular files and directories are opened, and none of the kernel's own.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use haul_sys::beneath::{self, Links};
use haul_sys::file_system::is_of_this_host;
use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags, RawDir, SeekFrom};
use rustix::io::Errno;

use crate::kernel_files::KernelFiles;
use crate::limits::LISTING_BUFFER_BYTES;
use crate::local_file::LocalFile;
use crate::meta::{Kind, Stat};
use crate::name::is_draft_name;
use crate::regular_file::READ_FLAGS;

/// A directory that readers see.
#[derive(Debug)]
pub struct Published {
    root: OwnedFd,
    /// The full path: absolute links may name it.
    root_path: Vec<u8>,
    device: u64,
    /// Whether calls may ask a server.
    is_remote: bool,
    only_for_all: bool,
    hidden: Vec<PathBuf>,
}

/// Whether a call may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// The call waits for no disk or server: data not in memory, and on file systems that may ask a server, gives
    /// `WouldBlock`.
    None,
    /// The call may wait.
    ForDisk,
}

/// The entry that a path leads to.
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
    hidden: Vec<Vec<u8>>,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundName {
    /// The name's bytes.
    pub name: Vec<u8>,
    /// The metadata; links are not followed.
    pub stat: Stat,
}

impl Published {
    /// Opens the directory by its full path, without following links.
    pub fn open(path: &Path) -> io::Result<Published> {
        let root = KernelFiles::Refused.checked(beneath::open_root(path)?)?;
        let device = Stat::of_fd(&root)?.id.dev;
        let root_path = path.as_os_str().as_bytes().to_vec();
        let is_remote = !is_of_this_host(root.as_fd());
        Ok(Published { root, root_path, device, is_remote, only_for_all: false, hidden: Vec::new() })
    }

    /// Shows only what every user may read: root may read more, but readers are strangers.
    #[must_use]
    pub fn only_for_all(self) -> Self {
        Self { only_for_all: true, ..self }
    }

    /// Hides these entries, by full paths without links.
    #[must_use]
    pub fn hiding(self, hidden: Vec<PathBuf>) -> Self {
        Self { hidden, ..self }
    }

    /// Opens a file or directory beneath; the empty path is this one.
    pub fn find(&self, path: &[u8], patience: Patience) -> io::Result<Opened> {
        // A file being written has no name for readers yet.
        if path.split(|byte| *byte == b'/').any(is_draft_name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let opened = self.open_beneath(path, READ_FLAGS, patience)?;
        let hidden = self.hidden_in(&opened)?;
        let stat = Stat::of_fd(&opened)?;
        if self.only_for_all {
            self.check_all_may_read(path, &stat, patience)?;
        }
        let mut is_remote = self.is_remote;
        if stat.id.dev != self.device {
            KernelFiles::Refused.check(&opened)?;
            is_remote = !is_of_this_host(opened.as_fd());
        }
        match stat.kind {
            Kind::File => Ok(Opened::File(LocalFile::of_regular(opened).remote(is_remote), stat)),
            Kind::Directory => Ok(Opened::Directory(OpenDirectory { fd: opened, stat, hidden })),
            Kind::Symlink { .. } | Kind::Special => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }

    /// Resolves links. One out of the directory fails with `EXDEV`; one that changes meanwhile fails in [`Published::find`].
    pub fn without_links(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        let mut done: Vec<u8> = Vec::with_capacity(path.len());
        let mut to_come: Vec<Vec<u8>> = components(path).rev().map(<[u8]>::to_vec).collect();
        let mut followed = 0;
        while let Some(component) = to_come.pop() {
            let end = done.len();
            if component == b".." {
                // The path so far has no links: `..` removes its last name.
                if end == 0 {
                    return Err(Errno::XDEV.into());
                }
                done.truncate(done.iter().rposition(|byte| *byte == b'/').unwrap_or(0));
                continue;
            }
            if end > 0 {
                done.push(b'/');
            }
            done.extend_from_slice(&component);
            let found =
                self.open_beneath(&done, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Patience::ForDisk)?;
            let stat = Stat::of_fd(&found)?;
            match stat.kind {
                Kind::Symlink { .. } => {
                    followed += 1;
                    if followed > MOST_LINKS {
                        return Err(Errno::LOOP.into());
                    }
                    let target = rustix::fs::readlinkat(&found, c"", Vec::new())?.into_bytes();
                    done.truncate(end);
                    let beneath: &[u8] = match target.first() {
                        Some(b'/') => {
                            done.clear();
                            self.beneath_root(&target).ok_or(Errno::XDEV)?
                        }
                        _ => &target,
                    };
                    to_come.extend(components(beneath).rev().map(<[u8]>::to_vec));
                }
                // `find` judges the path's end, and the names that remain.
                Kind::Directory if self.only_for_all && !Mode::from_raw_mode(stat.mode).contains(Mode::XOTH) => {
                    if !to_come.is_empty() {
                        return Err(io::ErrorKind::PermissionDenied.into());
                    }
                }
                Kind::File | Kind::Special if !to_come.is_empty() => return Err(Errno::NOTDIR.into()),
                Kind::Directory | Kind::File | Kind::Special => {}
            }
        }
        Ok(done)
    }

    fn beneath_root<'a>(&self, absolute: &'a [u8]) -> Option<&'a [u8]> {
        let mut rest = absolute;
        for own in components(&self.root_path) {
            rest = &rest[rest.iter().position(|byte| *byte != b'/')?..];
            rest = rest.strip_prefix(own).filter(|rest| rest.is_empty() || rest.starts_with(b"/"))?;
        }
        Some(rest)
    }

    /// Tells what readers may have of a name, a link counting as its target. `at` is the directory's path; `may` says whether this
    /// reader may follow a link there.
    pub fn shown(
        &self,
        directory: &OpenDirectory,
        at: &[u8],
        name: &[u8],
        may: &dyn Fn(&[u8]) -> bool,
    ) -> io::Result<Option<Stat>> {
        let stat = match Stat::of_name(directory.fd.as_fd(), name) {
            Err(Errno::NOENT) => return Ok(None),
            stat => stat?,
        };
        match stat.kind {
            Kind::Special => Ok(None),
            Kind::Symlink { .. } => {
                let path = if at.is_empty() { name.to_vec() } else { [at, b"/", name].concat() };
                let found = self.without_links(&path).and_then(|path| match may(&path) {
                    true => self.find(&path, Patience::ForDisk),
                    false => Err(io::ErrorKind::PermissionDenied.into()),
                });
                Ok(match found {
                    Ok(Opened::File(_, stat)) => Some(stat),
                    Ok(Opened::Directory(directory)) => Some(directory.stat),
                    Err(_) => None,
                })
            }
            Kind::File | Kind::Directory => Ok(self.may_have(directory, name, &stat).then_some(stat)),
        }
    }

    fn may_have(&self, directory: &OpenDirectory, name: &[u8], stat: &Stat) -> bool {
        let is_directory = stat.kind == Kind::Directory;
        if self.only_for_all {
            let for_others = if is_directory { Mode::ROTH | Mode::XOTH } else { Mode::ROTH };
            return Mode::from_raw_mode(stat.mode).contains(for_others);
        }
        // An access list may refuse one account what all others may do.
        let access = if is_directory { Access::READ_OK | Access::EXEC_OK } else { Access::READ_OK };
        let refused = |error| matches!(error, Errno::ACCESS | Errno::PERM);
        !rustix::fs::accessat(&directory.fd, name, access, AtFlags::EACCESS).is_err_and(refused)
    }

    /// The hidden names in the opened directory. Fails if it is hidden itself, however reached.
    fn hidden_in(&self, opened: &OwnedFd) -> io::Result<Vec<Vec<u8>>> {
        if self.hidden.is_empty() {
            return Ok(Vec::new());
        }
        let path = std::fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd()))?;
        if self.hidden.iter().any(|hidden| path.starts_with(hidden)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let below = self.hidden.iter().filter(|hidden| hidden.parent() == Some(&path));
        Ok(below.filter_map(|hidden| Some(hidden.file_name()?.as_encoded_bytes().to_vec())).collect())
    }

    fn open_beneath(&self, path: &[u8], flags: OFlags, patience: Patience) -> io::Result<OwnedFd> {
        match patience {
            Patience::None if self.is_remote => Err(io::ErrorKind::WouldBlock.into()),
            Patience::None => {
                Ok(beneath::open_cached(self.root.as_fd(), path, flags)?.ok_or(io::ErrorKind::WouldBlock)?)
            }
            Patience::ForDisk => beneath::open(self.root.as_fd(), path, flags, Mode::empty(), Links::Refused),
        }
    }

    /// Checks as the kernel would for an unprivileged user: reading at the end, searching above (path_resolution(7)).
    fn check_all_may_read(&self, path: &[u8], found: &Stat, patience: Patience) -> io::Result<()> {
        let refused = || Err(io::ErrorKind::PermissionDenied.into());
        let needed = if found.kind == Kind::Directory { Mode::ROTH | Mode::XOTH } else { Mode::ROTH };
        if !Mode::from_raw_mode(found.mode).contains(needed) {
            return refused();
        }
        let passes = |stat: &Stat| Mode::from_raw_mode(stat.mode).contains(Mode::XOTH);
        // The top's mode may keep all others out.
        if !path.is_empty() && !passes(&Stat::of_fd(&self.root)?) {
            return refused();
        }
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        for end in slashes.filter(|at| *at > 0) {
            let above = self.open_beneath(&path[..end], OFlags::PATH | OFlags::CLOEXEC, patience)?;
            if !passes(&Stat::of_fd(&above)?) {
                return refused();
            }
        }
        Ok(())
    }
}

impl OpenDirectory {
    /// The directory's metadata.
    pub fn stat(&self) -> &Stat {
        &self.stat
    }

    /// Lists at most `most` names with metadata, without vanished ones, and whether there are more. `goes_on` is asked
    /// before each; its error ends the call.
    pub fn names(
        &self,
        most: usize,
        goes_on: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<(Vec<FoundName>, bool)> {
        let (mut found, mut is_cut) = (Vec::new(), false);
        self.each_name(&mut |name, _| {
            goes_on()?;
            is_cut = found.len() == most;
            match Stat::of_name(self.fd.as_fd(), name) {
                _ if is_cut => return Ok(false),
                Ok(stat) => found.push(FoundName { name: name.to_vec(), stat }),
                Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
            Ok(true)
        })?;
        Ok((found, is_cut))
    }

    /// Passes names with kinds, if told, until `take` wants no more.
    pub fn each_name(&self, take: &mut TakeName<'_>) -> io::Result<()> {
        rustix::fs::seek(&self.fd, SeekFrom::Start(0))?;
        let mut buffer = vec![MaybeUninit::uninit(); LISTING_BUFFER_BYTES];
        let mut listing = RawDir::new(&self.fd, &mut buffer);
        while let Some(entry) = listing.next() {
            let entry = match entry {
                Err(Errno::INTR) => continue,
                entry => entry?,
            };
            let name = entry.file_name().to_bytes();
            if matches!(name, b"" | b"." | b"..") || name.contains(&b'/') {
                continue;
            }
            if is_draft_name(name) || self.hidden.iter().any(|hidden| hidden == name) {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::RegularFile => Some(NameKind::File),
                FileType::Directory => Some(NameKind::Directory),
                FileType::Symlink | FileType::Unknown => None,
                _ => Some(NameKind::Special),
            };
            if !take(name, kind)? {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Takes a name, and answers whether it wants more.
pub type TakeName<'a> = dyn FnMut(&[u8], Option<NameKind>) -> io::Result<bool> + 'a;

/// A name's kind, as its directory tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A FIFO, a device or a socket.
    Special,
}

fn components(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|component| !matches!(*component, b"" | b"."))
}

/// The links that the kernel follows (path_resolution(7)).
const MOST_LINKS: u32 = 40;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use haul_sys::account::Account;
    use haul_sys::condition::unmet;
    use haul_sys::rights::act_as;

    use super::*;

    #[test]
    fn drafts_and_hidden_files_are_not_there_however_they_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        fs::create_dir_all(top.join("sub/state/deep")).unwrap();
        let part = String::from_utf8(crate::name::part_name(b"file")).unwrap();
        let own = ["sub/list", "sub/state/deep/file", &format!("sub/{part}"), "sub/.file.haul-4711"];
        let shown = ["sub/file", "sub/list2", "list"];
        own.iter().chain(&shown).for_each(|name| fs::write(top.join(name), name).unwrap());
        let published = Published::open(&top).unwrap().hiding(vec![top.join("sub/list"), top.join("sub/state")]);
        let find = |path: &str| published.find(path.as_bytes(), Patience::ForDisk);
        for name in own.iter().chain(&["sub/state", "sub/state/deep"]) {
            assert_eq!(find(name).unwrap_err().kind(), io::ErrorKind::NotFound, "{name}");
        }
        assert!(shown.iter().all(|name| find(name).is_ok()));
        let Ok(Opened::Directory(sub)) = find("sub") else { panic!() };
        let (mut names, _) = sub.names(10, &mut || Ok(())).unwrap();
        names.sort_by(|a, b| a.name.cmp(&b.name));
        let names: Vec<&[u8]> = names.iter().map(|found| found.name.as_slice()).collect();
        assert_eq!(names, [b"file".as_slice(), b"list2"]);
        let all = Published::open(&top).unwrap();
        assert!(
            all.find(b"sub/list", Patience::ForDisk).is_ok() && all.find(own[2].as_bytes(), Patience::ForDisk).is_err()
        );
    }

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
        let (mut names, is_cut) = root.names(10, &mut || Ok(())).unwrap();
        names.sort_by(|a, b| a.name.cmp(&b.name));
        let names: Vec<&[u8]> = names.iter().map(|found| found.name.as_slice()).collect();
        assert_eq!((names, is_cut), (vec![b"fifo".as_slice(), b"near", b"out", b"sub"], false));
        assert!(root.names(3, &mut || Err(io::ErrorKind::BrokenPipe.into())).is_err(), "nobody wants it");
        assert!(root.names(3, &mut || Ok(())).is_ok_and(|(names, is_cut)| names.len() == 3 && is_cut));
        let mode = |path: &str, mode| fs::set_permissions(top.join(path), fs::Permissions::from_mode(mode)).unwrap();
        let for_all = Published::open(&top.join("root")).unwrap().only_for_all();
        let may = |path: &str| for_all.find(path.as_bytes(), Patience::ForDisk).is_ok();
        mode("root", 0o750);
        assert!(["", "sub", "sub/file"].iter().all(|path| !may(path)), "the top keeps others out");
        mode("root", 0o711);
        assert_eq!(["", "sub", "sub/file"].map(may), [false, true, true], "the top can be passed and not listed");
        mode("root", 0o755);
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

    /// The kernel asks the owner's bits first, then the group's.
    #[test]
    fn a_name_is_shown_only_if_this_account_itself_may_have_it() {
        const US: u32 = 4_711;
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        fs::set_permissions(&top, fs::Permissions::from_mode(0o755)).unwrap();
        let names = [
            ("for-all", 0o644, (0, 0), true),
            ("not-for-our-group", 0o604, (0, US), false),
            ("not-for-its-owner", 0o044, (US, 0), false),
            ("for-its-owner", 0o400, (US, 0), true),
            ("not-for-others", 0o640, (0, 0), false),
            ("directory/", 0o755, (0, 0), true),
            ("directory-without-search/", 0o744, (0, 0), false),
            ("directory-not-for-our-group/", 0o705, (0, US), false),
        ];
        for (name, mode, (user, group), _) in names {
            let path = top.join(name);
            if name.ends_with('/') { fs::create_dir(&path) } else { fs::write(&path, name) }.unwrap();
            if chown(&path, Some(user), Some(group)).is_err() {
                return unmet("only root gives files away");
            }
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                act_as(&Account { uid: US, gid: US, groups: vec![US] }).unwrap();
                let published = Published::open(&top).unwrap();
                let Ok(Opened::Directory(directory)) = published.find(b"", Patience::ForDisk) else { panic!() };
                for (name, _, _, is_shown) in names {
                    let name = name.trim_end_matches('/');
                    let shown = published.shown(&directory, b"", name.as_bytes(), &|_| true).unwrap();
                    assert_eq!(shown.is_some(), is_shown, "{name}");
                    let found = published.find(name.as_bytes(), Patience::ForDisk);
                    assert!(found.is_ok() || !is_shown, "{name}");
                }
            });
            reader.join().unwrap();
        });
    }

    #[test]
    fn links_lead_to_what_is_beneath_and_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let root = top.join("root");
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::create_dir_all(root.join("closed/in")).unwrap();
        fs::write(root.join("a/b/file"), b"x").unwrap();
        fs::write(top.join("secret"), b"x").unwrap();
        fs::write(top.join("root2"), b"x").unwrap();
        let root_text = root.to_str().unwrap();
        for (target, name) in [
            ("a", "near"),
            ("b/file", "a/deep"),
            ("../near/deep", "closed/chain"),
            (&*format!("{root_text}/a/./b/"), "absolute"),
            (&*format!("/{root_text}"), "itself"),
            ("loop2", "loop1"),
            ("loop1", "loop2"),
            ("../secret", "out"),
            ("a/../../secret", "out_later"),
            ("../root/a", "out_and_back"),
            ("/etc/passwd", "etc"),
            (&*format!("{root_text}2"), "sibling"),
            (&*format!("{root_text}/../secret"), "absolute_out"),
            ("absent", "dangling"),
        ] {
            symlink(target, root.join(name)).unwrap();
        }
        let published = Published::open(&root).unwrap();
        let leads = |path: &str| published.without_links(path.as_bytes()).map(|path| String::from_utf8(path).unwrap());
        for (path, expected) in [
            ("", ""),
            ("a/b/file", "a/b/file"),
            ("near/b/file", "a/b/file"),
            ("near/deep", "a/b/file"),
            ("closed/chain", "a/b/file"),
            ("absolute/file", "a/b/file"),
            ("itself/itself/near", "a"),
        ] {
            assert_eq!(leads(path).unwrap(), expected, "{path}");
        }
        let fails =
            ["loop1", "out", "out_later", "out_and_back", "etc", "sibling", "absolute_out", "dangling", "a/deep/x"];
        for path in fails {
            assert!(leads(path).is_err(), "{path}");
        }
        let mode = |path: &str, mode| fs::set_permissions(root.join(path), fs::Permissions::from_mode(mode)).unwrap();
        mode("closed", 0o700);
        mode("a/b/file", 0o600);
        let for_all = Published::open(&root).unwrap().only_for_all();
        assert!(for_all.without_links(b"closed/chain").is_err(), "others cannot pass the directory that has the link");
        let shown = |published: &Published| {
            let Ok(Opened::Directory(open)) = published.find(b"", Patience::ForDisk) else { panic!() };
            let mut names = Vec::new();
            open.each_name(&mut |name, _| {
                let stat = published.shown(&open, b"", name, &|_| true)?;
                names.extend(stat.map(|_| String::from_utf8(name.to_vec()).unwrap()));
                Ok(true)
            })
            .unwrap();
            names.sort();
            names.join(" ")
        };
        assert_eq!(shown(&published), "a absolute closed itself near");
        assert_eq!(shown(&for_all), "a absolute itself near");
    }
}
