//! The start script, run by each shell that this host has, on caches that may and may not be trusted.

use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use haul_sys::condition::unmet;

use super::*;

/// Any other user.
const SOMEBODY: u32 = 54_321;

/// In place of our program: it tells where it lies.
const PROGRAM: &str = "/bin/readlink";

struct Host {
    dir: tempfile::TempDir,
    program: Program,
    /// What else the first line names.
    others: String,
}

/// What is brought.
struct Program {
    bytes: Vec<u8>,
    sha256: String,
}

#[derive(Debug)]
struct Said {
    lines: Vec<String>,
}

impl Said {
    fn has(&self, mark: &str) -> Option<&str> {
        self.lines.iter().find_map(|line| line.strip_prefix(mark))
    }

    fn asked_for_the_program(&self) -> bool {
        self.has(NEED).is_some()
    }

    /// From where it ran.
    fn ran_from(&self) -> &Path {
        Path::new(self.has("ran from ").unwrap_or_else(|| panic!("it did not run: {:?}", self.lines)))
    }
}

impl Host {
    /// Its temporary directory is its own; all above that belongs to root or us.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let script = format!(
            "#!/bin/sh\ncase $2 in --protocol) echo haul-protocol {PROTOCOL_VERSION};;\n\
             *) printf \"ran from %s\\n\" \"$({PROGRAM} /proc/self/fd/3)\";; esac\n"
        );
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, script.as_bytes());
        let sha256 = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        for name in ["home", "tmp"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        Self { dir, program: Program { bytes: script.into_bytes(), sha256 }, others: String::new() }
    }

    fn directory(&self, name: &str, mode: u32) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::create_dir_all(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    fn kept_in(&self, cache: &Path) -> PathBuf {
        cache.join(format!("haul/haul-{}", self.program.sha256))
    }

    /// Where the program is for this machine alone, ours is one that nobody has.
    fn first_line(&self) -> String {
        let Program { bytes, sha256 } = &self.program;
        match self.others.as_str() {
            "" => format!("{sha256} {}\n", bytes.len()),
            machines => {
                let named = machines.split(' ').map(|machine| format!(" {machine} {sha256} {}", bytes.len()));
                format!("{} 7{}\n", "0".repeat(64), named.collect::<String>())
            }
        }
    }

    /// `sabotage` stands before the script, in the same shell.
    fn logs_in(&self, shell: &[&str], cache: &Path, sabotage: &str) -> Said {
        self.starts(shell, cache, sabotage, false)
    }

    /// `told`: the line about our programs comes with the command.
    fn starts(&self, shell: &[&str], cache: &Path, sabotage: &str, told: bool) -> Said {
        let line = self.first_line();
        let script = start_script("--lanes 1", told.then_some(&line));
        let script = script.strip_prefix("exec sh -c '").and_then(|script| script.strip_suffix('\'')).unwrap();
        let mut command = Command::new(shell[0]);
        command.args(&shell[1..]).arg("-c").arg(format!("{sabotage} {script}"));
        // An installed haul would be taken.
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", self.dir.path().join("home"));
        command.env("XDG_CACHE_HOME", cache).env("TMPDIR", self.dir.path().join("tmp"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let mut words = if told { Vec::new() } else { line.into_bytes() };
        words.extend(&self.program.bytes);
        // Who has the program reads no more than the first line.
        let _ = input.write_all(&words);
        drop(input);
        let output = child.wait_with_output().unwrap();
        let lines: Vec<_> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
        let left: Vec<_> = std::fs::read_dir(self.dir.path().join("tmp")).unwrap().collect();
        assert!(left.is_empty(), "{left:?} of {lines:?}");
        Said { lines }
    }

    /// The program runs from a place of this session's own, and is kept nowhere.
    #[track_caller]
    fn is_refused(&self, shell: &[&str], cache: &Path, why: &str) {
        let said = self.logs_in(shell, cache, "");
        assert!(said.has(NOTE).is_some_and(|note| note.contains(why)), "{shell:?}, {why}: {said:?}");
        assert!(said.ran_from().starts_with(self.dir.path().join("tmp")), "{shell:?}, {why}: {said:?}");
        assert!(said.asked_for_the_program(), "what may lie there is not run: {said:?}");
    }

    #[track_caller]
    fn is_trusted(&self, shell: &[&str], cache: &Path) {
        let first = self.logs_in(shell, cache, "");
        assert!(first.asked_for_the_program() && first.has(NOTE).is_none(), "{shell:?}: {first:?}");
        let second = self.logs_in(shell, cache, "");
        assert!(!second.asked_for_the_program(), "{shell:?}: {second:?}");
        assert_eq!(second.ran_from(), self.kept_in(cache), "{shell:?}");
        let third = self.starts(shell, cache, "", true);
        assert!(!third.asked_for_the_program() && third.ran_from() == self.kept_in(cache), "{shell:?}: {third:?}");
        std::fs::remove_file(self.kept_in(cache)).unwrap();
        let fourth = self.starts(shell, cache, "", true);
        assert!(fourth.asked_for_the_program() && fourth.has(NOTE).is_none(), "{shell:?}: {fourth:?}");
    }
}

/// Those that may be called `sh` somewhere, as far as they are here.
fn shells() -> Vec<Vec<&'static str>> {
    let all = ["sh", "dash", "bash --posix", "busybox sh", "mksh", "ksh93", "yash", "zsh --emulate sh"];
    let is_here = |shell: &Vec<&str>| ["/bin", "/usr/bin"].iter().any(|dir| Path::new(dir).join(shell[0]).exists());
    all.iter().map(|shell| shell.split(' ').collect()).filter(is_here).collect()
}

/// A world-writable `/tmp` above is one of the places that are trusted.
#[test]
fn our_program_is_kept_where_only_we_can_put_it_whatever_the_name_of_that_place() {
    for shell in shells() {
        let host = Host::new();
        host.is_trusted(&shell, &host.directory("cache", 0o755));
        host.is_trusted(&shell, &host.directory("it's \"a\" $HOME `place`; of * \\n ours", 0o700));
        host.is_trusted(&shell, &host.directory("shared", 0o1777));
        symlink(host.directory("elsewhere", 0o755), host.dir.path().join("link")).unwrap();
        let first = host.logs_in(&shell, &host.dir.path().join("link"), "");
        assert!(first.has(NOTE).is_none(), "{first:?}");
    }
}

#[test]
fn our_program_is_neither_run_nor_kept_where_others_could_put_another() {
    let is_root = haul_sys::process::is_root();
    for shell in shells() {
        let host = Host::new();
        let open = host.directory("open", 0o777);
        host.is_refused(&shell, &open, "others can write");
        host.is_refused(&shell, &host.directory("open/below", 0o700), "others can write");
        symlink(&open, host.dir.path().join("link")).unwrap();
        host.is_refused(&shell, &host.dir.path().join("link"), "others can write");
        // It was ours alone once.
        let opened = host.directory("opened", 0o700);
        host.is_trusted(&shell, &opened);
        host.directory("opened/haul", 0o777);
        host.is_refused(&shell, &opened, "others can write");
        if is_root {
            let foreign = host.directory("foreign", 0o755);
            chown(&foreign, Some(SOMEBODY), None).unwrap();
            host.is_refused(&shell, &foreign, "belongs to somebody else");
            let group = host.directory("group", 0o775);
            chown(&group, None, Some(SOMEBODY)).unwrap();
            host.is_refused(&shell, &group, "a group can write");
        }
    }
    if !is_root {
        unmet("only root gives directories to others");
    }
}

#[test]
fn a_kept_program_that_is_not_ours_alone_is_replaced() {
    let host = Host::new();
    for shell in shells() {
        let cache = host.directory("cache", 0o755);
        host.is_trusted(&shell, &cache);
        let kept = host.kept_in(&cache);
        let replaced = |said: Said| assert!(said.asked_for_the_program() && said.ran_from() == kept, "{said:?}");
        std::fs::set_permissions(&kept, std::fs::Permissions::from_mode(0o722)).unwrap();
        replaced(host.logs_in(&shell, &cache, ""));
        if haul_sys::process::is_root() {
            chown(&kept, Some(SOMEBODY), None).unwrap();
            replaced(host.logs_in(&shell, &cache, ""));
        }
        std::fs::remove_file(&kept).unwrap();
    }
}

/// What was looked at is what runs: between the two somebody has put another program under the name.
#[test]
fn a_program_that_is_replaced_between_check_and_start_is_not_run() {
    let host = Host::new();
    for shell in shells() {
        let cache = host.directory("cache", 0o755);
        host.is_trusted(&shell, &cache);
        let kept = host.kept_in(&cache);
        let other = host.dir.path().join("other");
        std::fs::write(&other, "#!/bin/sh\necho the other one ran\n").unwrap();
        std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o755)).unwrap();
        // `cut` is what ends the computation of the hash.
        let (from, to) = (other.display(), kept.display());
        let sabotage = format!("cut() {{ command cut \"$@\"; mv -f \"{from}\" \"{to}\"; }};");
        let said = host.logs_in(&shell, &cache, &sabotage);
        assert!(!other.exists(), "it was put there");
        assert!(said.has("the other one ran").is_none(), "{shell:?}: {said:?}");
        assert_eq!(said.ran_from().parent(), kept.parent(), "{shell:?}: {said:?}");
        std::fs::remove_file(&kept).unwrap();
    }
}

#[test]
fn a_program_that_does_not_arrive_whole_leaves_nothing() {
    let host = Host::new();
    let cache = host.directory("it's \"a\" place", 0o755);
    for shell in shells() {
        let said = host.logs_in(&shell, &cache, "head() { command head -c 10; };");
        assert!(said.has(FAIL).is_some_and(|why| why.contains("did not arrive whole")), "{shell:?}: {said:?}");
        assert_eq!(std::fs::read_dir(cache.join("haul")).unwrap().count(), 0, "{shell:?}");
    }
}

#[test]
fn a_host_of_another_machine_takes_and_keeps_the_program_for_it() {
    let uname = Command::new("uname").arg("-m").output().unwrap();
    let machine = String::from_utf8(uname.stdout).unwrap().trim().to_owned();
    for shell in shells() {
        let mut host = Host::new();
        host.others = format!("vax {machine}");
        let cache = host.directory("cache", 0o755);
        host.is_trusted(&shell, &cache);
        host.others = "vax pdp11".into();
        let said = host.logs_in(&shell, &host.directory("other", 0o755), "");
        assert!(
            said.asked_for_the_program() && said.has(FAIL).is_some(),
            "what is for others does not run here: {said:?}"
        );
    }
}
