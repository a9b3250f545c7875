//! Network namespaces of threads.

use std::io;

use rustix::thread::UnshareFlags;

/// Moves the calling thread, with later threads and children, into a new network namespace whose loopback device is down.
/// Needs CAP_SYS_ADMIN (unshare(2)).
pub fn new_network() -> io::Result<()> {
    // SAFETY: NEWNET alone leaves memory, descriptors and file system of the process shared as they are.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.map_err(io::Error::from)
}

/// Takes a user namespace's inheritable rights from this thread's later children (capabilities(7), ambient set).
pub fn drop_ambient_capabilities() -> io::Result<()> {
    Ok(rustix::thread::clear_ambient_capability_set()?)
}
