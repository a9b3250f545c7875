//! Keeps clients away from the daemon's own files, and from those of its user's `haul`. A client that reads a private key can
//! pose as its holder. A client that writes a list, a setting or haul's state can let anybody in, or make programs run.

use std::collections::HashSet;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use haul_transfer::class_policy::ClassPolicy;
use haul_transfer::{Grant, Surroundings};

use crate::log::escaped;

#[derive(Clone, Debug)]
pub(crate) struct OwnPaths(Vec<(PathBuf, Harm)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    /// A client who reads it has a key.
    Read,
    /// [`Harm::Read`] for a key that need not exist. Its directory counts for itself.
    ReadWhereThere,
    /// A client who replaces the file decides what haul does. A reader learns what its mode hides.
    Written,
}

impl OwnPaths {
    pub(crate) fn new(identity: &Path, list: &Path) -> Self {
        Self(vec![(identity.to_owned(), Harm::Read), (list.to_owned(), Harm::Written)])
    }

    pub(crate) fn with_secret(mut self, file: Option<&Path>) -> Self {
        self.0.extend(file.map(|file| (file.to_owned(), Harm::Read)));
        self
    }

    pub(crate) fn with_obeyed(mut self, file: Option<&Path>) -> Self {
        self.0.extend(file.map(|file| (file.to_owned(), Harm::Written)));
        self
    }

    /// Adds haul's files of the daemon's account, which another copy would obey.
    pub(crate) fn with_those_of(mut self, surroundings: &Surroundings) -> Self {
        let Surroundings { config, state, runtime, temporary, cache, policy_files, network_files, .. } = surroundings;
        self.0.extend(surroundings.config_file("id_ed25519").map(|file| (file, Harm::ReadWhereThere)));
        for directory in [config, state, runtime, temporary, cache] {
            self = self.with_obeyed(directory.as_deref());
        }
        for file in policy_files.iter().chain(network_files) {
            self = self.with_obeyed(Some(file));
        }
        for program in ClassPolicy::load(policy_files).programs().chain(std::env::current_exe().ok()) {
            self = self.with_obeyed(Some(&program));
        }
        self
    }

    pub(crate) fn find(&self) -> OwnFiles {
        let found = self.0.iter().filter_map(|(path, harm)| {
            let own = Whereabouts::of(path);
            let is_there = own.owner.is_some() || own.unseen.is_some();
            match harm {
                Harm::ReadWhereThere => is_there.then_some((own, Harm::Read)),
                harm => Some((own, *harm)),
            }
        });
        OwnFiles(found.collect())
    }
}

#[derive(Debug)]
pub(crate) struct OwnFiles(Vec<(Whereabouts, Harm)>);

/// Finds an account's number, which may take a while.
pub(crate) type FindAccount<'a> = &'a mut dyn FnMut(&str) -> io::Result<Option<u32>>;

impl OwnFiles {
    /// Returns why this grant must not be given; `None` if it reaches none of the files.
    ///
    /// A grant with an account is harmless unless the account is root or the owner of the files: the kernel denies it reading the
    /// keys and writing the others (`haul_transfer::own`).
    pub(crate) fn within_reach(&self, grant: &Grant, find_account: FindAccount<'_>) -> Option<String> {
        // A missing directory may exist when a session begins.
        let opened = fs::metadata(root_of(grant)).ok().map(|metadata| node(&metadata));
        let why = self.reached_from(opened, grant)?;
        let Some(user) = &grant.user else { return Some(why) };
        let name = escaped(user.as_bytes());
        match find_account(user) {
            Ok(Some(uid)) if self.is_denied(uid) => None,
            Ok(Some(_)) => Some(why),
            Ok(None) => Some(format!("{why} (there is no user {name})")),
            Err(error) => Some(format!("{why} (the user {name} cannot be looked up: {error})")),
        }
    }

    pub(crate) fn within_reach_of(
        &self,
        directory: BorrowedFd<'_>,
        uid: u32,
        grant: &Grant,
    ) -> io::Result<Option<String>> {
        let opened = node(&File::from(directory.try_clone_to_owned()?).metadata()?);
        let reached = self.reached_from(Some(opened), grant);
        Ok(reached.filter(|_| grant.user.is_none() || !self.is_denied(uid)))
    }

