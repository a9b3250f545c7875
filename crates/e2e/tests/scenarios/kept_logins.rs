//! A kept login serves only its own host and account, and a dead one costs little. A far side may be silent before its first
//! word only so long.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use haul_e2e::{Facets, Host, Lab, Outcome, Run, assert_same, at, code, needs, plant};

struct Logins {
    lab: Lab,
    file: PathBuf,
    config: PathBuf,
}

impl Logins {
    fn with(lab: Lab, hosts: &str) -> Self {
        let (file, config) = (lab.data("home").join("file"), lab.data("home").join("config"));
        plant::file(&file, 100_000, 1);
        let logins = Self { lab, file, config };
        logins.configure(hosts);
        logins
    }

    fn configure(&self, hosts: &str) {
        let text = fs::read_to_string(self.lab.ssh_config()).expect("the lab made it");
        plant::text(&self.config, &format!("{hosts}\n{text}"));
    }

    fn cp(&self, flags: &[&str], host: &str) -> Run {
        let target = at(host, self.lab.data("alpha").join("copy"));
        let cp = self.lab.haul().args(["cp", "--json", "--retry", "0", "-F"]).arg(&self.config);
        cp.args(flags).arg(&self.file).arg(target)
    }

    #[track_caller]
    fn copies(&self, flags: &[&str], host: &str) -> Outcome {
        let target = self.lab.data("alpha").join("copy");
        let _ = fs::remove_file(&target);
        let run = self.cp(flags, host).run().expect(code::OK);
        assert_same(&self.file, &target, Facets::PLAIN);
        run
    }

    /// New logins at each host, when this is copied.
    #[track_caller]
    fn logs_in<const N: usize>(&self, hosts: [&str; N], flags: &[&str], to: &str) -> [usize; N] {
        let counted = || hosts.map(|host| logins_at(self.lab.host(host)));
        let before = counted();
        self.copies(flags, to);
        let after = counted();
        std::array::from_fn(|at| after[at] - before[at])
    }
}

fn logins_at(host: &Host) -> usize {
    host.sshd_log().matches("Accepted publickey").count()
}

/// Both are 127.0.0.1, port 2299, for a jump.
fn two_nodes() -> Logins {
    let lab = Lab::triangle();
    for host in ["alpha", "beta"] {
        lab.host(host).restart_sshd("Port 2299");
    }
    let known = fs::read_to_string(lab.known_hosts()).expect("the lab made it");
    // The node has both keys, so only the way decides.
    let both: String =
        known.lines().filter_map(|line| line.split_once(' ')).map(|(_, key)| format!("node {key}\n")).collect();
    plant::text(&lab.known_hosts(), &format!("{known}{both}"));
    let node = "  HostName 127.0.0.1\n  Port 2299\n  HostKeyAlias node\n";
    let jumps = |gate: &str| format!("Host by-{gate}\n{node}  ProxyJump {gate}\n");
    let config = lab.data("home").join("config");
    let commands =
        |gate: &str| format!("Host through-{gate}\n{node}  ProxyCommand ssh -F {} -W %h:%p {gate}\n", config.display());
    let variable = format!("Host variable\n{node}  ProxyCommand ssh -F {} -W %h:%p $GATE\n", config.display());
    let hosts: String = ["alpha", "beta"].into_iter().flat_map(|gate| [jumps(gate), commands(gate)]).collect();
    let swapped =
        format!("Host swapped\n  HostName {}\n  Port {}\n  HostKeyAlias beta\n", lab.alpha().v4, lab.alpha().ssh_port);
    Logins::with(lab, &format!("Host node\n{node}{hosts}{variable}{swapped}"))
}

#[test]
fn a_kept_login_serves_no_host_but_its_own() {
    needs!(Namespaces, Haul);
    let logins = two_nodes();
    let both = ["alpha", "beta"];
    for (first, second) in [
        ((&[][..], "by-alpha"), (&[][..], "by-beta")),
        ((&[], "through-alpha"), (&[], "through-beta")),
        ((&["-J", "alpha"], "node"), (&["-J", "beta"], "node")),
        ((&["-o", "ProxyJump=alpha"], "node"), (&["-o", "ProxyJump=beta"], "node")),
    ] {
        assert_eq!(logins.logs_in(both, first.0, first.1), [2, 0], "{first:?}");
        assert_eq!(logins.logs_in(both, second.0, second.1), [0, 2], "{second:?} after {first:?}");
        assert_eq!(logins.logs_in(both, first.0, first.1), [0, 0], "{first:?}");
        assert_eq!(logins.logs_in(both, second.0, second.1), [0, 0], "{second:?}");
    }
    // A proxy that looks at its environment.
    let counted = || both.map(|host| logins_at(logins.lab.host(host)));
    for (gate, expected) in [("alpha", [2, 0]), ("beta", [0, 2])] {
        let before = counted();
        logins.cp(&[], "variable").env("GATE", gate).run().expect(code::OK);
        let after = counted();
        assert_eq!([after[0] - before[0], after[1] - before[1]], expected, "{gate}");
    }
}

