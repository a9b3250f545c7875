//! Keeps the keys of a client of daemons: its own identity, and the daemons it knows, in files like ssh's.
//!
//! ```text
//!   ~/.config/haul/id_ed25519     our private key (PEM), made by `haul key generate`
//!   ~/.config/haul/known_hosts    host:port ed25519:<64 hex>        one line for each daemon, added by `haul key trust`
//! ```
//! A file is written under another name first: it is never seen half-written, and a private key is never readable by others.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use haul_job::{Error, Fault, SshOptions};
use haul_net::{Identity, NetError, PublicKey};
use haul_sys::own::{self, NotOurs, Weight};
use haul_sys::whole_file::{Mode, WholeFile};
use haul_wire::PROTOCOL_VERSION;
use zeroize::Zeroizing;

use crate::faults;
use crate::surroundings::Surroundings;

const MAX_FILE_BYTES: u64 = 4 << 20;

/// The keys of a client, and those that it expects.
pub struct ClientKeys {
    /// The user's key.
    pub identity: Arc<Identity>,
    /// The trusted hosts.
    pub known: KnownHosts,
}

impl ClientKeys {
    /// Reads both, if they may be obeyed.
    pub fn load(options: &SshOptions, surroundings: &Surroundings) -> Result<Self, Error> {
        let identity = match &options.haul_identity {
            Some(named) => load_identity(named, Weight::NamedSecret)?,
            None => load_identity(&surroundings.config_file("id_ed25519").ok_or_else(no_home)?, Weight::Secret)?,
        };
        Ok(Self { identity: Arc::new(identity), known: KnownHosts::of(options, surroundings)? })
    }
}

fn no_home() -> Error {
    Error::new(Fault::Authentication, "there is no home directory to look for keys in")
        .try_this("set HOME, or name the key with --identity FILE")
}

/// Reads a private key. Refuses one that others may read, or have linked to; for [`Weight::Secret`] also one that others could
/// replace.
pub fn load_identity(path: &Path, weight: Weight) -> Result<Identity, Error> {
    let failed = |cause: String| {
        Error::new(Fault::Authentication, format!("cannot use the key {}", path.display())).because(cause)
    };
    let file = own::open(path, weight).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => failed(error.to_string()).try_this("make one with: haul key generate"),
        _ => faults::advised(failed(error.to_string()), &error),
    })?;
    let text = Zeroizing::new(read_text(path, file)?);
    Identity::from_pem(&text).map_err(|error| failed(error.to_string()))
}

/// Makes a private key that only its owner reads. Without `replace` an old key stays: hosts would not know a new one.
pub fn generate_identity(path: &Path, replace: bool) -> Result<Identity, Error> {
    let identity = Identity::generate().map_err(|error| faults::net_error(&error))?;
    write_whole(path, identity.to_pem().as_bytes(), PRIVATE_MODE, replace).map_err(|error| {
        let failed = Error::new(Fault::FileIo, format!("cannot make the key {}", path.display()));
        match error.kind() {
            io::ErrorKind::AlreadyExists => failed
                .because("there is one already")
                .try_this("show it with `haul key show`, or replace it with --force"),
            _ => failed.because(error),
        }
    })?;
    Ok(identity)
}

/// The change to known hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trusted {
    /// A new key.
    Added,
    /// A known key.
    Before,
    /// A key in place of others.
    Instead,
}

