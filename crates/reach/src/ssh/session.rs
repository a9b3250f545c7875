//! Runs one ssh process up to the first word of our protocol: its bytes, its words, and its silence.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use haul_job::{Error, Fault};
use haul_net::{Pipes, Stream};
use haul_sys::pipe;
use haul_sys::poll::{self, Interest};
use haul_wire::banner::{Banner, BannerScanner};

use super::dialled::Dialled;
use super::words::{EXIT_WAIT, Words, last_line, login_failed};
use haul_channel::reporter::Watch;
use haul_channel::stalls::Progress;
use haul_kept::faults;
use haul_kept::sync::lock;

/// An ssh session with our program.
pub struct SshSession {
    child: Arc<Mutex<Child>>,
    input: Option<ChildStdin>,
    output: Option<ChildStdout>,
    first: Option<u8>,
    words: Arc<Words>,
    host: String,
    dialled: Option<Dialled>,
    silence: Silence,
    pace: Option<Duration>,
    begun: Instant,
    round_trip_at_most: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Silence {
    /// ssh may ask for a password until the login is over.
    pub(super) may_ask: bool,
    /// `--timeout`, for the login, and for the far side's first word after it.
    pub(super) limit: Duration,
    is_logged_in: bool,
    since: Instant,
}

impl Silence {
    pub(super) fn new(may_ask: bool, limit: Duration, now: Instant) -> Self {
        Self { may_ask, limit, is_logged_in: false, since: now }
    }

    fn logged_in(&mut self, now: Instant) -> bool {
        let is_new = !std::mem::replace(&mut self.is_logged_in, true);
        if is_new {
            self.since = now;
        }
        is_new
    }

