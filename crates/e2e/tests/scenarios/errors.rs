//! Messages for requests that make no sense.

use haul_e2e::{Outcome, Run, code, needs, plant, scratch};

fn haul(args: &[&str]) -> Outcome {
    let dir = scratch();
    let program = haul_e2e::binary::find().expect("asked for with needs!");
    Run::new(program).env("HOME", dir.path()).current_dir(dir.path()).args(args).run()
}

#[test]
fn absurd_flags_are_usage_errors_that_name_the_flag() {
    needs!(Haul);
    for (flag, value) in [
        ("--lanes", "0"),
        ("--lanes", "-1"),
        ("--lanes", "257"),
        ("--lanes", "many"),
        ("--rate", "100"),
        ("--rate", "fast"),
        ("--rate", "-5Mbit"),
        ("--rate", "0Mbit"),
        ("--bwlimit", "x"),
        ("--port-range", "5-4"),
        ("--port-range", "0-10"),
        ("--port-range", "1-70000"),
        ("--timeout", "0"),
        ("--timeout", "soon"),
        ("--cipher", "rot13"),
        ("-P", "0"),
        ("-P", "99999"),
        ("--window", "-3"),
        ("--no-such-flag", ""),
    ] {
        let run = haul(&["cp", flag, value, "here", "host:there"]).expect(code::USAGE).says(&[flag]);
        assert!(run.stdout.is_empty(), "an error stands on standard error\n{run}");
    }
}

#[test]
fn absurd_places_are_usage_errors() {
    needs!(Haul);
    for paths in [
        &["only-one"][..],
        &[""],
        &["", "host:x"],
        &["here", ""],
        &["-P22", "here"],
        &["alpha:a", "beta:b", "gamma:c"],
        &["local", "alpha:b", "beta:c"],
        &["here", "ssh://alpha:0/x"],
        &["here", "ssh://alpha:99999/x"],
        &["here", "gopher://alpha/x"],
        &["here", "alpha::module"],
        &["here", "-oProxyCommand=id:x"],
        &["here", "ssh://-oProxyCommand=id/x"],
        &["--", "here", "-oProxyCommand=touch pwned:x"],
        &["--delete", "--files-from", "list", "here/", "there"],
        &["-4", "-6", "here", "alpha:there"],
        &["--files-from", "/dev/null", "a/", "b/", "there"],
    ] {
        let run = haul(&[&["cp"], paths].concat()).expect(code::USAGE);
        assert!(!run.stderr.is_empty(), "{run}");
    }
}

#[test]
fn a_directory_is_not_copied_into_itself() {
    needs!(Haul);
    let dir = scratch();
    haul_e2e::plant::text(&dir.path().join("tree/file"), "words\n");
    let program = haul_e2e::binary::find().expect("asked for");
    for target in ["tree", "tree/inner", "tree/"] {
        let run = Run::new(&program).env("HOME", dir.path()).current_dir(dir.path()).args(["cp", "tree", target]);
        run.run().expect_one_of(&[code::USAGE, code::FILE_IO, code::PARTIAL]).says_one_of(&["itself", "inside"]);
    }
    let file =
        Run::new(&program).env("HOME", dir.path()).current_dir(dir.path()).args(["cp", "tree/file", "tree/file"]);
    file.run().expect_one_of(&[code::OK, code::USAGE, code::FILE_IO, code::PARTIAL]);
    assert_eq!(std::fs::read(dir.path().join("tree/file")).expect("untouched"), b"words\n");
}

#[test]
fn help_and_version_are_no_errors() {
    needs!(Haul);
    for args in [&["--help"][..], &["--version"], &["-V"], &["cp", "--help"], &["cp", "-h"], &["verify", "--help"]] {
        let run = haul(args).expect(code::OK);
        assert!(run.stderr.is_empty() && !run.stdout.is_empty(), "{run}");
    }
    let run = haul(&["cp", "--help"]);
    for word in ["TRAILING SLASH", "EXIT STATUS", "--exclude", "--lanes"] {
        assert!(run.stdout_text().contains(word), "the help speaks of {word}\n{run}");
    }
    haul(&[]).expect(code::USAGE);
    haul(&["no-such-command"]).expect(code::USAGE);
}

