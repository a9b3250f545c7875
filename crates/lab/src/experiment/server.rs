//! The real server of a tool: its configuration, its start, its end.

use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use super::attempt::{Attempt, Trouble, command_line, run_setup, write_files};
use super::process::Process;
use super::rival::ServerSpec;
use super::template::Scope;
use super::testbed::Testbed;
use crate::{limits, programs};

/// A server that listens. Dropped, it is killed with everything it started.
pub(super) struct Server {
    process: Process,
}

impl Server {
    /// Starts it on a host and waits until it listens on `{port}`. The scope has its directory as `{server_dir}`.
    pub(super) fn start(
        attempt: &Attempt<'_>,
        host: &str,
        spec: &ServerSpec,
        scope: &Scope,
        log: &Path,
    ) -> Result<Server, Trouble> {
        let (testbed, rivals) = (attempt.testbed, attempt.rivals);
        let trouble = |why: String| Trouble::Failed(format!("the server {} did not start: {why}", spec.name));
        write_files(&spec.files, scope).map_err(|error| trouble(error.to_string()))?;
        for words in &spec.setup {
            let words = scope.fill_command(words, &[]).map_err(|error| trouble(error.to_string()))?;
            let command = command_line(&words, &attempt.identity.wrap, rivals).map_err(&trouble)?;
            run_setup(testbed, host, command, log).map_err(trouble)?;
        }
        let words = scope.fill_command(&spec.command, &[]).map_err(|error| trouble(error.to_string()))?;
        let mut command = command_line(&words, &attempt.wrap(), rivals).map_err(&trouble)?;
        command.current_dir(attempt.work.join("server"));
        for (name, value) in &spec.env {
            command.env(name, scope.fill(value).map_err(|error| trouble(error.to_string()))?);
        }
        let process = spawn_logged(testbed, host, command, log).map_err(|error| trouble(error.to_string()))?;
        let port = scope.fill("{port}").ok().and_then(|port| port.parse().ok()).unwrap_or_default();
        let server = Server { process };
        server.await_port(port).map_err(|why| trouble(format!("{why}{}", super::attempt::tail_of(log))))?;
        Ok(server)
    }

    /// Processor seconds so far.
    pub(super) fn cpu_s(&self) -> f64 {
        self.process.cpu_of_tree_s()
    }

    fn await_port(&self, port: u16) -> Result<(), String> {
        let deadline = Instant::now() + limits::SERVER_START_MAX;
        let process = format!("/proc/{}", self.process.id());
        while !programs::listening_ports(&process).contains(&port) {
            if self.process.has_ended_within(limits::SERVER_LOOK_EVERY).map_err(|error| error.to_string())? {
                return Err("it ended".into());
            }
            if Instant::now() > deadline {
                return Err(format!("nothing listened on port {port} after {} s", limits::SERVER_START_MAX.as_secs()));
            }
        }
        Ok(())
    }
}

fn spawn_logged(testbed: &dyn Testbed, host: &str, mut command: Command, log: &Path) -> io::Result<Process> {
    let out = fs::OpenOptions::new().create(true).append(true).open(log)?;
    command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
    Process::start(testbed, host, command)
}

/// A port that nobody uses in our own network, and most likely nobody in that of a host of the lab either.
pub(super) fn free_port() -> io::Result<u16> {
    Ok(std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// An empty file to write into.
pub(super) fn output_file(path: &Path) -> io::Result<File> {
    File::create(path)
}