    fn check(&self, now: Instant, host: &str) -> Result<(), Error> {
        let may_wait = self.may_ask && !self.is_logged_in;
        if may_wait || now.saturating_duration_since(self.since) < self.limit {
            return Ok(());
        }
        let (what, why) = match self.is_logged_in {
            true => (format!("{host} lets us in, and then says nothing"), "its login shell runs no command"),
            false => (format!("ssh does not reach {host}"), "the login does not come to an end, and nobody is asked"),
        };
        Err(Error::new(Fault::Timeout, what)
            .because(format!("{why}; waited for {} s", self.limit.as_secs()))
            .try_this(format!("try: ssh {host} true; wait longer with --timeout")))
    }
}

pub(super) enum FirstWord {
    /// A byte came, or the far side ended the session.
    Came,
    /// The connection is as good as dead.
    Missing,
}

impl SshSession {
    /// `silently`: words wait for [`SshSession::first_word`].
    pub(super) fn start(mut command: Command, host: &str, silence: Silence, silently: bool) -> Result<Self, Error> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| {
            let program = command.get_program().to_string_lossy().into_owned();
            Error::new(Fault::Ssh, format!("cannot start {program}"))
                .because(error)
                .try_this("install the OpenSSH client, or name another program with -S")
        })?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let words = Words::listen(child.stderr.take(), silently);
        let (child, host) = (Arc::new(Mutex::new(child)), host.to_owned());
        let (begun, round_trip_at_most) = (Instant::now(), None);
        Ok(Self {
            child,
            input,
            output,
            first: None,
            words,
            host,
            dialled: None,
            silence,
            pace: None,
            begun,
            round_trip_at_most,
        })
    }

    pub(super) fn dials(mut self, dialled: Option<Dialled>) -> Self {
        self.dialled = dialled;
        self
    }

    fn refusal(&self) -> Option<String> {
        self.words.last().or_else(|| self.dialled.as_ref()?.why_not())
    }

    pub(super) fn child(&self) -> Arc<Mutex<Child>> {
        Arc::clone(&self.child)
    }

    pub(super) fn pace(&self) -> Option<Duration> {
        self.pace
    }

    /// Bounds the round trip by how long a new login took.
    pub(crate) fn round_trip_at_most(&self) -> Option<Duration> {
        self.round_trip_at_most
    }

    pub(super) fn first_word(&mut self, patience: Duration, watch: &Watch) -> Result<FirstWord, Error> {
        let (begun, mut byte) = (Instant::now(), [0]);
        let output = self.output.as_mut().expect("taken only once the agent runs");
        let came = loop {
            let left = patience.saturating_sub(begun.elapsed());
            if left.is_zero() {
                break false;
            }
            if watch.interrupted() {
                return Err(faults::interrupted());
            }
            if !poll_until(output.as_fd(), Interest::Read, left.min(INTERRUPT_CHECK)) {
                continue;
            }
            match output.read(&mut byte) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Status 255 is ssh's own failure.
                Ok(0) | Err(_) => {
                    let status = wait(&self.child, EXIT_WAIT).and_then(|status| status.code());
                    break status.is_some_and(|code| code != 255);
                }
                Ok(_) => {
                    self.first = Some(byte[0]);
                    break true;
                }
            }
        };
        if !came {
            return Ok(FirstWord::Missing);
        }
        self.silence.logged_in(Instant::now());
        self.pace = Some(begun.elapsed());
        self.words.release();
        Ok(FirstWord::Came)
    }

    pub(super) fn next_byte(&mut self, sent: Option<&Sent>, watch: &Watch) -> Result<Option<u8>, Error> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        let output = self.output.as_mut().expect("taken only once the agent runs");
        let mut byte = [0];
        loop {
            if watch.interrupted() {
                return Err(faults::interrupted());
            }
            match sent {
                Some(sent) => sent.check(Instant::now(), &self.host)?,
                None => self.silence.check(Instant::now(), &self.host)?,
            }
            if !ready(output.as_fd(), Interest::Read) {
                continue;
            }
            match output.read(&mut byte) {
                Ok(0) => return Ok(None),
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::new(Fault::Ssh, format!("ssh to {} failed", self.host)).because(error)),
            }
        }
        if self.silence.is_logged_in && self.pace.is_none() {
            let answered = self.silence.since.elapsed();
            self.pace = Some(answered);
            self.round_trip_at_most = Some(round_trip_at_most(self.begun.elapsed(), answered));
        }
        Ok(Some(byte[0]))
    }

    /// Reads single bytes up to the next banner: another reader has the bytes behind it.
    pub(super) fn banner(&mut self, sent: Option<&Sent>, watch: &Watch) -> Result<Banner, Error> {
        let mut scanner = BannerScanner::default();
        let mut noise = Vec::new();
        loop {
            let Some(byte) = self.next_byte(sent, watch)? else { return Err(self.ended(&noise)) };
            noise.push(byte);
            match scanner.push(byte) {
                Ok(Some(Banner::LoggedIn)) => {
                    self.silence.logged_in(Instant::now());
                }
                Ok(Some(banner)) => return Ok(banner),
                Ok(None) => {}
                Err(_) => {
                    return Err(Error::new(Fault::Protocol, format!("{} prints, but no haul starts there", self.host))
                        .because("its login shell writes more than 64 KiB to standard output")
                        .try_this("keep login scripts silent for sessions without a terminal"));
                }
            }
        }
    }

    pub(super) fn finish(mut self, watch: &Watch) -> Result<(), Error> {
        drop(self.input.take());
        let mut scanner = BannerScanner::default();
        while let Some(byte) = self.next_byte(None, watch)? {
            if scanner.push(byte) == Ok(Some(Banner::LoggedIn)) {
                self.silence.logged_in(Instant::now());
            }
        }
        match wait(&self.child, EXIT_WAIT).and_then(|status| status.code()) {
            Some(255) => Err(login_failed(&self.host, &self.refusal())),
            _ => Ok(()),
        }
    }

    /// A host that does not read must not block the checks of clock and interruption.
    pub(super) fn send(&mut self, bytes: &[u8], timeout: Duration, watch: &Watch) -> Result<(), Error> {
        let input = self.input.as_mut().expect("taken only once the agent runs");
        let mut progress = Progress::new(Instant::now());
        let mut sent = 0;
        while sent < bytes.len() {
            if watch.interrupted() {
                return Err(faults::interrupted());
            }
            if progress.is_stalled(true, sent as u64, 0, Instant::now(), timeout) {
                let what = format!("{} does not take our program", self.host);
                return Err(too_slow(what, format!("nothing has moved for {} s", timeout.as_secs())));
            }
            if !ready(input.as_fd(), Interest::Write) {
                continue;
            }
            match input.write(&bytes[sent..bytes.len().min(sent + PIPE_ROOM_BYTES)]) {
                Ok(written) => sent += written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(Error::new(Fault::Install, "cannot copy our program to the far side")
                        .because(error)
                        .try_this("look for a full disk or quota in the home directory there"));
                }
            }
        }
        Ok(())
    }

    pub(super) fn ended(&mut self, noise: &[u8]) -> Error {
        let host = self.host.as_str();
        let status = wait(&self.child, EXIT_WAIT).and_then(|status| status.code());
        let said = self.words.last();
        match status {
            Some(255) => login_failed(host, &self.refusal()),
            Some(127) => Error::new(Fault::Install, format!("no such program on {host}"))
                .try_this("correct --haul-path, or leave it out: haul then brings its own program"),
            Some(code) => {
                let printed = String::from_utf8_lossy(noise);
                if let Some(words) = said.as_deref().into_iter().chain([&*printed]).find_map(says_sftp_only) {
                    return Error::new(Fault::SftpOnly, format!("{host} lets this account use sftp only"))
                        .because(words)
                        .try_this(
                            "haul runs a program at the other end: haul cp copies over sftp; or ask the operator for a shell",
                        );
                }
                let error = Error::new(Fault::Ssh, format!("the session on {host} ended with status {code}"))
                    .try_this(format!("try: ssh {host} true"));
                match said.or_else(|| last_line(&printed)) {
                    Some(words) => error.because(words),
                    None => error,
                }
            }
            None => Error::new(Fault::Ssh, format!("ssh to {host} was ended")),
        }
    }

    pub(super) fn logged_in(&mut self) {
        self.silence.logged_in(Instant::now());
    }

    /// Takes the pipes and the first byte, if it was read. The session still ends with this value.
    pub(super) fn take_pipes(&mut self) -> Option<(ChildStdin, ChildStdout, Option<u8>)> {
        self.input.take().zip(self.output.take()).map(|(input, output)| (input, output, self.first.take()))
    }

    pub(super) fn said(&self) -> Option<String> {
        self.words.last()
    }

    pub(super) fn release_words(&self) {
        self.words.release();
    }

    /// Makes a stream, whose end kills ssh.
    pub fn into_stream(self) -> Result<(Stream, SshChild), Error> {
        let child = SshChild(Arc::clone(&self.child));
        Ok((Stream::plain(self.into_pipes()?), child))
    }

    /// The pipes' end kills ssh, once it has sent our last words.
    pub(super) fn into_pipes(mut self) -> Result<Pipes, Error> {
        let (Some(input), Some(output)) = (self.input.take(), self.output.take()) else { unreachable!("taken once") };
        let child = Arc::clone(&self.child);
        let cannot = |error: io::Error| Error::new(Fault::Ssh, "cannot use the pipes of ssh").because(error);
        let words = Mutex::new(Some(input.as_fd().try_clone_to_owned().map_err(cannot)?));
        let end = move || {
            if let Some(words) = lock(&words).take() {
                await_last_words(words.as_fd(), &child);
            }
            kill(&child);
        };
        Pipes::new(output, input, Some(Box::new(end))).map_err(cannot)
    }
}

