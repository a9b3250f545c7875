//! Reaches a far side through the system's ssh program, and puts our own program there when it is missing.
//!
//! One ssh session does it all: a start script for the login shell runs the program that is kept there under the hash of
//! its content, or one that is installed there and speaks the same protocol, or asks for ours and runs that. So the user's
//! configuration, agent, jump hosts and second factors just work, and a far side that has the program costs no round trip.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use haul_net::{NetError, Stream};
use haul_sys::poll::{self, Interest};
use haul_wire::PROTOCOL_VERSION;
use haul_wire::banner::{Banner, BannerScanner, FAIL, NEED};

use crate::channel::SessionEvent;
use crate::error::{Error, Fault};
use crate::event::Event;
use crate::job::{Family, Place, SshOptions};
use crate::lanes::{LaneTerms, greet};
use crate::session::{self, LaneKeeper};
use crate::watch::Watch;

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
}

impl SshTarget {
    /// The target behind a place; `None` for places that are not reached over ssh.
    pub(crate) fn of(place: &Place, options: &SshOptions, family: Option<Family>) -> Option<Self> {
        match place {
            Place::Ssh { user, host, port } => Some(Self {
                user: user.clone(),
                host: host.clone(),
                port: port.or(options.port),
                options: options.clone(),
                family,
            }),
            Place::Local | Place::Haul { .. } => None,
        }
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
    pub(crate) fn start_agent(&self, arguments: &str, watch: &Watch) -> Result<SshSession, Error> {
        let ours = if self.options.remote_program.is_some() { None } else { Some(Program::ours()?) };
        let script = match (&self.options.remote_program, &ours) {
            (Some(program), _) => format!("exec {} agent {arguments}", quoted(program)),
            (None, Some(ours)) => start_script(ours, arguments),
            (None, None) => unreachable!("one of both is there"),
        };
        let mut session = self.spawn(&script)?;
        loop {
            match session.banner(&self.host, watch)? {
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
                Banner::Need { system, machine } => {
                    let ours = ours.as_ref().filter(|_| runs_on(&system, &machine)).ok_or_else(|| {
                        Error::new(Fault::Install, format!("haul is not installed on {}", self.host))
                            .because(format!("it is {system} on {machine}; our own program would not run there"))
                            .try_this("install haul there, in the PATH of ssh commands or named with --haul-path PATH")
                    })?;
                    let (place, bytes) = (self.host.clone(), ours.bytes.len() as u64);
                    watch.tell(&Event::Installing { place, bytes });
                    session.send(&ours.bytes)?;
                }
            }
        }
    }
}

impl Drop for SshSession {
    /// A session that was not handed on is ended; one that was has its process elsewhere.
    fn drop(&mut self) {
        if self.output.is_some() {
            let mut child = session::lock(&self.child);
            // Both fail only when it is gone already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl SshSession {
    /// Reads up to the next banner. One byte at a time: what follows it belongs to somebody else.
    fn banner(&mut self, host: &str, watch: &Watch) -> Result<Banner, Error> {
        let mut scanner = BannerScanner::default();
        let output = self.output.as_mut().expect("taken only once the agent runs");
        let mut byte = [0];
        let mut noise = Vec::new();
        loop {
            // Somebody may think about a password for minutes: only an interruption ends the wait.
            while !ready(output, INTERRUPT_CHECK) {
                if watch.interrupted() {
                    return Err(session::interrupted());
                }
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

    fn send(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let input = self.input.as_mut().expect("taken only once the agent runs");
        input.write_all(bytes).and_then(|()| input.flush()).map_err(|error| {
            Error::new(Fault::Install, "cannot copy our program to the far side")
                .because(error)
                .try_this("look for a full disk or quota in the home directory there")
        })
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
    pub(crate) fn into_stream(mut self) -> Result<(Stream, SshChild), Error> {
        let failed = |error: io::Error| Error::new(Fault::Ssh, "cannot use the pipes of ssh").because(error);
        let (input, output) = (self.input.take(), self.output.take());
        let (Some(input), Some(output)) = (input, output) else { unreachable!("taken once") };
        let child = Arc::clone(&self.child);
        let kill: Box<dyn Fn() + Send + Sync> = Box::new(move || {
            // It may have ended by itself.
            let _ = session::lock(&child).kill();
        });
        let stream = Stream::plain_pipes(output, input, Some(kill)).map_err(failed)?;
        Ok((stream, SshChild(Arc::clone(&self.child))))
    }
}

/// The ssh process of a session.
pub(crate) struct SshChild(Arc<Mutex<Child>>);

impl SshChild {
    /// Waits a little for it to end by itself, then ends it.
    pub(crate) fn end(self) {
        if wait(&self.0, EXIT_WAIT).is_none() {
            let mut child = session::lock(&self.0);
            // Both fail only when it is gone already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// How often an interruption is looked for while ssh logs in.
const INTERRUPT_CHECK: Duration = Duration::from_millis(100);

fn ready(output: &ChildStdout, limit: Duration) -> bool {
    let watched = [(output.as_fd(), Interest::Read)];
    // An error of poll is found by the read that follows.
    poll::wait(&watched, Some(limit)).is_ok_and(|ready| ready[0])
}

/// What ssh and the far side print on standard error: passed on as it comes, the last of it kept to explain a failure.
#[derive(Default)]
struct Words {
    kept: Mutex<Vec<u8>>,
    ended: Mutex<Option<JoinHandle<()>>>,
}

/// Of the words of ssh this much is kept; the reason stands in the last lines.
const WORDS_KEPT_BYTES: usize = 4096;

impl Words {
    fn listen(stderr: Option<ChildStderr>) -> Arc<Self> {
        let words = Arc::new(Words::default());
        let Some(mut stderr) = stderr else { return words };
        let listener = Arc::clone(&words);
        let thread = std::thread::Builder::new().name("ssh-words".into()).spawn(move || {
            let mut block = [0; 1024];
            while let Ok(read @ 1..) = stderr.read(&mut block) {
                // Nobody is left to be told where standard error is closed.
                let _ = io::stderr().write_all(&block[..read]);
                let mut kept = session::lock(&listener.kept);
                kept.extend_from_slice(&block[..read]);
                let surplus = kept.len().saturating_sub(WORDS_KEPT_BYTES);
                kept.drain(..surplus);
            }
        });
        *session::lock(&words.ended) = thread.ok();
        words
    }

    /// All that was said, once ssh has ended. A background process of the user's ssh (a shared connection) may hold the pipe
    /// open; it is not waited for.
    fn last(&self) -> Option<String> {
        let end = Instant::now() + EXIT_WAIT;
        while Instant::now() < end && session::lock(&self.ended).as_ref().is_some_and(|thread| !thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(2));
        }
        let kept = session::lock(&self.kept);
        let text = String::from_utf8_lossy(&kept).into_owned();
        (!text.trim().is_empty()).then_some(text)
    }
}

/// The last line with anything on it.
fn last_line(text: &str) -> Option<String> {
    text.lines().map(str::trim).rfind(|line| !line.is_empty()).map(str::to_owned)
}

/// What OpenSSH's client says, and what it means. Source: sshconnect.c, sshconnect2.c, misc.c of OpenSSH.
const SSH_SAYS: [(&str, Fault, &str, &str); 12] = [
    ("Could not resolve hostname", Fault::Network, "cannot find the host", "check the spelling of the host"),
    (
        "Connection refused",
        Fault::Network,
        "nothing accepts ssh there",
        "is sshd running there, and on this port (-P)?",
    ),
    ("timed out", Fault::Network, "it does not answer", "is the host up, and does a firewall let ssh through?"),
    (
        "No route to host",
        Fault::Network,
        "there is no way to it",
        "is the host up, and does a firewall let ssh through?",
    ),
    ("Network is unreachable", Fault::Network, "there is no way to it", "look at this host's network"),
    ("Connection reset", Fault::Network, "it broke the connection", "is it sshd that listens on this port?"),
    (
        "HOST IDENTIFICATION HAS CHANGED",
        Fault::Authentication,
        "it shows another host key than before",
        "somebody may be in between; ask its operator, then: ssh-keygen -R HOST",
    ),
    (
        "Host key verification failed",
        Fault::Authentication,
        "its host key is not known here",
        "log in once with ssh and compare the key",
    ),
    (
        "No ED25519 host key is known",
        Fault::Authentication,
        "its host key is not known here",
        "log in once with ssh and compare the key",
    ),
    ("Permission denied", Fault::Authentication, "it refuses the login", "check user name, key (-i) and ssh agent"),
    (
        "Too many authentication failures",
        Fault::Authentication,
        "it refuses the login",
        "name the key with -i, and -o IdentitiesOnly=yes",
    ),
    ("Bad configuration option", Fault::Usage, "ssh does not know an option", "check -o and the ssh configuration"),
];

fn login_failed(host: &str, said: &Option<String>) -> Error {
    let text = said.as_deref().unwrap_or_default();
    let known = SSH_SAYS.iter().find(|(words, ..)| text.contains(words));
    let error = match known {
        Some((_, fault, what, hint)) => {
            Error::new(*fault, format!("ssh cannot log in to {host}: {what}")).try_this(hint.replace("HOST", host))
        }
        None => {
            Error::new(Fault::Ssh, format!("ssh could not log in to {host}")).try_this(format!("try: ssh {host} true"))
        }
    };
    match last_line(text) {
        Some(line) => error.because(line),
        None => error,
    }
}

/// How long ssh may take to end after its session did.
const EXIT_WAIT: Duration = Duration::from_millis(1500);

fn wait(child: &Mutex<Child>, limit: Duration) -> Option<std::process::ExitStatus> {
    let end = Instant::now() + limit;
    loop {
        if let Ok(Some(status)) = session::lock(child).try_wait() {
            return Some(status);
        }
        if Instant::now() >= end {
            return None;
        }
        // There is no wait with a limit; a few milliseconds more or less do not matter at the end of a job.
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Our own program, to be copied to a far side.
struct Program {
    bytes: Vec<u8>,
    sha256: String,
}

impl Program {
    fn ours() -> Result<Self, Error> {
        let bytes = std::fs::read("/proc/self/exe")
            .map_err(|error| Error::new(Fault::Install, "cannot read our own program").because(error))?;
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &bytes);
        let sha256 = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { bytes, sha256 })
    }
}

fn runs_on(system: &str, machine: &str) -> bool {
    let machine = match machine {
        "amd64" => "x86_64",
        "arm64" => "aarch64",
        other => other,
    };
    system == "Linux" && machine == std::env::consts::ARCH
}

/// The command for the login shell. Any shell hands a single-quoted word on as it is, so it holds no quote, no newline and
/// no exclamation mark (csh); `sh` runs it. SHA-256 because every system has a program for it; openssl's
/// takes half the time of the others (10 against 20 ms for our 8 MB).
fn start_script(ours: &Program, arguments: &str) -> String {
    let (sha256, size) = (&ours.sha256, ours.bytes.len());
    let script = format!(
        "w={sha256}; d=${{XDG_CACHE_HOME:-$HOME/.cache}}/haul; f=$d/haul-$w; \
         s() {{ {{ openssl dgst -sha256 -r \"$1\" || sha256sum \"$1\" || shasum -a 256 \"$1\"; }} 2>/dev/null | cut -c1-64; }}; \
         if [ -x \"$f\" ] && [ \"$(s \"$f\")\" = $w ]; then exec \"$f\" agent {arguments}; fi; \
         p=$(command -v haul 2>/dev/null) && [ \"$(\"$p\" agent --protocol 2>/dev/null)\" = \"haul-protocol {PROTOCOL_VERSION}\" ] \
         && exec \"$p\" agent {arguments}; \
         echo \"{NEED} $(uname -s) $(uname -m)\"; \
         t=; mkdir -p -m 700 \"$d\" 2>/dev/null && t=$(mktemp \"$d/.new.XXXXXX\" 2>/dev/null); \
         if [ -z \"$t\" ]; then head -c {size} >/dev/null; echo \"{FAIL} cannot write to $d\"; exit 1; fi; \
         trap \"rm -f $t\" EXIT; head -c {size} >\"$t\"; \
         if [ \"$(s \"$t\")\" = $w ]; then :; else echo \"{FAIL} our program did not arrive whole in $d (no space, or no sha256sum)\"; exit 1; fi; \
         chmod 700 \"$t\"; if [ \"$(\"$t\" agent --protocol 2>/dev/null)\" = \"haul-protocol {PROTOCOL_VERSION}\" ]; then :; \
         else echo \"{FAIL} programs cannot be run from $d (mounted noexec)\"; exit 1; fi; \
         mv -f \"$t\" \"$f\" && exec \"$f\" agent {arguments}; echo \"{FAIL} cannot put our program into $d\"; exit 1"
    );
    format!("exec sh -c '{script}'")
}

/// One word for a POSIX shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Lanes inside further ssh sessions, each relayed by the far side to its agent's port.
#[derive(Clone)]
pub(crate) struct SshLanes {
    pub(crate) target: SshTarget,
    pub(crate) port: u16,
    pub(crate) watch: Arc<Watch>,
}

impl SshLanes {
    /// Connects one lane. `silently`: without asking anybody for a password.
    pub(crate) fn connect(&self, terms: &LaneTerms, lane: u16, silently: bool) -> Result<Stream, Error> {
        let mut target = self.target.clone();
        if silently {
            target.options.options.push("BatchMode=yes".into());
        }
        let session = target.start_agent(&format!("--relay {}", self.port), &self.watch)?;
        let pipes = session.into_pipes()?;
        greet(pipes, terms, lane).map_err(|error: NetError| crate::far::net_error(&error))
    }

    /// Replaces a lost lane by a new session.
    pub(crate) fn keeper(self, terms: LaneTerms) -> SshKeeper {
        SshKeeper { lanes: self, terms, left: MAX_REPLACED }
    }
}

/// Lost lanes that are replaced by new ssh sessions in one job.
const MAX_REPLACED: u32 = 32;

pub(crate) struct SshKeeper {
    lanes: SshLanes,
    terms: LaneTerms,
    left: u32,
}

impl LaneKeeper for SshKeeper {
    fn lane_lost(&mut self, lane: u16) {
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        let (lanes, terms) = (self.lanes.clone(), self.terms.clone());
        let _ = std::thread::Builder::new().name(format!("redial-{lane}")).spawn(move || {
            if let Ok(stream) = lanes.connect(&terms, lane, true) {
                let _ = terms.events.send(SessionEvent::LaneUp(stream, lane));
            }
        });
    }
}

impl SshSession {
    fn into_pipes(mut self) -> Result<haul_net::Pipes, Error> {
        let (input, output) = (self.input.take(), self.output.take());
        let (Some(input), Some(output)) = (input, output) else { unreachable!("taken once") };
        let child = Arc::clone(&self.child);
        let kill: Box<dyn Fn() + Send + Sync> = Box::new(move || {
            let mut child = session::lock(&child);
            // Both fail only when it is gone already.
            let _ = child.kill();
            let _ = child.wait();
        });
        haul_net::Pipes::new(output, input, Some(kill))
            .map_err(|error| Error::new(Fault::Ssh, "cannot use the pipes of ssh").because(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_ssh_decide_what_kind_of_failure_it_is() {
        let check = |said: &str, fault| assert_eq!(login_failed("h", &Some(said.into())).fault, fault, "{said}");
        check("ssh: Could not resolve hostname h: Name or service not known\r\n", Fault::Network);
        check("ssh: connect to host h port 22: Connection refused\r\n", Fault::Network);
        check("a@h: Permission denied (publickey).\r\n", Fault::Authentication);
        check(
            "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
            Fault::Authentication,
        );
        check("something new", Fault::Ssh);
    }

    #[test]
    fn the_start_script_survives_any_login_shell() {
        let program = Program { bytes: vec![0; 10], sha256: "ab".repeat(32) };
        let script = start_script(&program, "--port-range 5000-5010");
        let inner = script.strip_prefix("exec sh -c '").unwrap().strip_suffix('\'').unwrap();
        assert!(!inner.contains(['\'', '\n', '!']), "{inner}");
    }

    #[test]
    fn a_named_program_is_one_word_for_the_shell() {
        assert_eq!(quoted("/opt/my haul"), "'/opt/my haul'");
        assert_eq!(quoted("a'; rm -rf /; '"), "'a'\\''; rm -rf /; '\\'''");
    }
}
