//! What a finished program left: exit code, output, report.

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
    /// How it ended; `None` when its time was over.
    pub status: Option<ExitStatus>,
    /// All of standard output.
    pub stdout: Vec<u8>,
    /// All of standard error.
    pub stderr: Vec<u8>,
    /// From start to end.
    pub elapsed: Duration,
}

/// Exit codes of haul.
pub mod code {
    /// Everything selected is at the target and verified.
    pub const OK: i32 = 0;
    /// The request makes no sense.
    pub const USAGE: i32 = 1;
    /// Wrong key, unknown host, login refused.
    pub const AUTHENTICATION: i32 = 5;
    /// Name resolution, refused or unreachable.
    pub const NETWORK: i32 = 10;
    /// Files could not be read or written at all.
    pub const FILE_IO: i32 = 11;
    /// The peer broke the protocol.
    pub const PROTOCOL: i32 = 12;
    /// The far side has no haul, and our program does not run there.
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
    /// No space or quota left at the target.
    pub const SPACE: i32 = 28;
    /// The peer fell silent.
    pub const TIMEOUT: i32 = 30;
    /// The daemon has no room for one more.
    pub const BUSY: i32 = 31;
}

impl Outcome {
    /// Its exit code; 128 + signal when a signal ended it.
    pub fn code(&self) -> i32 {
        self.status.and_then(|status| status.code().or(status.signal().map(|signal| 128 + signal))).unwrap_or(-1)
    }

    /// Fails the test unless the exit code is `wanted`.
    #[track_caller]
    pub fn expect(self, wanted: i32) -> Self {
        assert!(self.code() == wanted, "expected exit code {wanted}\n{self}");
        self
    }

    /// Fails the test unless the exit code is one of `wanted`.
    #[track_caller]
    pub fn expect_one_of(self, wanted: &[i32]) -> Self {
        assert!(wanted.contains(&self.code()), "expected one of the exit codes {wanted:?}\n{self}");
        self
    }

    /// Fails the test unless the output contains all of `words`, in upper or lower case.
    #[track_caller]
    pub fn says(self, words: &[&str]) -> Self {
        let missing: Vec<_> = words.iter().filter(|words| !self.contains(words)).collect();
        assert!(missing.is_empty(), "nothing said of {missing:?}\n{self}");
        self
    }

    /// Fails the test unless the output contains one of `words`, in upper or lower case. For words that ssh, the kernel
    /// or chance decides.
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

    /// The events of a `--json` run.
    pub fn events(&self) -> Vec<Value> {
        json_lines(&self.stdout)
    }

    /// The events of one kind.
    pub fn events_named(&self, name: &str) -> Vec<Value> {
        self.events().into_iter().filter(|event| event["event"] == name).collect()
    }

    /// The closing report of a `--json` run.
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

/// The longest time between two steps of progress, in seconds of the program's own clock: from the first byte that is
/// verified to the last.
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

/// The complete JSON lines of an output that may still grow.
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

/// The end of an output says more than its beginning.
fn shortened(output: &[u8]) -> String {
    const KEPT_BYTES: usize = 4000;
    let text = String::from_utf8_lossy(output);
    let start = text.len().saturating_sub(KEPT_BYTES);
    let start = (start..=text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    if start == 0 { text.into_owned() } else { format!("… {}", &text[start..]) }
}
