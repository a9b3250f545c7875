//! A login that outlives its copy by a minute: the next copy to the same host finds an open ssh connection, and needs no login.
//!
//! ssh does it (ssh_config(5), ControlMaster). It is told by a configuration of ours, which first takes in the user's own: ssh obeys
//! the first value that it finds, so what the user says there, or with `-o`, wins. The sockets lie in a private directory.

use std::fs::{self, DirBuilder};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use haul_job::SshOptions;
use haul_sys::whole_file::{Mode, WholeFile};

/// The configuration that keeps logins in `directory`. `None`: logins are not kept, because something about the directory or the
/// user's choices does not suit. Never an error: the copy then logs in as ever.
pub(super) fn configuration(directory: &Path, options: &SshOptions) -> Option<PathBuf> {
    // Another program may know other options.
    if options.program.is_some() {
        return None;
    }
    let asked = match &options.config {
        // ssh(1), -F: no configuration at all.
        Some(config) if config.as_os_str() == "none" => return None,
        Some(config) if !may_be_taken_in(config) => return None,
        None if !may_be_taken_in(Path::new(SYSTEM_CONFIGURATION)) => return None,
        // ssh_config(5): the user's file first, then that of the host.
        None => format!("Include ~/.ssh/config\nInclude {SYSTEM_CONFIGURATION}\n"),
        Some(config) => format!("Include {}\n", named(config)?),
    };
    // Another key or option may mean another account's rights: each has its own login.
    let mut choices = blake3::Hasher::new();
    let identities = options.identities.iter().map(|path| path.as_os_str());
    for choice in identities.chain(options.options.iter().map(AsRef::as_ref)) {
        choices.update(choice.as_bytes()).update(&[0]);
    }
    choices.update(asked.as_bytes());
    let key = &choices.finalize().to_hex()[..KEY_LETTERS];
    let socket = directory.join(format!("{key}-%C"));
    if socket.as_os_str().len() + LONGER_BYTES > SOCKET_PATH_MAX_BYTES {
        return None;
    }
    make_private(directory)?;
    let text = format!(
        "# Made by haul. See --no-keep-login.\n{asked}Host *\n  ControlMaster auto\n  ControlPath {}\n  ControlPersist {KEPT_S}\n  \
         ServerAliveInterval {ALIVE_EVERY_S}\n  ServerAliveCountMax {ALIVE_TRIES}\n",
        named(&socket)?
    );
    let file = directory.join(format!("{key}.conf"));
    if fs::read(&file).is_ok_and(|before| before == text.as_bytes()) {
        return Some(file);
    }
    let mut out = WholeFile::begin(&file, Mode::Of(0o600)).ok()?.without_flush();
    out.write_all(text.as_bytes()).ok()?;
    out.publish().ok()?;
    Some(file)
}

/// Whether a login of this configuration seems to stand. Its socket is there as long as its connection is.
pub(super) fn stands(configuration: &Path) -> bool {
    let (Some(directory), Some(key)) = (configuration.parent(), configuration.file_stem()) else { return false };
    let begins = [key.as_bytes(), b"-"].concat();
    let is_one = |entry: fs::DirEntry| entry.file_name().as_bytes().starts_with(&begins);
    fs::read_dir(directory).is_ok_and(|entries| entries.flatten().take(LOGINS_LOOKED_AT).any(is_one))
}

/// A path as ssh reads it, absolute. `None`: it has letters that ssh gives a meaning.
fn named(path: &Path) -> Option<String> {
    let path = std::path::absolute(path).ok()?;
    let text = path.to_str()?;
    let is_plain = |letter: char| !letter.is_control() && !"\"'\\*?[]{}$~".contains(letter);
    // `%C` in the name of a socket is ours.
    let percents = text.matches('%').count() - text.matches("%C").count();
    (text.chars().all(is_plain) && percents == 0).then(|| format!("\"{text}\""))
}

