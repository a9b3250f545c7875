//! Gives up rights for good, for a thread or this process: privileges, other users' files, other trees.
//!
//! Rights belong to a thread, and new threads inherit them: a session's thread gives up its own first. Sources:
//! credentials(7), setresuid(2), setgroups(2), capabilities(7), landlock(7).

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus,
};
use rustix::process::{DumpableBehavior, Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::account::Account;

/// Keeps started programs from gaining rights (`PR_SET_NO_NEW_PRIVS`).
pub fn forbid_new_privileges() -> io::Result<()> {
    Ok(rustix::thread::set_no_new_privs(true)?)
}

/// Hides this process's memory from core dumps and debuggers (`PR_SET_DUMPABLE`).
pub fn hide_memory() -> io::Result<()> {
    Ok(rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Makes this thread, and threads that it starts later, act as this account, without capabilities.
///
/// The effective ids, checked for /proc/sys and FUSE mounts, and `fsuid` change. The real and saved ids, checked for signals
/// and debuggers (kill(2), ptrace(2)), stay: else the user's programs could kill us.
pub fn act_as(account: &Account) -> io::Result<()> {
    let groups: Vec<_> = account.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    // The C library's calls would change all threads.
    rustix::thread::set_thread_groups(&groups)?;
    let (uid, gid) = (Uid::from_raw(account.uid), Gid::from_raw(account.gid));
    // The group first: a user may not choose groups. Effective capabilities go with root's number, the others below.
    rustix::thread::set_thread_res_gid(None, gid, None)?;
    rustix::thread::set_thread_res_uid(None, uid, None)?;
    // The change opens the process to core dumps, as `fs.suid_dumpable` says (prctl(2)).
    hide_memory()?;
    drop_capabilities()?;
    let effective = (rustix::process::geteuid(), rustix::process::getegid());
    let of_files = (set_file_user(UNCHANGED), set_file_group(UNCHANGED));
    if effective != (uid, gid) || of_files != (account.uid, account.gid) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(())
}

/// Takes all capabilities from this thread, and later ones of it.
pub fn drop_capabilities() -> io::Result<()> {
    keep_capabilities(CapabilitySet::empty())
}

/// Keeps only capabilities for copying and tuning; `attributes`: for extended attributes that only root sees; `devices`: for
/// making devices.
pub fn keep_file_capabilities(attributes: bool, devices: bool) -> io::Result<()> {
    let mut wanted = CapabilitySet::CHOWN
        | CapabilitySet::DAC_OVERRIDE
        | CapabilitySet::DAC_READ_SEARCH
        | CapabilitySet::FOWNER
        | CapabilitySet::FSETID
        | CapabilitySet::SETFCAP
        | CapabilitySet::SYS_RESOURCE
        | CapabilitySet::NET_ADMIN;
    if attributes {
        wanted |= CapabilitySet::SYS_ADMIN;
    }
    if devices {
        wanted |= CapabilitySet::MKNOD;
    }
    keep_capabilities(wanted)
}

fn keep_capabilities(wanted: CapabilitySet) -> io::Result<()> {
    let now = rustix::thread::capabilities(None)?;
    let kept = CapabilitySets {
        effective: now.effective & wanted,
        permitted: now.permitted & wanted,
        inheritable: CapabilitySet::empty(),
    };
    Ok(rustix::thread::set_capabilities(None, kept)?)
}

/// The user as whom this thread works on files.
pub fn file_user() -> u32 {
    set_file_user(UNCHANGED)
}

/// The group of this thread's new files, without set-group-id directories.
pub fn file_group() -> u32 {
    set_file_group(UNCHANGED)
}

/// An invalid id only returns the present one (setfsuid(2)).
const UNCHANGED: u32 = u32::MAX;

fn set_file_user(uid: u32) -> u32 {
    // SAFETY: no memory is passed. The raw system call changes the calling thread alone.
    let before = unsafe { libc::syscall(libc::SYS_setfsuid, libc::c_long::from(uid)) };
    before as u32
}

fn set_file_group(gid: u32) -> u32 {
    // SAFETY: as above.
    let before = unsafe { libc::syscall(libc::SYS_setfsgid, libc::c_long::from(gid)) };
    before as u32
}

/// The rights beneath a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading and listing.
    Read,
    /// Reading, making, changing and removing regular files, directories and links.
    Write,
}

/// The strength of a thread's confinement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// All that haul asked for.
    Whole,
    /// The part that an older kernel has.
    Partly,
    /// No confinement: Landlock is missing, or forbids links between directories (before Linux 5.19).
    None,
}

/// Confines this thread, and later ones of it, to files beneath these directories. The kernel's files about this process,
/// network settings and locks stay readable; open files stay open.
pub fn fence(trees: &[(BorrowedFd<'_>, Access)]) -> io::Result<Fence> {
    let refused = |error: landlock::RulesetError| io::Error::other(error.to_string());
    // Else all linking and renaming between directories is forbidden.
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::Refer)
        .map(|ruleset| ruleset.set_compatibility(CompatLevel::BestEffort));
    let Ok(ruleset) = ruleset else { return Ok(Fence::None) };
    let mut ruleset = ruleset.handle_access(AccessFs::from_all(KNOWN)).and_then(Ruleset::create).map_err(refused)?;
    for (directory, access) in trees {
        ruleset = ruleset.add_rule(PathBeneath::new(directory.as_fd(), rights(*access))).map_err(refused)?;
    }
    let told = TOLD_BY_THE_KERNEL.map(|directory| (directory, rights(Access::Read)));
    for (place, access) in told.into_iter().chain([(LOCKS, AccessFs::ReadFile.into())]) {
        // A missing or hidden place needs no rule.
        if let Ok(place) = PathFd::new(place) {
            ruleset = ruleset.add_rule(PathBeneath::new(place, access)).map_err(refused)?;
        }
    }
    let status = ruleset.restrict_self().map_err(refused)?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => Fence::Whole,
        RulesetStatus::PartiallyEnforced => Fence::Partly,
        RulesetStatus::NotEnforced => Fence::None,
    })
}

