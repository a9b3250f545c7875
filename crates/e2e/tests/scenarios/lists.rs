//! `haul verify` and `haul diff`: trees here and elsewhere, against people's lists and each other.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use haul_e2e::{Run, at, code, needs, plant};

use crate::daemon::Daemon;

fn listed(daemon: &Daemon, program: &str) -> Vec<u8> {
    let script = format!("find tree -type f -exec {program} {{}} +");
    Run::new("sh").args(["-c", &script]).current_dir(&daemon.offered).run().expect(code::OK).stdout
}

#[test]
fn the_far_side_is_checked_against_the_lists_of_the_neighbours() {
    needs!(Namespaces, Haul, Tool("b3sum"));
    let daemon = Daemon::start("ro");
    let tree = daemon.offered.join("tree");
    plant::mixed(&tree, 1);
    plant::odd_names(&tree.join("odd"), 2);
    plant::text(&tree.join("words"), "words");
    let list = daemon.lab.data("home").join("list");
    let by_ssh = |lab: &haul_e2e::Lab| lab.haul().args(["verify", "-F"]).arg(lab.ssh_config());
    let programs = ["sha256sum", "md5sum --tag", "sha512sum -b", "sha1sum", "b3sum"];
    for program in programs {
        // b3sum takes only UTF-8 names.
        if program == "b3sum" {
            ["odd", "names"].iter().for_each(|dir| fs::remove_dir_all(tree.join(dir)).expect("own files"));
        }
        fs::write(&list, listed(&daemon, program)).expect("own directory");
        daemon.haul_in_words("verify").arg(&list).arg(daemon.url("")).run().expect(code::OK).says(&["verified"]);
        by_ssh(&daemon.lab).arg(&list).arg(at("alpha", &daemon.offered)).run().expect(code::OK).says(&["verified"]);
    }
    // haul's own output is a list, too, even from a pipe.
    let said = daemon.haul_in_words("hash").arg(daemon.url("tree")).run().expect(code::OK).stdout;
    daemon.haul_in_words("verify").args(["-", &daemon.url("")]).input(said).run().expect(code::OK).says(&["BLAKE3"]);

    plant::text(&tree.join("new"), "new");
    plant::text(&tree.join("words"), "other");
    let verify = daemon.haul_in_words("verify").args(["--json", "--extra"]).arg(&list).arg(daemon.url(""));
    let run = verify.run().expect(code::VERIFICATION);
    let lines: Vec<serde_json::Value> =
        run.stdout_text().lines().map(|line| serde_json::from_str(line).expect("a JSON object")).collect();
    let findings: Vec<(&str, &str)> = lines
        .iter()
        .filter(|line| line["event"] == "differs")
        .map(|line| (line["path"].as_str().unwrap_or_default(), line["finding"].as_str().unwrap_or_default()))
        .collect();
    assert_eq!(findings, [("tree/words", "altered"), ("tree/new", "extra")]);
    let totals = lines.last().expect("there are totals");
    assert_eq!((&totals["all_match"], &totals["algorithms"]), (&false.into(), &serde_json::json!(["blake3"])));
}

#[test]
fn a_bag_at_another_host_is_checked_with_its_own_lists() {
    needs!(Namespaces, Haul);
    let daemon = Daemon::start("ro");
    let bag = daemon.offered.join("bag");
    for (size, seed) in [(0, 1), (1000, 2), (5_000_001, 3)] {
        plant::file(&bag.join(format!("data/sub dir/{size}")), size, seed);
    }
    // bagit.py of the Library of Congress writes it so.
    let script = "find data -type f -exec sha256sum {} + > manifest-sha256.txt; \
                  printf 'BagIt-Version: 0.97\\nTag-File-Character-Encoding: UTF-8\\n' > bagit.txt; \
                  sha256sum bagit.txt manifest-sha256.txt > tagmanifest-sha256.txt";
    Run::new("sh").args(["-c", script]).current_dir(&bag).run().expect(code::OK);
    let verify = || daemon.haul_in_words("verify").arg(daemon.url("bag")).run();
    verify().expect(code::OK).says(&["verified", "SHA-256", "no extra files"]);
    plant::text(&bag.join("data/new"), "new");
    plant::text(&bag.join("bagit.txt"), "BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n");
    verify().expect(code::VERIFICATION).says(&["extra: data/new", "altered: bagit.txt"]);
    let other = daemon.haul_in_words("verify").arg(daemon.url("bag/data")).run();
    other.expect(code::USAGE).says(&["is no bag"]);
}

