//! Several daemons that offer one directory are one end.

use haul_e2e::{Facets, Outcome, Running, assert_same, code, contents_of, needs, plant};
use rustix::process::Signal;
use serde_json::Value;

use super::{Stage, first_key};

/// The divided file takes three seconds at [`RATE`].
const LARGE_BYTES: u64 = 60 << 20;

/// Slow enough to be killed in the middle.
const RATE: [&str; 2] = ["--rate", "20MB"];

/// A client and two daemons, by default with the first's directory.
struct Pair {
    one: Stage,
    two: Stage,
}

impl Pair {
    fn new() -> Self {
        let pair = Self { one: Stage::new("rw"), two: Stage::new("rw") };
        let tree = pair.one.at("tree");
        plant::mixed(&tree, 1);
        plant::file(&tree.join("large"), LARGE_BYTES, 2);
        plant::date(&tree, 3);
        pair.one.haul("client").args(["key", "trust", &pair.two.host(), &pair.two.daemon_key()]).run().expect(code::OK);
        pair.second_offers(&pair.one.at("offered"), &pair.client_key());
        pair
    }

    fn client_key(&self) -> String {
        first_key(&self.one.haul("client").args(["key", "show"]).run().expect(code::OK).stdout_text())
    }

    fn second_offers(&self, root: &std::path::Path, key: &str) {
        self.two.write_list(&format!("rw root={} {key} visitor\n", root.display()));
    }

    fn push(&self, flags: &[&str]) -> Running {
        let hosts = format!("haul://{},{}/in", self.one.host(), self.two.host());
        self.one.cp().args(flags).arg(contents_of(&self.one.at("tree"))).arg(hosts).start()
    }

    fn pull(&self, flags: &[&str]) -> Running {
        let hosts = format!("haul://{},{}/out/", self.one.host(), self.two.host());
        self.one.cp().args(flags).arg(hosts).arg(self.one.at("back")).start()
    }

    fn offering_the_tree() -> Self {
        let pair = Self::new();
        std::fs::rename(pair.one.at("tree"), pair.one.at("offered/out")).expect("own directory");
        pair
    }

    #[track_caller]
    fn is_back(&self) {
        assert_same(&self.one.at("offered/out"), &self.one.at("back"), Facets::PLAIN);
    }

    #[track_caller]
    fn is_there(&self) {
        assert_same(&self.one.at("tree"), &self.one.at("offered/in"), Facets::PLAIN);
    }
}

/// Bytes that each host got, by path.
fn parts(run: &Outcome) -> Vec<(String, u64)> {
    let paths = run.report()["paths"].as_array().unwrap_or_else(|| panic!("no paths\n{run}")).clone();
    let of = |path: &Value| Some((path["host"].as_str()?.to_owned(), path["bytes"].as_u64()?));
    paths.iter().filter_map(of).collect()
}

#[track_caller]
fn is_left_out(run: &Outcome, host: &str, why: &str) {
    let said = run.stdout_text() + &run.stderr_text();
    assert!(said.contains(&format!("haul://{host} is left out")) && said.contains(why), "{run}");
}

#[test]
fn two_daemons_with_one_directory_are_one_end_and_both_get_data() {
    needs!(Haul);
    let pair = Pair::new();
    let run = pair.push(&RATE).wait().expect(code::OK);
    pair.is_there();
    let parts = parts(&run);
    let [(one, first_bytes), (two, second_bytes)] = &parts[..] else { panic!("{parts:?}\n{run}") };
    assert_eq!((one, two), (&format!("haul://{}", pair.one.host()), &format!("haul://{}", pair.two.host())), "{run}");
    assert!(*first_bytes > 5 << 20 && *second_bytes > 5 << 20, "{parts:?}\n{run}");
    pair.two.eventually_logs("writes for another host to 'in'");
    pair.two.eventually_logs("ended well");
    let again = pair.push(&[]).wait().expect(code::OK);
    assert_eq!(again.count("bytes_moved"), 0, "{again}");
}

