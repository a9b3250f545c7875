//! The real server of a tool: configuration, start, end.

use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Instant;

use super::commands::{command_line, run_setup, spawn_logged, tail_of, write_files};
use super::process::Process;
use super::rival::ServerSpec;
use super::rivals::Rivals;
use super::template::Scope;
use super::testbed::Testbed;
use crate::{limits, programs};

pub(super) struct Place<'a> {
    pub(super) testbed: &'a dyn Testbed,
    pub(super) host: &'a str,
    pub(super) rivals: &'a Rivals,
    pub(super) setup_wrap: &'a [String],
    pub(super) wrap: &'a [String],
    pub(super) directory: &'a Path,
    pub(super) log: &'a Path,
}

/// A listening server, killed with all it started on drop.
pub(super) struct Server {
    process: Process,
}

impl Server {
    /// Starts it, and waits until it listens on `{port}`.
    pub(super) fn start(spec: &ServerSpec, place: &Place<'_>, scope: &Scope) -> Result<Server, String> {
        Server::started(spec, place, scope).map_err(|why| format!("the server {} did not start: {why}", spec.name))
    }

    fn started(spec: &ServerSpec, place: &Place<'_>, scope: &Scope) -> Result<Server, String> {
        let Place { testbed, host, rivals, log, .. } = *place;
        write_files(&spec.files, scope).map_err(|error| error.to_string())?;
        for words in &spec.setup {
            let words = scope.fill_command(words, &[]).map_err(|error| error.to_string())?;
            run_setup(testbed, host, command_line(&words, place.setup_wrap, rivals)?, log)?;
        }
        let words = scope.fill_command(&spec.command, &[]).map_err(|error| error.to_string())?;
        let mut command = command_line(&words, place.wrap, rivals)?;
        command.current_dir(place.directory);
        for (name, value) in &spec.env {
            command.env(name, scope.fill(value).map_err(|error| error.to_string())?);
        }
        let process = spawn_logged(testbed, host, command, log).map_err(|error| error.to_string())?;
        let port = scope.fill("{port}").ok().and_then(|port| port.parse().ok()).unwrap_or_default();
        let server = Server { process };
        server.await_port(port).map_err(|why| format!("{why}{}", tail_of(log)))?;
        Ok(server)
    }

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

/// A port free in our namespace is most likely free in the lab.
pub(super) fn free_port() -> io::Result<u16> {
    Ok(std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
