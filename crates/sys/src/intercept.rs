//! Intercepts system calls, for tests of failing disks (`seccomp_unotify(2)`, Linux 5.5).
//!
//! A thread puts itself under watch. Then each named call stops it, and threads that it starts, until another answers
//! through the [`Watcher`].

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use crate::condition::unmet;
use rustix::event::{PollFd, PollFlags, Timespec};

/// One system call, or several that do the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Call {
    /// `openat`, `openat2`
    Open,
    /// `openat2`, not beside [`Call::Open`]
    OpenBeneath,
    /// `getdents64`
    List,
    /// `newfstatat`, `statx`
    Look,
    /// `pread64`
    Read,
    /// `pwrite64`
    Write,
    /// `fsync`, `fdatasync`
    Flush,
    /// `syncfs`
    FlushFileSystem,
    Rename,
    Unlink,
    MakeDir,
    Link,
    Symlink,
    /// `ftruncate`
    Truncate,
    /// `fallocate`
    Allocate,
    /// `fchmod`
    SetMode,
    /// `utimensat`
    SetTimes,
    /// `flistxattr`
    ListAttributes,
    /// `listxattr`, `llistxattr`
    ListAttributesOfPath,
    /// `fgetxattr`
    GetAttribute,
    /// `getxattr`, `lgetxattr`
    GetAttributeOfPath,
    /// `fsetxattr`
    SetAttribute,
    /// `flock`
    Lock,
    Close,
    /// `io_uring_setup`
    MakeRing,
}

impl Call {
    fn numbers(self) -> &'static [libc::c_long] {
        match self {
            Call::Open => &[libc::SYS_openat, libc::SYS_openat2],
            Call::OpenBeneath => &[libc::SYS_openat2],
            Call::List => &[libc::SYS_getdents64],
            Call::Look => &[libc::SYS_newfstatat, libc::SYS_statx],
            Call::Read => &[libc::SYS_pread64],
            Call::Write => &[libc::SYS_pwrite64],
            Call::Flush => &[libc::SYS_fsync, libc::SYS_fdatasync],
            Call::FlushFileSystem => &[libc::SYS_syncfs],
            Call::Rename => &[SYS_RENAMEAT, libc::SYS_renameat2],
            Call::Unlink => &[libc::SYS_unlinkat],
            Call::MakeDir => &[libc::SYS_mkdirat],
            Call::Link => &[libc::SYS_linkat],
            Call::Symlink => &[libc::SYS_symlinkat],
            Call::Truncate => &[libc::SYS_ftruncate],
            Call::Allocate => &[libc::SYS_fallocate],
            Call::SetMode => &[libc::SYS_fchmod],
            Call::SetTimes => &[libc::SYS_utimensat],
            Call::ListAttributes => &[libc::SYS_flistxattr],
            Call::ListAttributesOfPath => &[libc::SYS_listxattr, libc::SYS_llistxattr],
            Call::GetAttribute => &[libc::SYS_fgetxattr],
            Call::GetAttributeOfPath => &[libc::SYS_getxattr, libc::SYS_lgetxattr],
            Call::SetAttribute => &[libc::SYS_fsetxattr],
            Call::Lock => &[libc::SYS_flock],
            Call::Close => &[libc::SYS_close],
            Call::MakeRing => &[libc::SYS_io_uring_setup],
        }
    }
}

#[cfg(target_arch = "x86_64")]
const SYS_RENAMEAT: libc::c_long = libc::SYS_renameat;

/// From `asm-generic/unistd.h`.
#[cfg(not(target_arch = "x86_64"))]
const SYS_RENAMEAT: libc::c_long = 38;

/// Receives every call that stopped.
#[derive(Debug)]
pub struct Watcher {
    listener: OwnedFd,
    calls: Vec<Call>,
}

/// A thread that waits in a system call for an answer.
#[derive(Debug)]
pub struct Stopped {
    id: u64,
    call: Call,
    number: libc::c_long,
    args: [u64; 6],
}

/// The fate of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The kernel carries the call out.
    Proceed,
    /// The call fails without effect; but a close still closes.
    Fail(i32),
    /// A read or write handles so many bytes.
    Short(usize),
    /// A listing has no types, as on some file systems.
    Untyped,
}

