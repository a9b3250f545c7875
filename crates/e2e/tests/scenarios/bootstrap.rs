//! The start over ssh: how our program reaches the far side, and what can go wrong.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use haul_e2e::compare::{names_below, path_of};
use haul_e2e::outcome::json_lines;
use haul_e2e::{Facets, Lab, Outcome, Run, assert_same, at, code, needs, plant};

struct Start {
    lab: Lab,
    file: PathBuf,
    target: PathBuf,
}

impl Start {
    fn new() -> Self {
        let lab = Lab::pair();
        let (file, target) = (lab.data("home").join("file"), lab.data("alpha").join("file"));
        plant::file(&file, 100_000, 1);
        Self { lab, file, target }
    }

    fn run(&self) -> Outcome {
        let _ = fs::remove_file(&self.target);
        self.lab.cp().arg(&self.file).arg(at("alpha", &self.target)).run()
    }

    #[track_caller]
    fn works(&self) -> Outcome {
        let run = self.run().expect(code::OK);
        assert_same(&self.file, &self.target, Facets::PLAIN);
        run
    }

    fn cached(&self) -> Vec<PathBuf> {
        let cache = self.lab.alpha().cache();
        let files = names_below(&cache).into_iter();
        let paths = files.map(|name| cache.join(path_of(&name)));
        paths.filter(|path| fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() > 1 << 20)).collect()
    }
}

#[test]
fn the_program_is_put_there_once_and_under_its_hash() {
    needs!(Namespaces, Haul);
    let start = Start::new();
    let first = start.works();
    assert_eq!(first.events_named("installing").len(), 1, "{first}");
    let cached = start.cached();
    assert_eq!(cached.len(), 1, "{cached:?}");
    let program = fs::read(haul_e2e::binary::find().expect("asked for")).expect("readable");
    assert_eq!(fs::read(&cached[0]).expect("readable"), program);
    let summed = Run::new("sha256sum").arg(&cached[0]).run().expect(0).stdout_text();
    let hash = summed.split_whitespace().next().expect("sha256sum prints the hash first");
    let name = cached[0].to_string_lossy();
    assert!(name.contains(hash), "{name} does not carry the hash {hash}");

    let second = start.works();
    assert_eq!(second.events_named("installing").len(), 0, "{second}");
    assert_eq!(start.cached(), cached);
}

/// The agent before may still run, and a running program cannot be written to: the file is made anew.
fn put(path: &Path, bytes: &[u8]) {
    let permissions = fs::metadata(path).expect("it is there").permissions();
    fs::remove_file(path).expect("own directory");
    fs::write(path, bytes).expect("space");
    fs::set_permissions(path, permissions).expect("own file");
}

#[test]
fn a_damaged_copy_of_the_program_is_replaced() {
    needs!(Namespaces, Haul);
    let damages: [fn(&Path); 3] = [
        |path| {
            let mut bytes = fs::read(path).expect("readable");
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            put(path, &bytes);
        },
        |path| put(path, b""),
        |path| plant::set_mode(path, 0o644),
    ];
    for damage in damages {
        let start = Start::new();
        start.works();
        damage(&start.cached()[0]);
        start.works();
        let program = fs::read(haul_e2e::binary::find().expect("asked for")).expect("readable");
        let cached = start.cached();
        assert_eq!(cached.len(), 1, "{cached:?}");
        assert!(fs::read(&cached[0]).expect("readable") == program, "the damaged program was not replaced");
    }
}

#[test]
fn two_first_starts_at_once_do_not_disturb_each_other() {
    needs!(Namespaces, Haul);
    let start = Start::new();
    let copies: Vec<_> = (0..4)
        .map(|number| {
            let target = at("alpha", start.lab.data("alpha").join(number.to_string()));
            start.lab.cp().arg(&start.file).arg(target).start()
        })
        .collect();
    for (number, copy) in copies.into_iter().enumerate() {
        copy.wait().expect(code::OK);
        assert_same(&start.file, &start.lab.data("alpha").join(number.to_string()), Facets::PLAIN);
    }
    assert_eq!(start.cached().len(), 1);
}

