//! Data connections: direct, reversed, over ssh; with firewalls, strangers, address families.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use haul_e2e::firewall::Manner;
use haul_e2e::stranger::Stranger;
use haul_e2e::{Facets, Lab, Outcome, Run, assert_same, at, code, contents_of, eventually, needs, plant};

struct Lanes {
    lab: Lab,
    here: PathBuf,
    there: PathBuf,
    back: PathBuf,
}

impl Lanes {
    fn new() -> Self {
        let lab = Lab::pair();
        let (here, there, back) =
            (lab.data("home").join("tree"), lab.data("alpha").join("tree"), lab.data("home").join("back"));
        plant::file(&here.join("large"), 60 << 20, 1);
        plant::many(&here.join("small"), 500, 3000, 2);
        Self { lab, here, there, back }
    }

    fn push(&self, flags: &[&str]) -> Run {
        self.lab.cp().args(flags).arg(contents_of(&self.here)).arg(at("alpha", &self.there))
    }

    fn pull(&self, flags: &[&str]) -> Run {
        self.lab.cp().args(flags).arg(at("alpha", contents_of(&self.there))).arg(&self.back)
    }

    #[track_caller]
    fn go(&self, flags: &[&str], path: &str) {
        for (run, target) in [(self.push(flags), &self.there), (self.pull(flags), &self.back)] {
            let run = run.run().expect(code::OK);
            assert_same(&self.here, target, Facets::PLAIN);
            assert_eq!(run.report()["lane_path"], path, "{run}");
            let warnings = through_ssh(&run);
            assert_eq!(warnings, usize::from(path == "ssh" && !flags.contains(&"--lanes-over-ssh")), "{run}");
        }
    }

    fn ssh_port(&self) -> u16 {
        self.lab.alpha().ssh_port
    }

    fn connections(&self) -> Vec<String> {
        let ssh_port = self.ssh_port();
        let filter = format!("( not sport = :{ssh_port} and not dport = :{ssh_port} )");
        let list = self.lab.alpha().run("ss").args(["-tnH", "state", "established", &filter]).run().expect(0);
        list.stdout_text().lines().filter_map(|line| line.split_whitespace().last()).map(str::to_owned).collect()
    }
}

/// Warnings that data goes through ssh, with a hint.
fn through_ssh(run: &Outcome) -> usize {
    let is_it = |text: &str| text.contains("goes through ssh") && text.contains("--port-range");
    run.events_named("warning").iter().filter(|event| event["text"].as_str().is_some_and(is_it)).count()
}

#[test]
fn open_hosts_talk_directly() {
    needs!(Namespaces, Haul);
    Lanes::new().go(&[], "direct");
}

#[test]
fn a_server_behind_a_firewall_calls_back() {
    needs!(Nftables, Haul);
    for manner in [Manner::Drop, Manner::Reject] {
        let lanes = Lanes::new();
        lanes.lab.alpha().close_ports_but(&[lanes.ssh_port()], manner);
        lanes.go(&[], "direct, reversed");
    }
}

#[test]
fn with_firewalls_on_both_sides_the_data_goes_through_ssh() {
    needs!(Nftables, Haul);
    for manner in [Manner::Drop, Manner::Reject] {
        let lanes = Lanes::new();
        lanes.lab.alpha().close_ports_but(&[lanes.ssh_port()], manner);
        lanes.lab.home().close_ports_but(&[9], manner);
        lanes.go(&[], "ssh");
    }
}

#[test]
fn data_through_ssh_can_be_asked_for() {
    needs!(Namespaces, Haul);
    Lanes::new().go(&["--lanes-over-ssh"], "ssh");
    Lanes::new().go(&["--lanes-over-ssh", "--lanes", "3"], "ssh");
}

#[test]
fn closed_ports_cost_only_a_moment() {
    needs!(Nftables, Haul);
    let lanes = Lanes::new();
    lanes.push(&[]).run().expect(code::OK);
    lanes.lab.alpha().close_ports_but(&[lanes.ssh_port()], Manner::Drop);
    lanes.lab.home().close_ports_but(&[9], Manner::Drop);
    let run = lanes.pull(&[]).run().expect(code::OK);
    assert_eq!((&run.report()["lane_path"], through_ssh(&run)), (&"ssh".into(), 1), "{run}");
    let chosen = run.events_named("chose").into_iter().find(|event| event["what"] == "lane path").expect("it is told");
    let why = chosen["reason"].as_str().unwrap_or_default();
    assert!(why.contains("direct: cannot connect") && why.contains("reversed: cannot connect"), "{why}");
    // Each way is tried for 3 s; the rest is for a busy machine. The kernel's own attempts take over two minutes.
    assert!(run.elapsed < Duration::from_secs(40), "{run}");
}

