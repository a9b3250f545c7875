//! Tests in a guest kernel: what the host's may lack (kernel TLS), and what would disturb it (a jumping wall clock).
//!
//! ```text
//! test -> haul-lab run --engine uml -> this program once more, in the guest: haul serve, a proxy that does harm, haul cp
//! ```
//! Package user-mode-linux's kernel, or that of `HAUL_LAB_KERNEL`.
#![forbid(unsafe_code)]

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use haul_e2e::needs::{GUEST_KERNEL, tool};
use haul_e2e::{
    Facets, Fate, Harm, Outcome, Proxy, Run, Running, assert_same, binary, code, contents_of, needs, plant,
};

const TOPOLOGY: &str = "name = 'guest'\nhosts = { client = {} }\n";

#[track_caller]
fn in_guest(test: &str) {
    let dir = haul_e2e::scratch();
    let topology = dir.path().join("guest.toml");
    fs::write(&topology, TOPOLOGY).expect("own directory");
    let kernel = std::env::var_os("HAUL_LAB_KERNEL").map(PathBuf::from).or_else(|| tool(GUEST_KERNEL));
    let lab = binary::find_lab().expect("asked for with needs!");
    let run = Run::new(lab)
        .args(["run", "--engine", "uml", "--kernel"])
        .arg(kernel.expect("asked for with needs!"))
        .arg(topology)
        // From the guest, the host's files are slow.
        .args(["--", "env", "TMPDIR=/dev/shm"])
        .arg(std::env::current_exe().expect("it runs"))
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env("HAUL_BIN", binary::find().expect("asked for with needs!"))
        .limit(Duration::from_secs(300))
        .run()
        .expect(code::OK);
    assert!(run.stdout_text().contains("1 passed"), "it did not run in the guest\n{run}");
}

#[test]
fn the_kernel_seals_what_is_sent_by_sendfile_and_a_flipped_byte_is_found() {
    needs!(GuestKernel);
    in_guest("inside::copies_by_sendfile_are_sealed_by_the_kernel_and_a_flipped_byte_is_found");
}

#[test]
fn haul_bench_measures_what_the_kernel_seals_and_opens() {
    needs!(GuestKernel);
    in_guest("inside::bench_sends_and_receives_by_pages_over_tls");
}

#[test]
fn a_clock_that_jumps_a_day_either_way_disturbs_no_copy() {
    needs!(GuestKernel);
    in_guest("inside::copies_go_on_while_the_clock_is_set");
}

/// `cargo test` ignores these here; the tests above start them in the guest.
mod inside {
    use rustix::time::{ClockId, Timespec, clock_gettime, clock_settime};

    use super::*;

