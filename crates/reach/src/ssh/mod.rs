//! Reaches a far side through the system's ssh program, and puts our own program there when it is missing.
//!
//! One ssh session does it all. A start script for the login shell runs one of these: the program that is kept there
//! under the hash of its content; an installed program of the same protocol; or our own program, which the script asks
//! for. The user's configuration, agent, jump hosts and second factors work as usual. A far side that has the program
//! costs no round trip.
//!
//! While ssh may be asking for a password, it has no time limit. `--timeout` bounds the login where nobody can be
//! asked, and the silence after the login. ssh tells when the login is over: it then runs a command of ours here
//! (ssh_config(5), LocalCommand).

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
