//! The place that ssh is started to: the command, its kept login, and the start of the far side's agent.

use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use haul_job::{Carriage, Error, Event, Family, Far, Fault, SshOptions, Subject};
use haul_wire::PROTOCOL_VERSION;
use haul_wire::banner::{Banner, LOGIN};

use super::dialled::{self, Dialled};
use super::kept_login::KeptLogin;
use super::packed::packed;
use super::programs::{Programs, ProgramsSought};
use super::question;
use super::resolved::{Resolved, setting};
use super::script::{quoted, start_script};
use super::session::{FirstWord, Sent, Silence, SshSession, kill};
use crate::dial_threads::DialThreads;
use haul_channel::convert;
use haul_channel::reporter::Watch;
use haul_kept::surroundings::{Environment, Surroundings};

/// The start of ssh.
#[derive(Clone)]
pub struct SshTarget {
    /// Account; `None`: ssh decides.
    pub user: Option<String>,
    /// The name, as typed.
    pub host: String,
    /// Port; `None`: ssh decides.
    pub port: Option<u16>,
    /// User's options.
    pub options: SshOptions,
    /// Requested version of IP.
    pub family: Option<Family>,
    /// The longest silence after the first word of our protocol.
    pub timeout: Duration,
    pub(crate) may_ask: bool,
    has_person: bool,
    /// ssh's limit to connect. `None`: the user's.
    connect_timeout: Option<Duration>,
    /// The host in ssh's configuration.
    pub host_name: String,
    pub(crate) is_indirect: bool,
    pub(super) kept: Kept,
    /// Make ssh speak on a connection of ours. `None`: ssh dials.
    dialled: Option<(Vec<OsString>, Dialled)>,
    /// Words before the login's end show then, or never.
    holds_words: bool,
}

#[derive(Clone)]
pub(super) enum Kept {
    At(KeptLogin),
    /// The reason, if worth a word.
    No(Option<String>),
}

