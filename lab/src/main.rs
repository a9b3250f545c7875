//! `haul-lab`: runs any command in an emulated network.
#![forbid(unsafe_code)]

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Parser;
use haul_lab::args::{Action, CalibrateArgs, EngineArgs, ExecArgs, ExperimentArgs, Typed};
use haul_lab::calibrate::{Comparison, Grid};
use haul_lab::doctor::{self, State};
use haul_lab::ending::{EXIT_INTERRUPTED, EXIT_INVALID};
use haul_lab::experiment::{EXPERIMENTS, ExperimentSpec};
use haul_lab::lab::Engine;
use haul_lab::own_directory::OwnDirectory;
use haul_lab::plan::Plan;
use haul_lab::request::{CalibrateJob, ExperimentJob, LabJob, Request, Task};
use haul_lab::topology::Topology;
use haul_lab::uml::{self, Clock, UmlError};
use haul_lab::{experiments, inside, limits, progress, sandbox};

fn main() -> ExitCode {
    match run(Typed::parse().action) {
        Ok(code) => code,
        // A reader such as `head` may close our output early.
        Err(error) if is_broken_pipe(&*error) => ExitCode::SUCCESS,
        Err(error) => {
            note(&error.to_string());
            ExitCode::from(EXIT_FAILED)
        }
    }
}

