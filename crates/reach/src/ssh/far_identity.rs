//! Identifies a far host and account by a digest of all that decides who answers an ssh login and as whom it acts.
//!
//! As far as this host can tell, one [`digest`] means one host and account. A kept login has the digest in its name. A doubtful
//! setting in it costs one login at a change. The resolver's answer is left out: ssh has checked the host's key under its name.

use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::resolved::Resolved;
use haul_kept::surroundings::{Environment, Surroundings};

/// `command` is ssh with all its options and the host.
pub(super) fn digest(command: &Command, resolved: &Resolved, surroundings: &Surroundings) -> blake3::Hash {
    let environment = &surroundings.environment;
    let mut parts = Parts(blake3::Hasher::new());
    parts.add("user", haul_sys::process::effective_user().to_le_bytes());
    parts.add_file("program", &found_program(command, environment));
    for word in command.get_args() {
        parts.add("typed", word.as_bytes());
    }
    // A proxy or a jump host has settings in these files that ssh does not print here.
    parts.add("resolved", &resolved.settings);
    for (path, text) in &resolved.files {
        parts.add("file", path.as_os_str().as_bytes());
        parts.add("text", text);
    }
    for name in VARIABLES {
        parts.add(name, environment.get(name).map_or(&b""[..], |value| value.as_bytes()));
    }
    let at_home = |path: &str| match (path.strip_prefix("~/"), &surroundings.home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(path),
    };
    // Another key of the same name may be another account's; another agent at the same socket has other keys.
    for name in ["identityfile", "certificatefile", "identityagent", "pkcs11provider"] {
        for path in resolved.values(name) {
            parts.add_file(name, &at_home(path));
        }
    }
    if let Some(agent) = environment.get("SSH_AUTH_SOCK") {
        parts.add_file("agent", Path::new(agent));
    }
    if resolved.is_set("gssapiauthentication") {
        parts.add("principal", principal(environment));
    }
    // Programs on the way see the whole environment, and the directory.
    if resolved.is_indirect() || resolved.value("knownhostscommand").is_some() {
        for (name, value) in environment.all().filter(|(name, _)| !OF_EACH_COMMAND.iter().any(|of| name == of)) {
            parts.add("name", name.as_bytes());
            parts.add("value", value.as_bytes());
        }
        parts.add("directory", std::env::current_dir().unwrap_or_default().as_os_str().as_bytes());
    }
    parts.0.finalize()
}

/// Parts of different names or lengths never give the same bytes.
struct Parts(blake3::Hasher);

impl Parts {
    fn add(&mut self, name: &str, bytes: impl AsRef<[u8]>) {
        for bytes in [name.as_bytes(), bytes.as_ref()] {
            self.0.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
        }
    }

    fn add_file(&mut self, name: &str, path: &Path) {
        self.add(name, path.as_os_str().as_bytes());
        let facts = fs::metadata(path).map(|found| {
            [found.dev(), found.ino(), found.size(), found.mtime().cast_unsigned(), found.mtime_nsec().cast_unsigned()]
        });
        self.add("facts", facts.unwrap_or_default().map(u64::to_le_bytes).concat());
    }
}

