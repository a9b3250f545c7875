//! Describes what a peer may do at a far side, and who watches it there.

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
    /// The directory above all its paths; `None`: all that the account may.
    pub root: Option<PathBuf>,
    /// Whether it may only read.
    pub read_only: bool,
    /// Whether it may not read.
    pub unreadable: bool,
    /// The network class that narrows its rights, if one does.
    pub network: Option<String>,
    /// Whether it may have data connections that are not encrypted.
    pub clear: bool,
    /// The account as which its files are read and written; `None`: that of the daemon.
    pub user: Option<String>,
    /// The key of the peer, for the policy of classes; `None`: it came by ssh.
    pub key: Option<PublicKey>,
}

impl Grant {
    /// Names those for whom the limits hold.
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

/// Watches a session at its far side for a daemon. It is held until the last thread of the session has ended, which may
/// be after `serve_control` has returned.
pub trait Visit: Observer {
    /// The directory was opened, to work there as this user. An error ends the session.
    fn on_root(&self, directory: BorrowedFd<'_>, uid: u32) -> Result<(), Error>;

    /// The kernel does not keep the session within that directory. The checks of each path do.
    fn on_unfenced(&self, why: &str);

    /// The initiator has named its task.
    fn on_role(&self, role: &Role);

    /// A path has a lane again, between this host's address and the peer's.
    fn on_path(&self, number: u16, local: IpAddr, peer: IpAddr);

    /// A path lost its last lane a while ago.
    fn on_path_gone(&self, number: u16);

    /// An address of the peer is not dialled, or this host lacks a path.
    fn on_refused(&self, why: &str);

    /// Whether [`Visit::on_entry`] is wanted.
    fn wants_entries(&self) -> bool {
        false
    }

    /// An entry has its outcome, which is one of `Copied`, `Deleted`, `Failed` and their kind. `took` is the time since
    /// the target has asked for data of the file.
    fn on_entry(&self, _event: &Event, _took: Option<Duration>) {}

    /// Data of files is about to leave, or has come. Returns how long it waits. An error ends the session.
    fn on_data(&self, _bytes: u64) -> Result<Duration, Error> {
        Ok(Duration::ZERO)
    }

    /// The peer's list has so many bytes so far. Returns false if there is no room.
    fn on_list(&self, bytes: usize) -> bool;

    /// A job has ended, with this error or well.
    fn on_job_end(&self, error: Option<&Error>);

    /// The next job gets these rights. An error ends the session.
    fn next_job(&self) -> Result<Grant, Error>;
}
