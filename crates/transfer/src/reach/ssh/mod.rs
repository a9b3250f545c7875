//! Reaches a far side through the system's ssh program, and puts our own program there when it is missing.
//!
//! One ssh session does it all. A start script for the login shell runs one of these: the program that is kept there under the
//! hash of its content; an installed program of the same protocol; our own program, which it asks for, or one for its machine that lies
//! beside ours. The user's
//! configuration, agent, jump hosts and second factors work as ever. A far side that has the program costs no round trip.
//!
//! While ssh may be asking somebody for a password, it is waited for without a limit. `--timeout` holds for all else: where nobody can
//! be asked, from the end of the login on, and from the first word of our protocol on. ssh tells when the login is over: it then runs
//! a command of ours here (ssh_config(5), LocalCommand).

mod escaper;
mod far_identity;
mod kept_login;
mod lanes;
mod machinery;
pub mod names;
mod programs;
mod resolved;
mod script;
mod session;
mod words;

use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use haul_job::{Carriage, Error, Event, Family, Fault, Place, SshOptions, Subject};
use haul_wire::PROTOCOL_VERSION;
use haul_wire::banner::{Banner, LOGIN};

use crate::kept::surroundings::{Environment, Surroundings};
use crate::reach::crew::Crew;
use crate::session::convert;
use crate::session::reporter::Watch;
use kept_login::KeptLogin;
pub(crate) use lanes::{SshKeeper, SshLanes};
use programs::Programs;
use resolved::{Resolved, setting};
use script::{quoted, start_script};
use session::{FirstWord, Sent, Silence, kill};
pub(crate) use session::{SshChild, SshSession};

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
    /// ssh may ask somebody for a password.
    may_ask: bool,
    /// ssh gives up by itself when nobody accepts a connection for so long. `None`: the user has said how long.
    connect_timeout: Option<Duration>,
    /// The name or address that ssh's configuration has for the host.
    pub(crate) host_name: String,
    /// Another host or program connects to it.
    pub(crate) is_indirect: bool,
    /// Where its login is kept, or why it is not.
    kept: Kept,
}

/// The login of a target.
#[derive(Clone)]
enum Kept {
    At(KeptLogin),
    /// With the reason, where that is worth a word.
    No(Option<String>),
}

