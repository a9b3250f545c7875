//! Forms of a command: directions, addresses, the trailing slash, names.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;

use haul_e2e::compare::names_below;
use haul_e2e::{Facets, Lab, assert_same, at, code, contents_of, needs, plant, scratch};

#[test]
fn pushes_a_tree_and_pulls_it_back() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (source, there, back) =
        (lab.data("home").join("tree"), lab.data("alpha").join("tree"), lab.data("home").join("b"));
    plant::mixed(&source, 1);
    plant::file(&source.join("large"), 40_000_000, 2);
    plant::date(&source, 3);

    let pushed = lab.cp_run([contents_of(&source), at("alpha", &there)]).expect(code::OK);
    assert_same(&source, &there, Facets::PLAIN);
    assert_eq!(pushed.count("files_moved"), pushed.count("files_found"));
    assert_eq!(pushed.count("bytes_moved"), pushed.count("bytes_found"));
    assert_eq!(pushed.count("failed"), 0);

    let pulled = lab.cp_run([at("alpha", contents_of(&there)), back.clone().into()]).expect(code::OK);
    assert_same(&source, &back, Facets::PLAIN);
    assert_eq!(pulled.report()["root_blake3"], pushed.report()["root_blake3"]);
}

#[test]
fn copies_on_this_machine() {
    needs!(Haul);
    let dir = scratch();
    let (source, target) = (dir.path().join("tree"), dir.path().join("to"));
    plant::mixed(&source, 1);
    plant::file(&source.join("large"), 20_000_000, 2);
    plant::date(&source, 3);
    haul_here(dir.path()).arg("cp").arg(contents_of(&source)).arg(&target).run().expect(code::OK);
    assert_same(&source, &target, Facets::PLAIN);
}

#[test]
fn a_slash_after_the_source_means_its_contents() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (source, to) = (lab.data("home").join("dir"), lab.data("alpha"));
    plant::text(&source.join("file"), "words\n");
    for (name, typed, expected) in [
        ("without", source.clone().into_os_string(), "without/dir"),
        ("with", contents_of(&source), "with"),
        ("dot", source.join(".").into_os_string(), "dot"),
    ] {
        lab.cp().arg(typed).arg(at("alpha", to.join(name))).run().expect(code::OK);
        assert_same(&source, &to.join(expected), Facets::CONTENTS);
    }
    let (back, remote) = (lab.data("home"), to.join("with"));
    lab.cp().arg(at("alpha", &remote)).arg(back.join("whole")).run().expect(code::OK);
    assert_same(&source, &back.join("whole/with"), Facets::CONTENTS);
    lab.cp().arg(at("alpha", contents_of(&remote))).arg(back.join("inside")).run().expect(code::OK);
    assert_same(&source, &back.join("inside"), Facets::CONTENTS);
}

#[test]
fn a_single_file_gets_a_new_name_or_goes_into_a_directory() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (file, to) = (lab.data("home").join("file"), lab.data("alpha"));
    plant::file(&file, 100_000, 1);
    lab.cp().arg(&file).arg(at("alpha", to.join("renamed"))).run().expect(code::OK);
    assert_same(&file, &to.join("renamed"), Facets::PLAIN);
    lab.cp().arg(&file).arg(at("alpha", &to)).run().expect(code::OK);
    assert_same(&file, &to.join("file"), Facets::PLAIN);
    plant::file(&file, 90_000, 2);
    lab.cp().arg(&file).arg(at("alpha", to.join("renamed"))).run().expect(code::OK);
    assert_same(&file, &to.join("renamed"), Facets::PLAIN);
    lab.cp().arg(&file).arg(at("alpha", to.join("new/deep/name"))).run().expect(code::OK);
    assert!(to.join("new/deep/name").exists());
    lab.cp().arg(at("alpha", to.join("renamed"))).arg(lab.data("home").join("back")).run().expect(code::OK);
    assert_same(&file, &lab.data("home").join("back"), Facets::PLAIN);
}

#[test]
fn several_sources_go_into_one_directory() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (from, to) = (lab.data("home"), lab.data("alpha").join("to"));
    plant::text(&from.join("one"), "1\n");
    plant::text(&from.join("two"), "2\n");
    plant::text(&from.join("dir/three"), "3\n");
    plant::text(&from.join("open/four"), "4\n");
    let sources =
        [from.join("one").into(), from.join("two").into(), from.join("dir").into(), contents_of(&from.join("open"))];
    lab.cp().args(sources).arg(at("alpha", &to)).run().expect(code::OK);
    assert_eq!(names_below(&to), [&b"dir"[..], b"dir/three", b"four", b"one", b"two"]);

    plant::text(&lab.data("alpha").join("file"), "in the way\n");
    let refused =
        lab.cp().args(["one", "two"].map(|name| from.join(name))).arg(at("alpha", lab.data("alpha").join("file")));
    refused.run().expect_one_of(&[code::USAGE, code::FILE_IO]).says(&["not a directory"]);
    assert_eq!(fs::read(lab.data("alpha").join("file")).expect("untouched"), b"in the way\n");
}

