//! Completion of remote paths in bash, zsh and fish, over ssh and at a daemon, beside scp's own.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use haul_e2e::compare::path_of;
use haul_e2e::{code, needs, plant};

use crate::daemon::Daemon;

const NEIGHBOUR: &str = "/usr/share/bash-completion/completions/scp";

const NAMES: [(&str, &str); 11] = [
    ("a", "a b"),
    ("it", "it's"),
    ("q", "q\"uo"),
    ("c", "c:d"),
    ("dol", "dollar$(touch ran)`touch ran`"),
    ("back", "back\\slash"),
    ("s", "semi;touch ran"),
    ("bang", "bang!y"),
    ("gr", "größe"),
    ("p", "plain/"),
    ("li", "link/"),
];

struct Terminal {
    daemon: Daemon,
    shell: &'static str,
}

impl Terminal {
    /// A shell on `home` that asks haul; a sent command only notes its arguments.
    fn of(shell: &str) -> Self {
        let daemon = Daemon::start("rw");
        let home = daemon.lab.data("home");
        let script = daemon.lab.haul().args(["completions", shell]).run().expect(code::OK).stdout_text();
        fs::create_dir(home.join("bin")).expect("own directory");
        symlink(haul_e2e::binary::find().expect("needs!(Haul)"), home.join("bin/haul")).expect("own directory");
        // scp's completion calls ssh without the line's flags, and lets it read keys typed ahead.
        let wrapper = format!(
            "#!/bin/sh\n[ ! -t 0 ] || exec </dev/null\nexec /usr/bin/ssh -F {} \"$@\"\n",
            daemon.lab.ssh_config().display()
        );
        plant::text(&home.join("bin/ssh"), &wrapper);
        plant::set_mode(&home.join("bin/ssh"), 0o755);
        let notes = |name: &str| format!("{name}() {{ printf '%s\\0' \"$@\" >>runs; printf '\\n' >>runs; }}\n");
        let (shell, rc) = match shell {
            "bash" => {
                let neighbour = "[ ! -e /usr/share/bash-completion/bash_completion ] || . /usr/share/bash-completion/bash_completion\n";
                ("bash --noprofile --rcfile rc -i", neighbour.to_owned() + &notes("haul") + &notes("scp") + &script)
            }
            "zsh" => ("zsh -f -i", format!("autoload -U compinit; compinit -D -u\n{}{script}", notes("haul"))),
            _ => (
                "fish -i -C 'source rc'",
                format!("function haul; printf '%s\\0' $argv >>runs; echo >>runs; end\n{script}"),
            ),
        };
        plant::text(&home.join("rc"), &rc);
        Self { daemon, shell }
    }

    fn directory(&self) -> &Path {
        &self.daemon.offered
    }

    /// Each command's last argument after completing and sending.
    #[track_caller]
    fn completes(&self, lines: &[String]) -> Vec<String> {
        let home = self.daemon.lab.data("home");
        let first = if self.shell.starts_with("zsh") { ". ./rc\r" } else { "" };
        let keys: String = lines.iter().map(|line| format!("{line}\t\r")).collect();
        let path = format!("{}:{}", home.join("bin").display(), std::env::var("PATH").unwrap_or_default());
        let run = self.daemon.lab.home().run("script").args(["-qec", self.shell, "/dev/null"]).current_dir(&home);
        let run = run.env("PATH", path).env("TERM", "dumb").env("LC_ALL", "C.UTF-8");
        let run = run.input(format!("{first}{keys}exit\r")).run();
        let runs = fs::read_to_string(home.join("runs")).unwrap_or_default();
        let _ = fs::remove_file(home.join("runs"));
        let said: Vec<String> =
            runs.lines().map(|line| line.split_terminator('\0').next_back().unwrap_or_default().to_owned()).collect();
        assert_eq!(said.len(), lines.len(), "{said:?}\n{run}");
        assert!(!home.join("ran").exists() && !self.directory().join("ran").exists(), "a name was run\n{run}");
        said
    }

