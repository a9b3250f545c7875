//! `haul status`, `haul stop`, `haul log`.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use haul_job::{Error, Fault};
use serde::Serialize;

use crate::detached::flags::{Log, Status, Stop};
use crate::detached::record::{Copy, Record, Records, START_S};
use crate::detached::worker::now_s;
use crate::figures::{ago, counted};
use crate::printable::printable;
use crate::{ending, failure, json_text, output};

/// `haul status`
pub fn status(typed: &Status) -> ExitCode {
    let shown = every(typed).map(|copies| {
        if typed.json {
            return json_text::line(&Shown { event: "status", copies });
        }
        let now_s = now_s();
        let none = || "no copy goes on by itself: 'haul cp --detach' starts one\n".to_owned();
        if copies.is_empty() { none() } else { copies.iter().map(|copy| text(copy, now_s)).collect() }
    });
    told(shown, typed.json)
}

/// `haul log`
pub fn log(typed: &Log) -> ExitCode {
    let logged = one(typed.id).and_then(|(record, _)| {
        record.logged().map_err(|error| Error::new(Fault::FileIo, "cannot read the log").because(error))
    });
    told(logged, false)
}

/// `haul stop`
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

/// A copy, and whether it lives.
#[derive(Debug, Serialize)]
struct Seen {
    state: State,
    #[serde(flatten)]
    copy: Copy,
}

/// What a copy does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Starting,
    Running,
    /// It broke off and is tried again.
    Waiting,
    Ended,
    /// Its process is gone and has left no word.
    Died,
}

impl State {
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

fn every(typed: &Status) -> Result<Vec<Seen>, Error> {
    if let Some(id) = typed.id {
        let (record, copy) = one(id)?;
        return Ok(vec![seen(&record, copy)]);
    }
    let Some(records) = Records::of_process() else { return Ok(Vec::new()) };
    let ids = records.ids().map_err(|error| Error::new(Fault::FileIo, "cannot list the copies").because(error))?;
    // One that is being made or removed at this moment cannot be read.
    let found = ids.into_iter().filter_map(|id| {
        let record = records.record(id);
        let copy = record.read().ok()?;
        Some(seen(&record, copy))
    });
    Ok(found.collect())
}

fn seen(record: &Record, copy: Copy) -> Seen {
    let is_alive = record.is_alive();
    // It may have ended between the two looks.
    let copy = if is_alive { copy } else { record.read().unwrap_or(copy) };
    Seen { state: State::of(&copy, is_alive, now_s()), copy }
}

fn one(id: u32) -> Result<(Record, Copy), Error> {
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
    let (word, said) = match state {
        State::Starting => ("starting", "connecting".to_owned()),
        State::Running => ("running", so_far.to_owned()),
        State::Waiting => ("waiting", format!("{}; {so_far}", copy.waits.as_deref().unwrap_or_default())),
        State::Ended => copy.ended.as_ref().map_or(("ended", String::new()), |ended| {
            let word = match ended.exit_code {
                0 => "done",
                code if code == failure::of_fault(Fault::Interrupted).code => "stopped",
                _ => "failed",
            };
            (word, format!("{}: {}", ago(ended.at_s), ended.summary))
        }),
        State::Died => ("died", format!("its process is gone; at {so_far}; the same command goes on")),
    };
    let sources = match copy.sources.as_slice() {
        [only] => printable(&only.path),
        many => counted(many.len() as u64, "source", "sources"),
    };
    let mut text = String::new();
    let _ = writeln!(text, "{:>3}  {word:8}  {}", copy.id, printable(&said));
    let _ = writeln!(text, "     {sources} -> {}, begun {}", printable(&copy.target.path), ago(copy.started_at_s));
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
