//! `haul status`, `haul stop`, `haul wait`, `haul log`.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use haul_job::{Error, Fault};
use serde::Serialize;

use crate::detached::flags::{Log, Status, Stop, Wait};
use crate::detached::follow;
use crate::detached::record::{Copy, Record, Records, START_S, now_s};
use crate::json::line::to_line;
use crate::process::{ending, output};
use crate::text::failure;
use crate::text::figures::{ago, bits, counted};
use crate::text::printable::printable;

pub fn status(typed: &Status) -> ExitCode {
    let shown = every(&typed.ids).map(|copies| {
        if typed.json {
            return to_line(&Shown { event: "status", copies });
        }
        let now_s = now_s();
        let none = || "no copy goes on by itself: 'haul cp --detach' starts one\n".to_owned();
        if copies.is_empty() { none() } else { copies.iter().map(|copy| text(copy, now_s)).collect() }
    });
    told(shown, typed.json)
}

pub fn log(typed: &Log) -> ExitCode {
    let logged = one(typed.id).and_then(|(record, _)| {
        let read = match typed.follow {
            false => record.logged(),
            true => follow::log(
                &record,
                || is_over(&record),
                |said| {
                    output::say(said);
                    !output::is_over()
                },
            )
            .map(|()| Vec::new()),
        };
        read.map_err(|error| Error::new(Fault::FileIo, "cannot read the log").because(error))
    });
    told(logged, false)
}

pub fn wait(typed: &Wait) -> ExitCode {
    match waited(typed) {
        Ok(code) => ExitCode::from(code),
        Err(error) => ending::failed(&error, typed.json),
    }
}

/// Returns the exit code of the first failed copy.
fn waited(typed: &Wait) -> Result<u8, Error> {
    let ids: Vec<u32> = match typed.ids.as_slice() {
        [] => every(&[])?.into_iter().filter(|seen| !seen.state.is_over()).map(|seen| seen.copy.id).rev().collect(),
        ids => ids.to_vec(),
    };
    let records = ids.into_iter().map(one).collect::<Result<Vec<_>, Error>>()?;
    let mut over = Vec::new();
    for (record, copy) in records {
        follow::until_over(|| is_over(&record));
        let seen = seen(&record, record.read().unwrap_or(copy));
        if !typed.json {
            output::say(text(&seen, now_s()));
        }
        over.push(seen);
    }
    let code = over.iter().map(Seen::exit_code).find(|code| *code != 0).unwrap_or(0);
    if typed.json {
        output::say(to_line(&Shown { event: "status", copies: over }));
    }
    Ok(code)
}

pub fn is_over(record: &Record) -> bool {
    record.read().map_or(true, |copy| seen(record, copy).state.is_over())
}

pub fn stop(typed: &Stop) -> ExitCode {
    told(stopped(typed.id), false)
}

fn told(said: Result<impl AsRef<[u8]>, Error>, json: bool) -> ExitCode {
    match said {
        Ok(said) => {
            output::say(said);
            ExitCode::SUCCESS
        }
        Err(error) => ending::failed(&error, json),
    }
}

fn stopped(id: u32) -> Result<String, Error> {
    let (record, copy) = one(id)?;
    let Some(pid) = copy.pid.filter(|_| record.is_alive()) else {
        return Err(Error::new(Fault::Usage, format!("copy {id} does not run")).try_this("haul status"));
    };
    haul_transfer::ask_to_end(pid)
        .map_err(|error| Error::new(Fault::FileIo, format!("cannot stop copy {id}")).because(error))?;
    let until = Instant::now() + STOP;
    while record.is_alive() {
        if Instant::now() >= until {
            return Err(Error::new(Fault::Timeout, format!("copy {id} has not ended within {} s", STOP.as_secs()))
                .try_this(format!("haul stop {id} again ends it at once")));
        }
        std::thread::park_timeout(LOOK_EVERY);
    }
    Ok(format!("copy {id} has stopped; the same command goes on where it stopped\n"))
}

#[derive(Serialize)]
struct Shown {
    event: &'static str,
    copies: Vec<Seen>,
}

#[derive(Debug, Serialize)]
struct Seen {
    state: State,
    #[serde(flatten)]
    copy: Copy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Starting,
    Running,
    Waiting,
    Ended,
    Died,
}

impl Seen {
    fn word(&self) -> &'static str {
        let stopped = failure::of_fault(Fault::Interrupted).code;
        match (self.state, self.copy.ended.as_ref().map(|ended| ended.exit_code)) {
            (State::Starting, _) => "starting",
            (State::Running, _) => "running",
            (State::Waiting, _) => "waiting",
            (State::Died, _) => "died",
            (State::Ended, None | Some(0)) => "done",
            (State::Ended, Some(code)) if code == stopped => "stopped",
            (State::Ended, Some(_)) => "failed",
        }
    }

    fn ends(&self) -> String {
        let sources = match self.copy.sources.as_slice() {
            [only] => printable(&only.path),
            many => counted(many.len() as u64, "source", "sources"),
        };
        format!("{sources} -> {}", printable(&self.copy.target.path))
    }

    fn exit_code(&self) -> u8 {
        match (&self.copy.ended, self.state) {
            (Some(ended), _) => ended.exit_code,
            (None, State::Died) => failure::of_fault(Fault::Interrupted).code,
            (None, _) => 0,
        }
    }
}

impl State {
    fn is_over(self) -> bool {
        matches!(self, Self::Ended | Self::Died)
    }

