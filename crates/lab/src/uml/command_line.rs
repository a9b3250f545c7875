//! The smallest command line for this engine: the hidden subcommands, and a `run`.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

use super::{Clock, Job, RunInUml, Task, UmlError, boot, guest, kernel};
use crate::topology::Topology;

/// `uml-kernel ...`, `uml-guest ...`, `kernel [--dry]`, `run --engine virtual|uml [--kernel PATH] TOPOLOGY -- COMMAND...`
pub fn run(arguments: &[String]) -> Result<u8, UmlError> {
    match arguments.first().map(String::as_str) {
        Some(boot::KERNEL_SUBCOMMAND) => boot::keep_kernel(&arguments[1..]),
        Some(boot::GUEST_SUBCOMMAND) => guest::main(&arguments[1..]),
        Some("kernel") => {
            let dry = arguments.get(1).is_some_and(|word| word == "--dry");
            kernel::build(dry, &mut std::io::stdout().lock()).map(|_| 0)
        }
        Some("run") => run_command(&arguments[1..]),
        _ => Err(usage()),
    }
}

fn run_command(arguments: &[String]) -> Result<u8, UmlError> {
    let end = arguments.iter().position(|word| word == "--").ok_or_else(usage)?;
    let (ours, command) = (&arguments[..end], &arguments[end + 1..]);
    let value = |name: &str| ours.iter().position(|word| word == name).and_then(|at| ours.get(at + 1));
    let virtual_time = value("--engine").is_none_or(|engine| engine == "virtual");
    let file = ours.last().ok_or_else(usage)?;
    let text = std::fs::read_to_string(file).map_err(UmlError::io(format!("read {file}")))?;
    let refuse =
        |error: crate::topology::TopologyError| UmlError::Refused { what: file.clone(), why: error.to_string() };
    let topology = Topology::parse(&text).map_err(refuse)?;
    let found = kernel::find(&kernel::Places::of_user(value("--kernel").map(PathBuf::from)), virtual_time)?;
    let start_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let memory = super::memory_for(&topology, super::available_memory().bytes);
    let host = topology.hosts.keys().next().cloned().unwrap_or_default();
    let what = RunInUml {
        kernel: found.path,
        program: std::env::current_exe().map_err(UmlError::io("find our own program"))?,
        clock: if virtual_time { Clock::Virtual { start_s } } else { Clock::Real },
        memory,
        job: Job {
            task: Task::Lab { topology: text, host: value("--host").cloned().unwrap_or(host) },
            command: command.to_vec(),
            environment: std::env::vars().collect(),
            directory: std::env::current_dir().map_err(UmlError::io("find the directory"))?.display().to_string(),
        },
        limit: boot::DEFAULT_LIMIT,
    };
    let stop = std::sync::Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, stop.clone()).map_err(UmlError::io("wait for signals"))?;
    }
    let status = super::run(&what, &stop, &mut std::io::stdout().lock(), &mut std::io::stderr().lock())?;
    Ok(status.code())
}

fn usage() -> UmlError {
    UmlError::Refused {
        what: "usage".into(),
        why: "haul-lab run --engine virtual|uml [--kernel PATH] [--host HOST] TOPOLOGY.toml -- COMMAND...".into(),
    }
}
