//! Describes a peer's rights at a far side, and who watches it there.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Duration;

use haul_job::{Error, Event, Observer};
use haul_net::PublicKey;
use haul_wire::control::Role;

/// The rights of a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// The directory of all paths; `None`: all that the account may.
    pub root: Option<PathBuf>,
    /// Whether only reading is allowed.
    pub read_only: bool,
    /// Whether reading is forbidden.
    pub unreadable: bool,
    /// The network class that narrows the rights.
    pub network: Option<String>,
    /// Whether unencrypted lanes are allowed.
    pub clear: bool,
    /// The account for files; `None`: the daemon's.
    pub user: Option<String>,
    /// The peer's key, for the class policy; `None`: by ssh.
    pub key: Option<PublicKey>,
}

impl Grant {
    /// Names those under the limits.
    pub fn whom(&self) -> String {
        match &self.network {
            Some(class) => format!("network class {class}"),
            None => "this key".to_owned(),
        }
    }

    /// Whether a daemon gave it: only a daemon binds keys to directories.
    pub fn is_of_daemon(&self) -> bool {
        self.root.is_some()
    }
}

/// Watches a session for a daemon, until its last thread ends.
pub trait Visit: Observer {
    /// Notes the opened directory, and the user there. Errors end the session.
    fn on_root(&self, directory: BorrowedFd<'_>, uid: u32) -> Result<(), Error>;

    /// Notes that only path checks, not the kernel, keep the session within its directory.
    fn on_unfenced(&self, why: &str);

    /// Notes the initiator's task.
    fn on_role(&self, role: &Role);

    /// Notes a path that has a lane again.
    fn on_path(&self, number: u16, local: IpAddr, peer: IpAddr);

    /// Notes a path without lanes for a while.
    fn on_path_gone(&self, number: u16);

    /// Notes an address that is not dialled, or a path that this host lacks.
    fn on_refused(&self, why: &str);

    /// Whether [`Visit::on_entry`] is wanted.
    fn wants_entries(&self) -> bool {
        false
    }

    /// Notes an outcome (`Copied`, `Deleted`, `Failed` and their kind). `took`: since the target asked for data.
    fn on_entry(&self, _event: &Event, _took: Option<Duration>) {}

    /// Counts data before it leaves, or after it came. Returns how long it waits. Errors end the session.
    fn on_data(&self, _bytes: u64) -> Result<Duration, Error> {
        Ok(Duration::ZERO)
    }

    /// Counts the bytes of the peer's list. Returns false without room.
    fn on_list(&self, bytes: usize) -> bool;

    /// Notes the end of a job.
    fn on_job_end(&self, error: Option<&Error>);

    /// The next job's rights. Errors end the session.
    fn next_job(&self) -> Result<Grant, Error>;
}
