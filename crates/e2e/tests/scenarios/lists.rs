//! `haul verify` and `haul diff`: trees here and at another host against the lists that people have, and against each other.

use std::fs;

use haul_e2e::{Run, at, code, needs, plant};

use crate::daemon::Daemon;

/// What a program of coreutils says of all files of the tree.
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
        // Names that are not UTF-8 are none for b3sum.
        if program == "b3sum" {
            ["odd", "names"].iter().for_each(|dir| fs::remove_dir_all(tree.join(dir)).expect("own files"));
        }
        fs::write(&list, listed(&daemon, program)).expect("own directory");
        daemon.haul_in_words("verify").arg(&list).arg(daemon.url("")).run().expect(code::OK).says(&["verified"]);
        by_ssh(&daemon.lab).arg(&list).arg(at("alpha", &daemon.offered)).run().expect(code::OK).says(&["verified"]);
    }
    // What haul says of it is a list, too, also on its way from a program.
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
    // As bagit.py of the Library of Congress writes it.
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
