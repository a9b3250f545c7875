//! Looks up names of users and groups.
//!
//! A thread reads `/etc/passwd` and `/etc/group`, then asks `getent(1)` (see [`crate::account`]). It starts before a session
//! gives up these rights.

use std::fs::File;
use std::io::Read;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use crate::account::{LOOKUP_DEADLINE, PATH, answer};

/// The kind of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// A user.
    User,
    /// A group.
    Group,
}

/// The look-up is late or impossible: ask no more in this session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoAnswer;

/// The kernel and shadow(5) stop at 32 bytes, directories of accounts at 256.
pub const MAX_NAME_BYTES: usize = 256;

/// Starts that thread, once, while this one has all rights.
pub fn start() {
    let _ = lookups();
}

/// The name of this number, if it has one.
pub fn name_of(of: Of, id: u32) -> Result<Option<Vec<u8>>, NoAnswer> {
    ask(of, Key::Id(id)).map(|found| found.map(|(name, _)| name))
}

/// The number of this name, if there is such an account.
pub fn id_of(of: Of, name: &[u8]) -> Result<Option<u32>, NoAnswer> {
    if !is_name(name) {
        return Ok(None);
    }
    ask(of, Key::Name(name.to_vec())).map(|found| found.map(|(_, id)| id))
}

/// `getent` takes digits for a number, and a dash for an option.
fn is_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && name[0] != b'-'
        && !name.iter().all(u8::is_ascii_digit)
        && !name.iter().any(|byte| matches!(byte, 0 | b':' | b'\n' | b'/'))
}

type Found = Option<(Vec<u8>, u32)>;

enum Key {
    Id(u32),
    Name(Vec<u8>),
}

struct Question {
    of: Of,
    key: Key,
    reply: SyncSender<Result<Found, NoAnswer>>,
}

static LOOKUPS: OnceLock<Option<Sender<Question>>> = OnceLock::new();

fn lookups() -> Option<&'static Sender<Question>> {
    let start = || {
        let (sender, questions) = channel();
        std::thread::Builder::new().name("names".into()).spawn(move || answer_all(&questions)).ok().map(|_| sender)
    };
    LOOKUPS.get_or_init(start).as_ref()
}

fn ask(of: Of, key: Key) -> Result<Found, NoAnswer> {
    let (reply, answered) = sync_channel(1);
    lookups().ok_or(NoAnswer)?.send(Question { of, key, reply }).map_err(|mpsc::SendError(_)| NoAnswer)?;
    answered.recv_timeout(PATIENCE).map_err(|_| NoAnswer)?
}

fn answer_all(questions: &Receiver<Question>) {
    for Question { of, key, reply } in questions {
        let _ = reply.try_send(look_up(of, &key));
    }
}

fn look_up(of: Of, key: &Key) -> Result<Found, NoAnswer> {
    let (file, database) = match of {
        Of::User => ("/etc/passwd", "passwd"),
        Of::Group => ("/etc/group", "group"),
    };
    if let Some(found) = in_file(file, key) {
        return Ok(Some(found));
    }
    let wanted = match key {
        Key::Id(id) => id.to_string().into_bytes(),
        Key::Name(name) => name.clone(),
    };
    let mut getent = Command::new("getent");
    getent.args([std::ffi::OsStr::new(database), std::os::unix::ffi::OsStrExt::from_bytes(&wanted[..])]);
    getent.env_clear().env("PATH", PATH);
    match answer(&mut getent, LOOKUP_DEADLINE) {
        Ok((status, text)) if status.success() => {
            Ok(text.split(|byte| *byte == b'\n').find_map(|line| entry(line, key)))
        }
        Ok(_) => Ok(None),
        // A host without `getent` has its accounts in its files.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(_) => Err(NoAnswer),
    }
}

fn in_file(path: &str, key: &Key) -> Found {
    let mut text = Vec::new();
    File::open(path).ok()?.take(MAX_FILE_BYTES).read_to_end(&mut text).ok()?;
    text.split(|byte| *byte == b'\n').find_map(|line| entry(line, key))
}

/// Parses the wanted line of passwd(5) or group(5): name, password, number.
fn entry(line: &[u8], key: &Key) -> Found {
    let mut fields = line.split(|byte| *byte == b':');
    let (name, _, id) = (fields.next()?, fields.next()?, fields.next()?);
    let id: u32 = str::from_utf8(id).ok()?.parse().ok()?;
    let is_it = match key {
        Key::Id(wanted) => id == *wanted,
        Key::Name(wanted) => name == wanted,
    };
    (is_it && is_name(name)).then(|| (name.to_vec(), id))
}

/// Two look-ups: one may be under way.
const PATIENCE: Duration = Duration::from_secs(2 * LOOKUP_DEADLINE.as_secs());

/// 100,000 accounts of 100 bytes.
const MAX_FILE_BYTES: u64 = 10 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_has_a_name_and_nonsense_has_no_number() {
        assert_eq!(name_of(Of::User, 0), Ok(Some(b"root".to_vec())));
        assert_eq!(id_of(Of::User, b"root"), Ok(Some(0)));
        assert_eq!(id_of(Of::Group, b"root"), Ok(Some(0)));
        for name in
            [&b"no such user"[..], b"", b"-s", b"0", b"root:x", b"a\0b", b"../root", &[b'n'; MAX_NAME_BYTES + 1]]
        {
            assert_eq!(id_of(Of::User, name), Ok(None), "{name:?}");
        }
        assert_eq!(name_of(Of::Group, 3_999_999_999), Ok(None));
    }

    #[test]
    fn a_line_is_taken_only_for_the_account_that_was_asked_for() {
        let alice = || Some((b"alice".to_vec(), 1000));
        let line = b"alice:x:1000:1000:Alice:/home/alice:/bin/sh";
        assert_eq!(entry(line, &Key::Id(1000)), alice());
        assert_eq!(entry(line, &Key::Name(b"alice".to_vec())), alice());
        assert_eq!(entry(line, &Key::Id(100)), None);
        for odd in [&b"alice"[..], b"alice:x:", b"alice:x:-1:", b"alice:x:99999999999:", b":x:1000:", b"1000:x:1000:"] {
            assert_eq!(entry(odd, &Key::Id(1000)), None, "{odd:?}");
        }
    }
}