/// Puts the calling thread, and later ones of it, under watch for good. The watcher must answer while they live; without it
/// their calls fail with `ENOSYS`.
///
/// Errors: `ENOSYS`, `EINVAL` before Linux 5.5; `EPERM`, `EACCES` in a sandbox without filters; `EBUSY` if watched already.
pub fn watch_this_thread(calls: &[Call]) -> io::Result<Watcher> {
    // The kernel's condition: no program gains rights under the filter.
    rustix::thread::set_no_new_privs(true)?;
    let mut filter = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, NUMBER_AT)];
    for number in calls.iter().flat_map(|call| call.numbers()) {
        let number = u32::try_from(*number).expect("numbers of system calls are small");
        filter.push(libc::sock_filter {
            jt: 0,
            jf: 1,
            ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number)
        });
        filter.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_USER_NOTIF));
    }
    filter.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).expect("a filter of a few lines"),
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the program and the instructions it points to live until the call returns; the kernel copies them.
    let listener = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        )
    };
    let listener = RawFd::try_from(listener).expect("a descriptor or -1");
    if listener < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call just returned this descriptor, which nobody else owns.
    let listener = unsafe { OwnedFd::from_raw_fd(listener) };
    Ok(Watcher { listener, calls: calls.to_vec() })
}

impl Watcher {
    /// The next call that stopped, or `None` after `limit`.
    pub fn next(&self, limit: Duration) -> io::Result<Option<Stopped>> {
        let limit: Timespec = limit.try_into().map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let mut ready = [PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN)];
        rustix::io::retry_on_intr(|| rustix::event::poll(&mut ready, Some(&limit)))?;
        // After a hang-up no thread is left: asking would never end.
        if !ready[0].revents().contains(PollFlags::IN) {
            return Ok(None);
        }
        // SAFETY: the structure consists of integers, for which zeros are values; the kernel demands zeros.
        let mut notice: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the request fills exactly this structure, which outlives the call.
        let heard = unsafe { libc::ioctl(self.listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut notice) };
        if heard < 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::ENOENT | libc::EINTR) => Ok(None),
                _ => Err(error),
            };
        }
        let number = libc::c_long::from(notice.data.nr);
        let call = self.calls.iter().find(|call| call.numbers().contains(&number));
        let stopped = call.map(|call| Stopped { id: notice.id, call: *call, number, args: notice.data.args });
        // A started program has other addresses.
        let ours = Path::new("/proc/self/task").join(notice.pid.to_string()).exists();
        match stopped {
            Some(stopped) if ours => Ok(Some(stopped)),
            _ => self.reply(notice.id, Ok(None)).map(|()| None),
        }
    }

    /// Lets the thread go on.
    pub fn answer(&self, stopped: Stopped, verdict: Verdict) -> io::Result<()> {
        let result = match (verdict, stopped.call) {
            (Verdict::Fail(code), Call::Close) => {
                // The descriptor is closed whatever a file system answers (`close(2)`).
                // SAFETY: the thread that waits gave the descriptor up with this very call.
                unsafe { libc::close(stopped.fd()) };
                Err(code)
            }
            (Verdict::Fail(code), _) => Err(code),
            (Verdict::Short(bytes), Call::Read | Call::Write) => stopped.carry_out(bytes).map(Some),
            (Verdict::Untyped, Call::List) => stopped.list_without_types().map(Some),
            (Verdict::Proceed | Verdict::Short(_) | Verdict::Untyped, _) => Ok(None),
        };
        self.reply(stopped.id, result)
    }

    /// `Ok(None)`: the kernel carries it out.
    fn reply(&self, id: u64, result: Result<Option<i64>, i32>) -> io::Result<()> {
        let proceed = u32::try_from(libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE).expect("a flag of 32 bits");
        let reply = match result {
            Ok(None) => libc::seccomp_notif_resp { id, val: 0, error: 0, flags: proceed },
            Ok(Some(value)) => libc::seccomp_notif_resp { id, val: value, error: 0, flags: 0 },
            Err(code) => libc::seccomp_notif_resp { id, val: 0, error: -code, flags: 0 },
        };
        // SAFETY: the request reads exactly this structure, which outlives the call.
        let sent = unsafe { libc::ioctl(self.listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw const reply) };
        let error = io::Error::last_os_error();
        if sent < 0 && error.raw_os_error() != Some(libc::ENOENT) { Err(error) } else { Ok(()) }
    }
}

