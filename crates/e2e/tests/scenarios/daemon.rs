//! `haul serve`: the far side on one fixed port, without ssh.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use haul_e2e::compare::names_below;
use haul_e2e::{Facets, Lab, Run, Running, assert_same, code, contents_of, eventually, needs, plant};
use rustix::process::Signal;

const PORT: u16 = 7632;

/// A daemon on `alpha` that offers its data directory to `home`'s key.
pub struct Daemon {
    pub lab: Lab,
    pub offered: PathBuf,
    process: Running,
}

fn authorized(key: &str, access: &str, dir: &Path) -> String {
    format!("{access} root={} {key} home\n", dir.display())
}

/// Returns the key's public half, one word.
fn make_key(lab: &Lab, host: &str, file: &Path) -> String {
    lab.host(host).haul().args(["key", "generate", "--file"]).arg(file).run().expect(code::OK);
    let shown = lab.host(host).haul().args(["key", "show", "--file"]).arg(file).run().expect(code::OK).stdout_text();
    shown.split_whitespace().find(|word| word.starts_with("ed25519:")).unwrap_or_else(|| panic!("{shown}")).to_owned()
}

impl Daemon {
    pub fn start(access: &str) -> Self {
        Self::start_as(access, |serve| serve)
    }

    pub fn start_as(access: &str, meant: impl FnOnce(Run) -> Run) -> Self {
        let lab = Lab::pair();
        let offered = lab.data("alpha").join("offered");
        fs::create_dir(&offered).expect("own directory");
        let (own, host_key) = (lab.data("home").join("key"), lab.alpha().dir.join("daemon_key"));
        let key = make_key(&lab, "home", &own);
        let host_key_text = make_key(&lab, "alpha", &host_key);
        let keys = lab.alpha().dir.join("haul_keys");
        fs::write(&keys, authorized(&key, access, &offered)).expect("own file");
        let address = lab.alpha().v4;
        let known = format!("{address}:{PORT} {host_key_text}\n[{}]:{PORT} {host_key_text}\n", lab.alpha().v6);
        fs::write(lab.data("home").join("known"), known).expect("own file");
        let process = lab.alpha().haul().args(["serve", "--port", &PORT.to_string(), "--identity"]).arg(&host_key);
        let process = process.arg("--authorized-keys").arg(&keys).limit(Duration::from_secs(300));
        let process = meant(process).start();
        eventually("the daemon listens", Duration::from_secs(10), || lab.alpha().listens_on(PORT));
        Self { lab, offered, process }
    }

    pub fn url(&self, path: &str) -> String {
        format!("haul://{}:{PORT}/{path}", self.lab.alpha().v4)
    }

    pub fn cp(&self) -> Run {
        self.haul("cp").args(["--retry", "0"])
    }

    pub fn haul(&self, command: &str) -> Run {
        self.haul_in_words(command).arg("--json")
    }

    pub fn haul_in_words(&self, command: &str) -> Run {
        let (key, known) = (self.lab.data("home").join("key"), self.lab.data("home").join("known"));
        self.lab.haul().args([command, "--identity"]).arg(key).arg("--known-hosts").arg(known)
    }

    pub fn log(&self) -> String {
        String::from_utf8_lossy(&self.process.stderr_so_far()).into_owned()
    }
}

#[test]
fn pushes_and_pulls_without_ssh() {
    needs!(Namespaces, Haul);
    let daemon = Daemon::start("rw");
    let (source, back) = (daemon.lab.data("home").join("tree"), daemon.lab.data("home").join("back"));
    plant::mixed(&source, 1);
    plant::file(&source.join("large"), 30 << 20, 2);
    plant::date(&source, 3);
    daemon.cp().arg(contents_of(&source)).arg(daemon.url("tree")).run().expect(code::OK);
    assert_same(&source, &daemon.offered.join("tree"), Facets::PLAIN);
    daemon.cp().arg(daemon.url("tree/")).arg(&back).run().expect(code::OK);
    assert_same(&source, &back, Facets::PLAIN);
    let six = format!("haul://[{}]:{PORT}/six", daemon.lab.alpha().v6);
    daemon.cp().arg(contents_of(&source)).arg(six).run().expect(code::OK);
    assert_same(&source, &daemon.offered.join("six"), Facets::PLAIN);
}

