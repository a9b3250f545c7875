//! Reaches a far side through the system's ssh program, and puts our own program there when it is missing.
//!
//! One ssh session does it all. A start script for the login shell runs one of these: the program that is kept there under the
//! hash of its content; an installed program of the same protocol; our own program, which it asks for, or one for its machine that lies
//! beside ours. The user's
//! configuration, agent, jump hosts and second factors work as ever. A far side that has the program costs no round trip.
//!
//! Until the first word of our protocol there is no time limit: ssh may ask for a password, and has limits of its own
//! (`ConnectTimeout`, `ServerAliveInterval`). From then on `--timeout` holds.

mod escaper;
mod kept_login;
mod lanes;
pub mod names;
mod programs;
mod script;
mod words;

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use haul_job::{Carriage, Error, Event, Family, Fault, Place, SshOptions, Subject};
use haul_net::{Pipes, Stream};
use haul_sys::poll::{self, Interest};
use haul_wire::PROTOCOL_VERSION;
use haul_wire::banner::{Banner, BannerScanner};

use crate::faults;
use crate::reach::crew::Crew;
use crate::session::convert;
use crate::session::reporter::Watch;
use crate::session::stalls::Progress;
use crate::sync::lock;
pub(crate) use lanes::{SshKeeper, SshLanes};
use programs::Programs;
use script::{quoted, start_script};
use words::{Words, last_line, login_failed};

/// One ssh session with the far side's program at its other end.
pub(crate) struct SshSession {
    child: Arc<Mutex<Child>>,
    input: Option<ChildStdin>,
    output: Option<ChildStdout>,
    words: Arc<Words>,
}

/// How to start ssh to one place.
#[derive(Clone)]
pub(crate) struct SshTarget {
    pub(crate) user: Option<String>,
    pub(crate) host: String,
    pub(crate) port: Option<u16>,
    pub(crate) options: SshOptions,
    pub(crate) family: Option<Family>,
    /// Once it has said a first word of ours, it may be silent for so long.
    pub(crate) timeout: Duration,
    /// A login of an earlier session seems to stand.
    has_login: bool,
}

impl SshTarget {
    /// The target behind a place; `None` for places that are not reached over ssh.
    pub(crate) fn of(place: &Place, options: &SshOptions, carriage: &Carriage) -> Option<Self> {
        match place {
            Place::Ssh { user, host, port } => Some(Self {
                user: user.clone(),
                host: host.clone(),
                port: port.or(options.port),
                options: options.clone(),
                family: carriage.family,
                timeout: carriage.timeout,
                has_login: false,
            }),
            Place::Local | Place::Zero { .. } | Place::Stripes { .. } | Place::Null | Place::Haul { .. } => None,
        }
    }

    /// The same, with a login that outlives the session for the next one; see [`kept_login`].
    pub(crate) fn keeping_its_login(mut self, directory: &Path) -> Self {
        if let Some(configuration) = kept_login::configuration(directory, &self.options) {
            self.has_login = kept_login::stands(&configuration);
            self.options.config = Some(configuration);
        }
        self
    }

    /// The ssh command without the remote command. The settings are scp's: nothing from the user's configuration may turn
    /// the session into something else than one command with clean input and output.
    fn command(&self) -> Command {
        let program = self.options.program.clone().unwrap_or_else(|| OsString::from("ssh"));
        let mut command = Command::new(program);
        command.args(["-x", "-T"]);
        for setting in [
            "ClearAllForwardings=yes",
            "PermitLocalCommand=no",
            "RemoteCommand=none",
            "RequestTTY=no",
            "StdinNull=no",
            "ForkAfterAuthentication=no",
            "SessionType=default",
        ] {
            command.args(["-o", setting]);
        }
        match self.family {
            Some(Family::V4) => command.arg("-4"),
            Some(Family::V6) => command.arg("-6"),
            None => &mut command,
        };
        if let Some(port) = self.port {
            command.args(["-p", &port.to_string()]);
        }
        for identity in &self.options.identities {
            command.arg("-i").arg(identity);
        }
        if let Some(config) = &self.options.config {
            command.arg("-F").arg(config);
        }
        if let Some(jump) = &self.options.jump {
            command.args(["-J", jump]);
        }
        for option in &self.options.options {
            command.arg("-o").arg(option);
        }
        if let Some(user) = &self.user {
            command.args(["-l", user]);
        }
        command.arg("--").arg(&self.host);
        command
    }

