//! `--notify COMMAND`: a program that learns how the copy ended.
//!
//! Standard input gives it the JSON of `haul why --json`; its output goes to standard error. After [`TIME_LIMIT`] it is
//! killed with all that it started.

use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use haul_job::{Error, Fault};

use crate::flags::values::split_words;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notify(Vec<String>);

impl Notify {
    /// Splits the command as `-e` does, without a shell.
    pub fn parse(command: &str) -> Result<Self, Error> {
        let refused = |why: String| Error::new(Fault::Usage, "cannot use the command of --notify").because(why);
        match split_words(command).map_err(refused)? {
            words if words.first().is_none_or(String::is_empty) => Err(refused("it is empty".to_owned())),
            words => Ok(Self(words)),
        }
    }

    /// Runs it to its end. A failure is for a warning.
    pub fn run(&self, report: &str) -> Result<(), Error> {
        self.run_within(report, TIME_LIMIT)
    }

    fn run_within(&self, report: &str, limit: Duration) -> Result<(), Error> {
        let failed = |why: String| Error::new(Fault::FileIo, format!("--notify: {} failed", self.0[0])).because(why);
        let stderr = io::stderr().as_fd().try_clone_to_owned().map_err(|error| failed(error.to_string()))?;
        let mut command = Command::new(&self.0[0]);
        command.args(&self.0[1..]).stdin(Stdio::piped()).stdout(stderr).process_group(0);
        let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
        let (input, report) = (child.stdin.take(), report.to_owned());
        // Without a reader, the thread ends with the program, or with ours.
        let _ = std::thread::Builder::new().name("notify".into()).spawn(move || {
            let _ = input.map(|mut input| input.write_all(report.as_bytes()));
        });
        let until = Instant::now() + limit;
        loop {
            match child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(failed(status.to_string())),
                Ok(None) if Instant::now() < until => std::thread::park_timeout(LOOK_EVERY),
                Ok(None) => {
                    end(&mut child);
                    return Err(failed(format!("it took longer than {} s", limit.as_secs())));
                }
                Err(error) => return Err(failed(error.to_string())),
            }
        }
    }
}

fn end(child: &mut Child) {
    let _ = haul_transfer::kill_group(child.id());
    let _ = child.wait();
}

/// A message is sent in seconds.
const TIME_LIMIT: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn run(command: &str, report: &str) -> Result<(), String> {
        let notify = Notify::parse(command).unwrap();
        notify.run_within(report, Duration::from_millis(500)).map_err(|error| error.cause.unwrap_or_default())
    }

    #[test]
    fn the_command_reads_the_report_and_no_shell_reads_the_command() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("told; $(touch surprise)");
        run(&format!("dd status=none 'of={}'", file.display()), "{\"report\":1}\n").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "{\"report\":1}\n");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_command_that_fails_hangs_or_does_not_read_is_told() {
        let long = "x".repeat(1 << 20);
        assert_eq!(run("true", &long), Ok(()));
        assert_eq!(run("false", ""), Err("exit status: 1".to_owned()));
        assert_eq!(run("sleep 1000", &long), Err("it took longer than 0 s".to_owned()));
        assert!(run("/nonexistent/program", "").unwrap_err().contains("No such file"));
        for bad in ["", "  ", "'a"] {
            assert_eq!(Notify::parse(bad).unwrap_err().fault, Fault::Usage, "{bad:?}");
        }
    }
}
