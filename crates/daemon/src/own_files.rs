//! Keeps clients away from the daemon's own files: its private key and its list of keys. A client that reads the
//! private key can pose as the daemon. A client that writes the list can let anybody into any directory.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use haul_transfer::Grant;

use crate::log::escaped;

/// The files, and where they are.
#[derive(Debug)]
pub(crate) struct OwnFiles {
    identity: Whereabouts,
    list: Whereabouts,
}

/// The number of an account, by its name. `None`: there is no such account. The look-up may take a while.
pub(crate) type FindAccount<'a> = &'a mut dyn FnMut(&str) -> io::Result<Option<u32>>;

impl OwnFiles {
    /// Looks up where the files are now.
    pub(crate) fn find(identity: &Path, list: &Path) -> OwnFiles {
        OwnFiles { identity: Whereabouts::of(identity), list: Whereabouts::of(list) }
    }

    /// Returns why this grant must not be given. `None`: it reaches neither of the daemon's files.
    ///
    /// A grant with an account is harmless if the account is neither root nor the owner of the files: the kernel
    /// denies it reading the key (`haul_transfer::trusted_keys`) and writing the list (`authority::check_owner`).
    pub(crate) fn within_reach(&self, grant: &Grant, find_account: FindAccount<'_>) -> Option<String> {
        // A missing directory may exist later, when a session begins to work in it.
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

    /// [`OwnFiles::within_reach`] for the directory that a session has opened, as this user.
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

    fn reached_from(&self, opened: Option<Node>, grant: &Grant) -> Option<String> {
        let root = root_of(grant);
        let (file, what) = if self.identity.is_beneath(root, opened) {
            (&self.identity, if grant.read_only { "read" } else { "read and replace" })
        } else if !grant.read_only && self.list.is_beneath(root, opened) {
            (&self.list, "replace")
        } else {
            return None;
        };
        let text = |path: &Path| escaped(path.as_os_str().as_encoded_bytes());
        let unseen = file.unseen.as_ref().map(|why| format!(" as far as can be seen ({why})")).unwrap_or_default();
        Some(format!(
            "its client could {what} the daemon's own {}, which lies in root={}{unseen}: name a directory that holds \
             none of the daemon's files, or have them elsewhere (--identity, --authorized-keys)",
            text(&file.path),
            text(root)
        ))
    }

    fn is_denied(&self, uid: u32) -> bool {
        uid != 0 && ![&self.identity, &self.list].iter().any(|own| own.may_be_owned_by(uid))
    }
}

fn root_of(grant: &Grant) -> &Path {
    grant.root.as_deref().unwrap_or(Path::new("/"))
}

/// The number that the system has for an account.
pub(crate) fn uid_of(user: &str) -> io::Result<Option<u32>> {
    Ok(haul_transfer::account_named(user)?.map(|account| account.uid))
}

/// Where a file is: all directories that lead to it, and to each symbolic link on the way. Whoever may write in one
/// of these directories can replace the file.
#[derive(Debug)]
struct Whereabouts {
    path: PathBuf,
    /// The file's own path, and the path of each link that leads to it. No path here goes through a link.
    names: Vec<PathBuf>,
    /// The directories, by number: a directory that is mounted in two places counts once.
    directories: HashSet<Node>,
    /// Why the file or a directory could not be examined. Then any directory may be one of them. Missing ones are
    /// harmless.
    unseen: Option<String>,
    owner: Option<u32>,
}

impl Whereabouts {
    fn of(file: &Path) -> Whereabouts {
        let names = haul_transfer::planted::names_of(file);
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
        let owner = look(file).map(|metadata| metadata.uid());
        Whereabouts { path: file.to_owned(), names, directories, unseen, owner }
    }

    fn may_be_owned_by(&self, uid: u32) -> bool {
        self.unseen.is_some() || self.owner == Some(uid)
    }