    /// Logs in and leaves the connection for the next session, if that is possible: else does nothing.
    pub(crate) fn log_in(self, directory: &Path) -> Result<(), Error> {
        let Some(configuration) = kept_login::configuration(directory, &self.options) else { return Ok(()) };
        let options = SshOptions { config: Some(configuration), ..self.options.clone() };
        let mut session = Self { options, ..self.clone() }.spawn("exit 0")?;
        drop(session.input.take());
        // Standard output ends with the session. A kept connection holds none of it.
        let mut noise = Vec::new();
        if let Some(output) = session.output.take() {
            let _ = output.take(NOISE_MAX_BYTES).read_to_end(&mut noise);
        }
        let status = lock(&session.child).wait();
        match status.ok().and_then(|status| status.code()) {
            Some(255) => Err(login_failed(&self.host, &session.words.last())),
            _ => Ok(()),
        }
    }

    fn spawn(&self, remote_command: &str) -> Result<SshSession, Error> {
        let mut command = self.command();
        command.arg(remote_command).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| {
            let program = command.get_program().to_string_lossy().into_owned();
            Error::new(Fault::Ssh, format!("cannot start {program}"))
                .because(error)
                .try_this("install the OpenSSH client, or name another program with -S")
        })?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let words = Words::listen(child.stderr.take());
        Ok(SshSession { child: Arc::new(Mutex::new(child)), input, output, words })
    }

    /// Starts the far side's agent. `arguments` follow `haul agent`.
    ///
    /// `crew`: the session of a lane; when it is over, so is the wait for the agent.
    pub(crate) fn start_agent(&self, arguments: &str, watch: &Watch, crew: Option<&Crew>) -> Result<SshSession, Error> {
        let mut known = None;
        let script = match &self.options.remote_program {
            Some(program) => format!("exec {} agent {arguments}", quoted(program)),
            // A login takes longer than to hash our programs, and the hash is ready when it is asked for. Where there is no login to wait
            // for, it goes with the command: over ssh that saves a round trip, and hashing takes some 10 ms.
            None if self.has_login => {
                let programs = Programs::find()?;
                let script = start_script(arguments, Some(&programs.line()));
                known = Some(programs);
                script
            }
            None => start_script(arguments, None),
        };
        let mut session = self.spawn(&script)?;
        let child = Arc::clone(&session.child);
        let _watched = crew.map(|crew| crew.on_end(move || kill(&child)));
        let mut programs = match (&self.options.remote_program, known) {
            (Some(_), _) => None,
            (None, Some(programs)) => Some(programs),
            (None, None) => {
                let programs = Programs::find()?;
                // When ssh could not connect, its own words say so better than the broken pipe.
                drop(session.send(programs.line().as_bytes(), self, watch));
                Some(programs)
            }
        };
        let (mut sent, mut notes): (Option<Sent>, u32) = (None, 0);
        loop {
            match session.banner(self, sent.as_ref(), watch)? {
                Banner::Agent { version: PROTOCOL_VERSION } => return Ok(session),
                Banner::Agent { version } => {
                    return Err(Error::new(
                        Fault::Install,
                        format!("the program on {} speaks protocol {version}, ours {PROTOCOL_VERSION}", self.host),
                    )
                    .try_this("bring both to the same version, or leave out --haul-path"));
                }
                Banner::Fail(why) => {
                    return Err(Error::new(Fault::Install, format!("cannot run haul on {}", self.host))
                        .because(why)
                        .try_this("install haul there and name it with --haul-path PATH"));
                }
                Banner::Note { .. } if notes >= MAX_NOTES => {
                    return Err(Error::new(
                        Fault::Protocol,
                        format!("{} says too often how it runs our program", self.host),
                    ));
                }
                Banner::Note { choice, reason } => {
                    notes += 1;
                    let (choice, reason) = (convert::bounded(choice), convert::bounded(reason));
                    watch.tell(&Event::Chose { what: Subject::Program, choice, reason });
                }
                Banner::Need { .. } if sent.is_some() => {
                    return Err(Error::new(Fault::Protocol, format!("{} asks for our program again", self.host))
                        .because("it was sent once, and what runs it asks once"));
                }
                Banner::Need { system, machine } => {
                    let program = programs.take().and_then(|programs| programs.take_for(&system, &machine));
                    let program = program.ok_or_else(|| {
                        Error::new(Fault::Install, format!("haul is not installed on {}", self.host))
                            .because(format!("it is {system} on {machine}; our own program would not run there"))
                            .try_this(format!(
                                "install haul there, in the PATH of ssh commands or named with --haul-path PATH; or put a \
                                 program for it beside ours, as haul-{machine}"
                            ))
                    })?;
                    let (place, bytes) = (self.host.clone(), program.len() as u64);
                    watch.tell(&Event::Installing { place, bytes });
                    let start = Instant::now();
                    session.send(&program, self, watch)?;
                    let patience = self.timeout.saturating_add(start.elapsed());
                    sent = Some(Sent { deadline: Instant::now().checked_add(patience), patience });
                }
            }
        }
    }
}

