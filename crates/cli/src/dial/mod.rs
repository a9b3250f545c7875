//! `haul dial`: connects for ssh, which takes the connection from standard output.

pub mod flags;

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use haul_transfer::{Dialled, IpFamily};

use crate::dial::flags::Dial;

/// ssh(1), EXIT STATUS.
const AS_SSH_FAILS: u8 = 255;

pub fn run(typed: &Dial) -> ExitCode {
    let Dial { v4, v6, timeout_s, keepalive, host, port } = typed;
    let family = match (v4, v6) {
        (true, _) => Some(IpFamily::V4),
        (false, true) => Some(IpFamily::V6),
        (false, false) => None,
    };
    let timeout = timeout_s.map(Duration::from_secs);
    let dialled = Dialled { host: host.clone(), port: *port, family, timeout, keepalive: *keepalive };
    match dialled.hand_to_ssh() {
        Ok(()) => ExitCode::SUCCESS,
        Err(words) => {
            let _ = writeln!(io::stderr(), "{words}");
            ExitCode::from(AS_SSH_FAILS)
        }
    }
}
