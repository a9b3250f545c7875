//! A path to the daemon that changes bytes, holds them back, or ends.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use haul_e2e::compare::{names_below, path_of};
use haul_e2e::{Facets, Fate, Harm, Outcome, Proxy, assert_same, code, contents_of, eventually, needs, plant};

use crate::{STAGES, Stage};

/// A tree with a file of several chunks and many small ones, copied through a harmful proxy.
struct Harmed {
    stage: Stage,
    /// The proxy, which the client takes for the daemon.
    proxy: SocketAddrV4,
}

impl Harmed {
    fn new() -> Self {
        let stage = Stage::new("rw");
        plant::many(&stage.at("tree/many"), 200, 1000, 1);
        plant::file(&stage.at("tree/large"), 12 << 20, 2);
        plant::date(&stage.at("tree"), 3);
        let [a, b, c, _] = stage.address.ip().octets();
        let proxy = SocketAddrV4::new(Ipv4Addr::new(a, b, c, STAGES.fetch_add(1, Ordering::Relaxed)), 7632);
        let trust = ["key", "trust", &proxy.to_string(), &stage.daemon_key()];
        stage.haul("client").args(trust).run().expect(code::OK);
        Self { stage, proxy }
    }

    /// Returns the outcome, and the number of harmed connections.
    fn copy(&self, push: bool, fate: impl Fn(usize) -> Fate + Send + 'static) -> (Outcome, usize) {
        let proxy = Proxy::start(SocketAddr::V4(self.proxy), SocketAddr::V4(self.stage.address), fate);
        let cp = self.stage.cp().args(["--lanes", "3", "--timeout", "5"]).limit(Duration::from_secs(60));
        let (from, to) = (contents_of(&self.stage.at("tree")), format!("haul://{}/to", self.proxy));
        let back = format!("haul://{}/from/", self.proxy);
        let run = if push { cp.arg(from).arg(to).run() } else { cp.arg(back).arg(self.stage.at("to")).run() };
        (run, proxy.harmed())
    }

    fn target(&self, push: bool) -> PathBuf {
        self.stage.at(if push { "offered/to" } else { "to" })
    }

    fn no_session_is_left(&self) -> bool {
        let log = self.stage.log();
        let lines = || log.lines().filter_map(|line| line.split_once("session ")?.1.split_once(": "));
        let has_ended = |number: &str| {
            lines().any(|(of, what)| of == number && (what.contains(" ended well: ") || what.contains(" failed: ")))
        };
        lines().all(|(number, _)| has_ended(number))
    }