/// Our program is on its way.
struct Sent {
    /// When it has to run: `--timeout` from its last byte, and as long again as the sending took. ssh and the kernel still
    /// hold part of it, over a slow path minutes' worth: OpenSSH's window is 2 MiB (CHAN_SES_WINDOW_DEFAULT), of our 8 MB.
    deadline: Option<Instant>,
    /// So long after it was sent.
    patience: Duration,
}

impl Sent {
    fn check(&self, now: Instant, host: &str) -> Result<(), Error> {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return Ok(());
        }
        let what = format!("our program was sent to {host} and does not start there");
        Err(too_slow(what, format!("its last byte was sent {} s ago", self.patience.as_secs())))
    }
}

impl Drop for SshSession {
    /// A session that was not handed on is ended; one that was has its process elsewhere.
    fn drop(&mut self) {
        if self.output.is_some() {
            kill(&self.child);
        }
    }
}

impl SshSession {
    /// Reads up to the next banner. One byte at a time: what follows it belongs to somebody else.
    fn banner(&mut self, target: &SshTarget, sent: Option<&Sent>, watch: &Watch) -> Result<Banner, Error> {
        let host = &target.host;
        let mut scanner = BannerScanner::default();
        let output = self.output.as_mut().expect("taken only once the agent runs");
        let mut byte = [0];
        let mut noise = Vec::new();
        loop {
            // Before its first word only an interruption ends the wait: somebody may think about a password for minutes.
            if watch.interrupted() {
                return Err(faults::interrupted());
            }
            if let Some(sent) = sent {
                sent.check(Instant::now(), host)?;
            }
            if !ready(output.as_fd(), Interest::Read) {
                continue;
            }
            match output.read(&mut byte) {
                Ok(0) => return Err(self.ended(host, &noise)),
                Ok(_) => noise.push(byte[0]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Error::new(Fault::Ssh, format!("ssh to {host} failed")).because(error)),
            }
            match scanner.push(byte[0]) {
                Ok(Some(banner)) => return Ok(banner),
                Ok(None) => {}
                Err(_) => {
                    return Err(Error::new(Fault::Protocol, format!("{host} prints, but no haul starts there"))
                        .because("its login shell writes more than 64 KiB to standard output")
                        .try_this("keep login scripts silent for sessions without a terminal"));
                }
            }
        }
    }

