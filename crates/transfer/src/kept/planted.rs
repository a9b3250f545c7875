//! Whether somebody else may have replaced one of haul's own files: by a link, or because others may write its directory.

use std::os::unix::fs::MetadataExt as _;
use std::path::{self, Component, Path, PathBuf};
use std::{fs, io};

use haul_sys::process;

/// Fails if somebody other than us and root can put another file under this name, or lead it elsewhere. It looks at the
/// directories of the file and of the links to it, and not at the directories above them.
pub fn check(file: &Path) -> io::Result<()> {
    let us = process::effective_user();
    check_owners(file, &[us, 0])?;
    for name in names_of(file) {
        let directory = fs::metadata(name.parent().unwrap_or(Path::new("/")))?;
        let others_rename = directory.mode() & OTHERS_WRITE != 0 && directory.mode() & STICKY == 0;
        if ![us, 0].contains(&directory.uid()) || others_rename {
            return Err(io::Error::other("others may write its directory; chmod go-w the directory"));
        }
    }
    Ok(())
}

/// [`check`] for a file that its owner alone can read, whatever the directories: every link to it must have the same owner.
/// Root may be told to read the file of any user.
pub(crate) fn check_links(file: &Path) -> io::Result<()> {
    let us = process::effective_user();
    let owner = if us == 0 { fs::metadata(file)?.uid() } else { us };
    check_owners(file, &[us, 0, owner])
}

fn check_owners(file: &Path, trusted: &[u32]) -> io::Result<()> {
    for name in names_of(file) {
        if !trusted.contains(&fs::symlink_metadata(&name)?.uid()) {
            return Err(io::Error::other("it, or a link that leads to it, belongs to somebody else"));
        }
    }
    Ok(())
}

/// Writable for the group or for all.
pub const OTHERS_WRITE: u32 = 0o022;
/// In such a directory nobody renames what belongs to others.
const STICKY: u32 = 0o1000;

/// As many links as the kernel follows (`path_resolution(7)`).
const MAX_LINKS: usize = 40;

/// The path of a file and that of each link that leads to it, none of which goes through a link.
pub fn names_of(file: &Path) -> Vec<PathBuf> {
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};

    use haul_sys::condition::unmet;

    use super::*;

    #[test]
    fn nobody_else_leads_us_to_another_file_nor_puts_one_there() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["ours", "open"] {
            fs::create_dir(at(name)).unwrap();
        }
        fs::write(at("ours/file"), "").unwrap();
        symlink(at("ours/file"), at("open/link")).unwrap();
        symlink("open", at("way")).unwrap();
        let set = |mode| fs::set_permissions(at("open"), fs::Permissions::from_mode(mode)).unwrap();
        let are_good = || ["open/link", "way/link"].map(|name| check(&at(name)).is_ok());
        for (mode, is_good) in [(0o777, false), (0o775, false), (0o755, true), (0o1777, true)] {
            set(mode);
            assert_eq!(are_good(), [is_good; 2], "{mode:o}");
            assert!(check_links(&at("way/link")).is_ok(), "the link is ours wherever it stands");
        }
        // In a directory where nobody renames what is another's, somebody may still have been first.
        let somebody = Some(process::effective_user() + 1);
        if lchown(at("open/link"), somebody, None).is_err() {
            return unmet("only root gives files away");
        }
        assert_eq!(are_good(), [false; 2]);
        assert!(check_links(&at("open/link")).is_err() && check_links(&at("way/link")).is_err());
        assert!(check(&at("ours/file")).is_ok() && check_links(&at("ours/file")).is_ok());
        lchown(at("ours/file"), somebody, None).unwrap();
        assert!(check(&at("ours/file")).is_err());
        assert!(check_links(&at("ours/file")).is_ok() && check_links(&at("open/link")).is_ok(), "root was told to");
    }
}
