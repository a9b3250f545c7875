//! What the far side of a session gives up before it touches anything for a peer.
//!
//! ```text
//!   process        no new privileges, memory hidden from debuggers and core dumps
//!   session        (daemon) acts as the key's user; nothing but the key's directory, which must not hold the daemon's own files
//!                  (all) no capability beyond copying
//!   role known     nothing but the tree that is read or written
//! ```
//! This holds for the session's thread and those that it starts: lanes, walk, settle. A part that the kernel lacks is left out
//! and reported. Acting as the user must not fail.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use haul_job::{Error, Fault, Subject};
use haul_sys::account;
use haul_sys::rights::{self, Access, Fence};
use haul_wire::control::Notice;

use haul_channel::grant::{Grant, Visit};
use haul_channel::{convert, host_facts};

/// Guards a process that works for others, before it starts a thread. A copy does not fail for want of it.
pub fn guard_process() {
    // A fence hides the quota of a control group.
    host_facts::cpus();
    let _ = rights::forbid_new_privileges();
    hide_memory();
}

/// Hides the memory of a process that holds keys. New privileges stay allowed: helpers of ssh may need theirs.
pub fn hide_memory() {
    let _ = rights::hide_memory();
}

/// Gives up rights on a session's thread, before its task is known.
pub fn enter(grant: &Grant, visit: Option<&dyn Visit>) -> Result<(), Error> {
    // Accounts lie outside of every tree.
    haul_sys::names::start();
    if let Some(name) = &grant.user {
        act_as(name)?;
    }
    // The wanted attributes are not known yet. A failure leaves what was there.
    let _ = rights::keep_file_capabilities(true, true);
    if let Some(root) = &grant.root {
        // As the user: a file server may deny it to root.
        let directory = open_root(root)?;
        visit.map_or(Ok(()), |visit| visit.on_root(directory.as_fd(), rights::file_user()))?;
        let access = if grant.read_only { Access::Read } else { Access::Write };
        if let (Err(why), Some(visit)) = (whole(rights::fence(&[(directory.as_fd(), access)])), visit) {
            visit.on_unfenced(&why);
        }
    }
    Ok(())
}

/// Looks at the key's directory between two jobs.
pub fn look_at_root(grant: &Grant, visit: &dyn Visit) -> Result<(), Error> {
    let Some(root) = &grant.root else { return Ok(()) };
    visit.on_root(open_root(root)?.as_fd(), rights::file_user())
}

fn open_root(root: &Path) -> Result<OwnedFd, Error> {
    haul_store::open_root(root)
        .map_err(|error| Error::new(Fault::FileIo, "the daemon cannot open the directory of this key").because(error))
}

fn whole(fence: std::io::Result<Fence>) -> Result<Fence, String> {
    match fence {
        Ok(Fence::None) => Err("this kernel has no Landlock, or one before Linux 5.19".to_owned()),
        Ok(fence) => Ok(fence),
        Err(error) => Err(convert::bounded(error)),
    }
}

/// A daemon that is not root can act as itself only.
fn act_as(name: &str) -> Result<(), Error> {
    let failed = |why: String| {
        Error::new(Fault::FileIo, "the daemon cannot act as the user of this key")
            .because(why)
            .try_this("ask its operator to look at `user=` beside your key")
    };
    let account = account::named(name).map_err(|error| failed(error.to_string()))?;
    let account = account.ok_or_else(|| failed("there is no such user on its host".into()))?;
    if rights::file_user() == account.uid {
        // Root works with what root has, and a daemon's operator is told so.
        let dropped = if account.uid == 0 { Ok(()) } else { rights::drop_capabilities() };
        return dropped.map_err(|error| failed(error.to_string()));
    }
    rights::act_as(&account).map_err(|error| failed(error.to_string()))
}

/// Lets a session's thread follow links out of its tree. Returns what to tell.
pub fn follow_links(attributes: bool, devices: bool) -> Notice {
    let _ = rights::keep_file_capabilities(attributes, devices);
    let why = "--keep-dirlinks follows links that may lead out of the tree".to_owned();
    convert::chose(Subject::Rights, "those of the account", why)
}

/// Fences a session's thread within its trees. Returns what to tell.
pub fn stay_within(trees: &[(BorrowedFd<'_>, Access)], attributes: bool, devices: bool) -> Notice {
    let _ = rights::keep_file_capabilities(attributes, devices);
    let (choice, reason) = match whole(rights::fence(trees)) {
        Ok(Fence::Whole) => ("nothing outside of the tree", "Landlock".to_owned()),
        Ok(_) => ("nothing outside of the tree, as far as this kernel goes", "an older Landlock".to_owned()),
        Err(why) => ("those of the account", why),
    };
    convert::chose(Subject::Rights, choice, reason)
}