    /// Writes at most as much as the pipe has room for. So a host that does not read cannot block the look at the clock and at an
    /// interruption.
    fn send(&mut self, bytes: &[u8], target: &SshTarget, watch: &Watch) -> Result<(), Error> {
        let input = self.input.as_mut().expect("taken only once the agent runs");
        let mut progress = Progress::new(None, Instant::now());
        let mut sent = 0;
        while sent < bytes.len() {
            if watch.interrupted() {
                return Err(faults::interrupted());
            }
            if progress.is_stalled(true, sent as u64, 0, Instant::now(), target.timeout) {
                let what = format!("{} does not take our program", target.host);
                return Err(too_slow(what, format!("nothing has moved for {} s", target.timeout.as_secs())));
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

    /// Why ssh ended before the agent spoke: ssh's own words tell it apart.
    fn ended(&mut self, host: &str, noise: &[u8]) -> Error {
        let status = wait(&self.child, EXIT_WAIT).and_then(|status| status.code());
        let said = self.words.last();
        match status {
            Some(255) => login_failed(host, &said),
            Some(127) => Error::new(Fault::Install, format!("no such program on {host}"))
                .try_this("correct --haul-path, or leave it out: haul then brings its own program"),
            Some(code) => {
                let error = Error::new(Fault::Ssh, format!("the session on {host} ended with status {code}"))
                    .try_this(format!("try: ssh {host} true"));
                let printed = String::from_utf8_lossy(noise);
                match said.or_else(|| last_line(&printed)) {
                    Some(words) => error.because(words),
                    None => error,
                }
            }
            None => Error::new(Fault::Ssh, format!("ssh to {host} was ended")),
        }
    }

    /// The session as a stream; ending it kills ssh.
    pub(crate) fn into_stream(self) -> Result<(Stream, SshChild), Error> {
        let child = SshChild(Arc::clone(&self.child));
        Ok((Stream::plain(self.into_pipes()?), child))
    }

    /// The session's two pipes; ending them kills ssh.
    fn into_pipes(mut self) -> Result<Pipes, Error> {
        let (Some(input), Some(output)) = (self.input.take(), self.output.take()) else { unreachable!("taken once") };
        let child = Arc::clone(&self.child);
        Pipes::new(output, input, Some(Box::new(move || kill(&child))))
            .map_err(|error| Error::new(Fault::Ssh, "cannot use the pipes of ssh").because(error))
    }
}

/// The ssh process of a session, killed with this. The pipes stay open while threads of the session wait at them, so a hung host
/// would keep ssh for ever.
pub(crate) struct SshChild(Arc<Mutex<Child>>);

impl SshChild {
    /// Waits a little for it to end by itself, then ends it.
    pub(crate) fn end(self) {
        wait(&self.0, EXIT_WAIT);
    }
}

impl Drop for SshChild {
    fn drop(&mut self) {
        kill(&self.0);
    }
}

/// A host that has said a first word of ours did not go on in time.
fn too_slow(what: String, why: String) -> Error {
    let error = Error::new(Fault::Timeout, what).because(why);
    error.try_this("install haul there, or wait longer with --timeout")
}

/// What a login shell prints before it runs a command is read to here, and thrown away.
const NOISE_MAX_BYTES: u64 = 1 << 20;

/// One note says that our program is not kept, another that it is run by its name.
const MAX_NOTES: u32 = 2;

/// How often an interruption is looked for while nothing moves.
const INTERRUPT_CHECK: Duration = Duration::from_millis(100);

/// A pipe that poll calls writable takes so much without waiting: PIPE_BUF (pipe(7)), a page of its ring.
const PIPE_ROOM_BYTES: usize = 4096;

fn ready(pipe: BorrowedFd<'_>, interest: Interest) -> bool {
    // An error of poll is found by the read or write that follows.
    poll::wait(&[(pipe, interest)], Some(INTERRUPT_CHECK)).map_or(true, |ready| ready[0])
}

/// Ends it, and waits until it is gone, though not for one that hangs in the kernel.
fn kill(child: &Mutex<Child>) {
    // Fails only when it is gone already.
    let _ = lock(child).kill();
    wait(child, EXIT_WAIT);
}

/// How long ssh may take to end after its session did.
const EXIT_WAIT: Duration = Duration::from_millis(1500);

fn wait(child: &Mutex<Child>, limit: Duration) -> Option<std::process::ExitStatus> {
    let end = Instant::now() + limit;
    loop {
        if let Ok(Some(status)) = lock(child).try_wait() {
            return Some(status);
        }
        if Instant::now() >= end {
            return None;
        }
        // There is no wait with a limit; a few milliseconds more or less do not matter at the end of a job.
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_start_was_waited_for_as_long_as_is_said() {
        // `--timeout` and what the sending took.
        let (now, patience) = (Instant::now(), Duration::from_secs(60 + 15));
        let sent = Sent { deadline: now.checked_add(patience), patience };
        sent.check(now + Duration::from_secs(74), "h").unwrap();
        let error = sent.check(now + patience, "h").unwrap_err();
        assert_eq!(error.what, "our program was sent to h and does not start there");
        assert_eq!(error.cause.as_deref(), Some("its last byte was sent 75 s ago"));
    }
}
