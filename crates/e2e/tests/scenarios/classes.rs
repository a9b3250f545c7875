//! Service classes with real packets: their marks, and the copy's result.

use std::net::Ipv4Addr;
use std::time::Duration;

use haul_e2e::{
    Boxed, Facets, Host, Lab, Outcome, Run, assert_same, at, code, contents_of, eventually, needs, plant, scratch,
};

use crate::daemon::Daemon;

/// Counts a host's arrivals by mark: its sshd's or daemon's, and all else.
pub struct Counted<'a> {
    host: &'a Host,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Marks {
    pub expedited: u64,
    pub lower_effort: u64,
    pub plain: u64,
    /// Our mark on connections that carry words.
    pub on_words: u64,
}

impl<'a> Counted<'a> {
    /// `words` is these connections' port.
    pub fn at(host: &'a Host, hook: &str, words: u16) -> Self {
        let words_first = format!("tcp dport {words} ip dscp {{ ef, lephb }} counter name n_words");
        let rules = format!(
            "table inet classes {{\n\
             counter n_ef {{}}\ncounter n_le {{}}\ncounter n_plain {{}}\ncounter n_words {{}}\n\
             chain c {{\ntype filter hook {hook} priority 0;\n\
             meta iifname \"lo\" accept\nmeta oifname \"lo\" accept\n\
             {}\n{}\n\
             tcp dport {words} accept\ntcp sport {words} accept\n\
             ip dscp ef counter name n_ef accept\nip6 dscp ef counter name n_ef accept\n\
             ip dscp lephb counter name n_le accept\nip6 dscp lephb counter name n_le accept\n\
             meta l4proto tcp counter name n_plain\n}}\n}}\n",
            words_first,
            words_first.replace("dport", "sport"),
        );
        host.nft(&rules.replace("lephb", "1"));
        Self { host }
    }

    pub fn marks(&self) -> Marks {
        let of = |name: &str| self.packets(name);
        Marks { expedited: of("ef"), lower_effort: of("le"), plain: of("plain"), on_words: of("words") }
    }

    fn packets(&self, name: &str) -> u64 {
        let listed = Run::new("nft").args(["list", "counters"]).in_namespace(&self.host.namespace).run().expect(0);
        let text = listed.stdout_text();
        let (_, rest) = text.split_once(&format!("counter n_{name} {{")).unwrap_or_else(|| panic!("{text}"));
        rest.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{text}"))
    }
}

/// More than words take. Packets between namespaces hold up to 64 KiB, so 10 MiB are some 200.
pub const PACKETS: u64 = 100;

fn planted(lab: &Lab, host: &str) -> std::path::PathBuf {
    let from = lab.data(host).join("from");
    plant::many(&from, 40, 256 << 10, 1);
    from
}

pub fn marked_bytes(run: &Outcome) -> u64 {
    run.report()["path"]["marked_bytes"].as_u64().unwrap_or_else(|| panic!("{run}"))
}

#[test]
fn a_push_with_priority_marks_its_data_and_nothing_else() {
    needs!(Haul, Nftables);
    let lab = Lab::pair();
    let counted = Counted::at(lab.alpha(), "input", lab.alpha().ssh_port);
    let (from, to) = (planted(&lab, "home"), lab.data("alpha").join("to"));
    let run = lab.cp().args(["-4", "--priority", "--json"]).arg(contents_of(&from)).arg(at("alpha", &to)).run();
    let run = run.expect(code::OK);
    assert_same(&from, &to, Facets::PLAIN);
    let marks = counted.marks();
    assert!(marks.expedited > PACKETS && marks.lower_effort == 0 && marks.on_words == 0, "{marks:?}\n{run}");
    assert!(marked_bytes(&run) > 9 << 20, "{run}");
    assert_eq!(run.report()["path"]["class"], "priority", "{run}");
}

#[test]
fn a_pull_in_the_background_is_marked_by_the_far_side() {
    needs!(Haul, Nftables);
    let lab = Lab::pair();
    let counted = Counted::at(lab.home(), "input", lab.alpha().ssh_port);
    let (from, to) = (planted(&lab, "alpha"), lab.data("home").join("to"));
    let run = lab.cp().args(["-4", "--background", "--json"]).arg(at("alpha", contents_of(&from))).arg(&to).run();
    let run = run.expect(code::OK);
    assert_same(&from, &to, Facets::PLAIN);
    let marks = counted.marks();
    assert!(marks.lower_effort > PACKETS && marks.expedited == 0 && marks.on_words == 0, "{marks:?}\n{run}");
    assert!(marked_bytes(&run) > 9 << 20, "{run}");
}

