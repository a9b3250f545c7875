//! How many round trips a copy takes before and after its data.

use haul_e2e::{Boxed, code, needs, plant, scratch};

/// To the daemon: TCP; TLS; the offer of the file and the handshake of the lanes; the data and its receipt. The
/// greeting goes at the same time, and lanes are dialled before the daemon has answered.
#[test]
fn a_small_file_over_a_long_path_takes_four_round_trips() {
    needs!(Boxed);
    let dir = scratch();
    let (from, to) = (dir.path().join("file"), dir.path().join("copy"));
    plant::file(&from, 10_000, 1);
    let path = Boxed { rate: "100Mbit", rtt: "600ms", ..Boxed::default() };
    let run = path.push(&[], &from, &to).expect(code::OK);
    let report = run.clone().report();
    let round_trips = report["elapsed_s"].as_f64().unwrap_or_default() / 0.6;
    assert!((4.0..4.5).contains(&round_trips), "{round_trips} round trips\n{run}");
}
