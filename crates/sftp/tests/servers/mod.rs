//! Servers for tests: OpenSSH's own, over a pipe.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use haul_sftp::{Dials, Pipe, Pool, Server};

/// Longer than any answer takes on a busy host.
pub const PATIENCE: Duration = Duration::from_secs(30);

const PLACES: [&str; 3] =
    ["/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server", "/usr/lib/ssh/sftp-server"];

/// The program; without it a test fails, because nothing else shows that we speak what others speak.
pub fn sftp_server() -> Command {
    let program = PLACES.iter().find(|place| Path::new(place).exists());
    let program = program.expect("sftp-server is there: install the package openssh-sftp-server");
    let mut command = Command::new(program);
    command.arg("-e").stderr(std::process::Stdio::null());
    command
}

/// One connection to a server that works beneath `directory`.
pub fn server(directory: &Path) -> Arc<Server> {
    let mut command = sftp_server();
    command.arg("-d").arg(directory);
    Server::meet(Pipe::to_program(command).unwrap(), PATIENCE).unwrap()
}

/// One connection, and those that come of `further`.
pub fn pool(directory: &Path, further: Option<Arc<Dials>>) -> Arc<Pool> {
    Pool::new(server(directory), further)
}
