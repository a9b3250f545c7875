//! Runs the start script by each shell that this host has, on caches that may and may not be trusted.

use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use haul_sys::condition::unmet;

use super::super::packed::packed;
use super::*;

const SOMEBODY: u32 = 54_321;

const NO_GZIP: &str = "command() { false; };";

const PROGRAM: &str = "/bin/readlink";

struct Host {
    dir: tempfile::TempDir,
    program: Program,
    others: String,
}

struct Program {
    bytes: Vec<u8>,
    sha256: String,
}

impl Program {
    fn of(bytes: Vec<u8>) -> Self {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &bytes);
        Self { bytes, sha256: digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect() }
    }
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

    fn ran_from(&self) -> &Path {
        Path::new(self.has("ran from ").unwrap_or_else(|| panic!("it did not run: {:?}", self.lines)))
    }
}

impl Host {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let script = format!(
            "#!/bin/sh\ncase $2 in --protocol) echo haul-protocol {PROTOCOL_VERSION};;\n\
             *) printf \"ran from %s\\n\" \"$({PROGRAM} /proc/self/fd/3)\";; esac\n"
        );
        for name in ["home", "tmp"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        Self { dir, program: Program::of(script.into_bytes()), others: String::new() }
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

    /// Where `others` names the program for this machine, ours gets a hash that no file has.
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

    fn logs_in(&self, shell: &[&str], cache: &Path, sabotage: &str) -> Said {
        let script = start_script("--lanes 1", &self.first_line());
        let script = script.strip_prefix("exec sh -c '").and_then(|script| script.strip_suffix('\'')).unwrap();
        let mut command = Command::new(shell[0]);
        command.args(&shell[1..]).arg("-c").arg(format!("{sabotage} {script}"));
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", self.dir.path().join("home"));
        command.env("XDG_CACHE_HOME", cache).env("TMPDIR", self.dir.path().join("tmp"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let words = match sabotage {
            NO_GZIP => self.program.bytes.clone(),
            _ => packed(&self.program.bytes).unwrap(),
        };
        let _ = input.write_all(&words);
        drop(input);
        let output = child.wait_with_output().unwrap();
        let lines: Vec<_> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
        let left = names_in(&self.dir.path().join("tmp"));
        assert!(left.iter().all(|name| *name == fallback()), "{left:?} of {lines:?}");
        for cache in [cache.join("haul"), self.fallback()] {
            let is_rest = |name: &String| !name.starts_with("haul-");
            assert!(!names_in(&cache).iter().any(is_rest), "{cache:?} of {lines:?}");
        }
        Said { lines }
    }

    fn fallback(&self) -> PathBuf {
        self.dir.path().join("tmp").join(fallback())
    }

    #[track_caller]
    fn is_refused(&self, shell: &[&str], cache: &Path, why: &str) {
        self.is_kept_elsewhere(shell, cache, "", why);
    }

    #[track_caller]
    fn is_kept_elsewhere(&self, shell: &[&str], cache: &Path, sabotage: &str, why: &str) {
        let said = self.logs_in(shell, cache, sabotage);
        let is_said = said.has(NOTE).is_some_and(|note| note.starts_with(" kept in ") && note.contains(why));
        assert!(is_said, "{shell:?}, {why}: {said:?}");
        assert_eq!(said.ran_from().parent(), Some(self.fallback().as_path()), "{shell:?}, {why}: {said:?}");
        assert!(said.asked_for_the_program(), "what may lie there is not run: {said:?}");
        let next = self.logs_in(shell, cache, sabotage);
        assert!(!next.asked_for_the_program() && next.has(NOTE).is_none(), "{shell:?}, {why}: {next:?}");
        assert_eq!(next.ran_from().parent(), Some(self.fallback().as_path()), "{shell:?}, {why}: {next:?}");
        std::fs::remove_dir_all(self.fallback()).unwrap();
    }

    #[track_caller]
    fn is_trusted(&self, shell: &[&str], cache: &Path) {
        let first = self.logs_in(shell, cache, "");
        assert!(first.asked_for_the_program() && first.has(NOTE).is_none(), "{shell:?}: {first:?}");
        let second = self.logs_in(shell, cache, "");
        assert!(!second.asked_for_the_program(), "{shell:?}: {second:?}");
        assert_eq!(second.ran_from(), self.kept_in(cache), "{shell:?}");
        std::fs::remove_file(self.kept_in(cache)).unwrap();
        let third = self.logs_in(shell, cache, "");
        assert!(third.asked_for_the_program() && third.has(NOTE).is_none(), "{shell:?}: {third:?}");
    }
}

fn fallback() -> String {
    format!("haul-{}", haul_sys::process::effective_user())
}

fn names_in(directory: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn shells() -> Vec<Vec<&'static str>> {
    let all = ["sh", "dash", "bash --posix", "busybox sh", "mksh", "ksh93", "yash", "zsh --emulate sh"];
    let is_here = |shell: &Vec<&str>| ["/bin", "/usr/bin"].iter().any(|dir| Path::new(dir).join(shell[0]).exists());
    all.iter().map(|shell| shell.split(' ').collect()).filter(is_here).collect()
}

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
fn a_cache_that_takes_no_program_is_none() {
    if !haul_sys::process::is_root() {
        return unmet("only root mounts");
    }
    let host = Host::new();
    let cache = host.directory("cache", 0o755);
    for shell in shells() {
        let apart = [&["unshare", "--mount"], &shell[..]].concat();
        let mounted = |how: &str| format!("mount -t tmpfs -o {how} cache \"$XDG_CACHE_HOME\";");
        host.is_kept_elsewhere(&apart, &cache, &mounted("mode=755,noexec"), "programs cannot be run from");
        host.is_kept_elsewhere(&apart, &cache, &mounted("mode=755,ro"), "is no directory that can be used");
        let full = mounted("mode=755,size=4k") + "head -c 4096 /dev/zero >\"$XDG_CACHE_HOME/full\";";
        host.is_kept_elsewhere(&apart, &cache, &full, "has no room for our program");
    }
}

/// Somebody else made the directory of our fallback. A link to one of ours is none either: it could be turned.
#[test]
fn what_somebody_else_put_in_the_place_of_our_fallback_is_not_used() {
    if !haul_sys::process::is_root() {
        return unmet("only root gives directories to others");
    }
    for shell in shells() {
        let host = Host::new();
        let open = host.directory("open", 0o777);
        std::fs::create_dir(host.fallback()).unwrap();
        chown(host.fallback(), Some(SOMEBODY), None).unwrap();
        let sabotage = "mktemp() { case $* in *haul-*) false;; *) command mktemp \"$@\";; esac; };";
        for _ in 0..2 {
            let said = host.logs_in(&shell, &open, sabotage);
            assert!(said.has(NOTE).is_some_and(|note| note.starts_with(" for this session only: others can write")));
            assert!(said.asked_for_the_program() && said.ran_from().starts_with(host.dir.path().join("tmp")));
        }
        assert!(names_in(&host.fallback()).is_empty());
    }
}

#[test]
fn the_two_newest_programs_stay_and_those_of_the_last_thirty_days() {
    let host = Host::new();
    for shell in shells() {
        let cache = host.directory("cache", 0o755);
        let kept = host.directory("cache/haul", 0o755);
        let days_ago = |days: u64| std::time::SystemTime::now() - std::time::Duration::from_secs(days * 24 * 3600);
        let put = |name: &str, days| {
            let file = std::fs::File::create(kept.join(name)).unwrap();
            file.set_modified(days_ago(days)).unwrap();
        };
        let names =
            [("a", 40), ("b", 50), ("c", 20)].map(|(letter, days)| (format!("haul-{}", letter.repeat(64)), days));
        names.iter().for_each(|(name, days)| put(name, *days));
        put("haul-notes of mine", 400);
        put(".new.abcdef", 3);
        let said = host.logs_in(&shell, &cache, "");
        let mut left = names_in(&kept);
        left.sort();
        let ours = host.kept_in(&cache).file_name().unwrap().to_str().unwrap().to_owned();
        let mut expected = vec![ours, names[2].0.clone(), "haul-notes of mine".into()];
        expected.sort();
        assert_eq!(left, expected, "{shell:?}: {said:?}");
        let program = host.kept_in(&cache);
        std::fs::File::open(&program).unwrap().set_modified(days_ago(60)).unwrap();
        assert!(!host.logs_in(&shell, &cache, "").asked_for_the_program());
        assert!(std::fs::metadata(&program).unwrap().modified().unwrap() > days_ago(1));
        std::fs::remove_dir_all(&cache).unwrap();
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
fn our_program_comes_packed_where_gzip_is_and_else_as_it_is() {
    for shell in shells() {
        let host = Host::new();
        let cache = host.directory("cache", 0o755);
        for (sabotage, is_packed) in [("", true), (NO_GZIP, false)] {
            let said = host.logs_in(&shell, &cache, sabotage);
            let asked = said.has(NEED).unwrap_or_else(|| panic!("{shell:?}: {said:?}"));
            assert_eq!(asked.ends_with(" gzip"), is_packed, "{shell:?}: {said:?}");
            assert_eq!(said.ran_from(), host.kept_in(&cache), "{shell:?}");
            std::fs::remove_file(host.kept_in(&cache)).unwrap();
        }
    }
}

/// A home router or a container has no other tools. Its head reads more of a pipe than it gives.
#[test]
fn the_tools_of_busybox_take_a_long_program_whole() {
    if !Path::new("/usr/bin/busybox").exists() && !Path::new("/bin/busybox").exists() {
        return unmet("busybox is not installed");
    }
    let mut host = Host::new();
    let mut noise = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, b"").as_ref().to_vec();
    let mut bytes = [&host.program.bytes[..], b"exit 0\n"].concat();
    while bytes.len() < 5 << 20 {
        noise = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &noise).as_ref().to_vec();
        bytes.extend(&noise);
    }
    host.program = Program::of(bytes);
    let tools = host.directory("tools", 0o755);
    let installed = Command::new("busybox").args(["--install", "-s"]).arg(&tools).status().unwrap();
    assert!(installed.success());
    let cache = host.directory("cache", 0o755);
    let said = host.logs_in(&["busybox", "sh"], &cache, &format!("PATH={};", tools.display()));
    assert!(said.has(NEED).is_some_and(|asked| asked.ends_with(" gzip")), "{said:?}");
    assert_eq!(said.ran_from(), host.kept_in(&cache), "{said:?}");
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