#[test]
fn a_host_that_dies_in_the_middle_costs_the_job_nothing_but_what_was_under_way() {
    needs!(Haul);
    let mut pair = Pair::new();
    let mut running = pair.push(&RATE);
    running.when_moved(LARGE_BYTES / 2);
    pair.two.stop(Signal::KILL);
    let run = running.wait().expect(code::OK);
    pair.is_there();
    is_left_out(&run, &pair.two.host(), "");
    let (parts, moved) = (parts(&run), run.count("bytes_moved"));
    assert!(parts.iter().all(|(_, bytes)| *bytes > 1 << 20), "both had a part: {parts:?}\n{run}");
    // Only what the dead host had under way or in memory goes twice.
    assert!(parts[0].1 < moved + (2 << 20), "{parts:?} bytes sent of {moved}\n{run}");
}

#[test]
fn the_death_of_the_leader_ends_the_job_and_the_next_run_goes_on_from_there() {
    needs!(Haul);
    let mut pair = Pair::new();
    let mut running = pair.push(&[&RATE[..], &["--timeout", "5"]].concat());
    running.when_moved(LARGE_BYTES / 2);
    pair.one.stop(Signal::KILL);
    let failed = running.wait();
    assert_ne!(failed.code(), code::OK, "{failed}");
    failed.says(&["run the same command again"]);
    // The second leads now, without the first.
    let run = pair.push(&[]).wait().expect(code::OK);
    pair.is_there();
    is_left_out(&run, &pair.one.host(), "");
    assert!(run.count("bytes_moved") < LARGE_BYTES, "{run}");
}

#[test]
fn a_host_with_another_directory_is_found_out_and_gets_no_byte() {
    needs!(Haul);
    let pair = Pair::new();
    std::fs::create_dir(pair.two.at("offered/in")).expect("own directory");
    pair.second_offers(&pair.two.at("offered"), &pair.client_key());
    let run = pair.push(&RATE).wait().expect(code::OK);
    pair.is_there();
    is_left_out(&run, &pair.two.host(), "does not have the files of the leading host");
    assert_eq!(haul_e2e::compare::names_below(&pair.two.at("offered")), [b"in"], "{run}");
}

#[test]
fn a_host_that_is_down_or_lets_this_key_not_in_is_left_out_with_a_word() {
    needs!(Haul);
    let mut pair = Pair::new();
    pair.second_offers(&pair.one.at("offered"), &pair.two.daemon_key());
    let run = pair.push(&RATE).wait().expect(code::OK);
    pair.is_there();
    is_left_out(&run, &pair.two.host(), "");
    pair.two.stop(Signal::KILL);
    std::fs::remove_dir_all(pair.one.at("offered/in")).expect("own directory");
    let run = pair.push(&RATE).wait().expect(code::OK);
    pair.is_there();
    is_left_out(&run, &pair.two.host(), "");
}

#[test]
fn two_daemons_with_one_directory_are_one_source_and_both_send() {
    needs!(Haul);
    let pair = Pair::offering_the_tree();
    let run = pair.pull(&RATE).wait().expect(code::OK);
    pair.is_back();
    let parts = parts(&run);
    let [(one, first_bytes), (two, second_bytes)] = &parts[..] else { panic!("{parts:?}\n{run}") };
    assert_eq!((one, two), (&format!("haul://{}", pair.one.host()), &format!("haul://{}", pair.two.host())), "{run}");
    assert!(*first_bytes > 5 << 20 && *second_bytes > 5 << 20, "{parts:?}\n{run}");
    pair.two.eventually_logs("reads for another host 'out/'");
    pair.two.eventually_logs("ended well");
    let again = pair.pull(&[]).wait().expect(code::OK);
    assert_eq!(again.count("bytes_moved"), 0, "{again}");
}

#[test]
fn a_host_that_sends_and_dies_in_the_middle_costs_the_job_nothing_but_what_was_under_way() {
    needs!(Haul);
    let mut pair = Pair::offering_the_tree();
    let mut running = pair.pull(&RATE);
    running.when_moved(LARGE_BYTES / 2);
    pair.two.stop(Signal::KILL);
    let run = running.wait().expect(code::OK);
    pair.is_back();
    is_left_out(&run, &pair.two.host(), "");
    // What its lanes had under way.
    assert!(run.count("bytes_again") < 24 << 20, "{run}");
}