/// Adds a daemon. Without `replace` another key of it is an error.
pub fn trust(path: &Path, host: &str, port: u16, key: &str, replace: bool) -> Result<Trusted, Error> {
    let key: PublicKey = key
        .parse()
        .map_err(|error: haul_net::BadKey| Error::new(Fault::Usage, format!("'{key}' is no key")).because(error))?;
    let name = host_name(host, port);
    let known = KnownHosts::load(path.to_owned())?;
    let expected = known.expected(host, port).unwrap_or_default();
    if expected.contains(&key) {
        return Ok(Trusted::Before);
    }
    if !expected.is_empty() && !replace {
        return Err(Error::new(Fault::Authentication, format!("the daemon {name} is known with another key"))
            .because(format!("{} says {}", path.display(), expected[0].fingerprint()))
            .try_this("when its operator says that it was set up anew: --replace"));
    }
    // A list kept elsewhere through a link stays there.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let old = match File::open(path) {
        Ok(file) => read_text(path, file)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(cannot_read(path).because(error)),
    };
    let is_other = |line: &&str| !line.split_whitespace().next().is_some_and(|word| word.eq_ignore_ascii_case(&name));
    let mut text: String = old.lines().filter(is_other).flat_map(|line| [line, "\n"]).collect();
    text.push_str(&format!("{name} {key}\n"));
    write_whole(path, text.as_bytes(), LIST_MODE, true)
        .map_err(|error| Error::new(Fault::FileIo, format!("cannot write {}", path.display())).because(error))?;
    Ok(if expected.is_empty() { Trusted::Added } else { Trusted::Instead })
}

const PRIVATE_MODE: u32 = 0o600;

/// Only the owner may say who is known.
const LIST_MODE: u32 = 0o644;

fn read_text(path: &Path, file: File) -> Result<String, Error> {
    let failed = |cause: String| cannot_read(path).because(cause);
    let mut text = String::new();
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(|error| failed(error.to_string()))?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(failed("it is too long for a file of keys".into()));
    }
    Ok(text)
}

fn cannot_read(path: &Path) -> Error {
    Error::new(Fault::Authentication, format!("cannot read {}", path.display()))
}

fn write_whole(path: &Path, bytes: &[u8], mode: u32, replace: bool) -> io::Result<()> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let mut file = WholeFile::begin(path, Mode::Of(mode))?;
    file.write_all(bytes)?;
    if replace { file.publish() } else { file.publish_new() }
}

/// The known daemons as `host:port`.
pub fn names(path: &Path) -> Vec<String> {
    let entries = KnownHosts::load(path.to_owned()).map(|known| known.entries).unwrap_or_default();
    entries.into_iter().map(|(name, _)| name).collect()
}

/// The daemons that a user knows.
pub struct KnownHosts {
    path: PathBuf,
    is_named: bool,
    entries: Vec<(String, PublicKey)>,
}

impl KnownHosts {
    /// Reads the named list, or the user's.
    pub fn of(options: &SshOptions, surroundings: &Surroundings) -> Result<Self, Error> {
        let own = surroundings.config_file("known_hosts");
        match &options.haul_known_hosts {
            Some(named) => Ok(Self { is_named: Some(named) != own.as_ref(), ..Self::load(named.clone())? }),
            None => Self::of_user(own.ok_or_else(no_home)?),
        }
    }

    /// If `XDG_CONFIG_HOME` lies in `/tmp`, another user could put a list there.
    fn of_user(path: PathBuf) -> Result<Self, Error> {
        let opened = own::open(&path, Weight::Obeyed);
        if let Some(not_ours) = opened.as_ref().err().and_then(NotOurs::of) {
            let what = format!("cannot believe the known daemons of {}", path.display());
            let remedy = format!("{}, or name a list with --known-hosts FILE", not_ours.remedy());
            return Err(Error::new(Fault::Authentication, what).because(not_ours).try_this(remedy));
        }
        Self::read(path, opened)
    }

    fn load(path: PathBuf) -> Result<Self, Error> {
        let opened = File::open(&path);
        Self::read(path, opened)
    }

