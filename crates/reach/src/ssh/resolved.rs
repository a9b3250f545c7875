//! Asks ssh for its settings for a host. `ssh -G` reads all configuration, prints the outcome, and makes no connection.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

#[derive(Clone, Debug, Default)]
pub(super) struct Resolved {
    /// Each line is a name in small letters, a space, a value.
    pub(super) settings: String,
    pub(super) files: Vec<(PathBuf, String)>,
    /// A `Match exec` was run: another look may have another outcome.
    pub(super) asked_a_command: bool,
}

impl Resolved {
    /// `command` is ssh with all its options and the host. `None`: ssh does not tell, or not in time.
    pub(super) fn ask(command: &Command) -> Option<Self> {
        let mut asking = Command::new(command.get_program());
        asking.args(["-v", "-G"]).args(command.get_args());
        asking.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = asking.spawn().ok()?;
        let deadline = Instant::now() + LIMIT;
        let (settings, log) = (in_thread(child.stdout.take()?)?, in_thread(child.stderr.take()?)?);
        let left = || deadline.saturating_duration_since(Instant::now());
        let said = settings.recv_timeout(left()).ok().zip(log.recv_timeout(left()).ok());
        if said.is_none() {
            let _ = child.kill();
        }
        let status = child.wait().ok()?;
        let (settings, log) = said.filter(|_| status.success())?;
        Some(Self::of(settings, &log))
    }

    fn of(settings: String, log: &str) -> Self {
        let names = log.lines().filter_map(|line| line.strip_prefix("debug1: Reading configuration data "));
        let file = |name: &str| (PathBuf::from(name), text_of(Path::new(name)));
        let files = names.take(MAX_FILES).map(file).collect();
        let asked_a_command = log.lines().any(|line| line.starts_with("debug1: Executing command:"));
        Self { settings, files, asked_a_command }
    }

    pub(super) fn value<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        self.values(name).next()
    }

    pub(super) fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let lines = self.settings.lines().filter_map(|line| line.split_once(' '));
        lines.filter(move |(key, value)| *key == name && *value != "none").map(|(_, value)| value)
    }

    pub(super) fn is_set(&self, name: &str) -> bool {
        self.value(name).is_some_and(|value| value == "yes" || value == "true")
    }

    pub(super) fn is_indirect(&self) -> bool {
        ["proxycommand", "proxyjump"].iter().any(|name| self.value(name).is_some())
    }

    pub(super) fn any_line(&self, is_it: impl Fn(&str, &str) -> bool) -> bool {
        self.files.iter().flat_map(|(_, text)| text.lines()).any(|line| {
            let (word, rest) = setting(line);
            is_it(&word, rest)
        })
    }
}

pub(super) fn setting(line: &str) -> (String, &str) {
    let line = line.trim();
    let end = line.find(|letter: char| letter.is_ascii_whitespace() || letter == '=').unwrap_or(line.len());
    let rest = line[end..].trim_start();
    (line[..end].to_ascii_lowercase(), rest.strip_prefix('=').unwrap_or(rest).trim())
}

fn in_thread(pipe: impl Read + Send + 'static) -> Option<Receiver<String>> {
    let (sender, receiver) = channel();
    let read = move || {
        let mut bytes = Vec::new();
        let read = pipe.take(MAX_BYTES).read_to_end(&mut bytes);
        let _ = read.map(|_| sender.send(String::from_utf8_lossy(&bytes).into_owned()));
    };
    std::thread::Builder::new().name("ssh-G".into()).spawn(read).ok()?;
    Some(receiver)
}

fn text_of(file: &Path) -> String {
    let mut bytes = Vec::new();
    let is_file = std::fs::metadata(file).is_ok_and(|found| found.is_file());
    if is_file {
        let _ = std::fs::File::open(file).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// ssh -G takes 15 ms, and longer if it looks names up (`CanonicalizeHostname`).
const LIMIT: Duration = Duration::from_secs(2);
/// A configuration of a thousand hosts has 100 KB.
const MAX_BYTES: u64 = 1 << 20;
/// Large sites have a file for each group of hosts.
const MAX_FILES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ssh_says_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config");
        std::fs::write(&file, "Host a\n  controlMASTER = no\n").unwrap();
        let log = format!("OpenSSH_9.2\ndebug1: Reading configuration data {}\n", file.display());
        let settings = "host a\nbatchmode yes\nproxyjump none\nidentityfile one\nidentityfile two 2\n";
        let resolved = Resolved::of(settings.into(), &log);
        assert!(resolved.is_set("batchmode") && !resolved.is_indirect() && !resolved.asked_a_command);
        assert_eq!(resolved.values("identityfile").collect::<Vec<_>>(), ["one", "two 2"]);
        assert!(resolved.any_line(|word, value| word == "controlmaster" && value == "no"));
        let resolved = Resolved::of("proxyjump b\n".into(), "debug1: Executing command: 'true'\n");
        assert!(resolved.is_indirect() && resolved.asked_a_command);
    }

    #[test]
    fn an_ssh_that_does_not_tell_tells_nothing() {
        assert!(Resolved::ask(&Command::new("/no/such/ssh")).is_none());
        assert!(Resolved::ask(&Command::new("false")).is_none());
    }
}