#[test]
fn completions_and_manual_pages_come_out() {
    needs!(Haul);
    for shell in ["bash", "zsh", "fish"] {
        assert!(haul(&["completions", shell]).expect(code::OK).stdout_text().contains("haul"));
    }
    let page = haul(&["man"]).expect(code::OK).stdout_text();
    assert!(page.contains(".TH"), "{page}");
}

#[test]
fn a_manifest_that_is_none_is_refused() {
    needs!(Haul);
    let dir = scratch();
    let manifest = dir.path().join("manifest");
    let verify = |words: &str| {
        haul_e2e::plant::text(&manifest, words);
        haul(&["verify", &manifest.to_string_lossy(), &dir.path().to_string_lossy()])
    };
    for words in ["", "hello\n", "# haul-manifest 1\n", "# haul-manifest 99\n# files 0 bytes 0 root 00\n"] {
        verify(words).expect_one_of(&[code::VERIFICATION, code::FILE_IO, code::USAGE]);
    }
    haul(&["verify", "/no/such/manifest"]).expect(code::FILE_IO).says(&["no such file"]);
}

#[test]
fn an_agent_that_hears_nonsense_ends_quickly_and_quietly() {
    needs!(Haul);
    let program = haul_e2e::binary::find().expect("asked for");
    let dir = scratch();
    for input in [&b""[..], b"\0", &[0xff; 100_000], b"GET / HTTP/1.0\r\n\r\n", &[0; 64]] {
        let run = Run::new(&program).env("HOME", dir.path()).args(["agent"]).input(input);
        let run = run.limit(std::time::Duration::from_secs(30)).run();
        assert!(run.code() != code::OK && run.code() < 101, "{run}");
        assert!(!run.stderr_text().contains("panicked"), "{run}");
    }
}

#[test]
fn a_source_that_is_not_here_is_found_before_anybody_logs_in() {
    needs!(Haul);
    let dir = haul_e2e::disk::scratch();
    let marker = dir.path().join("logged-in");
    let ssh = dir.path().join("ssh");
    haul_e2e::plant::text(&ssh, &format!("#!/bin/sh\ntouch {}\nexit 255\n", marker.display()));
    haul_e2e::plant::set_mode(&ssh, 0o755);
    let haul = || {
        Run::new(haul_e2e::binary::find().expect("asked for with needs!"))
            .env("HOME", dir.path())
            .current_dir(dir.path())
    };
    let run = haul().args(["cp", "-S"]).arg(&ssh).args(["no-such-file", "nor-this", "host:there"]).run();
    run.expect(code::PARTIAL).says(&["cannot find no-such-file, nor any of 1 more"]);
    assert!(!marker.exists(), "nobody logged in");
    haul_e2e::plant::text(&dir.path().join("here"), "x");
    haul().args(["cp", "-S"]).arg(&ssh).args(["no-such-file", "here", "host:there"]).run().expect(code::SSH);
    assert!(marker.exists());
}

/// A root's path beneath itself is empty, and names nothing.
#[test]
fn what_cannot_be_done_to_a_root_is_told_with_the_path_that_was_typed() {
    needs!(Root, Haul, Tool("setpriv"));
    let nobody = crate::faults::Nobody::new();
    plant::text(&nobody.source.join("file"), "words\n");
    let typed = |path: &std::path::Path| path.display().to_string();
    let says = |flags: &[&str], end: &std::path::Path, words: &str| {
        let run = nobody.cp(flags).run();
        assert_ne!(run.code(), code::OK, "{run}");
        let said = run.stdout_text() + &run.stderr_text();
        assert!(said.contains(&format!("{words} {}", typed(end))), "{words}: {run}");
        assert!(!said.contains(": :") && !said.contains(" .:") && !said.contains(" : "), "{run}");
    };
    // Within one tick of the kernel's clock both would be equally old: nothing to set.
    plant::set_mtime(&nobody.source, 1_000_000_000, 0);
    // First the target is root's and readable, then closed; then the source is closed.
    std::os::unix::fs::chown(&nobody.target, Some(0), Some(0)).expect("root may");
    says(&["-a"], &nobody.target, "cannot set metadata of");
    plant::set_mode(&nobody.target, 0o700);
    says(&["-a"], &nobody.target, "cannot use");
    says(&["-a", "--delete"], &nobody.target, "cannot use");
    plant::set_mode(&nobody.source, 0o000);
    says(&["-a"], &nobody.source, "cannot read directory");
}
