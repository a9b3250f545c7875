//! `haul cp --batch`: many jobs in turn. Those between the same two ends share a session.

pub mod flags;
mod lines;

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime};

use clap::FromArgMatches as _;
use haul_job::{Error, Fault, Job, Observer, Report};
use haul_transfer::{Session, Surroundings};
use serde::Serialize;

use crate::config::settings::{self, Refused};
use crate::cp::batch::lines::BatchLine;
use crate::cp::carry::{Carry, Done, carry_out};
use crate::cp::flags::Cp;
use crate::cp::job;
use crate::cp::on_end::OnEnd;
use crate::cp::view::View;
use crate::flags::filters::{self, Filter};
use crate::json::line::to_line;
use crate::json::values;
use crate::process::{ending, output, signals};
use crate::text::failure;
use crate::text::figures::{bytes, counted, duration};

/// Open sessions wait for a further job; a daemon lets one key have a few.
const OPEN_MAX: usize = 4;

pub fn run(typed: &Cp, definitions: fn() -> clap::Command) -> ExitCode {
    haul_transfer::hide_memory();
    let mut lines = Lines { argv: std::env::args_os().collect(), definitions, commands: HashMap::new() };
    let (jobs, stops_at) = match lines.jobs(typed).and_then(|jobs| Ok((jobs, typed.stops.at()?))) {
        Ok(both) => both,
        Err(error) => {
            View::new(typed, None).close_with(&error);
            return ExitCode::from(failure::of_fault(error.fault).code);
        }
    };
    let (interrupted, started) = (signals::watch(), Instant::now());
    let mut pool = Pool { surroundings: Surroundings::of_process(), open: Vec::new(), reached: HashSet::new() };
    let mut sum = Sum { jobs: jobs.len(), ..Sum::default() };
    for (line, job) in &jobs {
        let is_time_over = stops_at.is_some_and(|at| SystemTime::now() >= at);
        if is_time_over || interrupted.load(Ordering::Relaxed) {
            sum.worst(failure::of_fault(Fault::Interrupted).code);
            break;
        }
        let typed = lines.command(line);
        let on_end = match OnEnd::of(typed) {
            Ok(on_end) => Arc::new(on_end),
            Err(error) => return ending::failed(&error, typed.json),
        };
        let view = Arc::new(View::new(typed, Some(line.number)));
        let known = pool.knows(job);
        let mut run = |job: &Job, observer| pool.run(job, observer);
        let (on_end, interrupted) = (&on_end, Arc::clone(&interrupted));
        let carry = Carry { typed, on_end, interrupted, stops_at, known, run: &mut run };
        match carry_out(job, &view, carry) {
            Ok(done) => sum.add(&done),
            Err(error) => {
                view.close_with(&error);
                let code = failure::of_fault(error.fault).code;
                on_end.ended(Err(&error), code, None);
                sum.worst(code);
            }
        }
        on_end.finish();
    }
    drop(pool);
    sum.tell(typed, started);
    ExitCode::from(sum.code)
}

/// Reads each line as a command with the settings of its hosts.
struct Lines {
    argv: Vec<OsString>,
    definitions: fn() -> clap::Command,
    /// By hosts, which alone decide the file's settings.
    commands: HashMap<Vec<String>, (Box<Cp>, Vec<Filter>)>,
}

impl Lines {
    /// All jobs, so a bad one is found before any copy.
    fn jobs(&mut self, typed: &Cp) -> Result<Vec<(BatchLine, Job)>, Error> {
        if !typed.paths.is_empty() {
            return Err(Error::new(Fault::Usage, "with --batch, sources and targets stand in its file")
                .try_this("haul cp [OPTIONS] --batch FILE"));
        }
        let file = typed.batch.batch.as_deref().expect("it was asked for");
        let lines = lines::parse(&job::read_batch(file)?)?;
        let job = |line: BatchLine| {
            let job = self.job(&line).map_err(|error| line.explain(error))?;
            Ok((line, job))
        };
        lines.into_iter().map(job).collect()
    }

    fn job(&mut self, line: &BatchLine) -> Result<Job, Error> {
        let hosts = settings::hosts_of(&line.paths);
        if !self.commands.contains_key(&hosts) {
            let words = line.paths.iter().cloned();
            let argv = self.argv.iter().cloned().chain(["--".into()]).chain(words);
            let command = self.parse(argv.collect()).map_err(|refused| match refused {
                Refused::Settings { error, .. } => error,
                Refused::CommandLine(error) => Error::new(Fault::Usage, error.to_string()),
            })?;
            self.commands.insert(hosts.clone(), command);
        }
        let (cp, filters) = self.commands.get_mut(&hosts).expect("it was parsed");
        cp.paths.clone_from(&line.paths);
        job::from_typed(cp, filters)
    }

    fn parse(&self, argv: Vec<OsString>) -> Result<(Box<Cp>, Vec<Filter>), Refused> {
        let matches = settings::matches(argv, (self.definitions)())?;
        let of_cp = matches.subcommand_matches("cp").expect("it is a copy");
        let cp = Cp::from_arg_matches(of_cp).map_err(Refused::CommandLine)?;
        Ok((Box::new(cp), filters::of_command(&matches)))
    }

