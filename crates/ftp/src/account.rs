//! Who we are to a server, and how we log in.
//!
//! ```text
//! connect -> (TLS) -> AUTH TLS -> all at once: USER, PASS, PBSZ 0, PROT P, TYPE I; far away EPSV for the first transfer
//!                                 the first time also PWD, the look at the path that was typed, and FEAT
//! ```
//! The greeting is read with the first reply: to wait for it would be a round trip. A server that does not bear that is dialled once more,
//! and gets one command at a time.

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use haul_foreign::{BeginsWith, Credentials, Login, Reach, Sockets, trusting};
use haul_net::resolve;
use haul_store::ConnectionsNow;
use haul_store::{LoginRefused, SumCounts};
use rustls::{AlertDescription, ClientConfig, DEFAULT_VERSIONS, SupportedProtocolVersion};

use crate::block_habits::Grid;
use crate::codec::command::Command;
use crate::codec::features::Features;
use crate::codec::reply::Reply;
use crate::control::{Control, Habits};
use crate::pipe::{MakePipe, PipeWire};
use crate::range_habits::RangeUploads;
use crate::refusal::{invalid, refusal};
use crate::wire::{Tls, Wire};

/// When TLS is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// A password is sent over TLS (AUTH TLS) if the server offers it.
    IfOffered,
    /// Never.
    Clear,
    /// From the first byte on, as at port 990.
    Implicit,
    /// After AUTH TLS, or not at all.
    Explicit,
}

/// Tells the person a word about the server.
pub type Tell = Box<dyn Fn(String) + Send + Sync>;

/// Gets how many files that were written have been compared with sums of the server.
pub type TellSums = Box<dyn Fn(SumCounts) + Send + Sync>;

/// How a server is reached, and who we are to it.
pub struct Settings {
    /// A name or an address, without brackets.
    pub host: String,
    /// The port of control connections.
    pub port: u16,
    /// When TLS is spoken.
    pub security: Security,
    /// With TLS, the data is encrypted, too.
    pub encrypts_data: bool,
    /// The login of the URL, and `.netrc`.
    pub credentials: Credentials,
    /// How connections leave this host.
    pub reach: Reach,
    /// A server that is silent for so long counts as dead.
    pub silence: Duration,
    /// The pause before a second try, which doubles for each further one.
    pub first_pause: Duration,
    /// Most transfers at once.
    pub connections: usize,
    /// From this round trip on the port of the next transfer is asked for ahead.
    pub far_from_us: u32,
    /// How many transfers a read begins with.
    pub begins_with: BeginsWith,
    /// Gets what a person should know of the server.
    pub tell: Tell,
    /// Gets what the server's sums have proved of a target.
    pub tell_sums: TellSums,
    /// A directory of this host for journals of uploads. `None`: an upload that breaks off begins anew.
    pub journals: Option<PathBuf>,
    /// Large files go up over several connections. `None`: over one.
    pub ranges: Option<RangeUploads>,
    /// It is a server of GridFTP, and spoken to as such.
    pub grid: Option<Grid>,
    /// Control connections go through pipes, and `host` is where data connections lead.
    pub pipes: Option<MakePipe>,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("host", &self.host).field("port", &self.port).finish_non_exhaustive()
    }
}

/// An account at a server.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) settings: Settings,
    pub(crate) habits: Arc<Habits>,
    control: Arc<Sockets>,
    /// TLS 1.2 alone, and all versions.
    trusting: [OnceLock<Result<ClientConfig, String>>; 2],
    needs_new_tls: AtomicBool,
    /// The smallest round trip of a handshake so far; 0 before the first one.
    rtt_us: AtomicU32,
    known: OnceLock<Known>,
    /// The path that is looked at first, and then what the server told of it.
    first_look: Mutex<FirstLook>,
    has_told_of_clear: AtomicBool,
}

/// A path that is looked at together with the first login.
#[derive(Debug, Default)]
enum FirstLook {
    #[default]
    None,
    Wanted(Vec<u8>),
    Told(Vec<u8>, Vec<Reply>),
}

/// What the first login has told.
#[derive(Debug)]
struct Known {
    features: Features,
    /// Where paths without a slash in front begin. Empty: the server does not tell.
    home: Vec<u8>,
    has_tls: bool,
    /// Names lose all bytes but those of ASCII on their way.
    drops_bytes: bool,
}

