//! Looks up accounts with `id(1)`, wherever they are kept: the C library's `getpwnam(3)` loads further libraries, unfit for
//! a static program.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::poll::{self, Interest};

/// An account and its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The user's number.
    pub uid: u32,
    /// The first group.
    pub gid: u32,
    /// All groups, the first among them.
    pub groups: Vec<u32>,
}

pub(crate) const LOOKUP_DEADLINE: Duration = Duration::from_secs(10);

/// 65,536 groups (credentials(7)), of up to ten digits and a space each.
const MAX_ANSWER_BYTES: u64 = 65_536 * 11;

pub(crate) const PATH: &str = "/usr/bin:/bin:/usr/sbin:/sbin";

/// The account of this name, if any. Fails without `id`, or a good answer in time.
pub fn named(name: &str) -> io::Result<Option<Account>> {
    // A name with a leading dash would be an option of `id`.
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

fn numbers(what: &str, name: &str) -> io::Result<Option<Vec<u32>>> {
    let mut id = Command::new("id");
    id.args([what, name]).env_clear().env("PATH", PATH);
    let (status, text) = answer(&mut id, LOOKUP_DEADLINE)?;
    if !status.success() {
        return Ok(None);
    }
    let words = str::from_utf8(&text).map_err(|_| odd())?.split_ascii_whitespace();
    words.map(|word| word.parse().map_err(|_| odd())).collect::<io::Result<Vec<u32>>>().map(Some)
}

/// The output of a program, killed after `limit` without a wait: it may hang for a silent server.
pub(crate) fn answer(program: &mut Command, limit: Duration) -> io::Result<(ExitStatus, Vec<u8>)> {
    let mut left_behind = LEFT_BEHIND.lock().unwrap_or_else(PoisonError::into_inner);
    left_behind.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    if left_behind.len() >= MAX_LEFT_BEHIND {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "a look-up was begun before, and has not ended"));
    }
    drop(left_behind);
    let end = Instant::now() + limit;
    let mut child = program.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let answer = read_to_end(&mut child, end).and_then(|text| Ok((await_end(&mut child, end)?, text)));
    if answer.is_err() {
        let _ = child.kill();
        if await_end(&mut child, Instant::now() + KILL_DEADLINE).is_err() {
            LEFT_BEHIND.lock().unwrap_or_else(PoisonError::into_inner).push(child);
        }
    }
    answer
}

fn read_to_end(child: &mut Child, end: Instant) -> io::Result<Vec<u8>> {
    let mut output = child.stdout.take().expect("it was asked for").take(MAX_ANSWER_BYTES);
    let mut text = Vec::new();
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if !poll::wait(&[(output.get_ref().as_fd(), Interest::Read)], Some(left))?[0] {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut block = [0; 4096];
        match output.read(&mut block) {
            Ok(0) => return Ok(text),
            Ok(len) => text.extend_from_slice(&block[..len]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn await_end(child: &mut Child, end: Instant) -> io::Result<ExitStatus> {
    match pidfd_open(Pid::from_child(child), PidfdFlags::empty()) {
        Ok(process) => {
            let left = end.saturating_duration_since(Instant::now());
            poll::wait(&[(process.as_fd(), Interest::Read)], Some(left))?;
            child.try_wait()?.ok_or_else(|| io::ErrorKind::TimedOut.into())
        }
        // Before Linux 5.3 no wait has a limit.
        Err(_) => child.wait(),
    }
}

static LEFT_BEHIND: Mutex<Vec<Child>> = Mutex::new(Vec::new());

/// Processes that may hang on a silent directory of accounts.
const MAX_LEFT_BEHIND: usize = 16;

/// Time for a killed process to end.
const KILL_DEADLINE: Duration = Duration::from_secs(1);

fn odd() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "id(1) answers with something else than numbers")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::unmet;

    #[test]
    fn root_is_an_account_and_nonsense_is_none() {
        let root = named("root").unwrap().unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(root.groups.contains(&0));
        for name in ["no such user", "", "a\0b", "-u", "--help", "root; id", "$(id)"] {
            assert_eq!(named(name).unwrap(), None, "{name:?}");
        }
    }

    fn shell(script: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]);
        shell
    }

    #[test]
    fn a_program_that_does_not_answer_or_does_not_end_is_not_waited_for() {
        let begun = Instant::now();
        for script in ["exec sleep 600", "exec >&-; exec sleep 600", "echo 1; exec sleep 600"] {
            let error = answer(&mut shell(script), Duration::from_millis(300)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{script}: {error}");
        }
        let (status, text) = answer(&mut shell("echo 1 2; exit 1"), Duration::from_secs(60)).unwrap();
        assert_eq!((status.code(), &text[..]), (Some(1), &b"1 2\n"[..]));
        assert!(begun.elapsed() < Duration::from_secs(120));
    }

    #[test]
    fn who_does_not_end_though_it_was_killed_is_left_and_taken_away_later() {
        let mut child = shell("exec sleep 600").spawn().unwrap();
        if pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).is_err() {
            child.kill().unwrap();
            child.wait().unwrap();
            return unmet("this kernel has no wait for a process that has an end");
        }
        assert_eq!(await_end(&mut child, Instant::now()).unwrap_err().kind(), io::ErrorKind::TimedOut);
        let id = child.id();
        let is_left = || LEFT_BEHIND.lock().unwrap().iter().any(|child| child.id() == id);
        LEFT_BEHIND.lock().unwrap().push(child);
        let ask = || answer(&mut shell("true"), Duration::from_secs(60)).map(drop);
        ask().unwrap();
        assert!(is_left());
        let mut left = LEFT_BEHIND.lock().unwrap();
        left.iter_mut().find(|child| child.id() == id).unwrap().kill().unwrap();
        drop(left);
        let end = Instant::now() + Duration::from_secs(60);
        while is_left() {
            ask().unwrap();
            assert!(Instant::now() < end, "nobody takes it away");
        }
    }
}