#[test]
fn the_listener_keeps_to_its_port_range() {
    needs!(Nftables, Haul);
    let lanes = Lanes::new();
    // Only these ports are open, both ways.
    lanes.lab.alpha().close_ports_but(&[lanes.ssh_port(), 50001, 50002], Manner::Drop);
    lanes.lab.home().close_ports_but(&[50001, 50002], Manner::Drop);
    lanes.go(&["--port-range", "50001-50002", "--lanes", "4"], "direct");
}

#[test]
fn a_port_range_that_is_taken_leads_to_another_way() {
    needs!(Nftables, Haul);
    let lanes = Lanes::new();
    let (alpha, home) = (lanes.lab.alpha(), lanes.lab.home());
    let bind = || std::net::TcpListener::bind(("::", 50001)).expect("a free port");
    let _taken = (alpha.inside(bind), home.inside(bind));
    lanes.go(&["--port-range", "50001-50001"], "ssh");
}

#[test]
fn a_stranger_who_is_first_neither_gets_in_nor_stands_in_the_way() {
    needs!(Namespaces, Haul);
    let words: [&'static [u8]; 3] = [b"", b"GET / HTTP/1.0\r\n\r\n", &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]];
    for words in words {
        let lanes = Lanes::new();
        let at_alpha = Stranger::lurk(lanes.lab.alpha(), lanes.lab.home(), words);
        let at_home = Stranger::lurk(lanes.lab.home(), lanes.lab.alpha(), words);
        let run = lanes.push(&["--rate", "60MB"]).run().expect(code::OK);
        assert_same(&lanes.here, &lanes.there, Facets::PLAIN);
        assert!(run.elapsed < Duration::from_secs(20), "the stranger held it up\n{run}");
        let (connections, _) = at_alpha.leave();
        let (more, _) = at_home.leave();
        assert!(connections + more > 0, "the stranger saw no port to connect to");
    }
}

#[test]
fn ipv6_alone_is_enough() {
    needs!(Nftables, Haul);
    let lanes = Lanes::new();
    for host in [lanes.lab.home(), lanes.lab.alpha()] {
        host.nft(
            "table ip lab_v4 {\nchain c {\ntype filter hook output priority 0;\nmeta oifname \"eth0\" drop\n}\n}\n",
        );
    }
    let run = lanes.lab.cp().arg(contents_of(&lanes.here)).arg(at("alpha-v6", &lanes.there)).run().expect(code::OK);
    assert_same(&lanes.here, &lanes.there, Facets::PLAIN);
    assert_eq!(run.report()["lane_path"], "direct", "{run}");
}

#[test]
fn a_family_can_be_forced() {
    needs!(Namespaces, Haul);
    let lanes = Lanes::new();
    for (flag, host) in [("-4", "alpha"), ("-6", "alpha-v6")] {
        let target = lanes.there.join(flag);
        let run =
            lanes.lab.cp().args([flag, "--lanes", "2"]).arg(contents_of(&lanes.here)).arg(at(host, &target)).run();
        assert_eq!(run.expect(code::OK).report()["lane_path"], "direct");
        assert_same(&lanes.here, &target, Facets::PLAIN);
    }
}

#[test]
fn lanes_are_as_many_connections_as_asked_for() {
    needs!(Namespaces, Haul);
    let lanes = Lanes::new();
    plant::file(&lanes.here.join("large"), 100 << 20, 3);
    let mut running = lanes.push(&["--lanes", "5", "--rate", "40MB"]).start();
    running.when_moved(10 << 20);
    let ssh_port = lanes.ssh_port();
    let connections = lanes.lab.alpha().inside(|| established_here(ssh_port));
    assert_eq!(connections, 5, "data connections between the hosts");
    let run = running.wait().expect(code::OK);
    assert_eq!(run.count("lanes"), 5, "{run}");
}

#[test]
fn every_cipher_carries_the_data() {
    needs!(Namespaces, Haul);
    for (flag, name) in
        [("aes128-gcm", "AES_128_GCM"), ("aes256-gcm", "AES_256_GCM"), ("chacha20", "CHACHA20_POLY1305")]
    {
        let lanes = Lanes::new();
        let run = lanes.push(&["--cipher", flag]).run().expect(code::OK);
        assert_same(&lanes.here, &lanes.there, Facets::PLAIN);
        let said = run.report()["cipher"].as_str().unwrap_or_default().to_uppercase().replace('-', "_");
        let short = flag.to_uppercase().replace('-', "_");
        assert!(said.contains(name) || said.contains(&short), "{said} for {flag}\n{run}");
    }
}

#[test]
fn lanes_in_the_clear_carry_the_data_whoever_dials_and_through_ssh() {
    needs!(Nftables, Haul);
    Lanes::new().go(&["--cipher", "none", "--lanes", "3"], "direct");
    Lanes::new().go(&["--cipher", "none", "--lanes-over-ssh"], "ssh");
    let lanes = Lanes::new();
    lanes.lab.alpha().close_ports_but(&[lanes.ssh_port()], Manner::Reject);
    lanes.go(&["--cipher", "none"], "direct, reversed");
    let run = Lanes::new().push(&["--cipher", "none"]).run().expect(code::OK);
    assert_eq!(run.report()["cipher"], "none (clear, authenticated)", "{run}");
}

#[test]
fn zeros_are_sent_and_what_goes_nowhere_is_verified_without_a_disk() {
    needs!(Namespaces, Haul);
    let lanes = Lanes::new();
    let there = lanes.lab.data("alpha").join("zeros");
    let run = lanes.lab.cp().arg("zero:50M").arg(at("alpha", &there)).run().expect(code::OK);
    assert_eq!(fs::read(&there).expect("it is there"), vec![0; 50 << 20], "{run}");
    let run = lanes.lab.cp().arg(at("alpha", &there)).arg("null:").run().expect(code::OK);
    assert_eq!((run.count("bytes_moved"), run.count("files_moved")), (50 << 20, 1), "{run}");
}

#[test]
fn compression_and_rates_are_honoured() {
    needs!(Namespaces, Haul);
    let lanes = Lanes::new();
    plant::text(&lanes.here.join("words"), &"the same words again and again\n".repeat(300_000));
    lanes.push(&["-z"]).run().expect(code::OK);
    assert_same(&lanes.here, &lanes.there, Facets::PLAIN);
    // 60 MiB at 160 Mbit/s take three seconds.
    let run = lanes.pull(&["--rate", "160Mbit"]).run().expect(code::OK);
    assert!(run.elapsed > Duration::from_millis(2500), "{run}");
    assert!(run.elapsed < Duration::from_secs(10), "{run}");
}

#[test]
fn a_lost_lane_gives_its_chunks_back() {
    needs!(Nftables, Tool("ss"), Haul);
    for is_push in [true, false] {
        let lanes = Lanes::new();
        plant::file(&lanes.here.join("large"), 150 << 20, 3);
        let flags = ["--lanes", "4", "--rate", "40MB"];
        let (source, target, run) = match is_push {
            true => (&lanes.here, &lanes.there, lanes.push(&flags)),
            false => {
                fs::rename(&lanes.here, &lanes.there).expect("the same disk");
                (&lanes.there, &lanes.back, lanes.pull(&flags))
            }
        };
        let mut running = run.start();
        for mib in [20, 50, 80] {
            running.when_moved(mib << 20);
            let [victim, ..] = &lanes.connections()[..] else { panic!("no data connection in the middle of a copy") };
            // The kernel resets both ends, as a broken middlebox would; one that cannot says nothing.
            let (_, port) = victim.rsplit_once(':').expect("address and port");
            lanes.lab.alpha().run("ss").args(["-K", "-tn", "dport", "=", &format!(":{port}")]).run().expect(0);
            let is_gone = || !lanes.connections().contains(victim);
            eventually("the kernel has closed the connection", Duration::from_secs(2), is_gone);
            assert!(!running.has_ended(), "it went with the copy");
        }
        let run = running.wait().expect(code::OK);
        assert_same(source, target, Facets::PLAIN);
        assert!(run.count("bytes_again") < 100 << 20, "{run}");
    }
}

#[test]
fn a_jump_host_leads_to_a_host_that_is_out_of_reach() {
    needs!(Nftables, Haul);
    let lab = Lab::triangle();
    let (here, there) = (lab.data("home").join("file"), lab.data("beta").join("file"));
    plant::file(&here, 20 << 20, 1);
    for (host, other) in [(lab.home(), lab.host("beta")), (lab.host("beta"), lab.home())] {
        host.nft(&format!(
            "table inet lab_apart {{\nchain c {{\ntype filter hook output priority 0;\nip daddr {} drop\nip6 daddr {} drop\n}}\n}}\n",
            other.v4, other.v6,
        ));
    }
    let config = format!("Host beta\n  ProxyJump alpha\n{}", fs::read_to_string(lab.ssh_config()).expect("own file"));
    fs::write(lab.ssh_config(), config).expect("own file");
    let proxy = format!("ProxyCommand=ssh -F {} -W %h:%p alpha", lab.ssh_config().display());
    for (number, flags) in [vec![], vec!["-o", proxy.as_str()]].into_iter().enumerate() {
        let there = there.with_extension(number.to_string());
        let run = lab.cp().args(flags).arg(&here).arg(at("beta", &there)).run().expect(code::OK);
        assert_same(&here, &there, Facets::PLAIN);
        assert_eq!(run.report()["lane_path"], "ssh", "{run}");
    }
}

/// Established TCP connections in the thread's namespace, except the ssh server's.
fn established_here(ssh_port: u16) -> usize {
    const ESTABLISHED: &str = "01";
    let mut count = 0;
    for table in ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"] {
        for line in fs::read_to_string(table).unwrap_or_default().lines().skip(1) {
            let columns: Vec<_> = line.split_ascii_whitespace().collect();
            let port = columns[1].rsplit(':').next().and_then(|hex| u16::from_str_radix(hex, 16).ok());
            if columns[3] == ESTABLISHED && port != Some(ssh_port) {
                count += 1;
            }
        }
    }
    count
}
