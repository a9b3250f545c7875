//! A finished program's exit code, output and report.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use serde_json::Value;

/// A finished program.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The command line.
    pub line: String,
    /// `None` if its time was over.
    pub status: Option<ExitStatus>,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// From start to end.
    pub elapsed: Duration,
}

/// haul's exit codes.
pub mod code {
    /// All selected is at the target and verified.
    pub const OK: i32 = 0;
    /// The request makes no sense.
    pub const USAGE: i32 = 1;
    /// Wrong key, unknown host, login refused.
    pub const AUTHENTICATION: i32 = 5;
    /// Name resolution, refused or unreachable.
    pub const NETWORK: i32 = 10;
    /// Files could not be read or written.
    pub const FILE_IO: i32 = 11;
    /// The peer broke the protocol.
    pub const PROTOCOL: i32 = 12;
    /// The far side lacks haul and cannot run ours.
    pub const INSTALL: i32 = 13;
    /// ssh could not start or ended early.
    pub const SSH: i32 = 14;
    /// SIGINT, SIGTERM, SIGHUP.
    pub const INTERRUPTED: i32 = 20;
    /// Some entries could not be copied.
    pub const PARTIAL: i32 = 23;
    /// Some entries vanished at the source.
    pub const VANISHED: i32 = 24;
    /// Data did not verify.
    pub const VERIFICATION: i32 = 25;
    /// The target has no space or quota left.
    pub const SPACE: i32 = 28;
    /// The peer fell silent.
    pub const TIMEOUT: i32 = 30;
    /// The daemon has no room.
    pub const BUSY: i32 = 31;
}

impl Outcome {
    /// The exit code, or 128 + signal.
    pub fn code(&self) -> i32 {
        self.status.and_then(|status| status.code().or(status.signal().map(|signal| 128 + signal))).unwrap_or(-1)
    }

    /// Fails unless the exit code is `wanted`.
    #[track_caller]
    pub fn expect(self, wanted: i32) -> Self {
        assert!(self.code() == wanted, "expected exit code {wanted}\n{self}");
        self
    }

    /// Fails unless the exit code is one of `wanted`.
    #[track_caller]
    pub fn expect_one_of(self, wanted: &[i32]) -> Self {
        assert!(wanted.contains(&self.code()), "expected one of the exit codes {wanted:?}\n{self}");
        self
    }

    /// Fails unless the output has all `words`, in any case.
    #[track_caller]
    pub fn says(self, words: &[&str]) -> Self {
        let missing: Vec<_> = words.iter().filter(|words| !self.contains(words)).collect();
        assert!(missing.is_empty(), "nothing said of {missing:?}\n{self}");
        self
    }

    /// Fails unless the output has one of `words`, in any case: ssh, the kernel or chance decides.
    #[track_caller]
    pub fn says_one_of(self, words: &[&str]) -> Self {
        assert!(words.iter().any(|words| self.contains(words)), "nothing said of any of {words:?}\n{self}");
        self
    }

    fn contains(&self, words: &str) -> bool {
        let words = words.to_lowercase();
        [self.stderr_text(), self.stdout_text()].iter().any(|text| text.to_lowercase().contains(&words))
    }

    /// Standard error as text.
    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Standard output as text.
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// The events of `--json`.
    pub fn events(&self) -> Vec<Value> {
        json_lines(&self.stdout)
    }

    /// The events of one kind.
    pub fn events_named(&self, name: &str) -> Vec<Value> {
        self.events().into_iter().filter(|event| event["event"] == name).collect()
    }

    /// The closing report of `--json`.
    #[track_caller]
    pub fn report(&self) -> Value {
        let last = self.events().pop().unwrap_or_else(|| panic!("no JSON line on standard output\n{self}"));
        assert!(last["event"] == "report", "the last JSON line is not the report\n{self}");
        assert!(last["exit_code"] == self.code(), "report and process disagree about the exit code\n{self}");
        last
    }

    /// A number of the closing report.
    #[track_caller]
    pub fn count(&self, field: &str) -> u64 {
        let report = self.report();
        report[field].as_u64().unwrap_or_else(|| panic!("the report has no number `{field}`\n{self}"))
    }
}

/// The longest time between steps of progress, from the first verified byte to the last, by the program's clock.
pub fn longest_pause_s(events: &[Value]) -> f64 {
    let steps = events.iter().filter(|event| event["event"] == "progress").filter_map(|event| {
        let (moved, at) = (event["bytes_moved"].as_u64()?, event["at_s"].as_f64()?);
        (moved > 0).then_some((moved, at))
    });
    let (mut before, mut longest): (Option<(u64, f64)>, f64) = (None, 0.0);
    for (moved, at) in steps {
        if before.is_none_or(|(bytes, _)| bytes < moved) {
            longest = longest.max(before.map_or(0.0, |(_, since)| at - since));
            before = Some((moved, at));
        }
    }
    longest
}

/// Complete JSON lines of an output that may grow.
pub fn json_lines(output: &[u8]) -> Vec<Value> {
    let complete = output.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    output[..complete].split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "command: {}", self.line)?;
        writeln!(f, "exit code: {} after {:?}", self.code(), self.elapsed)?;
        writeln!(f, "stdout: {}", shortened(&self.stdout))?;
        write!(f, "stderr: {}", shortened(&self.stderr))
    }
}

/// The end says more than the beginning.
fn shortened(output: &[u8]) -> String {
    const KEPT_BYTES: usize = 4000;
    let text = String::from_utf8_lossy(output);
    let start = text.len().saturating_sub(KEPT_BYTES);
    let start = (start..=text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    if start == 0 { text.into_owned() } else { format!("… {}", &text[start..]) }
}
