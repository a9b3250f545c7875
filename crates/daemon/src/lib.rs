//! The daemon: the far side of sessions on one port, without ssh.
//!
//! ```text
//!   serve        listen -> handshake: is the key in the list, or a lane that a session expects?
//!                -> lane: to its session          -> control: a session in a thread of its own
//!   listening    the ports: opened here, or held by systemd
//!   authorized   the list of keys, each with its directory
//!   authority    that list as it stands in its file
//!   own_files    the private key and the list, which no directory of a key may hold
//!   lookout      tells in advance which lines will let nobody in
//!   web          the same directories to readers over HTTP, and public ones
//!   certificate  that of the web's port
//!   tokens       what `haul token` makes and shows
//!   revoked      numbers of tokens that count no more
//!   networks     the network classes in their files
//!   registrar    what the key of a session may do, asked anew for each job
//!   allowance    what each key has moved, held to its line
//!   sessions     who is here: counted, logged, ended with the daemon
//!   log          lines with a time, safe for a terminal
//! ```
//! The daemon acts with the rights of its account, within the directories of its list.

#![forbid(unsafe_code)]

mod allowance;
mod authority;
pub mod authorized;
mod bind_error;
mod certificate;
pub mod limits;
mod listening;
mod log;
mod lookout;
mod networks;
mod own_files;
mod registrar;
mod revoked;
mod serve;
mod sessions;
mod tokens;
mod version;
mod web;

pub use allowance::KeyLimits;
pub use haul_web::token::{Condition, Number};
pub use log::{Form, WriteLine, last_line, lost_lines};
pub use serve::{Options, Signals, serve};
pub use tokens::{Lifetime, Shown, TokenOptions, issue, narrow, revoke, show};
pub use web::WebOptions;
