//! A path between client and daemon on which bytes change, are held back or come to an end.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use haul_e2e::compare::{names_below, path_of};
use haul_e2e::{Facets, Fate, Harm, Outcome, Proxy, assert_same, code, contents_of, needs, plant};

use crate::{STAGES, Stage};

/// A tree with a file of several chunks and many small ones, which the client copies through a proxy that does harm.
struct Harmed {
    stage: Stage,
    /// The daemon, as the client reaches it.
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

    /// A copy, to the daemon or from it. Returns it, and how often harm was done.
    fn copy(&self, push: bool, fate: impl Fn(usize) -> Fate + Send + 'static) -> (Outcome, usize) {
        let proxy = Proxy::start(SocketAddr::V4(self.proxy), SocketAddr::V4(self.stage.address), fate);
        let cp = self.stage.cp().args(["--lanes", "3", "--timeout", "5"]).limit(Duration::from_secs(60));
        let (from, to) = (contents_of(&self.stage.at("tree")), format!("haul://{}/to", self.proxy));
        let back = format!("haul://{}/from/", self.proxy);
        let run = if push { cp.arg(from).arg(to).run() } else { cp.arg(back).arg(self.stage.at("to")).run() };
        (run, proxy.harmed())
    }

    /// Where it goes.
    fn target(&self, push: bool) -> PathBuf {
        self.stage.at(if push { "offered/to" } else { "to" })
    }

    /// Does this to the connections one by one, in either direction and both ways of copying. Whatever becomes of a copy: what has its
    /// name is right, and the same command over a good path brings the rest.
    fn check(&self, harms: &[Harm], allowed: &[i32]) {
        let mut done = 0;
        for push in [true, false] {
            if !push {
                fs::rename(self.stage.at("offered/to"), self.stage.at("offered/from")).expect("it was made");
            }
            for (harm, number, is_forth) in
                harms.iter().flat_map(|harm| [(*harm, 0, true), (*harm, 1, true), (*harm, 2, false)])
            {
                let _ = fs::remove_dir_all(self.target(push));
                let fate = move |at| match (at == number, is_forth) {
                    (false, _) => Fate::GOOD,
                    (true, true) => Fate { forth: harm, ..Fate::GOOD },
                    (true, false) => Fate { back: harm, ..Fate::GOOD },
                };
                let (run, harmed) = self.copy(push, fate);
                done += harmed;
                let what = format!("{harm:?} on connection {number}, forth {is_forth}, push {push}");
                let run = run.expect_one_of(allowed);
                // Where the control connection ended early nothing was begun.
                let begun = self.target(push).exists();
                let names = if begun { names_below(&self.target(push)) } else { Vec::new() };
                for name in names.into_iter().filter(|name| !is_unfinished(name)) {
                    let (from, to) =
                        (self.stage.at("tree").join(path_of(&name)), self.target(push).join(path_of(&name)));
                    let same =
                        from.is_dir() || fs::read(&from).expect("own file") == fs::read(&to).expect("it was copied");
                    assert!(same, "{what}: {} is wrong\n{run}", to.display());
                }
                self.copy(push, |_| Fate::GOOD).0.expect(code::OK);
                assert_same(&self.stage.at("tree"), &self.target(push), Facets::PLAIN);
            }
        }
        assert!(done > 0, "no harm was done");
    }
}

fn is_unfinished(name: &[u8]) -> bool {
    name.rsplit(|byte| *byte == b'/').next().is_some_and(|name| name.starts_with(b".haul-"))
}

/// What a copy may end with whose control connection was harmed; lanes are only replaced.
const OK_OR_BROKEN: [i32; 5] = [code::OK, code::AUTHENTICATION, code::NETWORK, code::PROTOCOL, code::TIMEOUT];

#[test]
fn a_changed_byte_anywhere_between_the_programs_is_found() {
    needs!(Haul);
    Harmed::new().check(&[Harm::Flip(20), Harm::Flip(400), Harm::Flip(3_000), Harm::Flip(1_000_000)], &OK_OR_BROKEN);
}

#[test]
fn a_connection_that_is_cut_anywhere_costs_no_more_than_the_same_command_again() {
    needs!(Haul);
    Harmed::new().check(&[Harm::Cut(0), Harm::Cut(500), Harm::Cut(100_000), Harm::Cut(1_500_000)], &OK_OR_BROKEN);
}

#[test]
fn a_connection_on_which_nothing_passes_any_more_ends_within_the_time_limit() {
    needs!(Haul);
    Harmed::new().check(&[Harm::Stall(100), Harm::Stall(1_000_000)], &OK_OR_BROKEN);
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