#[test]
fn the_host_key_of_each_alias_is_checked_beside_a_kept_login() {
    needs!(Namespaces, Haul);
    let logins = two_nodes();
    assert_eq!(logins.logs_in(["alpha"], &[], "alpha"), [1]);
    assert_eq!(logins.logs_in(["alpha"], &[], "alpha"), [0]);
    // Another key is expected at the same address and port.
    for verb in [&["ls"][..], &["rm"], &["cp"]] {
        let victim = logins.lab.data("alpha").join("victim");
        plant::text(&victim, "words\n");
        let run = logins.lab.haul().args(verb).arg("-F").arg(&logins.config);
        let run = if verb == ["cp"] { run.args(["--retry", "0"]).arg(&logins.file) } else { run };
        run.arg(at("swapped", &victim)).run().expect(code::AUTHENTICATION);
        assert_eq!(fs::read_to_string(&victim).expect("it is there"), "words\n");
    }
}

#[test]
fn an_alias_that_is_given_another_meaning_within_the_minute_is_logged_in_to_again() {
    needs!(Namespaces, Haul);
    let logins = two_nodes();
    let (alpha, beta) = (logins.lab.host("alpha"), logins.lab.host("beta"));
    let meaning = |host: &Host| {
        format!("Host moves\n  HostName {}\n  Port {}\n  HostKeyAlias {}\n", host.v4, host.ssh_port, host.name)
    };
    let jump = |host: &Host| {
        format!(
            "Host behind\n  HostName 127.0.0.1\n  Port 2299\n  HostKeyAlias node\n  ProxyJump moves\n{}",
            meaning(host)
        )
    };
    for (alias, expected) in [("moves", 1), ("behind", 2)] {
        logins.configure(&jump(alpha));
        assert_eq!(logins.logs_in(["alpha", "beta"], &[], alias), [expected, 0]);
        logins.configure(&jump(beta));
        assert_eq!(logins.logs_in(["alpha", "beta"], &[], alias), [0, expected]);
    }
    // A deciding command may decide otherwise the next time.
    let file = logins.lab.data("home").join("at-beta");
    let decides = format!(
        "Match originalhost moves exec \"test -e {}\"\n{}Host *\n{}",
        file.display(),
        inner(&meaning(beta)),
        meaning(alpha)
    );
    logins.configure(&decides);
    assert_eq!(logins.logs_in(["alpha", "beta"], &[], "moves"), [1, 0]);
    plant::text(&file, "");
    assert_eq!(logins.logs_in(["alpha", "beta"], &[], "moves"), [0, 1]);
    fs::remove_file(&file).expect("own file");
    assert_eq!(logins.logs_in(["alpha", "beta"], &[], "moves"), [1, 0]);
}

fn inner(block: &str) -> String {
    block.lines().skip(1).flat_map(|line| [line, "\n"]).collect()
}

#[test]
fn a_kept_login_serves_no_account_but_its_own() {
    needs!(Namespaces, Haul);
    let logins = Logins::with(Lab::pair(), "");
    let logs_in = |flags: &[&str]| logins.logs_in(["alpha"], flags, "alpha")[0];
    assert_eq!((logs_in(&[]), logs_in(&[])), (1, 0));
    let counted = || logins_at(logins.lab.alpha());
    for (name, value) in [("SSH_AUTH_SOCK", "/nowhere"), ("KRB5CCNAME", "FILE:/nowhere")] {
        let before = counted();
        logins.cp(&[], "alpha").env(name, value).run().expect(code::OK);
        assert_eq!(counted() - before, 1, "{name}");
    }
    assert_eq!(logs_in(&["-4"]), 1);
    let key = logins.lab.data("home").join("key");
    let identity = key.to_str().expect("it is text").to_owned();
    fs::copy(logins.lab.identity(), &key).expect("own directory");
    assert_eq!((logs_in(&["-i", &identity]), logs_in(&["-i", &identity])), (1, 0));
    fs::remove_file(&key).expect("own file");
    haul_e2e::lab::keygen(&key);
    let allowed = logins.lab.alpha().dir.join("authorized_keys");
    let public = fs::read_to_string(key.with_extension("pub")).expect("ssh-keygen made it");
    plant::text(&allowed, &(fs::read_to_string(&allowed).expect("the lab made it") + &public));
    assert_eq!(logs_in(&["-i", &identity]), 1);
}

