//! Paths that lose, reorder and duplicate packets, drop large ones silently, or forget connections.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use haul_e2e::{Boxed, Facets, Host, Lab, Outcome, assert_same, at, code, contents_of, needs, plant, scratch};

#[test]
fn losses_reordering_and_duplicates_on_a_long_path_change_nothing() {
    needs!(Boxed);
    let dir = scratch();
    let (from, to, back) = (dir.path().join("from"), dir.path().join("to"), dir.path().join("back"));
    plant::many(&from.join("many"), 60, 20_000, 1);
    plant::file(&from.join("large"), 6 << 20, 2);
    plant::date(&from, 3);
    let path = Boxed {
        rate: "100Mbit",
        rtt: "300ms",
        link: "loss = \"5%\"\nreorder = \"2%\"\nreorder_by = \"20ms\"\nduplicate = \"2%\"\njitter = \"20ms\"",
        ..Boxed::default()
    };
    path.push(&[], contents_of(&from).as_ref(), &to).expect(code::OK);
    assert_same(&from, &to, Facets::PLAIN);
    path.pull(&[], contents_of(&from).as_ref(), &back).expect(code::OK);
    assert_same(&from, &back, Facets::PLAIN);
}

/// A line with fifty times less room back: the acknowledgements of data fill it, and push out the target's words.
#[test]
fn where_the_way_back_is_narrow_data_is_acknowledged_less_often_and_none_goes_twice() {
    needs!(Boxed);
    let dir = scratch();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    plant::file(&from, 32 << 20, 1);
    let path =
        Boxed { rate: "50Mbit", rtt: "30ms", link: "back = { rate = \"1Mbit\", queue = \"3kB\" }", ..Boxed::default() };
    let run = path.push(&[], &from, &to).expect(code::OK);
    assert_same(&from, &to, Facets::CONTENTS);
    assert!(run.events_named("chose").iter().any(|event| event["what"] == "acknowledgements"), "{run}");
    assert!(run.count("bytes_again") < 4 << 20, "{run}");
}

/// A download over such a line: the acknowledgements push out the requests.
#[test]
fn where_the_way_to_a_web_server_is_narrow_its_data_is_acknowledged_less_often() {
    needs!(Boxed, Tool("nginx"));
    let dir = scratch();
    let (root, to) = (dir.path().join("www"), dir.path().join("to"));
    plant::file(&root.join("file"), 64 << 20, 1);
    plant::set_mode(dir.path(), 0o755);
    let (config, place) = (dir.path().join("nginx.conf"), dir.path().display());
    let temp: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|what| format!("{what}_temp_path {place}/{what}; "))
        .concat();
    let text = format!(
        "pid {place}/pid; error_log {place}/error.log;\nevents {{ worker_connections 256; }}\n\
         http {{ access_log off; {temp}\nserver {{ listen {WEB_PORT}; root {place}/www; }} }}\n"
    );
    fs::write(&config, text).expect("own file");
    let start = format!("nginx -e stderr -c {}", config.display());
    let link = "back = { rate = \"80Mbit\" }";
    let path = Boxed { rate: "1Mbit", rtt: "30ms", link, before_target: &start, ..Boxed::default() };
    let run = path.pull_from(&[], &format!("http://target:{WEB_PORT}/file"), &to).expect(code::OK);
    assert_same(&root.join("file"), &to, Facets::CONTENTS);
    assert!(run.events_named("chose").iter().any(|event| event["what"] == "acknowledgements"), "{run}");
}

const WEB_PORT: u16 = 8080;

/// Drops larger packets to this host, except ssh's.
fn swallow_large(host: &Host, other: &Host, bytes: u32) {
    let (own, theirs) = (host.ssh_port, other.ssh_port);
    host.nft(&format!(
        "table inet hole {{\nchain c {{\ntype filter hook input priority 0;\niifname \"lo\" accept\n\
         tcp dport {own} accept\ntcp sport {theirs} accept\nmeta length > {bytes} drop\n}}\n}}\n"
    ));
}

/// The stall is noticed, its reason named, and smaller packets get through, whichever side sends.
#[track_caller]
fn goes_around_the_hole(run: &Outcome) {
    let warned = run.events_named("warning").iter().any(|event| {
        let text = event["text"].to_string();
        text.contains("large packets") && text.contains("made again with 1220 bytes")
    });
    assert!(warned, "{run}");
    run.clone().expect(code::OK);
}

#[test]
fn over_a_path_that_swallows_large_packets_the_copy_goes_on_with_smaller_ones() {
    needs!(Nftables, Haul);
    let lab = Lab::pair();
    let (home, alpha) = (lab.home(), lab.alpha());
    let (source, there) = (lab.data("home").join("file"), lab.data("alpha").join("file"));
    plant::file(&source, 8 << 20, 1);
    swallow_large(alpha, home, 1300);
    swallow_large(home, alpha, 1300);
    // Large writes are cut into packets before they leave.
    for host in [home, alpha] {
        host.run("ip").args(["link", "set", "eth0", "gso_max_segs", "1"]).run().expect(0);
    }
    let cp = || lab.cp().args(["--timeout", "8"]);
    goes_around_the_hole(&cp().arg(&source).arg(at("alpha", &there)).run());
    assert_same(&source, &there, Facets::CONTENTS);
    let theirs = lab.data("alpha").join("theirs");
    plant::file(&theirs, 8 << 20, 2);
    let got = lab.data("home").join("got");
    goes_around_the_hole(&cp().arg(at("alpha", &theirs)).arg(&got).run());
    assert_same(&theirs, &got, Facets::CONTENTS);
}

/// Accepts only connections whose beginning was seen, and forgets silent ones.
fn forget_after(host: &Host, seconds: u32) {
    host.nft(
        "table inet memory {\nchain c {\ntype filter hook input priority 0;\niifname \"lo\" accept\n\
         meta l4proto icmpv6 accept\nct state established accept\ntcp flags & (syn | ack) == syn accept\ndrop\n}\n}\n",
    );
    host.inside(|| {
        let set = |name: &str, value: u32| {
            fs::write(format!("/proc/sys/net/netfilter/nf_conntrack_{name}"), value.to_string()).expect("root may");
        };
        set("tcp_timeout_established", seconds);
        set("tcp_loose", 0);
    });
}

#[test]
fn a_firewall_that_forgets_silent_connections_does_not_forget_ours() {
    needs!(Nftables, Haul);
    let lab = Lab::pair();
    forget_after(lab.alpha(), 3);
    let (source, there) = (lab.data("home").join("file"), lab.data("alpha").join("file"));
    plant::file(&source, 12 << 20, 1);
    let door = SocketAddr::from((lab.alpha().v4, lab.alpha().ssh_port));
    let mut silent = lab.home().inside(|| TcpStream::connect(door).expect("it listens"));
    let mut greeting = [0; 4];
    silent.read_exact(&mut greeting).expect("sshd speaks first");
    // One lane moves all data; the other connections only send keep-alives.
    let slowly = ["--rate", "1MB", "--lanes", "2", "--timeout", "6"];
    lab.cp().args(slowly).arg(&source).arg(at("alpha", &there)).run().expect(code::OK);
    assert_same(&source, &there, Facets::CONTENTS);
    silent.set_read_timeout(Some(Duration::from_secs(2))).expect("a socket");
    silent.write_all(b"no ssh\r\n").expect("nobody says no");
    let mut rest = Vec::new();
    let answered = silent.read_to_end(&mut rest);
    let words = String::from_utf8_lossy(&rest).into_owned();
    assert!(answered.is_err() && !words.contains("Invalid"), "the connection was not forgotten: {words}");
}