/// ssh refuses a file that it takes in, and that others may write (readconf.c, SSHCONF_CHECKPERM). By itself it would read this one.
fn may_be_taken_in(file: &Path) -> bool {
    fs::metadata(file).map_or(true, |found| {
        let is_trusted = found.uid() == 0 || found.uid() == haul_sys::process::effective_user();
        is_trusted && found.mode() & 0o022 == 0
    })
}

const SYSTEM_CONFIGURATION: &str = "/etc/ssh/ssh_config";

/// The directory is the user's own, and nobody else may look into it.
fn make_private(directory: &Path) -> Option<()> {
    match DirBuilder::new().recursive(true).mode(0o700).create(directory) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(_) => return None,
    }
    let found = fs::symlink_metadata(directory).ok()?;
    let is_ours = found.is_dir() && found.uid() == haul_sys::process::effective_user() && found.mode() & 0o077 == 0;
    is_ours.then_some(())
}

/// As long as Ansible keeps a login.
const KEPT_S: u32 = 60;
/// A kept connection whose network is gone ends after `ALIVE_EVERY_S` times `ALIVE_TRIES` seconds, and keeps no copy waiting.
const ALIVE_EVERY_S: u32 = 5;
const ALIVE_TRIES: u32 = 2;

/// A user reaches few hosts within a minute.
const LOGINS_LOOKED_AT: usize = 1_000;

const KEY_LETTERS: usize = 8;
/// `%C` becomes 40 letters, and ssh adds up to 17 while it makes the socket.
const LONGER_BYTES: usize = 38 + 17;
/// unix(7): `sun_path`, with the zero at its end.
const SOCKET_PATH_MAX_BYTES: usize = 107;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_users_own_configuration_comes_first_and_other_keys_have_another_login() {
        let dir = tempfile::tempdir().unwrap();
        let directory = dir.path().join("ssh");
        let made = |options: &SshOptions| configuration(&directory, options);
        let plain = made(&SshOptions::default()).unwrap();
        let text = fs::read_to_string(&plain).unwrap();
        let at = |words: &str| text.find(words).unwrap_or_else(|| panic!("{words} is not in {text}"));
        assert!(at("Include ~/.ssh/config") < at("Include /etc/ssh/ssh_config"));
        assert!(at("Include /etc/ssh/ssh_config") < at("ControlMaster auto"));
        assert_eq!(made(&SshOptions::default()), Some(plain.clone()), "the same choices share a login");
        assert!(!stands(&plain), "nobody has logged in");
        fs::write(plain.with_file_name(format!("{}-00", plain.file_stem().unwrap().display())), "").unwrap();
        assert!(stands(&plain));
        let key = SshOptions { identities: vec!["k".into()], ..SshOptions::default() };
        assert_ne!(made(&key), Some(plain.clone()));
        let config = SshOptions { config: Some("/etc/other".into()), ..SshOptions::default() };
        let other = made(&config).unwrap();
        assert!(fs::read_to_string(&other).unwrap().contains("Include \"/etc/other\"\nHost *"));
    }

    #[test]
    fn what_does_not_suit_keeps_no_login() {
        let dir = tempfile::tempdir().unwrap();
        let directory = dir.path().join("ssh");
        let none = |options: SshOptions| assert_eq!(configuration(&directory, &options), None);
        none(SshOptions { program: Some("dbclient".into()), ..SshOptions::default() });
        none(SshOptions { config: Some("/etc/with\"quote".into()), ..SshOptions::default() });
        none(SshOptions { config: Some("/etc/[ab]".into()), ..SshOptions::default() });
        none(SshOptions { config: Some("none".into()), ..SshOptions::default() });
        none(SshOptions { config: Some("/dev/null".into()), ..SshOptions::default() });
        let open = dir.path().join("open");
        fs::write(&open, "").unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o664)).unwrap();
        none(SshOptions { config: Some(open), ..SshOptions::default() });
        assert_eq!(
            configuration(&dir.path().join("x".repeat(100)), &SshOptions::default()),
            None,
            "the path is too long"
        );
        // Others could put a socket of theirs there.
        fs::create_dir(&directory).unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
        none(SshOptions::default());
    }
}