#[test]
fn everything_goes_through_the_one_port() {
    needs!(Nftables, Haul);
    let daemon = Daemon::start("rw");
    let (alpha, home) = (daemon.lab.alpha(), daemon.lab.home());
    alpha.close_ports_but(&[PORT], haul_e2e::firewall::Manner::Drop);
    home.close_ports_but(&[9], haul_e2e::firewall::Manner::Drop);
    let source = daemon.lab.data("home").join("large");
    plant::file(&source, 50 << 20, 1);
    let run = daemon.cp().args(["--lanes", "4"]).arg(&source).arg(daemon.url("large")).run().expect(code::OK);
    assert_same(&source, &daemon.offered.join("large"), Facets::PLAIN);
    assert_eq!(run.count("lanes"), 4, "{run}");
}

#[test]
fn a_key_that_may_only_read_cannot_write() {
    needs!(Namespaces, Haul);
    let daemon = Daemon::start("ro");
    let file = daemon.lab.data("home").join("file");
    plant::text(&file, "words\n");
    plant::text(&daemon.offered.join("theirs"), "their words\n");
    let refused = daemon.cp().arg(&file).arg(daemon.url("file")).run();
    refused.expect_one_of(&[code::AUTHENTICATION, code::FILE_IO, code::PARTIAL]).says(&["only read"]);
    assert_eq!(names_below(&daemon.offered), [b"theirs"]);
    daemon.cp().arg(daemon.url("theirs")).arg(daemon.lab.data("home").join("got")).run().expect(code::OK);
}

#[test]
fn lanes_in_the_clear_are_for_keys_that_may_have_them() {
    needs!(Namespaces, Haul);
    let file = |daemon: &Daemon| {
        let file = daemon.lab.data("home").join("file");
        plant::file(&file, 20 << 20, 5);
        file
    };
    let strict = Daemon::start("rw");
    let refused = strict.cp().args(["--cipher", "none"]).arg(file(&strict)).arg(strict.url("file")).run();
    refused.expect(code::AUTHENTICATION).says(&["encrypts all data connections"]);
    assert!(names_below(&strict.offered).is_empty());
    let lenient = Daemon::start("rw clear");
    let planted = file(&lenient);
    let run = lenient.cp().args(["--cipher", "none"]).arg(&planted).arg(lenient.url("file")).run().expect(code::OK);
    assert_same(&planted, &lenient.offered.join("file"), Facets::PLAIN);
    assert_eq!(run.report()["cipher"], "none (clear, authenticated)", "{run}");
    let run = lenient.cp().arg(&planted).arg(lenient.url("again")).run().expect(code::OK);
    assert!(run.report()["cipher"] != "none (clear, authenticated)", "the word alone makes nothing clear\n{run}");
}

#[test]
fn a_key_sees_only_its_directory() {
    needs!(Namespaces, Haul);
    let daemon = Daemon::start("rw");
    let file = daemon.lab.data("home").join("file");
    plant::text(&file, "words\n");
    plant::text(&daemon.lab.data("alpha").join("secret"), "not yours\n");
    std::os::unix::fs::symlink(daemon.lab.data("alpha"), daemon.offered.join("way-out")).expect("own directory");
    let secret = daemon.lab.data("alpha").join("secret");
    for path in
        ["../secret", "way-out/secret", "x/../../secret", "/../secret", "%2e%2e/secret", &secret.to_string_lossy()]
    {
        let got = daemon.lab.data("home").join("got");
        let run = daemon.cp().arg(daemon.url(path)).arg(&got).run();
        assert!(run.code() != code::OK && !got.exists(), "{path} leads out of the directory\n{run}");
    }
    for path in ["../planted", "way-out/planted", "x/../../planted"] {
        let run = daemon.cp().arg(&file).arg(daemon.url(path)).run();
        assert!(!daemon.lab.data("alpha").join("planted").exists(), "{path} leads out of the directory\n{run}");
    }
}

