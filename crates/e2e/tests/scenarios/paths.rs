//! One job over several paths: shares, paths that go, come or swallow everything, and MPTCP.
//!
//! Slow links make the data take seconds, with a small machine no limit. The target's devices count what a path carried, not
//! the report.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use haul_e2e::outcome::{json_lines, longest_pause_s};
use haul_e2e::{
    Facets, Joined, Outcome, Run, Running, Ways, assert_same, at, code, contents_of, needs, plant, scratch,
};
use serde_json::Value;

const RATE: &str = "20Mbit";

/// Small, so progress has small steps.
const FILE_BYTES: usize = 64 << 10;

/// 2 s over both links, 4 s over one.
const TREE_BYTES: u64 = 10 << 20;

/// A path that takes part carries at least this share.
const PART: f64 = 0.15;

/// Bound for attempts and words on a path without data.
const WORDS_BYTES: u64 = 300_000;

/// A network, a tree of some [`TREE_BYTES`], and its copy.
struct Trial {
    ways: Ways,
    from: PathBuf,
    to: PathBuf,
    _dir: tempfile::TempDir,
}

impl Trial {
    fn new(joined: Joined, trees: u64) -> Self {
        Self::prepared(joined, trees, ["", ""])
    }

    fn prepared(joined: Joined, trees: u64, before: [&str; 2]) -> Self {
        let dir = scratch();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        plant::many(&from, trees * TREE_BYTES / FILE_BYTES as u64, FILE_BYTES, 1);
        plant::date(&from, 2);
        let ways = Ways::prepared(joined, RATE, dir.path(), before);
        Self { ways, from, to, _dir: dir }
    }

    /// The hosts have addresses of both families.
    fn push(&self, flags: &[&str]) -> Run {
        self.ways.cp().arg("-4").args(flags).arg(contents_of(&self.from)).arg(self.ways.daemon("to"))
    }

    /// Both source devices are in the report, with shares that sum to one.
    #[track_caller]
    fn both_carried(&self, run: &Outcome) {
        assert_same(&self.from, &self.to, Facets::PLAIN);
        let shares = shares(run);
        assert_eq!(shares.iter().map(|(device, _)| device.as_str()).collect::<Vec<_>>(), ["eth0", "eth1"], "{run}");
        assert!(shares.iter().all(|(_, share)| *share > PART), "{shares:?}\n{run}");
        assert!((shares.iter().map(|(_, share)| share).sum::<f64>() - 1.0).abs() < 0.01, "{shares:?}\n{run}");
    }
}

fn paths(run: &Outcome) -> Vec<Value> {
    run.report()["paths"].as_array().unwrap_or_else(|| panic!("the report has no paths\n{run}")).clone()
}

/// Device and share of each path with data, by device.
fn shares(run: &Outcome) -> Vec<(String, f64)> {
    let mut shares: Vec<_> = paths(run)
        .iter()
        .map(|path| {
            (path["device"].as_str().unwrap_or_default().to_owned(), path["share"].as_f64().unwrap_or_default())
        })
        .filter(|(_, share)| *share > 0.0)
        .collect();
    shares.sort_by(|one, other| one.0.cmp(&other.0));
    shares
}

#[track_caller]
fn receives(running: &mut Running, ways: &Ways, device: &str, bytes: u64) -> Duration {
    running.when_moved(1);
    let (before, start) = (ways.received(device).expect("the copy runs"), Instant::now());
    let what = format!("{bytes} bytes through {device}");
    running.when(&what, |_| ways.received(device).is_some_and(|received| received >= before + bytes));
    start.elapsed()
}

fn events(running: &Running) -> Vec<Value> {
    json_lines(&running.stdout_so_far())
}