#[test]
fn a_configuration_that_can_be_read_only_once_is_ssh_s_alone() {
    needs!(Namespaces, Haul, Tool("bash"), Tool("mkfifo"));
    let logins = Logins::with(Lab::pair(), "");
    let (haul, target) = (haul_e2e::binary::find().expect("needs!(Haul)"), logins.lab.data("alpha").join("copy"));
    let (haul, config, file, to) = (haul.display(), logins.config.display(), logins.file.display(), target.display());
    let command = format!("mkfifo pipe; cat {config} >pipe & {haul} cp --retry 0 -F pipe {file} alpha:{to}");
    let home = logins.lab.data("home");
    logins.lab.home().run("bash").args(["-c", &command]).current_dir(home).run().expect(code::OK);
    assert_same(&logins.file, &target, Facets::PLAIN);
}

#[test]
fn a_home_with_a_long_name_keeps_logins_and_where_no_path_is_short_enough_it_is_told() {
    needs!(Namespaces, Haul);
    let logins = Logins::with(Lab::pair(), "");
    let counted = |home: &Path, temporary: &Path| {
        let before = logins_at(logins.lab.alpha());
        let run = logins.cp(&[], "alpha").env("XDG_STATE_HOME", "").env("XDG_RUNTIME_DIR", "");
        let run = run.env("HOME", home).env("TMPDIR", temporary).run().expect(code::OK);
        (run, logins_at(logins.lab.alpha()) - before)
    };
    let base = tempfile::tempdir_in("/tmp").expect("/tmp can be written to");
    let named = |letters: usize| {
        let directory = base.path().join("h".repeat(letters));
        fs::create_dir(&directory).expect("own directory");
        directory
    };
    let (long, too_long) = (named(42 - base.path().as_os_str().len()), named(90));
    assert_eq!((counted(&long, &too_long).1, counted(&long, &too_long).1), (1, 0));
    assert_eq!((counted(&too_long, base.path()).1, counted(&too_long, base.path()).1), (1, 0));
    let (run, _) = counted(&too_long, &too_long);
    let told = run.events_named("chose").into_iter().find(|event| event["what"] == "login").expect("it is told");
    assert!(told["reason"].as_str().expect("a text").contains("too long"), "{told}");
}

/// A dead connection costs a second; the rest is for a busy machine, and a debug build, which hashes its program for half a
/// second.
const DEAD_LOGIN_COSTS: Duration = Duration::from_millis(3000);

#[test]
fn a_kept_login_that_is_dead_costs_a_second_at_most_and_no_words() {
    needs!(Namespaces, Haul);
    let logins = Logins::with(Lab::pair(), "");
    let fresh = || logins.copies(&["--no-keep-login"], "alpha").elapsed;
    fresh();
    // The laptop is in another network; the host lost its connections.
    let ways_to_die: [&dyn Fn(); 2] = [&|| logins.lab.home().change_address(Ipv4Addr::new(10, 77, 0, 99)), &|| {
        let alpha = logins.lab.alpha();
        alpha.unplug();
        for session in alpha.processes_named("sshd") {
            alpha.kill(session);
        }
        alpha.plug();
        alpha.restart_sshd("");
    }];
    for (number, die) in ways_to_die.iter().enumerate() {
        assert_eq!(logins.logs_in(["alpha"], &[], "alpha"), [1], "{number}");
        assert_eq!(logins.logs_in(["alpha"], &[], "alpha"), [0], "{number}");
        die();
        let usual = fresh();
        let before = logins_at(logins.lab.alpha());
        let run = logins.copies(&[], "alpha");
        assert!(run.elapsed < usual + DEAD_LOGIN_COSTS, "{usual:?}\n{run}");
        assert!(!run.stderr_text().contains("mux_"), "{run}");
        assert_eq!(logins_at(logins.lab.alpha()) - before, 1);
        assert_eq!(logins.logs_in(["alpha"], &[], "alpha"), [0], "the new one is kept");
        for master in logins.lab.home().processes_named("ssh") {
            logins.lab.home().kill(master);
        }
    }
}

/// A word in a file tells the host's login shell what to do.
struct Mood(PathBuf);

impl Mood {
    fn of(host: &Host) -> Self {
        let (script, mood) = (host.dir.join("login"), host.dir.join("mood"));
        plant::text(
            &script,
            &format!(
                "#!/bin/sh\ncase $(cat {}) in silent) exec sleep 1000;; slow) sleep 2;; slower) sleep 4;; esac\n\
                 exec sh -c \"$SSH_ORIGINAL_COMMAND\"\n",
                mood.display()
            ),
        );
        plant::set_mode(&script, 0o755);
        host.restart_sshd(&format!("ForceCommand {}", script.display()));
        let mood = Self(mood);
        mood.is("usual");
        mood
    }

    fn is(&self, word: &str) {
        plant::text(&self.0, word);
    }
}