#[test]
fn a_key_whose_directory_holds_the_daemons_own_files_does_not_come_in() {
    needs!(Namespaces, Haul);
    let daemon = Daemon::start("rw");
    let (alpha, got) = (daemon.lab.alpha(), daemon.lab.data("home").join("got"));
    let (list, host_key) = (alpha.dir.join("haul_keys"), alpha.dir.join("daemon_key"));
    let good = fs::read_to_string(&list).expect("own file");
    let wrong = [("ro", "could read the daemon's own"), ("rw", "could read and replace the daemon's own")];
    for (access, told) in wrong {
        let roots = [&daemon.offered, &alpha.dir].map(|root| format!("root={} ", root.display()));
        fs::write(&list, good.replace(&roots[0], &roots[1]).replace("rw ", &format!("{access} "))).expect("own file");
        let run = daemon.cp().arg(daemon.url("daemon_key")).arg(&got).run();
        run.expect(code::AUTHENTICATION).says(&["does not let this key in", "files of the daemon's own"]);
        assert!(!got.exists());
        eventually(told, Duration::from_secs(10), || daemon.log().contains(told));
    }
    // A starting daemon reports such a line at once.
    let serve = alpha.haul().args(["serve", "--port", &(PORT + 1).to_string(), "--identity"]).arg(&host_key);
    let starts = serve.arg("--authorized-keys").arg(&list).limit(Duration::from_secs(60)).start();
    let said = || String::from_utf8_lossy(&starts.stderr_so_far()).contains(wrong[1].1);
    eventually("it is said at the start", Duration::from_secs(10), said);
    drop(starts);
    // haul obeys or remembers such a file: it would become code of the daemon's user.
    let file = daemon.lab.data("home").join("file");
    plant::text(&file, "words\n");
    for own in ["config", "state", "cache", "run"] {
        let root = alpha.dir.join(own);
        fs::create_dir_all(&root).expect("own directory");
        let roots = [&daemon.offered, &root].map(|root| format!("root={} ", root.display()));
        fs::write(&list, good.replace(&roots[0], &roots[1])).expect("own file");
        let run = daemon.cp().arg(&file).arg(daemon.url("haul/policy.toml")).run();
        run.expect(code::AUTHENTICATION).says(&["does not let this key in", "files of the daemon's own"]);
        assert!(!root.join("haul/policy.toml").exists());
    }
    fs::write(&list, &good).expect("own file");
    plant::text(&daemon.offered.join("theirs"), "their words\n");
    daemon.cp().arg(daemon.url("theirs")).arg(&got).run().expect(code::OK);
}

/// The list stays as read, while the daemon's key moves into the offered directory; a later mount can do the same.
#[test]
fn a_directory_that_comes_to_hold_the_daemons_own_files_is_none_for_a_key_any_more() {
    needs!(Namespaces, Haul);
    let daemon = Daemon::start("ro");
    let (host_key, got) = (daemon.lab.alpha().dir.join("daemon_key"), daemon.lab.data("home").join("got"));
    plant::text(&daemon.offered.join("theirs"), "their words\n");
    daemon.cp().arg(daemon.url("theirs")).arg(&got).run().expect(code::OK);
    fs::rename(&host_key, daemon.offered.join("daemon_key")).expect("own file");
    symlink(daemon.offered.join("daemon_key"), &host_key).expect("own link");
    for name in ["daemon_key", "theirs"] {
        let run = daemon.cp().arg(daemon.url(name)).arg(daemon.lab.data("home").join("stolen")).run();
        run.expect(code::AUTHENTICATION).says(&["does not let this key in"]);
    }
    assert!(!daemon.lab.data("home").join("stolen").exists());
    let told = "could read the daemon's own";
    eventually(told, Duration::from_secs(10), || daemon.log().contains(told));
}

#[test]
fn a_key_that_knocks_without_end_does_not_fill_the_log() {
    needs!(Namespaces, Haul);
    /// Far more than the daemon logs of one key in a minute.
    const LOUD_BYTES: usize = 4 * 64 * 1024;
    let daemon = Daemon::start("ro");
    // Escaping may grow a logged name to five times its length, up to 8 KiB.
    let path = "%01".repeat(2_000);
    let begun = Instant::now();
    for _ in 0..LOUD_BYTES / (8 * 1024) {
        let run = daemon.cp().arg(daemon.url(&path)).arg(daemon.lab.data("home").join("got")).run();
        assert!(run.code() != code::OK, "{run}");
    }
    let minutes = 1 + begun.elapsed().as_secs() as usize / 60;
    let logged = daemon.log();
    assert!(logged.len() < (minutes + 1) * (64 + 8) * 1024, "{} bytes in {minutes} minutes", logged.len());
    if minutes == 1 {
        assert!(logged.contains("causes more than is logged in a minute"), "{} bytes", logged.len());
    }
}

