//! The walls around a lab: namespaces for users, mounts and processes, so nothing outlives it.
//!
//! ```text
//! haul-lab run ...          outside: writes the request, waits, removes the lab's directory
//!   unshare ...             util-linux makes the namespaces; dies with us, and takes along what is inside
//!     haul-lab inside FILE  process 1 in there: reaps what is left over; when it ends the kernel ends all others
//!       haul-lab lab FILE   hosts, links, and the command
//! ```
//! An ordinary user keeps the number in the lab, and only the lab has rights over its networks. For root the lab has root's.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::own_directory::{self, OwnDirectory, OwnDirectoryError};
use crate::request::Request;

/// A failure outside the lab.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// A directory or file of the lab failed.
    #[error(transparent)]
    Files(#[from] OwnDirectoryError),
    /// The namespaces' program did not start.
    #[error("cannot start {program}: {cause}; it is in the package util-linux")]
    Start {
        /// The program.
        program: &'static str,
        /// The cause.
        cause: io::Error,
    },
    /// The lab does not exist, or has ended.
    #[error("{0}")]
    NoLab(String),
    /// The sandbox was killed, or the kernel refuses its namespaces.
    #[error("the lab was ended by signal {0}, and everything in it went along")]
    Killed(i32),
}

/// A lab from outside.
#[derive(Debug, PartialEq, Eq)]
pub struct Running {
    /// The name.
    pub name: String,
    /// The process whose threads are the hosts.
    pub pid: u32,
    /// The hosts in order.
    pub hosts: Vec<String>,
}

/// Runs a lab, and returns its command's exit status. `kept` gets its standard output, or ours if `None`.
pub fn run(request: &mut Request, kept: Option<&mut Vec<u8>>) -> Result<ExitStatus, SandboxError> {
    let directory = OwnDirectory::for_lab(&parent())?;
    request.directory = directory.path().to_owned();
    let file = directory.path().join(REQUEST_FILE);
    write(&file, &request.to_json())?;

    // The terminal sends Ctrl-C to the command, too, which decides. A signal to this process alone ends the lab.
    let interrupted = Arc::new(AtomicBool::new(false));
    let ended = Arc::new(AtomicBool::new(false));
    for (signal, flag) in [
        (signal_hook::consts::SIGINT, &interrupted),
        (signal_hook::consts::SIGTERM, &ended),
        (signal_hook::consts::SIGHUP, &ended),
    ] {
        signal_hook::flag::register(signal, Arc::clone(flag))
            .map_err(|cause| OwnDirectoryError { path: file.clone(), cause })?;
    }
    let mut child = walls(&file, if kept.is_some() { Stdio::piped() } else { Stdio::inherit() })?;
    let output = child.stdout.take().map(|mut stdout| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // Reading ends with the lab's last process, or an error.
            let _ = stdout.read_to_end(&mut bytes);
            bytes
        })
    });
    let status = wait(&mut child, &ended)?;
    if let (Some(kept), Some(output)) = (kept, output) {
        *kept = output.join().expect("reading does not panic");
    }
    Ok(status)
}

fn walls(file: &Path, stdout: Stdio) -> Result<Child, SandboxError> {
    let program = std::env::current_exe().map_err(|cause| SandboxError::Start { program: "haul-lab", cause })?;
    let mut command = Command::new("setpriv");
    // If this process is killed, unshare dies, and with it the lab's process 1.
    command.args(["--pdeathsig", "KILL", "unshare"]);
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-current-user", "--keep-caps"]);
    }
    command.args(["--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--"]);
    command.arg(program).arg("inside").arg(file).stdout(stdout);
    command.spawn().map_err(|cause| SandboxError::Start { program: "setpriv", cause })
}

fn wait(child: &mut Child, ended: &AtomicBool) -> Result<ExitStatus, SandboxError> {
    use std::os::unix::process::ExitStatusExt;

    loop {
        let status = child.try_wait().map_err(|cause| SandboxError::Start { program: "unshare", cause })?;
        match status {
            Some(status) => match status.signal() {
                Some(signal) => return Err(SandboxError::Killed(signal)),
                None => return Ok(status),
            },
            None => {
                if ended.load(Ordering::Relaxed) {
                    let _ = child.kill();
                }
                // A signal must be noticed, and the standard library cannot wait with a limit.
                std::thread::sleep(CHILD_CHECK);
            }
        }
    }
}

/// The user's running labs. Dead labs' directories are removed.
pub fn running() -> Vec<Running> {
    let mut found = Vec::new();
    for (owner, path) in own_directory::labs_alive(&parent()) {
        let Ok(text) = fs::read_to_string(path.join(RUNNING_FILE)) else { continue };
        let mut lines = text.lines().map(str::to_owned);
        let Some(name) = lines.next() else { continue };
        if let Some(pid) = process_inside(owner) {
            found.push(Running { name, pid, hosts: lines.collect() });
        }
    }
    found
}

/// Announces from inside that the hosts exist.
pub fn announce(request: &Request, name: &str, hosts: &[&str]) -> io::Result<()> {
    fs::write(request.directory.join(RUNNING_FILE), format!("{name}\n{}\n", hosts.join("\n")))
}

/// The command that enters a running lab's host.
pub fn enter(lab: &Running, host: &str) -> Result<Command, SandboxError> {
    let number = lab.hosts.iter().position(|name| name == host).ok_or_else(|| {
        SandboxError::NoLab(format!("lab {} has no host {host}; it has {}", lab.name, lab.hosts.join(", ")))
    })?;
    let wanted = crate::hosts::thread_name(number);
    let tasks = fs::read_dir(format!("/proc/{}/task", lab.pid)).into_iter().flatten().flatten();
    let holder = tasks
        .map(|task| task.path())
        .find(|task| fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim_end() == wanted));
    let holder = holder.ok_or_else(|| SandboxError::NoLab(format!("lab {} has ended", lab.name)))?;
    let mut command = Command::new("nsenter");
    command.arg("--target").arg(lab.pid.to_string());
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--preserve-credentials"]);
    }
    command.args(["--mount", "--pid"]);
    command.arg(format!("--net={}", holder.join("ns/net").display()));
    command.arg("--wdns=.").arg("--");
    Ok(command)
}

/// The user's runtime directory has labs by their owner's process id.
fn parent() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_dir()) {
        Some(runtime) => runtime.join("haul-lab"),
        None => std::env::temp_dir().join(format!("haul-lab-{}", rustix::process::getuid().as_raw())),
    }
}

fn write(path: &Path, text: &str) -> Result<(), OwnDirectoryError> {
    fs::write(path, text).map_err(|cause| OwnDirectoryError { path: path.to_owned(), cause })
}

/// Owner -> setpriv, which became unshare -> process 1 -> the lab.
fn process_inside(owner: u32) -> Option<u32> {
    let child_of = |pid: u32| -> Option<u32> {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
        let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        children.collect::<String>().split_whitespace().next()?.parse().ok()
    };
    child_of(owner).and_then(child_of).and_then(child_of)
}

const REQUEST_FILE: &str = "request.json";
const RUNNING_FILE: &str = "running";

const CHILD_CHECK: Duration = Duration::from_millis(20);
