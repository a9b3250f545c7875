//! The list of authorised keys: read again when its file changes, refused when others may write it.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use haul_transfer::own::{self, NotOurs, Weight};

use crate::authorized::{BadLine, List};
use crate::limits::MAX_LIST_BYTES;
use crate::lookout::{Lookout, Say};
use crate::own_files::{self, OwnPaths};
use crate::version::Version;

/// The list of keys as its file has it now.
pub struct Authority {
    path: PathBuf,
    say: Say,
    lookout: Arc<Lookout>,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    list: Arc<List>,
    /// `None`: there was no file, or it was refused.
    version: Option<Version>,
    /// The last refusal, which is logged once.
    refused: Option<String>,
}

impl Authority {
    /// Authorises no key until the file is read. `say` takes lines for the log, once for each change.
    pub(crate) fn new(path: &Path, own: Arc<OwnPaths>, say: Say) -> Authority {
        let lookout = Lookout::new(own, path.to_owned(), Box::new(own_files::uid_of), Arc::clone(&say));
        Authority { path: path.to_owned(), say, lookout, held: Mutex::default() }
    }

    pub(crate) fn say(&self) -> Say {
        Arc::clone(&self.say)
    }

    /// Warns once of each line that lets somebody in as root, or into a missing directory.
    pub(crate) fn warn_of(&self, list: &List) {
        self.lookout.warn_of(list);
    }

    /// The path of the list.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The list, read again if its file has changed. Every handshake calls this, so it waits for the file alone.
    pub fn list(&self) -> Arc<List> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let name = self.path.display();
        match look(&self.path, held.version) {
            Ok(None) => {}
            Ok(Some((version, list, bad))) => {
                (self.say)(&format!("{name}: keys in the list: {}", list.len()), false);
                for bad in bad {
                    (self.say)(&format!("{name}: {bad}; this line lets nobody in"), true);
                }
                *held = Held { list: Arc::new(list), version: Some(version), refused: None };
                self.lookout.look_at(Arc::clone(&held.list));
            }
            Err(why) => {
                let why = why.to_string();
                if held.refused.as_ref() != Some(&why) {
                    (self.say)(&format!("{name}: {why}; nobody is let in"), true);
                }
                *held = Held { refused: Some(why), ..Held::default() };
            }
        }
        Arc::clone(&held.list)
    }
}

fn look(path: &Path, version: Option<Version>) -> io::Result<Option<(Version, List, Vec<BadLine>)>> {
    Ok(read_own(path, version)?.map(|(version, text)| {
        let (list, bad) = List::parse(&text);
        (version, list, bad)
    }))
}

/// Reads a list of ours, if the file is no longer `version`.
pub(crate) fn read_own(path: &Path, version: Option<Version>) -> io::Result<Option<(Version, Vec<u8>)>> {
    // Whoever can write or replace the list could authorise himself.
    let mut file = own::open(path, Weight::Obeyed).map_err(with_remedy)?;
    let found = Version::of(&file.metadata()?);
    if version == Some(found) {
        return Ok(None);
    }
    Ok(Some((found, text_of(&mut file)?)))
}

pub(crate) fn with_remedy(error: io::Error) -> io::Error {
    match NotOurs::of(&error) {
        Some(not_ours) => io::Error::new(error.kind(), format!("{not_ours}; {}", not_ours.remedy())),
        None => error,
    }
}

pub(crate) fn text_of(file: &mut File) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    file.take(MAX_LIST_BYTES + 1).read_to_end(&mut text)?;
    match text.len() as u64 > MAX_LIST_BYTES {
        true => Err(io::Error::other("it is too long for a list of keys")),
        false => Ok(text),
    }
}

