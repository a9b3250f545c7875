//! Commands for trees where no haul runs: at hosts with sftp alone, and at others' web servers.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use haul_e2e::compare::names_below;
use haul_e2e::memory::PeakWatch;
use haul_e2e::outcome::json_lines;
use haul_e2e::{Lab, Outcome, Run, at, code, needs, plant, scratch};

use crate::places::{neighbour, over_ssh, sorted};
use crate::web_source::Web;

fn planted(tree: &Path) {
    plant::mixed(tree, 1);
    plant::odd_names(&tree.join("odd"), 2);
    for name in ["100%", "per%20cent", "#hash", "quest?ion", "plus+", "a&b"] {
        plant::text(&tree.join("odd").join(name), name);
    }
    plant::file(&tree.join("large"), 3 << 20, 3);
    plant::date(tree, 4);
    // Only root opens what the owner may not.
    plant::set_mode(&tree.join("modes"), 0o755);
}

#[test]
fn what_is_said_of_a_tree_at_a_host_with_sftp_alone_is_what_coreutils_say_of_it() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let data = lab.data("alpha");
    planted(&data.join("tree"));
    let there = |command: &str, flags: &[&str], path: &str| {
        let url = format!("sftp://alpha/{}/{path}", data.display());
        over_ssh(&lab, command).args(flags).arg(url).run().expect(code::OK)
    };
    let home = format!("sftp://alpha/{}/", data.display());
    let text = |run: Outcome| String::from_utf8_lossy(&run.stdout).replace(&home, "");
    for (flags, path) in [(&["-A"][..], "tree"), (&[], "tree/odd"), (&["-AR"], "tree")] {
        let expected = neighbour("ls", &[flags, &["-1", path]].concat(), &data);
        assert_eq!(text(there("ls", flags, path)), expected, "{flags:?} {path}");
    }
    // No sftp server tells a file's names, or its space on disk.
    let without_links = |text: &str| -> Vec<String> {
        let rows = text.lines().filter(|line| !line.starts_with("total "));
        rows.map(|row| {
            row.split_whitespace()
                .enumerate()
                .filter(|(at, _)| *at != 1)
                .map(|(_, word)| word)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect()
    };
    for path in ["tree", "tree/modes", "tree/links"] {
        let ours = text(there("ls", &["-ln"], path));
        assert_eq!(without_links(&ours), without_links(&neighbour("ls", &["-ln", path], &data)), "{path}");
    }
    for flags in [&["-b"][..], &["-bs"]] {
        let expected = neighbour("du", &[flags, &["tree"]].concat(), &data);
        assert_eq!(sorted(&text(there("du", flags, "tree"))), sorted(&expected), "{flags:?}");
    }
    there("du", &[], "tree").says(&["does not tell what files take on its disk"]);
    assert!(there("cat", &[], "tree/large").stdout == fs::read(data.join("tree/large")).expect("own file"));
    assert_eq!(there("cat", &[], "tree/odd/quest[?]i*").stdout, b"quest?ion");
    let entries = json_lines(&there("ls", &["-RA", "--json"], "tree").stdout);
    assert_eq!(entries.len(), names_below(&data.join("tree")).len());
    for entry in &entries {
        assert_eq!(
            (&entry["place"], &entry["inode"], &entry["links"]),
            (&"sftp://alpha".into(), &serde_json::Value::Null, &serde_json::Value::Null)
        );
        assert!(entry["mode"].is_string() && entry["mtime"].is_string(), "{entry}");
    }
    let space = json_lines(&there("df", &["--json"], "tree").stdout);
    assert!(space[0]["size_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{space:?}");
}

#[test]
fn trees_are_hashed_verified_and_compared_honestly_over_sftp() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (here, there) = (lab.data("home").join("tree"), lab.data("alpha").join("tree"));
    planted(&here);
    Run::new("cp").arg("-a").args([&here, &there]).run().expect(code::OK);
    let url = format!("sftp://alpha/{}", there.display());
    let run = |command: &str| over_ssh(&lab, command);
    let hashed = run("hash").args(["-a", "sha256"]).arg(&url).run().expect(code::OK);
    says(&hashed, &["as read over sftp", "sent every byte"]);
    let list = lab.data("home").join("list");
    fs::write(&list, &hashed.stdout).expect("own directory");
    // The list's names begin at the host's root.
    let verified = run("verify").arg(&list).arg("sftp://alpha//").run().expect(code::OK);
    assert!(verified.stdout_text().contains("SHA-256 as read over sftp"), "{verified}");
    Run::new("sha256sum").args(["--quiet", "-c"]).arg(&list).run().expect(code::OK);
    let manifest = run("hash").arg("-m").arg(&url).run().expect(code::OK).stdout;
    let run_on_input = |tree: &str| run("verify").args(["--extra", "--json", "-", tree]).input(manifest.clone()).run();
    let totals = run_on_input(&url).expect(code::OK).events_named("verified").remove(0);
    assert_eq!((&totals["proof"], &totals["extra"]), (&"as_read".into(), &0.into()));
    assert_eq!(
        run_on_input(&here.display().to_string()).expect(code::OK).events_named("verified")[0]["proof"],
        "both_ends"
    );

    for flags in [&[][..], &["-c"], &["-ca"]] {
        let same = run("diff").args(flags).arg(&here).arg(&url).run().expect(code::OK);
        let is_read = same.stdout_text().contains("contents as read over sftp");
        assert_eq!(is_read, !flags.is_empty(), "{same}");
    }
    fs::write(there.join("large"), "short").expect("own file");
    fs::write(there.join("extra"), "").expect("own directory");
    fs::remove_file(there.join("odd/100%")).expect("own file");
    let differs = run("diff").arg(&here).arg(&url).run().expect(1).stdout_text();
    for line in ["changed: large (size, time)", "extra: extra", "new: odd/100%"] {
        assert!(differs.lines().any(|other| other == line), "{line}\n{differs}");
    }
    let bad = run_on_input(&url).expect(code::VERIFICATION);
    let findings: Vec<_> = bad.events_named("differs").iter().map(|line| line["finding"].clone()).collect();
    assert_eq!(findings.len(), 3, "{findings:?}");
    // A link in the way is not followed.
    fs::remove_dir_all(there.join("sizes")).expect("own directory");
    std::os::unix::fs::symlink(here.join("sizes"), there.join("sizes")).expect("own directory");
    let bad = run_on_input(&url).expect(code::VERIFICATION);
    assert!(bad.events_named("differs").iter().any(|line| line["finding"] == "not_a_file"), "{bad}");
}

#[test]
fn an_account_with_sftp_alone_is_found_out_and_told_of_once() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    lab.alpha().restart_sshd("ForceCommand internal-sftp");
    let data = lab.data("alpha");
    plant::text(&data.join("tree/file"), "words");
    for (command, expected) in [("ls", "file\n"), ("hash", "tree/file"), ("stat", "directory")] {
        let run = over_ssh(&lab, command).arg(at("alpha", data.join("tree"))).run().expect(code::OK);
        assert!(run.stdout_text().contains(expected), "{run}");
        assert_eq!(run.stderr_text().matches("this goes over sftp, as with sftp://alpha/").count(), 1, "{run}");
    }
    let here = lab.data("home").join("tree");
    plant::text(&here.join("file"), "words");
    let run = over_ssh(&lab, "diff").arg("-c").arg(&here).arg(at("alpha", data.join("tree"))).run().expect(code::OK);
    assert_eq!(run.stderr_text().matches("this goes over sftp").count(), 1, "{run}");
    over_ssh(&lab, "rm").arg("-r").arg(at("alpha", data.join("tree"))).run().expect(code::OK);
    assert!(!data.join("tree").exists());
}