#[test]
fn the_stage_has_two_ways_and_a_hand_on_each() {
    needs!(Nftables, Boxed);
    let trial = Trial::new(Joined::ThroughRouters, 2);
    let ways = &trial.ways;
    let mut running = trial.push(&["--rate", "1MB"]).start();
    running.when_moved(1);
    let answers =
        |address: &str| ways.on("source", &format!("ping -c 1 -W 1 {address} >/dev/null && echo yes; true")) == "yes\n";
    // The second way has networks 2 and 3.
    assert!(answers("10.99.3.2"));
    ways.swallow("right", true);
    assert!(!answers("10.99.3.2") && answers("10.99.1.2"));
    ways.swallow("right", false);
    assert!(answers("10.99.3.2"));
    ways.plug("eth1", false);
    // A kernel worker notices a cable, later on a busy host.
    let is_out = || ways.on("source", "ip link show eth1").contains("NO-CARRIER");
    running.when("the cable is out", |_| is_out() && !answers("10.99.3.2"));
    ways.plug("eth1", true);
    running.when("the cable is in again", |_| answers("10.99.3.2"));
    assert!(ways.received("eth1") > Some(0));
    running.kill();
}

#[test]
fn a_push_and_a_pull_use_both_links_and_the_report_names_each() {
    needs!(Boxed);
    let trial = Trial::new(Joined::Directly, 2);
    let run = trial.push(&[]).run().expect(code::OK);
    trial.both_carried(&run);
    let addresses: Vec<_> = paths(&run).iter().map(|path| (path["local"].clone(), path["remote"].clone())).collect();
    assert_eq!(
        addresses,
        [("10.99.0.1".into(), "10.99.0.2".into()), ("10.99.1.1".into(), "10.99.1.2".into())],
        "{run}"
    );
    let back = trial.to.with_extension("back");
    let run = trial.ways.cp().arg(trial.ways.daemon("to/")).arg(&back).run().expect(code::OK);
    assert_same(&trial.from, &back, Facets::PLAIN);
    assert_eq!(shares(&run).len(), 2, "{run}");
}

#[test]
fn a_probe_tells_what_each_path_carries_both_ways_and_why_not_more() {
    needs!(Boxed);
    let trial = Trial::new(Joined::Directly, 1);
    let run = trial.ways.probe().args(["-4", "--time", "4"]).arg(trial.ways.daemon("")).run().expect(code::OK);
    let found = run.events().pop().unwrap();
    for way in ["there", "back"] {
        let (all, paths) = (found[way]["rate_bytes_per_s"].as_u64().unwrap(), found[way]["paths"].as_array().unwrap());
        let text = |path: &Value, field: &str| path[field].as_str().unwrap().to_owned();
        let ends: Vec<_> =
            paths.iter().map(|path| [text(path, "device"), text(path, "local"), text(path, "remote")]).collect();
        let expected = [["eth0", "10.99.0.1", "10.99.0.2"], ["eth1", "10.99.1.1", "10.99.1.2"]];
        assert_eq!(ends, expected, "as this host sees them, also on the way back\n{run}");
        let rates: Vec<u64> = paths.iter().map(|path| path["rate_bytes_per_s"].as_u64().unwrap()).collect();
        assert!(rates.iter().all(|rate| *rate > all / 4), "{way}: {rates:?} of {all}\n{run}");
        assert!(rates.iter().sum::<u64>().abs_diff(all) <= 2, "{way}: {rates:?} of {all}\n{run}");
        // 10 ms are the link's own.
        assert!(paths.iter().all(|path| path["rtt_min_us"].as_u64().unwrap() >= 9_000), "{run}");
        assert!(paths.iter().all(|path| !text(path, "limit").is_empty()), "{run}");
    }
}

#[test]
fn over_ssh_a_direct_link_and_a_way_through_a_router_are_used_together() {
    needs!(Boxed, Tool("sshd"));
    let trial = Trial::new(Joined::OneThroughARouter, 2);
    let run = trial.ways.cp().arg(contents_of(&trial.from)).arg(trial.ways.ssh(&trial.to)).run().expect(code::OK);
    trial.both_carried(&run);
    let back = trial.to.with_extension("back");
    let source = trial.ways.ssh(Path::new(&contents_of(&trial.to)));
    let run = trial.ways.cp().arg(source).arg(&back).run().expect(code::OK);
    assert_same(&trial.from, &back, Facets::PLAIN);
    assert_eq!(shares(&run).len(), 2, "{run}");
}

