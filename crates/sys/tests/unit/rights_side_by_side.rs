//! A thread that acts as an account and a process of that account must have the same rights.

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc;

use rustix::fs::{AtFlags, CWD, Dev, FileType, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, XattrFlags};
use rustix::io::Errno;

use super::*;
use crate::condition::unmet;

const USER: u32 = 54_321;
const GROUP: u32 = 65_432;

fn account() -> Account {
    Account { uid: USER, gid: GROUP, groups: vec![GROUP] }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Read,
    Write,
    List,
    MakeWithin,
    KeepMode,
    Chmod(u32),
    ChownToRoot,
    GiveGroup(u32),
    Date,
    Truncate,
    Unlink,
    RemoveDirectory,
    RenameAside,
    LinkAside,
    MakeDevice,
    Attribute(&'static CStr),
}

/// The error number, or 0. Allocates nothing after fork.
fn attempt(path: &CStr, aside: &CStr, act: Act) -> i32 {
    let careful = OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    let open = |flags: OFlags| rustix::fs::openat(CWD, path, flags | careful, Mode::empty()).map(drop);
    let done = match act {
        Act::Read => open(OFlags::RDONLY),
        Act::Write => open(OFlags::WRONLY),
        Act::List => rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | careful, Mode::empty())
            .and_then(|dir| {
                let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
                rustix::fs::RawDir::new(dir, &mut buffer).next().map_or(Ok(()), |entry| entry.map(drop))
            }),
        Act::MakeWithin => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | careful;
            rustix::fs::openat(CWD, path, flags, Mode::RUSR).and_then(|_| rustix::fs::unlink(path))
        }
        Act::KeepMode => {
            rustix::fs::stat(path).and_then(|now| rustix::fs::chmod(path, Mode::from_raw_mode(now.st_mode & 0o7777)))
        }
        Act::Chmod(mode) => rustix::fs::chmod(path, Mode::from_raw_mode(mode)),
        Act::ChownToRoot => rustix::fs::chown(path, Some(Uid::from_raw(0)), None),
        Act::GiveGroup(group) => rustix::fs::chown(path, None, Some(Gid::from_raw(group))),
        Act::Date => {
            let omitted = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
            let times = Timestamps { last_access: omitted, last_modification: Timespec { tv_sec: 1, tv_nsec: 0 } };
            rustix::fs::utimensat(CWD, path, &times, AtFlags::empty())
        }
        Act::Truncate => rustix::fs::openat(CWD, path, OFlags::WRONLY | careful, Mode::empty())
            .and_then(|file| rustix::fs::ftruncate(file, 1)),
        Act::Unlink => rustix::fs::unlink(path),
        Act::RemoveDirectory => rustix::fs::rmdir(path),
        Act::RenameAside => rustix::fs::rename(path, aside),
        Act::LinkAside => rustix::fs::link(path, aside),
        Act::MakeDevice => {
            rustix::fs::mknodat(CWD, path, FileType::CharacterDevice, Mode::RUSR, rustix::fs::makedev(1, 3) as Dev)
        }
        Act::Attribute(name) => rustix::fs::setxattr(path, name, b"x", XattrFlags::empty()),
    };
    done.map_or_else(Errno::raw_os_error, |()| 0)
}

/// Runs `work` in a process of that account, between fork and exec, without allocations or locks.
fn as_a_process(mut work: impl FnMut(&mut dyn FnMut(i32)) + Send + Sync + 'static) -> Vec<i32> {
    let (reads, writes) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let writes = Arc::new(writes);
    let at_child = Arc::clone(&writes);
    let mut command = Command::new("true");
    command.uid(USER).gid(GROUP);
    // SAFETY: system calls and writes to a pipe, which may be made between fork and exec.
    unsafe {
        command.pre_exec(move || {
            work(&mut |number| {
                let _ = rustix::io::write(&*at_child, &number.to_ne_bytes());
            });
            Err(io::Error::from_raw_os_error(libc::ECANCELED))
        });
    }
    let ended = command.spawn().unwrap_err();
    assert_eq!(ended.raw_os_error(), Some(libc::ECANCELED), "{ended}");
    drop((command, writes));
    let mut bytes = Vec::new();
    File::from(reads).read_to_end(&mut bytes).unwrap();
    bytes.chunks_exact(4).map(|number| i32::from_ne_bytes(number.try_into().unwrap())).collect()
}

