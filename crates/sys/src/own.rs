//! Opens the files that haul keeps for its user or obeys: settings, policies, lists, keys, memory, sockets. Nobody else may
//! have put them there.
//!
//! Begin at `/` -> open the next name beneath the held directory -> judge it through that descriptor -> follow
//! links the same way -> open and judge the end, and hand out that descriptor. Nothing is opened by a second look.
//!
//! Each directory, link and file on the way is root's or ours, and nobody else may write it. In sticky directories (`/tmp`)
//! the next entry has to be ours all the same.

mod not_ours;
mod walk;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{self, Component, Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, RawDir};
use rustix::io::Errno;

pub use crate::own::not_ours::{NotOurs, OTHERS_WRITE, Weight};
use crate::own::walk::{MAX_LINKS, Step, Walk};
use crate::process;
use crate::whole_file::{self, WholeFile};

/// Opens a file for reading.
///
/// # Errors
/// The system's, or [`NotOurs`]. A missing file is [`io::ErrorKind::NotFound`], whoever owns its directory, even in
/// `/dev/null` as a service's home.
pub fn open(path: &Path, weight: Weight) -> io::Result<File> {
    let (mut walk, components) = Walk::from_root(path)?;
    walk.judges_directories = weight != Weight::NamedSecret;
    walk.file(components, OFlags::RDONLY, weight).map_err(missing)
}

fn missing(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::NotADirectory => Errno::NOENT.into(),
        _ => error,
    }
}

/// Opens an obeyed file once, to read and to append: the judged file is written. A missing one is made, for us alone. Fails
/// as [`open`].
pub fn open_to_append(path: &Path) -> io::Result<File> {
    let (mut walk, components) = Walk::from_root(path)?;
    walk.makes_file = true;
    walk.file(components, OFlags::RDWR | OFlags::APPEND, Weight::Obeyed)
}

/// Fails, as [`open`] does, unless the owner of this directory, or of where the next missing one would be made, may be
/// trusted.
pub fn check_directory(path: &Path) -> io::Result<()> {
    let (mut walk, components) = Walk::from_root(path)?;
    match walk.directory(components, None) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => walk.verdict(),
        result => result,
    }
}

/// The paths of a file and each link to it, none through a link.
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

