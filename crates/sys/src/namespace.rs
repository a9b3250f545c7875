//! Network namespaces of threads.

use std::io;

use rustix::thread::UnshareFlags;

/// Moves the calling thread into a new network namespace with only a loopback device that is down. Threads that it
/// starts live there too, and so do its children. Needs CAP_SYS_ADMIN. Source: unshare(2).
pub fn new_network() -> io::Result<()> {
    // SAFETY: NEWNET alone leaves memory, descriptors and file system of the process shared as they are.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.map_err(io::Error::from)
}

/// Removes the inheritable rights of a user namespace from the calling thread's future children: a command then has no
/// more rights than its user. Source: capabilities(7), ambient set.
pub fn drop_ambient_capabilities() -> io::Result<()> {
    Ok(rustix::thread::clear_ambient_capability_set()?)
}