    /// Returns the files to hide in a directory on the web, by paths without links, or why it must not be shown.
    pub(crate) fn hidden_in(&self, root: &Path) -> Result<Vec<PathBuf>, String> {
        let grant = Grant { root: Some(root.to_owned()), read_only: true, clear: false, ..Grant::default() };
        let opened = fs::metadata(root).ok().map(|metadata| node(&metadata));
        let mut hidden = Vec::new();
        for (own, harm) in &self.0 {
            match own.is_beneath(root, opened) {
                false => {}
                true if *harm == Harm::Read => return Err(own.told("read", &grant)),
                // Mounted under another path, the files cannot be hidden by name.
                true if !own.names.iter().any(|name| name.starts_with(root)) => return Err(own.told("read", &grant)),
                true => hidden.extend(own.names.iter().cloned()),
            }
        }
        Ok(hidden)
    }

    fn reached_from(&self, opened: Option<Node>, grant: &Grant) -> Option<String> {
        let root = root_of(grant);
        self.0.iter().find_map(|(own, harm)| {
            if !own.is_beneath(root, opened) {
                return None;
            }
            let (reads, writes) = (*harm == Harm::Read || own.is_private, !grant.read_only);
            match (reads, writes) {
                (true, true) => Some(own.told("read and replace", grant)),
                (true, false) => Some(own.told("read", grant)),
                (false, true) => Some(own.told("replace", grant)),
                (false, false) => None,
            }
        })
    }

    fn is_denied(&self, uid: u32) -> bool {
        uid != 0 && !self.0.iter().any(|(own, _)| own.may_be_owned_by(uid))
    }
}

fn root_of(grant: &Grant) -> &Path {
    grant.root.as_deref().unwrap_or(Path::new("/"))
}

pub(crate) fn uid_of(user: &str) -> io::Result<Option<u32>> {
    Ok(haul_transfer::account_named(user)?.map(|account| account.uid))
}

/// The place of a file: all directories that lead to it, and to each link on the way. A user who may write in one can replace the
/// file.
#[derive(Debug)]
struct Whereabouts {
    path: PathBuf,
    /// All names of the file without links.
    names: Vec<PathBuf>,
    /// A directory that is mounted in two places counts once.
    directories: HashSet<Node>,
    /// Why something could not be examined; any directory may then be one of them.
    unseen: Option<String>,
    owner: Option<u32>,
    is_private: bool,
}

impl Whereabouts {
    fn of(file: &Path) -> Whereabouts {
        let names = haul_transfer::own::names_of(file);
        let mut unseen = None;
        let mut look = |path: &Path| match fs::metadata(path) {
            Ok(metadata) => Some(metadata),
            Err(error) => {
                if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
                    unseen = Some(error.to_string());
                }
                None
            }
        };
        let leading = names.iter().flat_map(|name| name.ancestors().skip(1));
        let directories = leading.filter_map(|directory| Some(node(&look(directory)?))).collect();
        let found = look(file);
        let owner = found.as_ref().map(Metadata::uid);
        let is_private = found.is_some_and(|found| found.mode() & OTHERS_READ == 0);
        Whereabouts { path: file.to_owned(), names, directories, unseen, owner, is_private }
    }

    fn told(&self, what: &str, grant: &Grant) -> String {
        let text = |path: &Path| escaped(path.as_os_str().as_encoded_bytes());
        let unseen = self.unseen.as_ref().map(|why| format!(" as far as can be seen ({why})")).unwrap_or_default();
        format!(
            "its client could {what} the daemon's own {}, which lies in root={}{unseen}: name a directory that holds \
             none of the daemon's files, or have them elsewhere (--identity, --authorized-keys, XDG_STATE_HOME and the like)",
            text(&self.path),
            text(root_of(grant))
        )
    }

    fn may_be_owned_by(&self, uid: u32) -> bool {
        self.unseen.is_some() || self.owner == Some(uid)
    }

    fn is_beneath(&self, root: &Path, opened: Option<Node>) -> bool {
        self.unseen.is_some()
            || self.names.iter().any(|name| name.starts_with(root))
            || opened.is_some_and(|opened| self.directories.contains(&opened))
    }
}

const OTHERS_READ: u32 = 0o004;

type Node = (u64, u64);