#[test]
fn a_tree_has_one_hash_which_a_copy_a_manifest_and_the_far_side_tell_alike() {
    needs!(Namespaces, Haul, Tool("b3sum"));
    let daemon = Daemon::start("rw");
    let (lab, here) = (&daemon.lab, daemon.lab.data("home").join("tree"));
    plant::mixed(&here, 1);
    plant::odd_names(&here.join("odd"), 2);
    // A directory between files that begin with its name.
    for name in ["a-", "a.b", "a/x", "a0", "z/y/x", "z/y.x"] {
        plant::text(&here.join(name), name);
    }
    plant::date(&here, 3);
    let list = lab.data("home").join("list");
    let cp = daemon.cp().args(["-r", "--manifest-out"]).arg(&list);
    let copied = cp.arg(haul_e2e::contents_of(&here)).arg(daemon.url("tree")).run().expect(code::OK);
    let root = copied.report()["root_blake3"].as_str().expect("a hash").to_owned();
    let written = fs::read_to_string(&list).expect("it has its name");
    assert!(written.ends_with(&format!(" root {root}\n")), "{written}");

    let by_daemon = daemon.haul_in_words("hash").arg("-m").arg(daemon.url("tree")).run().expect(code::OK);
    assert_eq!(by_daemon.stdout_text(), written);
    let by_ssh = lab.haul().args(["hash", "--manifest", "-F"]).arg(lab.ssh_config());
    assert_eq!(by_ssh.arg(at("alpha", daemon.offered.join("tree"))).run().expect(code::OK).stdout_text(), written);
    let by_self = lab.haul().args(["hash", "-m"]).arg(&here).run().expect(code::OK);
    assert_eq!(by_self.stdout_text(), written);
    let verify = lab.haul().args(["verify", "--json", "--extra", "-"]).arg(&here).input(by_self.stdout).run();
    assert!(verify.expect(code::OK).stdout_text().contains(&root));
    // b3sum alone suffices, by docs/use/verify.md.
    let script = "sed -E '/^#/d; s/^([0-9a-f]{64}  [0-9]+) -?[0-9]+\\.[0-9]{9} /\\1 /' \"$1\" | b3sum --no-names";
    let summed = Run::new("sh").args(["-c", script, "sh"]).arg(&list).run().expect(code::OK);
    assert_eq!(summed.stdout_text().trim(), root);

    let again = daemon.haul_in_words("cp").args(["-r", "-v"]).arg(&here).arg(daemon.url("again")).run();
    let line = again.expect(code::OK).stdout_text();
    assert!(line.lines().any(|line| line.starts_with("tree BLAKE3 ")), "{line}");
    daemon.haul_in_words("hash").args(["-m", "-a", "md5"]).arg(&here).run().expect(code::USAGE);
    daemon.haul_in_words("hash").arg("-m").args([&here, &here]).run().expect(code::USAGE);
    daemon.haul_in_words("hash").arg("-m").arg(daemon.url("*")).run().expect(code::USAGE).says(&["one directory"]);
}

/// rsync's dry run in `haul diff`'s words. Changes of directories matter with `-a` alone.
fn rsync_says(flags: &[&str], source: &Path, target: &Path) -> BTreeSet<String> {
    let ends = [source, target].map(|end| format!("{}/", end.display()));
    let run = Run::new("rsync").args(flags).arg("--delete").args(ends).run().expect(code::OK);
    let is_archive = flags.contains(&"-a");
    let says = |line: &str| {
        let (what, path) = line.split_once(' ')?;
        let path = path.trim_start().split(" -> ").next().unwrap_or_default();
        match what {
            "*deleting" => Some(format!("extra {path}")),
            _ if path == "./" || (what.starts_with(".d") && !is_archive) => None,
            _ if what.ends_with("+++++++++") => Some(format!("new {path}")),
            _ => Some(format!("changed {path}")),
        }
    };
    run.stdout_text().lines().filter_map(says).collect()
}

fn haul_says(run: Run) -> BTreeSet<String> {
    let run = run.arg("--json").run().expect(1);
    let line = |line: &str| -> Option<String> {
        let line: serde_json::Value = serde_json::from_str(line).expect("a JSON object");
        let slash = if line["directory"] == true { "/" } else { "" };
        (line["event"] == "entry").then(|| {
            format!("{} {}{slash}", line["compared"].as_str().unwrap_or("?"), line["path"].as_str().unwrap_or("?"))
        })
    };
    run.stdout_text().lines().filter_map(line).collect()
}

