//! `haul serve` and `haul key` on loopback, without ssh, namespaces or root.
#![forbid(unsafe_code)]

mod allowance;
mod browser;
mod dead_mount;
mod door;
mod handed_over;
mod harm;
mod hosts;
mod log;
mod networks;
mod places;
mod web;
mod within;

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use haul_e2e::compare::{names_below, path_of};
use haul_e2e::{Facets, Outcome, Run, Running, assert_same, code, contents_of, eventually, needs, plant};
use rustix::process::Signal;

struct Stage {
    dir: tempfile::TempDir,
    daemon: Option<Running>,
    address: SocketAddrV4,
}

/// An own address keeps each stage's port free while its daemon restarts.
static STAGES: AtomicU8 = AtomicU8::new(1);

impl Stage {
    /// The daemon offers `offered` to the client's key, and the client trusts it.
    fn new(access: &str) -> Self {
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let ip = Ipv4Addr::new(127, high | 1, low, STAGES.fetch_add(1, Ordering::Relaxed));
        let mut stage = Self { dir: haul_e2e::scratch(), daemon: None, address: SocketAddrV4::new(ip, 7632) };
        for dir in ["server", "client", "offered"] {
            fs::create_dir(stage.at(dir)).expect("own directory");
        }
        stage.haul("client").args(["key", "generate"]).run().expect(code::OK);
        fs::create_dir_all(stage.list().parent().expect("it has one")).expect("own directory");
        stage.authorize(access, &stage.at("offered"));
        stage.start();
        stage.haul("client").args(["key", "trust", &stage.host(), &stage.daemon_key()]).run().expect(code::OK);
        stage
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn haul(&self, home: &str) -> Run {
        let program = haul_e2e::binary::find().expect("asked for with needs!");
        Run::new(program).env("HOME", self.at(home)).current_dir(self.dir.path())
    }

    fn list(&self) -> PathBuf {
        self.at("server/.config/haul/authorized_keys")
    }

    fn authorize(&self, access: &str, root: &Path) {
        let key = first_key(&self.haul("client").args(["key", "show"]).run().expect(code::OK).stdout_text());
        self.write_list(&format!("{access} root=\"{}\" {key} client\n", root.display()));
    }

    fn write_list(&self, text: &str) {
        let new = self.at("new_list");
        fs::write(&new, text).expect("own file");
        fs::rename(new, self.list()).expect("own file");
    }

    fn start(&mut self) {
        self.start_with(&[]);
    }

    fn start_with(&mut self, flags: &[&str]) {
        let mut daemon = self.haul("server").args(["serve", "--listen", &self.host()]).args(flags).start();
        daemon.when("it listens", |daemon| said(daemon, "listening on"));
        self.daemon = Some(daemon);
    }

    fn stop(&mut self, signal: Signal) -> Outcome {
        let daemon = self.daemon.take().expect("it runs");
        daemon.signal(signal);
        daemon.wait()
    }

    fn host(&self) -> String {
        self.address.to_string()
    }

    fn daemon_key(&self) -> String {
        let file = self.at("server/.config/haul/host_ed25519");
        first_key(&self.haul("client").args(["key", "show", "--file"]).arg(file).run().expect(code::OK).stdout_text())
    }

    fn url(&self, path: &str) -> String {
        format!("haul://{}/{path}", self.host())
    }

    fn cp(&self) -> Run {
        self.haul("client").args(["cp", "--json", "--retry", "0"])
    }

    fn log(&self) -> String {
        let daemon = self.daemon.as_ref().expect("it runs");
        String::from_utf8_lossy(&daemon.stderr_so_far()).into_owned()
    }

    fn eventually_logs(&self, words: &str) {
        eventually(words, Duration::from_secs(10), || self.log().contains(words));
    }
}

fn said(running: &Running, words: &str) -> bool {
    String::from_utf8_lossy(&running.stderr_so_far()).contains(words)
}

fn first_key(text: &str) -> String {
    let key = text.split_whitespace().find(|word| word.starts_with("ed25519:"));
    key.unwrap_or_else(|| panic!("no key in {text}")).to_owned()
}

#[test]
fn pushes_pulls_and_runs_again() {
    needs!(Haul);
    let stage = Stage::new("rw");
    let (source, back) = (stage.at("tree"), stage.at("back"));
    plant::mixed(&source, 1);
    plant::file(&source.join("large"), 20 << 20, 2);
    plant::date(&source, 3);
    let pushed = stage.cp().arg(contents_of(&source)).arg(stage.url("in/tree")).run().expect(code::OK);
    assert_same(&source, &stage.at("offered/in/tree"), Facets::PLAIN);
    stage.cp().arg(stage.url("in/tree/")).arg(&back).run().expect(code::OK);
    assert_same(&source, &back, Facets::PLAIN);
    let again = stage.cp().arg(contents_of(&source)).arg(stage.url("/in/tree")).run().expect(code::OK);
    assert_eq!(again.count("bytes_moved"), 0, "{again}");
    stage.eventually_logs("writes to 'in/tree'");
    stage.eventually_logs("reads 'in/tree/'");
    stage.eventually_logs(&format!("{} bytes moved", pushed.count("bytes_moved")));
}

#[test]
fn what_arrives_is_read_back_from_the_medium_at_whichever_end_writes() {
    needs!(Haul);
    let stage = Stage::new("rw");
    let (source, back) = (stage.at("tree"), stage.at("back"));
    plant::mixed(&source, 1);
    plant::file(&source.join("large"), 20 << 20, 2);
    plant::date(&source, 3);
    let cp = || stage.cp().args(["--verify", "disk"]);
    let pushed = cp().arg(contents_of(&source)).arg(stage.url("in")).run().expect(code::OK);
    assert_same(&source, &stage.at("offered/in"), Facets::PLAIN);
    let pulled = cp().arg(stage.url("in/")).arg(&back).run().expect(code::OK);
    assert_same(&source, &back, Facets::PLAIN);
    for run in [pushed, pulled] {
        // Holes are read, too.
        assert!(run.count("bytes_reread") >= run.count("bytes_moved") && run.count("bytes_moved") > 20 << 20, "{run}");
        assert_eq!(run.count("chunks_repaired"), 0, "{run}");
    }
    let wire = stage.cp().arg(stage.url("in/")).arg(stage.at("wire")).run().expect(code::OK);
    assert_eq!(wire.count("bytes_reread"), 0, "{wire}");
}

#[test]
fn nothing_after_the_host_means_the_whole_directory() {
    needs!(Haul);
    let stage = Stage::new("ro");
    plant::text(&stage.at("offered/inner/file"), "words\n");
    let whole = format!("haul://{}", stage.host());
    stage.cp().args([&whole, "got"]).run().expect(code::OK);
    assert_same(&stage.at("offered"), &stage.at("got"), Facets::CONTENTS);
}

#[test]
fn a_copy_between_two_daemons_goes_directly() {
    needs!(Haul);
    let (one, two) = (Stage::new("ro"), Stage::new("rw"));
    plant::mixed(&one.at("offered/tree"), 1);
    plant::date(&one.at("offered/tree"), 2);
    // One client for two daemons: the second gets its key.
    let key = first_key(&one.haul("client").args(["key", "show"]).run().expect(code::OK).stdout_text());
    two.write_list(&format!("rw root={} {key} visitor\n", two.at("offered").display()));
    one.haul("client").args(["key", "trust", &two.host(), &two.daemon_key()]).run().expect(code::OK);
    for (target, through_here) in [("direct", &[][..]), ("relayed", &["-3"][..])] {
        let run = one.cp().args(through_here).arg(one.url("tree/")).arg(two.url(target)).run().expect(code::OK);
        assert_same(&one.at("offered/tree"), &two.at("offered").join(target), Facets::PLAIN);
        assert_eq!(run.report()["lane_path"] == "through this machine", !through_here.is_empty(), "{run}");
    }
}

#[test]
fn a_key_that_may_only_read_is_told_so() {
    needs!(Haul);
    let stage = Stage::new("ro");
    plant::text(&stage.at("file"), "words\n");
    plant::text(&stage.at("offered/theirs"), "their words\n");
    let refused = stage.cp().args(["file", &stage.url("file")]).run().expect(code::AUTHENTICATION);
    refused.says(&["lets this key only read"]);
    stage.cp().args(["--delete", "offered/", &stage.url("")]).run().expect(code::AUTHENTICATION);
    assert_eq!(names_below(&stage.at("offered")), [b"theirs"]);
    stage.cp().args([&stage.url("theirs"), "got"]).run().expect(code::OK);
}

#[test]
fn the_list_of_keys_is_read_again_when_it_changes() {
    needs!(Haul);
    let stage = Stage::new("rw");
    plant::text(&stage.at("file"), "words\n");
    let copy = || stage.cp().args(["file", &stage.url("file")]).run();
    copy().expect(code::OK);
    stage.write_list("# the client has left\n");
    copy().expect(code::AUTHENTICATION).says(&["does not let our key in", "haul key show"]);
    stage.eventually_logs("is not in the list");
    stage.authorize("ro", &stage.at("offered"));
    copy().expect(code::AUTHENTICATION).says(&["only read"]);
    stage.authorize("rw", &stage.at("offered"));
    copy().expect(code::OK);
    fs::set_permissions(stage.list(), fs::Permissions::from_mode(0o666)).expect("own file");
    copy().expect(code::AUTHENTICATION);
    stage.eventually_logs("others may write it");
}

#[test]
fn a_bad_line_costs_nobody_else_and_is_told_by_the_check_and_by_the_log() {
    needs!(Haul);
    let mut stage = Stage::new("rw");
    stage.stop(Signal::INT).expect(code::OK);
    let good = fs::read_to_string(stage.list()).expect("own file");
    stage.write_list(&format!("{good}\nro root=relative {}\nnonsense\n", stage.daemon_key()));
    let checked = stage.haul("server").args(["serve", "--check"]).run().expect(code::USAGE);
    checked.says(&["line 3: root must be a full path"]).says(&["line 4: 'nonsense' is none of"]).says(&["and 1 more"]);
    stage.start();
    stage.eventually_logs("line 3: root must be a full path");
    plant::text(&stage.at("file"), "words\n");
    stage.cp().args(["file", &stage.url("file")]).run().expect(code::OK);
    stage.stop(Signal::INT).expect(code::OK);
    let serve = || stage.haul("server").args(["serve", "--listen", "127.0.0.1:0"]).run();
    stage.write_list(&good);
    fs::set_permissions(stage.list(), fs::Permissions::from_mode(0o620)).expect("own file");
    serve().expect(code::AUTHENTICATION).says(&["others may write it"]);
    let missing = stage.haul("server").args(["serve", "--listen", "127.0.0.1:0", "--authorized-keys", "missing"]).run();
    missing.expect(code::AUTHENTICATION).says(&["missing"]);
}

#[test]
fn an_unknown_daemon_is_shown_by_its_key_and_trusted_by_the_hint() {
    needs!(Haul);
    let stage = Stage::new("rw");
    plant::text(&stage.at("file"), "words\n");
    let known = stage.at("client/.config/haul/known_hosts");
    fs::remove_file(&known).expect("own file");
    let command = || stage.haul("client").args(["cp", "file", &stage.url("file")]);
    let refused = command().run().expect(code::AUTHENTICATION).says(&["is not known here"]).says(&["SHA256:"]);
    let hint = refused.stderr_text();
    let words = hint.split("haul key trust").nth(1).unwrap_or_else(|| panic!("no command in {hint}"));
    let words: Vec<&str> = words.split_whitespace().take(2).collect();
    assert_eq!(words, [stage.host(), stage.daemon_key()]);
    stage.haul("client").args(["key", "trust"]).args(words).run().expect(code::OK);
    command().run().expect(code::OK);
}

#[test]
fn a_daemon_with_another_key_than_before_is_refused() {
    needs!(Haul);
    let mut stage = Stage::new("rw");
    plant::text(&stage.at("file"), "words\n");
    stage.stop(Signal::TERM).expect(code::OK);
    fs::remove_file(stage.at("server/.config/haul/host_ed25519")).expect("own file");
    stage.start();
    let command = || stage.cp().args(["file", &stage.url("file")]).run();
    command().expect(code::AUTHENTICATION).says(&["another key than before"]).says(&["--replace"]);
    let trust = || stage.haul("client").args(["key", "trust", &stage.host(), &stage.daemon_key()]);
    trust().run().expect(code::AUTHENTICATION).says(&["known with another key"]);
    trust().arg("--replace").run().expect(code::OK);
    command().expect(code::OK);
}

#[test]
fn no_path_leads_out_of_the_directory() {
    needs!(Haul);
    let stage = Stage::new("rw");
    plant::text(&stage.at("file"), "words\n");
    plant::text(&stage.at("secret/inner"), "not yours\n");
    symlink(stage.at("secret"), stage.at("offered/way-out")).expect("own directory");
    symlink(stage.at("secret/inner"), stage.at("offered/file-out")).expect("own directory");
    let full = stage.at("secret/inner").to_string_lossy().into_owned();
    let ways =
        ["../secret/inner", "way-out/inner", "x/../../secret/inner", "/../secret/inner", "%2e%2e/secret/inner", &full];
    for path in ways {
        let run = stage.cp().args([&stage.url(path), "got"]).run();
        assert!(run.code() != code::OK && !stage.at("got").exists(), "{path} leads out\n{run}");
    }
    // A link is copied as a link, even if its target was asked for.
    stage.cp().args(["-L", &stage.url("file-out"), "got"]).run();
    assert!(!stage.at("got").is_file(), "-L leads out");
    for path in ["../planted", "way-out/planted", "x/../../planted", "way-out/"] {
        let run = stage.cp().args(["file", &stage.url(path)]).run();
        assert!(
            !stage.at("planted").exists() && names_below(&stage.at("secret")).len() == 1,
            "{path} leads out\n{run}"
        );
    }
}

#[test]
fn no_link_is_followed_out_of_the_directory() {
    needs!(Haul);
    let stage = Stage::new("rw");
    plant::text(&stage.at("secret/inner"), "not yours\n");
    symlink(stage.at("secret"), stage.at("offered/full")).expect("own directory");
    symlink("../secret", stage.at("offered/up")).expect("own directory");
    fs::create_dir(stage.at("offered/room")).expect("own directory");
    symlink("room", stage.at("offered/within")).expect("own directory");
    for name in ["full", "up", "within"] {
        plant::text(&stage.at("tree").join(name).join("planted"), "words\n");
    }
    let run = stage.cp().args(["-K", "--delete", "tree/", &stage.url("")]).run().expect(code::PARTIAL);
    run.says(&["full: it leads out of its directory"]);
    assert_eq!(names_below(&stage.at("secret")).len(), 1);
    assert_eq!(fs::read(stage.at("offered/room/planted")).expect("it was copied"), b"words\n");
    assert!(stage.at("offered/within").is_symlink());
}

#[test]
fn two_keys_do_not_see_each_other() {
    needs!(Haul);
    let stage = Stage::new("rw");
    let other = first_key(
        &stage.haul("client").args(["key", "generate", "--file", "other"]).run().expect(code::OK).stdout_text(),
    );
    let own = fs::read_to_string(stage.list()).expect("own file");
    fs::create_dir(stage.at("theirs")).expect("own directory");
    plant::text(&stage.at("theirs/file"), "their words\n");
    stage.write_list(&format!("{own}rw root={} {other} other\n", stage.at("theirs").display()));
    stage.cp().args([&stage.url("file"), "got"]).run().expect_one_of(&[code::FILE_IO, code::PARTIAL]);
    stage.cp().args(["--identity", "other", &stage.url("file"), "got"]).run().expect(code::OK);
    assert_same(&stage.at("theirs/file"), &stage.at("got"), Facets::CONTENTS);
}

/// Every system has it, and no other test uses it.
const USER: (&str, u32) = ("nobody", 65_534);

#[test]
fn a_key_acts_as_its_user_and_reads_and_writes_no_more_than_that_user_may() {
    needs!(Haul, Root);
    let stage = Stage::new("rw");
    let (name, uid) = USER;
    stage.authorize(&format!("rw user={name}"), &stage.at("offered"));
    plant::set_mode(&stage.at("offered"), 0o777);
    plant::mixed(&stage.at("tree"), 1);
    plant::file(&stage.at("tree/large"), 5 << 20, 2);
    plant::hard_links(&stage.at("tree/hard"), 3);
    plant::date(&stage.at("tree"), 4);
    stage.cp().args(["-aH"]).arg(contents_of(&stage.at("tree"))).arg(stage.url("in")).run().expect(code::OK);
    assert_same(&stage.at("tree"), &stage.at("offered/in"), Facets::PLAIN);
    for path in names_below(&stage.at("offered/in")) {
        let metadata = fs::symlink_metadata(stage.at("offered/in").join(path_of(&path))).expect("it was made");
        assert_eq!((metadata.uid(), metadata.gid()), (uid, uid), "{}", String::from_utf8_lossy(&path));
    }
    // The root daemon reads and writes only what the user may.
    plant::text(&stage.at("offered/private"), "another's words\n");
    plant::set_mode(&stage.at("offered/private"), 0o600);
    fs::create_dir(stage.at("offered/theirs")).expect("own directory");
    let denied = stage.cp().args([&stage.url("private"), "got"]).run().expect_one_of(&[code::FILE_IO, code::PARTIAL]);
    assert!(denied.stdout_text().contains("denied"), "{denied}");
    assert!(!stage.at("got").exists());
    plant::text(&stage.at("file"), "words\n");
    let denied = stage.cp().args(["file", &stage.url("theirs/")]).run().expect_one_of(&[code::FILE_IO, code::PARTIAL]);
    assert!(denied.stdout_text().contains("denied"), "{denied}");
    stage.authorize("rw", &stage.at("offered"));
    stage.cp().args(["file", &stage.url("theirs/")]).run().expect(code::OK);
    assert_eq!(fs::metadata(stage.at("offered/theirs/file")).expect("it was copied").uid(), 0);
    stage.authorize("rw user=no-such-user", &stage.at("offered"));
    let unknown = stage.cp().args(["file", &stage.url("x")]).run().expect(code::FILE_IO);
    assert!(unknown.stdout_text().contains("no such user"), "{unknown}");
}

#[test]
fn a_session_gives_up_what_it_does_not_need() {
    needs!(Haul);
    let stage = Stage::new("rw");
    plant::text(&stage.at("file"), "words\n");
    for run in [
        stage.cp().args(["file", &stage.url("file")]).run().expect(code::OK),
        stage.cp().args([&stage.url("file"), "back"]).run().expect(code::OK),
    ] {
        let rights: Vec<_> = run.events_named("chose").into_iter().filter(|event| event["what"] == "rights").collect();
        assert_eq!(rights.len(), 1, "{run}");
        if rights[0]["choice"] != "nothing outside of the tree" {
            let why = &rights[0]["reason"];
            assert!(std::env::var_os("CI").is_none(), "it cannot be seen here: {why}");
            eprintln!("skipped: {why}");
        }
    }
    let daemon = stage.daemon.as_ref().expect("it runs").id();
    let status = fs::read_to_string(format!("/proc/{daemon}/status")).expect("it runs");
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    // A process that cannot be dumped is root's in /proc.
    assert_eq!(fs::metadata(format!("/proc/{daemon}/environ")).expect("it runs").uid(), 0);
}

/// Much more than the 256 MiB between checkpoints.
const SIZE: u64 = 400 << 20;

#[test]
fn a_signal_ends_the_daemon_and_its_sessions_and_the_copy_goes_on_later() {
    needs!(Haul);
    let mut stage = Stage::new("rw");
    plant::file(&stage.at("file"), SIZE, 1);
    let mut copy = stage.cp().args(["--rate", "100MB", "file", &stage.url("file")]).start();
    copy.when_moved(SIZE / 4);
    let begun = Instant::now();
    let ended = stage.stop(Signal::TERM).expect(code::OK);
    assert!(begun.elapsed() < Duration::from_secs(5), "{ended}");
    copy.wait().expect(code::NETWORK).says_one_of(&["the daemon is being stopped", "ended the session"]);
    assert!(!stage.at("offered/file").exists());
    stage.start();
    let run = stage.cp().args(["file", &stage.url("file")]).run().expect(code::OK);
    assert!(run.count("bytes_moved") < SIZE, "{run}");
    assert_same(&stage.at("file"), &stage.at("offered/file"), Facets::PLAIN);
}

#[test]
fn a_daemon_that_is_killed_and_started_again_lets_the_copy_go_on() {
    needs!(Haul);
    const MOVED: u64 = 320 << 20;
    let mut stage = Stage::new("rw");
    plant::file(&stage.at("file"), SIZE, 1);
    plant::file(&stage.at("offered/theirs"), SIZE, 2);
    let (push, pull) = (["file".into(), stage.url("file")], [stage.url("theirs"), "back".into()]);
    let (pushed, pulled) =
        ((stage.at("file"), stage.at("offered/file")), (stage.at("offered/theirs"), stage.at("back")));
    for (paths, (source, target)) in [(push, pushed), (pull, pulled)] {
        let mut copy = stage.cp().args(["--rate", "160MB"]).args(&paths).start();
        copy.when_moved(MOVED);
        let killed = Instant::now();
        let ended = stage.stop(Signal::KILL);
        assert_eq!(ended.code(), 128 + 9, "{ended}");
        // The daemon notices the end itself, not silence.
        copy.wait().expect_one_of(&[code::NETWORK, code::PROTOCOL]).says(&["run the same command again"]);
        assert!(killed.elapsed() < Duration::from_secs(20), "{:?}", killed.elapsed());
        assert!(!target.exists());
        stage.start();
        let run = stage.cp().args(&paths).run().expect(code::OK);
        assert!(run.count("bytes_moved") <= SIZE - MOVED + (256 << 20), "{run}");
        assert_same(&source, &target, Facets::PLAIN);
    }
}

#[test]
fn a_client_that_dies_leaves_no_session() {
    needs!(Haul);
    let stage = Stage::new("rw");
    plant::file(&stage.at("file"), 200 << 20, 1);
    let mut copy = stage.cp().args(["--rate", "20MB", "file", &stage.url("file")]).start();
    copy.when_moved(8 << 20);
    copy.kill();
    stage.eventually_logs("session 1: client (127.");
    eventually("the session ends", Duration::from_secs(10), || {
        stage.log().lines().any(|line| line.contains("session 1:") && line.contains("failed"))
    });
}

#[test]
fn an_interrupted_client_ends_its_session_and_what_had_moved_stays() {
    needs!(Haul);
    const SIZE: u64 = 120 << 20;
    const MOVED: u64 = 60 << 20;
    let stage = Stage::new("rw");
    plant::file(&stage.at("file"), SIZE, 1);
    plant::file(&stage.at("offered/theirs"), SIZE, 2);
    let (push, pull) = (["file".into(), stage.url("file")], [stage.url("theirs"), "back".into()]);
    let (pushed, pulled) =
        ((stage.at("file"), stage.at("offered/file")), (stage.at("offered/theirs"), stage.at("back")));
    for (session, (signal, paths, (source, target))) in
        (1..).zip([(Signal::TERM, push, pushed), (Signal::INT, pull, pulled)])
    {
        let mut copy = stage.cp().args(["--rate", "40MB"]).args(&paths).start();
        copy.when_moved(MOVED);
        copy.signal(signal);
        let begun = Instant::now();
        let ended = copy.wait().expect(code::INTERRUPTED);
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?} to end\n{ended}", begun.elapsed());
        let first = format!("session {}:", 2 * session - 1);
        eventually("the session ends", Duration::from_secs(10), || {
            stage.log().lines().any(|line| line.contains(&first) && line.contains("failed"))
        });
        assert!(!target.exists());
        // The first run ended with a checkpoint.
        let run = stage.cp().args(&paths).run().expect(code::OK);
        assert!(run.count("bytes_moved") <= SIZE - MOVED, "{run}");
        assert_same(&source, &target, Facets::PLAIN);
    }
}