/// The error of a login for which the server has no room: others of ours may be the reason.
pub(crate) fn is_busy(error: &io::Error) -> bool {
    error.kind() == ErrorKind::ResourceBusy
}

impl Account {
    pub(crate) fn new(settings: Settings) -> Account {
        let habits = Arc::new(Habits::new(settings.reach.clone(), settings.silence, settings.grid.as_ref()));
        Account {
            settings,
            habits,
            control: Sockets::new(),
            trusting: Default::default(),
            needs_new_tls: AtomicBool::new(false),
            rtt_us: AtomicU32::new(0),
            known: OnceLock::new(),
            first_look: Mutex::default(),
            has_told_of_clear: AtomicBool::new(false),
        }
    }

    /// The path that is looked at first: MLST, SIZE and MDTM for it go along with the first login. It is no directory by its spelling.
    pub(crate) fn looks_first_at(&self, path: &[u8]) {
        *self.first_look.lock().unwrap_or_else(PoisonError::into_inner) = FirstLook::Wanted(path.to_vec());
    }

    /// What the server has answered to MLST, SIZE and MDTM of a path with the login. It is given out once.
    pub(crate) fn first_look(&self, path: &[u8]) -> Option<Vec<Reply>> {
        let mut look = self.first_look.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::take(&mut *look) {
            FirstLook::Told(told, replies) if told == path => Some(replies),
            other => {
                *look = other;
                None
            }
        }
    }

    /// The questions of the first look, for one login.
    fn take_first_look(&self) -> io::Result<Option<(Vec<u8>, [Command; 3])>> {
        let mut look = self.first_look.lock().unwrap_or_else(PoisonError::into_inner);
        let FirstLook::Wanted(path) = std::mem::take(&mut *look) else { return Ok(None) };
        let questions = [Command::new("MLST", &path)?, Command::new("SIZE", &path)?, Command::new("MDTM", &path)?];
        Ok(Some((path, questions)))
    }

    /// A round trip is so long that what is asked ahead saves time.
    pub(crate) fn is_far(&self) -> bool {
        self.rtt_us() >= self.settings.far_from_us
    }

    /// What the kernel tells of the control connections.
    pub(crate) fn words(&self) -> ConnectionsNow {
        self.control.now()
    }

    /// The smallest round trip of any control connection so far; 0 before the first one.
    pub(crate) fn rtt_us(&self) -> u32 {
        self.rtt_us.load(Ordering::Relaxed)
    }

    /// Ends dials that are under way.
    pub(crate) fn end(&self) {
        self.control.end();
        self.habits.data.end();
    }

    /// The abilities that the server named at the first login; none before it.
    pub(crate) fn features(&self) -> Features {
        self.known.get().map(|known| known.features.clone()).unwrap_or_default()
    }

    /// Where paths begin that have no slash in front.
    pub(crate) fn home(&self) -> &[u8] {
        self.known.get().map_or(b"", |known| &known.home)
    }

    /// Names lose all bytes but those of ASCII on their way to the server.
    pub(crate) fn drops_bytes(&self) -> bool {
        self.known.get().is_some_and(|known| known.drops_bytes)
    }

    fn login(&self) -> Login {
        if self.settings.pipes.is_some() {
            return Login { user: USER_OF_SSH.to_owned(), password: String::new().into() };
        }
        let anonymous = || Login { user: "anonymous".to_owned(), password: "haul@".to_owned().into() };
        self.settings.credentials.login_at(&self.settings.host).unwrap_or_else(anonymous)
    }

    /// Who we are to the server.
    pub(crate) fn user(&self) -> String {
        self.login().user
    }

    fn tls(&self) -> io::Result<Tls> {
        let needs_new = self.needs_new_tls.load(Ordering::Relaxed);
        let versions = if needs_new { DEFAULT_VERSIONS } else { OLD_VERSIONS };
        let config = self.trusting[usize::from(needs_new)].get_or_init(|| trusting(versions));
        let config = config.as_ref().map_err(|why| io::Error::other(why.clone()))?;
        Tls::new(config, &self.settings.host)
    }

    /// Makes a control connection that is logged in. `met` is called as soon as further ones may be dialled.
    pub(crate) fn dial(&self, met: &dyn Fn()) -> io::Result<Control> {
        self.dial_by(Part::First { met })
    }

    /// Makes one that nobody waits for yet. It asks for nothing that the first one tells of.
    pub(crate) fn dial_ahead(&self) -> io::Result<Control> {
        self.dial_by(Part::Further)
    }