#[test]
fn one_path_is_one_and_a_list_is_what_it_says() {
    needs!(Boxed);
    let trial = Trial::new(Joined::Directly, 1);
    let cases: [(&str, &[&str]); 4] = [
        ("one", &["eth0"]),
        ("eth1", &["eth1"]),
        ("10.99.1.1=10.99.1.2", &["eth1"]),
        ("10.99.0.1,eth1", &["eth0", "eth1"]),
    ];
    for (number, (list, devices)) in cases.into_iter().enumerate() {
        let name = format!("to-{number}");
        let mut running = trial
            .ways
            .cp()
            .args(["-4", "--paths", list])
            .arg(contents_of(&trial.from))
            .arg(trial.ways.daemon(&name))
            .start();
        running.when_moved(TREE_BYTES / 2);
        for device in ["eth0", "eth1"] {
            let (received, is_used) = (trial.ways.received(device).unwrap_or(0), devices.contains(&device));
            assert_eq!(received > WORDS_BYTES, is_used, "--paths {list}: {received} bytes through {device}");
        }
        let run = running.wait().expect(code::OK);
        assert_same(&trial.from, &trial.to.with_file_name(&name), Facets::PLAIN);
        assert_eq!(shares(&run).iter().map(|(device, _)| device.as_str()).collect::<Vec<_>>(), devices, "{run}");
    }
}

#[test]
fn between_two_other_hosts_both_links_carry_data() {
    needs!(Boxed, Tool("sshd"));
    // ssh to itself makes both ends other hosts.
    let sshd = "mkdir -p /run/sshd; $(PATH=$PATH:/usr/sbin command -v sshd) -f \"$HOME/sshd_config\"";
    let trial = Trial::prepared(Joined::Directly, 2, [sshd, ""]);
    let from = at("source", contents_of(&trial.from));
    let run = trial.ways.cp().arg(from).arg(trial.ways.ssh(&trial.to)).run().expect(code::OK);
    trial.both_carried(&run);
}

#[test]
fn a_path_that_was_named_and_leads_nowhere_is_told_with_the_commands_that_help() {
    needs!(Nftables, Boxed);
    let shut = "nft 'add table inet shut; add chain inet shut c { type filter hook input priority 0; }; \
                add rule inet shut c iifname eth1 reject'";
    let trial = Trial::prepared(Joined::Directly, 1, ["", shut]);
    let run = trial.push(&["--paths", "eth0,eth1"]).run().expect(code::OK);
    assert_same(&trial.from, &trial.to, Facets::PLAIN);
    let is_said = |event: &Value| {
        let text = event["text"].as_str().unwrap_or_default();
        ["no path by eth1", "ip rule add from 10.99.1.1", "rp_filter"].iter().all(|words| text.contains(words))
    };
    assert!(run.events_named("warning").iter().any(is_said), "{run}");
}

#[test]
fn a_cable_is_pulled_and_put_back_and_the_copy_hardly_pauses() {
    needs!(Boxed);
    let trial = Trial::new(Joined::Directly, 4);
    let mut running = trial.push(&[]).start();
    receives(&mut running, &trial.ways, "eth1", TREE_BYTES / 2);
    trial.ways.plug("eth1", false);
    receives(&mut running, &trial.ways, "eth0", TREE_BYTES / 2);
    trial.ways.plug("eth1", true);
    let back_after = receives(&mut running, &trial.ways, "eth1", WORDS_BYTES);
    let run = running.wait().expect(code::OK);
    trial.both_carried(&run);
    // 1.5 s and 5 s on a quiet machine; docs/proof/multipath.md has exact figures.
    let pause = longest_pause_s(&run.events());
    assert!(pause < 3.0 && back_after < Duration::from_secs(8), "{pause} s, back after {back_after:?}\n{run}");
    let log = trial.ways.log();
    let of_path_1: Vec<&str> = log.lines().filter(|line| line.contains("path 1")).collect();
    let told = ["between 10.99.1.2 and 10.99.1.1", "has lost path 1", "between 10.99.1.2 and 10.99.1.1"];
    assert_eq!(of_path_1.len(), told.len(), "{log}");
    assert!(of_path_1.iter().zip(told).all(|(line, told)| line.contains(told)), "{log}");
}