#[test]
fn a_copy_that_asks_for_nothing_marks_nothing() {
    needs!(Haul, Nftables);
    let lab = Lab::pair();
    let counted = Counted::at(lab.alpha(), "input", lab.alpha().ssh_port);
    let (from, to) = (planted(&lab, "home"), lab.data("alpha").join("to"));
    for flags in [&["--json"][..], &["--json", "--class", "auto"], &["--json", "--floor", "1Mbit"]] {
        let run = lab.cp().arg("-4").args(flags).arg(contents_of(&from)).arg(at("alpha", &to)).run().expect(code::OK);
        let marks = counted.marks();
        assert!(
            marks.plain > PACKETS && (marks.expedited, marks.lower_effort, marks.on_words) == (0, 0, 0),
            "{marks:?}"
        );
        assert_eq!(marked_bytes(&run), 0, "{run}");
        std::fs::remove_dir_all(&to).expect("own directory");
    }
}

#[test]
fn lanes_inside_ssh_are_never_marked() {
    needs!(Haul, Nftables);
    let lab = Lab::pair();
    let counted = Counted::at(lab.alpha(), "input", lab.alpha().ssh_port);
    let (from, to) = (planted(&lab, "home"), lab.data("alpha").join("to"));
    let run = lab.cp().args(["-4", "--priority", "--lanes-over-ssh", "--json"]);
    let run = run.arg(contents_of(&from)).arg(at("alpha", &to)).limit(Duration::from_secs(120)).run().expect(code::OK);
    assert_eq!(counted.marks().on_words + counted.marks().expedited, 0, "{run}");
    assert_eq!(marked_bytes(&run), 0, "{run}");
}

#[test]
fn a_daemon_marks_what_it_sends() {
    needs!(Haul, Nftables);
    let daemon = Daemon::start("rw");
    let counted = Counted::at(daemon.lab.home(), "input", 1);
    plant::many(&daemon.offered.join("from"), 40, 256 << 10, 1);
    let to = daemon.lab.data("home").join("to");
    let run = daemon.cp().args(["--priority", "-4"]).arg(daemon.url("from/")).arg(&to).run().expect(code::OK);
    let marks = counted.marks();
    assert!(marks.expedited > PACKETS && marked_bytes(&run) > 9 << 20, "{marks:?}\n{run}");
}

#[test]
fn over_ipv6_the_marks_are_those_of_ipv6() {
    needs!(Haul, Nftables);
    let daemon = Daemon::start("rw");
    let counted = Counted::at(daemon.lab.alpha(), "input", 1);
    let from = planted(&daemon.lab, "home");
    let url = format!("haul://[{}]:7632/to", daemon.lab.alpha().v6);
    let run = daemon.cp().args(["--priority", "-6"]).arg(contents_of(&from)).arg(url).run().expect(code::OK);
    let marks = counted.marks();
    assert!(marks.expedited > PACKETS && marked_bytes(&run) > 9 << 20, "{marks:?}\n{run}");
}

#[test]
fn a_daemon_refuses_the_class_that_its_policy_does_not_have_and_the_copy_goes_on() {
    needs!(Haul, Nftables);
    let policy = "[default]\nclasses = [\"normal\", \"background\"]\n";
    let daemon = Daemon::start_as("rw", |serve| with_policy(serve, policy));
    let counted = Counted::at(daemon.lab.home(), "input", 1);
    plant::many(&daemon.offered.join("from"), 40, 256 << 10, 1);
    for (class, marked) in [("--priority", false), ("--background", true)] {
        let to = daemon.lab.data("home").join(class);
        let run = daemon.cp().args([class, "-4"]).arg(daemon.url("from/")).arg(&to).run().expect(code::OK);
        assert_same(&daemon.offered.join("from"), &to, Facets::PLAIN);
        assert_eq!(marked_bytes(&run) > 0, marked, "{run}");
        let refused = run.events_named("warning").iter().any(|event| {
            event["text"]
                .as_str()
                .is_some_and(|text| text.contains("priority is not allowed") && text.contains("policy"))
        });
        assert_eq!(refused, !marked, "{run}");
    }
    assert_eq!(counted.marks().expedited, 0);
}

