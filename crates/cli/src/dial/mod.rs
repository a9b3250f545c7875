//! `haul dial`: connects for ssh, which started it and takes the connection from standard output.

pub mod flags;

use std::process::ExitCode;
use std::time::Duration;

use haul_transfer::{Dialled, IpFamily};

use crate::dial::flags::Dial;

/// Ends once ssh has the connection.
pub fn run(typed: &Dial) -> ExitCode {
    let Dial { v4, v6, timeout_s, keepalive, host, port } = typed;
    let family = match (v4, v6) {
        (true, _) => Some(IpFamily::V4),
        (false, true) => Some(IpFamily::V6),
        (false, false) => None,
    };
    let timeout = timeout_s.map(Duration::from_secs);
    let dialled = Dialled { host: host.clone(), port: *port, family, timeout, keepalive: *keepalive };
    ExitCode::from(dialled.hand_to_ssh())
}
