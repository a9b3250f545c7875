//! One measurement: a server, a tool, a clock, a comparison.
//!
//! fresh directory -> server -> tool under its deadline -> copy compared -> network asked.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Instant, SystemTime};

use super::commands::{command_line, tail_of, write_files};
use super::data::DataSet;
use super::identity::Identity;
use super::intervals::Watch;
use super::matrix::Point;
use super::process::{End, Process};
use super::rival::{Check, RivalSpec, ServerSpec};
use super::rivals::Rivals;
use super::sample::Sample;
use super::sent_again::SegmentCounters;
use super::server::{Place, Server, free_port};
use super::spec::{ExperimentSpec, ToolSpec};
use super::template::Scope;
use super::testbed::Testbed;
use crate::limits;

pub(super) struct Attempt<'a> {
    pub(super) spec: &'a ExperimentSpec,
    pub(super) rivals: &'a Rivals,
    pub(super) rival: &'a RivalSpec,
    pub(super) server: Option<&'a ServerSpec>,
    pub(super) tool: &'a ToolSpec,
    pub(super) point: &'a Point,
    pub(super) repetition: u32,
    pub(super) data: &'a DataSet,
    pub(super) testbed: &'a dyn Testbed,
    pub(super) identity: &'a Identity,
    /// The directory is removed after this measurement.
    pub(super) work: PathBuf,
}

enum Trouble {
    Failed(String),
    Cancelled,
}