#[test]
fn a_login_shell_may_print_what_it_likes() {
    needs!(Namespaces, Haul);
    let start = Start::new();
    let script = start.lab.alpha().dir.join("login");
    plant::text(
        &script,
        "#!/bin/sh\necho 'Welcome to alpha!'\nprintf 'no newline at the end\\033[0m'\necho 'and on stderr' >&2\n\
         exec sh -c \"$SSH_ORIGINAL_COMMAND\"\n",
    );
    plant::set_mode(&script, 0o755);
    start.lab.alpha().restart_sshd(&format!("ForceCommand {}", script.display()));
    start.works();
    start.works();
}

#[test]
fn other_login_shells_do() {
    needs!(Namespaces, Haul);
    for shell in ["bash", "dash", "csh", "tcsh", "fish", "zsh", "ksh", "busybox sh"] {
        if haul_e2e::needs::tool(shell.split(' ').next().unwrap_or(shell)).is_none() {
            eprintln!("skipped, because it is not installed: {shell}");
            continue;
        }
        let start = Start::new();
        start.lab.alpha().restart_sshd(&format!("ForceCommand exec {shell} -c \"$SSH_ORIGINAL_COMMAND\""));
        start.works();
        start.works();
    }
}

#[test]
fn a_named_program_is_used_and_nothing_installed() {
    needs!(Namespaces, Haul);
    let start = Start::new();
    let program = start.lab.alpha().dir.join("my haul");
    fs::copy(haul_e2e::binary::find().expect("asked for"), &program).expect("space");
    let run = start.lab.cp().arg("--haul-path").arg(&program).arg(&start.file).arg(at("alpha", &start.target)).run();
    run.expect(code::OK);
    assert_same(&start.file, &start.target, Facets::PLAIN);
    assert_eq!(start.cached().len(), 0);

    let missing =
        start.lab.cp().args(["--haul-path", "/no/such/haul"]).arg(&start.file).arg(at("alpha", &start.target));
    missing.run().expect(code::INSTALL).says(&["/no/such/haul"]);
}

#[test]
fn a_cache_that_cannot_be_written_is_no_dead_end_without_a_word() {
    needs!(Namespaces, Haul);
    let start = Start::new();
    fs::remove_dir_all(start.lab.alpha().cache()).expect("own directory");
    plant::text(&start.lab.alpha().cache(), "a file where the cache should be\n");
    let run = start.run().expect_one_of(&[code::OK, code::INSTALL]);
    if run.code() == code::INSTALL {
        run.says(&["cache", "--haul-path", "hint"]);
    }
}

#[test]
fn a_cache_that_others_can_write_to_is_not_used_and_the_copy_works_all_the_same() {
    needs!(Namespaces, Haul);
    let start = Start::new();
    plant::set_mode(&start.lab.alpha().cache(), 0o777);
    let run = start.works();
    let chosen = run.events_named("chose").into_iter().find(|event| event["what"] == "program").expect("it is told");
    let reason = chosen["reason"].as_str().expect("a text");
    assert!(reason.contains("others can write to") && reason.contains("cache"), "{reason}");
    assert_eq!(start.cached().len(), 0);
    assert!(chosen["choice"].as_str().is_some_and(|choice| choice.starts_with("kept in ")), "{chosen}");
    assert_eq!(start.works().events_named("installing").len(), 0, "it is kept elsewhere");
    plant::set_mode(&start.lab.alpha().cache(), 0o755);
    assert_eq!(start.works().events_named("chose").iter().filter(|event| event["what"] == "program").count(), 0);
}

/// Over quota, on a read-only file system, or where programs do not run.
#[test]
fn a_home_that_takes_no_program_gets_it_once_elsewhere() {
    needs!(Namespaces, Haul, Root);
    for (how, why) in [
        ("size=4M", "has no room for our program"),
        ("ro", "is no directory that can be used"),
        ("noexec", "programs cannot be run from"),
    ] {
        let start = Start::new();
        let cache = start.lab.alpha().cache();
        let _mounted = Mounted::tmpfs(&cache, &format!("mode=755,{how}"));
        // A running sshd has its own mounts.
        start.lab.alpha().restart_sshd("");
        let run = start.works();
        let chosen =
            run.events_named("chose").into_iter().find(|event| event["what"] == "program").expect("it is told");
        assert!(chosen["reason"].as_str().is_some_and(|reason| reason.contains(why)), "{how}: {chosen}");
        let again = start.works();
        assert_eq!(again.events_named("installing").len(), 0, "{how}: {again}");
    }
}

struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    fn tmpfs(on: &'a Path, options: &str) -> Self {
        Run::new("mount").args(["-t", "tmpfs", "-o", options, "haul-e2e"]).arg(on).run().expect(0);
        Self(on)
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        Run::new("umount").arg("-l").arg(self.0).run();
    }
}

#[test]
fn a_host_without_linux_is_told_from_one_without_haul() {
    needs!(Namespaces, Haul);
    let start = Start::new();
    let words = "HAUL-NEED Darwin arm64";
    start.lab.alpha().restart_sshd(&format!("ForceCommand echo {words}; cat >/dev/null"));
    start.run().expect(code::INSTALL).says(&[
        "haul runs on Linux only",
        "runs Darwin",
        "a Linux host that mounts the same disk",
    ]);
}

#[test]
fn an_unknown_host_name_has_its_own_text() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let file = lab.data("home").join("file");
    plant::text(&file, "words\n");
    let run = lab.cp().arg(&file).arg("no-such-host.invalid:file").run();
    run.expect_one_of(&[code::NETWORK]).says(&["no-such-host.invalid"]);
}

#[test]
fn a_refused_port_has_its_own_text() {
    needs!(Namespaces, Haul);
    let start = Start::new();
    start.lab.alpha().stop_sshd();
    start.run().expect(code::NETWORK).says(&["refused"]);
}

#[test]
fn a_silent_host_has_its_own_text() {
    needs!(Namespaces, Haul);
    let start = Start::new();
    start.lab.alpha().unplug();
    let run = start.lab.cp().args(["-o", "ConnectTimeout=2"]).arg(&start.file).arg(at("alpha", &start.target)).run();
    // ssh gives up after two seconds, or earlier if the kernel finds no host.
    let run =
        run.expect(code::NETWORK).says_one_of(&["timed out", "no route"]).says(&["does a firewall let ssh through?"]);
    assert!(run.elapsed < std::time::Duration::from_secs(20), "{run}");
}

#[test]
fn a_refused_login_has_its_own_text() {
    needs!(Namespaces, Haul);
    let start = Start::new();
    fs::write(start.lab.alpha().dir.join("authorized_keys"), "").expect("own file");
    start.run().expect(code::AUTHENTICATION).says(&["permission denied", "login"]);
}

#[test]
fn a_changed_host_key_is_refused() {
    needs!(Namespaces, Haul);
    let start = Start::new();
    let key = start.lab.alpha().dir.join("host_key");
    fs::remove_file(&key).expect("it is there");
    fs::remove_file(key.with_extension("pub")).expect("it is there");
    haul_e2e::lab::keygen(&key);
    start.lab.alpha().restart_sshd("");
    start.run().expect(code::AUTHENTICATION).says_one_of(&["host key", "host identification"]);
    assert!(!start.target.exists());
}

#[test]
fn an_unknown_host_key_is_refused_when_nobody_can_be_asked() {
    needs!(Namespaces, Haul);
    let start = Start::new();
    fs::write(start.lab.known_hosts(), "").expect("own file");
    start.run().expect(code::AUTHENTICATION).says(&["host key"]);
}

#[test]
fn a_missing_ssh_program_is_named() {
    needs!(Namespaces, Haul);
    let start = Start::new();
    let run = start.lab.cp().args(["-S", "/no/such/ssh"]).arg(&start.file).arg(at("alpha", &start.target)).run();
    run.expect(code::SSH).says(&["/no/such/ssh"]);
}

#[test]
fn a_far_side_that_only_allows_sftp_is_served_by_sftp_or_explained() {
    needs!(Namespaces, Haul);
    let start = Start::new();
    start.lab.alpha().restart_sshd("ForceCommand internal-sftp");
    let copy = || start.lab.cp().args(["--timeout", "5"]).arg(&start.file).arg(at("alpha", &start.target));
    copy().run().expect(code::OK).says(&["lets this account use sftp only: this copy goes over sftp"]);
    assert_same(&start.file, &start.target, Facets { modes: true, ..Facets::CONTENTS });
    let run = copy().arg("-X").run().expect(code::SSH);
    run.says(&["lets this account use sftp only", "extended attributes", "ask the operator for a shell"]);
    start.lab.alpha().restart_sshd("ForceCommand echo This account is not available; exit 1");
    start.run().expect_one_of(&[code::INSTALL, code::PROTOCOL, code::SSH]).says(&["not available"]);
}