/// Follows a full path to its first link. Returns its path, and the target with the rest; else all and `None`.
fn until_link(path: &Path) -> (PathBuf, Option<PathBuf>) {
    let mut name = PathBuf::new();
    let mut components = path.components();
    while let Some(component) = components.next() {
        if component == Component::ParentDir {
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

/// A directory that nobody else can change, held open. Its calls fail as [`open`].
#[derive(Debug)]
pub struct OwnDirectory {
    fd: OwnedFd,
    path: PathBuf,
}

impl OwnDirectory {
    /// Opens a directory.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::walk_to(path, None).map_err(missing)
    }

    /// Opens a directory; missing ones are made, for us alone.
    pub fn make(path: &Path) -> io::Result<Self> {
        Self::walk_to(path, Some(PRIVATE_DIRECTORY))
    }

    fn walk_to(path: &Path, made: Option<Mode>) -> io::Result<Self> {
        let (mut walk, components) = Walk::from_root(path)?;
        walk.directory(components, made)?;
        Ok(Self { fd: walk.here, path: path::absolute(path)? })
    }

    /// Whether only we may look into it: sockets in it have no other guard.
    pub fn is_private(&self) -> io::Result<bool> {
        let stat = rustix::fs::fstat(&self.fd)?;
        Ok(stat.st_uid == process::effective_user() && stat.st_mode & 0o077 == 0)
    }

    /// Opens a directory in this one.
    pub fn directory(&self, name: &str) -> io::Result<Self> {
        self.walk_below(name, None)
    }

    /// Opens a directory in this one, made if missing.
    pub fn make_directory(&self, name: &str) -> io::Result<Self> {
        self.walk_below(name, Some(PRIVATE_DIRECTORY))
    }

    /// Makes a directory in this one, for us alone, under a free name.
    pub fn make_new_directory(&self, name: &str) -> io::Result<Self> {
        check_name(OsStr::new(name))?;
        rustix::fs::mkdirat(&self.fd, name, PRIVATE_DIRECTORY)?;
        self.directory(name)
    }

    fn walk_below(&self, name: &str, made: Option<Mode>) -> io::Result<Self> {
        let (mut walk, components) = self.begin_walk(OsStr::new(name))?;
        walk.directory(components, made)?;
        Ok(Self { fd: walk.here, path: self.path.join(name) })
    }

    /// The path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a file in it for reading.
    pub fn file(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let (mut walk, components) = self.begin_walk(name.as_ref())?;
        walk.file(components, OFlags::RDONLY, Weight::Obeyed)
    }

    /// Opens a file in it for reading and writing.
    pub fn file_to_write(&self, name: &str) -> io::Result<File> {
        let (mut walk, components) = self.begin_walk(OsStr::new(name))?;
        walk.file(components, OFlags::RDWR, Weight::Obeyed)
    }

    /// [`OwnDirectory::file_to_write`], made if missing, for us alone.
    pub fn make_file(&self, name: &str) -> io::Result<File> {
        self.make_file_with(name, OFlags::empty())
    }

    /// [`OwnDirectory::make_file`], with writes appended.
    pub fn make_file_to_append(&self, name: &str) -> io::Result<File> {
        self.make_file_with(name, OFlags::APPEND)
    }

    fn make_file_with(&self, name: &str, more: OFlags) -> io::Result<File> {
        check_name(OsStr::new(name))?;
        let flags = more | OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::io::retry_on_intr(|| rustix::fs::openat(&self.fd, name, flags, PRIVATE_FILE)) {
            Ok(made) => Ok(File::from(made)),
            Err(Errno::EXIST) => {
                let (mut walk, components) = self.begin_walk(OsStr::new(name))?;
                walk.file(components, OFlags::RDWR | more, Weight::Obeyed)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Begins a file that is named when whole. Fails as [`WholeFile::begin`].
    pub fn begin(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<WholeFile> {
        check_name(name.as_ref())?;
        WholeFile::begin_in(self.fd.try_clone()?, name.as_ref(), whole_file::Mode::Of(mode))
    }

    /// At most `most` names in it.
    pub fn names(&self, most: usize) -> io::Result<Vec<OsString>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let listed = rustix::io::retry_on_intr(|| rustix::fs::openat(&self.fd, ".", flags, Mode::empty()))?;
        let mut buffer = vec![MaybeUninit::uninit(); LISTING_BUFFER_BYTES];
        let (mut listing, mut names) = (RawDir::new(&listed, &mut buffer), Vec::new());
        while let Some(entry) = listing.next().filter(|_| names.len() < most) {
            match entry {
                Ok(entry) if !matches!(entry.file_name().to_bytes(), b"." | b"..") => {
                    names.push(OsString::from_vec(entry.file_name().to_bytes().to_vec()));
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(names)
    }

    /// When a name in it was last written, not following a link.
    pub fn modified(&self, name: &OsStr) -> io::Result<std::time::SystemTime> {
        let stat = rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let since = std::time::Duration::from_secs(u64::try_from(stat.st_mtime).unwrap_or(0));
        Ok(std::time::UNIX_EPOCH + since)
    }

    /// Removes a file in it.
    pub fn remove(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        check_name(name.as_ref())?;
        Ok(rustix::fs::unlinkat(&self.fd, name.as_ref(), AtFlags::empty())?)
    }

    /// Renames a file within it.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        check_name(OsStr::new(from)).and_then(|()| check_name(OsStr::new(to)))?;
        Ok(rustix::fs::renameat(&self.fd, from, &self.fd, to)?)
    }

    /// Removes a directory in it, with at most `most` files.
    pub fn remove_directory(&self, name: &str, most: usize) -> io::Result<()> {
        let directory = self.directory(name)?;
        for name in directory.names(most)? {
            directory.remove(name)?;
        }
        Ok(rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR)?)
    }

    fn begin_walk(&self, name: &OsStr) -> io::Result<(Walk, Vec<Step>)> {
        check_name(name)?;
        Ok((Walk::new(self.fd.try_clone()?, self.path.clone()), vec![Step::Down(name.to_owned())]))
    }
}

impl AsFd for OwnDirectory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn check_name(name: &OsStr) -> io::Result<()> {
    let is_name = !matches!(name.as_bytes(), b"" | b"." | b"..") && !name.as_bytes().contains(&b'/');
    is_name.then_some(()).ok_or(io::Error::new(io::ErrorKind::InvalidInput, "it is no name in a directory"))
}

const PRIVATE_DIRECTORY: Mode = Mode::RWXU;
const PRIVATE_FILE: Mode = Mode::RUSR.union(Mode::WUSR);

/// 300 names of usual length at a time.
const LISTING_BUFFER_BYTES: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};

    use super::*;
    use crate::condition::unmet;

    struct Place(tempfile::TempDir);

    impl Place {
        fn new(directories: &[&str], files: &[&str]) -> Self {
            let place = Self(tempfile::tempdir().unwrap());
            directories.iter().for_each(|name| fs::create_dir_all(place.at(name)).unwrap());
            files.iter().for_each(|name| place.write(name));
            place
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn write(&self, name: &str) {
            fs::write(self.at(name), name).unwrap();
            self.set(name, 0o600);
        }

        fn set(&self, name: &str, mode: u32) {
            fs::set_permissions(self.at(name), fs::Permissions::from_mode(mode)).unwrap();
        }

        fn give_away(&self, name: &str) -> bool {
            lchown(self.at(name), Some(process::effective_user() + 1), None).is_ok()
        }

        fn take_back(&self, name: &str) {
            lchown(self.at(name), Some(process::effective_user()), None).unwrap();
        }

        fn judged(&self, name: &str, weight: Weight) -> String {
            match open(&self.at(name), weight) {
                Ok(mut file) => {
                    file.read_to_string(&mut String::new()).unwrap();
                    String::new()
                }
                Err(error) => NotOurs::of(&error).map(ToString::to_string).unwrap_or_else(|| panic!("{name}: {error}")),
            }
        }
    }

    #[test]
    fn nobody_else_puts_a_file_there_nor_a_directory_or_link_above_it() {
        let place = Place::new(&["a/b/c", "other"], &["a/b/c/file", "other/file"]);
        symlink("b/../b/c", place.at("a/way")).unwrap();
        symlink(place.at("a/way/file"), place.at("other/link")).unwrap();
        let names = ["a/b/c/file", "a/way/file", "other/link", "other/../a/b/c/./file"];
        let all = |weight| names.map(|name| place.judged(name, weight));
        assert_eq!(all(Weight::Obeyed), [""; 4]);
        for above in ["a", "a/b", "a/b/c"] {
            place.set(above, 0o777);
            for name in names {
                let told = place.judged(name, Weight::Obeyed);
                assert!(told.contains("others may write it") && told.contains("mode 777"), "{name}: {told}");
                assert_eq!(place.judged(name, Weight::NamedSecret), "", "wherever it stands");
            }
            place.set(above, 0o1777);
            assert_eq!(all(Weight::Obeyed), [""; 4], "{above}");
            place.set(above, 0o755);
        }
        for above in ["a", "a/b", "a/b/c", "a/b/c/file"] {
            if !place.give_away(above) {
                return unmet("only root gives files away");
            }
            for name in names {
                assert!(place.judged(name, Weight::Obeyed).contains("belongs to somebody else"), "{above}: {name}");
            }
            place.take_back(above);
        }
        for (link, through) in [("a/way", "a/way/file"), ("other/link", "other/link")] {
            assert!(place.give_away(link));
            assert!(place.judged(through, Weight::Obeyed).contains("belongs to somebody else"));
            assert!(place.judged(through, Weight::NamedSecret).contains("belongs to somebody else"));
            assert_eq!(place.judged("a/b/c/file", Weight::Obeyed), "");
            place.take_back(link);
        }
    }

    #[test]
    fn a_file_is_obeyed_only_if_nobody_else_writes_it_and_a_key_only_if_nobody_else_reads_it() {
        let place = Place::new(&["shared"], &["file", "shared/file"]);
        for (mode, is_obeyed, is_key) in [
            (0o600, true, true),
            (0o400, true, true),
            (0o644, true, false),
            (0o640, true, false),
            (0o606, false, false),
            (0o666, false, false),
        ] {
            place.set("file", mode);
            assert_eq!(place.judged("file", Weight::Obeyed).is_empty(), is_obeyed, "{mode:o}");
            for weight in [Weight::Secret, Weight::NamedSecret] {
                assert_eq!(place.judged("file", weight).is_empty(), is_key, "{mode:o}");
            }
        }
        place.set("file", 0o644);
        let error = open(&place.at("file"), Weight::Secret).unwrap_err();
        assert_eq!(NotOurs::of(&error).unwrap().remedy(), format!("chmod 600 {}", place.at("file").display()));
        place.set("shared", 0o1777);
        assert_eq!(place.judged("shared/file", Weight::Obeyed), "");
        fs::hard_link(place.at("shared/file"), place.at("shared/policy")).unwrap();
        assert!(place.judged("shared/policy", Weight::Obeyed).contains("several"));
        for (name, kind) in [
            ("shared", io::ErrorKind::IsADirectory),
            ("none", io::ErrorKind::NotFound),
            ("file/x", io::ErrorKind::NotFound),
        ] {
            assert_eq!(open(&place.at(name), Weight::Obeyed).unwrap_err().kind(), kind, "{name}");
        }
        rustix::fs::mkfifoat(rustix::fs::CWD, place.at("fifo"), Mode::RUSR).unwrap();
        assert!(open(&place.at("fifo"), Weight::Obeyed).unwrap_err().to_string().contains("no regular file"));
        symlink("loop", place.at("loop")).unwrap();
        assert!(open(&place.at("loop"), Weight::Obeyed).is_err());
    }

    #[test]
    fn a_file_is_appended_to_through_the_descriptor_that_was_judged() {
        let place = Place::new(&["base", "shared"], &["base/list", "base/real"]);
        let append = |name: &str| {
            let mut file = open_to_append(&place.at(name))?;
            let mut text = String::new();
            file.read_to_string(&mut text)?;
            io::Write::write_all(&mut file, b"+")?;
            io::Result::Ok(text)
        };
        assert_eq!(append("base/list").unwrap(), "base/list");
        assert_eq!(append("base/list").unwrap(), "base/list+");
        symlink("real", place.at("base/link")).unwrap();
        assert_eq!(append("base/link").unwrap(), "base/real");
        assert_eq!((append("base/new").unwrap(), append("base/new").unwrap()), (String::new(), "+".to_owned()));
        assert_eq!(fs::metadata(place.at("base/new")).unwrap().permissions().mode() & 0o7777, 0o600);
        place.set("base/list", 0o666);
        assert!(NotOurs::of(&append("base/list").unwrap_err()).is_some());
        for (mode, is_made) in [(0o777, false), (0o1777, true)] {
            place.set("shared", mode);
            assert_eq!(append("shared/new").is_ok(), is_made, "{mode:o}");
            assert_eq!(place.at("shared/new").exists(), is_made, "{mode:o}");
        }
        assert_eq!(append("none/new").unwrap_err().kind(), io::ErrorKind::NotFound);
        if place.give_away("base") {
            assert!(append("base/another").is_err() && !place.at("base/another").exists());
        }
    }

    #[test]
    fn root_uses_the_key_of_a_user_when_told_to_but_nobody_elses_link_to_it() {
        let place = Place::new(&["home"], &["home/key"]);
        if !place.give_away("home/key") || !place.give_away("home") {
            return unmet("only root gives files away");
        }
        assert_eq!(place.judged("home/key", Weight::NamedSecret), "");
        assert!(place.judged("home/key", Weight::Secret).contains("somebody else"));
        symlink("home/key", place.at("link")).unwrap();
        assert_eq!(place.judged("link", Weight::NamedSecret), "");
        lchown(place.at("link"), Some(process::effective_user() + 2), None).unwrap();
        assert!(place.judged("link", Weight::NamedSecret).contains("somebody else"));
    }

    #[test]
    fn a_directory_is_made_for_us_alone_and_never_in_that_of_somebody_else() {
        let place = Place::new(&["base", "shared"], &[]);
        let made = OwnDirectory::make(&place.at("base/state/haul")).unwrap();
        for name in ["base/state", "base/state/haul"] {
            assert_eq!(fs::metadata(place.at(name)).unwrap().permissions().mode() & 0o7777, 0o700, "{name}");
        }
        let mut whole = made.begin("whole", 0o600).unwrap();
        io::Write::write_all(&mut whole, b"whole").unwrap();
        whole.publish().unwrap();
        made.make_file("file").unwrap();
        made.make_directory("copies").unwrap().make_file("lock").unwrap();
        fs::rename(place.at("base/state"), place.at("base/moved")).unwrap();
        let mut text = String::new();
        made.file("whole").unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "whole");
        let mut names = made.names(10).unwrap();
        names.sort();
        assert_eq!(names, ["copies", "file", "whole"]);
        made.remove_directory("copies", 10).unwrap();
        assert!(made.directory("copies").is_err() && made.file("../moved").is_err() && made.make_file("..").is_err());
        place.set("shared", 0o1777);
        assert!(OwnDirectory::open(&place.at("shared")).is_err());
        assert!(OwnDirectory::make(&place.at("shared/haul")).is_ok());
        place.set("shared", 0o777);
        assert!(
            check_directory(&place.at("shared/haul")).is_err() && check_directory(&place.at("shared/new")).is_err()
        );
        assert!(OwnDirectory::make(&place.at("shared/new/haul")).is_err() && !place.at("shared/new").exists());
        assert!(check_directory(&place.at("base/new/haul")).is_ok());
        if !place.give_away("base") {
            return unmet("only root gives files away");
        }
        assert!(check_directory(&place.at("base/new/haul")).is_err());
        assert!(OwnDirectory::make(&place.at("base/new/haul")).is_err() && !place.at("base/new").exists());
        assert_eq!(open(&place.at("base/policy"), Weight::Obeyed).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