/// How one ssh comes to its connection.
#[derive(Clone, Copy)]
enum Login<'a> {
    /// By a login.
    New(&'a Kept),
    /// Over a connection that stands.
    Kept(&'a KeptLogin),
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
                may_ask: true,
                connect_timeout: None,
                host_name: host.clone(),
                is_indirect: false,
                kept: Kept::No(None),
            }),
            Place::Local | Place::Zero { .. } | Place::Stripes { .. } | Place::Null | Place::Haul { .. } => None,
        }
    }

    /// Adds what ssh's configuration says of the host, and where its login is kept. No login is kept where the user wants a new one.
    pub(crate) fn looked_up(mut self, surroundings: &Surroundings) -> Self {
        let is_batch = |resolved: &Resolved| resolved.is_set("batchmode");
        let asked = self.command();
        // Another program may know other options.
        let may_tell = self.options.program.is_none() && self.options.config.as_deref().is_none_or(can_be_read_twice);
        let resolved = may_tell.then(|| Resolved::ask(&asked)).flatten();
        let typed_batch = self.options.options.iter().any(|option| {
            let option = option.to_string_lossy();
            let (name, value) = setting(&option);
            name == "batchmode" && value == "yes"
        });
        let is_batch = typed_batch || resolved.as_ref().is_some_and(is_batch);
        self.may_ask = can_ask(&surroundings.environment) && !is_batch;
        let Some(resolved) = resolved else {
            let why = self.options.program.is_none().then(|| "ssh -G does not say what ssh would do".to_owned());
            self.kept = Kept::No(why.filter(|_| !self.options.fresh_login));
            return self;
        };
        // Over a connection that the user's own configuration shares, nobody is asked, and ssh does not say that a login is over.
        self.may_ask &= resolved.value("controlpath").is_none_or(|socket| UnixStream::connect(socket).is_err());
        self.host_name = resolved.value("hostname").unwrap_or(&self.host).to_owned();
        self.is_indirect = resolved.is_indirect();
        // A proxy may ask, too.
        if !self.is_indirect && resolved.value("connecttimeout").is_none() {
            self.connect_timeout = Some(self.timeout);
        }
        if !self.options.fresh_login {
            self.kept = match KeptLogin::of(&asked, &self.options.options, &resolved, surroundings) {
                Ok(kept) => Kept::At(kept),
                Err(why) => Kept::No(Some(why)),
            };
        }
        self
    }

    /// The same, for sessions that each have a connection of their own.
    pub(crate) fn without_kept_login(mut self) -> Self {
        self.kept = Kept::No(None);
        self
    }

    /// The same, and nobody is asked for a password.
    fn silently(mut self) -> Self {
        self.options.options.push("BatchMode=yes".into());
        self.may_ask = false;
        self
    }

    /// The ssh command without the remote command, as the user means it.
    fn command(&self) -> Command {
        self.command_with(&[], true)
    }

    /// The same with options of ours, which win. The settings are scp's: nothing from the user's configuration may turn the session into
    /// something else than one command with clean input and output.
    fn command_with(&self, ours: &[OsString], by_jump: bool) -> Command {
        let program = self.options.program.clone().unwrap_or_else(|| OsString::from("ssh"));
        let mut command = Command::new(program);
        command.args(["-x", "-T"]);
        for option in ours {
            command.arg("-o").arg(option);
        }
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
        if let Some(jump) = self.options.jump.as_ref().filter(|_| by_jump) {
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
    pub(crate) fn log_in(self, watch: &Watch) -> Result<(), Error> {
        let Kept::At(kept) = &self.kept else { return Ok(()) };
        if kept.stands() {
            let mut session = self.spawn(NOTHING, Login::Kept(kept))?;
            match session.first_word(kept.patience(), watch)? {
                FirstWord::Came => return Ok(()),
                FirstWord::Missing => kept.give_up(&self.host),
            }
        }
        self.spawn(NOTHING, Login::New(&self.kept))?.finish(watch)
    }

    fn spawn(&self, remote_command: &str, login: Login<'_>) -> Result<SshSession, Error> {
        let mut ours = Vec::new();
        let (is_kept, silence) = match login {
            Login::Kept(kept) => {
                ours.extend(kept.to_use());
                (true, Silence::new(false, self.timeout, Instant::now()))
            }
            Login::New(kept) => {
                if let Kept::At(kept) = kept {
                    ours.extend(kept.to_log_in());
                }
                // The shell of this user runs it, whichever it is. Its output is the session's.
                ours.extend([OsString::from("PermitLocalCommand=yes"), format!("LocalCommand=echo {LOGIN}").into()]);
                if let Some(limit) = self.connect_timeout {
                    ours.push(format!("ConnectTimeout={}", limit.as_secs().max(1)).into());
                }
                (false, Silence::new(self.may_ask, self.timeout, Instant::now()))
            }
        };
        let mut command = self.command_with(&ours, !is_kept);
        command.arg(remote_command);
        SshSession::start(command, &self.host, silence, is_kept)
    }

    /// Starts the far side's agent. `arguments` follow `haul agent`.
    ///
    /// `crew`: the session of a lane; when it is over, so is the wait for the agent.
    pub(crate) fn start_agent(&self, arguments: &str, watch: &Watch, crew: Option<&Crew>) -> Result<SshSession, Error> {
        let tell = |choice: &str, reason: String| {
            watch.tell(&Event::Chose { what: Subject::Login, choice: choice.to_owned(), reason });
        };
        match &self.kept {
            Kept::At(kept) if kept.stands() => {
                if let Some(session) = self.start_over(kept, arguments, watch, crew)? {
                    return Ok(session);
                }
                kept.give_up(&self.host);
                tell("a new one", "the connection of the last one does not answer any more".to_owned());
            }
            Kept::No(Some(why)) => tell("not kept", why.clone()),
            Kept::At(_) | Kept::No(None) => {}
        }
        // A login takes longer than to hash our programs, and the hash is ready when it is asked for.
        let script = match &self.options.remote_program {
            Some(program) => agent_of(program, arguments),
            None => start_script(arguments, None),
        };
        let mut session = self.spawn(&script, Login::New(&self.kept))?;
        let child = session.child();
        let _watched = crew.map(|crew| crew.on_end(move || kill(&child)));
        let programs = match self.options.remote_program {
            Some(_) => None,
            None => {
                let programs = Programs::find()?;
                // When ssh could not connect, its own words say so better than the broken pipe.
                drop(session.send(programs.line().as_bytes(), self.timeout, watch));
                Some(programs)
            }
        };
        let session = self.await_agent(session, programs, watch)?;
        if let (Kept::At(kept), Some(pace)) = (&self.kept, session.pace()) {
            kept.has_answered_after(pace);
        }
        Ok(session)
    }

    /// The same over a connection that stands. `None`: it is dead, or its far side is slower than before.
    fn start_over(
        &self,
        kept: &KeptLogin,
        arguments: &str,
        watch: &Watch,
        crew: Option<&Crew>,
    ) -> Result<Option<SshSession>, Error> {
        // Without a login to wait for, the hash of our programs goes with the command: over ssh that saves a round trip, and hashing takes
        // some 10 ms.
        let (script, programs) = match &self.options.remote_program {
            Some(program) => (agent_of(program, arguments), None),
            None => {
                let programs = Programs::find()?;
                (start_script(arguments, Some(&programs.line())), Some(programs))
            }
        };
        let mut session = self.spawn(&script, Login::Kept(kept))?;
        let child = session.child();
        let _watched = crew.map(|crew| crew.on_end(move || kill(&child)));
        match session.first_word(kept.patience(), watch)? {
            FirstWord::Missing => return Ok(None),
            FirstWord::Came => {}
        }
        if let Some(pace) = session.pace() {
            kept.has_answered_after(pace);
        }
        self.await_agent(session, programs, watch).map(Some)
    }

    /// Waits until the agent runs. It is sent our program, if it asks for it.
    fn await_agent(
        &self,
        mut session: SshSession,
        mut programs: Option<Programs>,
        watch: &Watch,
    ) -> Result<SshSession, Error> {
        let (mut sent, mut notes): (Option<Sent>, u32) = (None, 0);
        loop {
            match session.banner(sent.as_ref(), watch)? {
                Banner::LoggedIn => {}
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
                    session.send(&program, self.timeout, watch)?;
                    sent = Some(Sent::now(self.timeout, start.elapsed()));
                }
            }
        }
    }
}

fn agent_of(program: &str, arguments: &str) -> String {
    // The first byte is that of `start.sh`.
    format!("echo; exec {} agent {arguments}", quoted(program))
}

/// Whether a second ssh finds the same in this configuration (`-F`). A pipe is empty then.
fn can_be_read_twice(config: &Path) -> bool {
    config.as_os_str() == "none" || std::fs::metadata(config).is_ok_and(|found| found.is_file())
}

/// Whether ssh finds somebody to ask: at a terminal, or by a program with a window (ssh(1), SSH_ASKPASS).
fn can_ask(environment: &Environment) -> bool {
    let is_set = |name: &str| environment.get(name).is_some_and(|value| !value.is_empty());
    let wanted = environment.get("SSH_ASKPASS_REQUIRE").and_then(|value| value.to_str()).unwrap_or_default();
    let has_window = is_set("SSH_ASKPASS") && (wanted == "force" || is_set("DISPLAY") || is_set("WAYLAND_DISPLAY"));
    std::fs::File::open("/dev/tty").is_ok() || (has_window && wanted != "never")
}

/// The command of a login that is only to be kept.
const NOTHING: &str = "exit 0";

/// One note says that our program is not kept, another that it is run by its name.
const MAX_NOTES: u32 = 2;
