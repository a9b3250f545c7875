//! The built program in real namespaces, with real devices and packets.
//!
//! Needs root or user namespaces, `/dev/net/tun` and ping; a missing one fails under `CI=true`.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A hang fails only its test.
const LIMIT: &str = "60";

fn lab() -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", LIMIT, env!("CARGO_BIN_EXE_haul-lab")]);
    command
}

fn possible() -> bool {
    let doctor = Command::new(env!("CARGO_BIN_EXE_haul-lab")).arg("doctor").output().unwrap();
    if doctor.status.success() {
        return true;
    }
    let words = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "no lab is possible here:\n{words}");
    eprintln!("skipped: no lab is possible here:\n{words}");
    false
}

fn run(args: &[&str]) -> Output {
    lab().args(args).stdin(Stdio::null()).output().unwrap()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn topology(directory: &Path, text: &str) -> String {
    let path = directory.join("topology.toml");
    std::fs::write(&path, text).unwrap();
    path.into_os_string().into_string().unwrap()
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Each ping's shortest round trip, in milliseconds.
fn fastest(words: &str) -> Vec<f64> {
    let found = words.split("min/avg/max/mdev = ").skip(1).filter_map(|rest| rest.split('/').next()?.parse().ok());
    let found: Vec<f64> = found.collect();
    assert!(!found.is_empty(), "{words}");
    found
}

fn processes_with(word: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(word) {
            found.push(line);
        }
    }
    found
}

fn mark(name: &str) -> String {
    format!("mark-{name}-{}", std::process::id())
}

fn started(mut child: Child) -> Child {
    let mut byte = [0];
    child.stdout.as_mut().unwrap().read_exact(&mut byte).expect("the command in the lab speaks");
    child
}

#[test]
fn the_status_of_the_command_is_ours_and_hosts_find_each_other_by_name() {
    if !possible() {
        return;
    }
    let output = run(&["run", "--rate", "1Gbit", "--rtt", "30ms", "--", "sh", "-c", "ping -c 2 -i 0.2 server; exit 7"]);
    assert_eq!(output.status.code(), Some(7), "{}", text(&output));
    let words = text(&output);
    // The machine may be busy; calibration judges exact delays.
    assert!((30.0..40.0).contains(&fastest(&words)[0]), "{words}");
}

#[test]
fn two_labs_at_once_do_not_see_each_other() {
    if !possible() {
        return;
    }
    let count = "ip -br link | wc -l; echo $HAUL_LAB_HOST; ping -c 3 -i 0.2 client >/dev/null && ping -c 3 -i 0.2 server | tail -3";
    let one = lab().args(["run", "--rtt", "10ms", "--", "sh", "-c", count]).output();
    let line = ["run", "--rtt", "40ms", "--on", "server", "--", "sh", "-c", "echo; exec sleep 60"];
    let other = started(lab().args(line).stdout(Stdio::piped()).spawn().unwrap());
    let words = text(&one.unwrap());
    let beside = text(&run(&["run", "--rtt", "10ms", "--", "sh", "-c", count]));
    for words in [words, beside] {
        assert!(words.starts_with("2\nclient\n"), "{words}");
        assert!((10.0..30.0).contains(&fastest(&words)[0]), "{words}");
    }
    end(other);
}

fn end(mut child: Child) {
    Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_lab_that_is_killed_leaves_no_process() {
    if !possible() {
        return;
    }
    let mark = mark("killed");
    let command = format!("echo; sleep 61 & exec sleep 62 # {mark}");
    let mut child = Command::new(env!("CARGO_BIN_EXE_haul-lab"));
    child.args(["run", "--", "sh", "-c", &format!("sh -c '{command}'; true")]).stdout(Stdio::piped());
    let mut child = started(child.spawn().unwrap());
    assert!(!processes_with(&mark).is_empty());
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("everything inside ends with the lab", || processes_with(&mark).is_empty());
}

#[test]
fn an_emulator_that_is_killed_is_said_so_and_takes_all_along() {
    if !possible() {
        return;
    }
    let mark = mark("emulator");
    let command = format!("echo; sleep 63 & exec sleep 64 # {mark}");
    let mut child = Command::new(env!("CARGO_BIN_EXE_haul-lab"));
    child.args(["run", "--", "sh", "-c", &format!("sh -c '{command}'; true")]);
    let child = started(child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let request = format!("/{}/request.json", child.id());
    let emulator = std::fs::read_dir("/proc").unwrap().flatten().find(|entry| {
        let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
        matches!(words[..], [_, b"lab", file, _] if file.ends_with(request.as_bytes()))
    });
    let pid = emulator.expect("the lab runs").file_name();
    Command::new("kill").arg("-KILL").arg(pid).status().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let words = "haul-lab: the emulator was killed by signal 9, and everything in the lab went along\n";
    assert_eq!(String::from_utf8_lossy(&output.stderr), words);
    eventually("everything inside ends with the lab", || processes_with(&mark).is_empty());
}

#[test]
fn segments_and_classes_are_measured_like_other_links() {
    if !possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = topology(
        directory.path(),
        "hosts = { client = {}, r = { router = true }, server = {} }\n\
         segments = [{ name = 'lan', hosts = ['client', 'r'], rate = '10Mbit', delay = '1ms' }]\n\
         links = [{ name = 'wan', ends = ['r', 'server'], rate = '10Mbit', rtt = '20ms', diffserv = {} }]",
    );
    let output = run(&["calibrate", &file, "--json", "--tries", "1"]);
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}", text(&output));
    let lab: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = lab["rows"].as_array().unwrap();
    let found = |link: &str| -> Vec<&str> {
        let rows = rows.iter().filter(|row| row["link"] == link);
        rows.map(|row| row["figure"].as_str().unwrap()).collect()
    };
    assert_eq!(found("wan r to server"), ["delay", "rate", "queue", "fairness"]);
    assert_eq!(found("lan client to r"), ["delay", "rate", "fairness"]);
}

#[test]
fn a_calibration_ends_soon_after_ctrl_c() {
    if !possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let name = mark("calibration");
    let link = "rate = '1Mbit', rtt = '200ms', queue = '200kB'";
    let text = format!(
        "name = '{name}'\nhosts = {{ client = {{}}, server = {{}} }}\nlinks = [{{ ends = ['client', 'server'], {link} }}]"
    );
    let mut child = Command::new(env!("CARGO_BIN_EXE_haul-lab"));
    child.args(["calibrate", &topology(directory.path(), &text)]).stdout(Stdio::null()).process_group(0);
    let mut child = child.spawn().unwrap();
    eventually("the lab stands", || run(&["exec", "--lab", &name, "client", "--", "true"]).status.success());
    let start = Instant::now();
    Command::new("kill").args(["-INT", "--", &format!("-{}", child.id())]).status().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[test]
fn a_command_that_ignores_the_end_goes_with_its_lab() {
    if !possible() {
        return;
    }
    let mark = mark("ignores");
    let command = format!("trap '' INT TERM HUP; echo; while :; do sleep 1; done # {mark}");
    let child = started(lab().args(["run", "--", "sh", "-c", &command]).stdout(Stdio::piped()).spawn().unwrap());
    end(child);
    eventually("everything inside ends with the lab", || processes_with(&mark).is_empty());
}

#[test]
fn another_terminal_enters_a_host_of_a_running_lab() {
    if !possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let name = mark("exec");
    let file = topology(
        directory.path(),
        &format!(
            "name = '{name}'\nhosts = {{ client = {{}}, beta = {{}} }}\nlinks = [{{ ends = ['client', 'beta'] }}]"
        ),
    );
    let child = started(
        lab().args(["run", &file, "--", "sh", "-c", "echo; exec sleep 60"]).stdout(Stdio::piped()).spawn().unwrap(),
    );
    let words = text(&run(&["exec", "--lab", &name, "beta", "--", "ip", "-br", "-4", "addr"]));
    assert!(words.contains("10.99.0.2/24") || words.contains("10.99.0.1/24"), "{words}");
    let wrong = run(&["exec", "--lab", &name, "gamma", "--", "true"]);
    assert_eq!(text(&wrong), format!("haul-lab: lab {name} has no host gamma; it has beta, client\n"));
    end(child);
    let gone = run(&["exec", "--lab", &name, "beta", "--", "true"]);
    assert_eq!(text(&gone), "haul-lab: no such lab runs: start one with haul-lab run\n");
}

#[test]
fn routers_and_segments_carry_packets() {
    if !possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = topology(
        directory.path(),
        "hosts = { client = {}, near = {}, router = { router = true }, far = {} }\n\
         links = [{ name = 'out', ends = ['router', 'far'], rtt = '20ms' }]\n\
         segments = [{ name = 'lan', hosts = ['client', 'near', 'router'], rate = '10Mbit', delay = '1ms' }]",
    );
    let pings = "ping -c 2 -i 0.2 near && ping -c 2 -i 0.2 far && ping -c 2 -6 far";
    let output = run(&[
        "run",
        &file,
        "--capture",
        &format!("lan={}/lan.pcap", directory.path().display()),
        "--",
        "sh",
        "-c",
        pings,
    ]);
    let words = text(&output);
    assert!(output.status.success(), "{words}");
    let fastest = fastest(&words);
    assert!((2.0..20.0).contains(&fastest[0]) && (22.0..40.0).contains(&fastest[1]), "{fastest:?}");
    let captured = std::fs::read(directory.path().join("lan.pcap")).unwrap();
    assert!(captured.len() > 24 + 12 * (16 + 84), "{} bytes were captured", captured.len());
}

#[test]
fn a_link_goes_down_and_comes_back_at_its_times() {
    if !possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = topology(
        directory.path(),
        "hosts = { client = {}, server = {} }\nlinks = [{ name = 'wan', ends = ['client', 'server'] }]\n\
         events = [{ at = '1s', link = 'wan', down = true }, { at = '2s', link = 'wan', down = false }]",
    );
    let output = run(&["run", &file, "--", "ping", "-c", "30", "-i", "0.1", "-W", "1", "server"]);
    let words = text(&output);
    let received: u32 =
        words.split(" packets transmitted, ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap().parse().unwrap();
    assert!((17..=23).contains(&received), "a second of three was dark, {received} of 30 came through");
}

#[test]
fn a_cable_that_is_pulled_is_heard_of_at_both_hosts() {
    if !possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = topology(
        directory.path(),
        "hosts = { client = {}, server = {} }\nlinks = [{ name = 'wan', ends = ['client', 'server'] }]\n\
         events = [{ at = '300ms', link = 'wan', unplugged = true }, { at = '900ms', link = 'wan', unplugged = false }]",
    );
    let heard = directory.path().join("heard");
    // Without a carrier, a device keeps addresses and routes.
    let pulled =
        "until ip link show eth0 | grep -q NO-CARRIER; do sleep 0.02; done; ip -4 addr show eth0 | grep -q 10.99.0.";
    let server = format!("server=({pulled} && touch {}) & sleep 60", heard.display());
    let client = format!(
        "{pulled} && ! ping -c 1 -W 1 server; while ip link show eth0 | grep -q NO-CARRIER; do sleep 0.02; done; ping -c 1 server"
    );
    let output = run(&["run", &file, "--with", &server, "--", "sh", "-c", &client]);
    assert!(output.status.success() && heard.exists(), "{}", text(&output));
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let file = topology(directory.path(), "hosts = { a = {} }\nlinks = [{ ends = ['a', 'b'] }]");
    let own = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, format!("hosts = {{ client = {{}}, server = {{}} }}\n{text}")).unwrap();
        path.into_os_string().into_string().unwrap()
    };
    let link = "name = 'wan', ends = ['client', 'server']";
    let expedited = own("ef", &format!("links = [{{ {link}, rate = '1Mbit', diffserv = {{ ef_rate = '2Mbit' }} }}]"));
    let to_itself = own("self", "traffic = [{ kind = 'tcp', from = 'client', to = 'client' }]");
    let late = own("late", &format!("links = [{{ {link} }}]\nevents = [{{ at = '1s', link = 'wan', delay = '60s' }}]"));
    let cases: [(&[&str], &str); 9] = [
        (&["run", &file, "--", "true"], "haul-lab: link a-b: there is no host \"b\"\n"),
        (
            &["run", "--on", "moon", "--", "true"],
            "haul-lab: there is no host moon in this network, but client, server\n",
        ),
        (&["run", "--capture", "lan=x", "--", "true"], "haul-lab: --capture: there is no link lan\n"),
        (&["run", "--mtu", "100", "--", "true"], "haul-lab: link wan: the MTU must be 576 to 65521\n"),
        // Root would change the whole machine permanently.
        (
            &["run", "--sysctl", "kernel.hostname=lab", "--", "true"],
            "haul-lab: host client: \"kernel.hostname\" is no setting of a host: their names begin with net.\n",
        ),
        (
            &["run", &expedited, "--", "true"],
            "haul-lab: link wan: EF may have 2 Mbit/s, more than the link's 1 Mbit/s\n",
        ),
        (&["run", &to_itself, "--", "true"], "haul-lab: traffic from client to client: it never leaves its host\n"),
        (&["run", &late, "--", "true"], "haul-lab: event at 1 s: a delay may be at most 30 s\n"),
        (&["run", "missing.toml"], "haul-lab: cannot read missing.toml: No such file or directory (os error 2)\n"),
    ];
    for (args, words) in cases {
        let output = run(args);
        assert_eq!((output.status.code(), text(&output).as_str()), (Some(125), words));
    }
}

#[test]
fn a_path_that_the_emulator_cannot_hold_is_refused() {
    if !possible() {
        return;
    }
    let output = run(&["run", "--rate", "400Gbit", "--rtt", "200ms", "--", "true"]);
    assert_eq!(output.status.code(), Some(125));
    let words = "link wan: 400 Gbit/s x 100 ms are 5 GB on the way, and the engine emulated holds 1.074 GB: use --engine virtual";
    assert_eq!(text(&output), format!("haul-lab: cannot make the network: {words}\n"));
}

#[test]
fn traffic_that_cannot_be_sent_is_told_and_the_lab_ends_with_its_command() {
    if !possible() {
        return;
    }
    let start = Instant::now();
    let output = run(&["run", "--cross", "900Gbit", "--", "sleep", "4"]);
    let took = start.elapsed();
    let words = "figures of this run must not be believed: ";
    assert!(output.status.success() && text(&output).contains(words), "{}", text(&output));
    // Datagrams not sent then would take as long again.
    assert!(took < Duration::from_secs(7), "{took:?}");
}

#[test]
fn a_reader_that_has_had_enough_is_no_failure() {
    for words in ["doctor", "experiment"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = lab().arg(words).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{words}");
        assert_eq!(output.status.code(), Some(0), "{words}");
    }
}

#[test]
fn a_command_that_is_not_there_is_said_so() {
    if !possible() {
        return;
    }
    let output = run(&["run", "--", "no-such-program"]);
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(text(&output), "haul-lab: cannot run no-such-program: No such file or directory (os error 2)\n");
}

#[test]
fn an_ordinary_user_has_a_lab_and_stays_an_ordinary_user() {
    if !possible() {
        return;
    }
    let as_user = |args: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
        if !rustix::process::geteuid().is_root() {
            command = Command::new("env");
        }
        command.arg("env").args(["-u", "XDG_RUNTIME_DIR", "timeout", LIMIT, env!("CARGO_BIN_EXE_haul-lab")]);
        command.args(args).output().unwrap()
    };
    let doctor = as_user(&["doctor"]);
    if !doctor.status.success() {
        // This administrator keeps /dev/net/tun from users.
        eprintln!("skipped: ordinary users have no lab here:\n{}", text(&doctor));
        return;
    }
    let output = as_user(&[
        "run",
        "--rtt",
        "10ms",
        "--",
        "sh",
        "-c",
        "id -u; ping -c 1 -W 5 server; grep CapEff /proc/self/status",
    ]);
    let words = text(&output);
    assert!(!words.starts_with("0\n") && words.contains("1 received"), "{words}");
    assert!(words.contains("CapEff:\t0000000000000000"), "{words}");
}

#[test]
fn a_lab_under_another_name_is_left_alone_by_the_next() {
    if !possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let renamed = directory.path().join("my-lab");
    std::fs::copy(env!("CARGO_BIN_EXE_haul-lab"), &renamed).unwrap();
    let name = mark("renamed");
    let file = topology(directory.path(), &format!("name = '{name}'\nhosts = {{ client = {{}} }}"));
    let mut first = Command::new("timeout");
    first.args(["--kill-after=5", LIMIT]).arg(&renamed).args(["run", &file, "--", "sh", "-c", "echo; exec sleep 60"]);
    let first = started(first.stdout(Stdio::piped()).spawn().unwrap());
    assert!(run(&["run", "--", "true"]).status.success());
    let entered = run(&["exec", "--lab", &name, "client", "--", "true"]);
    assert!(entered.status.success(), "{}", text(&entered));
    end(first);
}