/// The log's reader is a paused terminal, or a hung service.
#[test]
fn a_daemon_serves_and_ends_while_nobody_reads_its_log() {
    needs!(Namespaces, Haul);
    let mut daemon = Daemon::start_as("rw", Run::unread);
    let (list, file) = (daemon.lab.alpha().dir.join("haul_keys"), daemon.lab.data("home").join("file"));
    let good = fs::read_to_string(&list).expect("own file");
    // A log line for each is more than a pipe holds (64 KiB).
    fs::write(&list, good + &"no access\n".repeat(2_000)).expect("own file");
    plant::file(&file, 1 << 20, 1);
    daemon.cp().arg(&file).arg(daemon.url("file")).run().expect(code::OK);
    daemon.cp().arg(daemon.url("file")).arg(daemon.lab.data("home").join("back")).run().expect(code::OK);
    assert_same(&file, &daemon.lab.data("home").join("back"), Facets::PLAIN);
    assert_eq!(daemon.log(), "", "somebody reads");
    daemon.process.signal(Signal::TERM);
    eventually("it has ended", Duration::from_secs(20), || daemon.process.has_ended());
    daemon.process.read_on();
    daemon.process.wait().expect(code::OK).says(&["this line lets nobody in"]);
}

#[test]
fn an_unknown_key_and_an_unknown_daemon_are_refused() {
    needs!(Namespaces, Haul);
    let daemon = Daemon::start("rw");
    let file = daemon.lab.data("home").join("file");
    plant::text(&file, "words\n");
    let other = daemon.lab.data("home").join("other");
    make_key(&daemon.lab, "home", &other);
    let known = daemon.lab.data("home").join("known");
    let run = daemon.lab.haul().args(["cp", "--json", "--identity"]).arg(&other).arg("--known-hosts").arg(&known);
    run.arg(&file).arg(daemon.url("file")).run().expect(code::AUTHENTICATION).says(&["key"]);

    let text = fs::read_to_string(&known).expect("own file");
    let key = text.split_whitespace().nth(1).expect("a key").to_owned();
    let digits = key.strip_prefix("ed25519:").expect("a key");
    let wrong = format!("ed25519:{}", digits.chars().map(|c| if c == '1' { '2' } else { '1' }).collect::<String>());
    fs::write(&known, text.replace(&key, &wrong)).expect("own file");
    daemon.cp().arg(&file).arg(daemon.url("file")).run().expect(code::AUTHENTICATION).says(&["key"]);
    fs::write(&known, "").expect("own file");
    daemon.cp().arg(&file).arg(daemon.url("file")).run().expect(code::AUTHENTICATION).says(&["known"]);
    assert_eq!(names_below(&daemon.offered).len(), 0);
}

#[test]
fn idle_strangers_do_not_stand_in_the_way() {
    needs!(Namespaces, Haul);
    let daemon = Daemon::start("rw");
    let file = daemon.lab.data("home").join("file");
    plant::file(&file, 1 << 20, 1);
    let target = SocketAddr::new(daemon.lab.alpha().address(), PORT);
    let begun = Instant::now();
    let strangers: Vec<TcpStream> = daemon.lab.home().inside(|| {
        let connect = |_| TcpStream::connect_timeout(&target, Duration::from_secs(2)).expect("it listens");
        (0..200).map(connect).collect()
    });
    // More than one address may have: the oldest make room when their time is over.
    daemon.cp().arg(&file).arg(daemon.url("file")).run().expect(code::OK);
    let is_there = |stranger: &&TcpStream| {
        stranger.set_nonblocking(true).expect("a socket");
        let answer = stranger.peek(&mut [0]);
        stranger.set_nonblocking(false).expect("a socket");
        answer.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    };
    assert!(strangers.iter().filter(is_there).count() > 0, "all had left after {:?}", begun.elapsed());
    // An unauthenticated connection is closed after 10 s.
    for mut stranger in strangers {
        let left = Duration::from_secs(14).saturating_sub(begun.elapsed()).max(Duration::from_millis(1));
        stranger.set_read_timeout(Some(left)).expect("a socket");
        let _ = stranger.write_all(b"x");
        let mut buffer = [0; 64];
        let answer = stranger.read(&mut buffer);
        let timed_out = matches!(&answer, Err(error) if error.kind() == ErrorKind::WouldBlock);
        assert!(!timed_out, "an idle stranger is still there after {:?}", begun.elapsed());
    }
    daemon.cp().arg(&file).arg(daemon.url("again")).run().expect(code::OK);
    assert_same(&file, &daemon.offered.join("again"), Facets::PLAIN);
}

