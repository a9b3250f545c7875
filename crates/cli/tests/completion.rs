//! Completion at a terminal: bash asks the built program, and a script stands for ssh.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A home, also the current directory, and a host that answers with `host`.
struct Scene {
    dir: tempfile::TempDir,
}

struct Seen {
    runs: Vec<Vec<String>>,
    screen: String,
}

const SSH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stand-ins/ssh");

/// Notes its arguments; the real program only completes here.
const NOTES: &str = r#"haul() { printf '%s\0' "$@" >>runs; printf '\n' >>runs; }"#;

impl Scene {
    fn new(host: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let scene = Self { dir };
        fs::write(scene.at("host"), host).unwrap();
        fs::create_dir(scene.at("bin")).unwrap();
        std::os::unix::fs::symlink(SSH, scene.at("bin/ssh")).unwrap();
        let script = Command::new(env!("CARGO_BIN_EXE_haul")).args(["completions", "bash"]).output().unwrap().stdout;
        let own = "PS1='$ '\nbind 'set show-all-if-ambiguous on' 2>/dev/null\n";
        fs::write(scene.at("rc"), [own.as_bytes(), NOTES.as_bytes(), b"\n", &script].concat()).unwrap();
        scene
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn file(&self, name: &str, text: &str) -> &Self {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn types(&self, keys: &str) -> Seen {
        let bin = Path::new(env!("CARGO_BIN_EXE_haul")).parent().unwrap();
        let mut command = Command::new("script");
        command.args(["-qec", "bash --noprofile --rcfile rc -i", "/dev/null"]).current_dir(self.dir.path());
        let places = [self.at("bin").display().to_string(), bin.display().to_string(), std::env::var("PATH").unwrap()];
        command.env("PATH", places.join(":"));
        command.envs([("HOME", self.dir.path().as_os_str()), ("TERM", "dumb".as_ref()), ("COLUMNS", "200".as_ref())]);
        for name in ["XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "HISTFILE", "INPUTRC"] {
            command.env_remove(name);
        }
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("script is part of util-linux");
        child.stdin.take().unwrap().write_all(format!("{keys}exit\r").as_bytes()).unwrap();
        let screen = String::from_utf8_lossy(&child.wait_with_output().unwrap().stdout).into_owned();
        let runs = fs::read_to_string(self.at("runs")).unwrap_or_default();
        let _ = fs::remove_file(self.at("runs"));
        let words = |line: &str| line.split_terminator('\0').map(str::to_owned).collect();
        Seen { runs: runs.lines().map(words).collect(), screen }
    }

    /// The last argument of haul after completing and sending.
    #[track_caller]
    fn completes(&self, line: &str, expected: &str) {
        let seen = self.types(&format!("{line}\t\r"));
        assert_eq!(seen.runs.len(), 1, "{line}: {}", seen.screen);
        assert_eq!(seen.runs[0].last().map(String::as_str), Some(expected), "{line}: {}", seen.screen);
    }
}

fn host_with(names: &str) -> String {
    format!("cat >/dev/null; printf '\\0'; printf '{names}'")
}

#[test]
fn commands_flags_and_values_are_completed() {
    let scene = Scene::new("exit 255");
    scene.completes("haul cp --class=ba", "--class=background");
    scene.completes("haul cp --cipher cha", "chacha20");
    scene.completes("haul cp --trust", "--trust-journal");
    scene.completes("haul comple", "completions");
    scene.file("my file", "").file("my.d/x", "");
    scene.completes("haul cp --files-from my\\ ", "my file");
    scene.completes("haul cp --files-from=my\\ ", "--files-from=my file");
    scene.completes("haul cp --stripe-dir m", "my.d/");
    scene.completes("haul cp \"my f", "my file");
    scene.completes("haul cp ~/my.", &format!("{}/my.d/", scene.dir.path().display()));
    scene.completes("haul cp $HOME/my.", &format!("{}/my.d/", scene.dir.path().display()));
}

#[test]
fn hosts_daemons_and_named_ends_are_known() {
    let scene = Scene::new("exit 255");
    let key = format!("ed25519:{}", "ab".repeat(32));
    scene
        .file("ssh_config", "Include more\nHost dtn-a\nHost dtn-b\nUserKnownHostsFile ~/known\n")
        .file(".ssh/more", "Host included\n")
        .file("known", "seen.example,192.0.2.9 ssh-ed25519 AAAA\n")
        .file(".config/haul/known_hosts", &format!("store:7632 {key}\nstudio:9000 {key}\n"))
        .file(".config/haul/config.toml", "[ends]\ntape = \"haul://store/archive\"\n");
    for (line, expected) in [
        ("haul cp -F ssh_config inc", "included:"),
        ("haul cp -F ssh_config me@dtn-a", "me@dtn-a:"),
        ("haul cp -F ssh_config see", "seen.example:"),
        ("haul ls haul://sto", "haul://store/"),
        ("haul du haul://stu", "haul://studio:9000/"),
        ("haul cp ta", "tape:"),
        ("haul probe -F ssh_config inc", "included"),
        ("haul cp -F ssh_config -J inc", "included"),
    ] {
        scene.completes(line, expected);
    }
    let seen = scene.types("haul cp -F ssh_config d\t\r");
    assert!(seen.screen.contains("dtn-a:") && seen.screen.contains("dtn-b:"), "{}", seen.screen);
    scene.file("dtn file", "");
    let seen = scene.types("haul cp -F ssh_config dt\t\r");
    assert!(
        seen.screen.contains("dtn-a:") && seen.screen.contains("dtn\\ file"),
        "files beside hosts: {}",
        seen.screen
    );
}

#[test]
fn remote_names_are_one_word_whatever_they_are() {
    let names = r#"a b\0it'"'"'s\0c:d\0e$(touch ran)`touch ran`\0f;touch ran\0q"h\0i\\j\0k!l\0m&n>o\0größe\0d ir/\0"#;
    let scene = Scene::new(&host_with(names));
    for (typed, expected) in [
        ("a", "a b"),
        ("it", "it's"),
        ("c", "c:d"),
        ("c:", "c:d"),
        ("e", "e$(touch ran)`touch ran`"),
        ("f", "f;touch ran"),
        ("q", "q\"h"),
        ("i\\\\", "i\\j"),
        ("k", "k!l"),
        ("m", "m&n>o"),
        ("gr", "größe"),
        ("d", "d ir/"),
        ("d\\ ", "d ir/"),
    ] {
        // A word behind a directory is found, too; the host ignores the question.
        for path in ["", "~/x/", "/x\\ y/"] {
            let expected = format!("host:{}{expected}", path.replace('\\', ""));
            scene.completes(&format!("haul cp host:{path}{typed}"), &expected);
        }
    }
    for (typed, expected) in [("\"host:e", "e$(touch ran)`touch ran`"), ("'host:it", "it's"), ("host:\"q", "q\"h")] {
        scene.completes(&format!("haul cp {typed}"), &format!("host:{expected}"));
    }
    scene.completes("haul cp ssh://host/x%20y/a", "ssh://host/x%20y/a b");
    assert!(!scene.at("ran").exists(), "a name was run");
}

#[test]
fn a_hostile_host_reaches_neither_the_terminal_nor_the_shell() {
    let names =
        r"r\033]0;owned\007\0r\302\2332J\0r\nrm -rf /\0r\342\200\256gpj\0r\377\0r/etc/passwd\0r*\0../r\0other\0run\0";
    let scene = Scene::new(&format!("printf 'motd \\033[2J'; printf 'asks? ' >&2; {}", host_with(names)));
    let seen = scene.types("haul cp host:r\t\r");
    assert_eq!(seen.runs.len(), 1, "{}", seen.screen);
    assert_eq!(seen.runs[0].last().map(String::as_str), Some("host:run"), "{}", seen.screen);
    for words in ["\x1b", "\u{9b}", "\u{202e}", "owned", "gpj", "motd", "asks?", "passwd"] {
        assert!(!seen.screen.contains(words), "{words:?}: {:?}", seen.screen);
    }
}

/// An endless answer, none at all, and a host that lets nobody in.
#[test]
fn a_host_that_does_not_do_as_it_should_costs_little_and_says_nothing() {
    let endless = "cat >/dev/null; printf '\\0'; yes run | tr '\\n' '\\0'";
    let noise = "cat >/dev/null; yes";
    for host in [endless, noise, "echo secret words >&2; exit 255", "exec sleep 600"] {
        let scene = Scene::new(host);
        let seen = scene.types("haul cp host:r\t\r");
        let last = seen.runs.first().and_then(|run| run.last()).map(String::as_str);
        assert!(matches!(last, Some("host:r" | "host:run")), "{host}: {}", seen.screen);
        assert!(!seen.screen.contains("secret"), "{host}: {}", seen.screen);
    }
}

#[test]
fn nobody_is_asked_anything() {
    // A program may ask at the terminal; a jump host's ssh does.
    let asks = "if (echo >/dev/tty) 2>/dev/null; then touch asked; fi; echo \"$SSH_ASKPASS_REQUIRE $*\" >arguments";
    let scene = Scene::new(asks);
    let log_of = |line: &str| {
        scene.types(&format!("haul cp {line}\t\r"));
        fs::read_to_string(scene.at("arguments")).unwrap()
    };
    let arguments = log_of("-o BatchMode=no -P 2222 me@host:r");
    assert!(arguments.starts_with("never "), "{arguments}");
    let (ours, users) = (arguments.find("BatchMode=yes"), arguments.find("BatchMode=no"));
    assert!(ours < users && ours.is_some(), "ssh takes the first: {arguments}");
    assert!(arguments.contains("-p 2222") && arguments.contains("-l me"), "{arguments}");
    assert!(!scene.at("asked").exists());
}

#[test]
fn what_was_only_typed_is_not_run() {
    let scene = Scene::new(&format!("touch ran; {}", host_with("run\\0")));
    let at = |name: &str| scene.at(name).display().to_string();
    scene.file("plain", "Host host\n  Port 22\n").file("match", "Include plain\nMatch exec \"touch ran\"\n");
    scene.file("proxy", "Host host\n  ProxyCommand touch ran\n");
    for flags in [
        format!("-S {SSH}"),
        format!("-e {SSH}"),
        "-o ProxyCommand=./x".into(),
        "-oKnownHostsCommand=./x".into(),
        "-o PermitLocalCommand=yes -o LocalCommand=./x".into(),
        format!("-F {}", at("match")),
        format!("-F {}", at("proxy")),
    ] {
        scene.completes(&format!("haul cp {flags} host:r"), "host:r");
        scene.completes(&format!("haul ls {flags} host:r"), "host:r");
        assert!(!scene.at("ran").exists(), "{flags}");
    }
    scene.completes(&format!("haul cp -F {} -o Port=22 host:r", at("plain")), "host:run");
    assert!(scene.at("ran").exists());
    // The user's configuration is not only typed.
    fs::remove_file(scene.at("ran")).unwrap();
    scene.file(".ssh/config", "Host host\n  ProxyCommand touch ran\n");
    scene.completes(&format!("haul cp -F {} host:r", at(".ssh/config")), "host:run");
}

#[test]
fn a_program_that_is_not_there_is_a_silence() {
    let scene = Scene::new("");
    let mut rc = fs::OpenOptions::new().append(true).mode(0o600).open(scene.at("rc")).unwrap();
    fs::create_dir(scene.at("empty")).unwrap();
    fs::set_permissions(scene.at("empty"), fs::Permissions::from_mode(0o700)).unwrap();
    writeln!(rc, "PATH=$PWD/empty").unwrap();
    let seen = scene.types("haul cp host:r\t\r");
    assert!(!seen.screen.contains("not found"), "{}", seen.screen);
    assert_eq!(seen.runs.first().and_then(|run| run.last()).map(String::as_str), Some("host:r"));
}
