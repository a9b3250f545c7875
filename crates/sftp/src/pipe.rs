//! A byte pipe to a server: ssh, or a program of this host.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// Both directions of a byte pipe to a server.
pub struct Pipe {
    /// What the server says.
    pub output: OwnedFd,
    /// What the server hears.
    pub input: OwnedFd,
    /// What was read of the output already.
    pub heard: Vec<u8>,
    /// [`GREETING`](crate::codec::GREETING) was written already.
    pub is_greeted: bool,
    /// Ends the other side of the pipe, so that no read and no write waits any longer. Called once, by any thread.
    pub end: Box<dyn Fn() + Send + Sync>,
    /// Says why the other side ended by itself, if it has said so.
    pub why_ended: Box<dyn Fn() -> Option<String> + Send + Sync>,
}

impl Pipe {
    /// Starts a program that speaks SFTP on its standard input and output, for example `sftp-server`.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn to_program(mut command: Command) -> io::Result<Pipe> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (input, output) = pipes.ok_or_else(|| io::Error::other("the program has no pipes"))?;
        let child = Mutex::new(child);
        let end = move || {
            if let Ok(mut child) = child.lock() {
                let _ = child.kill();
                let _ = child.wait();
            }
        };
        Ok(Pipe {
            output: output.into(),
            input: input.into(),
            heard: Vec::new(),
            is_greeted: false,
            end: Box::new(end),
            why_ended: Box::new(|| None),
        })
    }
}

impl fmt::Debug for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipe").field("heard", &self.heard.len()).finish_non_exhaustive()
    }
}
