//! Walks from directory to directory, and judges each, each link and the end through the held descriptor.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{self, Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::not_ours::{Fault, NotOurs, OTHERS_WRITE, Weight};
use crate::{process, rights};

pub(super) struct Walk {
    pub(super) here: OwnedFd,
    /// The path of `here`, which goes through no link.
    shown: PathBuf,
    links: usize,
    pub(super) judges_directories: bool,
    pub(super) makes_file: bool,
    /// Whether others may make names in `here`.
    is_shared: bool,
    /// The faults of the way, for which the end, if any, answers.
    faults: Vec<NotOurs>,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Up,
    Down(OsString),
}

impl Walk {
    pub(super) fn new(here: OwnedFd, shown: PathBuf) -> Self {
        Self {
            here,
            shown,
            links: 0,
            judges_directories: true,
            makes_file: false,
            is_shared: false,
            faults: Vec::new(),
        }
    }

    pub(super) fn from_root(path: &Path) -> io::Result<(Self, Vec<Step>)> {
        let steps = steps(&path::absolute(path)?);
        let mut walk = Self::new(open_root()?, PathBuf::from("/"));
        let root = rustix::fs::fstat(&walk.here)?;
        walk.judge_directory(&root);
        Ok((walk, steps))
    }

    /// Goes to the directory at the end; `made` makes missing ones.
    pub(super) fn directory(&mut self, mut steps: Vec<Step>, made: Option<Mode>) -> io::Result<()> {
        while let Some(step) = steps.pop() {
            match self.step(&step, &mut steps) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let (Step::Down(name), Some(mode)) = (&step, made) else { return Err(error) };
                    // Nothing of ours goes into a stranger's directory.
                    self.verdict()?;
                    match rustix::fs::mkdirat(&self.here, name, mode) {
                        Ok(()) | Err(Errno::EXIST) => self.step(&step, &mut steps)?,
                        Err(error) => return Err(error.into()),
                    }
                }
                result => result?,
            }
        }
        // Others may put files beside ours.
        let stat = rustix::fs::fstat(&self.here)?;
        if self.is_shared {
            self.faults.push(NotOurs { culprit: self.shown.clone(), fault: Fault::Writable { mode: stat.st_mode } });
        }
        self.judge_owner(&self.shown.clone(), &stat, false);
        self.verdict()
    }

    pub(super) fn file(&mut self, mut steps: Vec<Step>, flags: OFlags, weight: Weight) -> io::Result<File> {
        loop {
            let Some(step) = steps.pop() else { return Err(Errno::ISDIR.into()) };
            let name = match step {
                Step::Down(ref name) if steps.is_empty() => name,
                _ => {
                    self.step(&step, &mut steps)?;
                    continue;
                }
            };
            let looked_at = match self.look(name) {
                Err(error) if self.makes_file && error.kind() == io::ErrorKind::NotFound => {
                    self.verdict()?;
                    let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                    let mode = Mode::RUSR | Mode::WUSR;
                    match rustix::io::retry_on_intr(|| rustix::fs::openat(&self.here, name, flags, mode)) {
                        Ok(made) => return Ok(File::from(made)),
                        Err(Errno::EXIST) => self.look(name)?,
                        Err(error) => return Err(error.into()),
                    }
                }
                looked_at => looked_at?,
            };
            let stat = rustix::fs::fstat(&looked_at)?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Symlink => {
                    self.follow(name, &looked_at, &stat, &mut steps)?;
                    continue;
                }
                FileType::RegularFile => {}
                FileType::Directory => return Err(Errno::ISDIR.into()),
                _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
            }
            // This descriptor counts, whatever has the name by now.
            let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            let opened = rustix::io::retry_on_intr(|| rustix::fs::openat(&self.here, name, flags, Mode::empty()));
            let opened = match opened {
                Ok(opened) => opened,
                // An unreadable file is first of all somebody else's.
                Err(error) => {
                    self.judge_file(name, &stat, weight);
                    self.verdict()?;
                    return Err(error.into());
                }
            };
            let stat = rustix::fs::fstat(&opened)?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
            }
            self.judge_file(name, &stat, weight);
            self.verdict()?;
            return Ok(File::from(opened));
        }
    }

    pub(super) fn verdict(&self) -> io::Result<()> {
        match self.faults.first() {
            Some(fault) => Err(io::Error::new(io::ErrorKind::PermissionDenied, fault.clone())),
            None => Ok(()),
        }
    }

    fn step(&mut self, step: &Step, steps: &mut Vec<Step>) -> io::Result<()> {
        let name = match step {
            Step::Down(name) => name.as_os_str(),
            Step::Up => OsStr::new(".."),
        };
        let next = self.look(name)?;
        let stat = rustix::fs::fstat(&next)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => self.follow(name, &next, &stat, steps),
            FileType::Directory => {
                match step {
                    Step::Down(name) => self.shown.push(name),
                    Step::Up => drop(self.shown.pop()),
                }
                self.here = next;
                self.judge_directory(&stat);
                Ok(())
            }
            _ => Err(Errno::NOTDIR.into()),
        }
    }

    /// Opens the entry itself, not through a link; mounts an automount (`O_DIRECTORY`).
    fn look(&self, name: &OsStr) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = |flags| rustix::io::retry_on_intr(|| rustix::fs::openat(&self.here, name, flags, Mode::empty()));
        match open(flags | OFlags::DIRECTORY) {
            Err(Errno::NOTDIR | Errno::LOOP) => Ok(open(flags)?),
            result => Ok(result?),
        }
    }

    fn follow(&mut self, name: &OsStr, link: &OwnedFd, stat: &Stat, steps: &mut Vec<Step>) -> io::Result<()> {
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(Errno::LOOP.into());
        }
        self.judge_owner(&self.shown.join(name), stat, false);
        let target = rustix::fs::readlinkat(link, "", Vec::new())?;
        let target = Path::new(OsStr::from_bytes(target.as_bytes())).to_owned();
        if target.is_absolute() {
            self.here = open_root()?;
            self.shown = PathBuf::from("/");
            self.is_shared = false;
        }
        steps.extend(self::steps(&target));
        Ok(())
    }

    fn judge_directory(&mut self, stat: &Stat) {
        let is_sticky = stat.st_mode & STICKY != 0;
        let others_write = stat.st_mode & OTHERS_WRITE != 0 && !self.is_of_our_group_alone(stat);
        self.is_shared = others_write && is_sticky;
        if self.judges_directories {
            self.judge_owner(&self.shown.clone(), stat, true);
            if others_write && !is_sticky {
                let fault = Fault::Writable { mode: stat.st_mode };
                self.faults.push(NotOurs { culprit: self.shown.clone(), fault });
            }
        }
    }

    fn judge_file(&mut self, name: &OsStr, stat: &Stat, weight: Weight) {
        let (us, path) = (process::effective_user(), self.shown.join(name));
        let is_secret = weight != Weight::Obeyed;
        if weight == Weight::NamedSecret && us == 0 {
            self.faults.retain(|fault| !matches!(fault.fault, Fault::Owner { of, .. } if of == stat.st_uid));
        } else {
            self.judge_owner(&path, stat, false);
        }
        let mut add = |fault| self.faults.push(NotOurs { culprit: path.clone(), fault });
        let mode = stat.st_mode;
        // Root's key may be readable for a service's group (as in PostgreSQL).
        let unwanted = if stat.st_uid == 0 && us != 0 { 0o037 } else { 0o077 };
        if is_secret && mode & unwanted != 0 {
            add(Fault::Readable { mode });
        }
        if self.is_shared && self.judges_directories && stat.st_nlink > 1 {
            add(Fault::Named);
        }
        if !is_secret && mode & OTHERS_WRITE != 0 {
            self.faults.push(NotOurs { culprit: path, fault: Fault::Writable { mode } });
        }
    }

    fn judge_owner(&mut self, path: &Path, stat: &Stat, is_directory: bool) {
        let (of, us) = (stat.st_uid, process::effective_user());
        if of != us && of != 0 && !(is_directory && is_hidden_root(of)) {
            self.faults.push(NotOurs { culprit: path.to_owned(), fault: Fault::Owner { of, us } });
        }
    }

    /// Whether the writing group has our name and no other member (umask 002, not root's), and no access list adds others.
    fn is_of_our_group_alone(&self, stat: &Stat) -> bool {
        let us = process::effective_user();
        let may_be = us != 0 && stat.st_mode & 0o002 == 0 && stat.st_gid == rights::file_group();
        may_be && is_private_group(stat.st_gid, us) && !has_list(self.here.as_fd())
    }
}

