//! Runs programs with a deadline, in own process groups, with captured output.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::outcome::Outcome;

/// A program about to run.
#[derive(Clone, Debug)]
pub struct Run {
    program: OsString,
    args: Vec<OsString>,
    namespace: Option<String>,
    environment: Vec<(OsString, OsString)>,
    directory: Option<PathBuf>,
    input: Vec<u8>,
    limit: Duration,
    unread: bool,
}

/// Enough for any step on a busy machine with two cores.
const DEFAULT_LIMIT: Duration = Duration::from_secs(90);

/// By its path: std forks for a name that it must look up, and a fork copies the page tables of all that the tests hold.
const ENV: &str = "/usr/bin/env";

/// Time for descendants that keep the output open.
const DRAIN_LIMIT: Duration = Duration::from_secs(3);
/// A killed program ends at once, unless the kernel has to wait.
const KILLED_LIMIT: Duration = Duration::from_secs(20);

impl Run {
    /// `program` in the test's namespace.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            namespace: None,
            environment: Vec::new(),
            directory: None,
            input: Vec::new(),
            limit: DEFAULT_LIMIT,
            unread: false,
        }
    }

    /// Runs it in a network namespace.
    #[must_use]
    pub fn in_namespace(mut self, name: impl Into<String>) -> Self {
        self.namespace = Some(name.into());
        self
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets a variable, beside `PATH` and `LANG`.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Sets the working directory.
    #[must_use]
    pub fn current_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.directory = Some(dir.into());
        self
    }

    /// Sets standard input.
    #[must_use]
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = bytes.into();
        self
    }

    /// Then the process group is killed and the test fails.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Leaves output unread until [`Running::read_on`], like a pager or paused terminal.
    #[must_use]
    pub fn unread(mut self) -> Self {
        self.unread = true;
        self
    }

    /// Starts it and waits.
    #[track_caller]
    pub fn run(self) -> Outcome {
        self.start().wait()
    }

    /// Starts it.
    #[track_caller]
    pub fn start(self) -> Running {
        // Programs inherit a background job's ignored signals, which must not count.
        let mut words = [ENV, "--default-signal=INT,TERM,HUP"].map(OsString::from).to_vec();
        if let Some(namespace) = &self.namespace {
            words.extend(["ip", "netns", "exec", namespace].map(OsString::from));
        }
        words.push(self.program);
        words.extend(self.args);

        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env_clear().process_group(0);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{path}:/usr/sbin:/sbin")).env("LANG", "C.UTF-8");
        command.envs(self.environment);
        if let Some(dir) = &self.directory {
            command.current_dir(dir);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());

        let line = words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start `{line}`: {error}"));
        let stdin = child.stdin.take();
        let input = self.input;
        // A program that ends early breaks this pipe.
        let feeder = std::thread::spawn(move || stdin.map(|mut pipe| pipe.write_all(&input)));
        let [(stdout_gate, stdout_opened), (stderr_gate, stderr_opened)] = [channel(), channel()];
        let gates = self.unread.then_some([stdout_gate, stderr_gate]);
        let stdout = Capture::of(child.stdout.take(), stdout_opened);
        let stderr = Capture::of(child.stderr.take(), stderr_opened);
        let (limit, start) = (self.limit, Instant::now());
        Running { child, line, limit, start, stdout, stderr, gates, _feeder: feeder, ended: false }
    }
}

/// A running program; dropping it kills its process group.
#[derive(Debug)]
pub struct Running {
    child: Child,
    line: String,
    limit: Duration,
    start: Instant,
    stdout: Capture,
    stderr: Capture,
    gates: Option<[Sender<()>; 2]>,
    _feeder: JoinHandle<Option<std::io::Result<()>>>,
    ended: bool,
}

impl Running {
    /// The process id, and the group's.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Standard output so far.
    pub fn stdout_so_far(&self) -> Vec<u8> {
        self.stdout.bytes()
    }

    /// Standard error so far.
    pub fn stderr_so_far(&self) -> Vec<u8> {
        self.stderr.bytes()
    }

    /// Reads the output left unread, and all further.
    pub fn read_on(&mut self) {
        self.gates = None;
    }

    /// True once it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    /// Waits until `condition` holds, while the program runs.
    #[track_caller]
    pub fn when(&mut self, what: &str, mut condition: impl FnMut(&Running) -> bool) {
        let limit = self.limit;
        let start = Instant::now();
        loop {
            if condition(self) {
                return;
            }
            if self.has_ended() || start.elapsed() > limit {
                let state = if self.has_ended() { "it ended first" } else { "the time is over" };
                panic!(
                    "`{}`: waited for \"{what}\", but {state}\nstdout: {}\nstderr: {}",
                    self.line,
                    String::from_utf8_lossy(&self.stdout.bytes()),
                    String::from_utf8_lossy(&self.stderr.bytes()),
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until `--json` shows this much moved.
    #[track_caller]
    pub fn when_moved(&mut self, bytes: u64) {
        self.when(&format!("{bytes} bytes moved"), |running| {
            crate::outcome::json_lines(&running.stdout_so_far())
                .iter()
                .any(|event| event["event"] == "progress" && event["bytes_moved"].as_u64().is_some_and(|n| n >= bytes))
        });
    }

    /// Signals the program alone.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// Kills its group, like a host's power cut, and waits.
    #[track_caller]
    pub fn kill(mut self) -> Outcome {
        self.kill_group();
        self.wait()
    }

    /// Waits for the end; the time limit kills the group and fails the test.
    #[track_caller]
    pub fn wait(mut self) -> Outcome {
        let status = self.wait_until_limit();
        let (stdout, stderr) = self.drain();
        self.ended = true;
        let outcome = Outcome { line: self.line.clone(), status, stdout, stderr, elapsed: self.start.elapsed() };
        assert!(status.is_some(), "still running after {:?}, killed\n{outcome}", self.limit);
        outcome
    }

    fn wait_until_limit(&mut self) -> Option<ExitStatus> {
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if self.start.elapsed() < self.limit => std::thread::sleep(Duration::from_millis(5)),
                _ => {
                    self.kill_group();
                    return None;
                }
            }
        }
    }

    fn drain(&mut self) -> (Vec<u8>, Vec<u8>) {
        let closed = crate::settle(DRAIN_LIMIT, || self.stdout.is_closed() && self.stderr.is_closed());
        if !closed {
            self.kill_group();
        }
        (self.stdout.bytes(), self.stderr.bytes())
    }

    fn kill_group(&mut self) {
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        }
        // A thread that waits for a file system outlives the signal.
        crate::settle(KILLED_LIMIT, || !matches!(self.child.try_wait(), Ok(None)));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            self.kill_group();
        }
    }
}

#[derive(Debug)]
struct Capture {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Capture {
    /// Reads once the other end of `opened` is closed.
    fn of(pipe: Option<impl Read + Send + 'static>, opened: Receiver<()>) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&bytes);
        let reader = std::thread::spawn(move || {
            let Some(mut pipe) = pipe else { return };
            let _ = opened.recv();
            let mut buffer = [0; 16 * 1024];
            while let Ok(count @ 1..) = pipe.read(&mut buffer) {
                sink.lock().expect("no holder of this lock panics").extend_from_slice(&buffer[..count]);
            }
        });
        Self { bytes, reader }
    }

    fn bytes(&self) -> Vec<u8> {
        self.bytes.lock().expect("no holder of this lock panics").clone()
    }

    fn is_closed(&self) -> bool {
        self.reader.is_finished()
    }
}
