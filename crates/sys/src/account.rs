//! The accounts of this host, wherever they are kept: `id(1)` knows them all.
//!
//! The C library's own look-up (`getpwnam(3)`) loads further libraries into the process, which a static program cannot rely on.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::poll::{self, Interest};

/// An account and its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Number of the user.
    pub uid: u32,
    /// Number of the first group.
    pub gid: u32,
    /// Numbers of all groups, the first among them.
    pub groups: Vec<u32>,
}

/// A directory of accounts somewhere in the network may take its time, but not for ever.
const LOOKUP_DEADLINE: Duration = Duration::from_secs(10);

/// 65,536 groups, the most that the kernel takes (credentials(7)), each of at most ten digits and a space.
const MAX_ANSWER_BYTES: u64 = 65_536 * 11;

/// Where the program is looked for: never where the caller's environment says.
const PATH: &str = "/usr/bin:/bin:/usr/sbin:/sbin";

/// The account of this name; `None` when there is none.
///
/// Errors: there is no `id`, it does not answer in time, or with something else than numbers.
pub fn named(name: &str) -> io::Result<Option<Account>> {
    // What begins with a dash would be an option.
    if name.is_empty() || name.starts_with('-') || name.contains('\0') {
        return Ok(None);
    }
    let Some(users) = numbers("-u", name)? else { return Ok(None) };
    let Some(groups) = numbers("-G", name)? else { return Ok(None) };
    match (users[..].first(), groups.first()) {
        (Some(uid), Some(gid)) => Ok(Some(Account { uid: *uid, gid: *gid, groups })),
        _ => Err(odd()),
    }
}

/// What `id` answers; `None` when it knows no such account.
fn numbers(what: &str, name: &str) -> io::Result<Option<Vec<u32>>> {
    let mut id = Command::new("id");
    id.args([what, name]).env_clear().env("PATH", PATH);
    let mut child = id.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut output = child.stdout.take().expect("it was asked for").take(MAX_ANSWER_BYTES);
    let mut text = Vec::new();
    let end = Instant::now() + LOOKUP_DEADLINE;
    let read = loop {
        let left = end.saturating_duration_since(Instant::now());
        if !poll::wait(&[(output.get_ref().as_fd(), Interest::Read)], Some(left))?[0] {
            break Err(io::Error::from(io::ErrorKind::TimedOut));
        }
        let mut block = [0; 4096];
        match output.read(&mut block) {
            Ok(0) => break Ok(()),
            Ok(len) => text.extend_from_slice(&block[..len]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break Err(error),
        }
    };
    if read.is_err() {
        // It may have ended by itself just now.
        let _ = child.kill();
    }
    let status = child.wait()?;
    read?;
    if !status.success() {
        return Ok(None);
    }
    let words = str::from_utf8(&text).map_err(|_| odd())?.split_ascii_whitespace();
    words.map(|word| word.parse().map_err(|_| odd())).collect::<io::Result<Vec<u32>>>().map(Some)
}

fn odd() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "id(1) answers with something else than numbers")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_an_account_and_nonsense_is_none() {
        let root = named("root").unwrap().unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(root.groups.contains(&0));
        for name in ["no such user", "", "a\0b", "-u", "--help", "root; id", "$(id)"] {
            assert_eq!(named(name).unwrap(), None, "{name:?}");
        }
    }
}