/// Runs `work` as a daemon's session of that account.
fn as_a_session<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let acts = || {
            act_as(&account()).unwrap();
            work()
        };
        scope.spawn(acts).join().unwrap()
    })
}

fn text(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

fn word(error: i32) -> String {
    if error == 0 { "done".to_owned() } else { format!("{:?}", Errno::from_raw_os_error(error)) }
}

/// Places without side effects: opening a watchdog starts it.
const PLACES: &[&str] = &[
    "/",
    "/etc",
    "/etc/passwd",
    "/etc/shadow",
    "/etc/gshadow",
    "/etc/sudoers",
    "/etc/ssh",
    "/etc/hostname",
    "/etc/ld.so.cache",
    "/etc/cron.d",
    "/root",
    "/root/.ssh",
    "/root/.profile",
    "/home",
    "/boot",
    "/usr/bin/env",
    "/usr/bin/passwd",
    "/usr/lib",
    "/lost+found",
    "/tmp",
    "/var/tmp",
    "/var/log",
    "/var/log/wtmp",
    "/var/log/btmp",
    "/var/spool/cron",
    "/var/lib",
    "/var/cache/ldconfig",
    "/var/mail",
    "/run",
    "/run/lock",
    "/run/user",
    "/run/sshd",
    "/run/utmp",
    "/dev",
    "/dev/shm",
    "/dev/mqueue",
    "/dev/hugepages",
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/mem",
    "/dev/port",
    "/dev/kmsg",
    "/dev/fuse",
    "/dev/kvm",
    "/dev/net/tun",
    "/dev/ptmx",
    "/dev/tty",
    "/dev/tty0",
    "/dev/console",
    "/dev/ttyS0",
    "/dev/vda",
    "/dev/sda",
    "/dev/nvme0n1",
    "/dev/loop0",
    "/dev/loop-control",
    "/dev/mapper/control",
    "/dev/vsock",
    "/dev/userfaultfd",
    "/dev/cpu_dma_latency",
    "/dev/rtc0",
    "/dev/input/event0",
    "/proc",
    "/proc/1",
    "/proc/1/mem",
    "/proc/1/environ",
    "/proc/1/maps",
    "/proc/1/fd",
    "/proc/1/root",
    "/proc/1/cwd/etc/shadow",
    "/proc/1/oom_score_adj",
    "/proc/1/comm",
    "/proc/1/stack",
    "/proc/1/syscall",
    "/proc/1/pagemap",
    "/proc/1/uid_map",
    "/proc/1/io",
    "/proc/1/timerslack_ns",
    "/proc/kcore",
    "/proc/kmsg",
    "/proc/kallsyms",
    "/proc/kpagecount",
    "/proc/slabinfo",
    "/proc/vmallocinfo",
    "/proc/timer_list",
    "/proc/keys",
    "/proc/locks",
    "/proc/mtrr",
    "/proc/sysrq-trigger",
    "/proc/irq/default_smp_affinity",
    "/proc/irq/0/smp_affinity",
    "/proc/bus/pci/devices",
    "/proc/scsi/scsi",
    "/proc/acpi/wakeup",
    "/proc/sys",
    "/proc/sys/kernel",
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/kernel/hotplug",
    "/proc/sys/kernel/poweroff_cmd",
    "/proc/sys/kernel/usermodehelper/bset",
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/domainname",
    "/proc/sys/kernel/randomize_va_space",
    "/proc/sys/kernel/yama/ptrace_scope",
    "/proc/sys/kernel/shmmax",
    "/proc/sys/kernel/msgmax",
    "/proc/sys/kernel/sem",
    "/proc/sys/kernel/ns_last_pid",
    "/proc/sys/kernel/cap_last_cap",
    "/proc/sys/kernel/keys/root_maxkeys",
    "/proc/sys/kernel/pty/max",
    "/proc/sys/kernel/random/uuid",
    "/proc/sys/fs/suid_dumpable",
    "/proc/sys/fs/protected_hardlinks",
    "/proc/sys/fs/protected_symlinks",
    "/proc/sys/fs/mqueue/msg_max",
    "/proc/sys/fs/binfmt_misc/register",
    "/proc/sys/vm/drop_caches",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/mmap_min_addr",
    "/proc/sys/vm/stat_refresh",
    "/proc/sys/user/max_user_namespaces",
    "/proc/sys/net/ipv4/ip_forward",
    "/proc/sys/net/ipv4/ping_group_range",
    "/proc/sys/net/ipv4/tcp_rmem",
    "/proc/sys/net/ipv4/tcp_fastopen_key",
    "/proc/sys/net/ipv4/route/flush",
    "/proc/sys/net/core/rmem_max",
    "/proc/sys/dev/cdrom/info",
    "/sys",
    "/sys/kernel/uevent_helper",
    "/sys/kernel/mm/ksm/run",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/kernel/kexec_loaded",
    "/sys/kernel/notes",
    "/sys/kernel/vmcoreinfo",
    "/sys/kernel/debug",
    "/sys/kernel/tracing",
    "/sys/kernel/tracing/trace_marker",
    "/sys/kernel/security",
    "/sys/kernel/config",
    "/sys/fs/bpf",
    "/sys/fs/pstore",
    "/sys/fs/cgroup",
    "/sys/fs/cgroup/cgroup.procs",
    "/sys/fs/cgroup/pids/tasks",
    "/sys/fs/cgroup/memory/cgroup.event_control",
    "/sys/fs/cgroup/unified/cgroup.procs",
    "/sys/fs/fuse/connections",
    "/sys/fs/selinux/enforce",
    "/sys/firmware/efi/efivars",
    "/sys/power/state",
    "/sys/power/mem_sleep",
    "/sys/bus/pci/rescan",
    "/sys/module/kernel/parameters/panic",
    "/sys/block/vda/queue/scheduler",
    "/sys/class/net/lo/mtu",
    "/sys/devices/system/cpu/online",
    "/sys/devices/system/memory/probe",
];

const ANYWHERE: [Act; 5] = [Act::Read, Act::Write, Act::List, Act::KeepMode, Act::MakeWithin];

#[test]
fn a_session_may_at_each_odd_place_what_a_process_of_its_user_may_and_no_more() {
    if file_user() != 0 {
        return unmet("only root may act as another user");
    }
    let tries: Vec<(&str, Act, CString)> = PLACES
        .iter()
        .flat_map(|place| ANYWHERE.map(|act| (*place, act)))
        .map(|(place, act)| {
            let name = if act == Act::MakeWithin { format!("{place}/.haul-side-by-side") } else { place.to_owned() };
            (place, act, CString::new(name).unwrap())
        })
        .collect();
    let tries = Arc::new(tries);
    let of_child = Arc::clone(&tries);
    let of_process =
        as_a_process(move |tell| of_child.iter().for_each(|(_, act, path)| tell(attempt(path, path, *act))));
    let of_session: Vec<i32> = as_a_session(|| tries.iter().map(|(_, act, path)| attempt(path, path, *act)).collect());
    assert_eq!((of_process.len(), of_session.len()), (tries.len(), tries.len()));
    let differ = |((place, act, _), (session, process)): (&(&str, Act, CString), (&i32, &i32))| {
        let what = || format!("{place} {act:?}: a session {}, a process {}", word(*session), word(*process));
        (session != process).then(what)
    };
    let pairs = of_session.iter().zip(&of_process);
    let differences: Vec<String> = tries.iter().zip(pairs).filter_map(differ).collect();
    assert!(differences.is_empty(), "{differences:#?}");
    let is_there = |error: &&i32| ![Errno::NOENT, Errno::NOTDIR].map(Errno::raw_os_error).contains(error);
    let (there, may) = (of_process.iter().filter(is_there).count(), of_process.iter().filter(|e| **e == 0).count());
    assert!(there > 200 && may > 50 && there - may > 100, "{there} of {} were there, {may} were allowed", tries.len());
}

const WITHIN_A_TREE: [Act; 20] = [
    Act::Read,
    Act::Write,
    Act::List,
    Act::KeepMode,
    Act::Chmod(0o4755),
    Act::Chmod(0o2755),
    Act::ChownToRoot,
    Act::GiveGroup(GROUP),
    Act::GiveGroup(0),
    Act::Date,
    Act::Truncate,
    Act::Unlink,
    Act::RemoveDirectory,
    Act::RenameAside,
    Act::LinkAside,
    Act::MakeWithin,
    Act::MakeDevice,
    Act::Attribute(c"user.haul"),
    Act::Attribute(c"trusted.haul"),
    Act::Attribute(c"security.capability"),
];

const THINGS: [(&str, u32, u32, u32, bool); 14] = [
    ("roots secret", 0, 0, 0o600, false),
    ("roots", 0, 0, 0o644, false),
    ("anybodys", 0, 0, 0o666, false),
    ("of the group", 0, GROUP, 0o660, false),
    ("read by the group", 0, GROUP, 0o640, false),
    ("denied to the group", 0, GROUP, 0o606, false),
    ("own", USER, GROUP, 0o644, false),
    ("own and closed", USER, GROUP, 0o000, false),
    ("own of roots group", USER, 0, 0o2755, false),
    ("a set-user-id program of root", 0, 0, 0o4777, false),
    ("roots directory", 0, 0, 0o755, true),
    ("sticky", 0, 0, 0o1777, true),
    ("a directory of the group", 0, GROUP, 0o2775, true),
    ("own directory", USER, GROUP, 0o700, true),
];
const AROUND: [(&str, u32, u32, u32); 4] =
    [("root", 0, 0, 0o755), ("sticky", 0, 0, 0o1777), ("group", 0, GROUP, 0o2770), ("own", USER, GROUP, 0o755)];

fn plant(top: &Path) -> Vec<(String, Act, CString, CString)> {
    let mut tries = Vec::new();
    let aside = top.join("aside");
    fs::create_dir(&aside).unwrap();
    fs::set_permissions(&aside, fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(top, fs::Permissions::from_mode(0o755)).unwrap();
    for (around, owner, group, mode) in AROUND {
        let parent = top.join(around);
        fs::create_dir(&parent).unwrap();
        for (thing, of, its_group, its_mode, is_dir) in THINGS {
            for act in WITHIN_A_TREE {
                let number = tries.len().to_string();
                let path = parent.join(&number);
                if is_dir {
                    fs::create_dir(&path).unwrap();
                } else {
                    fs::write(&path, "words").unwrap();
                }
                chown(&path, Some(of), Some(its_group)).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(its_mode)).unwrap();
                let path = if matches!(act, Act::MakeWithin | Act::MakeDevice) { path.join("new") } else { path };
                tries.push((format!("{around}/{thing}"), act, text(&path), text(&aside.join(&number))));
            }
        }
        chown(&parent, Some(owner), Some(group)).unwrap();
        fs::set_permissions(&parent, fs::Permissions::from_mode(mode)).unwrap();
    }
    tries
}

#[test]
fn a_session_does_in_a_tree_what_a_process_of_its_user_does_and_leaves_the_same() {
    if file_user() != 0 {
        return unmet("only root may act as another user");
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let [sessions, processes] = ["session", "process"].map(|name| dir.path().join(name));
    let planted = |top: &Path| {
        fs::create_dir(top).unwrap();
        plant(top)
    };
    let (by_session, by_process) = (planted(&sessions), Arc::new(planted(&processes)));
    let of_child = Arc::clone(&by_process);
    let of_process =
        as_a_process(move |tell| of_child.iter().for_each(|(_, act, path, aside)| tell(attempt(path, aside, *act))));
    let of_session: Vec<i32> =
        as_a_session(|| by_session.iter().map(|(_, act, path, aside)| attempt(path, aside, *act)).collect());
    assert_eq!(of_process.len(), of_session.len());
    for ((what, act, path, _), (session, process)) in by_session.iter().zip(of_session.iter().zip(&of_process)) {
        assert_eq!(word(*session), word(*process), "{what} {act:?} {path:?}");
    }
    for (session, process) in listing(&sessions).iter().zip(&listing(&processes)) {
        assert_eq!(session, process);
    }
}

fn listing(top: &Path) -> Vec<(String, u32, u32, u32, u64)> {
    let (mut found, mut left) = (Vec::new(), vec![top.to_owned()]);
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let (path, stat) = {
                let entry = entry.unwrap();
                (entry.path(), entry.metadata().unwrap())
            };
            let name = path.strip_prefix(top).unwrap().to_string_lossy().into_owned();
            let len = if stat.is_dir() { 0 } else { stat.len() };
            found.push((name, stat.uid(), stat.gid(), stat.mode(), len));
            left.extend(stat.is_dir().then_some(path));
        }
    }
    found.sort();
    found
}

