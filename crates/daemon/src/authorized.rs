//! The list of keys that may come in, one a line, each bound to a directory and to reading or to reading and writing.
//!
//! ```text
//!   # access             directory                 key               a name for the log
//!   ro                   root=/data/public         ed25519:<64 hex>  bob@lab
//!   rw clear user=alice  root="/data/new sets"     ed25519:<64 hex>  alice@laptop
//! ```
//! `user=NAME` is the account as which files are read and written; a daemon that is not root has no other than its own.
//! `clear` lets a client that asks for it have data connections that are authenticated, but not encrypted; control is always encrypted.
//! Within quotes `\"`, `\\` and `\xHH` stand for one byte. The key comes last of what counts, so a line that was cut off
//! grants nothing, and neither does one whose directory holds the daemon's own files when a session begins (`own_files.rs`).
//! At the start a line that is not understood is an error; in a list that changes while the daemon runs, it is left out and
//! logged, and the others hold.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use haul_net::PublicKey;
use haul_transfer::{Grant, planted};

use crate::limits::MAX_LIST_BYTES;
use crate::lookout::{Lookout, Say};
use crate::own_files;

/// What one line grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorized {
    /// Where and how.
    pub grant: Grant,
    /// The name in the line, for the log; may be empty.
    pub comment: String,
    /// The number of the line, from 1.
    pub line: usize,
}

/// A list that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List(HashMap<PublicKey, Authorized>);

/// A line that grants nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct BadLine {
    /// Its number, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub why: String,
}

impl List {
    /// Reads the lines. Bad ones grant nothing; a key that stands in two lines has no grant either, since nobody can say
    /// which of them was meant.
    pub fn parse(text: &[u8]) -> (List, Vec<BadLine>) {
        let mut list = HashMap::new();
        let mut bad = Vec::new();
        let mut seen: HashMap<PublicKey, usize> = HashMap::new();
        for (line, bytes) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            match parse_line(bytes) {
                Ok(None) => {}
                Ok(Some((key, grant, comment))) => match seen.insert(key, line) {
                    None => {
                        list.insert(key, Authorized { grant, comment, line });
                    }
                    Some(other) => {
                        list.remove(&key);
                        bad.push(BadLine { line, why: format!("the key stands in line {other}, too") });
                    }
                },
                Err(why) => bad.push(BadLine { line, why }),
            }
        }
        (List(list), bad)
    }

    /// What a key may do.
    pub fn get(&self, key: &PublicKey) -> Option<&Authorized> {
        self.0.get(key)
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True when nobody may come in.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All that is granted.
    pub fn grants(&self) -> impl Iterator<Item = &Authorized> {
        self.0.values()
    }
}

/// One line; `None` when it is empty or a comment.
fn parse_line(line: &[u8]) -> Result<Option<(PublicKey, Grant, String)>, String> {
    let mut rest = line.trim_ascii();
    if rest.is_empty() || rest.starts_with(b"#") {
        return Ok(None);
    }
    let (mut read_only, mut root, mut clear, mut user) = (None, None, false, None);
    loop {
        let (word, after) = split_word(rest)?;
        match word.as_slice() {
            b"" => return Err("it has no key".into()),
            b"ro" | b"rw" if read_only.is_some() => return Err("it says more than once ro or rw".into()),
            b"ro" => read_only = Some(true),
            b"rw" => read_only = Some(false),
            b"clear" => clear = true,
            _ if word.starts_with(b"root=") && root.is_some() => return Err("it has more than one root".into()),
            _ if word.starts_with(b"root=") => root = Some(directory(&word[b"root=".len()..])?),
            _ if word.starts_with(b"user=") && user.is_some() => return Err("it has more than one user".into()),
            _ if word.starts_with(b"user=") => user = Some(account(&word[b"user=".len()..])?),
            _ if word.starts_with(b"ed25519:") => {
                let text = String::from_utf8_lossy(&word);
                let key = text.parse().map_err(|error: haul_net::BadKey| error.to_string())?;
                let read_only = read_only.ok_or("it says neither ro nor rw before the key")?;
                let root = root.ok_or("it names no directory, root=/DIR, before the key")?;
                let comment = String::from_utf8_lossy(after.trim_ascii()).into_owned();
                let grant = Grant { root: Some(root), read_only, clear, user };
                return Ok(Some((key, grant, comment)));
            }
            other => {
                let word = crate::log::escaped(other);
                return Err(format!("'{word}' is none of ro, rw, clear, user=NAME, root=/DIR and ed25519:KEY"));
            }
        }
        rest = after;
    }
}

