//! The control connection dies or the client's address changes; the copy goes on without a login.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use haul_e2e::{Facets, Lab, Outcome, Run, assert_same, at, code, eventually, needs, plant};

use crate::daemon::Daemon;

const SIZE: u64 = 300 << 20;

/// A copy takes some five seconds.
const RATE: [&str; 4] = ["--rate", "60MB", "--lanes", "4"];

pub struct OverSsh {
    pub lab: Lab,
    pub source: PathBuf,
    pub target: PathBuf,
    is_push: bool,
}

impl OverSsh {
    pub fn new(is_push: bool) -> Self {
        let lab = Lab::pair();
        let (from, to) = if is_push { ("home", "alpha") } else { ("alpha", "home") };
        let (source, target) = (lab.data(from).join("file"), lab.data(to).join("copy"));
        plant::file(&source, SIZE, 1);
        Self { lab, source, target, is_push }
    }

    pub fn command(&self) -> Run {
        let command = self.lab.cp().args(RATE);
        match self.is_push {
            true => command.arg(&self.source).arg(at("alpha", &self.target)),
            false => command.arg(at("alpha", &self.source)).arg(&self.target),
        }
    }

    fn logins(&self) -> usize {
        self.lab.alpha().sshd_log().matches("Accepted publickey").count()
    }

    /// Checks that it went well, with one login, and left nobody behind.
    #[track_caller]
    fn went_on(&self, run: Outcome) {
        let run = run.expect(code::OK);
        assert_same(&self.source, &self.target, Facets::PLAIN);
        assert_eq!(self.logins(), 1, "{run}");
        self.lab.alpha().expect_no_haul_left(Duration::from_secs(10));
    }
}

#[test]
fn the_ssh_session_is_killed_at_either_end_and_the_copy_goes_on() {
    needs!(Namespaces, Haul);
    for (is_push, killed_at) in [(true, "home"), (true, "alpha"), (false, "home"), (false, "alpha")] {
        let copy = OverSsh::new(is_push);
        let mut running = copy.command().start();
        running.when_moved(SIZE / 5);
        let host = copy.lab.host(killed_at);
        let victims = match killed_at {
            "home" => host.processes_named("ssh"),
            _ => host.processes_named("sshd-session").into_iter().chain(sessions(&copy)).collect(),
        };
        assert!(!victims.is_empty(), "no ssh at {killed_at}");
        victims.into_iter().for_each(|pid| host.kill(pid));
        let begun = Instant::now();
        copy.went_on(running.wait());
        assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    }
}

/// sshd's processes for one session, as older versions name them.
fn sessions(copy: &OverSsh) -> Vec<u32> {
    let all = copy.lab.alpha().processes_named("sshd");
    let listens =
        |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().contains("sshd_config");
    all.into_iter().filter(|pid| !listens(pid)).collect()
}

#[test]
fn a_client_whose_address_changes_goes_on_over_ssh_without_a_new_login() {
    needs!(Namespaces, Haul);
    for is_push in [true, false] {
        let copy = OverSsh::new(is_push);
        let mut running = copy.command().start();
        running.when_moved(SIZE / 5);
        copy.lab.home().change_address(Ipv4Addr::new(10, 77, 0, 99));
        copy.went_on(running.wait());
    }
}

#[test]
fn a_client_of_a_daemon_whose_address_changes_goes_on() {
    needs!(Namespaces, Haul);
    let daemon = Daemon::start("rw");
    let file = daemon.lab.data("home").join("file");
    plant::file(&file, SIZE, 1);
    let mut running = daemon.haul("cp").args(RATE).arg(&file).arg(daemon.url("file")).start();
    running.when_moved(SIZE / 5);
    daemon.lab.home().change_address(Ipv4Addr::new(10, 77, 0, 99));
    running.wait().expect(code::OK);
    assert_same(&file, &daemon.offered.join("file"), Facets::PLAIN);
    eventually("the session has ended well", Duration::from_secs(5), || daemon.log().contains("ended well"));
    assert!(!daemon.log().contains("session 2"), "{}", daemon.log());
}

/// The agent sees ssh and lanes end together, and waits for nobody.
#[test]
fn a_client_that_is_killed_leaves_no_agent_behind() {
    needs!(Namespaces, Haul);
    for is_push in [true, false] {
        let copy = OverSsh::new(is_push);
        let mut running = copy.command().start();
        running.when_moved(SIZE / 5);
        running.kill();
        copy.lab.alpha().expect_no_haul_left(Duration::from_secs(3));
    }
}

#[test]
fn an_agent_that_is_killed_is_noticed_at_once() {
    needs!(Namespaces, Haul);
    for is_push in [true, false] {
        let copy = OverSsh::new(is_push);
        let mut running = copy.command().start();
        running.when_moved(SIZE / 5);
        copy.lab.alpha().kill_haul();
        let begun = Instant::now();
        running.wait().expect(code::NETWORK);
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    }
}