    /// Harms each lane and the control connection, in either direction, for pushes and pulls. A harmed lane ends the copy
    /// with `lane_harmed`; a harmed control connection may end it in several ways. Each file with its final name is right,
    /// and the command over a good path brings the rest, within `limit`.
    fn check(&self, harms: &[Harm], lane_harmed: i32, limit: Duration) {
        for push in [true, false] {
            if !push {
                fs::rename(self.stage.at("offered/to"), self.stage.at("offered/from")).expect("it was made");
            }
            for (harm, connection, is_forth) in
                harms.iter().flat_map(|harm| CONNECTIONS.map(|(connection, is_forth)| (*harm, connection, is_forth)))
            {
                if place(harm) > least_that_passes(connection, is_forth == push) {
                    continue;
                }
                let case = format!("{harm:?} on {connection:?}, forth {is_forth}, push {push}");
                let number = connection as usize;
                let fate = move |at| match (at == number, is_forth) {
                    (false, _) => Fate::GOOD,
                    (true, true) => Fate { forth: harm, ..Fate::GOOD },
                    (true, false) => Fate { back: harm, ..Fate::GOOD },
                };
                // On a busy machine the other lanes may carry everything first.
                let run = (0..TRIES).find_map(|_| {
                    let _ = fs::remove_dir_all(self.target(push));
                    let (run, harmed) = self.copy(push, fate);
                    (harmed > 0).then_some(run)
                });
                let run = run.unwrap_or_else(|| panic!("{case}: no harm was done in {TRIES} tries"));
                assert!(run.elapsed < limit, "{case}: after {:?}\n{run}", run.elapsed);
                let ended = run.code();
                match connection {
                    Connection::Control => assert!(BROKEN.contains(&ended) || ended == code::OK, "{case}\n{run}"),
                    _ => assert_eq!(ended, lane_harmed, "{case}\n{run}"),
                }
                if ended == code::OK {
                    assert_same(&self.stage.at("tree"), &self.target(push), Facets::PLAIN);
                    continue;
                }
                eventually("the daemon has given it up", Duration::from_secs(20), || self.no_session_is_left());
                // If the control connection ended early, nothing was made.
                let begun = self.target(push).exists();
                let names = if begun { names_below(&self.target(push)) } else { Vec::new() };
                for name in names.into_iter().filter(|name| !is_unfinished(name)) {
                    let (from, to) =
                        (self.stage.at("tree").join(path_of(&name)), self.target(push).join(path_of(&name)));
                    let same =
                        from.is_dir() || fs::read(&from).expect("own file") == fs::read(&to).expect("it was copied");
                    assert!(same, "{case}: {} is wrong\n{run}", to.display());
                }
                self.copy(push, |_| Fate::GOOD).0.expect(code::OK);
                assert_same(&self.stage.at("tree"), &self.target(push), Facets::PLAIN);
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Connection {
    Control = 0,
    FirstLane = 1,
    SecondLane = 2,
}

const CONNECTIONS: [(Connection, bool); 4] = [
    (Connection::Control, true),
    (Connection::Control, false),
    (Connection::FirstLane, true),
    (Connection::SecondLane, false),
];

const TRIES: usize = 5;

fn place(harm: Harm) -> u64 {
    match harm {
        Harm::Flip(at) | Harm::Cut(at) | Harm::Stall(at) => at,
        Harm::None | Harm::Split(_) | Harm::Trickle(_) | Harm::AfterNext => 0,
    }
}

/// At least so many bytes pass in this direction, or the data's.
fn least_that_passes(connection: Connection, with_the_data: bool) -> u64 {
    match (connection, with_the_data) {
        // The listing, or each entry's outcome.
        (Connection::Control, _) => 3_000,
        // A third of the tree, or less if other lanes are faster.
        (_, true) => 2_000_000,
        (_, false) => 100,
    }
}

fn is_unfinished(name: &[u8]) -> bool {
    name.rsplit(|byte| *byte == b'/').next().is_some_and(|name| name.starts_with(b".haul-"))
}

/// Exit codes for a harmed control connection.
const BROKEN: [i32; 4] = [code::AUTHENTICATION, code::NETWORK, code::PROTOCOL, code::TIMEOUT];

/// A handshake has 10 s, and `--timeout` notices silence after 5 s; the kernel alone would take minutes.
const SOON: Duration = Duration::from_secs(30);

#[test]
fn a_changed_byte_anywhere_between_the_programs_is_found() {
    needs!(Haul);
    let harms = [Harm::Flip(20), Harm::Flip(400), Harm::Flip(3_000), Harm::Flip(1_000_000)];
    Harmed::new().check(&harms, code::OK, SOON);
}

#[test]
fn a_connection_that_is_cut_anywhere_costs_no_more_than_the_same_command_again() {
    needs!(Haul);
    let harms = [Harm::Cut(0), Harm::Cut(500), Harm::Cut(100_000), Harm::Cut(1_500_000)];
    Harmed::new().check(&harms, code::OK, SOON);
}

#[test]
fn a_connection_that_stands_still_before_its_hand_is_shaken_is_given_up_and_a_lane_is_not_waited_for() {
    needs!(Haul);
    Harmed::new().check(&[Harm::Stall(100)], code::OK, SOON);
}

#[test]
fn a_connection_on_which_nothing_passes_any_more_ends_within_the_time_limit() {
    needs!(Haul);
    // The job fails without the stalled lane's chunk.
    Harmed::new().check(&[Harm::Stall(2_500)], code::TIMEOUT, SOON);
}

#[test]
fn bytes_in_small_pieces_and_connections_in_another_order_change_nothing() {
    needs!(Haul);
    let harmed = Harmed::new();
    for harm in [Harm::Split(7), Harm::AfterNext] {
        for number in 0..3 {
            let _ = fs::remove_dir_all(harmed.target(true));
            let (run, done) =
                harmed.copy(true, move |at| if at == number { Fate { forth: harm, back: harm } } else { Fate::GOOD });
            run.expect(code::OK);
            assert!(done > 0, "{harm:?} on connection {number}");
            assert_same(&harmed.stage.at("tree"), &harmed.target(true), Facets::PLAIN);
        }
    }
}

#[test]
fn a_connection_that_trickles_from_its_first_byte_holds_up_no_other() {
    needs!(Haul);
    let harmed = Harmed::new();
    let fate = |at| if at == 2 { Fate { forth: Harm::Trickle(20), ..Fate::GOOD } } else { Fate::GOOD };
    let (run, done) = harmed.copy(true, fate);
    run.expect(code::OK);
    assert!(done > 0, "its bytes came one by one");
    assert_same(&harmed.stage.at("tree"), &harmed.target(true), Facets::PLAIN);
}