fn is_broken_pipe(error: &(dyn std::error::Error + 'static)) -> bool {
    let error = match error.downcast_ref::<UmlError>() {
        Some(UmlError::Io { error, .. }) => Some(error),
        _ => error.downcast_ref::<io::Error>(),
    };
    error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Prints a message; a missing reader is no error.
fn note(line: &str) {
    let _ = writeln!(io::stderr(), "haul-lab: {line}");
}

type Failure = Box<dyn std::error::Error>;

fn run(action: Action) -> Result<ExitCode, Failure> {
    match action {
        Action::Run(run) => {
            let topology = match &run.network.topology {
                Some(path) => read(path)?,
                None => run.network.to_toml(run.cross),
            };
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
            if run.engine.engine.is_some_and(|engine| engine != Engine::Emulated) && !run.capture.is_empty() {
                return Err("--capture: only the engine emulated writes captures; run tcpdump on a host instead".into());
            }
            let mut request = request(topology, Task::Command(run.command.into_iter().map(Into::into).collect()));
            request.captures = run.capture.into_iter().map(|(link, file)| (link, absolute(&file))).collect();
            (request.host, request.with, request.figures) = (run.on, run.with, run.figures);
            start(request, &run.engine, None)
        }
        Action::Calibrate(typed) => calibrate(typed),
        Action::Experiment(typed) => experiment(typed),
        Action::Kernel { dry } => {
            let kernel = uml::kernel::build(dry, &mut io::stdout().lock())?;
            print(&format!("{}\n", kernel.display()))?;
            Ok(ExitCode::SUCCESS)
        }
        Action::Exec(exec) => enter(&exec),
        Action::Doctor => {
            let findings = doctor::examine();
            print(&doctor::text(&findings))?;
            let whole = findings.iter().all(|finding| finding.state != State::Missing);
            Ok(if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Action::Inside { request } => Ok(inside::first_process(&request)?),
        Action::Lab { request } => lab(&fs::read_to_string(&request)?),
        Action::GuestLab { request } => lab(&request),
        Action::UmlKernel { words } => Ok(ExitCode::from(uml::boot::keep_kernel(&words)?)),
        Action::UmlGuest { words } => Ok(ExitCode::from(uml::guest::main(&words)?)),
    }
}

fn lab(request: &str) -> Result<ExitCode, Failure> {
    let ended = inside::lab(&Request::from_json(request)?, &mut note)?;
    print(&ended.text)?;
    for line in &ended.figures {
        let _ = writeln!(io::stderr(), "{line}");
    }
    Ok(ended.code)
}

fn calibrate(typed: CalibrateArgs) -> Result<ExitCode, Failure> {
    let labs = match &typed.topology {
        Some(path) => vec![LabJob { asked: vec![path.display().to_string()], topology: read(path)? }],
        None => typed.grid(),
    };
    if labs.len() > limits::MAX_CELLS {
        return Err(format!("{} labs are too many for one table: at most {}", labs.len(), limits::MAX_CELLS).into());
    }
    let mut largest = (0, String::new());
    for lab in &labs {
        let topology = Topology::parse(&lab.topology)?;
        Plan::of(&topology)?;
        let memory = uml::memory_for(&topology, u64::MAX).bytes;
        if memory > largest.0 {
            largest = (memory, lab.topology.clone());
        }
    }
    let job = CalibrateJob { labs, tries: typed.tries };
    let mut grids: Vec<Grid> = Vec::new();
    for engine in &typed.engine {
        let request = request(largest.1.clone(), Task::Calibrate(job.clone()));
        let mut lines = Vec::new();
        let engine_args = EngineArgs { engine: Some(*engine), kernel: typed.kernel.clone() };
        let code = start(request, &engine_args, Some(&mut lines))?;
        let interrupted = code == ExitCode::from(EXIT_INTERRUPTED);
        if !interrupted && code != ExitCode::SUCCESS && code != ExitCode::from(EXIT_INVALID) {
            return Ok(code);
        }
        let lines = String::from_utf8(lines)?;
        let grid = Grid::from_json(engine.word(), &lines, interrupted)?;
        // The table of many labs names its engine itself.
        let head = match (typed.engine.len(), job.labs.len()) {
            (2.., 1) => format!("Engine {}:\n\n", engine.word()),
            _ => String::new(),
        };
        let gap = if grids.is_empty() { "" } else { "\n" };
        print(&if typed.json { lines } else { format!("{gap}{head}{}", grid.text()) })?;
        if interrupted {
            return Ok(code);
        }
        grids.push(grid);
    }
    let [first, others @ ..] = &grids[..] else { return Err("--engine: name one".into()) };
    let mut holds = grids.iter().all(Grid::holds);
    for other in others {
        let compared = Comparison::of(first, other);
        holds &= compared.holds();
        print(&if typed.json { compared.json() } else { format!("\n{}", compared.text()) })?;
    }
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::from(EXIT_INVALID) })
}

fn experiment(typed: ExperimentArgs) -> Result<ExitCode, Failure> {
    let Some(name) = typed.experiment else {
        for (name, text) in EXPERIMENTS {
            print(&format!("{name:<24} {}\n", ExperimentSpec::parse(text)?.title))?;
        }
        return Ok(ExitCode::SUCCESS);
    };
    let path = Path::new(&name);
    let ours = EXPERIMENTS.iter().any(|(ours, _)| *ours == name);
    let experiment = if ours { name } else { absolute(path).display().to_string() };
    let mut job = ExperimentJob {
        experiment,
        results: absolute(&typed.results),
        resume: typed.resume.as_deref().map(absolute),
        work: typed.work.as_deref().map_or_else(|| WORK.into(), absolute),
        repeat: typed.repeat,
        tools: typed.only,
        data: typed.size.map(|size| (typed.files, size.bytes)),
        haul: typed.haul.as_deref().map(absolute),
        rivals: typed.rivals.as_deref().map(absolute),
    };
    let spec = experiments::prepare(&job)?;
    let mut engine = typed.engine;
    engine.engine = engine.engine.or(spec.engine.as_deref().and_then(Engine::from_word));
    // A guest's /dev/shm ends with it.
    let is_here = engine.engine.unwrap_or_default() == Engine::Emulated || typed.work.is_some();
    let work = is_here.then(|| OwnDirectory::for_work(&job.work)).transpose()?;
    if let Some(work) = &work {
        job.work = work.path().to_owned();
    }
    let first = experiments::first_topology(&spec)?;
    let mut request = request(first, Task::Experiment(Box::new(job)));
    request.host = spec.from.clone();
    request.file_bytes = spec.data.bytes().saturating_mul(2);
    start(request, &engine, None)
}

fn request(topology: String, task: Task) -> Request {
    Request {
        topology,
        engine: Engine::Emulated,
        host: "client".into(),
        task,
        with: Vec::new(),
        captures: Default::default(),
        figures: false,
        terminal_columns: progress::terminal_columns(),
        file_bytes: 0,
        directory: PathBuf::new(),
    }
}

/// Does the task with its engine. `kept` gets its standard output, or ours if `None`.
fn start(mut request: Request, engine: &EngineArgs, kept: Option<&mut Vec<u8>>) -> Result<ExitCode, Failure> {
    request.engine = engine.engine.unwrap_or_default();
    let clock = match request.engine {
        Engine::Emulated => return Ok(code(sandbox::run(&mut request, kept)?)),
        Engine::Virtual => Clock::Virtual { start_s: SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() },
        Engine::Uml => Clock::Real,
    };
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let topology = Topology::parse(&request.topology)?;
    if let Some(words) = uml::memory_warning(&topology, uml::available_memory().bytes) {
        note(&format!("warning: {words}"));
    }
    let what = uml::RunInUml::of_request(&request, engine.kernel.clone(), clock)?;
    let mut ours = io::stdout().lock();
    let stdout: &mut dyn io::Write = match kept {
        Some(kept) => kept,
        None => &mut ours,
    };
    match uml::run(&what, &stop, stdout, &mut io::stderr().lock()) {
        Err(UmlError::Interrupted) => Ok(ExitCode::from(EXIT_INTERRUPTED)),
        ended => Ok(ExitCode::from(ended?.code())),
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    Ok(fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?)
}

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

/// Data lies in memory, so no disk is measured.
const WORK: &str = "/dev/shm";

/// The lab itself failed, as in env(1) and timeout(1); commands have lower statuses.
const EXIT_FAILED: u8 = 125;