fn ids_of_this_thread() -> [String; 2] {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    ["Uid:\t", "Gid:\t"].map(|line| status.lines().find_map(|text| text.strip_prefix(line)).unwrap().replace('\t', " "))
}

#[test]
fn a_session_is_its_user_for_all_that_it_does_and_root_for_all_that_is_done_to_it() {
    if file_user() != 0 {
        return unmet("only root may act as another user");
    }
    let expected = [format!("0 {USER} 0 {USER}"), format!("0 {GROUP} 0 {GROUP}")];
    as_a_session(|| {
        assert_eq!(ids_of_this_thread(), expected);
        std::thread::scope(|scope| assert_eq!(scope.spawn(ids_of_this_thread).join().unwrap(), expected));
        let left = rustix::thread::capabilities(None).unwrap();
        assert!(left.permitted.is_empty() && left.effective.is_empty() && left.inheritable.is_empty());
        // The session needs its files; the user's processes may not see them.
        for path in ["/proc/thread-self/schedstat", "/proc/self/mountinfo", "/proc/locks", "/proc/self/stat"] {
            File::open(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        }
    });
    assert_eq!(ids_of_this_thread(), ["0 0 0 0".to_owned(), "0 0 0 0".to_owned()], "only that thread");
}

const OF_THE_THREAD: [(&str, OFlags); 18] = [
    ("mem", OFlags::RDONLY),
    ("mem", OFlags::RDWR),
    ("environ", OFlags::RDONLY),
    ("auxv", OFlags::RDONLY),
    ("maps", OFlags::RDONLY),
    ("smaps", OFlags::RDONLY),
    ("pagemap", OFlags::RDONLY),
    ("fd", OFlags::RDONLY),
    ("fdinfo", OFlags::RDONLY),
    ("cwd", OFlags::RDONLY),
    ("root", OFlags::RDONLY),
    ("exe", OFlags::RDONLY),
    ("io", OFlags::RDONLY),
    ("stack", OFlags::RDONLY),
    ("syscall", OFlags::RDONLY),
    ("comm", OFlags::WRONLY),
    ("oom_score_adj", OFlags::WRONLY),
    ("clear_refs", OFlags::WRONLY),
];

#[test]
fn no_process_of_its_user_may_signal_a_session_or_debug_it_or_see_its_memory() {
    if file_user() != 0 {
        return unmet("only root may act as another user");
    }
    let (tells, told) = mpsc::channel();
    let (ends, end) = mpsc::channel::<()>();
    let session = std::thread::spawn(move || {
        act_as(&account()).unwrap();
        tells.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        let _ = end.recv();
    });
    let (thread, process) = (told.recv().unwrap(), std::process::id() as i32);
    let files: Vec<(CString, OFlags)> = OF_THE_THREAD
        .iter()
        .map(|(name, flags)| (CString::new(format!("/proc/{process}/task/{thread}/{name}")).unwrap(), *flags))
        .collect();
    let found = as_a_process(move |tell| {
        let error = || io::Error::last_os_error().raw_os_error().unwrap_or(0);
        let mut told = |answer: libc::c_long| tell(if answer == -1 { error() } else { 0 });
        // SAFETY: system calls on numbers and on memory of this function. Signal 0 is none, and what a debugger begins
        // ends with this process.
        unsafe {
            let null = std::ptr::null_mut::<libc::c_void>();
            told(libc::syscall(libc::SYS_kill, process, 0));
            told(libc::syscall(libc::SYS_tkill, thread, 0));
            told(libc::syscall(libc::SYS_tgkill, process, thread, 0));
            told(libc::syscall(libc::SYS_ptrace, PTRACE_SEIZE, thread, null, null));
            told(libc::syscall(libc::SYS_ptrace, PTRACE_ATTACH, thread, null, null));
            let mut word = [0u8; 8];
            let here = libc::iovec { iov_base: word.as_mut_ptr().cast(), iov_len: word.len() };
            told(libc::syscall(libc::SYS_process_vm_readv, thread, &here, ONE, &here, ONE, NONE));
            told(libc::syscall(libc::SYS_process_vm_writev, thread, &here, ONE, &here, ONE, NONE));
            told(libc::syscall(libc::SYS_prlimit64, thread, libc::RLIMIT_NOFILE, null, &mut [0u64; 2]));
            told(libc::syscall(libc::SYS_kcmp, process, thread, NONE, NONE, NONE));
            told(libc::syscall(libc::SYS_ioprio_set, ONE, thread, NONE));
            told(libc::syscall(libc::SYS_migrate_pages, thread, ONE, &1u64, &1u64));
        }
        for (path, flags) in &files {
            let opened = rustix::fs::openat(CWD, path, *flags | OFlags::CLOEXEC, Mode::empty());
            tell(opened.map_or_else(Errno::raw_os_error, |_| 0));
        }
    });
    drop(ends);
    session.join().unwrap();
    assert_eq!(found.len(), SYSTEM_CALLS.len() + OF_THE_THREAD.len());
    let denied = [Errno::PERM, Errno::ACCESS].map(Errno::raw_os_error);
    let names = SYSTEM_CALLS.into_iter().chain(OF_THE_THREAD.map(|(name, _)| name));
    let allowed: Vec<String> = names
        .zip(&found)
        .filter(|(_, error)| !denied.contains(error) && **error != libc::ENOSYS && **error != libc::ENOENT)
        .map(|(name, error)| format!("{name}: {}", word(*error)))
        .collect();
    assert!(allowed.is_empty(), "{allowed:?}");
}

const SYSTEM_CALLS: [&str; 11] = [
    "kill",
    "tkill",
    "tgkill",
    "ptrace (seize)",
    "ptrace (attach)",
    "process_vm_readv",
    "process_vm_writev",
    "prlimit",
    "kcmp",
    "ioprio_set",
    "migrate_pages",
];
/// A register's width, as an argument of a system call has.
const NONE: libc::c_long = 0;
const ONE: libc::c_long = 1;
/// From linux/ptrace.h.
const PTRACE_SEIZE: libc::c_long = 0x4206;
const PTRACE_ATTACH: libc::c_long = 16;

#[test]
fn what_is_open_before_stays_open_to_a_session() {
    if file_user() != 0 {
        return unmet("only root may act as another user");
    }
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("roots"), "words").unwrap();
    fs::set_permissions(dir.path().join("roots"), fs::Permissions::from_mode(0o600)).unwrap();
    let opened = OwnedFd::from(File::open(dir.path().join("roots")).unwrap());
    as_a_session(|| {
        let mut word = [0; 5];
        assert_eq!(rustix::io::pread(opened.as_fd(), &mut word, 0), Ok(5));
        assert!(File::open(dir.path().join("roots")).is_err());
    });
}
