//! `haul cp --detach` over ssh goes on when the terminal closes, by itself and as a service of the user's systemd.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use haul_e2e::{Facets, Lab, Running, UserManager, assert_same, at, code, eventually, needs, plant, user_manager};
use rustix::process::Signal;
use serde_json::Value;

const SIZE: u64 = 48 << 20;

/// The copy takes some six seconds.
const RATE: &str = "8MB";

struct Desk {
    lab: Lab,
    source: PathBuf,
    /// Made once the shell was told that its terminal closed.
    hung_up: PathBuf,
}

impl Desk {
    fn new() -> Self {
        let lab = Lab::pair();
        let home = lab.data("home");
        plant::file(&home.join("file"), SIZE, 1);
        Self { source: home.join("file"), hung_up: home.join("hung-up"), lab }
    }

    /// Types into a new terminal, and waits for the prompt. script(1) is the terminal; a shell leads its session.
    fn types(&self, before: &str, command: &str) -> Running {
        let haul = haul_e2e::binary::find().expect("asked for with needs!");
        let shell = format!(
            "{before}\ntrap 'touch {}; exit' HUP\n{} {command}\necho prompt\nwhile :; do sleep 1; done",
            self.hung_up.display(),
            haul.display(),
        );
        let terminal =
            self.lab.home().run("unshare").args(["--mount", "script", "-q", "-e", "-c", &shell, "/dev/null"]);
        let mut running =
            terminal.env("USER", "root").env("SHELL", "/bin/sh").current_dir(self.lab.data("home")).start();
        running.when("the prompt is back", |running| {
            String::from_utf8_lossy(&running.stdout_so_far()).lines().any(|line| line.trim() == "prompt")
        });
        running
    }

    fn closes(&self, terminal: Running) {
        terminal.signal(Signal::KILL);
        drop(terminal.wait());
        eventually("the shell hears that its terminal is gone", Duration::from_secs(10), || self.hung_up.exists());
        fs::remove_file(&self.hung_up).expect("own directory");
    }

    fn copy(&self, target: &str, more: &str) -> String {
        let (config, target) = (self.lab.ssh_config(), self.target(target));
        format!("cp --detach {more} -F {} file alpha:{}", config.display(), target.display())
    }

    fn target(&self, name: &str) -> PathBuf {
        self.lab.data("alpha").join(name)
    }

    fn says(&self, line: &[&str]) -> String {
        self.lab.haul().args(line).run().expect(code::OK).stdout_text()
    }

    fn status(&self, id: &str) -> Value {
        let shown: Value = serde_json::from_str(&self.says(&["status", "--json", id])).expect("JSON");
        shown["copies"][0].clone()
    }

    fn moved(&self, id: &str) -> u64 {
        self.status(id)["now"]["bytes_moved"].as_u64().unwrap_or(0)
    }

    fn until(&self, id: &str, state: &str) -> Value {
        eventually(&format!("copy {id} is {state}"), Duration::from_secs(60), || self.status(id)["state"] == state);
        self.status(id)
    }

    /// Checks that the copy goes on when the terminal closes, is seen, and tells its end.
    fn goes_on(&self, before: &str, keeper: &str) {
        let told = self.lab.data("home").join("told");
        let notify = format!("--rate {RATE} --notify 'dd status=none of={}'", told.display());
        let terminal = self.types(before, &self.copy("went-on", &notify));
        self.closes(terminal);

        let at_closing = self.moved("1");
        eventually("it moves data", Duration::from_secs(30), || self.moved("1") > at_closing + (1 << 20));
        let status = self.until("1", "running");
        assert_eq!(status["keeper"], keeper, "{status}");
        assert!(status["now"]["eta_s"].as_u64().is_some_and(|left| left < 60), "{status}");
        let said = self.says(&["status"]);
        assert!(said.contains("  1  running") && said.contains(" left") && said.contains("file -> alpha:"), "{said}");

        let ended = self.until("1", "ended");
        assert_eq!(ended["ended"]["exit_code"], 0, "{ended}");
        assert_same(&self.source, &self.target("went-on"), Facets::PLAIN);
        let log = self.says(&["log", "1"]);
        assert!(log.contains("copied 1 file, 48.0 MiB") && log.contains("verified BLAKE3"), "{log}");
        let report: Value = serde_json::from_slice(&fs::read(&told).expect("somebody was told")).expect("JSON");
        assert_eq!(report["report"]["files_moved"], 1, "{report}");
    }