/// The first word with its quotes resolved, and what follows it.
fn split_word(text: &[u8]) -> Result<(Vec<u8>, &[u8]), String> {
    let mut word = Vec::new();
    let mut quoted = false;
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        at += 1;
        match byte {
            b'"' => quoted = !quoted,
            b'\\' if quoted => {
                let (byte, length) = escape(&text[at..])?;
                word.push(byte);
                at += length;
            }
            b' ' | b'\t' | b'\r' if !quoted => return Ok((word, text[at..].trim_ascii_start())),
            _ => word.push(byte),
        }
    }
    if quoted { Err("a quote is not closed".into()) } else { Ok((word, b"")) }
}

/// The byte that stands behind a backslash, and how long its name is.
fn escape(text: &[u8]) -> Result<(u8, usize), String> {
    let digit =
        |at: usize| text.get(at).and_then(|byte| char::from(*byte).to_digit(16)).and_then(|d| u8::try_from(d).ok());
    match (text.first(), digit(1), digit(2)) {
        (Some(byte @ (b'"' | b'\\')), ..) => Ok((*byte, 1)),
        (Some(b'x'), Some(high), Some(low)) => Ok((high << 4 | low, 3)),
        _ => Err(r#"a backslash in quotes must be \", \\ or \xHH"#.into()),
    }
}

fn directory(bytes: &[u8]) -> Result<PathBuf, String> {
    let path = PathBuf::from(OsString::from_vec(bytes.to_vec()));
    if bytes.contains(&0) || !path.is_absolute() {
        return Err("root must be a full path, root=/DIR".into());
    }
    Ok(path)
}

/// The name of an account, which is looked up when a session begins.
fn account(bytes: &[u8]) -> Result<String, String> {
    match std::str::from_utf8(bytes) {
        Ok(name) if !name.is_empty() && !name.contains('\0') => Ok(name.to_owned()),
        _ => Err("user must be the name of an account, user=NAME".into()),
    }
}

/// The list as it stands in its file now.
pub struct Authority {
    path: PathBuf,
    say: Say,
    lookout: Arc<Lookout>,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    list: Arc<List>,
    /// The file that was read; `None` when there was none, or it was not to be used.
    version: Option<Version>,
    /// What is wrong with the file, so that it is said once.
    refused: Option<String>,
}

/// A change that keeps all of these does not go unseen for long: editors and `mv` make a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    device: u64,
    inode: u64,
    size: u64,
    modified_ns: i128,
    changed_ns: i128,
}