#[test]
fn what_dead_copies_left_at_a_server_is_shown_and_removed_once_a_day_has_passed() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let tree = lab.data("alpha").join("tree");
    let draft = |directory: &str, digit: char, kind: &str, days: i64, mode: u32| {
        let path = tree.join(directory).join(format!(".haul-{}.{kind}", String::from(digit).repeat(32)));
        plant::file(&path, 5, 1);
        plant::set_mode(&path, mode);
        Run::new("touch").arg("-d").arg(format!("{days} days ago 1 minute ago")).arg(&path).run().expect(code::OK);
        path
    };
    let dead = [
        draft("", 'a', "journal", 2, 0o600),
        draft("", 'a', "part", 1, 0o600),
        draft("sub/deep", 'b', "part", 400, 0o600),
        draft("sub/deep", 'c', "journal", 1, 0o600),
    ];
    let alive = [
        draft("", 'd', "part", 0, 0o600),
        draft("", 'e', "journal", 2, 0o600),
        draft("", 'e', "part", 0, 0o600),
        draft("sub", 'f', "part", 2, 0o666),
    ];
    plant::text(&tree.join(".haul-other"), "no draft");
    std::os::unix::fs::symlink(&tree, tree.join("sub/up")).expect("own directory");
    let url = format!("sftp://alpha/{}", tree.display());
    let clean = |flags: &[&str]| over_ssh(&lab, "clean").args(flags).arg(&url).run().expect(code::OK);
    let names = |run: &Outcome| -> Vec<String> {
        json_lines(&run.stdout).iter().map(|line| line["path"].as_str().expect("a name").to_owned()).collect()
    };
    let expected: Vec<String> = dead.iter().map(|path| path.display().to_string()).collect();
    assert_eq!(names(&clean(&["--json"])), expected);
    assert!(dead.iter().chain(&alive).all(|path| path.exists()));
    assert_eq!(names(&clean(&["-f", "--json"])), expected);
    assert!(!dead.iter().any(|path| path.exists()) && alive.iter().all(|path| path.exists()));
    assert_eq!(clean(&["-f"]).stdout_text(), "");
}

