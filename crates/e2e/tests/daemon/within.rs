//! Copies between two ends at one daemon.

use std::fs;
use std::time::Duration;

use haul_e2e::{Facets, assert_same, code, needs, plant};

use crate::{Stage, first_key};

/// With one port for both ends, lanes found their session only by luck.
const ROUNDS: usize = 10;

/// Lost lanes would hang for 60 s.
const SOON: Duration = Duration::from_secs(20);

#[test]
fn a_copy_within_one_daemon_finds_both_of_its_ends_each_time() {
    needs!(Haul);
    let stage = Stage::new("rw");
    plant::many(&stage.at("offered/from"), 20, 1000, 1);
    plant::file(&stage.at("offered/from/large"), 5 << 20, 2);
    for (way, through_here, rounds) in [("direct", &[][..], ROUNDS), ("relayed", &["-3"][..], 2)] {
        for round in 0..rounds {
            let to = format!("{way}-{round}");
            let cp = stage.cp().args(through_here).limit(SOON);
            let run = cp.arg(stage.url("from/")).arg(stage.url(&to)).run().expect(code::OK);
            assert_same(&stage.at("offered/from"), &stage.at("offered").join(to), Facets::CONTENTS);
            assert_eq!(run.report()["lane_path"] == "through this machine", !through_here.is_empty(), "{run}");
        }
    }
}

#[test]
fn copies_of_two_keys_within_one_daemon_at_once_each_find_their_own_ends() {
    needs!(Haul);
    let stage = Stage::new("rw");
    let made = stage.haul("client").args(["key", "generate", "--file", "other"]).run().expect(code::OK);
    let own = fs::read_to_string(stage.list()).expect("own file");
    fs::create_dir(stage.at("theirs")).expect("own directory");
    let line = format!("rw root={} {} other\n", stage.at("theirs").display(), first_key(&made.stdout_text()));
    stage.write_list(&(own + &line));
    plant::file(&stage.at("offered/from"), 5 << 20, 1);
    plant::file(&stage.at("theirs/from"), 5 << 20, 2);
    for round in 0..ROUNDS {
        let to = format!("to-{round}");
        let both = [&[][..], &["--identity", "other"][..]]
            .map(|who| stage.cp().args(who).limit(SOON).arg(stage.url("from")).arg(stage.url(&to)).start());
        for run in both {
            run.wait().expect(code::OK);
        }
        for root in ["offered", "theirs"] {
            assert_same(&stage.at(root).join("from"), &stage.at(root).join(&to), Facets::CONTENTS);
        }
    }
}
