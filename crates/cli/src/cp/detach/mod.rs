//! `haul cp --detach`: a copy that goes on when its terminal closes.
//!
//! Judge the command, log in while there is a terminal to ask at, make a record, start the process, and wait until data
//! moves or the copy has ended.

pub mod flags;
mod keeper;
pub mod worker;

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use haul_job::timetable::Timetable;
use haul_job::{Endpoint, Error, Fault, Here, Job, Place};
use haul_transfer::Surroundings;
use serde::Serialize;

use crate::cp::detach::keeper::{Facts, Keeper};
use crate::cp::flags::Cp;
use crate::cp::job;
use crate::detached::record::{self, Copy, RateSaid, Record, Records, SCHEMA};
use crate::flags::filters::Filter;
use crate::json::line::to_line;
use crate::json::values;
use crate::process::{ending, output, signals};

pub fn begin(typed: &Cp, filters: &[Filter]) -> ExitCode {
    match started(typed, filters) {
        Ok(code) => code,
        Err(error) => ending::failed(&error, typed.json),
    }
}

fn started(typed: &Cp, filters: &[Filter]) -> Result<ExitCode, Error> {
    let standard_input = [&typed.exclude_from, &typed.include_from].into_iter().flatten().chain(&typed.files_from);
    if standard_input.chain(&typed.paths).any(|name| name == "-")
        || typed.manifest_out.as_ref().is_some_and(|file| file.as_os_str() == "-")
    {
        return Err(Error::new(Fault::Usage, "a detached copy has neither standard input nor standard output")
            .try_this("name files instead of '-'"));
    }
    let job = job::from_typed(typed, filters)?;
    let records = Records::of_process().ok_or_else(|| {
        Error::new(Fault::Usage, "there is no place for the record of a detached copy").try_this("set HOME")
    })?;
    // ssh asks now, at the terminal.
    haul_transfer::log_in(&job, &Surroundings::of_process())?;
    let interrupted = signals::watch();
    let (record, keeper) = start(&records, &job, &job::asked_rate(typed))?;
    let id = record.read().map_err(lost)?.id;
    let waiting_since = Instant::now();
    loop {
        let copy = record.read().map_err(lost)?;
        if let Some(ended) = copy.ended {
            let said = record.logged().unwrap_or_default();
            if ended.exit_code == 0 {
                output::say(said);
            } else {
                let _ = std::io::stderr().write_all(&said);
            }
            return Ok(ExitCode::from(ended.exit_code));
        }
        let waited = waiting_since.elapsed();
        let has_begun = copy.pid.is_some();
        if has_begun && !record.is_alive() && record.read().map_err(lost)?.ended.is_none()
            || !has_begun && waited > START
        {
            let said = String::from_utf8_lossy(&record.logged().unwrap_or_default()).trim().to_owned();
            return Err(
                Error::new(Fault::FileIo, format!("the process of copy {id} did not begin or died")).because(said)
            );
        }
        if interrupted.load(Ordering::Relaxed) {
            let _ = copy.pid.map(haul_transfer::ask_to_end);
            return Err(Error::new(Fault::Interrupted, "stopped by a signal, before the copy had begun"));
        }
        if copy.now.is_some() || has_begun && waited > CONNECT {
            say(typed, id, keeper, copy.now.is_none());
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::park_timeout(LOOK_EVERY);
    }
}

/// Starts a session where no service can be started.
fn start(records: &Records, job: &Job, asked_rate: &Timetable) -> Result<(Record, Keeper), Error> {
    let has_login = |end: &Endpoint| match &end.place {
        Place::Here(Here::Web(server)) => server.login.is_some(),
        Place::Here(Here::Ftp(server)) => server.login.is_some(),
        _ => false,
    };
    if has_login(&job.sources[0]) || has_login(&job.target) {
        return Err(Error::new(Fault::Usage, "a detached copy takes no login from a URL")
            .because("everybody on this host could read it among the arguments of its process")
            .try_this("put it into ~/.netrc: machine HOST login USER password PASSWORD"));
    }
    let named = |end: &Endpoint| values::named(&end.written());
    let mut keeper = Keeper::choose(&Facts::of_process());
    let now_s = record::now_s();
    let copy = Copy {
        schema: SCHEMA,
        id: 0,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        sources: job.sources.iter().take(SOURCES_KEPT).map(named).collect(),
        target: named(&job.target),
        started_at_s: now_s,
        keeper: keeper.name().to_owned(),
        pid: None,
        rate: Some(RateSaid { asked: asked_rate.text().to_owned(), limit_bytes_per_s: job.carriage.rate_bytes_per_s }),
        now: None,
        waits: None,
        ended: None,
    };
    let (record, mut copy) = records.claim(copy, now_s).map_err(lost)?;
    let failed = |why| Error::new(Fault::FileIo, "cannot start the process of the copy").because(why);
    let program = std::env::current_exe().map_err(failed)?;
    let arguments = keeper::arguments(std::env::args_os(), copy.id);
    if keeper == Keeper::Service && keeper.start(copy.id, &program, &arguments).is_err() {
        keeper = Keeper::Session;
        copy.keeper = keeper.name().to_owned();
        record.write(&copy).map_err(lost)?;
    }
    if keeper == Keeper::Session {
        keeper.start(copy.id, &program, &arguments).map_err(failed)?;
    }
    Ok((record, keeper))
}

fn lost(why: std::io::Error) -> Error {
    Error::new(Fault::FileIo, "cannot keep the record of the copy").because(why)
}

fn say(typed: &Cp, id: u32, keeper: Keeper, is_connecting: bool) {
    #[derive(Serialize)]
    struct Detached {
        event: &'static str,
        id: u32,
        keeper: &'static str,
        connecting: bool,
    }
    if typed.json {
        output::say(to_line(&Detached { event: "detached", id, keeper: keeper.name(), connecting: is_connecting }));
    } else if !typed.quiet {
        let still = if is_connecting { " (it is still connecting)" } else { "" };
        output::say(format!("copy {id} goes on by itself{still}: haul status, haul log {id}, haul stop {id}\n"));
    }
}

const SOURCES_KEPT: usize = 100;
/// A service may take so long to begin.
const START: Duration = Duration::from_secs(record::START_S);
/// The user need not wait longer for a connection.
const CONNECT: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(20);