#[test]
fn strangers_who_talk_nonsense_do_no_harm() {
    needs!(Namespaces, Haul);
    let daemon = Daemon::start("rw");
    let target = SocketAddr::new(daemon.lab.alpha().address(), PORT);
    daemon.lab.home().inside(|| {
        for words in [&b"GET / HTTP/1.0\r\n\r\n"[..], &[0; 5000], &[0xff; 5000], &[0x16, 3, 1, 0xff, 0xff]] {
            for _ in 0..20 {
                let mut stranger = TcpStream::connect_timeout(&target, Duration::from_secs(2)).expect("it listens");
                // The daemon may close before all is sent.
                let _ = stranger.write_all(words);
            }
        }
    });
    let file = daemon.lab.data("home").join("file");
    plant::file(&file, 1 << 20, 1);
    daemon.cp().arg(&file).arg(daemon.url("file")).run().expect(code::OK);
    assert!(!daemon.log().contains("panicked"), "{}", daemon.log());
}

#[test]
fn a_daemon_behind_a_firewall_that_drops_is_given_up_soon_and_what_to_look_at_is_named() {
    needs!(Nftables, Haul);
    /// The dial gives up after 10 s; the kernel alone would try for two minutes.
    const SOON: Duration = Duration::from_secs(30);
    let daemon = Daemon::start("rw");
    let alpha = daemon.lab.alpha();
    alpha.close_ports_but(&[alpha.ssh_port], haul_e2e::firewall::Manner::Drop);
    let (file, got) = (daemon.lab.data("home").join("file"), daemon.lab.data("home").join("got"));
    plant::text(&file, "words\n");
    plant::text(&daemon.offered.join("theirs"), "their words\n");
    for run in [daemon.cp().arg(&file).arg(daemon.url("file")), daemon.cp().arg(daemon.url("theirs")).arg(&got)] {
        let run = run.run().expect(code::NETWORK);
        assert!(run.elapsed < SOON, "{run}");
        run.says(&["cannot connect"])
            .says(&[&format!("is `haul serve` running on {}, and port {PORT} open?", alpha.v4)]);
    }
    assert_eq!(names_below(&daemon.offered), [b"theirs"]);
    assert!(!got.exists());
}

#[test]
fn a_copy_to_a_daemon_is_resumed() {
    needs!(Namespaces, Haul);
    const SIZE: u64 = 500 << 20;
    let daemon = Daemon::start("rw");
    let file = daemon.lab.data("home").join("file");
    plant::file(&file, SIZE, 1);
    let command = || daemon.cp().arg(&file).arg(daemon.url("file"));
    let mut running = command().args(["--rate", "160MB"]).start();
    running.when_moved(400 << 20);
    running.kill();
    let run = command().run().expect(code::OK);
    assert!(run.count("bytes_moved") <= SIZE - (400 << 20) + (256 << 20), "{run}");
    assert_same(&file, &daemon.offered.join("file"), Facets::PLAIN);
}

#[test]
fn a_client_whose_address_changes_proves_itself_anew_and_goes_on() {
    needs!(Namespaces, Haul);
    const SIZE: u64 = 500 << 20;
    const MOVED: u64 = 100 << 20;
    let daemon = Daemon::start("rw");
    let file = daemon.lab.data("home").join("file");
    plant::file(&file, SIZE, 1);
    let command = || daemon.cp().args(["--timeout", "20"]).arg(&file).arg(daemon.url("file"));
    let mut running = command().args(["--rate", "80MB"]).start();
    running.when_moved(MOVED);
    let elsewhere = Ipv4Addr::new(10, 77, 0, 99);
    daemon.lab.home().change_address(elsewhere);
    // The session goes on five seconds later, over IPv6 if need be: its lanes are dialled anew from the new address, and each
    // proves its key.
    let run = running.wait().expect(code::OK);
    assert_same(&file, &daemon.offered.join("file"), Facets::PLAIN);
    let locals: Vec<String> =
        run.report()["paths"].as_array().expect("paths").iter().map(|path| path["local"].to_string()).collect();
    assert!(locals.iter().any(|local| local.contains(&elsewhere.to_string())), "{locals:?}\n{run}");
}