impl Drop for SshSession {
    fn drop(&mut self) {
        if self.output.is_some() {
            kill(&self.child);
        }
    }
}

/// The line by which a host refuses commands: of OpenSSH (session.c, `SUBSYSTEM_INT_SFTP_ERROR`), of rssh, of scponly, and of
/// their like.
fn says_sftp_only(words: &str) -> Option<String> {
    let line = words.lines().map(str::trim).find(|line| line.to_ascii_lowercase().contains("sftp"))?;
    Some(line.to_owned())
}

pub(super) struct Sent {
    /// The time when our program must run: `--timeout` from its last byte, and as long again as sending took. ssh and the
    /// kernel may hold minutes of a slow path: OpenSSH's window is 2 MiB (CHAN_SES_WINDOW_DEFAULT), of our 8 MB.
    deadline: Option<Instant>,
    patience: Duration,
}

impl Sent {
    pub(super) fn now(timeout: Duration, took: Duration) -> Self {
        let patience = timeout.saturating_add(took);
        Self { deadline: Instant::now().checked_add(patience), patience }
    }

    fn check(&self, now: Instant, host: &str) -> Result<(), Error> {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return Ok(());
        }
        let what = format!("our program was sent to {host} and does not start there");
        Err(too_slow(what, format!("its last byte was sent {} s ago", self.patience.as_secs())))
    }
}

/// A session's ssh, killed on drop: threads that wait at its pipes keep them open, and a hung host would keep ssh for ever.
pub struct SshChild(Arc<Mutex<Child>>);

impl SshChild {
    /// Gives ssh a little time, then ends it.
    pub fn end(self) {
        wait(&self.0, EXIT_WAIT);
    }
}

impl Drop for SshChild {
    fn drop(&mut self) {
        kill(&self.0);
    }
}

