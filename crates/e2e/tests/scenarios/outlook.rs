//! The bar of real copies, compared with what came. `cli/src/progress/outlook` tests the estimates in memory.

use std::path::Path;

use haul_e2e::{Outcome, Run, code, needs, plant, scratch};

fn copy(dir: &Path, rate: &str) -> Outcome {
    let program = haul_e2e::binary::find().expect("asked for with needs!");
    let run = Run::new(program).env("HOME", dir).current_dir(dir);
    run.args(["cp", "--json", "--rate", rate, "source", "target"]).run().expect(code::OK)
}

/// A busy machine delays news; in virtual time the bar is within 3 %.
const WITHIN: f64 = 0.1;

#[test]
fn the_bar_of_a_copy_with_a_rate_limit_is_true_at_each_tenth() {
    needs!(Haul);
    let dir = scratch();
    plant::file(&dir.path().join("source"), 24 << 20, 1);
    let run = copy(dir.path(), "5MB");
    let whole = run.report()["elapsed_s"].as_f64().expect("a number");
    let progress = run.events_named("progress");
    for tenth in 3..10 {
        let truth = f64::from(tenth) / 10.0;
        let last = progress.iter().rfind(|line| line["at_s"].as_f64() <= Some(whole * truth)).expect("it was told");
        let shown = last["done_share"].as_f64().expect("it is known by now");
        assert!((shown - truth).abs() < WITHIN, "at {truth}: {last}");
    }
}

#[test]
fn of_more_files_than_the_manifest_holds_open_the_total_is_known_long_before_the_walk_ends() {
    needs!(Haul);
    // 16 Ki are open at once.
    const FILES: u64 = 20_000;
    let dir = scratch();
    plant::many(&dir.path().join("source"), FILES, 1_000, 1);
    // The walk waits for 3,616 files, and a busy machine may count for a second.
    let run = copy(dir.path(), "2MB");
    let progress = run.events_named("progress");
    let known = progress.iter().find(|line| line["found_all"] == true).expect("the total is known");
    assert_eq!((&known["files_found"], &known["bytes_found"]), (&FILES.into(), &(FILES * 1_000).into()), "{run}");
    let walked = run.events_named("found").pop().expect("the walk ends");
    assert!(known["at_s"].as_f64() < walked["at_s"].as_f64(), "{known}, {walked}");
}