#[test]
fn a_link_that_one_key_puts_in_place_of_the_directory_of_another_leads_nowhere() {
    needs!(Namespaces, Haul);
    let daemon = Daemon::start("rw");
    let (home, private) = (daemon.lab.data("home"), daemon.lab.data("alpha").join("private"));
    let other = make_key(&daemon.lab, "home", &home.join("other"));
    let keys = daemon.lab.alpha().dir.join("haul_keys");
    let shared = daemon.offered.join("shared");
    let list = fs::read_to_string(&keys).expect("own file") + &authorized(&other, "rw", &shared);
    fs::write(&keys, list).expect("own file");
    plant::text(&shared.join("file"), "for the other\n");
    let as_other = || {
        let run = daemon.lab.haul().args(["cp", "--identity"]).arg(home.join("other"));
        run.arg("--known-hosts").arg(home.join("known"))
    };
    as_other().arg(daemon.url("file")).arg(home.join("got")).run().expect(code::OK);
    // An attacker who may write into the directory links out of all directories.
    plant::text(&private.join("file"), "the operator's\n");
    fs::create_dir(home.join("tree")).expect("own directory");
    symlink(&private, home.join("tree/shared")).expect("own link");
    daemon
        .cp()
        .args(["-a", "--delete"])
        .arg(contents_of(&home.join("tree")))
        .arg(daemon.url(""))
        .run()
        .expect(code::OK);
    assert!(shared.is_symlink());
    let denied = |run: Run| run.run().expect(code::FILE_IO).says(&["a symbolic link is on the way"]);
    denied(as_other().arg(daemon.url("file")).arg(home.join("stolen")));
    denied(as_other().arg(home.join("got")).arg(daemon.url("file")));
    assert!(!home.join("stolen").exists());
    assert_eq!(fs::read_to_string(private.join("file")).expect("own file"), "the operator's\n");
}

/// Signal handlers only set a flag or end the process, so they touch no locks or memory of a handshake.
#[test]
fn a_storm_of_signals_while_hands_are_shaken_ends_the_copy_and_the_next_one_goes_through() {
    needs!(Namespaces, Haul);
    const AT_ONCE: usize = 50;
    let daemon = Daemon::start("rw");
    let (source, known) = (daemon.lab.data("home").join("tree"), daemon.lab.data("home").join("known"));
    plant::mixed(&source, 1);
    let lines = fs::read_to_string(&known).expect("own file");
    let storms = [[Signal::INT, Signal::INT, Signal::INT], [Signal::INT, Signal::TERM, Signal::HUP]];
    // A copy may dial more than once, and the next test must not meet its old connections.
    for (port, signals) in (PORT + 1..).zip(storms) {
        fs::write(&known, lines.clone() + &lines.replace(&PORT.to_string(), &port.to_string())).expect("own file");
        let bind = || TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).expect("a free port");
        let silent = daemon.lab.alpha().inside(bind);
        silent.set_nonblocking(true).expect("a socket");
        let url = daemon.url("tree").replace(&PORT.to_string(), &port.to_string());
        let mut running = daemon.cp().arg(contents_of(&source)).arg(&url).start();
        let mut came = None;
        running.when("it connects", |_| {
            came = came.take().or_else(|| silent.accept().ok());
            came.is_some()
        });
        let (mut stream, _) = came.expect("it connected");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
        stream.read_exact(&mut [0]).expect("it begins to shake hands, and waits for the answer");
        let storm = |running: &Running| signals.iter().cycle().take(AT_ONCE).for_each(|&signal| running.signal(signal));
        eventually("it has ended", Duration::from_secs(10), || {
            storm(&running);
            running.has_ended()
        });
        let ended = running.wait().expect(code::INTERRUPTED);
        assert!(!ended.stderr_text().contains("panicked"), "{ended}");
    }
    daemon.cp().arg(contents_of(&source)).arg(daemon.url("tree")).run().expect(code::OK);
    assert_same(&source, &daemon.offered.join("tree"), Facets::PLAIN);
}
