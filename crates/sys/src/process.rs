//! Facts about this process, and its limits.

use std::ffi::CStr;
use std::io;

use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, Signal};

/// Lifts the soft limit on open files to the hard one (`None`: no limit). The usual 1024 are for `select`.
pub fn raise_open_file_limit() -> io::Result<Option<u64>> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return Ok(limit.current);
    }
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    Ok(open_file_limit())
}

/// The most files open at once, if limited.
pub fn open_file_limit() -> Option<u64> {
    rustix::process::getrlimit(Resource::Nofile).current
}

/// The owner of files that this thread makes.
pub fn effective_user() -> u32 {
    crate::rights::file_user()
}

/// Whether this thread may give its files to a group.
pub fn may_give_to_group(gid: u32) -> bool {
    let is_member =
        || rustix::process::getgroups().is_ok_and(|groups| groups.iter().any(|group| group.as_raw() == gid));
    is_root() || crate::rights::file_group() == gid || is_member()
}

/// Whether ownership and privileged attributes can be set.
pub fn is_root() -> bool {
    effective_user() == 0
}

/// Sets this thread's name, and the process's by its first, in `ps` and `top`.
pub fn set_name(name: &CStr) -> io::Result<()> {
    Ok(rustix::thread::set_name(name)?)
}

/// Kills the group of processes that this one leads.
pub fn kill_group(leader: u32) -> io::Result<()> {
    let pid = i32::try_from(leader).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(rustix::process::kill_process_group(pid, Signal::KILL)?)
}

/// Asks a process to end (SIGTERM).
pub fn ask_to_end(process: u32) -> io::Result<()> {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(rustix::process::kill_process(pid, Signal::TERM)?)
}

/// Gives this process its own session, beyond the terminal's closing.
pub fn leave_terminal() -> io::Result<()> {
    match rustix::process::setsid() {
        // A service leads a session already.
        Err(Errno::PERM) if rustix::process::getsid(None)? == rustix::process::getpid() => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Ok(()),
    }
}

/// The bytes of a page of memory.
pub fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// The permission bits that new files lack, from `/proc`: the system call would change every thread's mask for a moment.
pub fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|text| u32::from_str_radix(text.trim(), 8).ok()).unwrap_or(USUAL_UMASK)
}

const USUAL_UMASK: u32 = 0o022;

#[cfg(test)]
mod tests {
    #[test]
    fn a_thread_is_shown_by_its_name() {
        super::set_name(c"haul").unwrap();
        assert_eq!(std::fs::read_to_string("/proc/thread-self/comm").unwrap(), "haul\n");
    }

    #[test]
    fn soft_limit_reaches_the_hard_limit() {
        let raised = super::raise_open_file_limit().unwrap();
        assert_eq!(raised, rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum);
    }

    #[test]
    fn umask_is_a_permission_mask() {
        assert!(super::umask() <= 0o777);
    }
}