    fn dial_by(&self, part: Part<'_>) -> io::Result<Control> {
        let takes_several = self.habits.takes_several();
        match self.dial_once(part) {
            // It was just found out that the server takes one command at a time.
            Err(_) if takes_several && !self.habits.takes_several() => self.dial_once(part),
            Err(error) if wants_new_tls(&error) && !self.needs_new_tls.swap(true, Ordering::Relaxed) => {
                self.dial_once(part)
            }
            dialled => dialled,
        }
    }

    /// Says to a connection that is logged in what was not known at its login.
    pub(crate) fn welcomes(&self, control: &mut Control) -> io::Result<()> {
        // Globus lists it, and takes no OPTS of it.
        if self.settings.grid.is_none()
            && !control.says_utf8
            && self.known.get().is_some_and(|known| known.features.utf8)
        {
            control.say(Command::new("OPTS", b"UTF8 ON")?)?;
            control.says_utf8 = true;
        }
        Ok(())
    }

    fn dial_once(&self, part: Part<'_>) -> io::Result<Control> {
        let Settings { host, port, security, reach, silence, .. } = &self.settings;
        let addresses =
            resolve(host, *port, reach.family).map_err(|error| io::Error::new(ErrorKind::HostUnreachable, error))?;
        if let Some(make) = &self.settings.pipes {
            let peer = *addresses.first().ok_or_else(|| io::Error::other("the host has no address"))?;
            let wire = Wire::Pipe(Box::new(PipeWire::new(make()?, peer, *silence)?));
            return self.meet(Control::new(wire, &self.habits, None)?, part, None);
        }
        let (socket, counted) = self.control.connect(&addresses, reach, *silence)?;
        self.saw_rtt(counted.rtt_us());
        let mut wire = Wire::new(socket, *silence)?;
        let mut tls = None;
        if *security == Security::Implicit {
            let of_this = self.tls()?;
            wire = wire.secured(&of_this)?;
            tls = Some(of_this);
        }
        self.meet(Control::new(wire, &self.habits, Some(counted))?, part, tls)
    }

    /// The login. Of a server that ssh has started, that of ssh is the login.
    fn meet(&self, mut control: Control, part: Part<'_>, tls: Option<Tls>) -> io::Result<Control> {
        let (login, is_piped, begun) = (self.login(), self.settings.pipes.is_some(), Instant::now());
        let is_secret = is_secret(&login) || is_piped;
        if let Part::First { met } = part
            && !is_secret
        {
            met();
        }
        let prepared = self.prepare(&mut control, &login, part, tls);
        match (prepared, control.refused()) {
            (Err(_), Some(greeting)) => return Err(self.refused(greeting)),
            (prepared, _) => prepared?,
        }
        if is_piped {
            self.saw_rtt(u32::try_from(begun.elapsed().as_micros()).unwrap_or(u32::MAX));
        }
        // A server that refuses a password must not see it sixteen times.
        if let Part::First { met } = part
            && is_secret
        {
            met();
        }
        Ok(control)
    }

    /// TLS and the login.
    fn prepare(&self, control: &mut Control, login: &Login, part: Part<'_>, mut tls: Option<Tls>) -> io::Result<()> {
        let Settings { security, encrypts_data, .. } = &self.settings;
        let wants_tls = match security {
            Security::Explicit => true,
            Security::IfOffered => self.known.get().map_or(is_secret(login), |known| known.has_tls),
            Security::Implicit | Security::Clear => false,
        };
        if wants_tls {
            let reply = control.ask(Command::new("AUTH", b"TLS")?)?;
            if reply.code == 234 {
                let of_this = self.tls()?;
                control.secure(&of_this)?;
                tls = Some(of_this);
            } else if *security == Security::Explicit || self.known.get().is_some() {
                let why = format!("the server does not offer TLS ({}): ftp:// asks it for none", reply.shown());
                return Err(io::Error::new(ErrorKind::PermissionDenied, why));
            } else if control.is_broken() {
                return Err(self.refused(&reply));
            } else if !self.has_told_of_clear.swap(true, Ordering::Relaxed) {
                (self.settings.tell)("this server offers no TLS: name, password and data go in clear".to_owned());
            }
        }
        let secured = [Command::new("PBSZ", b"0")?, Command::new("PROT", if *encrypts_data { b"P" } else { b"C" })?];
        let with_tls: &[Command] = if tls.is_some() { &secured } else { &[] };
        self.log_in(control, login, with_tls, tls.is_some(), part)?;
        control.data_tls(tls.filter(|_| *encrypts_data));
        self.welcomes(control)
    }