#[test]
fn a_policy_is_checked_before_a_daemon_serves() {
    needs!(Haul, Namespaces);
    let lab = Lab::pair();
    let file = lab.data("alpha").join("policy.toml");
    let check = |text: &str| {
        std::fs::write(&file, text).expect("own file");
        lab.alpha().haul().args(["serve", "--check", "--policy"]).arg(&file).run()
    };
    check("[default]\nclasses = [\"urgent\"]\n").expect(1).says(&["policy.toml", "urgent"]);
    check("[[rule]]\nto = \"192.0.2.0/24\"\nclasses = [\"priority\"]\n").expect(code::OK).says(&["1 rules"]);
}

fn with_policy(serve: Run, policy: &str) -> Run {
    let file = tempfile::NamedTempFile::new().expect("own file");
    std::fs::write(file.path(), policy).expect("own file");
    let path = file.into_temp_path().keep().expect("own file");
    serve.arg("--policy").arg(path)
}

#[test]
fn priority_that_is_used_up_ends_during_the_copy_with_a_word_and_the_next_copy_has_none() {
    needs!(Haul, Nftables);
    let lab = Lab::pair();
    own_policy(lab.home(), "[default]\npriority-time-s = 1\n");
    let counted = Counted::at(lab.alpha(), "input", lab.alpha().ssh_port);
    let (from, to) = (planted(&lab, "home"), lab.data("alpha").join("to"));
    let push = |name: &str| {
        let cp = lab.cp().args(["-4", "--priority", "--rate", "2MB"]);
        let run = cp.arg(contents_of(&from)).arg(at("alpha", to.join(name))).run().expect(code::OK);
        assert_same(&from, &to.join(name), Facets::PLAIN);
        run.clone().says(&["priority was allowed for 1 s a day, and they are over; the copy goes on as normal"]);
        let changes = run.report()["class_changes"].as_array().cloned().unwrap_or_default();
        assert!(changes.last().is_some_and(|change| change["class"] == "normal"), "{run}");
        marked_bytes(&run)
    };
    // 10 MiB at this rate take five seconds.
    let marked = push("first");
    assert!((1..9 << 20).contains(&marked), "{marked}");
    let first = counted.marks();
    assert!(first.expedited > 0 && first.plain > 0, "{first:?}");
    push("second");
    let last = counted.marks();
    assert!(last.expedited - first.expedited < first.expedited && last.plain > first.plain, "{first:?} {last:?}");
}

/// Runs the rest with another `/etc`, seen by nobody else.
const WITH_ETC: &str = "mount --bind \"$1\" /etc; shift; exec \"$@\"";

#[test]
fn the_policy_of_the_system_holds_at_its_place_and_the_users_own_only_narrows_it() {
    needs!(Haul, Nftables, Tool("unshare"));
    let lab = Lab::pair();
    let etc = lab.data("home").join("etc");
    Run::new("cp").args(["-a", "/etc/."]).arg(&etc).run().expect(0);
    std::fs::create_dir_all(etc.join("haul")).expect("own directory");
    let (all, modest) =
        ("classes = [\"background\", \"normal\", \"priority\"]", "classes = [\"normal\", \"background\"]");
    let (from, to) = (planted(&lab, "home"), lab.data("alpha").join("to"));
    for (number, (system, own, has)) in
        [(modest, all, false), (all, modest, false), (all, all, true)].into_iter().enumerate()
    {
        std::fs::write(etc.join("haul/policy.toml"), format!("[default]\n{system}\n")).expect("own file");
        own_policy(lab.home(), &format!("[default]\n{own}\n"));
        let alone =
            lab.home().run("unshare").args(["--mount", "--propagation", "private", "sh", "-euc", WITH_ETC, "sh"]);
        let haul = haul_e2e::binary::find().expect("asked for with needs!(Haul)");
        let cp = alone.arg(&etc).arg(haul).args(["cp", "--json", "--retry", "0", "--no-keep-login", "-F"]);
        let cp = cp.arg(lab.ssh_config()).args(["-4", "--priority"]);
        let run = cp.arg(contents_of(&from)).arg(at("alpha", to.join(number.to_string()))).run().expect(code::OK);
        let refused = run.events_named("warning").iter().any(|event| event.to_string().contains("is not allowed here"));
        assert_eq!((marked_bytes(&run) > 0, refused), (has, !has), "{system}, {own}\n{run}");
    }
}