    fn plant(&self) {
        for (_, name) in NAMES.iter().filter(|(_, name)| !name.ends_with('/')) {
            plant::text(&self.directory().join(name), "words\n");
        }
        plant::text(&self.directory().join("plain/inside"), "words\n");
        symlink("plain", self.directory().join("link")).expect("own directory");
        // Not offered, though each begins like one that is.
        for odd in [&b"a\x1b]0;owned\x07"[..], b"it\nline", b"q\xff", b"plain*", "gr\u{202e}x".as_bytes()] {
            plant::text(&self.directory().join(path_of(odd)), "words\n");
        }
    }
}

fn in_each_shell(shell: &str) {
    let terminal = Terminal::of(shell);
    terminal.plant();
    let lab = &terminal.daemon.lab;
    let ssh = format!("haul cp -F {} alpha:{}/", lab.ssh_config().display(), terminal.directory().display());
    let key = lab.data("home").join("key");
    let known = lab.data("home").join("known");
    let url = terminal.daemon.url("");
    let daemon = format!("haul cp --identity {} --known-hosts {} {url}", key.display(), known.display());
    let lines: Vec<String> =
        [&ssh, &daemon].into_iter().flat_map(|end| NAMES.map(|(typed, _)| format!("{end}{typed}"))).collect();
    let expected: Vec<String> = [&ssh, &daemon]
        .into_iter()
        .flat_map(|end| {
            let place = end.rsplit(' ').next().expect("a word");
            // A daemon tells that a link is one.
            NAMES.map(|(_, name)| {
                format!("{place}{}", if *end == daemon { name.replace("link/", "link") } else { name.to_owned() })
            })
        })
        .collect();
    assert_eq!(terminal.completes(&lines), expected);

    // The kept login serves the copy: all took one.
    let logins = lab.alpha().sshd_log().matches("Accepted publickey").count();
    assert_eq!(logins, 1, "{}", lab.alpha().sshd_log());

    // A host that is gone: nothing is said or put in.
    lab.alpha().unplug();
    let gone = [format!("haul cp --no-keep-login -F {} alpha:/x", lab.ssh_config().display()), format!("{daemon}x")];
    let places: Vec<&str> = gone.iter().map(|line| line.rsplit(' ').next().expect("a word")).collect();
    assert_eq!(terminal.completes(&gone), places);
    lab.alpha().plug();
}

#[test]
fn bash_completes_remote_paths_over_ssh_and_at_a_daemon() {
    needs!(Namespaces, Haul);
    in_each_shell("bash");
}

#[test]
fn zsh_completes_remote_paths_over_ssh_and_at_a_daemon() {
    needs!(Namespaces, Haul, Tool("zsh"));
    in_each_shell("zsh");
}

#[test]
fn fish_completes_remote_paths_over_ssh_and_at_a_daemon() {
    needs!(Namespaces, Haul, Tool("fish"));
    in_each_shell("fish");
}

#[test]
fn what_scp_completes_haul_completes_as_well() {
    needs!(Namespaces, Haul, File(NEIGHBOUR));
    let terminal = Terminal::of("bash");
    terminal.plant();
    let there = format!("alpha:{}/", terminal.directory().display());
    let config = terminal.daemon.lab.ssh_config();
    let typed = |program: &str| NAMES.map(|(typed, _)| format!("{program} -F {} {there}{typed}", config.display()));
    let ours = terminal.completes(&typed("haul cp"));
    assert_eq!(ours, NAMES.map(|(_, name)| format!("{there}{name}")));
    let theirs = terminal.completes(&typed("scp"));
    for ((_, name), theirs) in NAMES.iter().zip(theirs) {
        // scp's completion also quotes a name for the other end's shell.
        let mut letters = theirs.chars();
        let mut meant = String::new();
        while let Some(letter) = letters.next() {
            meant.push(if letter == '\\' { letters.next().unwrap_or(letter) } else { letter });
        }
        let whole = format!("{there}{name}");
        // scp puts in nothing where a name that is not offered begins alike.
        let has_odd_neighbour = ["a b", "it's", "q\"uo", "größe", "plain/"].contains(name);
        assert!(meant == whole || (has_odd_neighbour && whole.starts_with(&meant)), "{name}: {theirs}");
    }
}