    fn read(path: PathBuf, opened: io::Result<File>) -> Result<Self, Error> {
        let text = match opened {
            Ok(file) => read_text(&path, file)?,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(Self { path, is_named: false, entries: Vec::new() });
            }
            Err(error) => return Err(cannot_read(&path).because(error)),
        };
        let entries = parse(&text).map_err(|line| {
            Error::new(Fault::Authentication, format!("line {line} of {} is no known host", path.display()))
                .try_this("a line is: host:port ed25519:<64 hex digits>")
        })?;
        Ok(Self { path, is_named: false, entries })
    }

    /// A daemon's possible keys; `None`: unknown.
    pub fn expected(&self, host: &str, port: u16) -> Option<Vec<PublicKey>> {
        let name = host_name(host, port);
        let entries = self.entries.iter().filter(|(n, _)| n.eq_ignore_ascii_case(&name));
        let keys: Vec<PublicKey> = entries.map(|(_, key)| *key).collect();
        (!keys.is_empty()).then_some(keys)
    }

    /// Explains a failed handshake.
    pub fn explain(&self, host: &str, port: u16, known: Option<&[PublicKey]>, error: &NetError) -> Error {
        let name = host_name(host, port);
        match (error, known) {
            (NetError::WrongKey { got }, None) => {
                Error::new(Fault::Authentication, format!("the daemon {name} is not known here"))
                    .because(format!("it shows the key {}", got.fingerprint()))
                    .try_this(format!(
                        "compare with what `haul serve` printed there at its start; when it is the same:\n\
                         haul key trust {name} {got}{}",
                        self.flag()
                    ))
            }
            (NetError::WrongKey { got }, Some(_)) => {
                Error::new(Fault::Authentication, format!("the daemon {name} shows another key than before"))
                    .because(format!(
                        "it shows {}: somebody may be in between, or it was set up anew",
                        got.fingerprint()
                    ))
                    .try_this(format!(
                        "ask its operator; when it was set up anew:\n\
                         haul key trust --replace {name} {got}{}",
                        self.flag()
                    ))
            }
            (NetError::KeyRefused, _) => key_refused(&name),
            (NetError::HungUp, _) => faults::net_error(error).try_this(
                "is it `haul serve` that listens there? It closes at once when it is full, or when many keys from here were refused: \
                 try again in two minutes",
            ),
            _ => faults::net_error(error),
        }
    }

    /// Explains a later end.
    pub fn explain_refusal(&self, host: &str, port: u16, error: Error) -> Error {
        let cause = error.cause.as_deref();
        if cause.is_some_and(|cause| cause == NetError::KeyRefused.to_string()) {
            return key_refused(&host_name(host, port));
        }
        // Every daemon since version 2 says why it turns a client away.
        if !error.far && error.fault == Fault::Network && cause.is_none_or(|cause| cause == haul_net::BROKE_OFF) {
            return Error::new(Fault::Network, format!("the daemon {} hung up without a word", host_name(host, port)))
                .because(format!(
                    "it has no room for us just now, was stopped at this moment, or speaks an older version of the protocol than ours, \
                     {PROTOCOL_VERSION}"
                ))
                .try_this("run the same command again; if it does the same, use the same version of haul on both hosts");
        }
        error
    }

    fn flag(&self) -> String {
        if !self.is_named {
            return String::new();
        }
        format!(" --known-hosts {}", self.path.display())
    }
}

fn key_refused(name: &str) -> Error {
    Error::new(Fault::Authentication, format!("the daemon {name} does not let our key in"))
        .try_this("give its operator what `haul key show` prints here, for its list of authorised keys")
}

