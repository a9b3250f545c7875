//! Lists names at an ssh host for shell completion: without our program, without questions, and soon. A login is used or kept
//! as for a copy.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use haul_job::{Carriage, Far, SshOptions};
use haul_sys::poll::Interest;

use super::session::{kill, ready, wait};
use super::target::{Kept, SshTarget};
use super::words::EXIT_WAIT;
use haul_kept::surroundings::Surroundings;

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FarName {
    /// Any bytes but `/` and NUL.
    pub name: Vec<u8>,
    /// Whether it is, or leads to, a directory.
    pub is_directory: bool,
}

/// The names to look for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The directory, from the home directory.
    pub directory: &'a [u8],
    /// The names' beginning; hidden ones need a dot.
    pub begun: &'a [u8],
    /// Most names.
    pub most: usize,
    /// The search's end.
    pub until: Instant,
}

/// Lists names. `None`: the place is not behind ssh, or ssh does not start.
pub fn list(
    place: &Far,
    (options, carriage): (&SshOptions, &Carriage),
    surroundings: &Surroundings,
    wanted: &Wanted<'_>,
) -> Option<Vec<FarName>> {
    let target = SshTarget::of(place, options, carriage)?.looked_up(surroundings);
    if let Kept::At(kept) = &target.kept
        && kept.stands()
    {
        let until = wanted.until.min(Instant::now() + kept.patience());
        match read(&target, &kept.to_use(), wanted, until)? {
            Read::Names(names) => return Some(names),
            Read::Nothing => kept.give_up(&target.host),
        }
    }
    let ours = match &target.kept {
        Kept::At(kept) => kept.to_log_in(),
        Kept::No(_) => Vec::new(),
    };
    match read(&target, &ours, wanted, wanted.until)? {
        Read::Names(names) => Some(names),
        Read::Nothing => Some(Vec::new()),
    }
}

enum Read {
    Names(Vec<FarName>),
    Nothing,
}

fn read(target: &SshTarget, ours: &[OsString], wanted: &Wanted<'_>, first_until: Instant) -> Option<Read> {
    let question = question(wanted)?;
    let ours: Vec<OsString> = ours.iter().cloned().chain(SETTINGS.map(OsString::from)).collect();
    let mut command = target.command_with(&ours, !ours.iter().any(|option| option == "ControlMaster=no"));
    command.arg(format!("exec sh -c '{SCRIPT}'")).env("SSH_ASKPASS_REQUIRE", "never");
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let child = Mutex::new(child);
    let read = answer(&child, &question, wanted, first_until);
    kill(&child);
    read
}

fn answer(child: &Mutex<Child>, question: &[u8], wanted: &Wanted<'_>, first_until: Instant) -> Option<Read> {
    let (mut input, mut output) = {
        let mut child = haul_kept::sync::lock(child);
        (child.stdin.take()?, child.stdout.take()?)
    };
    if input.write_all(question).is_err() {
        return Some(Read::Nothing);
    }
    drop(input);
    let mut answer = Answer::default();
    let (mut block, mut left) = ([0; 16 << 10], MAX_BYTES);
    while answer.names.len() < wanted.most && left > 0 {
        let until = if left == MAX_BYTES { first_until } else { wanted.until };
        if Instant::now() >= until {
            break;
        }
        if !ready(output.as_fd(), Interest::Read) {
            continue;
        }
        match output.read(&mut block) {
            Err(_) => break,
            // Status 255 is ssh's own failure. A missing directory has no names.
            Ok(0) if wait(child, EXIT_WAIT).and_then(|status| status.code()) == Some(255) => break,
            Ok(0) => return Some(Read::Names(answer.names)),
            Ok(read) => {
                left = left.saturating_sub(read);
                answer.push(&block[..read], wanted.begun);
            }
        }
    }
    if left == MAX_BYTES {
        return Some(Read::Nothing);
    }
    answer.names.truncate(wanted.most);
    Some(Read::Names(answer.names))
}