#[test]
fn a_host_that_vanishes_ends_the_command_with_its_exit_code() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (file, tree) = (lab.data("alpha").join("file"), lab.data("alpha").join("tree"));
    plant::file(&file, 200 << 20, 1);
    plant::many(&tree, 20, 10, 2);
    let url = format!("sftp://alpha/{}", file.display());
    let mut cat = over_ssh(&lab, "cat").arg(&url).unread().start();
    cat.when("it has a connection that reads", |_| !lab.alpha().processes_named("sshd").is_empty() && has_read(&lab));
    for pid in lab.alpha().processes_named("sshd") {
        lab.alpha().kill(pid);
    }
    cat.read_on();
    let ended = cat.wait().expect(code::NETWORK);
    assert_eq!(ended.stderr_text().matches("error:").count(), 1, "{ended}");
    over_ssh(&lab, "ls").arg("--no-keep-login").arg(&url).run().expect_one_of(&[code::SSH, code::NETWORK]);
}

fn has_read(lab: &Lab) -> bool {
    let opened = |pid: u32| fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let is_data = |path: PathBuf| path.file_name().is_some_and(|name| name == "file");
    lab.alpha()
        .processes_named("sshd")
        .into_iter()
        .any(|pid| opened(pid).any(|entry| fs::read_link(entry.path()).is_ok_and(is_data)))
}

#[test]
fn a_reader_who_has_enough_ends_cat_without_a_word() {
    needs!(Namespaces, Haul, Tool("nginx"));
    let lab = Lab::pair();
    let file = lab.data("alpha").join("file");
    plant::file(&file, 50 << 20, 1);
    let web = Web::nginx("");
    plant::file(&web.www().join("file"), 50 << 20, 1);
    let haul = haul_e2e::binary::find().expect("asked for with needs!");
    let head = |run: Run, words: String| {
        let script = format!("{} cat {words} | head -c 10 | wc -c; echo ${{PIPESTATUS[0]}}", haul.display());
        let run = run.args(["-c", &script]).run().expect(code::OK);
        assert_eq!((run.stdout_text(), run.stderr_text()), ("10\n0\n".to_owned(), String::new()), "{run}");
    };
    let config = lab.ssh_config();
    head(lab.home().run("bash"), format!("-F {} sftp://alpha/{}", config.display(), file.display()));
    head(Run::new("bash").env("HOME", web.to()), web.url("file"));
}