/// The daemon's name in known hosts.
pub fn host_name(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Parses lines of `host:port key`, and comments (`#`). The error is a line's number.
pub fn parse(text: &str) -> Result<Vec<(String, PublicKey)>, usize> {
    let lines = text.lines().enumerate().filter(|(_, line)| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with('#')
    });
    lines
        .map(|(number, line)| {
            let mut words = line.split_whitespace();
            let (name, key) = (words.next().ok_or(number + 1)?, words.next().ok_or(number + 1)?);
            Ok((name.to_owned(), key.parse().map_err(|_| number + 1)?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};

    use super::*;

    #[test]
    fn lines_of_known_hosts() {
        let key = format!("ed25519:{}", "ab".repeat(32));
        let text = format!("# daemons\n\ndtn1:7632 {key} comment\n[fd00::1]:7632 {key}\n");
        let entries = parse(&text).unwrap();
        assert_eq!(entries[0].0, "dtn1:7632");
        let known = KnownHosts { path: PathBuf::from("known_hosts"), is_named: true, entries };
        assert!(known.expected("fd00::1", 7632).is_some());
        assert!(known.expected("dtn1", 7633).is_none());
        assert!(known.expected("DTN1", 7632).is_some());
        assert_eq!(parse("dtn1:7632\n"), Err(1));
        assert_eq!(parse("\ndtn1:7632 nonsense\n"), Err(2));
    }

    #[test]
    fn a_key_is_made_once_and_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/dir/key");
        let made = generate_identity(&path, false).unwrap().public();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(generate_identity(&path, false).unwrap_err().cause.as_deref(), Some("there is one already"));
        assert_eq!(load_identity(&path, Weight::Secret).unwrap().public(), made);
        assert_ne!(generate_identity(&path, true).unwrap().public(), made);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(load_identity(&path, Weight::Secret).is_err());
    }

    #[test]
    fn a_key_behind_a_link_that_somebody_else_planted_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let (key, link) = (dir.path().join("key"), dir.path().join("link"));
        let made = generate_identity(&key, false).unwrap().public();
        symlink(&key, &link).unwrap();
        assert_eq!(load_identity(&link, Weight::Secret).unwrap().public(), made, "a link of our own");
        if lchown(&link, Some(haul_sys::process::effective_user() + 1), None).is_err() {
            return haul_sys::condition::unmet("only root gives links away");
        }
        let error = load_identity(&link, Weight::Secret).unwrap_err();
        assert!(error.cause.is_some_and(|cause| cause.contains("belongs to somebody else")));
        assert_eq!(load_identity(&key, Weight::Secret).unwrap().public(), made);
    }

    #[test]
    fn known_daemons_are_not_believed_where_somebody_else_could_have_named_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("haul/known_hosts");
        let load = || KnownHosts::of_user(path.clone()).map(|known| known.entries.len());
        assert_eq!(load(), Ok(0), "there is none yet");
        trust(&path, "dtn1", 7632, &format!("ed25519:{}", "ab".repeat(32)), false).unwrap();
        assert_eq!(load(), Ok(1));
        let set_mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let refused = || load().is_err_and(|error| error.fault == Fault::Authentication);
        set_mode(&path, 0o666);
        assert!(refused());
        set_mode(&path, 0o644);
        set_mode(path.parent().unwrap(), 0o777);
        assert!(refused());
        set_mode(path.parent().unwrap(), 0o700);
        assert_eq!(load(), Ok(1));
        if lchown(&path, Some(haul_sys::process::effective_user() + 1), None).is_err() {
            return haul_sys::condition::unmet("only root gives files away");
        }
        assert!(refused());
    }

    #[test]
    fn a_daemon_is_trusted_once_and_replaced_only_when_asked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("known_hosts");
        let (one, two) = (format!("ed25519:{}", "ab".repeat(32)), format!("ed25519:{}", "cd".repeat(32)));
        assert_eq!(trust(&path, "dtn1", 7632, &one, false), Ok(Trusted::Added));
        assert_eq!(trust(&path, "fd00::1", 7632, &one, false), Ok(Trusted::Added));
        fs::write(&path, format!("# ours\n{}", fs::read_to_string(&path).unwrap().trim_end())).unwrap();
        assert_eq!(trust(&path, "DTN1", 7632, &one, false), Ok(Trusted::Before));
        assert_eq!(trust(&path, "dtn1", 7632, &two, false).unwrap_err().fault, Fault::Authentication);
        assert_eq!(trust(&path, "dtn1", 7632, &two, true), Ok(Trusted::Instead));
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text, format!("# ours\n[fd00::1]:7632 {one}\ndtn1:7632 {two}\n"));
        assert_eq!(trust(&path, "dtn2", 7632, "nonsense", false).unwrap_err().fault, Fault::Usage);
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}