#[test]
fn a_slow_far_side_keeps_its_login_and_one_that_became_slow_is_logged_in_to_again() {
    needs!(Namespaces, Haul);
    let logins = Logins::with(Lab::pair(), "");
    let mood = Mood::of(logins.lab.alpha());
    mood.is("slow");
    let logs_in = || logins.logs_in(["alpha"], &[], "alpha")[0];
    assert_eq!((logs_in(), logs_in()), (1, 0), "its shell is slow as ever");
    // Another copy on the connection goes on.
    let (large, target) = (logins.lab.data("home").join("large"), logins.lab.data("alpha").join("large"));
    plant::file(&large, 12 << 20, 2);
    let running = logins.lab.haul().args(["cp", "--json", "--retry", "0", "--rate", "1MB", "-F"]).arg(&logins.config);
    let mut running = running.arg(&large).arg(at("alpha", &target)).start();
    running.when_moved(1 << 20);
    mood.is("slower");
    assert_eq!(logs_in(), 1);
    assert_eq!(logs_in(), 0, "it is known as slower");
    running.wait().expect(code::OK);
    assert_same(&large, &target, Facets::PLAIN);
}

/// Beyond `--timeout`: the login, and a busy machine.
const SILENT_LIMIT: Duration = Duration::from_secs(15);

#[test]
fn a_far_side_that_is_silent_after_the_login_is_not_waited_for() {
    needs!(Namespaces, Haul, Tool("script"));
    let logins = Logins::with(Lab::pair(), "");
    let mood = Mood::of(logins.lab.alpha());
    let (flags, fresh) = (["--timeout", "3"], ["--timeout", "3", "--no-keep-login"]);
    let expect_silence = |run: Outcome| {
        assert!(run.elapsed < SILENT_LIMIT, "{run}");
        run.expect(code::TIMEOUT).says(&["then says nothing", "3 s"])
    };
    mood.is("silent");
    for flags in [&flags[..], &fresh] {
        expect_silence(logins.cp(flags, "alpha").run());
    }
    mood.is("usual");
    logins.copies(&flags, "alpha");
    mood.is("silent");
    expect_silence(logins.cp(&flags, "alpha").run());
    mood.is("usual");
    logins.copies(&flags, "alpha");
    mood.is("silent");
    let run = logins.cp(&flags, "alpha").arg("--detach").run();
    assert!(run.elapsed < SILENT_LIMIT, "{run}");
    run.expect(code::TIMEOUT);
    // At a terminal, ssh could ask before the login.
    let text = fs::read_to_string(&logins.config).expect("own file").replace("BatchMode yes", "BatchMode no");
    plant::text(&logins.config, &text);
    let run = at_a_terminal(&logins, "--timeout 3 --no-keep-login", "alpha");
    assert!(run.elapsed < SILENT_LIMIT && run.code() == code::TIMEOUT, "{run}");
    mood.is("usual");
    let socket = logins.lab.data("home").join("own");
    plant::text(
        &logins.config,
        &format!("Host *\n  ControlMaster auto\n  ControlPersist 30\n  ControlPath {}\n{text}", socket.display()),
    );
    logins.copies(&flags, "alpha");
    assert!(socket.exists());
    mood.is("silent");
    let run = at_a_terminal(&logins, "--timeout 3", "alpha");
    assert!(run.elapsed < SILENT_LIMIT && run.code() == code::TIMEOUT, "{run}");
}

fn at_a_terminal(logins: &Logins, flags: &str, host: &str) -> Outcome {
    let haul = haul_e2e::binary::find().expect("needs!(Haul)");
    let target = logins.lab.data("alpha").join("copy");
    let command = format!(
        "{} cp --retry 0 -F {} {flags} {} {host}:{}",
        haul.display(),
        logins.config.display(),
        logins.file.display(),
        target.display()
    );
    logins.lab.home().run("script").args(["-qec", &command, "/dev/null"]).run()
}

#[test]
fn at_a_terminal_a_login_may_take_its_time() {
    needs!(Namespaces, Haul, Tool("script"), Tool("bash"));
    let lab = Lab::pair();
    // Somebody looks for a password for longer than `--timeout`.
    let proxy = "sh -c 'sleep 6; exec bash -c \"exec 3<>/dev/tcp/%h/%p; cat <&3 & cat >&3\"'";
    let thinks = format!("Host alpha\n  ProxyCommand {proxy}\nHost *\n  BatchMode no\n");
    let logins = Logins::with(lab, &thinks);
    let run = at_a_terminal(&logins, "--timeout 3", "alpha");
    assert_eq!(run.code(), code::OK, "{run}");
    // Without somebody to ask, it may not.
    let run = logins.cp(&["--timeout", "3"], "alpha").run().expect(code::TIMEOUT).says(&["does not reach alpha"]);
    assert!(run.elapsed < SILENT_LIMIT, "{run}");
}