#[test]
fn keys_are_made_once_and_shown() {
    needs!(Haul);
    let dir = haul_e2e::scratch();
    let program = haul_e2e::binary::find().expect("asked for with needs!");
    let key = || Run::new(&program).env("HOME", dir.path()).arg("key");
    let made = first_key(&key().arg("generate").run().expect(code::OK).stdout_text());
    let file = dir.path().join(".config/haul/id_ed25519");
    assert_eq!(fs::metadata(&file).expect("it was made").permissions().mode() & 0o777, 0o600);
    let shown = key().arg("show").run().expect(code::OK).stdout_text();
    assert_eq!(
        (first_key(&shown), shown.lines().count()),
        (made.clone(), 1),
        "a line for a list of keys, and nothing else"
    );
    key().arg("generate").run().expect(code::FILE_IO).says(&["there is one already"]);
    assert_ne!(first_key(&key().args(["generate", "--force"]).run().expect(code::OK).stdout_text()), made);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("own file");
    key().arg("show").run().expect(code::AUTHENTICATION).says(&["others may read it"]);
    for host in ["", "host/path", "host:0", "user@host", "-x"] {
        let run = key().args(["trust", "--", host, &made]).run();
        assert_eq!(run.code(), code::USAGE, "{run}");
    }
    key().args(["trust", "host", "nonsense"]).run().expect(code::USAGE).says(&["is no key"]);
}