    fn saw_rtt(&self, rtt_us: u32) {
        let rtts_us = [self.rtt_us(), rtt_us];
        self.rtt_us.store(rtts_us.into_iter().filter(|us| *us > 0).min().unwrap_or(0), Ordering::Relaxed);
    }

    /// All at once, as far as the server bears that. FEAT comes last: a server that writes it line by line fills its first window with it.
    fn log_in(
        &self,
        control: &mut Control,
        login: &Login,
        with_tls: &[Command],
        has_tls: bool,
        part: Part<'_>,
    ) -> io::Result<()> {
        let mut commands = vec![
            Command::new("USER", login.user.as_bytes())?,
            Command::new("PASS", login.password.as_bytes())?,
            Command::new("TYPE", b"I")?,
        ];
        commands.extend_from_slice(with_tls);
        let is_grid = self.settings.grid.is_some();
        if is_grid {
            // Servers authenticate data connections unless they are told not to. Those that have no certificates do not know the command.
            commands.push(Command::new("DCAU", b"N")?);
        }
        let is_first = self.known.get().is_none() && matches!(part, Part::First { .. });
        let before_nodes = commands.len();
        // The port of the first transfer is asked for behind it: the server waits at one place at a time.
        let asks_nodes = is_first && is_grid && control.host().is_ipv4();
        if asks_nodes {
            commands.push(Command::plain("SPAS"));
        }
        let after_login = commands.len();
        let is_target = self.settings.grid.as_ref().is_some_and(|grid| grid.foreseen_bytes > 0);
        // The first list of a target goes over the first connection; those that are dialled ahead carry blocks.
        let asks_port = self.is_far() && control.may_ask_ahead(is_first && is_target);
        if asks_port {
            commands.push(Command::plain("EPSV"));
        }
        let after_port = commands.len();
        let prepares = is_target && matches!(part, Part::Further);
        if prepares {
            commands.extend(control.block_questions());
        }
        let look = if is_first { self.take_first_look()? } else { None };
        if is_first {
            commands.push(Command::plain("PWD"));
            commands.extend(look.iter().flat_map(|(_, questions)| questions.iter().cloned()));
            if is_grid {
                commands.extend([Command::new("SITE", b"HELP")?, Command::new("MLST", ODD_NAME)?]);
            }
            commands.push(Command::plain("FEAT"));
        }
        let mut why_no_nodes = None;
        let (replies, cut) = control.ask_hearing(&commands, &mut |control, number, reply| {
            if asks_nodes && number == before_nodes {
                why_no_nodes = control.note_data_nodes(reply).err();
            } else if asks_port && is_first && number == after_login {
                control.connect_ahead(reply);
            }
        });
        // A server that refuses a login may close the connection.
        if let [user, rest @ ..] = &replies[..]
            && !user.is_success()
            && rest.first().map_or(!user.wants_more(), |password| !password.is_success())
        {
            return Err(self.refused(rest.first().filter(|_| user.wants_more()).unwrap_or(user)));
        }
        if let Some(error) = cut {
            if let Some((path, _)) = look {
                self.looks_first_at(&path);
            }
            return Err(error);
        }
        let [_, _, binary, rest @ ..] = &replies[..] else { return Err(invalid("an answer is missing")) };
        check_binary(binary)?;
        with_tls.iter().zip(rest).try_for_each(|(command, reply)| check_protection(command, reply))?;
        if let Some(why) = why_no_nodes {
            (self.settings.tell)(format!("data goes to the host of the login, and to no data node: {why}"));
        }
        if asks_port {
            control.note_port(&replies[after_login]);
        }
        if prepares {
            // Without an answer the transfer asks again.
            let _ = control.note_blocks(&replies[after_port..]);
        } else if let [home, looked @ .., features] = &replies[after_port..] {
            let mut features = Features::of(features);
            let (mut looked, mut drops_bytes) = (looked, false);
            if let ([before @ .., help, odd], true) = (looked, is_grid) {
                (looked, drops_bytes) = (before, odd.is_success());
                features = features.with_help(help);
                if is_secret(login) {
                    (self.settings.tell)(
                        "GridFTP without certificates: name, password and data go in clear".to_owned(),
                    );
                }
            }
            let home = directory_of(home).filter(|home| home.starts_with(b"/")).unwrap_or_default();
            // Two logins at once find the same.
            let _ = self.known.set(Known { features, home, has_tls, drops_bytes });
            if let Some((path, _)) = look {
                let mut first_look = self.first_look.lock().unwrap_or_else(PoisonError::into_inner);
                *first_look = FirstLook::Told(path, looked.to_vec());
            }
        }
        Ok(())
    }

