//! The keys of a client of daemons: its own identity, and the daemons it knows, in files like ssh's.
//!
//! ```text
//!   ~/.config/haul/id_ed25519     our private key (PEM), made by `haul key generate`
//!   ~/.config/haul/known_hosts    host:port ed25519:<64 hex>        one line for each daemon
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;

use haul_net::{Identity, NetError, PublicKey};

use crate::error::{Error, Fault};
use crate::far;
use crate::job::SshOptions;
use crate::remote;

/// Longest key or known-hosts file that is read.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// What a client proves and expects.
pub(crate) struct ClientKeys {
    pub(crate) identity: Arc<Identity>,
    pub(crate) known: KnownHosts,
}

impl ClientKeys {
    pub(crate) fn load(options: &SshOptions) -> Result<Self, Error> {
        let identity = options.haul_identity.clone().or_else(|| default_file("id_ed25519")).ok_or_else(no_home)?;
        let known = options.haul_known_hosts.clone().or_else(|| default_file("known_hosts")).ok_or_else(no_home)?;
        Ok(Self { identity: Arc::new(load_identity(&identity)?), known: KnownHosts::load(known)? })
    }
}

/// A file of the user's haul directory: `$XDG_CONFIG_HOME/haul` or `~/.config/haul`.
pub fn default_file(name: &str) -> Option<PathBuf> {
    let config = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let config = config.or_else(|| remote::home().map(|home| home.join(".config")))?;
    Some(config.join("haul").join(name))
}

fn no_home() -> Error {
    Error::new(Fault::Authentication, "there is no home directory to look for keys in")
        .try_this("set HOME, or name the key with --identity FILE")
}

/// Reads a private key. A key that others may read is refused, as ssh does.
pub fn load_identity(path: &Path) -> Result<Identity, Error> {
    let failed = |cause: String| {
        Error::new(Fault::Authentication, format!("cannot use the key {}", path.display())).because(cause)
    };
    let metadata = std::fs::metadata(path)
        .map_err(|error| failed(error.to_string()).try_this("make one with: haul key generate"))?;
    let mode = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions());
    if mode & 0o077 != 0 {
        return Err(failed(format!("others may read it (mode {:03o})", mode & 0o777))
            .try_this(format!("chmod 600 {}", path.display())));
    }
    let text = read_text(path)?;
    Identity::from_pem(&text).map_err(|error| failed(error.to_string()))
}

fn read_text(path: &Path) -> Result<String, Error> {
    let failed = |cause: String| {
        Error::new(Fault::Authentication, format!("cannot read {}", path.display())).because(cause)
    };
    let size = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?.len();
    if size > MAX_FILE_BYTES {
        return Err(failed("it is too long for a file of keys".into()));
    }
    std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))
}

/// The daemons a user knows.
pub(crate) struct KnownHosts {
    path: PathBuf,
    entries: Vec<(String, PublicKey)>,
}

impl KnownHosts {
    fn load(path: PathBuf) -> Result<Self, Error> {
        if !path.exists() {
            return Ok(Self { path, entries: Vec::new() });
        }
        let text = read_text(&path)?;
        let entries = parse(&text).map_err(|line| {
            Error::new(Fault::Authentication, format!("line {line} of {} is no known host", path.display()))
                .try_this("a line is: host:port ed25519:<64 hex digits>")
        })?;
        Ok(Self { path, entries })
    }

    /// The keys that this daemon may prove; `None` when it is not known.
    pub(crate) fn expected(&self, host: &str, port: u16) -> Option<Vec<PublicKey>> {
        let name = host_name(host, port);
        let keys: Vec<PublicKey> = self.entries.iter().filter(|(n, _)| *n == name).map(|(_, key)| *key).collect();
        (!keys.is_empty()).then_some(keys)
    }

    /// A failed handshake in words.
    pub(crate) fn explain(&self, host: &str, port: u16, known: Option<&[PublicKey]>, error: &NetError) -> Error {
        let name = host_name(host, port);
        match (error, known) {
            (NetError::WrongKey { got }, None) => {
                Error::new(Fault::Authentication, format!("the daemon {name} is not known here"))
                    .because(format!("it shows the key {}", got.fingerprint()))
                    .try_this(format!(
                        "compare with what `haul key show` prints there, then: echo '{name} {got}' >> {}",
                        self.path.display()
                    ))
            }
            (NetError::WrongKey { got }, Some(_)) => {
                Error::new(Fault::Authentication, format!("the daemon {name} shows another key than before"))
                    .because(format!("it shows {}: somebody may be in between, or it was set up anew", got.fingerprint()))
                    .try_this(format!("ask its operator; then correct its line in {}", self.path.display()))
            }
            (NetError::KeyRefused, _) => {
                Error::new(Fault::Authentication, format!("the daemon {name} does not know our key"))
                    .try_this("give its operator what `haul key show` prints here")
            }
            _ => far::net_error(error),
        }
    }
}

fn host_name(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Lines of `host:port key`; empty ones and those behind `#` do not count. The error is the number of the bad line.
fn parse(text: &str) -> Result<Vec<(String, PublicKey)>, usize> {
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
    use super::*;

    #[test]
    fn lines_of_known_hosts() {
        let key = format!("ed25519:{}", "ab".repeat(32));
        let text = format!("# daemons\n\ndtn1:7632 {key} comment\n[fd00::1]:7632 {key}\n");
        let entries = parse(&text).unwrap();
        assert_eq!(entries[0].0, "dtn1:7632");
        let known = KnownHosts { path: PathBuf::from("known_hosts"), entries };
        assert!(known.expected("fd00::1", 7632).is_some());
        assert!(known.expected("dtn1", 7633).is_none());
        assert_eq!(parse("dtn1:7632\n"), Err(1));
        assert_eq!(parse("\ndtn1:7632 nonsense\n"), Err(2));
    }
}