impl Version {
    fn of(metadata: &Metadata) -> Version {
        let ns = |seconds: i64, ns: i64| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
        Version {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.len(),
            modified_ns: ns(metadata.mtime(), metadata.mtime_nsec()),
            changed_ns: ns(metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl Authority {
    /// Nobody, until the file is read. What is worth a line of the log goes to `say`, once for each change.
    pub fn new(path: &Path, identity: &Path, say: Say) -> Authority {
        let lookout = Lookout::new(identity.to_owned(), path.to_owned(), Box::new(own_files::uid_of), Arc::clone(&say));
        Authority { path: path.to_owned(), say, lookout, held: Mutex::default() }
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The list, read again when its file changed. Every handshake asks, so nothing is waited for but the file itself.
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

/// What changed since `version`, if anything did.
fn look(path: &Path, version: Option<Version>) -> io::Result<Option<(Version, List, Vec<BadLine>)>> {
    // A pipe in its place must not hold up whoever looks.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    check_owner(path, &metadata)?;
    let found = Version::of(&metadata);
    if version == Some(found) {
        return Ok(None);
    }
    let mut text = Vec::new();
    file.take(MAX_LIST_BYTES + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_LIST_BYTES {
        return Err(io::Error::other("it is too long for a list of keys"));
    }
    let (list, bad) = List::parse(&text);
    Ok(Some((found, list, bad)))
}

/// Reads the list as it must be at the start: without a bad line.
pub fn check(path: &Path) -> io::Result<Result<List, BadLine>> {
    let looked = look(path, None)?;
    let (_, list, bad) = looked.expect("nothing was read before");
    Ok(bad.into_iter().next().map_or(Ok(list), Err))
}

/// Whoever can write the list, or put another in its place, can let himself in.
fn check_owner(path: &Path, file: &Metadata) -> io::Result<()> {
    if file.uid() != haul_transfer::effective_user() && file.uid() != 0 {
        return Err(io::Error::other("it belongs to somebody else"));
    }
    if file.mode() & planted::OTHERS_WRITE != 0 {
        return Err(io::Error::other(format!("others may write it (mode {:03o}); chmod 600 it", file.mode() & 0o777)));
    }
    planted::check(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use super::*;

    const KEY: PublicKey = PublicKey([0xab; 32]);

    fn key(number: u8) -> PublicKey {
        PublicKey([number; 32])
    }

    fn granted(line: &[u8]) -> Result<Option<(PathBuf, bool, String)>, String> {
        let (list, bad) = List::parse(line);
        match (list.get(&KEY), bad.into_iter().next()) {
            (Some(found), None) => {
                let root = found.grant.root.clone().expect("always");
                Ok(Some((root, found.grant.read_only, found.comment.clone())))
            }
            (None, None) => Ok(None),
            (_, Some(bad)) => Err(bad.why),
        }
    }

    #[test]
    fn lines_that_grant() {
        let check = |line: &str, root: &[u8], read_only: bool, comment: &str| {
            let root = PathBuf::from(OsString::from_vec(root.to_vec()));
            assert_eq!(granted(line.as_bytes()), Ok(Some((root, read_only, comment.to_owned()))), "{line}");
        };
        check(&format!("ro root=/data {KEY}"), b"/data", true, "");
        check(&format!("  rw\troot=/data  {KEY}   bob at home \r"), b"/data", false, "bob at home");
        check(&format!("root=/data rw {KEY} root=/etc rw"), b"/data", false, "root=/etc rw");
        check(&format!("rw root=\"/data/new sets\" {KEY} x"), b"/data/new sets", false, "x");
        check(&format!("rw \"root=/data/new sets\" {KEY}"), b"/data/new sets", false, "");
        check(&format!(r#"rw root="/a\"b\\c\xff\x20#" {KEY} "quoted""#), b"/a\"b\\c\xff #", false, "\"quoted\"");
        check(&format!(r"rw root=/back\slash {KEY}"), br"/back\slash", false, "");
        check(&format!("ro root=/ {KEY}"), b"/", true, "");
    }

    #[test]
    fn clear_lanes_are_granted_by_word_only() {
        let clear = |line: String| List::parse(line.as_bytes()).0.get(&KEY).map(|found| found.grant.clear);
        assert_eq!(clear(format!("rw root=/data {KEY} clear")), Some(false), "a name grants nothing");
        assert_eq!(clear(format!("rw clear root=/data {KEY}")), Some(true));
        assert_eq!(clear(format!("clear ro root=/data {KEY}")), Some(true));
    }

    #[test]
    fn the_account_of_a_key_is_named_once_before_it() {
        let user = |line: String| List::parse(line.as_bytes()).0.get(&KEY).map(|found| found.grant.user.clone());
        assert_eq!(user(format!("rw root=/data {KEY} user=bob")), Some(None), "a name grants nothing");
        assert_eq!(user(format!("rw user=alice root=/data {KEY}")), Some(Some("alice".into())));
        for bad in ["user=", "user=a user=b", "user=\"a\\x00\"", "user=\"\\xff\""] {
            assert_eq!(user(format!("rw {bad} root=/data {KEY}")), None, "{bad}");
        }
    }

    #[test]
    fn lines_that_grant_nothing() {
        for line in ["", "   ", "# ro root=/ ", "\t#"] {
            assert_eq!(granted(line.as_bytes()), Ok(None), "{line}");
        }
        let check = |line: String, words: &str| {
            let why = granted(line.as_bytes()).expect_err(&line);
            assert!(why.contains(words), "{line}: {why}");
        };
        check(format!("{KEY}"), "neither ro nor rw");
        check(format!("root=/data {KEY}"), "neither ro nor rw");
        check(format!("ro {KEY}"), "no directory");
        check(format!("ro root= {KEY}"), "full path");
        check(format!("ro root=data {KEY}"), "full path");
        check(format!("ro root=~/data {KEY}"), "full path");
        check(format!("ro rw root=/data {KEY}"), "more than once");
        check(format!("ro root=/data root=/ {KEY}"), "more than one root");
        check(format!("RW root=/data {KEY}"), "'RW' is none of");
        check(format!("rw,root=/data {KEY}"), "'rw,root=/data' is none of");
        check(format!("ro root=/new sets {KEY}"), "'sets' is none of");
        check(format!("ro root=\"/new sets {KEY}"), "not closed");
        check(format!(r#"ro root="/n\ew" {KEY}"#), "backslash");
        check(format!(r#"ro root="/n\x4" {KEY}"#), "backslash");
        check(format!("ro root=\"/a\\x00b\" {KEY}"), "full path");
        check("ro root=/data".into(), "no key");
        check("ro root=/data ssh-ed25519 AAAA".into(), "'ssh-ed25519' is none of");
        check(format!("ro root=/data {}", &KEY.to_string()[..70]), "64 hexadecimal");
        check("\x1b[2J".into(), r"\u{1b}[2J");
    }

    #[test]
    fn a_cut_off_line_grants_nothing() {
        let line = format!("rw root=/data {KEY}");
        for end in 1..line.len() {
            let (list, bad) = List::parse(&line.as_bytes()[..end]);
            assert!(list.is_empty() && bad.len() == 1, "{}", &line[..end]);
        }
    }

    #[test]
    fn a_bad_line_is_named_and_the_others_hold() {
        let other = PublicKey([1; 32]);
        let text = format!("ro root=/a {KEY}\nnonsense\n\nrw root=/b {other}\n");
        let (list, bad) = List::parse(text.as_bytes());
        assert_eq!(list.len(), 2);
        assert_eq!(
            bad.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["line 2: 'nonsense' is none of ro, rw, clear, user=NAME, root=/DIR and ed25519:KEY"]
        );
        let (list, bad) = List::parse(format!("ro root=/a {KEY}\nrw root=/b {KEY}\nro root=/c {KEY}").as_bytes());
        assert!(list.is_empty());
        assert_eq!(bad.iter().map(|bad| bad.line).collect::<Vec<_>>(), [2, 3]);
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
            Place { authority: Authority::new(&file, &dir.path().join("host"), say), file, _dir: dir, said }
        }

        fn said(&self) -> String {
            self.said.lock().unwrap().join("\n")
        }

        /// In another thread, soon.
        fn eventually_says(&self, words: &str) {
            let end = Instant::now() + PATIENCE;
            while !self.said().contains(words) {
                assert!(Instant::now() < end, "{words}: {}", self.said());
                std::thread::yield_now();
            }
        }

        /// Replaces the file, as an editor does.
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

    /// Far longer than anything here takes on a busy machine.
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
        // It is silent until this sender is dropped.
        let (silent, silence) = mpsc::channel::<()>();
        let (silence, asked) = (Mutex::new(silence), Arc::new(Mutex::new(Vec::new())));
        let log = Arc::clone(&asked);
        let find_account = move |user: &str| {
            log.lock().unwrap().push(user.to_owned());
            let _ = silence.lock().unwrap().recv();
            Err(io::ErrorKind::TimedOut.into())
        };
        let (identity, say) = (place.file.with_file_name("host"), Arc::clone(&place.authority.say));
        place.authority.lookout = Lookout::new(identity, place.file.clone(), Box::new(find_account), say);
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
        // Once for each list that was looked at, and nobody else where the first is not answered.
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
        // Where the link stands counts, and not only where the list does; also on a way that goes through another link.
        for named in [share.join("keys"), dir.join("way/keys")] {
            for (mode, is_good) in [(0o777, false), (0o775, false), (0o755, true), (0o1777, true)] {
                fs::set_permissions(&share, fs::Permissions::from_mode(mode)).unwrap();
                assert_eq!(check(&named).is_ok(), is_good, "{} {mode:o}", named.display());
            }
        }
        assert!(check(&real.join("list")).is_ok());
    }

    #[test]
    fn at_the_start_a_bad_line_is_an_error() {
        let place = Place::new();
        assert_eq!(check(&place.file).unwrap_err().kind(), io::ErrorKind::NotFound);
        place.write(&format!("ro root=/a {KEY}\nro root=/a\n"));
        assert_eq!(check(&place.file).unwrap().unwrap_err(), BadLine { line: 2, why: "it has no key".into() });
        place.write(&format!("ro root=/a {KEY}\n"));
        assert_eq!(check(&place.file).unwrap().unwrap().len(), 1);
    }
}
