//! What a peer may do at a far side, and who watches it there.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Duration;

use haul_job::{Error, Observer};
use haul_net::PublicKey;
use haul_wire::control::Role;

/// What a peer may do here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// All its paths lie beneath this directory; `None`: whatever the account may.
    pub root: Option<PathBuf>,
    /// It may only read.
    pub read_only: bool,
    /// It may not read.
    pub unreadable: bool,
    /// The network class that it comes from, where that narrows what its key may do.
    pub network: Option<String>,
    /// It may have data connections that are not encrypted.
    pub clear: bool,
    /// The account as which its files are read and written; `None`: that of the daemon.
    pub user: Option<String>,
    /// Its key, for the policy of classes; `None`: who came in by ssh.
    pub key: Option<PublicKey>,
}

impl Grant {
    /// In words: whom its limits hold for.
    pub(crate) fn whom(&self) -> String {
        match &self.network {
            Some(class) => format!("network class {class}"),
            None => "this key".to_owned(),
        }
    }

    /// A daemon binds every key to a directory; who came in by ssh has an account.
    pub(crate) fn is_of_daemon(&self) -> bool {
        self.root.is_some()
    }
}

/// Watches a session at its far side: what a daemon logs, and how it ends a session. An agent has nobody to tell. It is held until the last
/// thread has ended that works for the session, which may be after [`serve_control`] has returned.
pub trait Visit: Observer {
    /// The directory of its grant was opened, to work there as this user. An error ends the session.
    fn on_root(&self, directory: BorrowedFd<'_>, uid: u32) -> Result<(), Error>;

    /// The session is not kept within that directory by the kernel, for this reason. The checks of each path are.
    fn on_unfenced(&self, why: &str);

    /// The initiator said what it wants.
    fn on_role(&self, role: &Role);

    /// A path of the session has its first lane, between these addresses of this host and of the peer, or has one again.
    fn on_path(&self, number: u16, local: IpAddr, peer: IpAddr);

    /// A path of the session lost its last lane a while ago.
    fn on_path_gone(&self, number: u16);

    /// The peer named an address that is not dialled, or this host lacks a path that it is set to use.
    fn on_refused(&self, why: &str);

    /// Data of files is about to leave, or has come: how long it waits here. An error ends the session.
    fn on_data(&self, _bytes: u64) -> Result<Duration, Error> {
        Ok(Duration::ZERO)
    }

    /// It lists what it wants, so many bytes so far. False: that is more than there is room for.
    fn on_list(&self, bytes: usize) -> bool;

    /// A job has ended, and another may follow on the session. With this error, or well.
    fn on_job_end(&self, error: Option<&Error>);

    /// Another job is asked for: what the key may do now. An error ends the session.
    fn next_job(&self) -> Result<Grant, Error>;
}