    fn command(&mut self, line: &BatchLine) -> &Cp {
        let (cp, _) = self.commands.get_mut(&settings::hosts_of(&line.paths)).expect("it was parsed");
        cp.paths.clone_from(&line.paths);
        cp
    }
}

struct Pool {
    surroundings: Surroundings,
    open: Vec<Session>,
    reached: HashSet<String>,
}

impl Pool {
    fn knows(&self, job: &Job) -> bool {
        self.reached.contains(&ends(job))
    }

    fn run(&mut self, job: &Job, observer: Arc<dyn Observer>) -> Result<Report, Error> {
        let mut session = match self.open.iter_mut().position(|session| session.takes(job)) {
            Some(at) => self.open.remove(at),
            None => {
                // A lost session makes room for a new one to the same host.
                self.open.retain_mut(|session| !session.is_over());
                haul_transfer::open(job, &self.surroundings, Arc::clone(&observer))?
            }
        };
        self.reached.insert(ends(job));
        let report = session.run(job, observer);
        if !session.is_over() {
            self.open.push(session);
        }
        if self.open.len() > OPEN_MAX {
            self.open.remove(0).close();
        }
        report
    }
}

fn ends(job: &Job) -> String {
    let source = job.sources.first().map(|source| source.place.to_string()).unwrap_or_default();
    format!("{source} {}", job.target.place)
}

#[derive(Default)]
struct Sum {
    jobs: usize,
    done: usize,
    files_moved: u64,
    files_kept: u64,
    bytes_moved: u64,
    failed: u64,
    code: u8,
}

#[derive(Serialize)]
struct SumLine {
    event: &'static str,
    jobs: usize,
    jobs_done: usize,
    files_moved: u64,
    files_kept: u64,
    failed: u64,
    bytes_moved: u64,
    exit_code: u8,
    result: &'static str,
    at_s: f64,
}

impl Sum {
    fn add(&mut self, done: &Done) {
        self.done += usize::from(done.code == 0);
        if let Some(report) = &done.report {
            self.files_moved += report.files_moved;
            self.files_kept += report.files_kept;
            self.bytes_moved += report.bytes_moved;
            self.failed += report.failed;
        }
        self.worst(done.code);
    }

    /// Keeps the worse code, the first of equals.
    fn worst(&mut self, code: u8) {
        if weight(code) > weight(self.code) {
            self.code = code;
        }
    }

    fn tell(&self, typed: &Cp, started: Instant) {
        if typed.json {
            output::say(to_line(&SumLine {
                event: "batch",
                jobs: self.jobs,
                jobs_done: self.done,
                files_moved: self.files_moved,
                files_kept: self.files_kept,
                failed: self.failed,
                bytes_moved: self.bytes_moved,
                exit_code: self.code,
                result: failure::name_of_code(self.code),
                at_s: values::seconds(started.elapsed()),
            }));
        } else if !typed.quiet {
            output::say(format!("{}\n", self.text(started.elapsed())));
        }
    }

    fn text(&self, elapsed: std::time::Duration) -> String {
        let jobs = match self.done == self.jobs {
            true => counted(self.jobs as u64, "job", "jobs"),
            false => format!("{} of {}", self.done, counted(self.jobs as u64, "job", "jobs")),
        };
        let files = counted(self.files_moved, "file", "files");
        format!("{jobs} done: copied {files}, {} in {}", bytes(self.bytes_moved), duration(elapsed))
    }
}

/// An interruption is worst, because jobs were not tried; then errors that ended a job, then missing entries.
fn weight(code: u8) -> u8 {
    match failure::name_of_code(code) {
        "ok" => 0,
        "vanished" => 1,
        "partial" => 2,
        "interrupted" => 4,
        _ => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_is_that_of_the_worst_job() {
        let code = |codes: &[u8]| {
            let mut sum = Sum::default();
            codes.iter().for_each(|code| sum.worst(*code));
            sum.code
        };
        assert_eq!(code(&[0, 0]), 0);
        assert_eq!(code(&[0, 24, 23, 0]), 23);
        assert_eq!(code(&[23, 11, 10, 24]), 11);
        assert_eq!(code(&[11, 20]), 20);
    }

    #[test]
    fn the_sum_says_how_many_jobs_are_done() {
        let elapsed = std::time::Duration::from_secs(3);
        let sum = Sum { jobs: 3, done: 3, files_moved: 12, bytes_moved: 3_000_000, ..Sum::default() };
        assert_eq!(sum.text(elapsed), "3 jobs done: copied 12 files, 2.86 MiB in 3.00 s");
        let sum = Sum { jobs: 3, done: 2, ..Sum::default() };
        assert!(sum.text(elapsed).starts_with("2 of 3 jobs done: copied 0 files"), "{}", sum.text(elapsed));
    }
}