    /// Checks that the same command goes on after `haul stop`.
    fn stops(&self, before: &str) {
        let told = self.lab.data("home").join("told-of-the-stop");
        let notify = format!("--rate 1MB --notify 'dd status=none of={}'", told.display());
        let terminal = self.types(before, &self.copy("stopped", &notify));
        self.closes(terminal);
        eventually("it moves data", Duration::from_secs(30), || self.moved("2") > 1 << 20);
        assert!(self.says(&["stop", "2"]).contains("copy 2 has stopped"));
        let ended = self.until("2", "ended");
        assert_eq!(ended["ended"]["result"], "interrupted", "{ended}");
        let report: Value = serde_json::from_slice(&fs::read(&told).expect("somebody was told")).expect("JSON");
        assert_eq!(report["error"]["fault"], "interrupted", "{report}");
        self.lab.alpha().expect_no_haul_left(Duration::from_secs(10));
        assert!(!self.target("stopped").exists());
        let again = self.lab.cp().arg(&self.source).arg(at("alpha", self.target("stopped"))).run().expect(code::OK);
        assert_same(&self.source, &self.target("stopped"), Facets::PLAIN);
        let report = again.report();
        assert!(report["bytes_read_again"].as_u64().is_some_and(|bytes| bytes > 0), "{again}");
    }
}

#[test]
fn a_copy_over_ssh_goes_on_when_its_terminal_closes() {
    needs!(Namespaces, Haul, Tool("script"), Tool("unshare"));
    let desk = Desk::new();
    desk.goes_on("", "session");
    desk.stops("");
}

#[test]
fn a_copy_of_a_user_who_lingers_is_a_service_of_the_users_systemd() {
    needs!(Namespaces, Haul, Tool("script"), UserManager);
    let desk = Desk::new();
    let manager = UserManager::start(desk.lab.home());
    let lingers = user_manager::who_lingers();
    desk.goes_on(lingers, "service");
    desk.stops(lingers);
    // The manager's child has its log's name.
    let slow = desk.types(lingers, &desk.copy("third", "--rate 1MB"));
    desk.closes(slow);
    let pid = desk.until("3", "running")["pid"].as_u64().expect("a number");
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)).expect("proc(5)");
    assert_eq!(parent, manager.id().to_string());
    let units = desk.lab.home().run("systemctl").args(["--user", "list-units", "--plain", "haul-copy-*"]).run();
    assert!(units.expect(code::OK).stdout_text().contains("haul copy 3"));
    desk.says(&["stop", "3"]);
}

