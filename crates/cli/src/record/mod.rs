//! `haul record`: a stream into a file, or stripes on several disks, and whether they kept up.

pub mod flags;

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use haul_job::{Error, Fault};
use haul_workbench::bench::Interval;
use haul_workbench::record::{self, FLUSH_EVERY, Input, Recorded, Request, Watcher};
use serde::Serialize;

use crate::bench::text;
use crate::json::line::to_line;
use crate::json::values::{SCHEMA, hex, seconds};
use crate::process::speaker::{Speaker, Word};
use crate::process::{ending, output, signals};
use crate::record::flags::Record;
use crate::text::failure;
use crate::text::figures::{bytes, counted, duration, rate};
use crate::text::printable::printable;

pub fn run(typed: &Record) -> ExitCode {
    let speaker = match Speaker::start(say) {
        Ok(speaker) => speaker,
        Err(error) => {
            let what = "cannot start the thread that prints messages";
            return ending::failed(&Error::new(Fault::FileIo, what).because(error), typed.json);
        }
    };
    let person = Person { interrupted: signals::watch(), lines: !typed.json, speaker };
    let recorded = record::run(&request(typed), &person);
    let listens = person.speaker.finish(|| person.interrupted());
    match recorded {
        Ok(recorded) if !listens => status(&recorded),
        Ok(recorded) => {
            let said = if typed.json { object(&recorded) } else { summary(typed, &recorded) };
            output::say(said);
            status(&recorded)
        }
        Err(error) => ending::failed(&error, typed.json),
    }
}

fn request(typed: &Record) -> Request {
    Request {
        input: typed.listen.map_or(Input::Stdin, Input::Listen),
        path: typed.file.clone(),
        stripe_directories: typed.stripe_dir.clone(),
        reserve_bytes: typed.reserve,
        bytes: typed.bytes,
        buffers: typed.buffers.into(),
        buffer_bytes: typed.length,
        interval: Duration::from_secs_f64(typed.interval),
        flush_every: FLUSH_EVERY,
    }
}

/// A signal is a good end: the stream may have no other.
fn status(recorded: &Recorded) -> ExitCode {
    ExitCode::from(failure::of_recording(recorded.overruns).code)
}

fn summary(typed: &Record, recorded: &Recorded) -> String {
    let mean = recorded.bytes as f64 / recorded.elapsed.as_secs_f64().max(1e-6);
    let path = printable(typed.file.as_os_str().as_bytes());
    let mut text = format!(
        "\n{path}: {} in {} ({}), on the disk {} later, by the route {}\n",
        bytes(recorded.bytes),
        duration(recorded.elapsed),
        rate(mean),
        duration(recorded.flush),
        recorded.route,
    );
    if let Some((index, blake3)) = &recorded.striped {
        let _ = writeln!(
            text,
            "striped over {}, BLAKE3 {}; read it as stripes:{}",
            counted(typed.stripe_dir.len() as u64, "directory", "directories"),
            hex(blake3),
            printable(index.as_os_str().as_bytes())
        );
    }
    let size = bytes(recorded.buffer_bytes as u64);
    let _ =
        writeln!(text, "at most {} of {} buffers of {size} waited for the disk", recorded.high_water, recorded.buffers);
    let overruns = counted(recorded.overruns, "overrun", "overruns");
    let _ = match recorded.overruns {
        0 => writeln!(text, "no overrun"),
        _ => writeln!(text, "{overruns}: the stream was held up for {}", duration(recorded.held_up)),
    };
    text
}

fn object(recorded: &Recorded) -> String {
    let line = Line {
        event: "record",
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        bytes: recorded.bytes,
        elapsed_s: seconds(recorded.elapsed),
        flush_s: seconds(recorded.flush),
        rate_bytes_per_s: (recorded.bytes as f64 / recorded.elapsed.as_secs_f64().max(1e-6)) as u64,
        route: recorded.route,
        buffers: recorded.buffers,
        buffer_bytes: recorded.buffer_bytes,
        high_water: recorded.high_water,
        overruns: recorded.overruns,
        held_up_s: seconds(recorded.held_up),
        interrupted: recorded.interrupted,
        index: recorded.striped.as_ref().map(|(index, _)| index.to_string_lossy().into_owned()),
        blake3: recorded.striped.as_ref().map(|(_, blake3)| hex(blake3)),
    };
    to_line(&line)
}

#[derive(Serialize)]
struct Line {
    event: &'static str,
    schema: u32,
    version: &'static str,
    bytes: u64,
    elapsed_s: f64,
    flush_s: f64,
    rate_bytes_per_s: u64,
    route: &'static str,
    buffers: usize,
    buffer_bytes: usize,
    high_water: usize,
    overruns: u64,
    held_up_s: f64,
    interrupted: bool,
    index: Option<String>,
    blake3: Option<String>,
}

struct Person {
    interrupted: Arc<AtomicBool>,
    lines: bool,
    speaker: Speaker<Said>,
}

enum Said {
    Line(String),
    Warning(String),
}

impl Word for Said {
    fn bytes(&self) -> usize {
        let (Said::Line(text) | Said::Warning(text)) = self;
        size_of::<Self>() + text.len()
    }
}