#[test]
fn more_sources_than_files_may_be_open() {
    needs!(Haul);
    let dir = scratch();
    let copy = |sources: &str, target: &str| {
        let program = haul_e2e::binary::find().expect("asked for with needs!");
        let script = format!("ulimit -n 256; exec {} cp --json {sources} {target}", program.display());
        haul_e2e::Run::new("sh").args(["-c", &script]).current_dir(dir.path()).run()
    };
    for number in 0..1000 {
        plant::file(&dir.path().join(format!("files/n{number}")), 100, number);
        plant::file(&dir.path().join(format!("directories/d{number}/n")), 100, number);
    }
    let run = copy("files/*", "to/").expect(code::OK);
    assert_eq!(run.count("files_moved"), 1000);
    assert_same(&dir.path().join("files"), &dir.path().join("to"), Facets::CONTENTS);
    // Holding each port open keeps others away.
    copy("directories/*", "other/").expect(code::FILE_IO).says(&["ulimit -n"]);
}

#[test]
fn wildcards_are_expanded_at_the_far_side() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (there, here) = (lab.data("alpha"), lab.data("home"));
    for name in ["run-1.dat", "run-2.dat", "run-3.txt", "run-*.dat.literal", "odd [x]/inside"] {
        plant::text(&there.join(name), name);
    }
    lab.cp().arg(at("alpha", there.join("run-*.dat"))).arg(here.join("a")).run().expect(code::OK);
    assert_eq!(names_below(&here.join("a")), [&b"run-1.dat"[..], b"run-2.dat"]);
    lab.cp().arg(at("alpha", there.join("run-[13].*"))).arg(here.join("b")).run().expect(code::OK);
    assert_eq!(names_below(&here.join("b")), [&b"run-1.dat"[..], b"run-3.txt"]);
    // A file of that very name wins.
    fs::create_dir(here.join("c")).expect("own directory");
    lab.cp().arg(at("alpha", there.join("run-*.dat.literal"))).arg(here.join("c")).run().expect(code::OK);
    assert_eq!(names_below(&here.join("c")), [b"run-*.dat.literal"]);
    lab.cp().arg(at("alpha", there.join("odd [x]"))).arg(here.join("d")).run().expect(code::OK);
    assert_eq!(names_below(&here.join("d")), [&b"odd [x]"[..], b"odd [x]/inside"]);
    lab.cp()
        .arg(at("alpha", there.join("none-*")))
        .arg(here.join("e"))
        .run()
        .expect_one_of(&[code::FILE_IO, code::PARTIAL]);
}

#[test]
fn names_are_data_and_never_commands() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (here, there) = (lab.data("home"), lab.data("alpha"));
    let names: [&[u8]; 9] = [
        b"with space",
        b"-dash",
        b"--delete",
        b"$(touch pwned)",
        b"`touch pwned`",
        b"; touch pwned",
        b"quote' and \"quote",
        b"new\nline",
        b"\xff\xfe",
    ];
    for (number, name) in (0..).zip(names) {
        let name = OsStr::from_bytes(name);
        plant::file(&here.join(name), 1000 + number, number);
        lab.cp().arg(here.join(name)).arg(at("alpha", there.join(name))).run().expect(code::OK);
        assert_same(&here.join(name), &there.join(name), Facets::PLAIN);
        let back = here.join("back").join(name);
        lab.cp().arg(at("alpha", there.join(name))).arg(&back).run().expect(code::OK);
        assert_same(&here.join(name), &back, Facets::PLAIN);
    }
    for name in ["-dash", "--delete"] {
        lab.cp()
            .current_dir(&here)
            .arg("--")
            .arg(name)
            .arg(at("alpha", there.join("after dashes")))
            .run()
            .expect(code::OK);
        assert_same(&here.join(name), &there.join("after dashes"), Facets::PLAIN);
    }
    for host in ["home", "alpha"] {
        for dir in ["home", "data"] {
            assert!(!lab.host(host).dir.join(dir).join("pwned").exists(), "a name was executed on {host}");
        }
    }
}