/// `None`: the names do not fit into lines, or not into a pipe.
fn question(wanted: &Wanted<'_>) -> Option<Vec<u8>> {
    let is_of_shape = |bytes: &[u8]| !bytes.contains(&b'\n') && bytes.len() <= MAX_PATH_BYTES;
    if !is_of_shape(wanted.directory) || !is_of_shape(wanted.begun) {
        return None;
    }
    let directory = match wanted.directory {
        b"~" => b"",
        directory => directory.strip_prefix(b"~/").unwrap_or(directory),
    };
    // cd must neither read a flag nor search CDPATH.
    let start: &[u8] = if directory.starts_with(b"/") { b"" } else { b"./" };
    Some([start, directory, b"\n", wanted.begun, b"\n"].concat())
}

#[derive(Default)]
struct Answer {
    /// The NUL came that ends the login shell's words.
    has_begun: bool,
    rest: Vec<u8>,
    names: Vec<FarName>,
}

impl Answer {
    fn push(&mut self, block: &[u8], begun: &[u8]) {
        self.rest.extend_from_slice(block);
        let rest = std::mem::take(&mut self.rest);
        let mut parts: Vec<&[u8]> = rest.split(|byte| *byte == 0).collect();
        self.rest = parts.pop().unwrap_or_default().to_vec();
        for part in parts {
            if !std::mem::replace(&mut self.has_begun, true) {
                continue;
            }
            let (name, is_directory) = part.strip_suffix(b"/").map_or((part, false), |name| (name, true));
            let is_name = !name.is_empty() && !name.contains(&b'/') && name != b"." && name != b"..";
            let is_wanted = name.starts_with(begun) && (begun.starts_with(b".") || !name.starts_with(b"."));
            if is_name && is_wanted {
                self.names.push(FarName { name: name.to_vec(), is_directory });
            }
        }
        if !self.has_begun || self.rest.len() > MAX_PATH_BYTES {
            self.rest.clear();
        }
    }
}

/// ssh must ask nothing, and must give up before the caller does.
const SETTINGS: [&str; 3] = ["BatchMode=yes", "ConnectTimeout=3", "NumberOfPasswordPrompts=0"];

/// Without single quotes and exclamation marks any login shell hands it on to `sh`.
const SCRIPT: &str = "IFS= read -r d; IFS= read -r b; cd -- \"$d\" >/dev/null 2>&1 || exit 0; printf \"\\0\"; for n in \"$b\"*; do \
                      if [ -d \"$n\" ]; then printf \"%s/\\0\" \"$n\"; \
                      elif [ -e \"$n\" ] || [ -L \"$n\" ]; then printf \"%s\\0\" \"$n\"; fi; done";

/// 100 000 names of 80 bytes fit.
const MAX_BYTES: usize = 8 << 20;

/// PATH_MAX; both lines fit into an empty pipe.
const MAX_PATH_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_a_login_shell_says_is_no_name_and_neither_is_what_was_not_asked_for() {
        let mut answer = Answer::default();
        for block in [&b"Welcome\nrun0"[..], b"\0run1", b"/\0run 2\0runa/b\0", b"other\0\0..\0run3"] {
            answer.push(block, b"run");
        }
        let names: Vec<_> = answer.names.iter().map(|found| (found.name.as_slice(), found.is_directory)).collect();
        assert_eq!(names, [(&b"run1"[..], true), (b"run 2", false)]);
        let mut answer = Answer::default();
        answer.push(b"\0.hidden\0seen\0", b"");
        assert_eq!(answer.names.len(), 1);
    }

    #[test]
    fn a_directory_is_a_line_and_never_a_flag() {
        let asked = |directory: &[u8], begun: &[u8]| {
            let until = Instant::now() + Duration::from_secs(1);
            question(&Wanted { directory, begun, most: 9, until }).map(|lines| String::from_utf8(lines).unwrap())
        };
        assert_eq!(asked(b"-P/", b"a b").as_deref(), Some("./-P/\na b\n"));
        assert_eq!(asked(b"/d/", b"").as_deref(), Some("/d/\n\n"));
        assert_eq!(asked(b"~/d/", b"").as_deref(), Some("./d/\n\n"));
        assert_eq!(asked(b".", b"").as_deref(), Some("./.\n\n"));
        assert_eq!(asked(b"a\nb/", b""), None);
    }

    #[test]
    fn any_login_shell_hands_the_script_on() {
        assert!(!SCRIPT.contains(['\'', '\n', '!']));
    }
}