fn say(said: Said) {
    match said {
        Said::Line(text) => output::say(text),
        // A user who closed the terminal wants no messages.
        Said::Warning(text) => drop(std::io::stderr().write_all(text.as_bytes())),
    }
}

impl Person {
    /// The stream never waits for the terminal: a paused one loses lines.
    fn line(&self, text: String) {
        if self.lines {
            self.speaker.say_if_there_is_room(Said::Line(text));
        }
    }
}

impl Watcher for Person {
    fn on_listening(&self, address: SocketAddr) {
        self.line(format!("listening on {address}\n"));
    }

    fn on_interval(&self, interval: &Interval) {
        self.line(text::line(interval));
    }

    fn on_warning(&self, warning: &Error) {
        // Also with `--json`: at the end, the user could no longer act.
        self.speaker.say_if_there_is_room(Said::Warning(failure::warning(warning)));
    }

    fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::PathBuf;

    use super::*;
    use crate::commands::{Command, Typed};

    fn typed(line: &[&str]) -> Result<Record, String> {
        let args = ["haul", "record"].iter().chain(line).map(OsString::from);
        let (typed, _) = Typed::parse_from(args).map_err(|error| error.to_string())?;
        let Command::Record(record) = typed.command else { panic!("no recording") };
        Ok(record)
    }

    fn recorded() -> Recorded {
        Recorded {
            bytes: 18_000_000_000,
            elapsed: Duration::from_secs(60),
            flush: Duration::from_millis(120),
            route: "direct",
            buffers: 64,
            buffer_bytes: 4 << 20,
            high_water: 17,
            overruns: 2,
            held_up: Duration::from_millis(1_500),
            interrupted: false,
            striped: None,
        }
    }

    #[test]
    fn what_is_typed_is_what_is_asked() {
        let asked =
            request(&typed(&["--listen", "[::1]:5000", "--reserve", "1G", "-n", "1M", "-l", "64K", "x"]).unwrap());
        let striped = request(&typed(&["--stripe-dir", "/a", "--stripe-dir", "/b", "x"]).unwrap());
        assert_eq!(striped.stripe_directories, [PathBuf::from("/a"), PathBuf::from("/b")]);
        let input = Input::Listen("[::1]:5000".parse().unwrap());
        assert_eq!((asked.input, asked.reserve_bytes, asked.bytes), (input, 1 << 30, Some(1 << 20)));
        assert_eq!((asked.buffers, asked.buffer_bytes, asked.interval), (64, 64 << 10, Duration::from_secs(1)));
        for bad in
            [&["x", "--buffers", "1"][..], &["x", "-l", "5000"], &["x", "-l", "0"], &["x", "--listen", "5000"], &[]]
        {
            assert!(typed(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_recording_never_waits_for_who_reads_its_lines() {
        let (opens, opened) = std::sync::mpsc::channel::<()>();
        let heard = Arc::new(std::sync::Mutex::new(Vec::new()));
        let hears = Arc::clone(&heard);
        let speaker = Speaker::start(move |said| {
            let _ = opened.recv();
            let (Said::Line(text) | Said::Warning(text)) = said;
            hears.lock().unwrap().push(text);
        });
        let person = Person { interrupted: Arc::default(), lines: true, speaker: speaker.unwrap() };
        person.on_listening("127.0.0.1:5000".parse().unwrap());
        let interval = Interval { start: Duration::ZERO, end: Duration::from_secs(1), bytes: 1 << 20 };
        (0..10_000).for_each(|_| person.on_interval(&interval));
        person.on_warning(&Error::new(Fault::FileIo, "a disk is slow"));
        assert!(heard.lock().unwrap().is_empty());
        drop(opens);
        assert!(person.speaker.finish(|| false));
        let heard = heard.lock().unwrap();
        assert!(heard.len() == 10_002 && heard[10_001].contains("a disk is slow"), "{}", heard.len());
    }

    #[test]
    fn overruns_are_said_and_are_no_success() {
        let typed = typed(&["scan\x1b.vdif"]).unwrap();
        let text = summary(&typed, &recorded());
        assert!(text.contains("2 overruns: the stream was held up for 1.5") && !text.contains('\x1b'), "{text}");
        assert!(text.contains("at most 17 of 64 buffers of 4.00 MiB"), "{text}");
        assert_eq!(format!("{:?}", status(&recorded())), format!("{:?}", ExitCode::from(23)));
        let well = Recorded { overruns: 0, ..recorded() };
        assert_eq!(format!("{:?}", status(&well)), format!("{:?}", ExitCode::SUCCESS));
        assert!(summary(&typed, &well).contains("no overrun"));
        let striped = Recorded { striped: Some(("scan.stripes".into(), [0xab; 32])), ..recorded() };
        let text = summary(&typed, &striped);
        assert!(text.contains("read it as stripes:scan.stripes") && text.contains("abab"), "{text}");
    }

    #[test]
    fn every_field_is_documented() {
        let documentation = include_str!("../../../../docs/use/json.md");
        let whole = documentation.split("\n## ").find(|part| part.contains("`haul record`")).expect("its part");
        let object: serde_json::Value = serde_json::from_str(&object(&recorded())).unwrap();
        for field in object.as_object().unwrap().keys() {
            assert!(whole.contains(&format!("`{field}`")), "{field}");
        }
    }
}
