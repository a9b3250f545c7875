//! Several ssh hosts that see one directory are one end.

use std::ffi::OsString;
use std::path::PathBuf;

use haul_e2e::outcome::json_lines;
use haul_e2e::{Facets, Lab, Outcome, Running, assert_same, at, code, needs, plant};

/// Three seconds at [`RATE`].
const LARGE_BYTES: u64 = 60 << 20;

/// Slow enough to be killed in the middle.
const RATE: [&str; 2] = ["--rate", "20MB"];

struct Hosts {
    lab: Lab,
    tree: PathBuf,
    back: PathBuf,
}

impl Hosts {
    fn new() -> Self {
        let lab = Lab::triangle();
        let (tree, back) = (lab.data("alpha").join("tree"), lab.data("home").join("back"));
        plant::mixed(&tree, 1);
        plant::file(&tree.join("large"), LARGE_BYTES, 2);
        plant::date(&tree, 3);
        // The first copy brings the program, and half of the large file.
        for host in ["alpha", "beta"] {
            lab.cp().arg(at(host, lab.ssh_config())).arg(&back).run().expect(code::OK);
        }
        std::fs::remove_file(&back).expect("own file");
        Self { lab, tree, back }
    }

    fn from(&self) -> OsString {
        let mut from = OsString::from("alpha,beta:");
        from.push(&self.tree);
        from.push("/");
        from
    }

    fn pull(&self, flags: &[&str]) -> Running {
        self.lab.cp().args(RATE).args(flags).arg(self.from()).arg(&self.back).start()
    }
}

fn of_host(run: &Outcome, host: &str) -> u64 {
    let paths = run.report()["paths"].as_array().cloned().unwrap_or_default();
    let is_its = |path: &&serde_json::Value| path["host"].as_str() == Some(host);
    paths.iter().filter(is_its).filter_map(|path| path["bytes"].as_u64()).sum()
}

#[test]
fn two_hosts_reached_over_ssh_send_one_tree() {
    needs!(Namespaces, Haul);
    let hosts = Hosts::new();
    let run = hosts.pull(&[]).wait().expect(code::OK);
    assert_same(&hosts.tree, &hosts.back, Facets::PLAIN);
    assert!(of_host(&run, "alpha") > 5 << 20 && of_host(&run, "beta") > 5 << 20, "{run}");
}

#[test]
fn two_hosts_send_one_tree_inside_ssh_sessions_to_each() {
    needs!(Namespaces, Haul);
    let hosts = Hosts::new();
    let run = hosts.pull(&["--lanes-over-ssh", "--lanes", "2"]).wait().expect(code::OK);
    assert_same(&hosts.tree, &hosts.back, Facets::PLAIN);
    assert!(of_host(&run, "alpha") > 5 << 20 && of_host(&run, "beta") > 5 << 20, "{run}");
    assert_eq!(run.report()["lane_path"], "ssh", "{run}");
}

#[test]
fn between_two_other_hosts_the_first_one_of_an_end_takes_part_and_a_word_says_so() {
    needs!(Namespaces, Haul);
    let hosts = Hosts::new();
    let to = hosts.lab.data("beta").join("copy");
    let run = hosts.lab.cp().arg(hosts.from()).arg(at("beta", &to)).run().expect(code::OK);
    assert_same(&hosts.tree, &to, Facets::PLAIN);
    let said = run.stdout_text() + &run.stderr_text();
    assert!(said.contains("one takes part") && said.contains("between two other hosts"), "{said}");
}

#[test]
fn one_of_two_hosts_that_is_killed_while_it_sends_is_replaced_by_the_other() {
    needs!(Namespaces, Haul);
    let hosts = Hosts::new();
    let mut running = hosts.pull(&[]);
    running.when("beta sends, too", |running| {
        json_lines(&running.stdout_so_far())
            .iter()
            .any(|event| event["event"] == "path" && event["number"] == 7 && event["rate_bytes_per_s"] != 0)
    });
    hosts.lab.host("beta").kill_haul();
    let run = running.wait().expect(code::OK);
    assert_same(&hosts.tree, &hosts.back, Facets::PLAIN);
    let said = run.stdout_text() + &run.stderr_text();
    assert!(said.contains("beta is left out"), "{said}");
    assert!(run.count("bytes_again") < 24 << 20, "{run}");
}