pub fn own_policy(host: &Host, text: &str) {
    let config = host.dir.join("config/haul");
    std::fs::create_dir_all(&config).expect("own directory");
    std::fs::write(config.join("policy.toml"), text).expect("own file");
}

/// A client whose policy has hooks that write their orders into a file.
struct Hooked {
    lab: Lab,
    said: std::path::PathBuf,
}

impl Hooked {
    fn new(on_raise: &str) -> Self {
        Self::with(|_| on_raise.to_owned())
    }

    fn with(on_raise: impl FnOnce(&Host) -> String) -> Self {
        let lab = Lab::pair();
        let on_raise = on_raise(lab.home());
        let said = lab.data("home").join("said");
        let script = |more: &str| format!("cat >> {}; {more}", said.display());
        let command = |more: &str| format!("[\"/bin/sh\", \"-c\", {:?}]", script(more));
        let policy = format!(
            "[hooks]\non-raise = {}\non-release = {}\ntime-limit-s = 1\n",
            command(&on_raise),
            command("exit 0")
        );
        own_policy(lab.home(), &policy);
        Self { lab, said }
    }

    fn asked(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.said).unwrap_or_default();
        let events = haul_e2e::outcome::json_lines(text.as_bytes());
        events.iter().map(|event| event["event"].as_str().unwrap_or_default().to_owned()).collect()
    }

    fn push(&self, flags: &[&str]) -> Run {
        let (from, to) = (planted(&self.lab, "home"), self.lab.data("alpha").join("to"));
        self.lab.cp().args(["-4", "--priority", "--json"]).args(flags).arg(contents_of(&from)).arg(at("alpha", &to))
    }
}

#[test]
fn a_hook_is_asked_once_its_rate_is_followed_and_release_follows() {
    needs!(Haul, Nftables);
    let hooked = Hooked::new("echo '{\"granted\":true,\"rate_bytes_per_s\":4000000}'");
    let run = hooked.push(&["--rate", "16MB"]).run().expect(code::OK);
    eventually("it is released", Duration::from_secs(10), || hooked.asked().len() == 2);
    assert_eq!(hooked.asked(), ["raise", "release"], "{run}");
    let seconds = run.report()["last_byte_s"].as_f64().unwrap_or_default();
    assert!(marked_bytes(&run) > 0 && seconds > 1.5, "{run}");
}

#[test]
fn hooks_that_refuse_fail_hang_or_talk_without_end_leave_the_copy_as_it_is() {
    needs!(Haul, Nftables);
    for (hook, words) in [
        ("echo '{\"granted\":false,\"reason\":\"all circuits are busy\"}'", "all circuits are busy"),
        ("exit 7", "failed"),
        ("sleep 1000", "took longer"),
        ("head -c 1000000000 /dev/zero", "KiB"),
    ] {
        let hooked = Hooked::new(hook);
        let counted = Counted::at(hooked.lab.alpha(), "input", hooked.lab.alpha().ssh_port);
        // Long enough for the answer.
        let run = hooked.push(&["--rate", "4MB"]).run().expect(code::OK);
        let warned = run.events_named("warning").iter().any(|event| event.to_string().contains(words));
        assert!(warned, "{hook}\n{run}");
        assert_eq!((counted.marks().expedited, marked_bytes(&run)), (0, 0), "{hook}\n{run}");
    }
}