#[test]
fn a_million_names_of_a_server_need_no_more_memory_than_a_bound() {
    needs!(Haul, Tool("python3"));
    let dir = scratch();
    let ssh = dir.path().join("ssh");
    fs::write(&ssh, include_str!("million_names.py")).expect("own directory");
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).expect("own file");
    // Sorted names take at most 64 MiB (`SiteBounds`); the rest is the program and its buffers.
    for (command, flags, lines, most_bytes) in
        [("ls", &[][..], 1_000_000, 100 << 20), ("ls", &["-l"], 1_000_000, 130 << 20), ("du", &["-b"], 1, 40 << 20)]
    {
        let haul = Run::new(haul_e2e::binary::find().expect("asked for with needs!"));
        let run = haul.arg(command).args(flags).arg("-S").arg(&ssh).arg("sftp://host/d").env("HOME", dir.path());
        let running = run.limit(Duration::from_secs(300)).start();
        let pid = running.id();
        let peak = PeakWatch::start(move || vec![pid]);
        let run = running.wait().expect(code::OK);
        let peak = peak.largest().expect("it was seen");
        assert_eq!(run.stdout.iter().filter(|byte| **byte == b'\n').count(), lines, "{command}");
        assert!(peak < most_bytes, "{command} {flags:?}: {} MiB", peak >> 20);
    }
}

fn says(run: &Outcome, words: &[&str]) {
    for word in words {
        assert!(run.stderr_text().contains(word), "{word}\n{run}");
    }
}

fn urls(web: &Web, flags: &[&str], command: &str, path: &str) -> Outcome {
    web.haul().arg(command).args(flags).arg(web.url(path)).env("TZ", "UTC").run()
}

#[test]
fn the_files_of_web_servers_are_listed_read_and_hashed() {
    needs!(Haul, Tool("nginx"), Tool("python3"));
    for web in [Web::nginx(""), Web::nginx("autoindex_format json;"), Web::python()] {
        let tree = web.www().join("tree");
        plant::file(&tree.join("sub/large"), 5_000_000, 2);
        fs::create_dir_all(tree.join("sub/empty")).expect("own directory");
        for name in ["a b", "100%", "per%20cent", "#hash", "quest?ion", "-dash", "plus+", "new\nline", "\u{e4}"] {
            plant::text(&tree.join("odd").join(name), name);
        }
        plant::date(&tree, 4);
        // nginx and Python show names with a dot in front in their own ways, so the tree has none.
        let listed = |flags: &[&str], path: &str| urls(&web, flags, "ls", path).expect(code::OK).stdout_text();
        for path in ["tree/odd", "tree/odd/"] {
            assert_eq!(listed(&[], path), neighbour("ls", &["-1", "odd"], &tree), "{path}");
        }
        let below = names_below(&tree).len();
        let entries = json_lines(listed(&["-R", "--json"], "tree").as_bytes());
        assert_eq!(entries.len(), below);
        for entry in &entries {
            let path = entry["path"].as_str().expect("all names are text").trim_start_matches('/');
            let there = fs::metadata(web.www().join(path)).expect("it is listed");
            assert!(entry["mode"].is_null() && entry["inode"].is_null() && entry["uid"].is_null(), "{entry}");
            if there.is_file() {
                assert_eq!(entry["size"].as_u64(), Some(there.len()), "{entry}");
                assert!(entry["mtime"].as_str().is_some_and(|time| time.ends_with('Z')), "{entry}");
            }
        }
        assert!(listed(&["-l"], "tree/odd").lines().next().is_some_and(|row| row.starts_with("-????????? ? ? ? ")));
        let bytes = urls(&web, &["-bs"], "du", "tree").expect(code::OK).stdout_text();
        let sizes = fs::read_dir(tree.join("odd"))
            .expect("own directory")
            .map(|entry| entry.expect("own").metadata().expect("own").len());
        assert_eq!(bytes.split('\t').next(), Some((5_000_000 + sizes.sum::<u64>()).to_string().as_str()));
        assert!(urls(&web, &[], "stat", "tree/odd/a b").expect(code::OK).stdout_text().contains("Size: 3"));
        assert_eq!(urls(&web, &[], "cat", "tree/odd/%23hash").expect(code::OK).stdout, b"#hash");
        // A printed name can be typed.
        let rows = urls(&web, &["-d"], "ls", "tree/odd/a b").expect(code::OK).stdout_text();
        assert_eq!(rows, format!("{}\n", web.url("tree/odd/a%20b")));

        let hashed = urls(&web, &["-a", "sha256"], "hash", "tree").expect(code::OK);
        says(&hashed, &["as sent by the server"]);
        let list = web.to().join("list");
        fs::write(&list, &hashed.stdout).expect("own directory");
        let verified = web.haul().arg("verify").arg(&list).arg(web.url("")).run().expect(code::OK);
        assert!(verified.stdout_text().contains("SHA-256 as sent by the server"), "{verified}");
        let manifest = urls(&web, &["-m"], "hash", "tree").expect(code::OK).stdout;
        let verify = |root: String| web.haul().args(["verify", "--extra", "-"]).arg(root).input(manifest.clone()).run();
        verify(tree.display().to_string()).expect(code::OK);
        verify(web.url("tree")).expect(code::OK);
        for flags in [&[][..], &["-c"]] {
            let same = web.haul().arg("diff").args(flags).arg(&tree).arg(web.url("tree")).run().expect(code::OK);
            let is_sent = same.stdout_text().contains("contents as sent by the server");
            assert_eq!(is_sent, !flags.is_empty(), "{same}");
        }
        let all = web.haul().args(["diff", "-ca"]).arg(&tree).arg(web.url("tree")).run().expect_one_of(&[0, 1]);
        assert!(all.stdout_text().contains("not compared, because a server does not tell it: "), "{all}");
        fs::write(tree.join("sub/large"), "short").expect("own file");
        fs::remove_file(tree.join("odd/plus+")).expect("own file");
        plant::text(&tree.join("more"), "more");
        let bad = verify(web.url("tree")).expect(code::VERIFICATION);
        for line in ["size differs: sub/large", "missing: odd/plus+", "extra: more"] {
            assert!(bad.to_string().contains(line), "{line}\n{bad}");
        }
    }
}