    fn of(copy: &Copy, is_alive: bool, now_s: u64) -> Self {
        let is_young = now_s.saturating_sub(copy.started_at_s) < START_S;
        match copy {
            Copy { ended: Some(_), .. } => Self::Ended,
            Copy { pid: None, .. } if is_young => Self::Starting,
            _ if !is_alive => Self::Died,
            Copy { waits: Some(_), .. } => Self::Waiting,
            Copy { now: None, .. } => Self::Starting,
            _ => Self::Running,
        }
    }
}

fn every(named: &[u32]) -> Result<Vec<Seen>, Error> {
    if !named.is_empty() {
        return named.iter().map(|id| one(*id).map(|(record, copy)| seen(&record, copy))).collect();
    }
    let Some(records) = Records::of_process() else { return Ok(Vec::new()) };
    let ids = records.ids().map_err(|error| Error::new(Fault::FileIo, "cannot list the copies").because(error))?;
    let found = ids.into_iter().filter_map(|id| {
        let record = records.record(id);
        let copy = record.read().ok()?;
        Some(seen(&record, copy))
    });
    Ok(found.collect())
}

pub fn offered() -> Vec<(u32, String)> {
    let all = every(&[]).unwrap_or_default();
    all.iter().map(|seen| (seen.copy.id, format!("{}: {}", seen.word(), seen.ends()))).collect()
}

fn seen(record: &Record, copy: Copy) -> Seen {
    let is_alive = record.is_alive();
    // It may have ended between the two looks.
    let copy = if is_alive { copy } else { record.read().unwrap_or(copy) };
    Seen { state: State::of(&copy, is_alive, now_s()), copy }
}

pub fn one(id: u32) -> Result<(Record, Copy), Error> {
    let missing = || Error::new(Fault::Usage, format!("there is no copy {id}")).try_this("haul status");
    let record = Records::of_process().ok_or_else(missing)?.record(id);
    match record.read() {
        Ok(copy) => Ok((record, copy)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(missing()),
        Err(error) => Err(Error::new(Fault::FileIo, format!("cannot read the record of copy {id}")).because(error)),
    }
}

fn text(seen: &Seen, now_s: u64) -> String {
    let Seen { state, copy } = seen;
    let ago = |at_s: u64| ago(now_s.saturating_sub(at_s));
    let so_far = copy.now.as_ref().map_or("nothing moved yet", |now| now.line.as_str());
    let said = match state {
        State::Starting => "connecting".to_owned(),
        State::Running => so_far.to_owned(),
        State::Waiting => format!("{}; {so_far}", copy.waits.as_deref().unwrap_or_default()),
        State::Ended => {
            copy.ended.as_ref().map_or(String::new(), |ended| format!("{}: {}", ago(ended.at_s), ended.summary))
        }
        State::Died => format!("its process is gone; at {so_far}; the same command goes on"),
    };
    let mut text = String::new();
    let _ = writeln!(text, "{:>3}  {:8}  {}", copy.id, seen.word(), printable(&said));
    let limit = copy.rate.as_ref().and_then(|rate| rate.limit_bytes_per_s).filter(|_| !state.is_over());
    let limit = limit.map(|limit| format!(", at most {}", bits(limit as f64))).unwrap_or_default();
    let _ = writeln!(text, "     {}, begun {}{limit}", seen.ends(), ago(copy.started_at_s));
    text
}

const STOP: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detached::record::tests::copy;
    use crate::detached::record::{Ended, Now};

    fn now() -> Option<Now> {
        Some(Now {
            at_s: 160,
            files_done: 1,
            files_found: 2,
            bytes_moved: 5,
            bytes_kept: 0,
            bytes_found: 10,
            found_all: true,
            failed: 0,
            rate_bytes_per_s: Some(1),
            eta_s: Some(5),
            line: "50 %  0:05 left".to_owned(),
        })
    }

    #[test]
    fn each_state_has_its_line() {
        let running = Copy { id: 3, pid: Some(9), now: now(), ..copy(100) };
        let ended = |exit_code, summary: &str| {
            Some(Ended { at_s: 170, exit_code, result: String::new(), summary: summary.to_owned() })
        };
        let copies = [
            (Copy { id: 1, ..copy(195) }, false),
            (running.clone(), true),
            (Copy { waits: Some("the network is gone".to_owned()), ..running.clone() }, true),
            (Copy { ended: ended(0, "copied 2 files"), ..running.clone() }, false),
            (Copy { ended: ended(28, "no space left"), ..running.clone() }, false),
            (Copy { ended: ended(20, "interrupted"), ..running.clone() }, false),
            (running, false),
        ];
        let lines: String = copies
            .into_iter()
            .map(|(copy, is_alive)| text(&Seen { state: State::of(&copy, is_alive, 200), copy }, 200))
            .collect();
        insta::assert_snapshot!(lines, @r"
        1  starting  connecting
           data/run42 -> host-b:/data, begun 5 s ago
        3  running   50 %  0:05 left
           data/run42 -> host-b:/data, begun 1 min 40 s ago
        3  waiting   the network is gone; 50 %  0:05 left
           data/run42 -> host-b:/data, begun 1 min 40 s ago
        3  done      30 s ago: copied 2 files
           data/run42 -> host-b:/data, begun 1 min 40 s ago
        3  failed    30 s ago: no space left
           data/run42 -> host-b:/data, begun 1 min 40 s ago
        3  stopped   30 s ago: interrupted
           data/run42 -> host-b:/data, begun 1 min 40 s ago
        3  died      its process is gone; at 50 %  0:05 left; the same command goes on
           data/run42 -> host-b:/data, begun 1 min 40 s ago
        ");
    }
}