fn open_root() -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::io::retry_on_intr(|| rustix::fs::open("/", flags, Mode::empty()))?)
}

fn steps(path: &Path) -> Vec<Step> {
    let step = |component| match component {
        Component::Normal(name) => Some(Step::Down(name.to_owned())),
        Component::ParentDir => Some(Step::Up),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(step).collect()
}

/// Whether a group has the name of the user whose first group it is, and no more members, by `/etc/passwd` and `/etc/group`.
fn is_private_group(gid: u32, uid: u32) -> bool {
    let Some((users, groups)) = short_text("/etc/passwd").zip(short_text("/etc/group")) else { return false };
    is_group_of_user_alone(&users, &groups, gid, uid)
}

fn is_group_of_user_alone(users: &str, groups: &str, gid: u32, uid: u32) -> bool {
    let field = |line: &'_ str, nth| line.split(':').nth(nth).unwrap_or_default().to_owned();
    let has = |line: &str, nth, id: u32| field(line, nth).parse() == Ok(id);
    let Some(group) = groups.lines().find(|line| has(line, 2, gid)) else { return false };
    let (name, members) = (field(group, 0), field(group, 3));
    let is_user = |line: &str| field(line, 0) == name && has(line, 2, uid);
    let mut of_group = users.lines().filter(|line| has(line, 3, gid)).peekable();
    (members.is_empty() || members == name) && of_group.peek().is_some() && of_group.all(is_user)
}

fn short_text(path: &str) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(MAX_ACCOUNTS_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Whether an access control list may say more than the mode.
fn has_list(entry: BorrowedFd<'_>) -> bool {
    let path = format!("/proc/self/fd/{}", entry.as_raw_fd());
    let mut nothing: [u8; 0] = [];
    match rustix::fs::getxattr(path, c"system.posix_acl_access", &mut nothing[..]) {
        Err(Errno::NODATA | Errno::OPNOTSUPP) => false,
        Ok(_) | Err(_) => true,
    }
}

/// Whether root is unknown here (unprivileged container, bubblewrap), and its directories seem this user's: believed only
/// above ours.
fn is_hidden_root(uid: u32) -> bool {
    let text = |path| fs::read_to_string(path).unwrap_or_default();
    if text("/proc/sys/kernel/overflowuid").trim().parse() != Ok(uid) {
        return false;
    }
    let map = text("/proc/self/uid_map");
    let whole = map.split_whitespace().collect::<Vec<_>>() == ["0", "0", "4294967295"];
    !map.is_empty() && !whole
}

/// The number of links that the kernel follows (`path_resolution(7)`).
pub(super) const MAX_LINKS: usize = 40;

/// In such a directory nobody renames what belongs to others.
const STICKY: u32 = 0o1000;

/// 100,000 accounts of usual length.
const MAX_ACCOUNTS_BYTES: u64 = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_counts_as_ours_if_nobody_else_is_in_it() {
        let users = "root:x:0:0::/root:/bin/sh\nann:x:1000:1000:Ann:/home/ann:/bin/sh\nbob:x:1001:1001::/:\n";
        let alone = |users: &str, groups: &str| is_group_of_user_alone(users, groups, 1000, 1000);
        assert!(alone(users, "root:x:0:\nann:x:1000:\n") && alone(users, "ann:x:1000:ann\n"));
        for groups in ["", "ann:x:1000:bob\n", "ann:x:1000:ann,bob\n", "users:x:1000:\n", "ann\n", "ann:x:10:\n"] {
            assert!(!alone(users, groups), "{groups}");
        }
        assert!(!alone(&format!("{users}eve:x:1002:1000::/:\n"), "ann:x:1000:\n"), "her first group");
        assert!(!alone("", "ann:x:1000:\n") && !alone("ann\n", "ann:x:1000:\n"));
    }
}
