//! Reaches a far side through the system's ssh program, and puts our own program there when it is missing.
//!
//! A start script for the login shell runs the program that is kept there under the hash of its content. If none is kept, the
//! script runs an installed one of the same protocol, or asks for ours. The user's configuration, agent, jump hosts and second
//! factors work as usual.
//!
//! No time limit holds while ssh may be asking for a password. `--timeout` bounds other logins, and the silence after one. ssh
//! tells the end of a login by a command of ours that it runs here (ssh_config(5), LocalCommand).

mod dialled;
mod escaper;
mod far_identity;
mod kept_login;
mod lanes;
mod machinery;
pub mod names;
mod packed;
mod programs;
pub mod question;
mod resolved;
mod script;
mod session;
mod sftp;
mod target;
mod words;

pub use dialled::Dialled;
pub use lanes::{SshKeeper, SshLanes};
pub(crate) use programs::ProgramsSought;
pub use session::{SshChild, SshSession};
pub use sftp::{SftpControl, SftpSession, SshServer};
pub use target::SshTarget;
pub(crate) use words::is_host_unknown;
