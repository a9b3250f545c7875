//! Inside the sandbox: process 1, and the lab with its command.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{WaitOptions, WaitStatus};

use crate::calibrate::Grid;
use crate::ending::{EXIT_INTERRUPTED, EXIT_INVALID, Ended, LabError, os};
use crate::experiments;
use crate::hosts::Hosts;
use crate::lab::{Engine, Lab};
use crate::programs;
use crate::request::{CalibrateJob, LabJob, Request, Task, Word};
use crate::sandbox;
use crate::topology::Topology;

/// Process 1 of the sandbox starts the lab, reaps orphans, and ends with the lab.
pub fn first_process(request: &Path) -> Result<ExitCode, LabError> {
    let program = std::env::current_exe().map_err(|cause| os("find our own program", cause))?;
    let lab = Command::new(program).arg("lab").arg(request).spawn().map_err(|cause| os("start the lab", cause))?;
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get().cast_unsigned() == lab.id() => {
                return match status.terminating_signal() {
                    Some(signal) => Err(LabError::Killed(signal)),
                    None => Ok(code(status)),
                };
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(os("wait for the lab", error.into())),
        }
    }
}

/// Makes the network and does the task; `tell` prints lines meanwhile.
pub fn lab(request: &Request, tell: &mut dyn FnMut(&str)) -> Result<Ended, LabError> {
    // Ctrl-C reaches the command through the terminal; the lab ends after it.
    let interrupted = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&interrupted))
        .map_err(|cause| os("watch for Ctrl-C", cause))?;
    fs::create_dir_all(&request.directory).map_err(|cause| os("make the directory of the lab", cause))?;
    let names = resolve_names(request)?;
    let (code, text, lab) = match &request.task {
        Task::Experiment(job) => {
            return experiments::run(request.engine, request.terminal_columns, job, &names, &interrupted, tell);
        }
        Task::Command(words) => {
            let mut lab = make(request, &request.topology, &names, tell)?;
            for (host, line) in &request.with {
                companion(lab.hosts(), host, line)?;
            }
            lab.start_traffic().map_err(|cause| os("start the traffic", cause))?;
            lab.begin().map_err(|cause| os("start the events", cause))?;
            let status = command(&lab, &request.host, words, &interrupted)?;
            if let Some(fault) = lab.fault() {
                tell(&format!("warning: figures of this run must not be believed: {fault}"));
            }
            (ExitCode::from(u8::try_from(shell_status(status)).unwrap_or(1)), String::new(), lab)
        }
        Task::Calibrate(job) => return calibrate(request, job, &names, &interrupted, tell),
    };
    let figures = if request.figures { lab.figures() } else { Vec::new() };
    Ok(Ended { code, text, figures })
}

fn calibrate(
    request: &Request,
    job: &CalibrateJob,
    names: &Path,
    interrupted: &Arc<AtomicBool>,
    tell: &mut dyn FnMut(&str),
) -> Result<Ended, LabError> {
    let mut measure = |lab: &LabJob| {
        // Settings that a host lacks do not change its links.
        let mut lab = make(request, &lab.topology, names, &mut |_| {})?;
        lab.calibrate(interrupted).map_err(|cause| os("calibrate", cause))
    };
    let grid = Grid::run(request.engine.word(), job, interrupted, &mut measure, tell)?;
    let code = match (grid.interrupted, grid.holds()) {
        (true, _) => ExitCode::from(EXIT_INTERRUPTED),
        (false, true) => ExitCode::SUCCESS,
        (false, false) => ExitCode::from(EXIT_INVALID),
    };
    Ok(Ended { code, text: grid.json(), figures: Vec::new() })
}

fn make(request: &Request, topology: &str, names: &Path, tell: &mut dyn FnMut(&str)) -> Result<Lab, LabError> {
    let topology = Topology::parse(topology)?;
    let lab = Lab::make(&topology, request.engine, &request.captures, names);
    let lab = lab.map_err(|cause| os("make the network", cause))?;
    lab.left_out().iter().for_each(|words| tell(&format!("warning: {words}")));
    if request.engine == Engine::Emulated {
        let hosts: Vec<&str> = lab.hosts().names().collect();
        sandbox::announce(request, &topology.name, &hosts).map_err(|cause| os("announce the lab", cause))?;
    }
    Ok(lab)
}

/// Makes hosts' names resolve in the lab. Returns their file, filled later.
fn resolve_names(request: &Request) -> Result<PathBuf, LabError> {
    let file = request.directory.join("hosts");
    fs::write(&file, "").map_err(|cause| os("write the names of the hosts", cause))?;
    rustix::mount::mount_bind(&file, "/etc/hosts").map_err(|cause| os("put our file over /etc/hosts", cause.into()))?;
    Ok(file)
}

fn command(lab: &Lab, host: &str, words: &[Word], interrupted: &AtomicBool) -> Result<ExitStatus, LabError> {
    let shell = std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
    let mut command = match words.split_first() {
        Some((program, arguments)) => {
            let mut command = Command::new(program.as_os_str());
            command.args(arguments.iter().map(Word::as_os_str));
            command
        }
        None => Command::new(shell),
    };
    command.env("HAUL_LAB_HOST", host);
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |cause| LabError::Command { command: name.clone(), cause };
    let mut child = lab.spawn(host, command).map_err(failed)?;
    wait(&mut child, interrupted).map_err(failed)
}

/// Starts a command on another host, which ends with the lab.
fn companion(hosts: &Hosts, host: &str, line: &str) -> Result<(), LabError> {
    let mut command = Command::new("sh");
    command.args(["-c", line]).env("HAUL_LAB_HOST", host).stdin(Stdio::null());
    let failed = |cause| LabError::Command { command: line.to_owned(), cause };
    let mut child = hosts.spawn(host, command).map_err(failed)?;
    let start = Instant::now();
    while start.elapsed() < LISTEN_LIMIT
        && hosts.enter(host, || programs::listening_ports("/proc/thread-self")).is_empty()
    {
        if let Some(status) = child.try_wait().map_err(failed)? {
            // A daemon leaves its first process with success.
            if !status.success() {
                return Err(failed(io::Error::other(format!("it ended on {host} with {status}"))));
            }
            break;
        }
        std::thread::sleep(CHILD_CHECK);
    }
    Ok(())
}

fn wait(child: &mut Child, interrupted: &AtomicBool) -> io::Result<ExitStatus> {
    let mut since = None;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if interrupted.load(Ordering::Relaxed) {
            let since = *since.get_or_insert_with(Instant::now);
            if since.elapsed() > PATIENCE {
                child.kill()?;
            }
        }
        std::thread::sleep(CHILD_CHECK);
    }
}

fn shell_status(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;

    status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}

fn code(status: WaitStatus) -> ExitCode {
    ExitCode::from(status.exit_status().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

const PATIENCE: Duration = Duration::from_secs(5);

/// The cost of a companion that never listens.
const LISTEN_LIMIT: Duration = Duration::from_secs(2);

const CHILD_CHECK: Duration = Duration::from_millis(5);
