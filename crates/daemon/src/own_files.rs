//! The daemon's own files, its private key and its list of keys: no client may reach them. Who reads the one can pose as the daemon, and who
//! writes the other lets in whom he likes, to any directory.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{self, Component, Path, PathBuf};

use haul_transfer::Grant;

use crate::log::escaped;

/// The files, and where they are.
#[derive(Debug)]
pub(crate) struct OwnFiles {
    identity: Whereabouts,
    list: Whereabouts,
    /// Accounts that were looked up, which starts a program.
    users: HashMap<String, Option<u32>>,
}

impl OwnFiles {
    /// Looks where they are now.
    pub(crate) fn find(identity: &Path, list: &Path) -> OwnFiles {
        OwnFiles { identity: Whereabouts::of(identity), list: Whereabouts::of(list), users: HashMap::new() }
    }

    /// Some account was not found, which may be so because who knows it does not answer.
    pub(crate) fn has_unknown_users(&self) -> bool {
        self.users.values().any(Option::is_none)
    }

    /// Why a key must not have what a line grants it, if it would reach one of them.
    ///
    /// The kernel denies an account that is neither root nor their owner: others may not read the one (`haul_transfer::known`) nor write
    /// the other (`authorized::check_owner`).
    pub(crate) fn within_reach(&mut self, grant: &Grant) -> Option<String> {
        let root = grant.root.as_deref().unwrap_or(Path::new("/"));
        let (file, what) = if self.identity.is_beneath(root) {
            (&self.identity, if grant.read_only { "read" } else { "read and replace" })
        } else if !grant.read_only && self.list.is_beneath(root) {
            (&self.list, "replace")
        } else {
            return None;
        };
        if let Some(user) = &grant.user {
            let uid = *self.users.entry(user.clone()).or_insert_with(|| uid_of(user));
            if uid.is_some_and(|uid| uid != 0 && ![&self.identity, &self.list].iter().any(|own| own.owner == Some(uid)))
            {
                return None;
            }
        }
        let text = |path: &Path| escaped(path.as_os_str().as_encoded_bytes());
        Some(format!(
            "its client could {what} the daemon's own {}, which lies in root={}: name a directory that holds none of the daemon's files, \
             or have them elsewhere (--identity, --authorized-keys)",
            text(&file.path),
            text(root)
        ))
    }
}

fn uid_of(user: &str) -> Option<u32> {
    haul_transfer::account_named(user).ok().flatten().map(|account| account.uid)
}

/// Where a file is, by every directory that leads to it, those of the links on the way among them: who may write in one of them can put
/// another file in its place.
#[derive(Debug)]
struct Whereabouts {
    path: PathBuf,
    /// Its own and that of each link that leads to it, none of which goes through a link.
    names: Vec<PathBuf>,
    /// Device and inode of these directories: a directory that is mounted in two places is one.
    directories: HashSet<(u64, u64)>,
    owner: Option<u32>,
}

impl Whereabouts {
    fn of(file: &Path) -> Whereabouts {
        let names = names_of(file);
        let leading = names.iter().flat_map(|name| name.ancestors().skip(1));
        let directories = leading.filter_map(|directory| Some(node(&fs::metadata(directory).ok()?))).collect();
        let owner = fs::metadata(file).ok().map(|metadata| metadata.uid());
        Whereabouts { path: file.to_owned(), names, directories, owner }
    }

    fn is_beneath(&self, root: &Path) -> bool {
        // What cannot be looked at now may come back with the disk that it is on.
        self.names.iter().any(|name| name.starts_with(root))
            || fs::metadata(root).is_ok_and(|root| self.directories.contains(&node(&root)))
    }
}

/// As many links as the kernel follows (`path_resolution(7)`).
const MAX_LINKS: usize = 40;

fn names_of(file: &Path) -> Vec<PathBuf> {
    let mut names = Vec::new();
    let mut rest = path::absolute(file).ok();
    while let Some(path) = rest.take().filter(|_| names.len() <= MAX_LINKS) {
        let (name, behind) = until_link(&path);
        names.push(name);
        rest = behind;
    }
    names
}