#[test]
fn no_secret_stands_on_a_command_line_in_an_environment_or_in_what_is_told() {
    needs!(Namespaces, Haul);
    let start = Start::new();
    plant::file(&start.file, 40 << 20, 1);
    let copy = start.lab.cp().args(["-v", "--rate", "20MB"]).arg(&start.file).arg(at("alpha", &start.target));
    let mut running = copy.start();
    let mut seen = Seen::default();
    let hosts = [start.lab.home(), start.lab.alpha()];
    // Watching ssh, sshd, shells and haul from the start includes login and program start.
    running.when("some of it has moved", |running| {
        hosts.iter().for_each(|host| seen.look_at(host));
        let moved = |event: &serde_json::Value| event["bytes_moved"].as_u64().is_some_and(|bytes| bytes >= 1 << 20);
        json_lines(&running.stdout_so_far()).iter().any(moved)
    });
    for pids in hosts.map(haul_e2e::Host::haul_processes) {
        assert!(pids.iter().any(|pid| seen.processes.contains(pid)), "{pids:?} of {:?}", seen.processes);
    }
    let ssh = start.lab.home().processes_named("ssh");
    assert!(ssh.iter().any(|pid| seen.processes.contains(pid)), "{ssh:?} of {:?}", seen.processes);
    let ended = running.wait().expect(code::OK);
    // Events and the kept report must lack secrets, too.
    let kept = start.lab.haul().args(["why", "--json"]).run().expect(code::OK);
    assert!(!ended.stdout_text().is_empty() && !kept.stdout_text().is_empty());
    for told in [ended.stdout_text(), ended.stderr_text(), kept.stdout_text()] {
        seen.words.extend(told.split_whitespace().map(str::to_owned));
    }

    let program = haul_e2e::binary::find().expect("asked for");
    let hash = Run::new("sha256sum").arg(&program).run().expect(0).stdout_text();
    let hash = hash.split_whitespace().next().expect("sha256sum prints the hash first").to_owned();
    // Hashes of program and data, and the test's paths, are public.
    let copied = ended.report()["root_blake3"].as_str().expect("what was copied has a hash").to_owned();
    let file = ended.report()["only_blake3"].as_str().expect("so has its one file").to_owned();
    let lab = start.lab.home().dir.parent().expect("it has one").to_string_lossy().into_owned();
    let known = [hash, copied, file, program.to_string_lossy().into_owned(), lab];
    for word in seen.words {
        let rest = known.iter().fold(word.clone(), |rest, known| rest.replace(known, " "));
        let hex = longest_run(&rest, |c| c.is_ascii_hexdigit());
        let base64 = longest_run(&rest, |c| c.is_ascii_alphanumeric() || "+/=".contains(c));
        assert!(hex < SECRET_HEX && base64 < SECRET_BASE64, "it could be a secret: {word}");
    }
}

/// 16 bytes.
const SECRET_HEX: usize = 32;
/// At least 30 bytes: a shorter string could be a path.
const SECRET_BASE64: usize = 40;

fn longest_run(text: &str, belongs: impl Fn(char) -> bool) -> usize {
    text.split(|c| !belongs(c)).map(str::len).max().unwrap_or(0)
}

#[test]
fn what_could_be_a_secret_is_found() {
    let hex = |text: &str| longest_run(text, |c| c.is_ascii_hexdigit());
    assert_eq!(hex("--token=00112233445566778899aabbccddeeff,x"), SECRET_HEX);
    assert_eq!(hex(""), 0);
}

/// Words of command lines and environments, without the test's own.
#[derive(Default)]
struct Seen {
    processes: BTreeSet<u32>,
    words: BTreeSet<String>,
}

impl Seen {
    fn look_at(&mut self, host: &haul_e2e::Host) {
        let own: BTreeSet<_> =
            fs::read("/proc/self/environ").unwrap_or_default().split(|&byte| byte == 0).map(<[u8]>::to_vec).collect();
        for pid in host.processes() {
            for part in ["cmdline", "environ"] {
                let bytes = fs::read(format!("/proc/{pid}/{part}")).unwrap_or_default();
                let words = bytes.split(|&byte| byte == 0).filter(|word| !word.is_empty() && !own.contains(*word));
                self.words.extend(words.map(|word| String::from_utf8_lossy(word).into_owned()));
                if part == "cmdline" && !bytes.is_empty() {
                    self.processes.insert(pid);
                }
            }
        }
    }
}