#[test]
fn two_trees_are_compared_as_rsync_and_diff_compare_them() {
    needs!(Namespaces, Haul, Tool("rsync"));
    let daemon = Daemon::start("ro");
    let (here, there) = (daemon.lab.data("home").join("tree"), daemon.offered.join("tree"));
    plant::mixed(&here, 1);
    for name in ["a/b/same", "a/time", "a/content", "a/size", "b.x/in", "b/in"] {
        plant::text(&here.join(name), "words");
    }
    symlink("a", here.join("link")).expect("own directory");
    let script = "cp -a \"$1\" \"$2\"; cd \"$2\"; touch -d 2001-01-01 a/time; rm link; ln -s b link; \
                  echo other > a/size; printf wordS > a/content; touch -r \"$1\"/a/content a/content; \
                  mkdir -p extra/d; echo x > extra/d/file; echo x > \"$1\"/new; mkdir \"$1\"/a/new; echo x > \"$1\"/a/new/x";
    Run::new("sh").args(["-c", script, "sh"]).arg(&here).arg(&there).run().expect(code::OK);
    let by_url = |flags: &[&str]| daemon.haul_in_words("diff").args(flags).arg(&here).arg(daemon.url("tree"));
    let by_ssh =
        daemon.lab.haul().args(["diff", "-F"]).arg(daemon.lab.ssh_config()).arg(at("alpha", &there)).arg(&here);
    let quick = rsync_says(&["-rltni"], &here, &there);
    assert!(
        quick.contains("changed a/time") && quick.contains("extra extra/d/") && !quick.contains("changed a/content")
    );
    assert_eq!(haul_says(by_url(&[])), quick);
    assert_eq!(haul_says(by_ssh), rsync_says(&["-rltni"], &there, &here));
    let contents = rsync_says(&["-rlnic"], &here, &there);
    assert!(contents.contains("changed a/content") && !contents.contains("changed a/time"));
    assert_eq!(haul_says(by_url(&["-c"])), contents);
    let diff = Run::new("diff").args(["-rq", "--no-dereference"]).arg(&here).arg(&there).run().expect(1);
    let differ = diff.stdout_text().lines().filter(|line| line.ends_with("differ")).count();
    assert_eq!(differ, contents.iter().filter(|line| line.starts_with("changed")).count());

    // -a also compares attributes, of directories too. What a rule leaves out is compared on no side. rsync takes times of
    // one second for equal.
    let script = "chmod 600 a/b/same; chmod 700 b; chmod u+s b/in; chown 7:8 b.x/in; touch -h -d 2001-01-01 link a";
    Run::new("sh").args(["-ec", script]).current_dir(&there).run().expect(code::OK);
    let all = rsync_says(&["-a", "-n", "-i"], &here, &there);
    assert!(["changed b/", "changed b.x/in", "changed a/b/same"].iter().all(|line| all.contains(*line)), "{all:?}");
    assert_eq!(haul_says(by_url(&["-a"])), all);
    let said = by_url(&["-p"]).run().expect(1).says(&["changed: b/ (permissions)", "changed: b/in (permissions)"]);
    assert!(!said.stdout_text().contains("owner"), "{said}");
    by_url(&["-a"]).run().expect(1).says(&["changed: b.x/in (owner, group)", "changed: link (target, time)"]);
    let rules = ["--include=/a/new/x", "--exclude=new", "--exclude=/extra/", "--filter=- *.x", "--exclude=size"];
    let rsync: Vec<&str> = ["-rltni"].into_iter().chain(rules).collect();
    let some = rsync_says(&rsync, &here, &there);
    assert!(some.contains("changed a/time") && !some.iter().any(|line| line.contains("extra")), "{some:?}");
    assert_eq!(haul_says(by_url(&rules)), some);
    by_url(&["--filter=: .rules"]).run().expect(2).says(&["files of rules"]);
    by_url(&["--no-such-flag"]).run().expect(2);

    let files = |name: &str| {
        daemon.haul_in_words("diff").arg("-c").arg(here.join(name)).arg(daemon.url(&format!("tree/{name}")))
    };
    files("a/time").run().expect(code::OK).says(&["1 the same"]);
    files("a/content").run().expect(1).says(&["a/content (contents)"]);
    files("a/none").run().expect(code::FILE_IO);
}