/// Goes along a full path to its first link: the path of that, and where it leads with what comes behind it. Without a link the path of the
/// whole, with nothing behind it.
fn until_link(path: &Path) -> (PathBuf, Option<PathBuf>) {
    let mut name = PathBuf::new();
    let mut components = path.components();
    while let Some(component) = components.next() {
        if component == Component::ParentDir {
            // What comes before it is no link.
            name.pop();
            continue;
        }
        name.push(component);
        if let Ok(target) = fs::read_link(&name) {
            let behind = name.parent().unwrap_or(Path::new("/")).join(target).join(components.as_path());
            return (name, Some(behind));
        }
    }
    (name, None)
}

fn node(metadata: &fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

#[cfg(test)]
mod tests {
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
        Grant { root: Some(root), read_only, clear: false, user: user.map(str::to_owned) }
    }

    #[test]
    fn a_directory_that_holds_the_daemons_own_files_is_no_directory_for_a_key() {
        let dir = home();
        let at = |name: &str| dir.path().join(name);
        let config = at("home/.config/haul");
        let mut own = OwnFiles::find(&config.join("host_ed25519"), &config.join("authorized_keys"));
        let mut why = |name: &str, read_only| own.within_reach(&grant(at(name), read_only, None));
        for root in ["", "home", "home/.config", "home/.config/haul", "home/data/../.config", "home/./.config/"] {
            let told = why(root, false).unwrap_or_else(|| panic!("{root}"));
            assert!(told.contains("read and replace the daemon's own") && told.contains("host_ed25519"), "{told}");
            assert!(why(root, true).is_some_and(|told| told.contains("could read the daemon's own")), "{root}");
        }
        for root in ["home/data", "lists", "home/.config/haul/not-there", "hom"] {
            assert_eq!((why(root, false), why(root, true)), (None, None), "{root}");
        }
        assert!(own.within_reach(&grant("/".into(), false, None)).is_some());
    }

    #[test]
    fn a_list_may_be_read_and_not_replaced_nor_what_leads_to_it() {
        let dir = home();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("keys/host"), "").unwrap();
        fs::write(at("lists/real"), "").unwrap();
        symlink(at("lists/real"), at("home/data/list")).unwrap();
        let mut own = OwnFiles::find(&at("keys/host"), &at("home/data/list"));
        let mut is_refused = |name: &str, read_only| own.within_reach(&grant(at(name), read_only, None)).is_some();
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
        let mut own = OwnFiles::find(&at("home/data/../../keys/host"), &at("a/list"));
        let mut is_refused = |name: &str| own.within_reach(&grant(at(name), false, None)).is_some();
        for root in ["a", "b", "c", "d", "keys"] {
            assert!(is_refused(root), "{root}");
        }
        assert!(!is_refused("home/data") && !is_refused("home"));
        // Links that lead in a circle lead nowhere.
        symlink(at("a/one"), at("b/other")).unwrap();
        symlink(at("b/other"), at("a/one")).unwrap();
        let mut own = OwnFiles::find(&at("keys/host"), &at("a/one"));
        assert!(own.within_reach(&grant(at("b"), false, None)).is_some());
    }

    #[test]
    fn an_account_that_the_kernel_denies_these_files_may_have_their_directory() {
        let dir = home();
        let config = dir.path().join("home/.config/haul");
        let mut own = OwnFiles::find(&config.join("host_ed25519"), &config.join("authorized_keys"));
        let mut is_refused = |user| own.within_reach(&grant(dir.path().join("home"), false, Some(user))).is_some();
        assert!(is_refused("root"));
        assert!(is_refused("no-such-user"));
        assert_eq!(is_refused("nobody"), uid_of("nobody") == Some(haul_transfer::effective_user()));
        // Whose they are.
        let mut own = OwnFiles::find(&config.join("host_ed25519"), &config.join("authorized_keys"));
        own.list.owner = uid_of("nobody");
        assert!(own.within_reach(&grant(dir.path().join("home"), false, Some("nobody"))).is_some());
    }
}
