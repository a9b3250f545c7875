//! Round trips of a copy before and after its data.

use haul_e2e::{Boxed, code, needs, plant, scratch};

/// To the daemon: TCP; TLS; the file's offer and the lanes' handshake; data and receipt. The greeting goes along, and lanes
/// are dialled before the daemon answers.
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

/// From the daemon: TCP; TLS; the job, and the file in answer; request and data. The far side learns the end from the last
/// word, which nobody answers.
#[test]
fn a_small_file_is_pulled_over_a_long_path_in_four_round_trips() {
    needs!(Boxed);
    let dir = scratch();
    let (from, to) = (dir.path().join("file"), dir.path().join("copy"));
    plant::file(&from, 10_000, 1);
    let path = Boxed { rate: "100Mbit", rtt: "600ms", ..Boxed::default() };
    let run = path.pull(&[], &from, &to).expect(code::OK);
    let report = run.clone().report();
    let round_trips = report["elapsed_s"].as_f64().unwrap_or_default() / 0.6;
    assert!((4.0..4.5).contains(&round_trips), "{round_trips} round trips\n{run}");
}

/// Only the far side knows how much it has: this side dials for much, and the far side uses them all.
#[test]
fn much_data_is_pulled_over_a_long_path_by_as_many_lanes_as_it_would_be_pushed() {
    needs!(Boxed);
    let dir = scratch();
    let (from, to) = (dir.path().join("file"), dir.path().join("copy"));
    let path = Boxed { rate: "1Gbit", rtt: "400ms", ..Boxed::default() };
    plant::file(&from, 130_000_000, 1);
    let run = path.pull(&[], &from, &to).expect(code::OK);
    assert_eq!(run.clone().report()["path"]["lanes"].as_u64(), Some(64), "{run}");
}

/// Over ssh, within a minute of another copy: session and command; job and greeting; TCP; TLS; data. The command carries what
/// our program over there needs to know.
#[test]
fn the_second_copy_over_ssh_has_begun_after_three_round_trips_and_moves_data_after_four() {
    needs!(Boxed, Tool("sshd"), Tool("ssh"), Tool("ssh-keygen"));
    const RTT_S: f64 = 0.6;
    let dir = scratch();
    let inside = |name: &str| dir.path().join(name).display().to_string();
    for name in ["host", "user"] {
        haul_e2e::lab::keygen(&dir.path().join(name));
    }
    for name in ["near/run", "far"] {
        std::fs::create_dir_all(dir.path().join(name)).expect("own directory");
    }
    plant::set_mode(&dir.path().join("near/run"), 0o700);
    plant::file(&dir.path().join("file"), 10_000, 1);
    let public = |name: &str| std::fs::read_to_string(dir.path().join(name)).expect("ssh-keygen wrote it");
    plant::text(&dir.path().join("known"), &format!("server {}", public("host.pub")));
    let config = format!(
        "Host server\n  HostKeyAlias server\n  Port 2222\n  User root\n  IdentityFile {}\n  IdentitiesOnly yes\n  \
         UserKnownHostsFile {}\n  GlobalKnownHostsFile /dev/null\n  BatchMode yes\n",
        inside("user"),
        inside("known"),
    );
    plant::text(&dir.path().join("config"), &config);
    let daemon = format!(
        "Port 2222\nHostKey {}\nPidFile none\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nUseDNS no\nPrintMotd no\n\
         PermitRootLogin prohibit-password\nSetEnv HOME={far} XDG_CACHE_HOME={far}\n",
        inside("host"),
        inside("user.pub"),
        far = inside("far"),
    );
    plant::text(&dir.path().join("sshd"), &daemon);
    let haul = haul_e2e::binary::find().expect("asked for with needs!");
    let copy = |to: &str| format!("{} cp --json -F {} file server:{}", haul.display(), inside("config"), inside(to));
    let script = format!(
        "set -eu; cd {}; export HOME={near} XDG_RUNTIME_DIR={near}/run XDG_STATE_HOME={near}\n\
         tries=0; until bash -c 'exec 3<>/dev/tcp/server/2222' 2>/dev/null; do\n\
         tries=$((tries + 1)); [ $tries -lt 100 ]; sleep 0.1; done\n{} >first\n{}\n",
        dir.path().display(),
        copy("far/first"),
        copy("far/second"),
        near = inside("near"),
    );
    std::fs::create_dir_all("/run/sshd").expect("root can make /run/sshd");
    let sshd = haul_e2e::needs::tool("sshd").expect("asked for with needs!");
    let lab = haul_e2e::Run::new(haul_e2e::binary::find_lab().expect("asked for with needs!"))
        .args(["run", "--rate", "1Gbit", "--rtt", "600ms", "--with"])
        .arg(format!("server={} -D -e -f {}", sshd.display(), inside("sshd")));
    let run = lab.args(["--", "sh", "-c", &script]).run().expect(code::OK);
    let report = run.report();
    let begun = run.events_named("chose").into_iter().find(|event| event["what"] == "rights").expect("it is told");
    let begun = begun["at_s"].as_f64().unwrap_or_default() / RTT_S;
    let stand = report["connected_s"].as_f64().unwrap_or_default() / RTT_S;
    assert!((3.0..3.6).contains(&begun), "the far side has begun after {begun} round trips\n{run}");
    assert!((4.0..4.7).contains(&stand), "data leaves after {stand} round trips\n{run}");
}