fn rights(access: Access) -> BitFlags<AccessFs> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    match access {
        Access::Read => read,
        Access::Write => {
            read | AccessFs::WriteFile
                | AccessFs::Truncate
                | AccessFs::MakeReg
                | AccessFs::MakeDir
                | AccessFs::MakeSym
                | AccessFs::MakeFifo
                | AccessFs::MakeSock
                // These need a capability, for requested devices only.
                | AccessFs::MakeChar
                | AccessFs::MakeBlock
                | AccessFs::RemoveFile
                | AccessFs::RemoveDir
                | AccessFs::Refer
        }
    }
}

/// All that Landlock can forbid up to this version.
const KNOWN: ABI = ABI::V5;

/// Times, limits and descriptors of this process; limits of its connections.
const TOLD_BY_THE_KERNEL: [&str; 2] = ["/proc/self", "/proc/sys/net"];

/// Names a wanted file's writer, for error messages.
const LOCKS: &str = "/proc/locks";

#[cfg(test)]
#[path = "../tests/unit/rights_side_by_side.rs"]
mod side_by_side;

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::sync::Arc;

    use super::*;
    use crate::condition::unmet;
    use crate::direct::DirectSource;
    use crate::file::try_lock;

    /// Runs in a thread that loses its rights for good.
    fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| scope.spawn(work).join().unwrap())
    }

    #[test]
    fn a_fenced_thread_stays_in_its_trees_and_so_do_those_that_it_starts() {
        let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(outside.path().join("secret"), "x").unwrap();
        fs::create_dir(inside.path().join("sub")).unwrap();
        let done = apart(|| {
            let tree = File::open(inside.path()).unwrap();
            if fence(&[(tree.as_fd(), Access::Write)]).unwrap() == Fence::None {
                return false;
            }
            apart(|| {
                let denied = |result: io::Result<()>| {
                    assert_eq!(result.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
                };
                denied(fs::read(outside.path().join("secret")).map(drop));
                denied(fs::write(outside.path().join("new"), "x"));
                denied(fs::remove_file(outside.path().join("secret")));
                denied(File::open("/etc/passwd").map(drop));
                fs::write(inside.path().join("new"), "x").unwrap();
                fs::hard_link(inside.path().join("new"), inside.path().join("sub/second")).unwrap();
                fs::rename(inside.path().join("new"), inside.path().join("sub/third")).unwrap();
                std::os::unix::fs::symlink("a", inside.path().join("link")).unwrap();
                fs::remove_dir_all(inside.path().join("sub")).unwrap();
                fs::read_to_string("/proc/thread-self/schedstat").map(drop).unwrap();
                let held = File::create(inside.path().join("held")).unwrap();
                assert!(try_lock(held.as_fd()).unwrap());
                let told = fs::read_to_string(LOCKS).unwrap();
                assert!(told.contains(&format!(":{} ", held.metadata().unwrap().ino())), "{told}");
            });
            true
        });
        if !done {
            unmet("this kernel has no Landlock that would do");
        }
        fs::read(outside.path().join("secret")).unwrap();
    }

    #[test]
    fn a_tree_to_be_read_is_not_written() {
        let inside = tempfile::tempdir().unwrap();
        fs::write(inside.path().join("file"), "x").unwrap();
        apart(|| {
            let tree = File::open(inside.path()).unwrap();
            if fence(&[(tree.as_fd(), Access::Read)]).unwrap() == Fence::None {
                return unmet("this kernel has no Landlock that would do");
            }
            assert_eq!(fs::read(inside.path().join("file")).unwrap(), b"x");
            assert!(fs::write(inside.path().join("file"), "y").is_err());
            assert!(fs::remove_file(inside.path().join("file")).is_err());
            let file = Arc::new(OwnedFd::from(File::open(inside.path().join("file")).unwrap()));
            if let Err(error) = DirectSource::of(&file) {
                assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{error}");
            }
        });
    }

    #[test]
    fn a_thread_that_acts_as_an_account_makes_its_files_and_reads_no_others() {
        if file_user() != 0 {
            return unmet("only root may act as another user");
        }
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        fs::write(dir.path().join("roots"), "x").unwrap();
        fs::set_permissions(dir.path().join("roots"), fs::Permissions::from_mode(0o600)).unwrap();
        let account = Account { uid: 12_345, gid: 23_456, groups: vec![23_456] };
        apart(|| {
            act_as(&account).unwrap();
            assert_eq!(file_user(), 12_345);
            apart(|| {
                fs::write(dir.path().join("own"), "x").unwrap();
                let denied = fs::read(dir.path().join("roots")).unwrap_err();
                assert_eq!(denied.kind(), io::ErrorKind::PermissionDenied);
                assert!(std::os::unix::fs::chown(dir.path().join("own"), Some(0), None).is_err());
                assert!(rustix::thread::capabilities(None).unwrap().permitted.is_empty());
            });
        });
        let own = fs::metadata(dir.path().join("own")).unwrap();
        assert_eq!((own.uid(), own.gid()), (12_345, 23_456));
        assert_eq!(file_user(), 0, "only that thread");
        fs::read(dir.path().join("roots")).unwrap();
    }

    #[test]
    fn a_thread_that_acts_as_an_account_has_its_groups_and_none_of_those_that_it_had() {
        if file_user() != 0 {
            return unmet("only root may act as another user");
        }
        let (ours, theirs) = (34_567, 45_678);
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let file_of = |group: u32| {
            let file = dir.path().join(group.to_string());
            fs::write(&file, "x").unwrap();
            std::os::unix::fs::chown(&file, Some(0), Some(group)).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
            file
        };
        let (of_ours, of_theirs) = (file_of(ours), file_of(theirs));
        apart(|| {
            rustix::thread::set_thread_groups(&[Gid::from_raw(ours)]).unwrap();
            act_as(&Account { uid: 12_345, gid: 23_456, groups: vec![23_456, theirs] }).unwrap();
            assert_eq!(fs::read(&of_ours).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
            assert_eq!(fs::read(&of_theirs).unwrap(), b"x");
        });
    }

    #[test]
    fn what_copying_needs_no_capability_for_is_given_up() {
        apart(|| {
            keep_file_capabilities(false, false).unwrap();
            let left = rustix::thread::capabilities(None).unwrap();
            let gone = CapabilitySet::SYS_ADMIN | CapabilitySet::SYS_PTRACE | CapabilitySet::SETUID;
            assert!((left.permitted & gone).is_empty() && (left.effective & gone).is_empty());
        });
    }
}
