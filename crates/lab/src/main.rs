//! `haul-lab`: puts any command into an emulated network.
#![forbid(unsafe_code)]

use std::fs;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};

use clap::Parser;
use haul_lab::args::{Action, ExecArgs, NetworkArgs, Typed};
use haul_lab::doctor::{self, State};
use haul_lab::plan::Plan;
use haul_lab::request::{Request, Task};
use haul_lab::topology::Topology;
use haul_lab::units::Rate;
use haul_lab::{inside, sandbox};

fn main() -> ExitCode {
    match run(Typed::parse().action) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("haul-lab: {error}");
            ExitCode::from(EXIT_FAILED)
        }
    }
}

type Failure = Box<dyn std::error::Error>;

fn run(action: Action) -> Result<ExitCode, Failure> {
    match action {
        Action::Run(run) => {
            let topology = topology(&run.network, run.cross)?;
            let plan = Plan::of(&Topology::parse(&topology)?)?;
            for host in run.with.iter().map(|(host, _)| host).chain([&run.on]) {
                if plan.host(host).is_none() {
                    let names: Vec<&str> = plan.hosts.iter().map(|host| host.name.as_str()).collect();
                    return Err(format!("there is no host {host} in this network, but {}", names.join(", ")).into());
                }
            }
            for (link, _) in &run.capture {
                if !plan.wires.iter().any(|wire| wire.name == *link) {
                    return Err(format!("--capture: there is no link {link}").into());
                }
            }
            let captures = run.capture.into_iter().map(|(link, file)| (link, absolute(&file))).collect();
            let task = Task::Command(run.command.into_iter().map(Into::into).collect());
            let (host, with, figures) = (run.on, run.with, run.figures);
            start(Request { topology, host, task, with, captures, figures, directory: PathBuf::new() })
        }
        Action::Calibrate(network) => {
            let topology = topology(&network, None)?;
            Plan::of(&Topology::parse(&topology)?)?;
            let (host, task) = ("client".into(), Task::Calibrate);
            let (with, captures) = Default::default();
            start(Request { topology, host, task, with, captures, figures: false, directory: PathBuf::new() })
        }
        Action::Exec(exec) => enter(&exec),
        Action::Doctor => {
            let findings = doctor::examine();
            print!("{}", doctor::text(&findings));
            let whole = findings.iter().all(|finding| finding.state != State::Missing);
            Ok(if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Action::Inside { request } => Ok(inside::first_process(&request)?),
        Action::Lab { request } => {
            let text = fs::read_to_string(&request)?;
            let ended = inside::lab(&Request::from_json(&text)?)?;
            print!("{}", ended.table.unwrap_or_default());
            ended.left_out.iter().for_each(|words| eprintln!("haul-lab: warning: {words}"));
            ended.figures.iter().for_each(|line| eprintln!("{line}"));
            if let Some(fault) = ended.fault {
                eprintln!("haul-lab: warning: figures of this run must not be believed: {fault}");
            }
            Ok(ended.code)
        }
    }
}

fn start(mut request: Request) -> Result<ExitCode, Failure> {
    Ok(code(sandbox::run(&mut request)?))
}

fn topology(network: &NetworkArgs, cross: Option<Rate>) -> Result<String, Failure> {
    match &network.topology {
        Some(path) => Ok(fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?),
        None => Ok(network.to_toml(cross)),
    }
}

/// Becomes the command in the other lab.
fn enter(exec: &ExecArgs) -> Result<ExitCode, Failure> {
    let running = sandbox::running();
    let wanted = |lab: &&sandbox::Running| {
        exec.lab.as_ref().is_none_or(|name| *name == lab.name || *name == lab.pid.to_string())
    };
    let found: Vec<_> = running.iter().filter(wanted).collect();
    let lab = match found[..] {
        [lab] => lab,
        [] => return Err("no such lab runs: start one with haul-lab run".into()),
        _ => {
            let names: Vec<String> = found.iter().map(|lab| format!("{} ({})", lab.pid, lab.name)).collect();
            return Err(format!("several labs run: choose with --lab one of {}", names.join(", ")).into());
        }
    };
    let mut command = sandbox::enter(lab, &exec.host)?;
    match exec.command.split_first() {
        Some((program, arguments)) => command.arg(program).args(arguments),
        None => command.arg(std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into())),
    };
    Err(format!("cannot run nsenter (package util-linux): {}", command.exec()).into())
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_: io::Error| path.to_owned())
}

fn code(status: ExitStatus) -> ExitCode {
    let number = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    ExitCode::from(u8::try_from(number).unwrap_or(1))
}

/// The lab itself failed, as with env(1) and timeout(1); below it are the statuses of commands.
const EXIT_FAILED: u8 = 125;