    /// The error of a login.
    fn refused(&self, reply: &Reply) -> io::Error {
        let text = String::from_utf8_lossy(&reply.lines.concat()).to_ascii_lowercase();
        // Whoever was let in before is one too many now.
        let is_full = reply.code == 421
            || self.known.get().is_some()
            || ["too many", "maximum", "limit"].iter().any(|word| text.contains(word));
        if is_full {
            let why = format!("the server allows no further connection ({})", reply.shown());
            return io::Error::new(ErrorKind::ResourceBusy, why);
        }
        match reply.code {
            430 | 530 | 331 | 332 | 532 => {
                let why = format!(
                    "{} refuses the login ({}): put one for this host into ~/.netrc, or into the URL",
                    self.settings.host,
                    reply.shown()
                );
                LoginRefused::because(why)
            }
            _ => refusal(reply),
        }
    }
}

/// A name at the top that nothing has. Globus drops its bytes, and then tells of the top itself.
const ODD_NAME: &[u8] = b"/\x7f\xc3\xa4\x7f";

/// The name that clients of Globus say to a server which ssh has started: it is the account of ssh.
const USER_OF_SSH: &str = ":globus-mapping:";

fn is_secret(login: &Login) -> bool {
    !login.password.is_empty() && login.user != "anonymous" && login.user != "ftp"
}

/// What a new connection is for.
#[derive(Clone, Copy)]
enum Part<'a> {
    /// Somebody waits for it, and whatever is not known yet is asked over it. `met` is called as soon as further ones may be dialled.
    First { met: &'a dyn Fn() },
    /// It is dialled ahead.
    Further,
}

/// TLS 1.2 comes first: each data connection continues the session of its control connection (proftpd and vsftpd take no other), and a session
/// of TLS 1.2 is continued as often as one likes. A ticket of TLS 1.3 is good for one connection, and proftpd gives no further ones with
/// uploads: the third upload of a connection failed.
const OLD_VERSIONS: &[&SupportedProtocolVersion] = &[&rustls::version::TLS12];

/// The server speaks TLS 1.3 alone.
fn wants_new_tls(error: &io::Error) -> bool {
    let error = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    matches!(
        error,
        Some(rustls::Error::AlertReceived(AlertDescription::ProtocolVersion | AlertDescription::HandshakeFailure))
            | Some(rustls::Error::PeerIncompatible(_))
    )
}

/// Without it a server would change line ends, and a size would count other bytes.
fn check_binary(reply: &Reply) -> io::Result<()> {
    match reply.is_success() {
        true => Ok(()),
        false => Err(invalid(format!("the server refuses to send files as they are, TYPE I ({})", reply.shown()))),
    }
}

fn check_protection(command: &Command, reply: &Reply) -> io::Result<()> {
    match reply.is_success() {
        true => Ok(()),
        false => {
            let why = format!(
                "the server has TLS for the login, and none for the data ({command:?}: {}): --cipher none goes without",
                reply.shown()
            );
            Err(io::Error::new(ErrorKind::PermissionDenied, why))
        }
    }
}

/// `257 "PATH" text`: a quote in the path is doubled (RFC 959, appendix II).
fn directory_of(reply: &Reply) -> Option<Vec<u8>> {
    let text = reply.text();
    let mut rest = text.get(text.iter().position(|byte| *byte == b'"').filter(|_| reply.code == 257)? + 1..)?;
    let mut path = Vec::new();
    loop {
        match rest {
            [b'"', b'"', tail @ ..] => {
                path.push(b'"');
                rest = tail;
            }
            [b'"', ..] => return Some(path),
            [byte, tail @ ..] => {
                path.push(*byte);
                rest = tail;
            }
            [] => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_home_stands_between_quotes() {
        let home = |code, text: &str| directory_of(&Reply { code, lines: vec![text.into()] });
        assert_eq!(home(257, "\"/a \"\"b\"\"\" is the current directory"), Some(b"/a \"b\"".to_vec()));
        assert_eq!((home(257, "/a"), home(257, "\"/a"), home(550, "\"/a\"")), (None, None, None));
    }
}
