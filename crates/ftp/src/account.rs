//! Who we are to a server, and how we log in.
//!
//! ```text
//! connect -> (TLS) -> greeting -> AUTH TLS -> USER, PASS -> PBSZ 0, PROT P -> TYPE I, and the first time FEAT and PWD
//! ```

use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use haul_foreign::{BeginsWith, Credentials, Login, Reach, Sockets, trusting};
use haul_net::resolve;
use rustls::{AlertDescription, ClientConfig, DEFAULT_VERSIONS, SupportedProtocolVersion};

use crate::codec::command::Command;
use crate::codec::features::Features;
use crate::codec::reply::Reply;
use crate::control::{Control, Habits};
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
    /// How many transfers a read begins with.
    pub begins_with: BeginsWith,
    /// Gets what a person should know of the server.
    pub tell: Tell,
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
}

/// What the first login has told.
#[derive(Debug)]
struct Known {
    features: Features,
    /// Where paths without a slash in front begin. Empty: the server does not tell.
    home: Vec<u8>,
    has_tls: bool,
}

/// The error of a login for which the server has no room: others of ours may be the reason.
pub(crate) fn is_busy(error: &io::Error) -> bool {
    error.kind() == ErrorKind::ResourceBusy
}

impl Account {
    pub(crate) fn new(settings: Settings) -> Account {
        let habits = Arc::new(Habits::new(settings.reach.clone(), settings.silence));
        Account {
            settings,
            habits,
            control: Sockets::new(),
            trusting: Default::default(),
            needs_new_tls: AtomicBool::new(false),
            rtt_us: AtomicU32::new(0),
            known: OnceLock::new(),
        }
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

    /// What the server can do. Nothing before the first login.
    pub(crate) fn features(&self) -> Features {
        self.known.get().map(|known| known.features.clone()).unwrap_or_default()
    }

    /// Where paths begin that have no slash in front.
    pub(crate) fn home(&self) -> &[u8] {
        self.known.get().map_or(b"", |known| &known.home)
    }

    fn login(&self) -> Login {
        let anonymous = || Login { user: "anonymous".to_owned(), password: "haul@".to_owned().into() };
        self.settings.credentials.login_at(&self.settings.host).unwrap_or_else(anonymous)
    }

    fn tls(&self) -> io::Result<Tls> {
        let needs_new = self.needs_new_tls.load(Ordering::Relaxed);
        let versions = if needs_new { DEFAULT_VERSIONS } else { OLD_VERSIONS };
        let config = self.trusting[usize::from(needs_new)].get_or_init(|| trusting(versions));
        let config = config.as_ref().map_err(|why| io::Error::other(why.clone()))?;
        Tls::new(config, &self.settings.host)
    }

    /// Makes a control connection that is logged in.
    pub(crate) fn dial(&self) -> io::Result<Control> {
        let takes_several = self.habits.takes_several();
        match self.dial_once() {
            // It was just found out that the server takes one command at a time.
            Err(_) if takes_several && !self.habits.takes_several() => self.dial_once(),
            Err(error) if wants_new_tls(&error) && !self.needs_new_tls.swap(true, Ordering::Relaxed) => {
                self.dial_once()
            }
            dialled => dialled,
        }
    }

    fn dial_once(&self) -> io::Result<Control> {
        let Settings { host, port, security, reach, silence, encrypts_data, .. } = &self.settings;
        let addresses = resolve(host, *port, reach.family).map_err(io::Error::other)?;
        let (socket, counted) = self.control.connect(&addresses, reach, *silence)?;
        let rtts_us = [self.rtt_us(), counted.rtt_us()];
        self.rtt_us.store(rtts_us.into_iter().filter(|us| *us > 0).min().unwrap_or(0), Ordering::Relaxed);
        let mut wire = Wire::new(socket, *silence)?;
        let mut tls = None;
        if *security == Security::Implicit {
            let of_this = self.tls()?;
            wire = wire.secured(&of_this)?;
            tls = Some(of_this);
        }
        let mut control = Control::new(wire, &self.habits, counted)?;
        let greeting = control.final_reply()?;
        if !greeting.is_success() {
            return Err(self.refused(&greeting));
        }
        let login = self.login();
        let is_secret = !login.password.is_empty() && login.user != "anonymous" && login.user != "ftp";
        let wants_tls = match security {
            Security::Explicit => true,
            Security::IfOffered => self.known.get().map_or(is_secret, |known| known.has_tls),
            Security::Implicit | Security::Clear => false,
        };
        if wants_tls {
            let reply = control.ask(Command::new("AUTH", b"TLS")?)?;
            if reply.code == 234 {
                let of_this = self.tls()?;
                control = control.secure(&of_this)?;
                tls = Some(of_this);
            } else if *security == Security::Explicit || self.known.get().is_some() {
                let why = format!("the server does not offer TLS ({}): ftp:// asks it for none", reply.shown());
                return Err(io::Error::new(ErrorKind::PermissionDenied, why));
            } else if control.is_broken() {
                return Err(self.refused(&reply));
            } else {
                (self.settings.tell)("this server offers no TLS: name, password and data go in clear".to_owned());
            }
        }
        let secured = [Command::new("PBSZ", b"0")?, Command::new("PROT", if *encrypts_data { b"P" } else { b"C" })?];
        let with_tls: &[Command] = if tls.is_some() { &secured } else { &[] };
        match self.known.get() {
            Some(known) => self.log_in_again(&mut control, &login, with_tls, known)?,
            None => self.log_in(&mut control, &login, with_tls, tls.is_some())?,
        }
        control.data_tls(tls.filter(|_| *encrypts_data));
        Ok(control)
    }

    fn log_in(&self, control: &mut Control, login: &Login, with_tls: &[Command], has_tls: bool) -> io::Result<()> {
        let reply = control.ask(Command::new("USER", login.user.as_bytes())?)?;
        let reply = match reply.code {
            331 => control.ask(Command::new("PASS", login.password.as_bytes())?)?,
            _ => reply,
        };
        if !reply.is_success() {
            return Err(self.refused(&reply));
        }
        for (command, reply) in with_tls.iter().zip(control.ask_all(with_tls)?) {
            check_protection(command, &reply)?;
        }
        let replies = control.ask_all(&[Command::plain("FEAT"), Command::plain("PWD"), Command::new("TYPE", b"I")?])?;
        let [features, home, binary] = &replies[..] else { return Err(invalid("an answer is missing")) };
        check_binary(binary)?;
        let features = Features::of(features);
        if features.utf8 {
            control.ask(Command::new("OPTS", b"UTF8 ON")?)?;
        }
        let home = directory_of(home).filter(|home| home.starts_with(b"/")).unwrap_or_default();
        // Two logins at once find the same.
        let _ = self.known.set(Known { features, home, has_tls });
        Ok(())
    }

    /// All at once: what the server wants is known.
    fn log_in_again(
        &self,
        control: &mut Control,
        login: &Login,
        with_tls: &[Command],
        known: &Known,
    ) -> io::Result<()> {
        let mut commands = vec![
            Command::new("USER", login.user.as_bytes())?,
            Command::new("PASS", login.password.as_bytes())?,
            Command::new("TYPE", b"I")?,
        ];
        commands.extend_from_slice(with_tls);
        if known.features.utf8 {
            commands.push(Command::new("OPTS", b"UTF8 ON")?);
        }
        let replies = control.ask_all(&commands)?;
        let [user, password, binary, rest @ ..] = &replies[..] else { return Err(invalid("an answer is missing")) };
        if !user.is_success() && !password.is_success() {
            return Err(self.refused(if user.wants_more() { password } else { user }));
        }
        check_binary(binary)?;
        with_tls.iter().zip(rest).try_for_each(|(command, reply)| check_protection(command, reply))
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
                    "the server refuses the login ({}): put one for this host into ~/.netrc, or into the URL",
                    reply.shown()
                );
                io::Error::new(ErrorKind::PermissionDenied, why)
            }
            _ => refusal(reply),
        }
    }
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
