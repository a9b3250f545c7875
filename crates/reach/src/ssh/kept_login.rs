//! Keeps a login for a minute after its copy, so that the next copy to the same host needs none.
//!
//! ssh keeps the connection (ssh_config(5), ControlMaster). Its socket lies in a private directory, under the digest of all
//! that decides who answers and as whom ([`far_identity`]).
//!
//! ```text
//!   no socket:  ssh logs in, and leaves the connection behind its socket
//!   a socket:   a session over the connection, which must say something soon; else the socket is given up, and ssh logs in
//! ```
//! If the user's configuration shares connections, or forbids that, nothing is kept here.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use haul_sys::own::OwnDirectory;

use super::far_identity;
use super::resolved::{Resolved, setting};
use super::session::{kill, wait};
use haul_kept::surroundings::Surroundings;

#[derive(Clone, Debug)]
pub(super) struct KeptLogin {
    socket: PathBuf,
    keeping: Vec<OsString>,
}

impl KeptLogin {
    /// `command` is ssh with all its options and the host, `options` are those typed with `-o`.
    ///
    /// # Errors
    /// Says why the login is not kept.
    pub(super) fn of(
        command: &Command,
        options: &[OsString],
        resolved: &Resolved,
        surroundings: &Surroundings,
    ) -> Result<Self, String> {
        let typed: Vec<String> = options.iter().map(|option| setting(&option.to_string_lossy()).0).collect();
        let is_shared = resolved.value("controlpath").is_some() || resolved.is_set("controlmaster");
        let says_no = |word: &str, value: &str| {
            (word == "controlmaster" && value.eq_ignore_ascii_case("no"))
                || (word == "controlpath" && value.eq_ignore_ascii_case("none"))
        };
        if is_shared || typed.iter().any(|word| word.starts_with("control")) || resolved.any_line(says_no) {
            return Err("the configuration of ssh says how connections are shared".into());
        }
        if resolved.asked_a_command || (resolved.is_indirect() && resolved.any_line(is_match_exec)) {
            return Err("a command decides about the connection (Match exec)".into());
        }
        let digest = far_identity::digest(command, resolved, surroundings).to_hex();
        let socket = directory(surroundings)?.join(&digest[..NAME_LETTERS]);
        let mut keeping = vec!["ControlMaster=auto".into()];
        if resolved.value("controlpersist").is_none_or(|value| value == "no") {
            keeping.push(format!("ControlPersist={KEPT_S}"));
        }
        if resolved.value("serveraliveinterval").is_none_or(|value| value == "0") {
            keeping.push(format!("ServerAliveInterval={ALIVE_EVERY_S}"));
            keeping.push(format!("ServerAliveCountMax={ALIVE_TRIES}"));
        }
        Ok(Self { socket, keeping: keeping.into_iter().map(OsString::from).collect() })
    }

    pub(super) fn to_log_in(&self) -> Vec<OsString> {
        [vec![self.control_path()], self.keeping.clone()].concat()
    }

    pub(super) fn to_use(&self) -> Vec<OsString> {
        let never = ["ControlMaster=no", "ProxyCommand=exec false", "BatchMode=yes"];
        [self.control_path()].into_iter().chain(never.map(OsString::from)).collect()
    }

    /// ssh reads `%` and `~` in this option, and spaces and quotes end it. [`directory`] has none of these.
    fn control_path(&self) -> OsString {
        let mut option = OsString::from("ControlPath=");
        option.push(&self.socket);
        option
    }

    pub(super) fn stands(&self) -> bool {
        match UnixStream::connect(&self.socket) {
            Ok(_) => true,
            Err(error) => {
                if error.kind() == std::io::ErrorKind::ConnectionRefused {
                    let _ = fs::remove_file(&self.socket);
                }
                false
            }
        }
    }

    pub(super) fn patience(&self) -> Duration {
        let text = fs::read_to_string(self.pace_file()).unwrap_or_default();
        let usual = text.trim().parse().map_or(USUAL_PACE, Duration::from_millis);
        (usual + MARGIN).min(MAX_PATIENCE)
    }

    pub(super) fn has_answered_after(&self, pace: Duration) {
        remove_leftovers(self.socket.parent().unwrap_or(Path::new("/")));
        let _ = fs::write(self.pace_file(), format!("{}\n", pace.as_millis()));
    }

    fn pace_file(&self) -> PathBuf {
        self.socket.with_extension("ms")
    }