#[test]
fn lanes_leave_where_the_hook_grants_priority_and_only_those_are_marked() {
    needs!(Haul, Nftables);
    // The kernel picks from 32768 on, so nobody else uses these 100 ports.
    for (outlet, elsewhere) in [
        (r#""local":"HERE""#, "ip saddr != HERE"),
        (r#""ports":[20000,20099]"#, "tcp sport != 20000-20099"),
        (r#""local":"OTHER""#, "ip saddr != OTHER"),
        (r#""local":"OTHER","ports":[20000,20099]"#, "ip saddr . tcp sport != { OTHER . 20000-20099 }"),
    ] {
        let other = Ipv4Addr::new(10, 77, 0, 99);
        let named =
            |text: &str, home: &Host| text.replace("HERE", &home.v4.to_string()).replace("OTHER", &other.to_string());
        let hooked = Hooked::with(|home| format!("echo '{{\"granted\":true,{}}}'", named(outlet, home)));
        hooked.lab.home().add_address(other);
        let counted = Counted::at(hooked.lab.alpha(), "input", hooked.lab.alpha().ssh_port);
        hooked.lab.alpha().nft(&format!(
            "table inet outlet {{\ncounter n_elsewhere {{}}\nchain c {{\ntype filter hook input priority 0;\n\
             ip dscp ef {} counter name n_elsewhere\n}}\n}}\n",
            named(elsewhere, hooked.lab.home())
        ));
        let run = hooked.push(&["--rate", "4MB"]).run().expect(code::OK);
        assert_same(&hooked.lab.data("home").join("from"), &hooked.lab.data("alpha").join("to"), Facets::PLAIN);
        assert!(marked_bytes(&run) > 1 << 20 && counted.marks().expedited > 0, "{outlet}\n{run}");
        assert_eq!(counted.packets("elsewhere"), 0, "{outlet}\n{run}");
        assert!(run.events_named("warning").is_empty(), "{outlet}\n{run}");
    }
}

#[test]
fn where_the_host_cannot_leave_as_the_hook_grants_the_copy_goes_on_unmarked_with_a_word() {
    needs!(Haul, Nftables);
    let hooked = Hooked::new(r#"echo '{"granted":true,"local":"192.0.2.77"}'"#);
    let counted = Counted::at(hooked.lab.alpha(), "input", hooked.lab.alpha().ssh_port);
    let run = hooked.push(&["--rate", "8MB"]).run().expect(code::OK);
    assert_same(&hooked.lab.data("home").join("from"), &hooked.lab.data("alpha").join("to"), Facets::PLAIN);
    run.clone().says(&["has none from there", "192.0.2.77: this host has no such address"]);
    assert_eq!((counted.marks().expedited, marked_bytes(&run)), (0, 0), "{run}");
}

#[test]
fn a_side_that_does_not_dial_says_that_it_cannot_choose_where_its_lanes_leave() {
    needs!(Haul, Nftables);
    let daemon = Daemon::start_as("rw", |serve| {
        with_policy(
            serve,
            r#"
            [hooks]
            on-raise = ["/bin/echo", '{"granted":true,"ports":[20000,20099]}']
            on-release = ["/bin/true"]
        "#,
        )
    });
    plant::many(&daemon.offered.join("from"), 40, 256 << 10, 1);
    let to = daemon.lab.data("home").join("to");
    let run =
        daemon.cp().args(["--priority", "--rate", "8MB"]).arg(daemon.url("from/")).arg(&to).run().expect(code::OK);
    run.clone().says(&["has none from there", "this side does not open the connections"]);
    assert_eq!(marked_bytes(&run), 0, "{run}");
}

#[test]
fn release_follows_the_death_of_the_client() {
    needs!(Haul, Nftables);
    let hooked = Hooked::new("exit 0");
    let mut running = hooked.push(&["--rate", "1MB"]).start();
    running.when("priority is raised", |_| hooked.asked() == ["raise"]);
    running.when_moved(1);
    running.kill();
    eventually("it is released", Duration::from_secs(10), || hooked.asked() == ["raise", "release"]);
}

#[test]
fn a_deadline_that_the_rate_makes_impossible_is_said_before_it_passes_and_the_copy_goes_on() {
    needs!(Haul, Namespaces);
    let lab = Lab::pair();
    let from = planted(&lab, "home");
    let push = |name: &str, flags: &[&str]| {
        let to = lab.data("alpha").join(name);
        let run = lab.cp().args(flags).arg(contents_of(&from)).arg(at("alpha", &to)).run().expect(code::OK);
        assert_same(&from, &to, Facets::PLAIN);
        let warnings = run.events_named("warning");
        (run, warnings)
    };
    // 10 MiB at this rate take ten seconds.
    let (run, warnings) = push("within", &["--within", "8s", "--rate", "1MB"]);
    let of =
        |words: &str| warnings.iter().find(|event| event["text"].as_str().is_some_and(|text| text.contains(words)));
    let (said, passed) = (of("the deadline cannot be met: it needs"), of("the deadline has passed"));
    let at_s = |event: Option<&serde_json::Value>| event.and_then(|event| event["at_s"].as_f64());
    assert!(at_s(said).is_some_and(|said| at_s(passed).is_some_and(|passed| said < passed && said < 8.0)), "{run}");
    let soon = Run::new("date").args(["-u", "-d", "+1 hour", "+%Y-%m-%dT%H:%MZ"]).run().expect(0).stdout_text();
    let (run, warnings) = push("by", &["--by", soon.trim(), "--rate", "100MB"]);
    assert!(warnings.is_empty(), "{run}");
}

#[test]
fn a_path_that_drops_marked_packets_costs_seconds_and_the_copy_goes_on_without_the_mark() {
    needs!(Haul, Nftables);
    for (flag, mark) in [("--priority", "ef"), ("--background", "le")] {
        let lab = Lab::pair();
        let mark = if mark == "le" { "0x01" } else { mark };
        lab.alpha().nft(&format!(
            "table inet drops {{\nchain input {{\ntype filter hook input priority -10;\nip dscp {mark} drop\n}}\n}}"
        ));
        let (from, to) = (planted(&lab, "home"), lab.data("alpha").join("to"));
        let run = lab.cp().args(["-4", flag]).arg(contents_of(&from)).arg(at("alpha", &to)).run().expect(code::OK);
        assert_same(&from, &to, Facets::PLAIN);
        run.clone().says(&["do not arrive on path", "without the mark"]);
        assert_eq!(run.report()["path"]["mark_effect"], "dropped", "{run}");
        assert!(run.elapsed < Duration::from_secs(30), "{run}");
    }
}

#[test]
fn a_path_that_polices_priority_is_named_with_its_rate_and_the_copy_goes_on_without_the_mark() {
    needs!(Boxed);
    let dir = scratch();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    plant::file(&from, 20 << 20, 1);
    let path = Boxed { rate: "50Mbit", rtt: "20ms", link: "diffserv = { ef_rate = \"10Mbit\" }", ..Boxed::default() };
    let run = path.push(&["--priority"], &from, &to).expect(code::OK);
    assert_same(&from, &to, Facets::CONTENTS);
    run.clone().says(&["of packets marked priority through, and drops the rest: the copy goes on without the mark"]);
    let report = &run.report()["path"];
    assert_eq!(report["mark_effect"], "policed", "{run}");
    // The policer counts headers, the copy its data.
    let through = report["mark_policed_bytes_per_s"].as_f64().unwrap_or_default() * 8e-6;
    assert!((7.0..12.0).contains(&through), "{through} Mbit/s\n{run}");
}

#[test]
fn a_path_that_loses_packets_whatever_their_mark_keeps_the_mark() {
    needs!(Boxed);
    let dir = scratch();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    plant::file(&from, 20 << 20, 1);
    let path = Boxed { rate: "50Mbit", rtt: "20ms", link: "loss = \"1%\"", ..Boxed::default() };
    let run = path.push(&["--priority"], &from, &to).expect(code::OK);
    assert_eq!(run.report()["path"]["mark_effect"], "unknown", "{run}");
    assert_eq!(run.report()["path"]["class"], "priority", "{run}");
}

/// A router that clears marks looks so from the host behind it.
fn clears_marks(host: &Host) {
    host.nft(
        "table inet clears {\nchain c {\ntype filter hook prerouting priority -150;\n\
         ip dscp set cs0\nip6 dscp set cs0\n}\n}\n",
    );
}

#[test]
fn a_path_that_clears_marks_is_named_by_a_probe_and_after_a_copy() {
    needs!(Haul, Nftables);
    let daemon = Daemon::start("rw");
    let from = planted(&daemon.lab, "home");
    let six = format!("haul://[{}]:7632", daemon.lab.alpha().v6);
    for clears in [false, true] {
        if clears {
            clears_marks(daemon.lab.alpha());
        }
        let arrived = if clears { 0 } else { 46 };
        let run = daemon.cp().args(["--priority", "-6"]).arg(contents_of(&from)).arg(format!("{six}/{clears}")).run();
        let run = run.expect(code::OK);
        assert_eq!(run.report()["path"]["mark_arrived"], arrived, "{run}");
        // A probe marks IPv4 connections from the first packet on, too.
        let words = if clears { "cleared on the way" } else { "and arrives so" };
        let probe = daemon.haul_in_words("probe").args(["--classes", "--time", "1", "-4"]).arg(daemon.url(""));
        let told = probe.run().expect(code::OK).stdout_text();
        let lines: Vec<&str> = told.lines().filter(|line| line.contains("there") && line.contains("marked")).collect();
        assert!(lines.len() == 2 && lines.iter().all(|line| line.ends_with(words)), "{told}");
    }
}
