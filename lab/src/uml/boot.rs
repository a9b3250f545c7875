//! Boots a kernel as a child process, and attends it.

use std::fs::{self, File};
use std::io::{Read as _, Write};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::error::UmlError;
use super::job::{self, GuestStatus, LastWord};
use super::private::PrivateDirectory;
use super::run::{Clock, RunInUml};
use crate::limits;

/// Hidden subcommand that starts the kernel, and ends it with this program: [`keep_kernel`].
pub const KERNEL_SUBCOMMAND: &str = "uml-kernel";
/// Hidden subcommand of the guest's process 1 and its child: [`super::guest::main`].
pub const GUEST_SUBCOMMAND: &str = "uml-guest";

pub(super) fn run(
    what: &RunInUml,
    stop: &AtomicBool,
    stdout: &mut dyn Write,
    stderr: &mut dyn Write,
) -> Result<GuestStatus, UmlError> {
    let private = PrivateDirectory::make(what.memory.bytes)?;
    let directory = private.path();
    what.job.write(directory)?;
    for name in [job::STDOUT, job::STDERR, job::CONSOLE] {
        let path = directory.join(name);
        File::create(&path).map_err(UmlError::io(format!("make {}", path.display())))?;
    }
    let arguments = command_line(&what.program, what.clock, what.memory.bytes, directory)?;
    let mut kernel = Kernel::start(what, directory, &arguments)?;
    let mut outputs = [Tail::open(directory, job::STDOUT)?, Tail::open(directory, job::STDERR)?];
    let deadline = Instant::now() + what.limit;
    let ended = loop {
        let ended = kernel.has_ended()?;
        let [out, err] = &mut outputs;
        // The output may grow until the end, so the child is checked first.
        out.copy(stdout)?;
        err.copy(stderr)?;
        match ended {
            Some(status) => break status,
            None if stop.load(Ordering::Relaxed) => return Err(UmlError::Interrupted),
            None if Instant::now() >= deadline => return Err(UmlError::TooLong(what.limit)),
            None => thread::sleep(limits::UML_POLL),
        }
    };
    match LastWord::read(directory) {
        Some(LastWord::Ended(status)) => Ok(status),
        Some(LastWord::GaveUp(reason)) => Err(UmlError::Guest(reason)),
        None => Err(no_status(&what.kernel, ended, directory)),
    }
}

/// The process between boot and kernel: after a killed boot, it kills the kernel and removes the private directory.
/// `arguments`: clock, directory, kernel, the kernel's own.
pub fn keep_kernel(arguments: &[String]) -> Result<u8, UmlError> {
    let [clock, directory, kernel, arguments @ ..] = arguments else {
        return Err(UmlError::Refused { what: KERNEL_SUBCOMMAND.into(), why: "is for internal use".into() });
    };
    if clock == REAL {
        // In real time, the host's work delays the guest's links.
        let _ = rustix::process::setpriority_process(None, limits::MOST_URGENT);
    }
    let mut child = Command::new(kernel)
        .args(arguments)
        .stdin(Stdio::null())
        // Some of the kernel's helpers, in its group, survive it.
        .process_group(0)
        .spawn()
        .map_err(UmlError::io(format!("start the kernel {kernel}")))?;
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let kill = move || {
        if let Some(group) = group {
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
    };
    let (orphaned, was_orphaned) = mpsc::channel();
    thread::spawn(move || {
        // Boot never writes: this returns when boot ends.
        let _ = std::io::stdin().read(&mut [0]);
        let _ = orphaned.send(());
        kill();
    });
    let status = child.wait().map_err(UmlError::io("wait for the kernel"))?;
    kill();
    if was_orphaned.try_recv().is_ok() {
        let _ = fs::remove_dir_all(directory);
    }
    Ok(match (status.code(), status.signal()) {
        (Some(code), _) => GuestStatus::Exited(code),
        (None, signal) => GuestStatus::Killed(signal.unwrap_or(0)),
    }
    .code())
}

/// Words behind `--` are process 1's arguments; the kernel appends `console=`.
fn command_line(program: &Path, clock: Clock, bytes: u64, directory: &Path) -> Result<Vec<String>, UmlError> {
    let program = word("the path of haul-lab", program)?;
    let directory = word("the private directory", directory)?;
    let mut line: Vec<String> = [
        "root=/dev/root",
        "rootfstype=hostfs",
        "rootflags=/",
        "rw",
        "quiet",
        "con=null",
        "con0=null,fd:1",
        "seccomp=auto",
    ]
    .map(str::to_owned)
    .to_vec();
    line.push(format!("mem={}M", bytes >> 20));
    line.push(format!("uml_dir={directory}/"));
    if let Clock::Virtual { start_s } = clock {
        line.push("time-travel=inf-cpu".into());
        line.push(format!("time-travel-start={}", start_s.saturating_mul(1_000_000_000)));
    }
    line.push(format!("init={program}"));
    line.extend(["--".into(), GUEST_SUBCOMMAND.into(), directory.to_owned()]);
    let length: usize = line.iter().map(|word| word.len() + 1).sum();
    // The kernel adds its own ` console=tty0`.
    if length + 16 > limits::MAX_UML_COMMAND_LINE_BYTES {
        let why = format!("it takes {length} bytes; a kernel reads {}", limits::MAX_UML_COMMAND_LINE_BYTES);
        return Err(UmlError::Refused { what: "the kernel's command line".into(), why });
    }
    Ok(line)
}

/// The kernel splits at spaces, and process 1 must lie outside the guest's own file systems.
fn word<'a>(what: &str, path: &'a Path) -> Result<&'a str, UmlError> {
    match path.to_str() {
        Some(text) if text.starts_with('/') && !text.contains(|c: char| c.is_whitespace() || c == '"') => Ok(text),
        _ => Err(UmlError::Refused {
            what: format!("{what}, {}", path.display()),
            why: "a kernel takes only absolute paths of plain letters: put it elsewhere".into(),
        }),
    }
}