    /// Closes the connection to new sessions; running ones go on.
    pub(super) fn give_up(&self, host: &str) {
        let mut command = Command::new("ssh");
        command.args(["-F", "none", "-O", "stop", "-o"]).arg(self.control_path()).args(["--", host]);
        let asked = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        if let Ok(asked) = asked {
            let asked = Mutex::new(asked);
            wait(&asked, STOP_WAIT);
            kill(&asked);
        }
        let _ = fs::remove_file(&self.socket);
    }
}

fn is_match_exec(word: &str, rest: &str) -> bool {
    word == "match" && rest.to_ascii_lowercase().contains("exec")
}

/// Finds the user's shortest suitable directory, or one among those of all users: homes of clusters have long paths.
fn directory(surroundings: &Surroundings) -> Result<PathBuf, String> {
    let mut places: Vec<&PathBuf> = [&surroundings.runtime, &surroundings.state].into_iter().flatten().collect();
    places.sort_by_key(|place| place.as_os_str().len());
    places.extend(&surroundings.temporary);
    let mut why = None;
    for place in places {
        let place = place.join("ssh");
        match why_unsuitable(&place) {
            None => return Ok(place),
            Some(reason) => _ = why.get_or_insert(reason),
        }
    }
    Err(why.unwrap_or_else(|| "there is no directory for its socket (HOME, XDG_RUNTIME_DIR)".to_owned()))
}

fn why_unsuitable(place: &Path) -> Option<String> {
    let shown = place.display();
    if place.as_os_str().len() + LONGER_BYTES > SOCKET_PATH_MAX_BYTES {
        return Some(format!("the path of its socket in {shown} would be too long"));
    }
    if !is_plain(place) {
        return Some(format!("ssh gives a letter in {shown} a meaning"));
    }
    let is_private = OwnDirectory::make(place).and_then(|made| made.is_private()).unwrap_or(false);
    (!is_private).then(|| format!("{shown} is not ours alone"))
}

fn is_plain(path: &Path) -> bool {
    let is_plain = |letter: u8| letter.is_ascii_graphic() && !b"\"'\\%$~#".contains(&letter) || letter >= 0x80;
    path.as_os_str().as_bytes().iter().copied().all(is_plain)
}