/// Copies by a detached copy that would take an hour; then without limit.
fn is_let_go(lab: &Lab, source: &std::ffi::OsStr, target: &std::path::Path, target_at: &std::ffi::OsStr) {
    let says = |line: &[&str]| lab.haul().args(line).run().expect(code::OK).stdout_text();
    let begun = lab
        .haul()
        .args(["cp", "--detach", "--json", "--rate", "64kbit", "-F"])
        .arg(lab.ssh_config())
        .args([source, target_at]);
    let begun: Value = serde_json::from_str(&begun.run().expect(code::OK).stdout_text()).expect("JSON");
    let id = begun["id"].to_string();
    assert_eq!(says(&["rate", &id]), format!("copy {id}: at most 64.0 kbit/s\n"));
    assert_eq!(says(&["rate", &id, "none"]), format!("copy {id}: no limit from now on\n"));
    says(&["wait", &id]);
    assert_eq!(fs::metadata(target).expect("it came").len(), SIZE);
    let log = says(&["log", &id]);
    assert!(log.contains(r#"{"event":"rate_limit","limit_bytes_per_s":null"#), "{log}");
}

/// The sender keeps the limit: here, at another host, or at one of two others.
#[test]
fn the_rate_of_a_running_copy_is_changed_whoever_sends() {
    needs!(Namespaces, Haul);
    let lab = Lab::triangle();
    let (here, alpha, beta) = (lab.data("home"), lab.data("alpha"), lab.data("beta"));
    plant::file(&here.join("file"), SIZE, 1);
    is_let_go(&lab, here.join("file").as_os_str(), &alpha.join("away"), &at("alpha", alpha.join("away")));
    is_let_go(&lab, &at("alpha", alpha.join("away")), &here.join("back"), here.join("back").as_os_str());
    is_let_go(&lab, &at("alpha", alpha.join("away")), &beta.join("across"), &at("beta", beta.join("across")));
    assert_same(&here.join("file"), &here.join("back"), Facets::PLAIN);
    assert_same(&here.join("file"), &beta.join("across"), Facets::PLAIN);
}

/// The limit of most of the copy's time counts, not that of its flags.
#[test]
fn why_names_the_limit_that_held() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    plant::file(&lab.data("home").join("file"), 4 << 20, 1);
    let target = at("alpha", lab.data("alpha").join("file"));
    let says = |line: &[&str]| lab.haul().args(line).run().expect(code::OK).stdout_text();
    let begun = lab.haul().args(["cp", "--detach", "--rate", "8kbit", "-F"]).arg(lab.ssh_config());
    begun.arg(lab.data("home").join("file")).arg(target).run().expect(code::OK);
    says(&["rate", "1", "00:00-24:00 6Mbit, else 5Gbit"]);
    says(&["wait", "1"]);
    let why = says(&["why"]);
    assert!(why.contains("Raise the rate limit of 6.00 Mbit/s, or leave it out."), "{why}");
}

/// A copy that is let go can ask nobody, so its login must need no question.
#[test]
fn a_question_of_ssh_that_nobody_answers_is_told_with_what_to_do() {
    needs!(Namespaces, Haul, Tool("ssh-keygen"));
    let lab = Lab::pair();
    let file = lab.data("home").join("file");
    plant::file(&file, SIZE, 1);
    let locked = lab.data("home").join("locked");
    fs::copy(lab.identity(), &locked).expect("own directory");
    fs::set_permissions(&locked, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("own file");
    let change = lab.home().run("ssh-keygen").args(["-q", "-p", "-P", "", "-N", "secret", "-f"]).arg(&locked);
    change.run().expect(code::OK);
    let text = fs::read_to_string(lab.ssh_config()).expect("the lab made it");
    let with_locked = lab.data("home").join("config");
    plant::text(&with_locked, &text.replace(&*lab.identity().to_string_lossy(), &locked.to_string_lossy()));
    let detach_by = |config: &std::path::Path, options: &[&str]| {
        let mut run = lab.haul().args(["cp", "--detach", "-o", "BatchMode=no"]);
        for option in options {
            run = run.args(["-o", option]);
        }
        run.arg("-F").arg(config).arg(&file).arg(at("alpha", lab.data("alpha").join("file")))
    };
    let detach = |options: &[&str]| detach_by(&lab.ssh_config(), options);
    let unknown = ["UserKnownHostsFile=/dev/null", "StrictHostKeyChecking=ask"];
    // One login can be kept, one cannot.
    for more in [&[][..], &["ControlPath=none"]] {
        let run = detach_by(&with_locked, more).run().expect(code::AUTHENTICATION);
        run.says(&["nobody is here to answer it", "Enter passphrase for key", "ssh-add"]);
        let run = detach(&[&unknown, more].concat()).run().expect(code::AUTHENTICATION);
        run.says(&["nobody is here to answer it", "fingerprint", "log in once with: ssh alpha"]);
    }
    lab.alpha().restart_sshd("PubkeyAuthentication no\nPasswordAuthentication yes\nPermitRootLogin yes");
    detach(&[]).run().expect(code::AUTHENTICATION).says(&["root@", "password", "ssh-copy-id alpha"]);

    // A good login is needed once more.
    lab.alpha().restart_sshd("");
    let begun = detach(&[]).args(["--no-keep-login", "--rate", "64kbit", "--json"]).run().expect(code::OK);
    let begun: Value = serde_json::from_str(&begun.stdout_text()).expect("JSON");
    let id = begun["id"].to_string();
    lab.alpha().restart_sshd("PubkeyAuthentication no\nPasswordAuthentication yes\nPermitRootLogin yes");
    lab.alpha().kill_haul();
    lab.haul().args(["wait", &id]).run().expect(code::AUTHENTICATION);
    for command in ["status", "log"] {
        let said = lab.haul().args([command, &id]).run().expect(code::OK).stdout_text();
        for words in ["nobody is here to answer it", "password", "ssh-copy-id alpha"] {
            assert!(said.contains(words), "{command}: {said}");
        }
    }
}