fn found_program(command: &Command, environment: &Environment) -> PathBuf {
    let program = Path::new(command.get_program());
    if program.components().count() > 1 {
        return program.to_owned();
    }
    let path = environment.get("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(path).map(|directory| directory.join(program));
    places.find(|place| place.is_file()).unwrap_or_else(|| program.to_owned())
}

/// Reads a Kerberos cache's principal, in front of the tickets that logins add.
fn principal(environment: &Environment) -> Vec<u8> {
    let usual = || format!("/tmp/krb5cc_{}", haul_sys::process::effective_user()).into();
    let cache = environment.get("KRB5CCNAME").map_or_else(usual, ToOwned::to_owned);
    let name = cache.as_bytes().strip_prefix(b"FILE:").unwrap_or(cache.as_bytes());
    let mut begins = Vec::new();
    let _ = fs::File::open(Path::new(std::ffi::OsStr::from_bytes(name)))
        .and_then(|file| file.take(PRINCIPAL_BYTES).read_to_end(&mut begins));
    begins
}

/// Holds a principal with its realm, and `kinit`'s ticket.
const PRINCIPAL_BYTES: u64 = 256;

/// ssh and the Kerberos library read these; each decides who one is.
const VARIABLES: [&str; 9] = [
    "HOME",
    "USER",
    "LOGNAME",
    "SSH_AUTH_SOCK",
    "SSH_SK_PROVIDER",
    "KRB5CCNAME",
    "KRB5_CONFIG",
    "KRB5_CLIENT_KTNAME",
    "GSS_USE_PROXY",
];

/// Each command of a shell changes these, without effect on ssh's way.
const OF_EACH_COMMAND: [&str; 3] = ["_", "SHLVL", "OLDPWD"];

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str], resolved: &Resolved, environment: &[(&str, &str)]) -> blake3::Hash {
        let mut command = Command::new("ssh");
        command.args(words);
        let surroundings = Surroundings { environment: Environment::of(environment), ..Surroundings::default() };
        digest(&command, resolved, &surroundings)
    }

    #[test]
    fn whatever_decides_who_answers_or_as_whom_makes_another_digest() {
        let resolved = |settings: &str| Resolved { settings: settings.into(), ..Resolved::default() };
        let plain = resolved("hostname 192.0.2.1\n");
        let is_other = |words: &[&str], resolved: &Resolved, environment: &[(&str, &str)]| {
            of(words, resolved, environment) != of(&["--", "a"], &plain, &[])
        };
        assert!(!is_other(&["--", "a"], &plain, &[("TERM", "x")]));
        for words in [&["--", "b"][..], &["-J", "g", "--", "a"], &["-4", "--", "a"], &["--a"]] {
            assert!(is_other(words, &plain, &[]), "{words:?}");
        }
        for settings in ["hostname 192.0.2.2\n", "hostname 192.0.2.1\nproxycommand x\n"] {
            assert!(is_other(&["--", "a"], &resolved(settings), &[]), "{settings}");
        }
        for name in VARIABLES {
            assert!(is_other(&["--", "a"], &plain, &[(name, "x")]), "{name}");
        }
        let config = |text: &str| Resolved { files: vec![("c".into(), text.into())], ..plain.clone() };
        assert_ne!(of(&[], &config("Host g\n"), &[]), of(&[], &config("Host h\n"), &[]));
        let proxied = resolved("proxycommand connect $GATE\n");
        assert_ne!(of(&[], &proxied, &[("GATE", "1")]), of(&[], &proxied, &[("GATE", "2")]));
        assert_eq!(of(&[], &proxied, &[("SHLVL", "1")]), of(&[], &proxied, &[("SHLVL", "2")]));
    }

    #[test]
    fn another_key_under_the_same_name_makes_another_digest() {
        let dir = tempfile::tempdir().unwrap();
        let key = dir.path().join("key");
        let resolved = Resolved { settings: format!("identityfile {}\n", key.display()), ..Resolved::default() };
        let now = || of(&[], &resolved, &[]);
        let none = now();
        fs::write(&key, "one").unwrap();
        let one = now();
        fs::write(&key, "the other").unwrap();
        assert!(none != one && one != now());
        let cache = dir.path().join("cache");
        let resolved = Resolved { settings: "gssapiauthentication yes\n".into(), ..Resolved::default() };
        let now = || of(&[], &resolved, &[("KRB5CCNAME", &format!("FILE:{}", cache.display()))]);
        fs::write(&cache, [&b"alice"[..], &[7; 300]].concat()).unwrap();
        let alice = now();
        fs::write(&cache, [&b"alice"[..], &[7; 900]].concat()).unwrap();
        assert_eq!(now(), alice, "a ticket more");
        fs::write(&cache, [&b"bob"[..], &[7; 300]].concat()).unwrap();
        assert_ne!(now(), alice);
    }
}