#[test]
fn a_daemon_names_its_clients_the_addresses_that_it_is_set_to() {
    needs!(Boxed);
    for (paths, devices) in [("eth0,eth1", &["eth0", "eth1"][..]), ("10.99.0.2", &["eth0"]), ("one", &["eth0"])] {
        let trial = Trial::prepared(Joined::Directly, 1, ["", &format!("SERVE='--paths {paths}'")]);
        let run = trial.push(&[]).run().expect(code::OK);
        assert_same(&trial.from, &trial.to, Facets::PLAIN);
        let used: Vec<String> = shares(&run).into_iter().map(|(device, _)| device).collect();
        assert_eq!(used, devices, "serve --paths {paths}\n{run}\n{}", trial.ways.log());
    }
}

#[test]
fn a_path_that_swallows_everything_is_left_and_used_again() {
    needs!(Nftables, Boxed);
    let trial = Trial::new(Joined::ThroughRouters, 5);
    let mut running = trial.push(&[]).start();
    receives(&mut running, &trial.ways, "eth1", TREE_BYTES / 2);
    trial.ways.swallow("right", true);
    receives(&mut running, &trial.ways, "eth0", TREE_BYTES);
    trial.ways.swallow("right", false);
    let back_after = receives(&mut running, &trial.ways, "eth1", WORDS_BYTES);
    let run = running.wait().expect(code::OK);
    trial.both_carried(&run);
    // 4 s and 5 s on a quiet machine.
    let pause = longest_pause_s(&run.events());
    assert!(pause < 6.0 && back_after < Duration::from_secs(8), "{pause} s, back after {back_after:?}\n{run}");
}

#[test]
fn both_paths_are_gone_for_a_while_and_the_copy_goes_on() {
    needs!(Nftables, Boxed);
    const GONE: Duration = Duration::from_secs(6);
    let trial = Trial::new(Joined::ThroughRouters, 3);
    let mut running = trial.push(&[]).start();
    running.when_moved(TREE_BYTES / 2);
    ["left", "right"].iter().for_each(|router| trial.ways.swallow(router, true));
    let until = Instant::now() + GONE;
    running.when("both are gone for a while", |_| Instant::now() >= until);
    let moved = |running: &Running| events(running).iter().filter_map(|event| event["bytes_moved"].as_u64()).max();
    let before = moved(&running);
    ["left", "right"].iter().for_each(|router| trial.ways.swallow(router, false));
    running.when("it goes on", |running| moved(running) > before);
    let run = running.wait().expect(code::OK);
    trial.both_carried(&run);
    assert!(longest_pause_s(&run.events()) > GONE.as_secs_f64() / 2.0, "nothing was gone\n{run}");
}

#[test]
fn an_interface_that_comes_up_in_the_middle_is_used_soon() {
    needs!(Boxed);
    let trial = Trial::prepared(Joined::Directly, 3, ["ip link set eth1 carrier off", "ip link set eth1 carrier off"]);
    let mut running = trial.push(&[]).start();
    running.when_moved(TREE_BYTES / 2);
    assert!(trial.ways.received("eth1").is_some_and(|bytes| bytes < WORDS_BYTES));
    trial.ways.plug("eth1", true);
    let after = receives(&mut running, &trial.ways, "eth1", WORDS_BYTES);
    let run = running.wait().expect(code::OK);
    trial.both_carried(&run);
    assert!(after < Duration::from_secs(8), "used after {after:?}: 5 s on a quiet machine\n{run}");
}

#[test]
fn an_address_that_an_interface_is_given_in_the_middle_is_used_soon() {
    needs!(Boxed);
    let trial = Trial::prepared(Joined::Directly, 3, ["ip addr flush dev eth1", ""]);
    let mut running = trial.push(&[]).start();
    running.when_moved(TREE_BYTES / 2);
    trial.ways.on("source", "ip addr add 10.99.1.1/24 dev eth1");
    let after = receives(&mut running, &trial.ways, "eth1", WORDS_BYTES);
    let run = running.wait().expect(code::OK);
    trial.both_carried(&run);
    assert!(after < Duration::from_secs(8), "used after {after:?}: 5 s on a quiet machine\n{run}");
}