#[test]
fn relative_remote_paths_start_at_the_home_directory() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    // sshd starts in the password file's home, which is this machine's.
    lab.alpha().restart_sshd("ForceCommand cd \"$HOME\" && exec sh -c \"$SSH_ORIGINAL_COMMAND\"");
    let (file, home) = (lab.data("home").join("file"), lab.alpha().dir.join("home"));
    plant::file(&file, 1000, 1);
    let url = format!("ssh://alpha:{}/url/file", lab.alpha().ssh_port);
    let absolute = format!("ssh://alpha/{}", home.join("absolute").display());
    for (typed, expected) in [
        ("alpha:plain", "plain"),
        ("alpha:~/tilde", "tilde"),
        ("alpha:sub/dir/file", "sub/dir/file"),
        (url.as_str(), "url/file"),
        (absolute.as_str(), "absolute"),
        ("root@alpha:", "file"),
    ] {
        lab.cp().arg(&file).arg(typed).run().expect(code::OK);
        assert_same(&file, &home.join(expected), Facets::PLAIN);
    }
}

#[test]
fn addresses_and_ssh_flags_work_without_a_configuration() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let file = lab.data("home").join("file");
    plant::file(&file, 1000, 1);
    let port = lab.alpha().ssh_port.to_string();
    let known_hosts = format!("UserKnownHostsFile={}", lab.known_hosts().display());
    let with_flags = || {
        let run = lab.haul().args(["cp", "--json", "-P", &port, "-i"]).arg(lab.identity());
        run.args(["-F", "/dev/null", "-o", &known_hosts, "-o", "HostKeyAlias=alpha", "-o", "BatchMode=yes"])
    };
    for (name, host) in [("v4", format!("root@{}", lab.alpha().v4)), ("v6", format!("root@[{}]", lab.alpha().v6))] {
        let target = lab.data("alpha").join(name);
        with_flags().arg(&file).arg(at(&host, &target)).run().expect(code::OK);
        assert_same(&file, &target, Facets::PLAIN);
    }
    let url = format!("ssh://root@[{}]:{port}/{}", lab.alpha().v6, lab.data("alpha").join("url").display());
    with_flags().arg(&file).arg(url).run().expect(code::OK);
    assert_same(&file, &lab.data("alpha").join("url"), Facets::PLAIN);
    // rsync's way to say it.
    let rsh = format!("ssh -F {}", lab.ssh_config().display());
    let target = lab.data("alpha").join("rsh");
    lab.haul().args(["cp", "-e", &rsh]).arg(&file).arg(at("alpha", &target)).run().expect(code::OK);
    assert_same(&file, &target, Facets::PLAIN);
}

#[test]
fn says_one_line_at_the_end_and_nothing_when_quiet() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let file = lab.data("home").join("file");
    plant::file(&file, 1_000_000, 1);
    let plain =
        lab.haul().args(["cp", "-F"]).arg(lab.ssh_config()).arg(&file).arg(at("alpha", lab.data("alpha").join("a")));
    let plain = plain.run().expect(code::OK);
    let said = plain.stdout_text() + &plain.stderr_text();
    assert!(said.contains("verified") && !said.contains('\r') && !said.contains('\x1b'), "{said:?}");
    let quiet = lab.haul().args(["cp", "-q", "-F"]).arg(lab.ssh_config()).arg(&file);
    let quiet = quiet.arg(at("alpha", lab.data("alpha").join("b"))).run().expect(code::OK);
    assert_eq!((quiet.stdout_text(), quiet.stderr_text()), (String::new(), String::new()));
}

#[test]
fn json_lines_are_whole_and_end_with_the_report() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    plant::odd_names(&lab.data("home").join("names"), 1);
    let run = lab.cp_run(["-v".into(), lab.data("home").join("names").into(), at("alpha", lab.data("alpha"))]);
    let run = run.expect(code::OK);
    let lines = run.stdout.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).count();
    assert_eq!(lines, run.events().len(), "every line of standard output is JSON\n{run}");
    assert!(run.events().iter().all(|event| event["event"].is_string()), "every event has a name\n{run}");
    let report = run.report();
    for field in
        ["bytes_moved", "bytes_kept", "files_moved", "files_kept", "files_found", "failed", "skipped", "deleted"]
    {
        assert!(report[field].is_u64(), "the report has {field}\n{run}");
    }
    for field in ["lane_path", "cipher", "root_blake3", "limit"] {
        assert!(report[field].is_string(), "the report has {field}\n{run}");
    }
}

fn haul_here(dir: &std::path::Path) -> haul_e2e::Run {
    let run =
        haul_e2e::Run::new(haul_e2e::binary::find().expect("asked for with needs!")).env("HOME", dir.join("home"));
    run.env("XDG_CACHE_HOME", OsString::from(dir.join("cache")))
}
