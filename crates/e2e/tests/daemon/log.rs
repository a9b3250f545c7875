//! A daemon's log for programs, with each file.

use haul_e2e::{Run, code, contents_of, needs, plant};
use rustix::process::Signal;
use serde_json::Value;

use crate::Stage;

fn of<'a>(lines: &'a [Value], event: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["event"] == event).collect()
}

fn plant_tree(stage: &Stage) {
    plant::file(&stage.at("tree/large"), 3 << 20, 1);
    plant::text(&stage.at("tree/small"), "words\n");
}

#[test]
fn a_log_in_json_is_json_from_its_first_line_to_its_last() {
    needs!(Haul);
    let mut stage = Stage::new("rw");
    stage.stop(Signal::TERM).expect(code::OK);
    stage.start_with(&["--json", "--log-files"]);
    plant_tree(&stage);
    stage.cp().arg(contents_of(&stage.at("tree"))).arg(stage.url("in")).run().expect(code::OK);
    stage.cp().args([&stage.url("in/large"), "back"]).run().expect(code::OK);
    stage.haul("client").args(["key", "generate", "--file", "strange"]).run().expect(code::OK);
    stage.cp().args(["--identity", "strange", "tree/small", &stage.url("x")]).run().expect(code::AUTHENTICATION);
    stage.eventually_logs("ended well: 2 files");
    stage.eventually_logs("ended well: 1 files");
    let ended = stage.stop(Signal::TERM).expect(code::OK);
    assert_eq!(ended.stdout_text(), "", "all of it is in the log");
    let log = ended.stderr_text();
    let lines: Vec<Value> =
        log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect();
    for line in &lines {
        for field in ["time", "level", "event", "message"] {
            assert!(line[field].is_string(), "{field}: {line}");
        }
    }
    let begun: Vec<_> = of(&lines, "begin").iter().map(|line| (&line["direction"], &line["place"])).collect();
    assert_eq!(begun, [(&"write".into(), &"in".into()), (&"read".into(), &"in/large".into())], "{log}");
    let files = of(&lines, "file");
    let (mut written, read): (Vec<&Value>, Vec<&Value>) =
        files.into_iter().partition(|line| line["direction"] == "write");
    written.retain(|line| line["outcome"] == "copied");
    written.sort_by_key(|line| line["path"].to_string());
    let told = |line: &Value| (line["path"].clone(), line["bytes"].clone(), line["name"].clone());
    let large = ("large".into(), (3 << 20).into(), "client".into());
    let small = ("small".into(), 6.into(), "client".into());
    assert_eq!(written.iter().map(|line| told(line)).collect::<Vec<_>>(), [large.clone(), small], "{log}");
    assert_eq!(read.iter().map(|line| told(line)).collect::<Vec<_>>(), [large], "{log}");
    for line in written.iter().chain(&read) {
        let address = line["address"].as_str().unwrap_or_default();
        assert!(address.starts_with("127.") && line["took_ms"].is_u64() && line["key"].is_string(), "{line}");
    }
    let [refused] = of(&lines, "refused")[..] else { panic!("{log}") };
    assert!(refused["key"].is_string() && refused["address"].is_string(), "{refused}");
    let [identity] = of(&lines, "identity")[..] else { panic!("{log}") };
    assert!(identity["known_hosts"].as_str().is_some_and(|line| line.contains("ed25519:")), "{identity}");
}

#[test]
fn a_daemon_that_cannot_start_says_so_in_json() {
    needs!(Haul);
    let stage = Stage::new("rw");
    let second = stage.haul("server").args(["serve", "--json", "--listen", &stage.host()]).run().expect(code::NETWORK);
    let log = second.stderr_text();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect();
    let last = lines.last().expect("it says why");
    assert_eq!((&last["level"], &last["exit_code"]), (&"error".into(), &code::NETWORK.into()), "{log}");
    assert_eq!(second.stdout_text(), "");
}

#[test]
fn files_stand_in_the_log_only_if_the_operator_wants_it() {
    needs!(Haul);
    let mut stage = Stage::new("rw");
    plant_tree(&stage);
    let copy =
        |stage: &Stage, target: &str| -> Run { stage.cp().arg(contents_of(&stage.at("tree"))).arg(stage.url(target)) };
    copy(&stage, "first").run().expect(code::OK);
    stage.eventually_logs("ended well: 2 files");
    assert!(!stage.log().contains("'large'"), "{}", stage.log());
    stage.stop(Signal::TERM).expect(code::OK);
    stage.start_with(&["--log-files"]);
    copy(&stage, "second").run().expect(code::OK);
    stage.eventually_logs("ended well: 2 files");
    let log = stage.log();
    assert!(log.contains("wrote 'large' to 'second': 3145728 bytes in 0."), "{log}");
    assert!(log.find("wrote 'small' to 'second'") < log.find("ended well"), "a file stands before the end: {log}");
}

#[test]
fn a_wrong_policy_is_told_in_words_of_the_file() {
    needs!(Haul);
    let stage = Stage::new("rw");
    plant::text(&stage.at("policy.toml"), "[default]\npriority-time-s = \"long\"\n");
    plant::text(&stage.at("networks.toml"), "[class.inside]\nlanes = 1.5\n");
    plant::text(&stage.at("empty.pem"), "no certificate\n");
    let serve = stage.haul("server").args(["serve", "--check", "--https", "--certificate", "empty.pem"]);
    serve.run().expect(code::AUTHENTICATION).says(&["there is no certificate in PEM in it"]);
    for (flag, words) in [
        ("policy", "line 2: \"long\" stands where a whole number"),
        ("networks", "line 2: 1.5 stands where a whole number"),
    ] {
        let file = format!("{flag}.toml");
        let run =
            stage.haul("server").args(["serve", "--check", &format!("--{flag}"), &file]).run().expect(code::USAGE);
        run.says(&[words, &format!("haul-{flag}(5)")]);
    }
}