impl Attempt<'_> {
    pub(super) fn measure(&self, cancelled: &dyn Fn() -> bool) -> Option<Sample> {
        let mut sample = self.empty_sample();
        let result = self.prepare().map_err(|error| Trouble::Failed(format!("no directory for it: {error}")));
        let result = result.and_then(|()| self.run(&mut sample, cancelled));
        if let Err(error) = remove_dir(&self.work) {
            sample.why.get_or_insert_with(|| format!("its directory could not be removed: {error}"));
        }
        match result {
            Err(Trouble::Cancelled) => return None,
            Err(Trouble::Failed(why)) => sample.why = Some(why),
            Ok(()) => {}
        }
        // Asking in any case keeps the fault out of the next sample.
        if let Some(fault) = self.testbed.fault() {
            sample.why.get_or_insert(fault);
        }
        sample.valid = sample.why.is_none();
        Some(sample)
    }

    fn empty_sample(&self) -> Sample {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Sample {
            point: self.point.clone(),
            tool: self.tool.label().to_owned(),
            repetition: self.repetition,
            warm_up: self.repetition < self.spec.warm_up,
            engine: self.testbed.engine().to_owned(),
            unix_s: now.as_secs(),
            seconds: None,
            bytes: self.data.bytes,
            rate_mbit_per_s: None,
            others_mbit_per_s: None,
            marked_mb: None,
            sent_again: None,
            class_changes: Vec::new(),
            cpu_client_s: None,
            cpu_server_s: None,
            verified: None,
            exit: None,
            valid: false,
            why: None,
            intervals: Vec::new(),
            output: None,
        }
    }

    /// Servers without rights must be able to use the directories.
    fn prepare(&self) -> io::Result<()> {
        remove_dir(&self.work)?;
        fs::create_dir_all(&self.work)?;
        for (name, mode) in [("", 0o755), ("target", 0o777), ("server", 0o755), ("home", 0o755), ("empty", 0o555)] {
            let dir = self.work.join(name);
            fs::create_dir_all(&dir)?;
            fs::set_permissions(&dir, fs::Permissions::from_mode(mode))?;
        }
        Ok(())
    }

    fn run(&self, sample: &mut Sample, cancelled: &dyn Fn() -> bool) -> Result<(), Trouble> {
        let (client_host, server_host) = match self.rival.fetches {
            true => (&self.spec.to, &self.spec.from),
            false => (&self.spec.from, &self.spec.to),
        };
        let scope = self.scope(server_host).map_err(Trouble::Failed)?;
        write_files(&self.rival.files, &scope).map_err(|error| Trouble::Failed(error.to_string()))?;
        self.write_list(&scope)?;
        let log = self.work.join("server.log");
        let server = match self.server {
            Some(spec) => {
                let place = Place {
                    testbed: self.testbed,
                    host: server_host,
                    rivals: self.rivals,
                    setup_wrap: &self.identity.wrap,
                    wrap: &self.wrap(),
                    directory: &self.work.join("server"),
                    log: &log,
                };
                Some(Server::start(spec, &place, &scope).map_err(Trouble::Failed)?)
            }
            None => None,
        };
        let server_cpu_s = server.as_ref().map_or(0.0, Server::cpu_s);
        let mut command = self.command(&scope).map_err(Trouble::Failed)?;
        let out = self.work.join("out");
        let err = self.work.join("err");
        let failed = |error: io::Error| self.not_run(&error);
        command.stdin(Stdio::null());
        command.stdout(File::create(&out).map_err(failed)?).stderr(File::create(&err).map_err(failed)?);
        let end = self.run_client(client_host, command, sample, cancelled)?;
        sample.cpu_server_s = server.as_ref().map(|server| (server.cpu_s() - server_cpu_s).max(0.0));
        drop(server);
        let output = || format!("{}{}{}", tail_of(&err), tail_of(&out), tail_of(&log)).trim().to_owned();
        match end {
            End::Cancelled => return Err(Trouble::Cancelled),
            End::TimedOut => {
                sample.output = Some(output());
                return Err(Trouble::Failed(format!("still running after {}, killed", self.spec.timeout)));
            }
            End::Exited { status, cpu_s } => {
                sample.cpu_client_s = Some(cpu_s);
                sample.exit = status.code();
                if !status.success() {
                    sample.output = Some(output());
                    return Err(Trouble::Failed(match (status.code(), status.signal()) {
                        (Some(code), _) => format!("exit status {code}"),
                        (None, Some(signal)) => format!("killed by signal {signal}"),
                        (None, None) => "it did not end well".into(),
                    }));
                }
            }
        }
        self.check(sample).and_then(|()| self.rate(sample, &out)).inspect_err(|_| sample.output = Some(output()))
    }

    fn run_client(
        &self,
        host: &str,
        command: Command,
        sample: &mut Sample,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<End, Trouble> {
        let failed = |error: io::Error| self.not_run(&error);
        self.lead(cancelled)?;
        let unread =
            |error: io::Error| Trouble::Failed(format!("what {} receives was not read: {error}", self.spec.to));
        let watch = match (self.spec.intervals, self.testbed.counters(&self.spec.to)) {
            (Some(every), Some(counters)) => Some(Watch::start(counters, every.0).map_err(unread)?),
            (Some(_), None) => return Err(unread(io::Error::other("it has no counters"))),
            (None, _) => None,
        };
        let others = self.testbed.bytes_of_others();
        let segments = self.testbed.counters(&self.spec.from).and_then(|counters| SegmentCounters::beside(&counters));
        let before = segments.as_ref().and_then(SegmentCounters::read);
        let started = Instant::now();
        self.testbed.begin().map_err(failed)?;
        let mut process = Process::start(self.testbed, host, command).map_err(failed)?;
        let end = process.wait(self.spec.timeout.0, cancelled).map_err(failed)?;
        let seconds = started.elapsed().as_secs_f64();
        sample.seconds = Some(seconds);
        sample.others_mbit_per_s = others
            .zip(self.testbed.bytes_of_others())
            .map(|(before, now)| now.saturating_sub(before) as f64 * 8.0 / 1e6 / seconds.max(1e-9));
        let after = segments.as_ref().and_then(SegmentCounters::read);
        sample.sent_again = before.zip(after).and_then(|(before, after)| after.share_since(before));
        if let Some(watch) = watch {
            sample.intervals = watch.finish().map_err(unread)?;
        }
        Ok(end)
    }

    fn lead(&self, cancelled: &dyn Fn() -> bool) -> Result<(), Trouble> {
        let until = Instant::now() + self.spec.lead.0;
        loop {
            if cancelled() {
                return Err(Trouble::Cancelled);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(limits::CANCEL_LOOK_EVERY));
        }
    }

    fn not_run(&self, error: &io::Error) -> Trouble {
        Trouble::Failed(format!("{} could not be run: {error}", self.tool.label()))
    }

    fn scope(&self, server_host: &str) -> Result<Scope, String> {
        let mut scope = self.point.scope();
        let text = |path: &Path| path.display().to_string();
        let address =
            self.testbed.address(server_host).ok_or_else(|| format!("the host {server_host} has no address"))?;
        let port = free_port().map_err(|error| format!("no free port: {error}"))?;
        let mut second = free_port().map_err(|error| format!("no free port: {error}"))?;
        if second == port {
            // The kernel may hand out the same port again.
            second = port.checked_sub(1).unwrap_or(port);
        }
        scope.set("server", address.to_string());
        scope.set("server_name", server_host);
        scope.set("port", port.to_string());
        scope.set("port2", second.to_string());
        scope.set("work", text(&self.work));
        scope.set("target", text(&self.work.join("target")));
        scope.set("server_dir", text(&self.work.join("server")));
        scope.set("list", text(&self.work.join("list")));
        scope.set("data", text(&self.data.path()));
        scope.set("data_dir", text(&self.data.dir));
        scope.set("data_bytes", self.data.bytes.to_string());
        scope.set("file", self.data.names.first().map_or("", String::as_str));
        scope.set("files", self.data.names.len().to_string());
        scope.set("repetition", self.repetition.to_string());
        scope.set("user", &self.identity.user);
        for need in self.rival.needs.iter().chain(self.server.iter().flat_map(|server| &server.needs)) {
            if let Some(path) = self.rivals.program(&need.program) {
                scope.set(format!("program.{}", need.program), text(&path));
            }
        }
        let mut variables = BTreeMap::new();
        if let Some(server) = self.server {
            variables.extend(&server.variables);
            if self.identity.is_root {
                variables.extend(&server.variables_as_root);
            }
        }
        variables.extend(&self.rival.variables);
        variables.extend(&self.tool.vars);
        let outer = scope.clone();
        for (name, value) in variables {
            scope.set(name, outer.fill(&value.0).map_err(|error| format!("the variable {name}: {error}"))?);
        }
        Ok(scope)
    }

    fn write_list(&self, scope: &Scope) -> Result<(), Trouble> {
        let Some(line) = &self.rival.list else { return Ok(()) };
        let mut scope = scope.clone();
        let mut text = String::new();
        for name in &self.data.names {
            scope.set("file", name);
            text.push_str(&scope.fill(line).map_err(|error| Trouble::Failed(error.to_string()))?);
        }
        fs::write(self.work.join("list"), text).map_err(|error| Trouble::Failed(format!("no list of files: {error}")))
    }

    fn command(&self, scope: &Scope) -> Result<Command, String> {
        let words = match (&self.rival.command_many, self.data.names.len()) {
            (Some(many), 2..) => many,
            _ => &self.rival.command,
        };
        let words = scope.fill_command(words, &self.tool.args).map_err(|error| error.to_string())?;
        let mut command = command_line(&words, &self.wrap(), self.rivals)?;
        command.current_dir(&self.work);
        // The user's own settings stay unread.
        let home = self.work.join("home");
        command.env("HOME", &home).env("XDG_CONFIG_HOME", home.join("config")).env("LC_ALL", "C");
        command.env("XDG_CACHE_HOME", home.join("cache")).env("XDG_STATE_HOME", home.join("state"));
        command.env("XDG_DATA_HOME", home.join("data")).env_remove("SSH_AUTH_SOCK");
        for (name, value) in &self.rival.env {
            command.env(name, scope.fill(value).map_err(|error| error.to_string())?);
        }
        Ok(command)
    }

    fn wrap(&self) -> Vec<String> {
        [&self.identity.wrap[..], &self.tool.wrap].concat()
    }

    fn check(&self, sample: &mut Sample) -> Result<(), Trouble> {
        if self.tool.check.unwrap_or(self.rival.check) == Check::None {
            return Ok(());
        }
        let compared = self.data.compare(&self.work.join("target"));
        let compared = compared.unwrap_or_else(|error| Err(format!("the copy could not be read: {error}")));
        sample.verified = Some(compared.is_ok());
        compared.map_err(Trouble::Failed)
    }

    fn rate(&self, sample: &mut Sample, out: &Path) -> Result<(), Trouble> {
        sample.marked_mb =
            self.rival.marked_bytes_json.as_ref().and_then(|path| json_number(out, path)).map(|bytes| bytes / 1e6);
        if let Some(path) = &self.rival.seconds_json {
            let seconds = json_number(out, path);
            sample.seconds = Some(seconds.ok_or_else(|| Trouble::Failed(format!("its output has no number {path}")))?);
        }
        let changes = self.rival.class_changes_json.as_ref().and_then(|path| json_value(out, path));
        sample.class_changes = changes.and_then(|value| serde_json::from_value(value).ok()).unwrap_or_default();
        sample.rate_mbit_per_s = match &self.rival.rate_json {
            None => sample.seconds.map(|seconds| sample.bytes as f64 * 8.0 / seconds / 1e6),
            Some(path) => {
                let rate = json_number(out, path);
                let rate = rate.ok_or_else(|| Trouble::Failed(format!("its output has no number {path}")))?;
                let bits = if path.ends_with("bytes_per_s") { 8.0 } else { 1.0 };
                Some(rate * bits / 1e6)
            }
        };
        Ok(())
    }
}

fn json_number(path: &Path, names: &str) -> Option<f64> {
    json_value(path, names)?.as_f64()
}

fn json_value(path: &Path, names: &str) -> Option<serde_json::Value> {
    let mut text = String::new();
    File::open(path).ok()?.take(limits::OUTPUT_PARSED_BYTES).read_to_string(&mut text).ok()?;
    let json: serde_json::Value = serde_json::from_str(&text).ok()?;
    names.split('.').try_fold(&json, |value, name| value.get(name)).cloned()
}

/// Removes a directory, in which a killed server may still write.
fn remove_dir(dir: &Path) -> io::Result<()> {
    const TRIES: u32 = 3;
    let mut result = Ok(());
    for _ in 0..TRIES {
        result = fs::remove_dir_all(dir);
        match &result {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(_) => std::thread::yield_now(),
            Ok(()) => return Ok(()),
        }
    }
    result
}