    const ADDRESS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7632);
    const PROXY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7633);

    /// A daemon, a client that knows its two addresses, a tree, and both keys elsewhere.
    struct Stage {
        dir: tempfile::TempDir,
        keys: tempfile::TempDir,
        _daemon: Running,
    }

    impl Stage {
        fn new() -> Self {
            let (dir, keys) = (haul_e2e::scratch(), haul_e2e::scratch());
            let at = |name: &str| keys.path().join(name);
            let key = |name: &str| {
                haul().args(["key", "generate", "--file"]).arg(at(name)).run().expect(code::OK);
                let shown = haul().args(["key", "show", "--file"]).arg(at(name)).run().expect(code::OK).stdout_text();
                let key = shown.split_whitespace().find(|word| word.starts_with("ed25519:"));
                key.expect("it shows the key").to_owned()
            };
            let (user, host) = (key("user"), key("host"));
            fs::write(at("authorized"), format!("rw root={} {user}\n", dir.path().display())).expect("own file");
            fs::write(at("known"), format!("{ADDRESS} {host}\n{PROXY} {host}\n")).expect("own file");
            let tree = dir.path().join("tree");
            plant::many(&tree.join("many"), 50, 3000, 1);
            plant::file(&tree.join("large"), 24 << 20, 2);
            plant::date(&tree, 3);
            let serve = haul().args(["serve", "--listen", &ADDRESS.to_string(), "--identity"]).arg(at("host"));
            let mut daemon = serve.arg("--authorized-keys").arg(at("authorized")).env("HOME", at("")).start();
            daemon
                .when("it listens", |daemon| String::from_utf8_lossy(&daemon.stderr_so_far()).contains("listening on"));
            Self { dir, keys, _daemon: daemon }
        }

        fn at(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }

        fn cp(&self, flags: &[&str]) -> Run {
            let at = |name: &str| self.keys.path().join(name);
            let cp = haul().args(["cp", "--json", "--lanes", "2", "--identity"]).arg(at("user"));
            cp.arg("--known-hosts").arg(at("known")).args(flags).env("HOME", at(""))
        }
    }

    fn haul() -> Run {
        Run::new(binary::find().expect("named by the test outside"))
    }

    /// Counts the connections that the kernel sealed or opened.
    fn counted(name: &str) -> u64 {
        let text = fs::read_to_string("/proc/net/tls_stat").expect("a kernel with TLS");
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("it counts them");
        line.trim().parse().expect("a number")
    }

    /// Looks for the event that says so; the usual way has none.
    fn says_that_the_kernel_seals(run: &Outcome) -> bool {
        run.events_named("chose")
            .iter()
            .any(|event| event["what"] == "encryption" && event["choice"] == "by the kernel")
    }

    #[test]
    #[ignore = "the test the_kernel_seals_what_is_sent_by_sendfile_and_a_flipped_byte_is_found runs it in a guest"]
    fn copies_by_sendfile_are_sealed_by_the_kernel_and_a_flipped_byte_is_found() {
        let stage = Stage::new();
        let plain = stage.cp(&[]).arg(contents_of(&stage.at("tree"))).arg(format!("haul://{ADDRESS}/plain"));
        let plain = plain.run().expect(code::OK);
        assert_same(&stage.at("tree"), &stage.at("plain"), Facets::PLAIN);
        assert!(counted("TlsTxSw") == 0 && !says_that_the_kernel_seals(&plain), "not asked for\n{plain}");
        for push in [true, false] {
            let harm = Harm::Flip(2_000_000);
            let fate = move |number| match (number, push) {
                (0 | 1, true) => Fate { forth: harm, ..Fate::GOOD },
                (0 | 1, false) => Fate { back: harm, ..Fate::GOOD },
                _ => Fate::GOOD,
            };
            let proxy = Proxy::start(SocketAddr::V4(PROXY), SocketAddr::V4(ADDRESS), fate);
            let (to, cp) = (stage.at(if push { "pushed" } else { "pulled" }), stage.cp(&["--route", "sendfile"]));
            let cp = match push {
                true => cp.arg(contents_of(&stage.at("tree"))).arg(format!("haul://{PROXY}/pushed")),
                false => cp.arg(format!("haul://{PROXY}/tree/")).arg(&to),
            };
            let before = counted("TlsTxSw");
            let run = cp.run().expect(code::OK);
            assert_same(&stage.at("tree"), &to, Facets::PLAIN);
            assert!(proxy.harmed() > 0, "nothing was flipped\n{run}");
            // The harmed lane, and another or its replacement.
            assert!(counted("TlsTxSw") >= before + 2, "{} connections\n{run}", counted("TlsTxSw") - before);
            assert!(says_that_the_kernel_seals(&run), "{run}");
        }
    }

    #[test]
    #[ignore = "the test haul_bench_measures_what_the_kernel_seals_and_opens runs it in a guest"]
    fn bench_sends_and_receives_by_pages_over_tls() {
        let spliced = &["--receive-route", "splice", "--sink", "memory", "--verify"];
        for (flags, sealed_by, opened_by) in [
            (&[][..], "haul", "haul"),
            (&["-Z"], "kernel", "haul"),
            (&["--route", "splice", "--verify"], "kernel", "haul"),
            (spliced, "haul", "kernel"),
        ] {
            for cipher in ["aes128-gcm", "aes256-gcm"] {
                let bench = haul().args(["bench", "-J", "-n", "16M", "--size", "8M", "--source", "memory"]);
                let run = bench.args(["--cipher", cipher]).args(flags).run().expect(code::OK);
                let found: serde_json::Value = serde_json::from_slice(&run.stdout).expect("an object");
                assert_eq!((&found["sealed_by"], &found["opened_by"]), (&sealed_by.into(), &opened_by.into()), "{run}");
                assert_eq!(found["bytes"], 16 << 20, "{run}");
            }
        }
    }

    const DAY_S: i64 = 24 * 3600;

    /// Call only in a guest.
    fn clock_jumps(by_s: i64) {
        let processor = fs::read_to_string("/proc/cpuinfo").expect("proc(5)");
        assert!(processor.contains("User Mode Linux"), "this is no guest, but somebody's machine");
        let now = clock_gettime(ClockId::Realtime);
        clock_settime(ClockId::Realtime, Timespec { tv_sec: now.tv_sec + by_s, ..now }).expect("root of the guest");
    }

    #[test]
    #[ignore = "the test a_clock_that_jumps_a_day_either_way_disturbs_no_copy runs it in a guest"]
    fn copies_go_on_while_the_clock_is_set() {
        let stage = Stage::new();
        for push in [true, false] {
            let to = stage.at(if push { "pushed" } else { "pulled" });
            // Shorter than the jumps, longer than any wait.
            let start = || {
                let cp = stage.cp(&["--rate", "5MB", "--timeout", "60"]);
                match push {
                    true => cp.arg(contents_of(&stage.at("tree"))).arg(format!("haul://{ADDRESS}/pushed")).start(),
                    false => cp.arg(format!("haul://{ADDRESS}/tree/")).arg(&to).start(),
                }
            };
            let begun = Instant::now();
            let mut running = start();
            running.when_moved(2 << 20);
            clock_jumps(DAY_S);
            running.when_moved(6 << 20);
            clock_jumps(-2 * DAY_S);
            running.when_moved(10 << 20);
            running.kill();
            clock_jumps(DAY_S);
            let mut running = start();
            running.when_moved(2 << 20);
            clock_jumps(-DAY_S);
            running.when_moved(4 << 20);
            clock_jumps(2 * DAY_S);
            let run = running.wait().expect(code::OK);
            assert_same(&stage.at("tree"), &to, Facets::PLAIN);
            assert!(run.count("bytes_moved") < 20 << 20, "it went on from where it was\n{run}");
            let told = run.report()["elapsed_s"].as_f64().expect("a number");
            assert!(told > 0.0 && told <= begun.elapsed().as_secs_f64(), "{told} s\n{run}");
            clock_jumps(-DAY_S);
            assert_eq!(start().wait().expect(code::OK).count("files_moved"), 0);
        }
    }
}
