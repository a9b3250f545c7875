//! `haul cp --batch`: many copies, one login.

use std::fs;
use std::path::{Path, PathBuf};

use haul_e2e::{Facets, Lab, Outcome, assert_same, at, code, contents_of, eventually, needs, plant};

use crate::daemon::Daemon;

fn plant_three(dir: &Path) -> [PathBuf; 3] {
    [1, 2, 3].map(|number| {
        let tree = dir.join(format!("tree {number}"));
        fs::create_dir_all(&tree).expect("own directory");
        plant::mixed(&tree, number);
        plant::file(&tree.join("large"), 12 << 20, number);
        tree
    })
}

fn lines(jobs: &[(String, String)]) -> String {
    jobs.iter().map(|(from, to)| format!("'{from}' '{to}'\n")).collect()
}

fn text(path: impl AsRef<std::ffi::OsStr>) -> String {
    path.as_ref().to_str().expect("plain names").to_owned()
}

fn of_job(run: &Outcome, line: u64, event: &str) -> Vec<serde_json::Value> {
    run.events_named(event).into_iter().filter(|seen| seen["line"] == line).collect()
}

fn logins(lab: &Lab) -> usize {
    lab.alpha().sshd_log().matches("Accepted publickey").count()
}

#[test]
fn copies_of_a_batch_between_the_same_ends_have_one_login() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (home, alpha) = (lab.data("home"), lab.data("alpha"));
    let trees = plant_three(&home);
    let push: Vec<_> = (1..)
        .zip(&trees)
        .map(|(n, tree)| (text(contents_of(tree)), text(at("alpha", alpha.join(format!("to {n}"))))))
        .collect();
    let run = lab
        .cp()
        .args(["--no-keep-login", "--batch", "-"])
        .input(format!("# push\n\n{}", lines(&push)))
        .run()
        .expect(code::OK);
    assert_eq!(logins(&lab), 1, "{run}");
    for (n, tree) in (1..).zip(&trees) {
        assert_same(tree, &alpha.join(format!("to {n}")), Facets::PLAIN);
        assert_eq!(of_job(&run, n + 2, "report").len(), 1, "{run}");
        assert_eq!(of_job(&run, n + 2, "start").len(), 1, "{run}");
    }
    let pull: Vec<_> = (1..4)
        .map(|n| (text(at("alpha", contents_of(&alpha.join(format!("to {n}"))))), text(home.join(format!("back {n}")))))
        .collect();
    let file = home.join("jobs");
    fs::write(&file, lines(&pull)).expect("own file");
    let run = lab.cp().args(["--no-keep-login", "--batch"]).arg(&file).run().expect(code::OK);
    assert_eq!(logins(&lab), 2, "{run}");
    for (n, tree) in (1..).zip(&trees) {
        assert_same(tree, &home.join(format!("back {n}")), Facets::PLAIN);
    }
    let sum = run.events().last().expect("it says something").clone();
    assert_eq!(
        (sum["event"].as_str(), sum["jobs"].as_u64(), sum["jobs_done"].as_u64()),
        (Some("batch"), Some(3), Some(3)),
        "{run}"
    );
    let run = lab.cp().args(["--no-keep-login", "--batch"]).arg(&file).run().expect(code::OK);
    assert_eq!(run.events().last().expect("a sum")["bytes_moved"], 0, "{run}");
    lab.alpha().expect_no_haul_left(std::time::Duration::from_secs(10));
}

#[test]
fn a_daemon_serves_a_batch_in_one_session_and_a_job_that_fails_costs_no_other() {
    needs!(Namespaces, Haul);
    let daemon = Daemon::start("rw");
    let home = daemon.lab.data("home");
    let trees = plant_three(&home);
    let mut jobs: Vec<_> =
        (1..).zip(&trees).map(|(n, tree)| (text(contents_of(tree)), daemon.url(&format!("to{n}")))).collect();
    jobs.insert(1, (text(home.join("not there")), daemon.url("nothing")));
    let batch = |jobs: &[(String, String)]| daemon.cp().args(["--batch", "-"]).input(lines(jobs)).run();
    let run = batch(&jobs).expect(code::PARTIAL);
    assert_eq!(of_job(&run, 2, "error").len(), 1, "{run}");
    for (n, tree) in (1..).zip(&trees) {
        assert_same(tree, &daemon.offered.join(format!("to{n}")), Facets::PLAIN);
    }
    eventually("it has ended well", std::time::Duration::from_secs(10), || daemon.log().contains("ended well"));
    let log = daemon.log();
    assert!(log.contains("session 1") && !log.contains("session 2"), "{log}");
    assert_eq!(log.matches("writes to").count(), 3, "{log}");
    let pull = [("to1/", "back 1"), ("missing", "back 2"), ("to3/", "back 3")];
    let run = batch(&pull.map(|(from, to)| (daemon.url(from), text(home.join(to)))));
    assert!(run.code() != code::OK, "{run}");
    for n in [1, 3] {
        assert_same(&trees[n - 1], &home.join(format!("back {n}")), Facets::PLAIN);
    }
    eventually("all three were asked for", std::time::Duration::from_secs(10), || {
        daemon.log().matches("reads '").count() == 3
    });
    assert!(!daemon.log().contains("session 3"), "{}", daemon.log());
}

#[test]
fn a_batch_that_was_killed_goes_on_where_it_was() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (home, alpha) = (lab.data("home"), lab.data("alpha"));
    let files: Vec<_> = (1..4).map(|n| home.join(format!("file{n}"))).collect();
    files.iter().zip(1..).for_each(|(file, seed)| plant::file(file, 40 << 20, seed));
    let jobs: Vec<_> = files.iter().map(|file| (text(file), text(at("alpha", &alpha)) + "/")).collect();
    let command = |flags: &[&str]| lab.cp().args(flags).args(["--batch", "-"]).input(lines(&jobs));
    let mut running = command(&["--rate", "40MB"]).start();
    let moved = |seen: &haul_e2e::Running| {
        let said = String::from_utf8_lossy(&seen.stdout_so_far()).into_owned();
        said.lines().any(|line| {
            line.contains("\"line\":2") && line.contains("\"progress\"") && !line.contains("\"bytes_moved\":0,")
        })
    };
    running.when("the second job moves", moved);
    running.kill();
    lab.alpha().expect_no_haul_left(std::time::Duration::from_secs(20));
    let run = command(&[]).run().expect(code::OK);
    assert_eq!(of_job(&run, 1, "report")[0]["files_kept"], 1, "{run}");
    for (file, n) in files.iter().zip(1..) {
        assert_same(file, &alpha.join(format!("file{n}")), Facets::PLAIN);
    }
}
