//! `haul bench`: how fast each way of moving bytes is on this host, and its cost.

pub mod flags;
mod json;
mod names;
pub mod text;

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use haul_job::{Error, Fault};
use haul_pump::SendRoute;
use haul_workbench::bench::{self, Amount, Interval, Offset, Request, Sink, Source, Watcher};

use crate::bench::flags::{Bench, WhichOffset};
use crate::process::{ending, output, signals};
use crate::text::failure;

pub fn run(typed: &Bench) -> ExitCode {
    match measured(typed) {
        Ok(Said { text, interrupted }) => {
            output::say(text);
            // The result up to an interruption is printed; the exit code says that it is incomplete.
            if interrupted { ExitCode::from(failure::of_fault(Fault::Interrupted).code) } else { ExitCode::SUCCESS }
        }
        Err(error) => ending::failed(&error, typed.json),
    }
}

struct Said {
    text: String,
    interrupted: bool,
}

impl From<String> for Said {
    fn from(text: String) -> Said {
        Said { text, interrupted: false }
    }
}

fn measured(typed: &Bench) -> Result<Said, Error> {
    let alone = typed.time.map_or(ALONE_TIME, |seconds| Duration::from_secs(seconds.into()));
    if let Some(directory) = &typed.disk {
        let disk = bench::disk(directory, typed.bytes.unwrap_or(ALONE_BYTES), alone)?;
        return Ok(if typed.json { json::disk(directory, &disk) } else { text::disk(directory, &disk) }.into());
    }
    if typed.memory {
        let bytes_per_s = bench::memory(typed.lanes, alone);
        let text = match typed.json {
            true => json::memory(typed.lanes, bytes_per_s),
            false => text::memory(typed.lanes, bytes_per_s),
        };
        return Ok(text.into());
    }
    let request = request(typed);
    let person = Person { interrupted: signals::watch(), lines: !typed.json };
    if person.lines {
        output::say(text::heading(&request));
    }
    let found = bench::run(&request, &person)?;
    let text = if typed.json { json::object(&request, &found) } else { text::summary(&request, &found) };
    Ok(Said { text, interrupted: found.interrupted })
}

fn request(typed: &Bench) -> Request {
    let word = |text: &OsStr, known: &str| text.to_str() == Some(known);
    Request {
        source: match &typed.source {
            text if word(text, "zero") => Source::Zero,
            text if word(text, "memory") => Source::Memory,
            text => Source::File(PathBuf::from(text)),
        },
        sink: match &typed.sink {
            text if word(text, "discard") => Sink::Discard,
            text if word(text, "memory") => Sink::Memory,
            text => Sink::Directory(PathBuf::from(text)),
        },
        send_route: typed.route.or(typed.zero_copy.then_some(SendRoute::Sendfile)),
        receive_route: typed.receive_route,
        block_bytes: typed.length,
        offset: match typed.offset {
            WhichOffset::Fixed => Offset::Fixed,
            WhichOffset::Moving => Offset::Moving,
        },
        lanes: typed.lanes,
        cipher: typed.cipher.cipher(),
        verify: typed.verify,
        amount: match typed.bytes {
            Some(bytes) => Amount::Bytes(bytes),
            None => Amount::Time(Duration::from_secs(typed.time.unwrap_or(DEFAULT_TIME_S).into())),
        },
        interval: Duration::from_secs_f64(typed.interval),
        reverse: typed.reverse,
        congestion_control: typed.cc.clone(),
        processors: typed.affinity,
        size_bytes: typed.size,
        cold: typed.cold,
    }
}

struct Person {
    interrupted: Arc<AtomicBool>,
    lines: bool,
}

impl Watcher for Person {
    fn on_interval(&self, interval: &Interval) {
        if self.lines {
            output::say(text::line(interval));
        }
    }

    fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

/// iperf3's default.
const DEFAULT_TIME_S: u32 = 10;

/// Time for the disk or memory alone, without -t.
const ALONE_TIME: Duration = Duration::from_secs(3);

/// More than a processor's caches hold.
const ALONE_BYTES: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use haul_pump::{Dropped, ReceiveRoute};
    use haul_workbench::bench::{Found, Side, Usage};

    use super::*;
    use crate::commands::{Command, Typed};

    fn typed(line: &[&str]) -> Result<Request, String> {
        let args = ["haul", "bench"].iter().chain(line).map(OsString::from);
        let (typed, _) = Typed::parse_from(args).map_err(|error| error.to_string())?;
        let Command::Bench(bench) = typed.command else { panic!("not a bench") };
        Ok(request(&bench))
    }

    #[test]
    fn letters_mean_what_they_mean_to_iperf3() {
        assert_eq!(typed(&[]).unwrap(), Request::new());
        let got = typed(&["-n", "10G", "-P4", "-R", "-Z", "-l", "1M", "-i", "0.5", "-C", "reno", "-A", "0,1"]).unwrap();
        let expected = Request {
            send_route: Some(SendRoute::Sendfile),
            block_bytes: 1 << 20,
            lanes: 4,
            amount: Amount::Bytes(10 << 30),
            interval: Duration::from_millis(500),
            reverse: true,
            congestion_control: Some("reno".into()),
            processors: Some((0, 1)),
            ..Request::new()
        };
        assert_eq!(got, expected);
        assert_eq!(typed(&["-t", "60"]).unwrap().amount, Amount::Time(Duration::from_secs(60)));
    }

    #[test]
    fn sources_and_sinks_are_words_or_paths() {
        let got = typed(&["--source", "./zero", "--sink", "/tmp", "--route", "splice", "--receive-route", "direct"]);
        let got = got.unwrap();
        assert_eq!((got.source, got.sink), (Source::File("./zero".into()), Sink::Directory("/tmp".into())));
        assert_eq!((got.send_route, got.receive_route), (Some(SendRoute::Splice), Some(ReceiveRoute::Direct)));
        for bad in [
            &["-t", "0"][..],
            &["-t", "1", "-n", "1"],
            &["-l", "1K"],
            &["-l", "65M"],
            &["-P", "0"],
            &["-P", "257"],
            &["-i", "0"],
            &["-i", "NaN"],
            &["-A", "0"],
            &["-A", "-1,0"],
            &["--route", "fast"],
            &["--route", "copy", "-Z"],
            &["--disk", "/", "--memory"],
            &["--disk", "/", "--verify"],
            &["--memory", "-n", "1G"],
            &["--cipher", "rot13"],
        ] {
            assert!(typed(bad).is_err(), "{bad:?}");
        }
    }

    pub fn found() -> (Request, Found) {
        let interval = |start, end, bytes| Interval {
            start: Duration::from_secs_f64(start),
            end: Duration::from_secs_f64(end),
            bytes,
        };
        let request = Request {
            source: Source::File("/data/scan\x1b[2J.vdif".into()),
            sink: Sink::Directory("/raid".into()),
            lanes: 2,
            verify: true,
            ..Request::new()
        };
        let found = Found {
            bytes: 3_000_000_000,
            elapsed: Duration::from_millis(2_000),
            intervals: vec![interval(0.0, 1.0, 1_400_000_000), interval(1.0, 2.0, 1_600_000_000)],
            send: Side {
                route: "splice",
                dropped: vec![Dropped { route: "sendfile", instead: "splice", why: "Invalid argument".into() }],
                usage: Usage { user_us: 480_000, system_us: 240_000 },
            },
            receive: Side { route: "direct", dropped: vec![], usage: Usage { user_us: 450_000, system_us: 900_000 } },
            flush: Some(Duration::from_millis(12)),
            writes_in_flight_max: 3,
            sealed_in_kernel: false,
            opened_in_kernel: false,
            congestion_control: "cubic".into(),
            interrupted: false,
        };
        (request, found)
    }
}