#[test]
fn a_client_whose_only_address_changes_goes_on_without_a_new_start() {
    needs!(Boxed);
    let trial = Trial::prepared(Joined::Directly, 2, ["ip link set eth1 down", ""]);
    let mut running = trial.push(&[]).start();
    running.when_moved(TREE_BYTES / 2);
    trial.ways.on("source", "ip addr del 10.99.0.1/24 dev eth0 && ip addr add 10.99.0.77/24 dev eth0");
    let run = running.wait().expect(code::OK);
    assert_same(&trial.from, &trial.to, Facets::PLAIN);
    let locals: Vec<_> = paths(&run).iter().map(|path| path["local"].clone()).collect();
    assert!(locals.contains(&"10.99.0.77".into()), "{locals:?}\n{run}");
}

/// A host of two interfaces for MPTCP, as `haul tune` advises: the client takes up what the server tells.
const MPTCP_SOURCE: &str = "ip mptcp limits set subflows 8 add_addr_accepted 8";
const MPTCP_TARGET: &str =
    "ip mptcp limits set subflows 8 add_addr_accepted 8; ip mptcp endpoint add 10.99.3.2 dev eth1 signal";

#[test]
fn one_mptcp_connection_runs_over_both_interfaces_and_outlives_each() {
    needs!(Nftables, Boxed);
    let trial = Trial::prepared(Joined::ThroughRouters, 4, [MPTCP_SOURCE, MPTCP_TARGET]);
    let mut running = trial.push(&["--transport", "mptcp", "--paths", "one", "--lanes", "2"]).start();
    receives(&mut running, &trial.ways, "eth1", TREE_BYTES / 2);
    trial.ways.plug("eth1", false);
    receives(&mut running, &trial.ways, "eth0", TREE_BYTES / 4);
    trial.ways.plug("eth0", false);
    let until = Instant::now() + Duration::from_secs(3);
    running.when("both are gone for a while", |_| Instant::now() >= until);
    trial.ways.plug("eth0", true);
    trial.ways.plug("eth1", true);
    let run = running.wait().expect(code::OK);
    assert_same(&trial.from, &trial.to, Facets::PLAIN);
    // Each interface's share stands in the report and in running events.
    let of = |paths: &[Value]| {
        let subflows = paths.iter().flat_map(|path| path["subflows"].as_array().cloned().unwrap_or_default());
        let carried = subflows.filter(|subflow| subflow["bytes"].as_u64() > Some(WORDS_BYTES));
        let ends = |subflow: Value| {
            assert!(subflow["rtt_us"].as_u64() >= Some(9_000), "10 ms are the link's own: {subflow}");
            (subflow["local"].as_str().unwrap().to_owned(), subflow["remote"].as_str().unwrap().to_owned())
        };
        carried.map(ends).collect::<BTreeSet<_>>()
    };
    for (found, what) in [(of(&paths(&run)), "the report"), (of(&run.events_named("path")), "the events")] {
        // The source's second interface and the target's second address carry data, too.
        assert!(found.len() >= 2, "{what}: {found:?}\n{run}");
        assert!(
            found.iter().all(|(local, remote)| local.starts_with("10.99.") && remote.starts_with("10.99.")),
            "{found:?}"
        );
    }
}

#[test]
fn where_a_middlebox_strips_mptcp_the_copy_goes_by_tcp_and_says_so() {
    needs!(Nftables, Boxed);
    let strip = "add table inet strip; add chain inet strip c { type filter hook output priority 0; }; \
                 add rule inet strip c reset tcp option mptcp";
    let before = format!("{MPTCP_SOURCE}; nft '{strip}'");
    let trial = Trial::prepared(Joined::ThroughRouters, 1, [&before, MPTCP_TARGET]);
    let run = trial.push(&["--transport", "mptcp", "--paths", "one"]).run().expect(code::OK);
    assert_same(&trial.from, &trial.to, Facets::PLAIN);
    let is_said = |event: &Value| event["text"].as_str().is_some_and(|text| text.to_lowercase().contains("mptcp"));
    assert!(run.events_named("warning").iter().any(is_said), "{run}");
}