/// Runs `work`, and asks about each of its `calls`. Returns its result and their number; `None`: watching is impossible
/// here.
pub fn under<T: Send + 'static>(
    calls: &[Call],
    mut decide: impl FnMut(usize, &Stopped) -> Verdict,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<(T, usize)> {
    let (sender, receiver) = sync_channel::<io::Result<Watcher>>(1);
    let calls = calls.to_vec();
    let worker = std::thread::spawn(move || {
        let watcher = watch_this_thread(&calls);
        let watched = watcher.is_ok();
        sender.send(watcher).expect("the test waits for it");
        watched.then(work)
    });
    let watcher = match receiver.recv().expect("the thread says it first") {
        Ok(watcher) => watcher,
        Err(error) => {
            unmet(format_args!("this host does not let us watch system calls: {error}"));
            return None;
        }
    };
    let end = Instant::now() + PATIENCE;
    let mut count = 0;
    while !worker.is_finished() {
        assert!(Instant::now() < end, "it hangs after {count} operations");
        if let Some(stopped) = watcher.next(Duration::from_millis(1)).expect("it is our thread") {
            let verdict = decide(count, &stopped);
            count += 1;
            watcher.answer(stopped, verdict).expect("it waits for us");
        }
    }
    worker.join().expect("what it asserts holds").map(|result| (result, count))
}

/// Watched work without a call in this time hangs.
const PATIENCE: Duration = Duration::from_secs(60);

impl Stopped {
    /// The call that stopped.
    pub fn call(&self) -> Call {
        self.call
    }

    /// The file, or a relative path's directory.
    pub fn fd(&self) -> RawFd {
        // The kernel ignores the upper half of the register.
        self.args[0] as u32 as RawFd
    }

    /// The path behind its descriptor, or empty.
    pub fn file(&self) -> PathBuf {
        std::fs::read_link(format!("/proc/self/fd/{}", self.fd())).unwrap_or_default()
    }

    /// The bytes of a read or write; 0 for other calls.
    pub fn bytes(&self) -> usize {
        if matches!(self.call, Call::Read | Call::Write) { self.args[2] as usize } else { 0 }
    }

    /// The offset of a read or write.
    pub fn offset(&self) -> u64 {
        self.args[3]
    }

    /// Whether it opens a file with `O_DIRECT` (`openat`).
    pub fn opens_past_the_cache(&self) -> bool {
        self.number == libc::SYS_openat && self.args[2] & libc::O_DIRECT as u64 != 0
    }

    /// A rename's new name; empty for other calls.
    pub fn new_name(&self) -> Vec<u8> {
        if self.call == Call::Rename { self.path_in(3) } else { Vec::new() }
    }

    /// The call's path, or empty.
    pub fn path(&self) -> Vec<u8> {
        match self.call {
            Call::ListAttributesOfPath | Call::GetAttributeOfPath => self.path_in(0),
            Call::Open | Call::OpenBeneath | Call::Look => self.path_in(1),
            _ => Vec::new(),
        }
    }

    fn path_in(&self, argument: usize) -> Vec<u8> {
        let text = std::ptr::with_exposed_provenance::<libc::c_char>(self.args[argument] as usize);
        // SAFETY: the thread waits inside the call for our answer, so its arguments stay in place. Paths of system
        // calls end with a NUL. The caller is a thread of this process, compiled from safe code, so its memory is
        // valid.
        unsafe { CStr::from_ptr(text) }.to_bytes().to_vec()
    }