    /// `opened` is the directory at the path `root`, if there is one.
    fn is_beneath(&self, root: &Path, opened: Option<Node>) -> bool {
        self.unseen.is_some()
            || self.names.iter().any(|name| name.starts_with(root))
            || opened.is_some_and(|opened| self.directories.contains(&opened))
    }
}

/// Device and inode.
type Node = (u64, u64);

fn node(metadata: &fs::Metadata) -> Node {
    (metadata.dev(), metadata.ino())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::symlink;

    use super::*;

    /// `home/.config/haul` with both files, and a directory of data beside it.
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
        let own = OwnFiles::find(&config.join("host_ed25519"), &config.join("authorized_keys"));
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
        let own = OwnFiles::find(&at("keys/host"), &at("home/data/list"));
        let is_refused =
            |name: &str, read_only| own.within_reach(&grant(at(name), read_only, None), &mut uid_of).is_some();
        for root in ["lists", "home/data", "home"] {
            assert!(is_refused(root, false) && !is_refused(root, true), "{root}");
        }
        assert!(is_refused("keys", false) && is_refused("keys", true));
        assert!(!is_refused("home/.config", false));
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
        let own = OwnFiles::find(&at("home/data/../../keys/host"), &at("a/list"));
        let is_refused = |name: &str| own.within_reach(&grant(at(name), false, None), &mut uid_of).is_some();
        for root in ["a", "b", "c", "d", "keys"] {
            assert!(is_refused(root), "{root}");
        }
        assert!(!is_refused("home/data") && !is_refused("home"));
        // Links in a circle lead nowhere.
        symlink(at("a/one"), at("b/other")).unwrap();
        symlink(at("b/other"), at("a/one")).unwrap();
        let own = OwnFiles::find(&at("keys/host"), &at("a/one"));
        assert!(own.within_reach(&grant(at("b"), false, None), &mut uid_of).is_some());
    }

    /// Until a session begins, somebody may put another directory at the path of a line.
    #[test]
    fn what_was_opened_is_judged_and_not_what_stood_there_before() {
        let dir = home();
        let at = |name: &str| dir.path().join(name);
        let config = at("home/.config/haul");
        let own = OwnFiles::find(&config.join("host_ed25519"), &config.join("authorized_keys"));
        let line = grant(at("home/data"), true, None);
        let reached = |name: &str, uid, line: &Grant| {
            own.within_reach_of(File::open(at(name)).unwrap().as_fd(), uid, line).unwrap().is_some()
        };
        let us = haul_transfer::effective_user();
        assert!(!reached("home/data", us, &line));
        assert!(reached("home", us, &line) && reached("home/.config", us, &line) && reached(".", us, &line));
        // The kernel denies an account that owns neither file.
        let line = grant(at("home/data"), true, Some("somebody"));
        assert!(!reached("home", us + 1, &line) && reached("home", us, &line) && reached("home", 0, &line));
    }

    #[test]
    fn what_cannot_be_looked_at_counts_as_within_reach() {
        let dir = home();
        let at = |name: &str| dir.path().join(name);
        symlink(at("keys/circle"), at("keys/circle")).unwrap();
        let is_refused = |identity: &str| {
            let own = OwnFiles::find(&at(identity), &at("lists/list"));
            own.within_reach(&grant(at("home/data"), true, None), &mut uid_of).is_some()
        };
        assert!(is_refused("keys/circle/host"));
        assert!(!is_refused("keys/not-there/host"), "what is not there is not read");
    }

    #[test]
    fn an_account_that_the_kernel_denies_these_files_may_have_their_directory() {
        let dir = home();
        let config = dir.path().join("home/.config/haul");
        let own = OwnFiles::find(&config.join("host_ed25519"), &config.join("authorized_keys"));
        let is_refused =
            |user| own.within_reach(&grant(dir.path().join("home"), false, Some(user)), &mut uid_of).is_some();
        assert!(is_refused("root"));
        assert!(is_refused("no-such-user"));
        assert_eq!(is_refused("nobody"), uid_of("nobody").unwrap() == Some(haul_transfer::effective_user()));
        // The owner of the list reaches it.
        let mut own = OwnFiles::find(&config.join("host_ed25519"), &config.join("authorized_keys"));
        own.list.owner = uid_of("nobody").unwrap();
        assert!(own.within_reach(&grant(dir.path().join("home"), false, Some("nobody")), &mut uid_of).is_some());
    }
}