fn too_slow(what: String, why: String) -> Error {
    let error = Error::new(Fault::Timeout, what).because(why);
    error.try_this("install haul there, or wait longer with --timeout")
}

/// `took`: up to the first word over there, `answered`: after the login.
fn round_trip_at_most(took: Duration, answered: Duration) -> Duration {
    (took / LOGIN_ROUND_TRIPS).min(answered / COMMAND_ROUND_TRIPS)
}

/// TCP, version, algorithms, keys, service, two or more for the account, and those of a command (RFC 4251). A person who types,
/// or a slow shell, makes the bound worse, not wrong.
const LOGIN_ROUND_TRIPS: u32 = 7 + COMMAND_ROUND_TRIPS;

/// The channel, and the command in it.
const COMMAND_ROUND_TRIPS: u32 = 2;

const INTERRUPT_CHECK: Duration = Duration::from_millis(100);

/// A pipe that poll calls writable takes PIPE_BUF without waiting (pipe(7)).
const PIPE_ROOM_BYTES: usize = 4096;

pub(super) fn ready(pipe: BorrowedFd<'_>, interest: Interest) -> bool {
    poll_until(pipe, interest, INTERRUPT_CHECK)
}

fn poll_until(pipe: BorrowedFd<'_>, interest: Interest, limit: Duration) -> bool {
    poll::wait(&[(pipe, interest)], Some(limit)).map_or(true, |ready| ready[0])
}

fn await_last_words(pipe: BorrowedFd<'_>, child: &Mutex<Child>) {
    let (process, end) = (lock(child).id(), Instant::now() + LAST_WORDS_WAIT);
    while !pipe::is_taken(pipe, process) && Instant::now() < end {
        std::thread::sleep(LAST_WORDS_LOOK);
    }
}

/// ssh takes a message from its pipe within a tenth of a millisecond, if there is room. A hung connection is not waited for:
/// the far side then learns that we are gone, and no copied data depends on it.
const LAST_WORDS_WAIT: Duration = Duration::from_millis(200);

const LAST_WORDS_LOOK: Duration = Duration::from_micros(100);

pub(super) fn kill(child: &Mutex<Child>) {
    let _ = lock(child).kill();
    wait(child, EXIT_WAIT);
}

pub(super) fn wait(child: &Mutex<Child>, limit: Duration) -> Option<ExitStatus> {
    let end = Instant::now() + limit;
    loop {
        if let Ok(Some(status)) = lock(child).try_wait() {
            return Some(status);
        }
        if Instant::now() >= end {
            return None;
        }
        // The standard library has no wait with a limit.
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_start_was_waited_for_as_long_as_is_said() {
        let (now, patience) = (Instant::now(), Duration::from_secs(60 + 15));
        let sent = Sent { deadline: now.checked_add(patience), patience };
        sent.check(now + Duration::from_secs(74), "h").unwrap();
        let error = sent.check(now + patience, "h").unwrap_err();
        assert_eq!(error.what, "our program was sent to h and does not start there");
        assert_eq!(error.cause.as_deref(), Some("its last byte was sent 75 s ago"));
    }

    #[test]
    fn neither_a_typed_password_nor_a_slow_shell_makes_a_host_far() {
        let at_most = |took_ms, answered_ms| {
            round_trip_at_most(Duration::from_millis(took_ms), Duration::from_millis(answered_ms)).as_millis()
        };
        assert!((228..300).contains(&at_most(2566, 725)), "a login over 228 ms");
        assert!(at_most(20_000, 60) < 100, "somebody typed");
        assert!(at_most(700, 500) < 100, "the shell asked a file server");
    }

    #[test]
    fn a_silent_far_side_is_waited_for_only_while_somebody_may_be_asked() {
        let (now, limit) = (Instant::now(), Duration::from_secs(5));
        let later = now + Duration::from_secs(6);
        let mut asked = Silence::new(true, limit, now);
        asked.check(now + Duration::from_secs(3600), "h").unwrap();
        assert!(asked.logged_in(later) && !asked.logged_in(later + limit), "the login is over once");
        asked.check(later + limit / 2, "h").unwrap();
        let error = asked.check(later + limit, "h").unwrap_err();
        assert_eq!((error.fault, error.what.as_str()), (Fault::Timeout, "h lets us in, and then says nothing"));
        let error = Silence::new(false, limit, now).check(later, "h").unwrap_err();
        assert_eq!((error.fault, error.what.as_str()), (Fault::Timeout, "ssh does not reach h"));
    }
}
