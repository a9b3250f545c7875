//! `haul tune`: advice for this host; `--apply` and `--revert` on our own.

use haul_e2e::{Outcome, Run, code, needs};
use serde_json::Value;

const RMEM: &str = "net.ipv4.tcp_rmem";

fn haul() -> Run {
    Run::new(haul_e2e::binary::find().expect("asked for with needs!"))
}

fn tune(args: &[&str]) -> Outcome {
    haul().arg("tune").args(args).run()
}

#[test]
fn says_what_this_host_should_be_set_to_and_why() {
    needs!(Haul);
    let table = tune(&["--rate", "1Gbit", "--rtt", "228ms"]).expect(code::OK);
    for words in ["28.5 MB under way", RMEM, "one connection, receiving", "128 lanes"] {
        assert!(table.stdout_text().contains(words), "{words}\n{table}");
    }
    tune(&[]).expect(code::OK).says(&["round trip assumed"]);
    // Lines of a file are comments or settings; of commands, comments or commands.
    let path = ["--rate", "100Gbit", "--rtt", "300ms"];
    let file = tune(&[&path[..], &["--format", "sysctl"]].concat()).expect(code::OK).stdout_text();
    assert!(file.lines().all(|line| line.is_empty() || line.starts_with('#') || line.contains(" = ")), "{file}");
    let commands = tune(&[&path[..], &["--format", "commands"]].concat()).expect(code::OK).stdout_text();
    assert!(commands.lines().all(|line| line.starts_with('#') || line.starts_with("sysctl -w net.")), "{commands}");
}

#[test]
fn a_program_reads_one_object() {
    needs!(Haul);
    let outcome = tune(&["--json", "--rate", "1Gbit", "--rtt", "228ms"]).expect(code::OK);
    let object: Value = serde_json::from_slice(&outcome.stdout).expect("one object");
    assert_eq!((&object["event"], &object["schema"]), (&"tune".into(), &2.into()));
    assert_eq!(object["advice"]["under_way_bytes"], 28_500_000);
    assert!(finding(&object, RMEM)["why"].as_str().is_some_and(|why| why.contains("2 x 28.5 MB")), "{outcome}");
    let failed = tune(&["--json", "--disk", "/nonexistent"]).expect(code::FILE_IO);
    assert_eq!(failed.events_named("error").len(), 1, "{failed}");
}

#[test]
fn the_disk_is_measured_and_nothing_stays_there() {
    needs!(Haul);
    let dir = haul_e2e::scratch();
    let path = dir.path().to_str().expect("a plain name").to_owned();
    let outcome = tune(&["--json", "--rate", "8kbit", "--disk", &path]).expect(code::OK);
    let object: Value = serde_json::from_slice(&outcome.stdout).expect("one object");
    for verb in ["writing", "reading"] {
        assert_eq!(finding(&object, &format!("{verb} {path}"))["matters"], "fine", "{outcome}");
    }
    assert_eq!(std::fs::read_dir(&path).expect("own directory").count(), 0);
}

#[test]
fn only_root_may_set_and_others_are_told_what_to_do() {
    needs!(Haul, Root, Tool("unshare"));
    // In a user namespace without a map nobody is root.
    for flag in ["--apply", "--revert"] {
        let program = haul_e2e::binary::find().expect("asked for with needs!");
        let refused = Run::new("unshare").arg("--user").arg(program).args(["tune", flag]).run();
        refused.expect(code::FILE_IO).says(&["--format sysctl"]);
    }
}

/// `/etc` and `/var/lib` in memory and a new network keep the real host unchanged.
const PRIVATE: &str = r#"
mount -t tmpfs -o mode=755 haul-e2e /etc
mount -t tmpfs -o mode=755 haul-e2e /var/lib
rmem() { echo "rmem $(cat /proc/sys/net/ipv4/tcp_rmem)"; }
rmem
for step in --apply --apply --revert --revert; do
    echo "step $step"
    case $step in
        --apply) "$1" tune --rate 100Gbit --rtt 300ms --apply ;;
        --revert) "$1" tune --revert ;;
    esac
    rmem
    if test -e /etc/sysctl.d/90-haul.conf && test -e /var/lib/haul/tune-before.toml; then echo kept; fi
    find /etc /var/lib -type f | sed 's/^/file /'
done
"#;

#[test]
fn applies_and_puts_back_in_a_network_of_its_own() {
    needs!(Haul, Root, Tool("unshare"));
    let program = haul_e2e::binary::find().expect("asked for with needs!");
    let alone = Run::new("unshare").args(["--net", "--mount", "--propagation", "private", "sh", "-euc", PRIVATE, "sh"]);
    let outcome = alone.arg(program).run().expect(code::OK);
    let text = outcome.stdout_text();
    let parts: Vec<&str> = text.split("step ").collect();
    let [start, applied, again, reverted, nothing] = parts[..] else { panic!("{outcome}") };
    let rmem = |part: &str| part.lines().find_map(|line| line.strip_prefix("rmem ").map(str::to_owned));

    assert!(applied.contains(&format!("set {RMEM}: ")) && applied.contains("\nkept\n"), "{outcome}");
    assert_ne!(rmem(applied), rmem(start), "{outcome}");
    assert!(again.contains("nothing was changed") && again.contains("\nkept\n"), "{outcome}");
    assert_eq!(rmem(again), rmem(applied), "{outcome}");
    assert!(reverted.contains("removed /etc/sysctl.d/90-haul.conf") && !reverted.contains("\nfile "), "{outcome}");
    assert_eq!(rmem(reverted), rmem(start), "{outcome}");
    assert!(nothing.contains("no values to put back"), "{outcome}");
}

/// Settings are applied, then the file for the next start cannot be written.
const REFUSED: &str = r#"
mount -t tmpfs -o mode=755 haul-e2e /etc
mount -t tmpfs -o mode=755 haul-e2e /var/lib
touch /etc/sysctl.d
cat /proc/sys/net/ipv4/tcp_rmem
"$1" tune --rate 100Gbit --rtt 300ms --apply && exit 1
cat /proc/sys/net/ipv4/tcp_rmem
find /var/lib -mindepth 1
"#;

#[test]
fn what_cannot_be_kept_is_undone() {
    needs!(Haul, Root, Tool("unshare"));
    let program = haul_e2e::binary::find().expect("asked for with needs!");
    let alone = Run::new("unshare").args(["--net", "--mount", "--propagation", "private", "sh", "-euc", REFUSED, "sh"]);
    let outcome = alone.arg(program).run().expect(code::OK).says(&["what was changed before that is undone"]);
    let text = outcome.stdout_text();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() == 2 && lines[0] == lines[1], "{outcome}");
}

fn finding<'a>(object: &'a Value, setting: &str) -> &'a Value {
    let findings = object["advice"]["findings"].as_array().expect("a list");
    findings.iter().find(|finding| finding["setting"] == setting).unwrap_or_else(|| panic!("{setting}: {object:#}"))
}
