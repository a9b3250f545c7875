//! From one remote host to another: directly, or through this machine.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use haul_e2e::compare::names_below;
use haul_e2e::firewall::Manner;
use haul_e2e::{Facets, Lab, assert_same, at, code, contents_of, needs, plant};

struct Between {
    lab: Lab,
    source: PathBuf,
    target: PathBuf,
}

impl Between {
    fn new() -> Self {
        let lab = Lab::triangle();
        let (source, target) = (lab.data("alpha").join("tree"), lab.data("beta").join("tree"));
        plant::mixed(&source, 1);
        plant::file(&source.join("large"), 60 << 20, 2);
        plant::date(&source, 3);
        Self { lab, source, target }
    }

    fn run(&self, flags: &[&str]) -> haul_e2e::Outcome {
        let from = at("alpha", contents_of(&self.source));
        self.lab.cp().args(flags).arg(from).arg(at("beta", &self.target)).run()
    }

    /// Payload bytes over `home`'s cable during `work`.
    fn bytes_at_home(&self, work: impl FnOnce()) -> u64 {
        let read = || {
            let said = self.lab.home().run("cat").arg("/proc/self/net/dev").run().expect(0).stdout_text();
            let line =
                said.lines().find_map(|line| line.trim().strip_prefix("eth0:").map(str::to_owned)).expect("eth0");
            line.split_whitespace().next().and_then(|bytes| bytes.parse::<u64>().ok()).expect("received bytes")
        };
        let before = read();
        work();
        read() - before
    }
}

#[test]
fn data_goes_directly_between_two_remote_hosts() {
    needs!(Namespaces, Haul);
    let between = Between::new();
    let crossed = between.bytes_at_home(|| {
        between.run(&[]).expect(code::OK);
    });
    assert_same(&between.source, &between.target, Facets::PLAIN);
    // Programs leave from here; the data does not pass.
    assert!(crossed < 20 << 20, "{crossed} bytes came to the host that only asked for the copy");
    let again = between.run(&[]).expect(code::OK);
    assert_eq!(again.count("bytes_moved"), 0, "{again}");
}

#[test]
fn both_ends_may_stand_on_one_host() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (source, target) = (lab.data("alpha").join("from"), lab.data("alpha").join("to"));
    plant::mixed(&source, 1);
    plant::file(&source.join("large"), 9 << 20, 2);
    plant::date(&source, 3);
    for flags in [&[][..], &["-3"], &[]] {
        let _ = fs::remove_dir_all(&target);
        let run = lab.cp().args(flags).arg(at("alpha", contents_of(&source))).arg(at("alpha", &target)).run();
        run.expect(code::OK);
        assert_same(&source, &target, Facets::PLAIN);
    }
}

/// A host may have two names, so the target itself is looked for in the source.
#[test]
fn a_directory_is_not_copied_into_itself_at_one_host() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let source = lab.data("alpha").join("tree");
    plant::mixed(&source, 1);
    let before = names_below(&source);
    let cp = |to: &str| lab.cp().arg(at("alpha", contents_of(&source))).arg(at("alpha", source.join(to)));
    cp("sub").run().expect(code::PARTIAL).says(&["it is the target itself"]);
    cp("sub").args(["--exclude", "/sub"]).run().expect(code::OK);
    let copied = names_below(&source.join("sub"));
    assert_eq!(copied.iter().filter(|name| *name != b"sub").count(), before.len());
    cp("").run().expect(code::PARTIAL).says(&["it is the target itself"]);
    assert_eq!(names_below(&source).len(), before.len() + 1 + copied.len());
}

#[test]
fn data_goes_through_here_when_asked() {
    needs!(Nftables, Haul);
    let between = Between::new();
    let (alpha, beta) = (between.lab.alpha(), between.lab.host("beta"));
    alpha.close_ports_but(&[alpha.ssh_port], Manner::Drop);
    beta.close_ports_but(&[beta.ssh_port], Manner::Drop);
    let crossed = between.bytes_at_home(|| {
        between.run(&["-3"]).expect(code::OK);
    });
    assert_same(&between.source, &between.target, Facets::PLAIN);
    assert!(crossed > 60 << 20, "only {crossed} bytes came by");
}

#[test]
fn hosts_that_cannot_see_each_other_are_helped_or_explained() {
    needs!(Nftables, Haul);
    let between = Between::new();
    let (alpha, beta) = (between.lab.alpha(), between.lab.host("beta"));
    alpha.close_ports_but(&[alpha.ssh_port], Manner::Drop);
    beta.close_ports_but(&[beta.ssh_port], Manner::Drop);
    let run = between.run(&[]).expect_one_of(&[code::OK, code::NETWORK]);
    if run.code() == code::OK {
        assert_same(&between.source, &between.target, Facets::PLAIN);
    } else {
        run.says(&["-3"]);
    }
}

#[test]
fn a_copy_between_hosts_is_resumed() {
    needs!(Namespaces, Haul);
    const SIZE: u64 = 500 << 20;
    let between = Between::new();
    plant::file(&between.source.join("large"), SIZE, 5);
    let command = || {
        let from = at("alpha", between.source.join("large"));
        between.lab.cp().arg(from).arg(at("beta", &between.target))
    };
    let mut running = command().args(["--rate", "160MB"]).start();
    running.when_moved(400 << 20);
    running.kill();
    for name in ["alpha", "beta"] {
        between.lab.host(name).expect_no_haul_left(std::time::Duration::from_secs(20));
    }
    let run = command().run().expect(code::OK);
    assert_same(&between.source.join("large"), &between.target, Facets::PLAIN);
    assert!(run.count("bytes_moved") <= SIZE - (400 << 20) + (256 << 20), "{run}");
}

/// Hard links, and a single file with a new name.
#[test]
fn a_manifest_has_every_name_that_is_at_the_target_whichever_way_it_came() {
    needs!(Namespaces, Haul);
    let lab = Lab::triangle();
    let ways: [(&str, &str, &[&str]); 5] = [
        ("home", "home", &[]),
        ("home", "alpha", &[]),
        ("alpha", "home", &[]),
        ("alpha", "beta", &[]),
        ("alpha", "beta", &["-3"]),
    ];
    for (number, (from, to, flags)) in ways.into_iter().enumerate() {
        let source = lab.data(from).join(format!("from{number}"));
        for (name, bytes) in [("a", 1000), ("d/large", 5 << 20)] {
            plant::file(&source.join(name), bytes, number as u64);
        }
        for (first, second) in [("a", "d/a"), ("d/large", "z")] {
            fs::hard_link(source.join(first), source.join(second)).expect("one file system");
        }
        let (target, manifest) = (lab.data(to).join(format!("to{number}")), lab.data("home").join("m"));
        fs::create_dir(&target).expect("own directory");
        let typed = |host: &str, path: OsString| if host == "home" { path } else { at(host, path) };
        let check = |source: OsString, target: OsString, root: &Path| {
            let cp = lab.cp().arg("-H").args(flags).arg("--manifest-out").arg(&manifest);
            cp.arg(typed(from, source)).arg(typed(to, target)).run().expect(code::OK);
            lab.haul().args(["verify", "--extra"]).arg(&manifest).arg(root).run().expect(code::OK);
        };
        for _run in ["all is copied", "all is there"] {
            check(contents_of(&source), target.clone().into(), &target);
        }
        let renamed = target.with_extension("renamed");
        fs::create_dir(&renamed).expect("own directory");
        check(source.join("d/large").into(), renamed.join("another name").into(), &renamed);
    }
}