    fn carry_out(&self, bytes: usize) -> Result<i64, i32> {
        let (fd, bytes) = (self.fd(), bytes.min(self.bytes()));
        let memory = std::ptr::with_exposed_provenance_mut::<libc::c_void>(self.args[1] as usize);
        let offset = self.args[3] as libc::off_t;
        // SAFETY: the thread waits inside the same call with this memory, which is at least as long. The memory is lent
        // to the call until our answer.
        let done = unsafe {
            if self.number == libc::SYS_pread64 {
                libc::pread(fd, memory, bytes, offset)
            } else {
                libc::pwrite(fd, memory, bytes, offset)
            }
        };
        if done < 0 {
            return Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO));
        }
        Ok(done as i64)
    }

    fn list_without_types(&self) -> Result<i64, i32> {
        let memory = std::ptr::with_exposed_provenance_mut::<u8>(self.args[1] as usize);
        // SAFETY: the thread waits inside the same call with this memory. The memory is lent to the call until our
        // answer.
        let done = unsafe { libc::syscall(libc::SYS_getdents64, self.fd(), memory, self.args[2] as usize) };
        if done < 0 {
            return Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO));
        }
        // SAFETY: the kernel has just written so many bytes there, which nobody else looks at before our answer.
        let mut rest = unsafe { std::slice::from_raw_parts_mut(memory, done as usize) };
        while rest.len() > ENTRY_TYPE_AT {
            rest[ENTRY_TYPE_AT] = libc::DT_UNKNOWN;
            let bytes = u16::from_ne_bytes([rest[ENTRY_BYTES_AT], rest[ENTRY_BYTES_AT + 1]]);
            rest = &mut rest[usize::from(bytes)..];
        }
        Ok(done)
    }
}

/// The offsets of an entry's length and type (`struct linux_dirent64`, getdents(2)).
const ENTRY_BYTES_AT: usize = 16;
const ENTRY_TYPE_AT: usize = 18;

fn statement(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: u16::try_from(code).expect("codes are 16 bits"), jt: 0, jf: 0, k }
}

/// The offset of the call's number (`struct seccomp_data`).
const NUMBER_AT: u32 = std::mem::offset_of!(libc::seccomp_data, nr) as u32;

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::mpsc::channel;

    use super::*;
    use crate::condition::unmet;
    use crate::file;

    #[test]
    fn calls_of_a_watched_thread_fail_shorten_or_proceed_as_told() {
        let scratch = tempfile::tempfile().unwrap();
        let (sender, receiver) = channel();
        let worker = std::thread::spawn(move || {
            sender.send(watch_this_thread(&[Call::Write, Call::Flush])?).unwrap();
            let failed = rustix::io::pwrite(&scratch, b"lost", 0).unwrap_err();
            let written = std::thread::scope(|scope| {
                scope.spawn(|| file::write_all_at(scratch.as_fd(), b"0123456789", 0)).join().unwrap()
            });
            file::flush_all(scratch.as_fd()).unwrap();
            let mut buffer = [0; 16];
            let len = file::read_full_at(scratch.as_fd(), &mut buffer, 0).unwrap();
            Ok::<_, io::Error>((failed, written.is_ok(), buffer[..len].to_vec()))
        });
        let Ok(watcher) = receiver.recv() else {
            unmet(format_args!("this host does not let us watch: {:?}", worker.join().unwrap().unwrap_err()));
            return;
        };
        let mut seen = Vec::new();
        while !worker.is_finished() {
            let Some(stopped) = watcher.next(Duration::from_millis(10)).unwrap() else { continue };
            let verdict = match seen.len() {
                0 => Verdict::Fail(libc::ENOSPC),
                1 => Verdict::Short(3),
                _ => Verdict::Proceed,
            };
            seen.push((stopped.call(), stopped.bytes(), stopped.offset()));
            watcher.answer(stopped, verdict).unwrap();
        }
        let (failed, written, found) = worker.join().unwrap().unwrap();
        assert_eq!((failed, written), (rustix::io::Errno::NOSPC, true));
        assert_eq!(found, b"0123456789");
        assert_eq!(seen[..3], [(Call::Write, 4, 0), (Call::Write, 10, 0), (Call::Write, 7, 3)]);
        assert_eq!((seen.len(), seen[3].0), (4, Call::Flush));
    }
}