#[test]
fn the_death_of_the_leader_that_sends_ends_the_job_and_the_next_run_goes_on_from_there() {
    needs!(Haul);
    let mut pair = Pair::offering_the_tree();
    let mut running = pair.pull(&[&RATE[..], &["--timeout", "5"]].concat());
    running.when_moved(LARGE_BYTES / 2);
    pair.one.stop(Signal::KILL);
    let failed = running.wait();
    assert_ne!(failed.code(), code::OK, "{failed}");
    let run = pair.pull(&[]).wait().expect(code::OK);
    pair.is_back();
    is_left_out(&run, &pair.one.host(), "");
    assert!(run.count("bytes_moved") < LARGE_BYTES, "{run}");
}

#[test]
fn a_source_host_with_other_files_is_found_out_and_sends_no_byte() {
    needs!(Haul);
    let pair = Pair::offering_the_tree();
    // Equal name, size and contents, and another file.
    std::fs::create_dir_all(pair.two.at("offered/out")).expect("own directory");
    std::fs::copy(pair.one.at("offered/out/large"), pair.two.at("offered/out/large")).expect("own file");
    pair.second_offers(&pair.two.at("offered"), &pair.client_key());
    let run = pair.pull(&RATE).wait().expect(code::OK);
    pair.is_back();
    is_left_out(&run, &pair.two.host(), "does not have the files of the leading host");
    assert!(parts(&run).iter().all(|(host, _)| !host.contains(&pair.two.host())), "{run}");
}

#[test]
fn a_source_host_that_is_down_or_lets_this_key_not_in_is_left_out_with_a_word() {
    needs!(Haul);
    let mut pair = Pair::offering_the_tree();
    pair.second_offers(&pair.one.at("offered"), &pair.two.daemon_key());
    let run = pair.pull(&[]).wait().expect(code::OK);
    pair.is_back();
    is_left_out(&run, &pair.two.host(), "");
    pair.two.stop(Signal::KILL);
    std::fs::remove_dir_all(pair.one.at("back")).expect("own directory");
    let run = pair.pull(&[]).wait().expect(code::OK);
    pair.is_back();
    is_left_out(&run, &pair.two.host(), "");
}

#[test]
fn files_in_place_are_written_by_one_host_and_a_word_says_so() {
    needs!(Haul);
    let pair = Pair::new();
    let run = pair.push(&["--inplace"]).wait().expect(code::OK);
    pair.is_there();
    let said = run.stdout_text() + &run.stderr_text();
    assert!(said.contains("one takes part: with --inplace"), "{said}");
    assert!(parts(&run).is_empty() && !pair.two.log().contains("session"), "{run}\n{}", pair.two.log());
}

#[test]
fn one_name_with_the_keys_of_two_hosts_is_one_end_and_both_get_data() {
    needs!(Haul);
    let pair = Pair::new();
    let port = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).expect("loopback").local_addr();
    let port = port.expect("it has one").port();
    let name = format!("localhost:{port}");
    let addresses = std::net::ToSocketAddrs::to_socket_addrs(&name).expect("every host has this name");
    if addresses.filter(|address| address.ip().is_loopback()).count() < 2 {
        return eprintln!("skipped: localhost has one address here");
    }
    let serve = |stage: &Stage, address: &str| {
        let listen = format!("{address}:{port}");
        let mut daemon = stage.haul("server").args(["serve", "--listen", &listen]).start();
        daemon.when("it listens", |daemon| super::said(daemon, "listening on"));
        daemon
    };
    let _both = [serve(&pair.one, "127.0.0.1"), serve(&pair.two, "[::1]")];
    let lines = format!("{name} {}\n{name} {}\n", pair.one.daemon_key(), pair.two.daemon_key());
    std::fs::write(pair.one.at("client/.config/haul/known_hosts"), lines).expect("own file");
    let target = format!("haul://{name}/in");
    let run = pair.one.cp().args(RATE).arg(contents_of(&pair.one.at("tree"))).arg(target).run().expect(code::OK);
    pair.is_there();
    let shares = parts(&run);
    assert!(shares.len() == 2 && shares.iter().all(|(_, bytes)| *bytes > 5 << 20), "{shares:?}\n{run}");
}