#[derive(Clone, Copy)]
pub(super) enum Login<'a> {
    New(&'a Kept),
    Kept(&'a KeptLogin),
}

impl SshTarget {
    /// The target of a place over ssh.
    pub fn of(place: &Far, options: &SshOptions, carriage: &Carriage) -> Option<Self> {
        match place {
            Far::Ssh { user, host, port } => Some(Self {
                user: user.clone(),
                host: host.clone(),
                port: port.or(options.port),
                options: options.clone(),
                family: carriage.family,
                timeout: carriage.timeout,
                may_ask: true,
                has_person: true,
                connect_timeout: None,
                host_name: host.clone(),
                is_indirect: false,
                kept: Kept::No(None),
                dialled: None,
                holds_words: false,
            }),
            Far::Haul { .. } => None,
        }
    }

    pub(crate) fn looked_up(mut self, surroundings: &Surroundings) -> Self {
        let is_batch = |resolved: &Resolved| resolved.is_set("batchmode");
        let asked = self.command();
        // Another program may have other options.
        let may_tell = self.options.program.is_none() && self.options.config.as_deref().is_none_or(can_be_read_twice);
        let resolved = may_tell.then(|| Resolved::ask(&asked)).flatten();
        let typed_batch = self.options.options.iter().any(|option| {
            let option = option.to_string_lossy();
            let (name, value) = setting(&option);
            name == "batchmode" && value == "yes"
        });
        let is_batch = typed_batch || resolved.as_ref().is_some_and(is_batch);
        self.has_person = can_ask(&surroundings.environment);
        self.may_ask = self.has_person && !is_batch;
        let Some(resolved) = resolved else {
            let why = self.options.program.is_none().then(|| "ssh -G does not say what ssh would do".to_owned());
            self.kept = Kept::No(why.filter(|_| !self.options.fresh_login));
            return self;
        };
        // Over a connection that the user's configuration shares, ssh asks for nothing, and does not tell when a login is over.
        self.may_ask &= resolved.value("controlpath").is_none_or(|socket| UnixStream::connect(socket).is_err());
        self.host_name = resolved.value("hostname").unwrap_or(&self.host).to_owned();
        self.is_indirect = resolved.is_indirect();
        // A proxy may ask for a password, too.
        if !self.is_indirect && resolved.value("connecttimeout").is_none() {
            self.connect_timeout = Some(self.timeout);
        }
        self.dialled = dialled::options(&resolved, self.connect_timeout);
        if !self.options.fresh_login {
            self.kept = match KeptLogin::of(&asked, &self.options.options, &resolved, surroundings) {
                Ok(kept) => Kept::At(kept),
                Err(why) => Kept::No(Some(why)),
            };
        }
        self
    }

    pub(crate) fn without_kept_login(mut self) -> Self {
        self.kept = Kept::No(None);
        self
    }

    pub(crate) fn silently(mut self) -> Self {
        self.options.options.push("BatchMode=yes".into());
        self.may_ask = false;
        self
    }

    pub(crate) fn with_words_held(mut self) -> Self {
        self.holds_words = true;
        self
    }

    fn command(&self) -> Command {
        self.command_with(&[], true)
    }

    /// Our options win. They are scp's: one command with clean input and output, whatever the user's configuration says.
    pub(super) fn command_with(&self, ours: &[OsString], by_jump: bool) -> Command {
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

    /// Logs in for the next session, if possible.
    pub fn log_in(self, watch: &Watch) -> Result<(), Error> {
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
        self.spawn_with(Vec::new(), remote_command, login)
    }

    pub(super) fn spawn_with(
        &self,
        mut ours: Vec<OsString>,
        remote_command: &str,
        login: Login<'_>,
    ) -> Result<SshSession, Error> {
        let (is_kept, silence) = match login {
            Login::Kept(kept) => {
                ours.extend(kept.to_use());
                (true, Silence::new(false, self.timeout, Instant::now()))
            }
            Login::New(kept) => {
                if let Kept::At(kept) = kept {
                    ours.extend(kept.to_log_in());
                }
                ours.extend([OsString::from("PermitLocalCommand=yes"), format!("LocalCommand=echo {LOGIN}").into()]);
                ours.extend(self.dialled.iter().flat_map(|(options, _)| options.iter().cloned()));
                if let Some(limit) = self.connect_timeout {
                    ours.push(format!("ConnectTimeout={}", limit.as_secs().max(1)).into());
                }
                (false, Silence::new(self.may_ask, self.timeout, Instant::now()))
            }
        };
        let mut command = self.command_with(&ours, !is_kept);
        command.arg(remote_command);
        if !is_kept && !self.has_person {
            question::tell_instead(&mut command);
        }
        let session = SshSession::start(command, &self.host, silence, is_kept || self.holds_words)?;
        let dialled = self.dialled.as_ref().filter(|_| !is_kept);
        Ok(session.dials(dialled.map(|(_, dialled)| dialled.clone())))
    }

    /// Starts the far side's agent with `arguments` of `haul agent`. The wait ends with the session of `dial_threads`.
    pub(crate) fn start_agent(
        &self,
        arguments: &str,
        programs: ProgramsSought,
        watch: &Watch,
        dial_threads: Option<&DialThreads>,
    ) -> Result<SshSession, Error> {
        let tell = |choice: &str, reason: String| {
            watch.tell(&Event::Chose { what: Subject::Login, choice: choice.to_owned(), reason });
        };
        // ssh delivers our input a round trip later than the command, so all that the far side must know goes with it.
        let (script, programs) = match &self.options.remote_program {
            Some(program) => (agent_of(program, arguments), None),
            None => {
                let programs = programs.found()?;
                (start_script(arguments, &programs.line()), Some(programs))
            }
        };
        let watched = |session: &SshSession| {
            let child = session.child();
            dial_threads.map(|dial_threads| dial_threads.on_end(move || kill(&child)))
        };
        match &self.kept {
            Kept::At(kept) if kept.stands() => {
                let mut session = self.spawn(&script, Login::Kept(kept))?;
                let _watched = watched(&session);
                if let FirstWord::Came = session.first_word(kept.patience(), watch)? {
                    if let Some(pace) = session.pace() {
                        kept.has_answered_after(pace);
                    }
                    return self.await_agent(session, programs, watch);
                }
                // The login is dead, or slower than before.
                kept.give_up(&self.host);
                tell("a new one", "the connection of the last one does not answer any more".to_owned());
            }
            Kept::No(Some(why)) => tell("not kept", why.clone()),
            Kept::At(_) | Kept::No(None) => {}
        }
        let session = self.spawn(&script, Login::New(&self.kept))?;
        let _watched = watched(&session);
        let session = self.await_agent(session, programs, watch)?;
        if let (Kept::At(kept), Some(pace)) = (&self.kept, session.pace()) {
            kept.has_answered_after(pace);
        }
        Ok(session)
    }

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
                Banner::Need { system, machine, unpacks } => {
                    let found = programs.take().map(|programs| programs.take_for(&system, &machine)).transpose()?;
                    let program = found.flatten().ok_or_else(|| {
                        if system != "Linux" {
                            return runs_elsewhere(&self.host, &convert::bounded(system.clone()));
                        }
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
                    if unpacks {
                        let cannot = |error| Error::new(Fault::Install, "cannot pack our program").because(error);
                        session.send(&packed(&program).map_err(cannot)?, self.timeout, watch)?;
                    } else {
                        session.send(&program, self.timeout, watch)?;
                    }
                    sent = Some(Sent::now(self.timeout, start.elapsed()));
                }
            }
        }
    }
}

/// No haul exists for it, so an installed program would not help.
fn runs_elsewhere(host: &str, system: &str) -> Error {
    Error::new(Fault::Install, format!("haul runs on Linux only, and {host} runs {system}"))
        .try_this("run haul on a Linux host that mounts the same disk, or copy with rsync or scp")
}

fn agent_of(program: &str, arguments: &str) -> String {
    format!("echo; exec {} agent {arguments}", quoted(program))
}

/// Whether a second ssh can read the configuration (`-F`). A pipe would be empty.
fn can_be_read_twice(config: &Path) -> bool {
    config.as_os_str() == "none" || std::fs::metadata(config).is_ok_and(|found| found.is_file())
}

/// Whether ssh can ask the user: at a terminal, or by a program with a window (ssh(1), SSH_ASKPASS).
fn can_ask(environment: &Environment) -> bool {
    let is_set = |name: &str| environment.get(name).is_some_and(|value| !value.is_empty());
    let wanted = environment.get("SSH_ASKPASS_REQUIRE").and_then(|value| value.to_str()).unwrap_or_default();
    let has_window = is_set("SSH_ASKPASS") && (wanted == "force" || is_set("DISPLAY") || is_set("WAYLAND_DISPLAY"));
    std::fs::File::open("/dev/tty").is_ok() || (has_window && wanted != "never")
}

const NOTHING: &str = "exit 0";

/// Our program is not kept, and it is run by its name.
const MAX_NOTES: u32 = 2;
