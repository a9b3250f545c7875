//! `haul serve`: the daemon.

pub mod flags;

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use haul_daemon::{Form, Options, Signals, WebOptions};
use haul_job::{Error, Fault};

use crate::far_side::endpoint::HAUL_PORT;
use crate::process::signals;
use crate::process::speaker::{Speaker, Word};
use crate::serve::flags::Serve;
use crate::text::failure;

/// Serves until a signal, which is a success.
pub fn run(typed: &Serve) -> ExitCode {
    let (stop, look) = signals::watch_daemon();
    let log = Log::start(form(typed), |Line(line)| drop(io::stderr().lock().write_all(line.as_bytes())));
    let result = log.and_then(|log| {
        let log = Arc::new(log);
        let writes = Arc::clone(&log);
        let write = Box::new(move |line| writes.write(line));
        let (stop, look) = (|| stop.load(Ordering::Relaxed), || look.swap(false, Ordering::Relaxed));
        let result = haul_daemon::serve(&meant(typed), write, &Signals { stop: &stop, look: &look });
        // A reader gets all lines; an absent one delays nothing.
        log.speaker.finish(|| true);
        result
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error, typed.json),
    }
}

/// The daemon's log. Its reader may stop (a paused terminal, a hung log service); the daemon never waits.
struct Log {
    speaker: Speaker<Line>,
    /// Lines dropped since the last that found room.
    lost: AtomicU64,
    form: Form,
}

struct Line(String);

impl Word for Line {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.0.len()
    }
}

impl Log {
    fn start(form: Form, write: impl FnMut(Line) + Send + 'static) -> Result<Self, Error> {
        let speaker = Speaker::start(write)
            .map_err(|error| Error::new(Fault::FileIo, "cannot start the thread that writes the log").because(error))?;
        Ok(Self { speaker, lost: AtomicU64::new(0), form })
    }

    fn write(&self, line: String) {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let told = Line(haul_daemon::lost_lines(self.form, lost));
            if !self.speaker.say_if_there_is_room(told) {
                self.lost.fetch_add(lost, Ordering::Relaxed);
            }
        }
        if !self.speaker.say_if_there_is_room(Line(line)) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn form(typed: &Serve) -> Form {
    if typed.json { Form::Json } else { Form::Text }
}

fn meant(typed: &Serve) -> Options {
    Options {
        listen: typed.listen,
        port: typed.port.unwrap_or(HAUL_PORT),
        identity: typed.identity.clone(),
        authorized_keys: typed.authorized_keys.clone(),
        quiet: typed.quiet,
        log_files: typed.log_files,
        form: form(typed),
        paths: typed.network_paths.clone(),
        networks: typed.networks.clone(),
        class_policy: typed.policy.clone(),
        check: typed.check,
        web: WebOptions {
            http: typed.http,
            https: typed.https,
            certificate: typed.certificate.clone(),
            certificate_key: typed.certificate_key.clone(),
            public: typed.public.clone(),
            cors: typed.cors.clone(),
        },
    }
}

fn failed(error: &Error, json: bool) -> ExitCode {
    let code = failure::of_fault(error.fault).code;
    let text = match json {
        true => haul_daemon::last_line(&error.what, error.cause.as_deref(), failure::hint(error), code),
        false => failure::text(error),
    };
    let _ = write!(std::io::stderr(), "{text}");
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn lines_that_nobody_reads_are_counted_and_hold_up_nobody() {
        let (opens, opened) = channel::<()>();
        let (heard, hears) = channel();
        let log = Log::start(Form::Text, move |Line(line)| {
            let _ = opened.recv();
            heard.send(line).unwrap();
        });
        let log = log.unwrap();
        let long = "x".repeat(1 << 20);
        (0..200).for_each(|_| log.write(long.clone()));
        assert!(hears.try_recv().is_err(), "nobody reads");
        drop(opens);
        let first = hears.recv().unwrap();
        log.write("the last".to_owned());
        assert!(log.speaker.finish(|| false));
        let heard: Vec<String> = std::iter::once(first).chain(hears.iter()).collect();
        let lost =
            |line: &String| line.split_once(" lines of the log were lost").map(|(lost, _)| lost.parse().unwrap());
        let all: u64 = heard.iter().map(|line| lost(line).unwrap_or(1)).sum();
        assert_eq!((all, heard.last().map(String::as_str)), (201, Some("the last")));
        assert!(heard.iter().filter_map(lost).sum::<u64>() > 100);
    }
}