/// Removes old files, also of earlier versions. A failure does no harm.
fn remove_leftovers(directory: &Path) {
    let old = SystemTime::now().checked_sub(LEFTOVER_AGE);
    for entry in fs::read_dir(directory).into_iter().flatten().flatten().take(LEFTOVERS_LOOKED_AT) {
        let is_file_of_ours =
            entry.path().extension().is_some_and(|extension| extension == "ms" || extension == "conf");
        let modified = entry.metadata().and_then(|found| found.modified()).ok();
        if is_file_of_ours && modified.zip(old).is_some_and(|(modified, old)| modified < old) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Ansible keeps a login as long.
const KEPT_S: u32 = 60;
/// A connection without network ends after `ALIVE_EVERY_S` times `ALIVE_TRIES` seconds.
const ALIVE_EVERY_S: u32 = 5;
const ALIVE_TRIES: u32 = 2;

/// A shell of a near host starts within 50 ms. The far side's known time counts instead.
const USUAL_PACE: Duration = Duration::from_millis(300);
/// A dead connection then costs less than a second more than a login. A shell that got this much slower gets a new login.
const MARGIN: Duration = Duration::from_millis(600);
const MAX_PATIENCE: Duration = Duration::from_secs(5);

/// `ssh -O stop` takes 15 ms.
const STOP_WAIT: Duration = Duration::from_millis(300);

/// A login lasts for a minute.
const LEFTOVER_AGE: Duration = Duration::from_secs(24 * 3600);
/// A user reaches few hosts a day.
const LEFTOVERS_LOOKED_AT: usize = 1_000;

/// 96 bits tell the user's own choices apart.
const NAME_LETTERS: usize = 24;
/// A slash, the name, and up to 17 bytes that ssh adds while it makes the socket.
const LONGER_BYTES: usize = 1 + NAME_LETTERS + 17;
/// `sun_path` without its final zero (unix(7)).
const SOCKET_PATH_MAX_BYTES: usize = 107;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn surroundings(runtime: &Path) -> Surroundings {
        Surroundings { runtime: Some(runtime.to_owned()), ..Surroundings::default() }
    }

    fn of(runtime: &Path, options: &[&str], resolved: &Resolved) -> Result<KeptLogin, String> {
        let options: Vec<OsString> = options.iter().map(OsString::from).collect();
        KeptLogin::of(&Command::new("ssh"), &options, resolved, &surroundings(runtime))
    }

    #[test]
    fn what_the_user_says_of_shared_connections_holds_and_a_command_may_say_another_thing_next_time() {
        let dir = tempfile::tempdir().unwrap();
        let of = |options: &[&str], resolved: &Resolved| of(dir.path(), options, resolved);
        let plain = Resolved::default();
        assert!(of(&["Port=2"], &plain).is_ok());
        let resolved = |settings: &str, text: &str| Resolved {
            settings: settings.into(),
            files: vec![("config".into(), text.into())],
            asked_a_command: false,
        };
        for option in ["ControlPath=none", "controlmaster no", "ControlPersist=5"] {
            assert!(of(&[option], &plain).is_err(), "{option}");
        }
        for settings in ["controlpath /x/y\n", "controlmaster true\n"] {
            assert!(of(&[], &resolved(settings, "")).is_err(), "{settings}");
        }
        assert!(of(&[], &resolved("controlmaster false\n", "Host x\n  ControlMaster = No\n")).is_err());
        assert!(of(&[], &resolved("", "Host x\n ControlMaster auto\n")).is_ok(), "for another host");
        assert!(of(&[], &Resolved { asked_a_command: true, ..plain }).is_err());
        let exec = "Match host gate exec \"at-home\"\n";
        assert!(of(&[], &resolved("proxyjump gate\n", exec)).is_err(), "the jump host may be another one");
        assert!(of(&[], &resolved("", exec)).is_ok(), "it was not asked");
        let own = of(&[], &resolved("controlpersist 600\nserveraliveinterval 30\n", "")).unwrap();
        assert_eq!(own.keeping, ["ControlMaster=auto"]);
    }

    #[test]
    fn the_shortest_private_directory_is_taken_and_what_does_not_suit_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let (short, long) = (dir.path().join("r"), dir.path().join("x".repeat(100)));
        let both = Surroundings { state: Some(long.clone()), ..surroundings(&short) };
        assert_eq!(directory(&both), Ok(short.join("ssh")));
        assert!(directory(&surroundings(&long)).unwrap_err().contains("too long"));
        assert!(directory(&surroundings(&dir.path().join("a b"))).unwrap_err().contains("meaning"));
        assert!(directory(&Surroundings::default()).is_err());
        let home = dir.path().join("h".repeat(40 - dir.path().as_os_str().len().min(39)));
        assert!(directory(&surroundings(&home.join(".local/state/haul"))).is_ok());
        fs::set_permissions(short.join("ssh"), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(directory(&surroundings(&short)).unwrap_err().contains("not ours alone"));
    }

    #[test]
    fn a_home_with_a_long_path_has_its_sockets_among_the_temporary_files() {
        let dir = tempfile::tempdir().unwrap();
        let (long, tmp) = (dir.path().join("x".repeat(60)), dir.path().join("haul-1"));
        let of = |state: &Path| Surroundings {
            state: Some(state.to_owned()),
            temporary: Some(tmp.clone()),
            ..Surroundings::default()
        };
        assert_eq!(directory(&of(&long)), Ok(tmp.join("ssh")));
        assert_eq!(directory(&of(&dir.path().join("s"))), Ok(dir.path().join("s/ssh")), "the user's own comes first");
        fs::set_permissions(tmp.join("ssh"), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(directory(&of(&long)).unwrap_err().contains("too long"), "somebody else may have made it");
    }

    #[test]
    fn a_socket_without_a_listener_is_no_login() {
        let dir = tempfile::tempdir().unwrap();
        let kept = of(dir.path(), &[], &Resolved::default()).unwrap();
        assert!(!kept.stands());
        let listener = UnixListener::bind(&kept.socket).unwrap();
        assert!(kept.stands());
        drop(listener);
        assert!(!kept.stands() && !kept.socket.exists());
    }

    #[test]
    fn a_slow_shell_is_known_the_next_time() {
        let dir = tempfile::tempdir().unwrap();
        let kept = of(dir.path(), &[], &Resolved::default()).unwrap();
        assert!(kept.patience() < Duration::from_secs(1));
        kept.has_answered_after(Duration::from_millis(1900));
        assert_eq!(kept.patience(), Duration::from_millis(1900) + MARGIN);
        kept.has_answered_after(Duration::from_secs(3600));
        assert_eq!(kept.patience(), MAX_PATIENCE);
    }
}
