//! The command lines of adapters, with programs, files and output.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Command, Stdio};

use super::process::{End, Process};
use super::rival::FileSpec;
use super::rivals::Rivals;
use super::template::Scope;
use super::testbed::Testbed;
use crate::{limits, programs};

/// Programs get full paths: sshd insists on its own.
pub(super) fn command_line(words: &[String], wrap: &[String], rivals: &Rivals) -> Result<Command, String> {
    let found = |name: &String| rivals.program(name).ok_or_else(|| format!("{name} is not installed"));
    let (program, rest) = words.split_first().ok_or("its command line is empty")?;
    let program = found(program)?;
    let mut command = match wrap.split_first() {
        Some((first, more)) => {
            let mut command = Command::new(found(first)?);
            command.args(more).arg(program);
            command
        }
        None => Command::new(program),
    };
    command.args(rest);
    // Scripts and tools that call others need it.
    if let Ok(path) = std::env::join_paths(programs::directories()) {
        command.env("PATH", path);
    }
    Ok(command)
}

pub(super) fn write_files(files: &[FileSpec], scope: &Scope) -> io::Result<()> {
    for spec in files {
        let path = scope.fill(&spec.path).map_err(io::Error::other)?;
        let text = scope.fill(&spec.text).map_err(|error| io::Error::other(format!("{}: {error}", spec.path)))?;
        fs::write(&path, text).map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))?;
    }
    Ok(())
}

/// Runs a short command. Errors have the end of its output.
pub(super) fn run_setup(testbed: &dyn Testbed, host: &str, command: Command, log: &Path) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let run = spawn_logged(testbed, host, command, log);
    match run.and_then(|mut process| process.wait(limits::SETUP_MAX, &|| false)) {
        Ok(End::Exited { status, .. }) if status.success() => Ok(()),
        Ok(End::Exited { status, .. }) => Err(format!("{program} failed with {status}{}", tail_of(log))),
        Ok(_) => Err(format!("{program} was still running after {} s", limits::SETUP_MAX.as_secs())),
        Err(error) => Err(format!("{program}: {error}")),
    }
}

pub(super) fn tail_of(path: &Path) -> String {
    let read = || -> io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(limits::OUTPUT_TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(limits::OUTPUT_TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    };
    match read() {
        Ok(text) if !text.is_empty() => format!("\n{text}"),
        _ => String::new(),
    }
}

pub(super) fn spawn_logged(testbed: &dyn Testbed, host: &str, mut command: Command, log: &Path) -> io::Result<Process> {
    let out = OpenOptions::new().create(true).append(true).open(log)?;
    command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
    Process::start(testbed, host, command)
}