struct Kernel {
    child: Child,
    ended: Option<ExitStatus>,
}

impl Kernel {
    fn start(what: &RunInUml, directory: &Path, arguments: &[String]) -> Result<Kernel, UmlError> {
        let console = directory.join(job::CONSOLE);
        let open = || {
            let file = fs::OpenOptions::new().append(true).open(&console);
            file.map_err(UmlError::io(format!("open {}", console.display())))
        };
        let child = Command::new(&what.program)
            .arg(KERNEL_SUBCOMMAND)
            .arg(if what.clock == Clock::Real { REAL } else { "virtual" })
            .arg(directory)
            .arg(&what.kernel)
            .args(arguments)
            .env_clear()
            .env("TMPDIR", directory)
            .stdin(Stdio::piped())
            .stdout(open()?)
            .stderr(open()?)
            .process_group(0)
            .spawn()
            .map_err(UmlError::io(format!("start {}", what.program.display())))?;
        Ok(Kernel { child, ended: None })
    }

    fn has_ended(&mut self) -> Result<Option<ExitStatus>, UmlError> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().map_err(UmlError::io("wait for the kernel"))?;
        }
        Ok(self.ended)
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // The end of its input ends the keeper.
        drop(self.child.stdin.take());
        let until = Instant::now() + limits::UML_STOP_TIME;
        while Instant::now() < until && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(limits::UML_POLL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Tail {
    file: File,
    path: PathBuf,
}

impl Tail {
    fn open(directory: &Path, name: &str) -> Result<Tail, UmlError> {
        let path = directory.join(name);
        let file = File::open(&path).map_err(UmlError::io(format!("open {}", path.display())))?;
        Ok(Tail { file, path })
    }

    fn copy(&mut self, to: &mut dyn Write) -> Result<(), UmlError> {
        let mut buffer = vec![0; limits::UML_OUTPUT_BYTES];
        loop {
            let count = self.file.read(&mut buffer).map_err(UmlError::io(format!("read {}", self.path.display())))?;
            if count == 0 {
                return to.flush().map_err(UmlError::io("write the command's output"));
            }
            to.write_all(&buffer[..count]).map_err(UmlError::io("write the command's output"))?;
        }
    }
}

fn no_status(kernel: &Path, ended: ExitStatus, directory: &Path) -> UmlError {
    let console = fs::read(directory.join(job::CONSOLE)).unwrap_or_default();
    let console = String::from_utf8_lossy(&console);
    let lines: Vec<&str> = console.lines().collect();
    let last = lines[lines.len().saturating_sub(limits::UML_CONSOLE_LINES)..].join("\n");
    let how = match (ended.code(), ended.signal()) {
        (Some(code @ 129..), _) => format!("signal {}", code - 128),
        (Some(code), _) => format!("status {code}"),
        (None, signal) => format!("its keeper by signal {}", signal.unwrap_or(0)),
    };
    let hint = match &*console {
        text if text.contains("Out of memory") || text.contains("oom-kill") => "give it more memory",
        text if text.contains("No working init") || text.contains("Requested init") => {
            "haul-lab must be a program that the guest can read: not below /dev or /run"
        }
        text if text.contains("error while loading") || text.contains("Exec format") => {
            "is it a User Mode Linux kernel?"
        }
        _ => "is it a User Mode Linux kernel, and may programs be traced here (ptrace)?",
    };
    UmlError::NoStatus { kernel: kernel.display().to_string(), how, console: last, hint }
}

const REAL: &str = "real";

/// The default limit, by the clock on the wall.
pub const DEFAULT_LIMIT: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;

    fn line(clock: Clock) -> String {
        let words = command_line(Path::new("/opt/haul-lab"), clock, 3 << 30, Path::new("/dev/shm/lab-1")).unwrap();
        words.join(" ")
    }

    #[test]
    fn the_kernel_is_told_all_on_one_line() {
        insta::assert_snapshot!(line(Clock::Virtual { start_s: 1_800_000_000 }), @r"root=/dev/root rootfstype=hostfs rootflags=/ rw quiet con=null con0=null,fd:1 seccomp=auto mem=3072M uml_dir=/dev/shm/lab-1/ time-travel=inf-cpu time-travel-start=1800000000000000000 init=/opt/haul-lab -- uml-guest /dev/shm/lab-1");
        assert!(!line(Clock::Real).contains("time-travel"));
    }

    #[test]
    fn a_path_with_a_space_is_refused() {
        let refused = command_line(Path::new("/opt/my lab"), Clock::Real, 2 << 30, Path::new("/dev/shm/lab-1"));
        assert!(refused.unwrap_err().to_string().contains("plain letters"));
    }
}