fn node(metadata: &Metadata) -> Node {
    (metadata.dev(), metadata.ino())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn home() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for name in ["home/.config/haul", "home/data", "keys", "lists"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        for name in ["host_ed25519", "authorized_keys"] {
            fs::write(dir.path().join("home/.config/haul").join(name), "").unwrap();
        }
        dir
    }

    fn grant(root: PathBuf, read_only: bool, user: Option<&str>) -> Grant {
        Grant { root: Some(root), read_only, clear: false, user: user.map(str::to_owned), ..Grant::default() }
    }

    #[test]
    fn a_directory_that_holds_the_daemons_own_files_is_no_directory_for_a_key() {
        let dir = home();
        let at = |name: &str| dir.path().join(name);
        let config = at("home/.config/haul");
        let own = OwnPaths::new(&config.join("host_ed25519"), &config.join("authorized_keys")).find();
        let why = |name: &str, read_only| own.within_reach(&grant(at(name), read_only, None), &mut uid_of);
        for root in ["", "home", "home/.config", "home/.config/haul", "home/data/../.config", "home/./.config/"] {
            let told = why(root, false).unwrap_or_else(|| panic!("{root}"));
            assert!(told.contains("read and replace the daemon's own") && told.contains("host_ed25519"), "{told}");
            assert!(why(root, true).is_some_and(|told| told.contains("could read the daemon's own")), "{root}");
        }
        for root in ["home/data", "lists", "home/.config/haul/not-there", "hom"] {
            assert_eq!((why(root, false), why(root, true)), (None, None), "{root}");
        }
        assert!(own.within_reach(&grant("/".into(), false, None), &mut uid_of).is_some());
    }

    #[test]
    fn a_list_may_be_read_and_not_replaced_nor_what_leads_to_it() {
        let dir = home();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("keys/host"), "").unwrap();
        fs::write(at("lists/real"), "").unwrap();
        symlink(at("lists/real"), at("home/data/list")).unwrap();
        let own = OwnPaths::new(&at("keys/host"), &at("home/data/list")).find();
        let is_refused =
            |name: &str, read_only| own.within_reach(&grant(at(name), read_only, None), &mut uid_of).is_some();
        for root in ["lists", "home/data", "home"] {
            assert!(is_refused(root, false) && !is_refused(root, true), "{root}");
        }
        assert!(is_refused("keys", false) && is_refused("keys", true));
        assert!(!is_refused("home/.config", false));
    }

    #[test]
    fn no_key_reaches_what_decides_about_the_daemon_or_about_its_users_haul() {
        let dir = home();
        let at = |name: &str| dir.path().join(name);
        for name in ["state/haul", "run/haul", "tmp/haul-1", "cache/haul", "etc", "opt", "tls", "pub"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        let hook = at("opt/hook");
        let policy = format!("[hooks]\non-raise = ['{0}']\non-release = ['{0}']\n", hook.display());
        fs::write(at("etc/policy.toml"), policy).unwrap();
        fs::write(at("home/.config/haul/id_ed25519"), "").unwrap();
        let surroundings = Surroundings {
            config: Some(at("home/.config/haul")),
            state: Some(at("state/haul")),
            runtime: Some(at("run/haul")),
            temporary: Some(at("tmp/haul-1")),
            cache: Some(at("cache/haul")),
            policy_files: vec![at("etc/policy.toml")],
            network_files: vec![at("lists/networks.toml")],
            ..Surroundings::default()
        };
        fs::write(at("tls/key.pem"), "").unwrap();
        fs::write(at("pub/cert.pem"), "").unwrap();
        fs::set_permissions(at("state/haul"), fs::Permissions::from_mode(0o700)).unwrap();
        let own = OwnPaths::new(&at("keys/host"), &at("pub/authorized_keys"))
            .with_secret(Some(&at("tls/key.pem")))
            .with_obeyed(Some(&at("pub/cert.pem")))
            .with_those_of(&surroundings)
            .find();
        let refused = |name: &str| {
            [false, true].map(|read_only| own.within_reach(&grant(at(name), read_only, None), &mut uid_of).is_some())
        };
        // None may be writable. Reading is fine if it gives no key and others may read, too.
        let table = [
            ("tls", [true, true]),
            ("home", [true, true]),
            ("state", [true, true]),
            ("state/haul", [true, true]),
            ("run", [true, false]),
            ("tmp", [true, false]),
            ("cache", [true, false]),
            ("etc", [true, false]),
            ("lists", [true, false]),
            ("opt", [true, false]),
            ("pub", [true, false]),
            ("home/data", [false, false]),
        ];
        for (name, expected) in table {
            assert_eq!(refused(name), expected, "{name}");
        }
        let mut hidden = own.hidden_in(&at("pub")).unwrap();
        hidden.sort();
        assert_eq!(
            hidden,
            [at("pub/authorized_keys"), at("pub/cert.pem")].map(|path| path.canonicalize().unwrap_or(path))
        );
        assert!(own.hidden_in(&at("tls")).unwrap_err().contains("could read the daemon's own"));
        assert_eq!(own.hidden_in(&at("home/data")), Ok(Vec::new()));
    }

    #[test]
    fn each_link_on_the_way_counts_and_a_way_that_turns_back_does_not() {
        let dir = home();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("keys/host"), "").unwrap();
        for name in ["a", "b", "c", "d"] {
            fs::create_dir(at(name)).unwrap();
        }
        fs::write(at("c/list"), "").unwrap();
        symlink(at("c"), at("d/last")).unwrap();
        symlink("../d/last/list", at("b/list")).unwrap();
        symlink(at("b/list"), at("a/list")).unwrap();
        let own = OwnPaths::new(&at("home/data/../../keys/host"), &at("a/list")).find();
        let is_refused = |name: &str| own.within_reach(&grant(at(name), false, None), &mut uid_of).is_some();
        for root in ["a", "b", "c", "d", "keys"] {
            assert!(is_refused(root), "{root}");
        }
        assert!(!is_refused("home/data") && !is_refused("home"));
        symlink(at("a/one"), at("b/other")).unwrap();
        symlink(at("b/other"), at("a/one")).unwrap();
        let own = OwnPaths::new(&at("keys/host"), &at("a/one")).find();
        assert!(own.within_reach(&grant(at("b"), false, None), &mut uid_of).is_some());
    }

    /// Before a session begins, the directory of a line may be another.
    #[test]
    fn what_was_opened_is_judged_and_not_what_stood_there_before() {
        let dir = home();
        let at = |name: &str| dir.path().join(name);
        let config = at("home/.config/haul");
        let own = OwnPaths::new(&config.join("host_ed25519"), &config.join("authorized_keys")).find();
        let line = grant(at("home/data"), true, None);
        let reached = |name: &str, uid, line: &Grant| {
            own.within_reach_of(File::open(at(name)).unwrap().as_fd(), uid, line).unwrap().is_some()
        };
        let us = haul_transfer::effective_user();
        assert!(!reached("home/data", us, &line));
        assert!(reached("home", us, &line) && reached("home/.config", us, &line) && reached(".", us, &line));
        let line = grant(at("home/data"), true, Some("somebody"));
        assert!(!reached("home", us + 1, &line) && reached("home", us, &line) && reached("home", 0, &line));
    }

    #[test]
    fn what_cannot_be_looked_at_counts_as_within_reach() {
        let dir = home();
        let at = |name: &str| dir.path().join(name);
        symlink(at("keys/circle"), at("keys/circle")).unwrap();
        let is_refused = |identity: &str| {
            let own = OwnPaths::new(&at(identity), &at("lists/list")).find();
            own.within_reach(&grant(at("home/data"), true, None), &mut uid_of).is_some()
        };
        assert!(is_refused("keys/circle/host"));
        assert!(!is_refused("keys/not-there/host"), "what is not there is not read");
    }

    #[test]
    fn an_account_that_the_kernel_denies_these_files_may_have_their_directory() {
        let dir = home();
        let config = dir.path().join("home/.config/haul");
        let own = OwnPaths::new(&config.join("host_ed25519"), &config.join("authorized_keys")).find();
        let is_refused =
            |user| own.within_reach(&grant(dir.path().join("home"), false, Some(user)), &mut uid_of).is_some();
        assert!(is_refused("root"));
        assert!(is_refused("no-such-user"));
        assert_eq!(is_refused("nobody"), uid_of("nobody").unwrap() == Some(haul_transfer::effective_user()));
        let mut own = OwnPaths::new(&config.join("host_ed25519"), &config.join("authorized_keys")).find();
        own.0[1].0.owner = uid_of("nobody").unwrap();
        assert!(own.within_reach(&grant(dir.path().join("home"), false, Some("nobody")), &mut uid_of).is_some());
    }
}
