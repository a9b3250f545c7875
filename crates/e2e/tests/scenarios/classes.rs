//! Service classes with real packets: which of them carry a mark, and what becomes of the copy.

use std::time::Duration;

use haul_e2e::{Facets, Host, Lab, Outcome, Run, assert_same, at, code, contents_of, needs, plant};

use crate::daemon::Daemon;

/// Counts what arrives at a host by its mark: from and to its sshd or daemon, and all else.
struct Counted<'a> {
    host: &'a Host,
}

/// Packets by mark.
#[derive(Debug, Default, PartialEq, Eq)]
struct Marks {
    expedited: u64,
    lower_effort: u64,
    plain: u64,
    /// With a mark of ours, on connections that carry words.
    on_words: u64,
}

impl<'a> Counted<'a> {
    /// `words` is the port of connections that carry words.
    fn at(host: &'a Host, hook: &str, words: u16) -> Self {
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

    fn marks(&self) -> Marks {
        let listed = Run::new("nft").args(["list", "counters"]).in_namespace(&self.host.namespace).run().expect(0);
        let text = listed.stdout_text();
        let of = |name: &str| {
            let (_, rest) = text.split_once(&format!("counter n_{name} {{")).unwrap_or_else(|| panic!("{text}"));
            let packets = rest.split_whitespace().nth(1).and_then(|word| word.parse().ok());
            packets.unwrap_or_else(|| panic!("{text}"))
        };
        Marks { expedited: of("ef"), lower_effort: of("le"), plain: of("plain"), on_words: of("words") }
    }
}

/// More than words take. Between namespaces a packet holds up to 64 KiB, so that 10 MiB are some 200.
const PACKETS: u64 = 100;

/// A tree of 10 MiB.
fn planted(lab: &Lab, host: &str) -> std::path::PathBuf {
    let from = lab.data(host).join("from");
    plant::many(&from, 40, 256 << 10, 1);
    from
}

fn marked_bytes(run: &Outcome) -> u64 {
    run.report()["path"]["marked_bytes"].as_u64().unwrap_or_else(|| panic!("{run}"))
}

#[test]
fn a_push_with_priority_marks_its_data_and_nothing_else() {
    needs!(Haul, Nftables);
    let lab = Lab::pair();
    let counted = Counted::at(lab.alpha(), "input", lab.alpha().ssh_port);
    let (from, to) = (planted(&lab, "home"), lab.data("alpha").join("to"));
    for family in ["-4", "-6"] {
        let run = lab.cp().args([family, "--priority", "--json"]).arg(contents_of(&from)).arg(at("alpha", &to)).run();
        let run = run.expect(code::OK);
        assert_same(&from, &to, Facets::PLAIN);
        let marks = counted.marks();
        assert!(marks.expedited > PACKETS && marks.lower_effort == 0 && marks.on_words == 0, "{marks:?}\n{run}");
        assert!(marked_bytes(&run) > 9 << 20, "{run}");
        assert_eq!(run.report()["path"]["class"], "priority", "{run}");
        std::fs::remove_dir_all(&to).expect("own directory");
    }
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