#[test]
fn what_a_web_server_does_not_do_is_refused_in_a_sentence() {
    needs!(Haul, Tool("nginx"));
    let web = Web::nginx("location = /secret { return 403; }");
    plant::text(&web.www().join("file"), "words");
    for (command, flags) in [("rm", &["-rf"][..]), ("mkdir", &["-p"]), ("clean", &[]), ("df", &[])] {
        urls(&web, flags, command, "file").expect(code::USAGE).says(&["is a web server, "]);
    }
    let moved = web.haul().arg("mv").arg(web.url("file")).arg(web.url("new")).run();
    moved.expect(code::USAGE).says(&["only read", "haul serve takes files"]);
    assert!(web.www().join("file").exists());
    urls(&web, &[], "ls", "none").expect(2).says(&["no such file", "404"]);
    urls(&web, &[], "cat", "none").expect(1).says(&["404"]);
    urls(&web, &[], "cat", "").expect(1).says(&["is a directory"]);
    urls(&web, &[], "stat", "secret").expect(1).says(&["403"]);
    let secret = format!("http://me:hush@127.0.0.1:{}/none?sig=hush", web.port());
    for command in ["ls", "cat", "hash"] {
        let run = web.haul().arg(command).arg(&secret).run();
        assert!(!run.to_string().replace(&secret, "").contains("hush"), "{run}");
    }
}

#[test]
fn a_web_server_that_vanishes_ends_the_command_with_its_exit_code() {
    needs!(Haul, Tool("nginx"));
    let web = Web::nginx("");
    plant::file(&web.www().join("file"), 100 << 20, 1);
    let mut cat = web.haul().arg("cat").arg(web.url("file")).unread().start();
    let reads = || {
        fs::read_dir("/proc").into_iter().flatten().flatten().any(|process| {
            let fds = fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
            fds.into_iter().any(|fd| fs::read_link(fd.path()).is_ok_and(|path| path == web.www().join("file")))
        })
    };
    cat.when("nginx sends it", |_| reads());
    let dir = web.stopped();
    cat.read_on();
    let ended = cat.wait().expect(code::NETWORK);
    assert_eq!(ended.stderr_text().matches("error:").count(), 1, "{ended}");
    drop(dir);
}