/// Reads the list to judge it.
pub fn check(path: &Path) -> io::Result<(List, Vec<BadLine>)> {
    let looked = look(path, None)?;
    let (_, list, bad) = looked.expect("nothing was read before");
    Ok((list, bad))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use haul_net::PublicKey;

    use super::*;

    const KEY: PublicKey = PublicKey([0xab; 32]);

    fn key(number: u8) -> PublicKey {
        PublicKey([number; 32])
    }

    struct Place {
        _dir: tempfile::TempDir,
        file: PathBuf,
        authority: Authority,
        said: Arc<Mutex<Vec<String>>>,
    }

    impl Place {
        fn new() -> Place {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("authorized_keys");
            let said: Arc<Mutex<Vec<String>>> = Arc::default();
            let log = Arc::clone(&said);
            let say: Say = Arc::new(move |text: &str, _| log.lock().unwrap().push(text.to_owned()));
            let own = Arc::new(OwnPaths::new(&dir.path().join("host"), &file));
            Place { authority: Authority::new(&file, own, say), file, _dir: dir, said }
        }

        fn said(&self) -> String {
            self.said.lock().unwrap().join("\n")
        }

        fn eventually_says(&self, words: &str) {
            let end = Instant::now() + PATIENCE;
            while !self.said().contains(words) {
                assert!(Instant::now() < end, "{words}: {}", self.said());
                std::thread::yield_now();
            }
        }

        fn write(&self, text: &str) {
            let new = self.file.with_extension("new");
            fs::write(&new, text).unwrap();
            fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).unwrap();
            fs::rename(new, &self.file).unwrap();
        }

        fn knows(&self, key: &PublicKey) -> bool {
            self.authority.list().get(key).is_some()
        }
    }

    #[test]
    fn a_changed_list_holds_from_the_next_look_on() {
        let place = Place::new();
        assert!(!place.knows(&KEY), "there is no file yet");
        assert!(!place.knows(&KEY));
        assert_eq!(place.said().lines().count(), 1, "it is said once: {}", place.said());
        place.write(&format!("ro root=/a {KEY}\n"));
        assert!(place.knows(&KEY));
        place.write(&format!("# {KEY} left us\n"));
        assert!(!place.knows(&KEY));
        place.write(&format!("oops\nrw root=/a {KEY}\n"));
        assert!(place.knows(&KEY));
        assert!(place.said().contains("line 1: 'oops' is none of"), "{}", place.said());
        fs::remove_file(&place.file).unwrap();
        assert!(!place.knows(&KEY));
    }

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn a_line_that_reaches_the_daemons_own_files_is_told_when_it_is_read() {
        let (place, other) = (Place::new(), PublicKey([1; 32]));
        let dir = place.file.parent().unwrap().to_owned();
        place.write(&format!("ro root=/a {other}\nrw root={} {KEY}\n", dir.display()));
        assert!(place.knows(&KEY) && place.knows(&other), "what it may is judged when it comes");
        place.eventually_says("line 2: its client could read and replace the daemon's own");
        place.eventually_says("lets nobody in");
        assert!(!place.said().contains("line 1"), "{}", place.said());
    }

    #[test]
    fn a_directory_of_accounts_that_does_not_answer_holds_up_no_key_and_no_change_of_the_list() {
        let (mut place, other) = (Place::new(), PublicKey([1; 32]));
        let (silent, silence) = mpsc::channel::<()>();
        let (silence, asked) = (Mutex::new(silence), Arc::new(Mutex::new(Vec::new())));
        let log = Arc::clone(&asked);
        let find_account = move |user: &str| {
            log.lock().unwrap().push(user.to_owned());
            let _ = silence.lock().unwrap().recv();
            Err(io::ErrorKind::TimedOut.into())
        };
        let own = Arc::new(OwnPaths::new(&place.file.with_file_name("host"), &place.file));
        let say = Arc::clone(&place.authority.say);
        place.authority.lookout = Lookout::new(own, place.file.clone(), Box::new(find_account), say);
        let (says, in_time) = mpsc::channel();
        std::thread::scope(|scope| {
            let place = &place;
            scope.spawn(move || {
                let users = format!("rw root=/ user=alice {}\nrw root=/ user=bob {}\n", key(10), key(11));
                place.write(&format!("{users}ro root=/a {KEY}\nro root=/a {other}\n"));
                assert!(place.knows(&KEY) && place.knows(&other));
                place.write(&format!("{users}ro root=/a {KEY}\n"));
                assert!(place.knows(&KEY) && !place.knows(&other), "who was taken off is out at once");
                says.send(()).unwrap();
            });
            let in_time = in_time.recv_timeout(PATIENCE);
            drop(silent);
            in_time.expect("no key waits for accounts");
        });
        place.eventually_says("line 2: its client could read and replace");
        assert!(place.said().contains("the user bob cannot be looked up"), "{}", place.said());
        // After a failed look-up there is no other.
        let asked = asked.lock().unwrap();
        assert!(asked.len() <= 2 && asked.iter().all(|user| user == "alice"), "{asked:?}");
    }

    #[test]
    fn a_list_that_others_may_write_lets_nobody_in() {
        let place = Place::new();
        place.write(&format!("ro root=/a {KEY}\n"));
        for mode in [0o620, 0o602, 0o666] {
            fs::set_permissions(&place.file, fs::Permissions::from_mode(mode)).unwrap();
            assert!(!place.knows(&KEY), "{mode:o}");
            assert!(check(&place.file).is_err());
        }
        fs::set_permissions(&place.file, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(place.knows(&KEY));
        fs::set_permissions(place.file.parent().unwrap(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(!place.knows(&KEY));
        fs::set_permissions(place.file.parent().unwrap(), fs::Permissions::from_mode(0o1777)).unwrap();
        assert!(place.knows(&KEY));
    }

    #[test]
    fn lines_that_are_added_while_the_daemon_runs_are_warned_of_as_at_its_start() {
        let place = Place::new();
        let dir = place.file.parent().unwrap().canonicalize().unwrap();
        fs::create_dir(dir.join("data")).unwrap();
        let line = |name: &str, number| format!("ro root={}/{name} {} {name}\n", dir.display(), key(number));
        let first = line("data", 1);
        place.write(&first);
        place.authority.warn_of(&check(&place.file).unwrap().0);
        place.write(&format!("{first}{}", line("missing", 2)));
        place.authority.list();
        place.eventually_says("/missing is no directory (or out of reach), for missing");
        let of_root = "without user=NAME its client acts as root within its directory, for ";
        if haul_transfer::is_root() {
            place.eventually_says(&format!("{of_root}missing"));
            assert_eq!(place.said().matches(&format!("{of_root}data")).count(), 1, "once: {}", place.said());
        }
    }

    #[test]
    fn a_list_behind_a_link_that_others_can_plant_lets_nobody_in() {
        let place = Place::new();
        let dir = place.file.parent().unwrap();
        let (share, real) = (dir.join("share"), dir.join("real"));
        for own in [&share, &real] {
            fs::create_dir(own).unwrap();
        }
        fs::write(real.join("list"), format!("ro root=/a {KEY}\n")).unwrap();
        fs::set_permissions(real.join("list"), fs::Permissions::from_mode(0o600)).unwrap();
        symlink(real.join("list"), share.join("keys")).unwrap();
        symlink(&share, dir.join("way")).unwrap();
        for named in [share.join("keys"), dir.join("way/keys")] {
            for (mode, is_good) in [(0o777, false), (0o775, false), (0o755, true), (0o1777, true)] {
                fs::set_permissions(&share, fs::Permissions::from_mode(mode)).unwrap();
                assert_eq!(check(&named).is_ok(), is_good, "{} {mode:o}", named.display());
            }
        }
        assert!(check(&real.join("list")).is_ok());
    }

    #[test]
    fn all_bad_lines_are_told_and_the_others_hold() {
        let place = Place::new();
        assert_eq!(check(&place.file).unwrap_err().kind(), io::ErrorKind::NotFound);
        place.write(&format!("ro root=/a {KEY}\nro root=/a\nro\n"));
        let (list, bad) = check(&place.file).unwrap();
        assert_eq!((list.len(), bad.iter().map(|bad| bad.line).collect::<Vec<_>>()), (1, vec![2, 3]));
        assert_eq!(bad[0], BadLine { line: 2, why: "it has no key".into() });
        place.write(&format!("ro root=/a {KEY}\n"));
        assert_eq!(check(&place.file).unwrap().1, []);
    }
}
